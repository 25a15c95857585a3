/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Which twins executable graphs hold. A node of an executable graph keeps the function that it was
 * given until it gets another one, so a twin that some node has must stay loaded. Twins are named
 * by a number that no other one has: `born` of their struct load. Any thread may call these; they
 * call nothing.
 */

#include <stdbool.h>
#include <stdint.h>

#define TWIN_HOLD_NONE UINT64_C(0)

/* An executable graph has got a first node with that twin. False: no memory; it must not. */
bool twin_hold(uint64_t twin);
/* That graph has no node with it any more. */
void twin_release(uint64_t twin);
/* Does some graph hold it? */
bool twin_is_held(uint64_t twin);
/* It is gone with its module or its context, whoever holds it: from now on it is not held. */
void twin_hold_forget(uint64_t twin);
