/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Where in a function's first instructions a uprobe goes. The kernel emulates pushes, nops, jumps
 * and calls; what it cannot emulate it runs by single-stepping, ten times slower. So a probe goes
 * to the first instruction that is emulated, if what is before it leaves the stack pointer and the
 * registers of arguments alone.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SITE_BYTES 32 /* as many are looked at */

enum site_kind {
	SITE_EMULATED,
	SITE_STEPPED, /* at the entry, for want of a better one */
};

/* The site in the n first bytes of a function of x86-64 (not more than it has). Offset is where it
 * is; on other machines always 0. */
enum site_kind site_select(const uint8_t *bytes, size_t n, size_t *offsetp);

/*
 * The length of an instruction of the few kinds that may be before a site, and whether it leaves
 * the stack, its pointer and arguments' registers alone; 0: of none of these kinds, or cut off.
 */
size_t site_instruction(const uint8_t *bytes, size_t n, bool *harmlessp);
