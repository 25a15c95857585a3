/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of function.c: lookups and patterns, and whether each function's entries in the table
 * agree with each other.
 */

#include "function.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static const struct function *known(const char *name) {
	const struct function *function = function_by_name(name);

	assert_non_null(function);
	return function;
}

static void test_lookups(void **state) {
	static const char *const missing[] = {
		"", "c", "cu", "cuMemAllo", "cuMemAlloc_v9", "cuZ", "memAlloc", "cuMemAlloc ", "~"
	};

	assert_int_equal(function_count, 637);
	for (size_t i = 0; i < function_count; i++) {
		const struct function *function = function_all[i];

		assert_ptr_equal(function_by_name(function->name), function);
		assert_ptr_equal(function_by_number(function->number), function);
		assert_true(i == 0 || strcmp(function_all[i - 1]->name, function->name) < 0);
		assert_int_equal(strncmp(function->name, function->base, strlen(function->base)),
				 0);
	}
	for (size_t i = 0; i < sizeof(missing) / sizeof(*missing); i++)
		assert_null(function_by_name(missing[i]));
	assert_null(function_by_number(0));
	assert_null(function_by_number(TRACE_FUNCTION_OWN - 1));
	assert_null(function_by_number(TRACE_FUNCTION_DYNAMIC));
	assert_null(function_by_number(UINT16_MAX));
	assert_int_equal(known("cuInit")->number,
			 1); /* of cupti_driver_cbid.h, which does not change */
	assert_int_equal(known("cuLaunchKernel")->number, 307);
	assert_string_equal(known("cuMemAlloc_v2")->base, "cuMemAlloc");
	assert_string_equal(known("cuMemcpy2DAsync_v2_ptsz")->base, "cuMemcpy2DAsync");
	assert_string_equal(known("cuMemcpy_ptds")->base, "cuMemcpy");
	assert_string_equal(known("cuTexRefSetAddress2D_v3")->base, "cuTexRefSetAddress2D");
}

/* What a function says of its words, arguments and extras agrees. */
static void check_function(const struct function *function) {
	unsigned floats = 0, used = 0;

	assert_true(function->words <= TRACE_WORDS_MAX &&
		    function->n_arguments <= TRACE_WORDS_MAX && function->n_extras <= 4);
	for (int i = 0; i < function->n_arguments; i++) {
		const struct function_argument *argument = &function->arguments[i];

		assert_int_equal(argument->words, (argument->type->size + 7) / 8);
		assert_true(argument->words > 0 &&
			    argument->word + argument->words <= function->words);
		if (argument->type->kind == FUNCTION_FLOAT) {
			assert_int_equal(argument->word,
					 function->words - function->floats + floats);
			floats++;
		}
		for (int j = argument->word; j < argument->word + argument->words; j++) {
			assert_int_equal(used & 1u << j, 0);
			used |= 1u << j;
		}
		if (argument->out)
			assert_true(argument->type->kind == FUNCTION_POINTER &&
				    argument->type->target && argument->type->target->size <= 8);
	}
	assert_int_equal(floats, function->floats);
	for (int i = 0; i < function->n_extras; i++) {
		const struct function_extra *extra = &function->extras[i];
		const struct function_argument *argument = &function->arguments[extra->argument];

		assert_true(extra->argument < function->n_arguments);
		assert_int_equal(extra->word, argument->word);
		assert_int_equal(extra->when == TRACE_EXTRA_RETURN, argument->out);
		assert_int_equal(extra->size, argument->type->kind == FUNCTION_STRING
						      ? 0
						      : argument->type->target->size);
		assert_true(extra->size > 0 || extra->when == TRACE_EXTRA_ENTRY);
	}
}

static void test_layouts(void **state) {
	const struct function *function;
	size_t words = 0, floats = 0;

	for (size_t i = 0; i < function_count; i++) {
		check_function(function_all[i]);
		floats += function_all[i]->floats > 0;
		words += function_all[i]->n_arguments > 6;
	}
	assert_int_equal(floats, 3);
	assert_int_equal(words, 22);

	function = known("cuIpcOpenMemHandle_v2"); /* rdi, the stack, rsi */
	assert_int_equal(function->words, 14);
	assert_int_equal(function->arguments[0].word, 0);
	assert_int_equal(function->arguments[1].word, 6);
	assert_int_equal(function->arguments[1].words, 8);
	assert_int_equal(function->arguments[2].word, 1);
	function = known("cuTexRefSetMipmapLevelClamp"); /* rdi, xmm0, xmm1 */
	assert_int_equal(function->words, 3);
	assert_int_equal(function->floats, 2);
	assert_int_equal(function->arguments[2].word, 2);
	function = known("cuMemPrefetchAsync_v2"); /* 8 bytes by value are in a register */
	assert_int_equal(function->arguments[2].type->kind, FUNCTION_STRUCT);
	assert_int_equal(function->arguments[2].word, 2);
	function = known("cuLaunchKernel");
	assert_int_equal(function->words, 11);
	assert_int_equal(function->stream_argument, 8);
	function = known("cuMemsetD2D32_v2");
	assert_int_equal(function->size_argument, 3);
	assert_int_equal(function->size_unit, 4);
	assert_int_equal(function->rows_argument, 4);
}

static void test_types(void **state) {
	const struct function *launch = known("cuLaunchKernelEx");
	const struct function_type *type = launch->arguments[0].type;

	assert_string_equal(type->name, "const CUlaunchConfig *");
	assert_int_equal(type->kind, FUNCTION_POINTER);
	assert_int_equal(type->target->kind, FUNCTION_STRUCT);
	assert_int_equal(type->target->structure->size, 56);
	assert_string_equal(type->target->structure->fields[7].name, "hStream");
	assert_int_equal(type->target->structure->fields[7].offset, 32);
	type = known("cuMemAlloc_v2")->arguments[0].type;
	assert_int_equal(type->target->kind, FUNCTION_HANDLE);
	assert_int_equal(known("cuModuleGetFunction")->arguments[2].type->kind, FUNCTION_STRING);
	assert_int_equal(known("cuStreamAddCallback")->arguments[1].type->kind, FUNCTION_POINTER);
	assert_null(known("cuStreamAddCallback")->arguments[1].type->target);
	assert_null(known("cuMemHostRegister_v2")->arguments[0].type->target);
}

static void test_enums(void **state) {
	const struct function_enum *results = function_results();

	assert_string_equal(results->name, "CUresult");
	assert_true(results->n >= 101);
	for (size_t i = 0; i < results->n; i++) {
		assert_true(i == 0 || results->values[i - 1].value < results->values[i].value);
		assert_string_equal(function_enumerator(results, results->values[i].value),
				    results->values[i].name);
	}
	assert_string_equal(function_enumerator(results, 0), "CUDA_SUCCESS");
	assert_string_equal(function_enumerator(results, 600), "CUDA_ERROR_NOT_READY");
	assert_string_equal(function_enumerator(results, 999), "CUDA_ERROR_UNKNOWN");
	assert_null(function_enumerator(results, -1));
	assert_null(function_enumerator(results, 998));
	assert_null(function_enumerator(results, INT64_MAX));
	for (int class = 0; class < _FUNCTION_CLASS_N; class ++)
		for (int other = 0; other < class; other++)
			assert_string_not_equal(function_class_name(class),
						function_class_name(other));
	assert_string_equal(function_class_name(FUNCTION_TRANSFER), "transfer");
	assert_string_equal(function_class_name(_FUNCTION_CLASS_N), "other");
}

struct selection {
	uint64_t functions[TRACE_FUNCTION_MAX / 64];
};

static bool selected(const struct selection *selection, uint16_t number) {
	return selection->functions[number / 64] >> (number % 64) & 1;
}

static size_t count(const struct selection *selection) {
	size_t n = 0;

	for (size_t i = 0; i < TRACE_FUNCTION_MAX / 64; i++)
		n += (size_t)__builtin_popcountll(selection->functions[i]);
	return n;
}

#define SELECT(selection, ...)                                                         \
	function_select((const char *const[]){ __VA_ARGS__ },                          \
			sizeof((const char *const[]){ __VA_ARGS__ }) / sizeof(char *), \
			(selection)->functions)

static void test_select(void **state) {
	struct selection selection, other;
	size_t queries;

	memset(&selection, 0xff, sizeof(selection)); /* it is overwritten */
	assert_int_equal(SELECT(&selection, "cuInit"), 0);
	assert_int_equal(count(&selection), 1);
	assert_true(selected(&selection, 1));

	assert_int_equal(SELECT(&selection, "cuMemAlloc"), 0); /* each version */
	assert_int_equal(count(&selection), 2);
	assert_true(selected(&selection, known("cuMemAlloc_v2")->number));
	assert_int_equal(SELECT(&selection, "cuMemAlloc_v2"), 0);
	assert_int_equal(count(&selection), 1);
	assert_int_equal(SELECT(&selection, "cuMem*", "!cuMemcpy*", "cuMemcpyPeer"), 0);
	assert_true(selected(&selection, known("cuMemFree_v2")->number));
	assert_true(selected(&selection, known("cuMemcpyPeer_ptds")->number));
	assert_false(selected(&selection, known("cuMemcpyHtoD_v2")->number));
	assert_false(selected(&selection, TRACE_FUNCTION_DYNAMIC));
	assert_int_equal(SELECT(&selection, "cu[EL]*Kernel?x"), 0);
	assert_int_equal(count(&selection), 1 + 1); /* and _ptsz, whose base it is */

	assert_int_equal(SELECT(&selection, "query"), 0);
	queries = count(&selection);
	assert_int_equal(SELECT(&selection, "all"), 0);
	assert_int_equal(count(&selection), function_count + 1);
	assert_true(selected(&selection, TRACE_FUNCTION_DYNAMIC));
	assert_int_equal(SELECT(&other, "*"), 0);
	assert_memory_equal(&selection, &other, sizeof(other));
	assert_int_equal(SELECT(&other, "cu*"), 0);
	assert_memory_equal(&selection, &other, sizeof(other));
	assert_int_equal(SELECT(&selection, "!query"), 0);
	assert_int_equal(count(&selection), function_count + 1 - queries);
	assert_int_equal(function_select(NULL, 0, other.functions), 0);
	assert_memory_equal(&selection, &other, sizeof(other));
	assert_true(selected(&selection, known("cuLaunchKernel")->number));
	assert_false(selected(&selection, known("cuCtxGetCurrent")->number));
	assert_int_equal(SELECT(&selection, "!query", "!other"), 0);
	assert_false(selected(&selection, TRACE_FUNCTION_DYNAMIC));
	assert_int_equal(SELECT(&selection, "launch", "!launch"), 0);
	assert_int_equal(count(&selection), 0);

	assert_int_equal(SELECT(&selection, ""), 1);
	assert_int_equal(SELECT(&selection, "!"), 1);
	assert_int_equal(SELECT(&selection, "launch", "cuNoSuch*"), 2);
	assert_int_equal(SELECT(&selection, "launch", "!cuNoSuch", "["), 2);
	assert_int_equal(SELECT(&selection, "cuLaunchKernel["), 1);
	assert_int_equal(SELECT(&selection, "!!launch"), 1);
	assert_int_equal(SELECT(&selection, "Launch"), 1);
	assert_int_equal(SELECT(&selection, "launch "), 1);
}

static void test_classes(void **state) {
	static const struct {
		const char *name;
		enum function_class class;
	} cases[] = {
		{ "cuLaunchKernel", FUNCTION_LAUNCH },
		{ "cuLaunchKernelEx_ptsz", FUNCTION_LAUNCH },
		{ "cuGraphLaunch", FUNCTION_LAUNCH },
		{ "cuLaunchHostFunc", FUNCTION_LAUNCH },
		{ "cuMemAlloc_v2", FUNCTION_MEMORY },
		{ "cuMemFreeAsync_ptsz", FUNCTION_MEMORY },
		{ "cuMemCreate", FUNCTION_MEMORY },
		{ "cuMemSetAccess", FUNCTION_MEMORY },
		{ "cuArrayCreate_v2", FUNCTION_MEMORY },
		{ "cuMulticastCreate", FUNCTION_MEMORY },
		{ "cuMemHostRegister_v2", FUNCTION_MEMORY },
		{ "cuMemcpyHtoDAsync_v2", FUNCTION_TRANSFER },
		{ "cuMemsetD8_v2", FUNCTION_TRANSFER },
		{ "cuMemPrefetchAsync_v2", FUNCTION_TRANSFER },
		{ "cuMemcpyBatchAsync", FUNCTION_TRANSFER },
		{ "cuCtxSynchronize", FUNCTION_SYNC },
		{ "cuStreamSynchronize_ptsz", FUNCTION_SYNC },
		{ "cuEventSynchronize", FUNCTION_SYNC },
		{ "cuStreamWaitEvent", FUNCTION_SYNC },
		{ "cuStreamWaitValue32_v2", FUNCTION_SYNC },
		{ "cuModuleLoadDataEx", FUNCTION_MODULE },
		{ "cuModuleGetFunction", FUNCTION_MODULE },
		{ "cuLibraryGetKernel", FUNCTION_MODULE },
		{ "cuLibraryLoadData", FUNCTION_MODULE },
		{ "cuGraphInstantiateWithFlags", FUNCTION_GRAPH },
		{ "cuGraphExecUpdate_v2", FUNCTION_GRAPH },
		{ "cuStreamBeginCapture_v2", FUNCTION_GRAPH },
		{ "cuStreamEndCapture", FUNCTION_GRAPH },
		{ "cuStreamCreate", FUNCTION_STREAM },
		{ "cuEventCreate", FUNCTION_EVENT },
		{ "cuEventRecord", FUNCTION_EVENT },
		{ "cuCtxCreate_v4", FUNCTION_CONTEXT },
		{ "cuDevicePrimaryCtxRetain", FUNCTION_CONTEXT },
		{ "cuDeviceGet", FUNCTION_DEVICE },
		{ "cuInit", FUNCTION_DEVICE },
		{ "cuIpcOpenMemHandle_v2", FUNCTION_IPC },
		{ "cuMemExportToShareableHandle", FUNCTION_IPC },
		{ "cuCtxGetCurrent", FUNCTION_QUERY },
		{ "cuCtxPushCurrent_v2", FUNCTION_QUERY },
		{ "cuCtxGetDevice", FUNCTION_QUERY },
		{ "cuPointerGetAttribute", FUNCTION_QUERY },
		{ "cuStreamGetCaptureInfo_v2", FUNCTION_QUERY },
		{ "cuStreamIsCapturing", FUNCTION_QUERY },
		{ "cuGetErrorName", FUNCTION_QUERY },
		{ "cuDeviceGetAttribute", FUNCTION_QUERY },
		{ "cuKernelGetFunction", FUNCTION_QUERY },
		{ "cuTensorMapEncodeTiled", FUNCTION_OTHER },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		if (known(cases[i].name)->class != cases[i].class)
			fail_msg("%s: %s", cases[i].name,
				 function_class_name(known(cases[i].name)->class));
}

int main(void) {
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lookups), cmocka_unit_test(test_layouts),
		cmocka_unit_test(test_types),   cmocka_unit_test(test_enums),
		cmocka_unit_test(test_select),  cmocka_unit_test(test_classes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
