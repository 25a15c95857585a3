/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct ctl;

/* Prints a CDI specification for the library at @library in the folder `root`. The exit status. */
int cdi_print(struct ctl *ctl, int root, const char *library);
