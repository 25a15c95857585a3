/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Names of the tags of context switch events, as NVIDIA's headers have them. The decoder of traces
 * and ctl/rm/probe.c use it.
 */

#include <stddef.h>

#include "ctxsw-tag.h"

const char *trace_ctxsw_tag_name(uint8_t tag) {
	switch (tag) {
	case CTXSW_SO:
		return "SO";
	case CTXSW_REQUEST_BY_HOST:
		return "CTXSW_REQ_BY_HOST";
	case CTXSW_FE_ACK:
		return "FE_ACK";
	case CTXSW_SAVE_END:
		return "SAVE_END";
	case CTXSW_RESTORE_START:
		return "RESTORE_START";
	case CTXSW_CONTEXT_START:
		return "CONTEXT_START";
	case CTXSW_SIMPLE_START:
		return "SIMPLE_START";
	case CTXSW_SIMPLE_END:
		return "SIMPLE_END";
	case CTXSW_FE_ACK_WFI:
		return "FE_ACK_WFI";
	case CTXSW_FE_ACK_GFXP:
		return "FE_ACK_GFXP";
	case CTXSW_FE_ACK_CTAP:
		return "FE_ACK_CTAP";
	case CTXSW_FE_ACK_CILP:
		return "FE_ACK_CILP";
	case CTXSW_ENGINE_RESET:
		return "ENGINE_RESET";
	case CTXSW_INVALID_TIMESTAMP:
		return "INVALID_TIMESTAMP";
	default:
		return NULL;
	}
}
