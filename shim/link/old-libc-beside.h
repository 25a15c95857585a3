/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Included before all else into what the shim loads beside itself (meson.build), which is to be had
 * wherever the shim is. */

#include "old-libc.h"

/* In libdl.so.2 before glibc 2.34. A process with a driver has it, though perhaps not where we
 * look: who is asked for the table looks. */
UNVERSIONED(dlerror);
UNVERSIONED(dlopen);
UNVERSIONED(dlsym);
#pragma weak dlerror
#pragma weak dlopen
#pragma weak dlsym
OLDEST(glob64);
