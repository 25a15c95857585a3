/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Included first into the libraries that the shim loads beside itself (meson.build), so that these
 * load wherever the shim does.
 */

#include "old-libc.h"

/*
 * In libdl.so.2 before glibc 2.34. A process with a driver has that library, though perhaps not
 * where we look.
 */
UNVERSIONED(dlerror);
UNVERSIONED(dlopen);
UNVERSIONED(dlsym);
#pragma weak dlerror
#pragma weak dlopen
#pragma weak dlsym
OLDEST(glob64);
