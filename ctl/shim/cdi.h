/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * `gpuprobectl shim cdi`: a specification for CDI (Container Device Interface), which puts the shim
 * into containers.
 */

struct ctl;

/* Prints a CDI specification for the library at @library in the folder `root`. The exit status. */
int cdi_print(struct ctl *ctl, int root, const char *library);
