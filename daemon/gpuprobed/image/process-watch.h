/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Processes that an earlier daemon knew, and that have not connected with this one yet: their end
 * is seen by a pidfd. */

struct process;
struct process_table;

/* Until process_unwatch(), the end of the process is told to gone() of the table. 0,
 * -ESRCH: it has ended, or -errno. */
int process_watch(struct process_table *table, struct process *process);

/* It has a connection now, or goes. Nothing if it is not watched. */
void process_unwatch(struct process *process);
