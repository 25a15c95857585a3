/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * Survives SIGBUS in memory that processes share with the daemon: from this call on, a page that
 * cannot be had reads as zeros, which no other process sees, until it is unmapped.
 *
 * Why it happens: a process can punch holes into the memfd of its map or ring, or send one that is
 * all holes. With strict overcommit (vm.overcommit_memory=2) the kernel may have no page to put
 * there, and sends SIGBUS to the thread that touches the hole.
 */
void sigbus_survive(void);

/* How many pages were replaced so. */
uint64_t sigbus_pages(void);
