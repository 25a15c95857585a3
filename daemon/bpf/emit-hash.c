/* SPDX-License-Identifier: Apache-2.0 */

/* Hash maps: calls of device-lib-hash.c. */

#include <errno.h>

#include "emitter.h"

void emit_hash_lookup(struct emitter *e, uint32_t map)
{
	emit_set(e, 0, emit_const(e, 0));
	LLVMBuildStore(e->builder, LLVMConstInt(e->i1, 0, false),
		       emit_found(e, analysis_site(e->frame, e->pc)));
}

void emit_hash_update(struct emitter *e, uint32_t map)
{
	emit_set(e, 0, emit_const(e, (uint64_t)(int64_t)-ENOSYS));
}

void emit_hash_delete(struct emitter *e, uint32_t map)
{
	emit_set(e, 0, emit_const(e, (uint64_t)(int64_t)-ENOSYS));
}
