/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as a cubin into which probes are put, and as the cubin of a probe.
 * Whatever comes of it can be read again: a twin is a cubin, its kernel has other exits than the
 * original, and nothing else is refused in it than in the original.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/sass/address.h"
#include "daemon/worker/sass/data.h"
#include "daemon/worker/sass/kernel.h"
#include "daemon/worker/sass/rewrite.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* VOTEU and an atomic addition, as ptxas makes them of tests/gpu/counter-probe.ptx; no branch. */
static const struct sass_word counter[] = {
	{ 0x0000000000007919, 0x000e2e0000000000 }, /* S2R R0, SR_LANEID */
	{ 0x00008400ff027b82, 0x000e620000000a00 }, /* LDC.64 R2, c[0x0][0x210] */
	{ 0x0000000000047886, 0x000fe200038e0100 }, /* VOTEU.ANY UR4, UPT, PT */
	{ 0x00000004000472bd, 0x000fe400080e0000 }, /* UFLO.U32 UR4, UR4 */
	{ 0x0000000400007c0c, 0x001fe2000bf02070 }, /* ISETP.EQ.U32.AND P0, PT, R0, UR4, PT */
	{ 0x0000820000047ab9, 0x002fe20000000a00 }, /* ULDC.64 UR4, c[0x0][0x208] */
	{ 0x000000040200098e, 0x000fe2000c10e584 }, /* @P0 REDG.E.ADD.64 desc[UR4][R2.64], R4 */
	{ 0x000000000000794d, 0x000fea0003800000 }, /* EXIT */
};

static void rewrite(const uint8_t *data, size_t size, const char *name,
		    const struct sass_probe *probe) {
	const struct sass_request request = { .kernel = name, .entry = probe, .exit = probe };
	struct sass_kernel kernel;
	struct sass_refusal refusal;
	struct sass_cubin cubin;
	struct sass_twin twin;
	uint8_t *written = NULL;
	size_t written_size;
	int r;

	if (sass_cubin_init(&cubin, data, size, &refusal))
		return;
	r = sass_rewrite(&twin, &cubin, &request, &refusal);
	if (!r && sass_cubin_write(&cubin, &written, &written_size))
		abort();
	sass_cubin_deinit(&cubin);
	if (r)
		return;
	if (sass_cubin_init(&cubin, written, written_size, &refusal))
		abort();
	/* Its first instruction is a branch now. */
	if (sass_kernel_init(&kernel, &cubin, name, &refusal) != SASS_REFUSED ||
	    strncmp(refusal.text, "an unknown first instruction at 0x0 ", 36))
		abort();
	sass_cubin_deinit(&cubin);
	free(written);
}

/* The addresses that a kernel has, and its data put into itself. */
static void link_data(const uint8_t *data, size_t size, const char *name) {
	struct sass_cubin cubin, probes;
	struct sass_slots slots = {};
	struct sass_refusal refusal;
	struct sass_kernel kernel;
	struct sass_bases bases;
	uint8_t *written = NULL;

	if (sass_cubin_init(&cubin, data, size, &refusal))
		return;
	if (!sass_kernel_init(&kernel, &cubin, name, &refusal)) {
		sass_slots_add(&slots, &cubin, &kernel, &refusal);
		sass_kernel_deinit(&kernel);
	}
	if (!sass_cubin_init(&probes, data, size, &refusal)) {
		sass_data_add(&cubin, &probes, &bases, &refusal);
		sass_cubin_deinit(&probes);
	}
	if (sass_slots_drop(&slots, &cubin) || sass_cubin_write(&cubin, &written, &size))
		abort();
	free(written);
	sass_slots_deinit(&slots);
	sass_cubin_deinit(&cubin);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	struct sass_probe probe = {
		.arch = sass_arch_find(90),
		.code = (uint8_t *)(uintptr_t)counter,
		.size = sizeof(counter),
		.registers = 10,
		.parameters = 8,
		.pairs = { 7 },
		.uniform_quads = 2,
		.scoreboards = 3,
		.n_exits = 1,
	};
	struct sass_refusal refusal;
	struct sass_probe other;
	struct sass_cubin cubin;
	Elf64_Sym symbol;
	const char *name;

	if (sass_cubin_init(&cubin, data, size, &refusal))
		return 0;
	if (!sass_probe_init(&other, &cubin, "probe", &refusal))
		sass_probe_deinit(&other);
	for (uint64_t i = 0; i < 64 && sass_cubin_symbol(&cubin, i, &symbol, &name); i++)
		if (name && (symbol.st_other & SASS_STO_ENTRY)) {
			rewrite(data, size, name, &probe);
			link_data(data, size, name);
		}
	sass_cubin_deinit(&cubin);
	return 0;
}
