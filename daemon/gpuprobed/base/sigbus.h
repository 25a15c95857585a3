/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

#include <stdint.h>

/*
 * Memory that processes share with the daemon may turn out not to be there: a process can punch
 * holes into the memfd of its map or ring, or send one that is all holes, and with strict
 * overcommit (vm.overcommit_memory=2) the kernel then has no page to put there. That is a SIGBUS
 * for who touches it. From now on who does so finds zeros there, which nobody else sees, until the
 * mapping goes.
 */
void sigbus_survive(void);

/* Pages for which that has happened. */
uint64_t sigbus_pages(void);
