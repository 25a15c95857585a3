/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A test. Compares cupti-abi.h with NVIDIA's own headers: it compiles, or they differ. Built only
 * where those are.
 */

#pragma GCC diagnostic ignored "-Wredundant-decls"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wundef"

#include <cupti.h>
#include <stdio.h>

#include "cupti-abi.h"

#define SAME(ours, theirs) \
	_Static_assert((long long)(ours) == (long long)(theirs), #ours " is not " #theirs)
#define SAME_AT(ours, member, theirs, other)                          \
	SAME(offsetof(struct ours, member), offsetof(theirs, other)); \
	SAME(sizeof(((struct ours *)0)->member), sizeof(((theirs *)0)->other))

SAME(sizeof(cupti_result), sizeof(CUptiResult));
SAME(CUPTI_OK, CUPTI_SUCCESS);
SAME(CUPTI_NO_MORE_RECORDS, CUPTI_ERROR_MAX_LIMIT_REACHED);
SAME(CUPTI_SOMEBODY_ELSE, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);
SAME(CUPTI_DOMAIN_DRIVER, CUPTI_CB_DOMAIN_DRIVER_API);
SAME(CUPTI_ENTER, CUPTI_API_ENTER);
SAME(CUPTI_EXIT, CUPTI_API_EXIT);
SAME(CUPTI_MEMCPY, CUPTI_ACTIVITY_KIND_MEMCPY);
SAME(CUPTI_MEMSET, CUPTI_ACTIVITY_KIND_MEMSET);
SAME(CUPTI_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME(CUPTI_MEMCPY_PEER, CUPTI_ACTIVITY_KIND_MEMCPY2);
SAME(CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);

SAME_AT(cupti_call, site, CUpti_CallbackData, callbackSite);
SAME_AT(cupti_call, arguments, CUpti_CallbackData, functionParams);
SAME_AT(cupti_call, context, CUpti_CallbackData, context);
SAME_AT(cupti_call, correlation, CUpti_CallbackData, correlationId);
SAME_AT(cupti_record, kind, CUpti_Activity, kind);

#define KERNEL(theirs)                                             \
	SAME_AT(cupti_kernel, kind, theirs, kind);                 \
	SAME_AT(cupti_kernel, start, theirs, start);               \
	SAME_AT(cupti_kernel, end, theirs, end);                   \
	SAME_AT(cupti_kernel, device, theirs, deviceId);           \
	SAME_AT(cupti_kernel, context, theirs, contextId);         \
	SAME_AT(cupti_kernel, stream, theirs, streamId);           \
	SAME_AT(cupti_kernel, correlation, theirs, correlationId); \
	SAME_AT(cupti_kernel, name, theirs, name)
#define NODE(ours, theirs) SAME_AT(ours, graph_node, theirs, graphNodeId)
#define REST(ours, theirs)                       \
	SAME_AT(ours, kind, theirs, kind);       \
	SAME_AT(ours, start, theirs, start);     \
	SAME_AT(ours, end, theirs, end);         \
	SAME_AT(ours, device, theirs, deviceId); \
	SAME_AT(ours, correlation, theirs, correlationId)
KERNEL(CUpti_ActivityKernel4);
KERNEL(CUpti_ActivityKernel6);
KERNEL(CUpti_ActivityKernel9);
NODE(cupti_kernel, CUpti_ActivityKernel6);
NODE(cupti_kernel, CUpti_ActivityKernel9);
REST(cupti_copy, CUpti_ActivityMemcpy4);
REST(cupti_copy, CUpti_ActivityMemcpy5);
NODE(cupti_copy, CUpti_ActivityMemcpy5);
REST(cupti_copy_peer, CUpti_ActivityMemcpyPtoP3);
REST(cupti_set, CUpti_ActivityMemset3);
#if CUPTI_API_VERSION >= 130000
KERNEL(CUpti_ActivityKernel10);
NODE(cupti_kernel, CUpti_ActivityKernel10);
REST(cupti_copy, CUpti_ActivityMemcpy6);
NODE(cupti_copy, CUpti_ActivityMemcpy6);
REST(cupti_copy_peer, CUpti_ActivityMemcpyPtoP4);
REST(cupti_set, CUpti_ActivityMemset4);
SAME_AT(cupti_subscriber, size, CUpti_SubscriberParams, structSize);
SAME_AT(cupti_subscriber, name, CUpti_SubscriberParams, subscriberName);
SAME_AT(cupti_subscriber, other, CUpti_SubscriberParams, oldSubscriberName);
SAME_AT(cupti_subscriber, other_size, CUpti_SubscriberParams, oldSubscriberSize);
SAME(sizeof(struct cupti_subscriber), sizeof(CUpti_SubscriberParams));
SAME(CUPTI_SUBSCRIBER_OTHER_SIZE, CUPTI_OLD_SUBSCRIBER_NAME_MIN_LEN);
#endif

/* Each function with handles as opaque pointers: number, order and sizes of the arguments. */
#define FUNCTION(name, ...)                                                                      \
	_Static_assert(__builtin_types_compatible_p(__typeof__(name), CUptiResult(__VA_ARGS__)), \
		       #name)
FUNCTION(cuptiGetResultString, CUptiResult, const char **);
FUNCTION(cuptiSubscribe, CUpti_SubscriberHandle *, CUpti_CallbackFunc, void *);
FUNCTION(cuptiUnsubscribe, CUpti_SubscriberHandle);
FUNCTION(cuptiEnableCallback, uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
	 CUpti_CallbackId);
FUNCTION(cuptiEnableDomain, uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain);
FUNCTION(cuptiActivityRegisterTimestampCallback, uint64_t (*)(void));
FUNCTION(cuptiActivityRegisterCallbacks, CUpti_BuffersCallbackRequestFunc,
	 CUpti_BuffersCallbackCompleteFunc);
FUNCTION(cuptiActivityEnable, CUpti_ActivityKind);
FUNCTION(cuptiActivityDisable, CUpti_ActivityKind);
FUNCTION(cuptiActivityFlushAll, uint32_t);
FUNCTION(cuptiActivityGetNextRecord, uint8_t *, size_t, CUpti_Activity **);
FUNCTION(cuptiActivityGetNumDroppedRecords, CUcontext, uint32_t, size_t *);
FUNCTION(cuptiFinalize, void);
_Static_assert(__builtin_types_compatible_p(CUpti_CallbackFunc,
					    void (*)(void *, CUpti_CallbackDomain, CUpti_CallbackId,
						     const void *)) &&
		       __builtin_types_compatible_p(CUpti_BuffersCallbackRequestFunc,
						    void (*)(uint8_t **, size_t *, size_t *)) &&
		       __builtin_types_compatible_p(CUpti_BuffersCallbackCompleteFunc,
						    void (*)(CUcontext, uint32_t, uint8_t *, size_t,
							     size_t)) &&
		       sizeof(CUpti_CallbackDomain) == sizeof(int) &&
		       sizeof(CUpti_ActivityKind) == sizeof(int) && sizeof(CUpti_CallbackId) == 4,
	       "callbacks and enums");

int main(void) {
	puts("the declarations agree");
	return 0;
}
