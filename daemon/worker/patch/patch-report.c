/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads what the compiler says about a patch function (patch-report.h), from the cubin and its log.
 *
 * Registers of a function that is no kernel are in the cubin alone: an attribute EIATTR_REGCOUNT of
 * .nv.info, the index of a symbol and a number. Spills are in the log alone:
 *
 * 	Function properties for F
 * 	    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
 */

#include "patch-report.h"

#include <stdio.h>
#include <string.h>

#include "daemon/worker/compiler/cubin.h"

static void read_log(struct patch_report *report, const char *symbol, const char *log) {
	static const char heading[] = "Function properties for ";
	const size_t length = strlen(symbol);
	unsigned int stack, stores, loads;

	for (const char *at = log; (at = strstr(at, heading));) {
		at += sizeof(heading) - 1;
		if (strncmp(at, symbol, length) || at[length] != '\n')
			continue;
		/* a line may begin with "ptxas info    :" */
		at += length + strcspn(at + length, "0123456789");
		if (sscanf(at, "%u bytes stack frame, %u bytes spill stores, %u bytes spill loads",
			   &stack, &stores, &loads) != 3)
			return;
		report->stack = stack;
		report->spill_stores = stores;
		report->spill_loads = loads;
		return;
	}
}

void patch_report_read(struct patch_report *report, const char *symbol, const void *cubin,
		       size_t size, const char *log) {
	*report = (struct patch_report){ .registers = cubin_registers(cubin, size, symbol) };
	if (log)
		read_log(report, symbol, log);
}
