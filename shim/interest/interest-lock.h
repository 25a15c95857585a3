/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The lock around the interest pages, and whether this process may have to do with them at all. */

#include "interest-page.h"

/* Not with AT_SECURE nor GPUPROBE=off. */
bool interest_allowed(void);

/* Nor with GPUPROBE=ptx: may NVIDIA's library be loaded? */
bool interest_allows_sass(void);

/* For the functions of interest-page.h that are not thread-safe. False: as guard_lock(). */
bool interest_lock(void);
void interest_unlock(void);

/* In a forked child, which lacks the thread that had the lock: pages are mapped anew. */
void interest_lock_forked(void);

/* Is a daemon interested in this process, and may it wait for that daemon? Takes the lock. */
bool interest_is_meant(struct interest *found);
