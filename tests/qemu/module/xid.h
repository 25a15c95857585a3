/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */

/* The tracepoint that drivers have since 575.51.02. */

#undef TRACE_SYSTEM
#define TRACE_SYSTEM nvidia

#if !defined(TEST_XID_H) || defined(TRACE_HEADER_MULTI_READ)
#define TEST_XID_H

#include <linux/tracepoint.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
#define ASSIGN_TEXT(to, from) __assign_str(to)
#else
#define ASSIGN_TEXT(to, from) __assign_str(to, from)
#endif

TRACE_EVENT(nvidia_dev_xid, TP_PROTO(const char *name, u32 code, const char *text),
	    TP_ARGS(name, code, text),
	    TP_STRUCT__entry(__string(dev, name) __field(u32, error_code) __string(msg, text)),
	    TP_fast_assign(ASSIGN_TEXT(dev, name); __entry->error_code = code;
			   ASSIGN_TEXT(msg, text);),
	    TP_printk("Xid (PCI:%s): %u, %s", __get_str(dev), __entry->error_code, __get_str(msg)));

#endif

#undef TRACE_INCLUDE_PATH
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_PATH .
#define TRACE_INCLUDE_FILE xid
#include <trace/define_trace.h>
