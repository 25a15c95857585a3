/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Events of context switches, as the firmware of a GPU's engine (FECS) tags them:
 * NV_EVENT_BUFFER_FECS_CTXSWTAG_*. */

#include <stdint.h>

enum trace_ctxsw_tag {
	CTXSW_SO = 0,
	CTXSW_REQUEST_BY_HOST = 1,
	CTXSW_FE_ACK = 2,
	CTXSW_SAVE_END = 3,
	CTXSW_RESTORE_START = 4,
	CTXSW_CONTEXT_START = 5,
	CTXSW_SIMPLE_START = 6,
	CTXSW_SIMPLE_END = 7,
	CTXSW_FE_ACK_WFI = 0x0a, /* how the context before was made to stop: it became idle ... */
	CTXSW_FE_ACK_GFXP = 0x0b,
	CTXSW_FE_ACK_CTAP = 0x0c, /* ... between blocks */
	CTXSW_FE_ACK_CILP = 0x0d, /* ... between instructions */
	CTXSW_ENGINE_RESET = 0xfe,
	CTXSW_INVALID_TIMESTAMP = 0xff,
};

/* "SIMPLE_START", or NULL. */
const char *trace_ctxsw_tag_name(uint8_t tag);
