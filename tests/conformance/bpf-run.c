/* SPDX-License-Identifier: Apache-2.0 */

/*
 * bpf-run: runs an eBPF program through the path that GPU programs take (translator, LLVM, PTX,
 * CUDA driver) and prints r0 in hex. The driver is whichever libcuda.so.1 the loader finds:
 * NVIDIA's, or tests/sim.
 *
 *     bpf-run [options] [MEMORY] < PROGRAM          r1 = address of the memory, r2 = its length
 *     bpf-run [options] --context CONTEXT < PROGRAM  r1 = the context, as GPU programs have it
 *     bpf-run --batch FILE                           many in one process
 *
 * With --patch the patch form of a program runs instead, as a function that a kernel calls: what is
 * tested is the program; how patches get into kernels is not.
 *
 * PROGRAM and MEMORY are bytes in hex; white space does not matter. That is what public conformance
 * suites expect of the runtimes they test. A line of a batch is NAME and words:
 *
 *     prog=HEX [mem=HEX | context=HEX] [map=TYPE:KEY:VALUE:ENTRIES[,OPTION]...]...
 *     [grid=X[xY[xZ]]] [block=X[xY[xZ]]] [want=memory] [warps=whole | warps=MASK] [maps=unarmed]
 *     [thread=BYTES [runs=N]]
 *     [place=uniform]
 *
 * and is answered by `NAME R0` and, for each map, its contents in hex as a reader sees them
 * (bpf-run.h), and with want=memory the memory after the run; or by `NAME error: ...`. With
 * maps=unarmed the pointers to maps' data stay 0. With thread=BYTES there are variables of a
 * thread, and each thread runs the program N times; R0 is that of the last.
 *
 * Options of a map are host, kernel (where it lies), threads=N, ring=BYTES, head=BYTES,
 * tail=BYTES (see instance_init()), records (see instance_read()) and log (it is what printk
 * writes to). The process is 4660 (0x1234), its name "bpf-run", the device number 3.
 *
 * warps=whole takes it that the 32 threads of a warp are together wherever the program asks who is,
 * warps=MASK that these lanes are: a driver that runs one thread after the other would say that
 * each is alone, and what warps do would not be tested. For programs in which it is true.
 * place=uniform says what a pass says of a place (proto/point.h, POINT_UNIFORM).
 */

#include <dlfcn.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bpf-run.h"
#include "proto/wire.h"

/* ---- the driver ---- */

struct driver {
	int (*init)(unsigned flags);
	int (*device_get)(int *device, int ordinal);
	int (*context_retain)(void **context, int device);
	int (*context_set)(void *context);
	int (*context_synchronize)(void);
	int (*module_load)(void **module, const void *image);
	int (*module_unload)(void *module);
	int (*module_function)(void **function, void *module, const char *name);
	int (*module_global)(uint64_t *address, size_t *size, void *module, const char *name);
	int (*alloc)(uint64_t *address, size_t size);
	int (*free)(uint64_t address);
	int (*to_device)(uint64_t to, const void *from, size_t size);
	int (*to_host)(void *to, uint64_t from, size_t size);
	int (*launch)(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
		      unsigned by, unsigned bz, unsigned shared, void *stream, void **parameters,
		      void **extra);
	int (*error_name)(int error, const char **name);
};

static const struct {
	const char *name;
	size_t offset;
} driver_symbols[] = {
	{ "cuInit", offsetof(struct driver, init) },
	{ "cuDeviceGet", offsetof(struct driver, device_get) },
	{ "cuDevicePrimaryCtxRetain", offsetof(struct driver, context_retain) },
	{ "cuCtxSetCurrent", offsetof(struct driver, context_set) },
	{ "cuCtxSynchronize", offsetof(struct driver, context_synchronize) },
	{ "cuModuleLoadData", offsetof(struct driver, module_load) },
	{ "cuModuleUnload", offsetof(struct driver, module_unload) },
	{ "cuModuleGetFunction", offsetof(struct driver, module_function) },
	{ "cuModuleGetGlobal_v2", offsetof(struct driver, module_global) },
	{ "cuMemAlloc_v2", offsetof(struct driver, alloc) },
	{ "cuMemFree_v2", offsetof(struct driver, free) },
	{ "cuMemcpyHtoD_v2", offsetof(struct driver, to_device) },
	{ "cuMemcpyDtoH_v2", offsetof(struct driver, to_host) },
	{ "cuLaunchKernel", offsetof(struct driver, launch) },
	{ "cuGetErrorName", offsetof(struct driver, error_name) },
};

/* ---- one run ---- */

struct outcome {
	uint64_t r0;
	struct bytes maps[MAPS_MAX]; /* merged */
};

/* What a function of ours takes: fields at these offsets, then words of the thread's variables. */
struct parameters {
	uint16_t offsets[TRANSLATE_PARAMETERS_MAX];
	uint32_t n, words;
};

static struct parameters find_parameters(const struct test_case *c,
					 const struct translate_program_result *program) {
	struct parameters p = { 0 };

	if (!c->has_context) {
		p.offsets[p.n++] = 0;
		p.offsets[p.n++] = 8;
	}
	for (uint32_t i = 0; i < program->context_count; i++)
		if (c->has_context || point_is_thread(program->context[i])) {
			p.offsets[p.n++] = program->context[i];
			p.words += point_is_thread(program->context[i]);
		}
	return p;
}

/* A call of the program: behind `slots`, if it is a patch. */
static void print_call(FILE *out, bool patch, const struct parameters *p) {
	const uint32_t fields = p->n - p->words;

	fputs("	{\n", out);
	if (p->words)
		fprintf(out, "	.param .align 8 .b8 value[%u];\n", 8 * (1 + p->words));
	else
		fputs("	.param .b64 value;\n", out);
	if (patch)
		fputs("	.param .b64 first;\n"
		      "	ld.param.u64 %rd3, [slots];\n"
		      "	st.param.b64 [first], %rd3;\n",
		      out);
	for (uint32_t i = 0; i < fields; i++)
		fprintf(out,
			"	.param .b64 argument%u;\n"
			"	ld.global.u64 %%rd3, [%%rd1+%u];\n"
			"	st.param.b64 [argument%u], %%rd3;\n",
			i, p->offsets[i], i);
	for (uint32_t i = fields; i < p->n; i++)
		fprintf(out,
			"	.param .b64 argument%u;\n	st.param.b64 [argument%u], "
			"%%t%u;\n",
			i, i, (p->offsets[i] - POINT_THREAD) / 8);
	fprintf(out, "	call (value), __gpuprobe_run, (%s", patch ? "first" : "");
	for (uint32_t i = 0; i < p->n; i++)
		fprintf(out, "%sargument%u", i || patch ? ", " : "", i);
	fputs(");\n	ld.param.b64 %rd3, [value];\n", out);
	for (uint32_t i = fields; i < p->n; i++)
		fprintf(out, "	ld.param.b64 %%t%u, [value+%u];\n",
			(p->offsets[i] - POINT_THREAD) / 8, 8 * (1 + i - fields));
	fputs("	}\n", out);
}

/* A kernel that calls the program with parameters that it takes from `arguments`. */
static void print_entry(FILE *out, const struct test_case *c,
			const struct translate_program_result *program) {
	const struct parameters p = find_parameters(c, program);

	fputs(".visible .entry bpf_run(.param .u64 arguments, .param .u64 result, "
	      ".param .u64 slots)\n"
	      "{\n"
	      "	.reg .b64 %rd<4>;\n"
	      "	.reg .b64 %t<8>;\n"
	      "	ld.param.u64 %rd1, [arguments];\n"
	      "	ld.param.u64 %rd2, [result];\n",
	      out);
	for (unsigned i = 0; i < POINT_THREAD_WORDS; i++)
		fprintf(out, "	mov.b64 %%t%u, 0;\n", i);
	for (unsigned i = 0; i < (c->runs ? c->runs : 1); i++)
		print_call(out, c->patch, &p);
	fputs("	st.global.u64 [%rd2], %rd3;\n"
	      "	ret;\n"
	      "}\n",
	      out);
}

static int driver_check(const struct driver *d, int code, const char *what, char **error) {
	const char *name = NULL;

	if (code == 0)
		return 0;
	d->error_name(code, &name);
	return fail(error, "%s: %s (%d)", what, name ? name : "unknown error", code);
}

static int driver_open(struct driver *d, char **error) {
	void *library = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int device, r;

	if (!library)
		return fail(error, "no CUDA driver: %s", dlerror());
	for (size_t i = 0; i < sizeof(driver_symbols) / sizeof(driver_symbols[0]); i++) {
		void *symbol = dlsym(library, driver_symbols[i].name);

		if (!symbol)
			return fail(error, "libcuda.so.1 has no %s", driver_symbols[i].name);
		memcpy((char *)d + driver_symbols[i].offset, &symbol, sizeof(symbol));
	}
	r = driver_check(d, d->init(0), "cuInit", error);
	if (!r)
		r = driver_check(d, d->device_get(&device, 0), "cuDeviceGet", error);
	if (!r)
		r = driver_check(d, d->context_retain(&context, device), "cuDevicePrimaryCtxRetain",
				 error);
	if (!r)
		r = driver_check(d, d->context_set(context), "cuCtxSetCurrent", error);
	return r;
}

/* Replaces each `activemask.b32 %rN;` by `mov.b32 %rN, MASK;`. Consumes text; NULL: no memory. */
static char *pretend_mask(char *text, uint32_t mask) {
	static const char activemask[] = "activemask.b32";
	char *result = NULL, *at = text, *found;
	size_t size;
	FILE *out = open_memstream(&result, &size);

	while (out && (found = strstr(at, activemask))) {
		char *reg = strchr(found, '%');
		int n = reg ? (int)strcspn(reg, ";") : 0;

		if (!reg)
			break;
		fprintf(out, "%.*smov.b32 %.*s, %" PRIu32, (int)(found - at), at, n, reg, mask);
		at = reg + n;
	}
	if (out) {
		fputs(at, out);
		if (fclose(out) != 0)
			result = NULL;
	}
	free(text);
	return result;
}

/* The module's text: header, program, a kernel that calls it. NULL: no memory. */
static char *module_text(const struct test_case *c,
			 const struct translate_program_result *program) {
	unsigned target = c->patch && program->target < TRANSLATE_TARGET_PATCH
				  ? TRANSLATE_TARGET_PATCH
				  : program->target;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return NULL;
	fprintf(out, ".version %u.%u\n.target sm_%u\n.address_size 64\n\n%s\n", program->isa / 10,
		program->isa % 10, target, c->patch ? program->patch : program->ptx);
	print_entry(out, c, program);
	return fclose(out) == 0 ? text : NULL;
}

static const struct translate_variable variables[POINT_THREAD_WORDS] = {
	{ "v0", 0, 8 },  { "v1", 8, 8 },  { "v2", 16, 8 }, { "v3", 24, 8 },
	{ "v4", 32, 8 }, { "v5", 40, 8 }, { "v6", 48, 8 }, { "v7", 56, 8 },
};

static int translate_case(const struct test_case *c, struct translate_result *result,
			  char **error) {
	struct translate_program program = { .name = "stdin",
					     .symbol = "__gpuprobe_run",
					     .takes_memory = !c->has_context,
					     .patch = c->patch,
					     .thread = { .size = c->thread,
							 .variables = variables,
							 .n_variables = POINT_THREAD_WORDS } };
	char *message = NULL;
	int r;

	if (c->program.size == 0 || c->program.size % sizeof(struct bpf_insn) != 0)
		return fail(error, "a program is a multiple of 8 bytes, this is %zu",
			    c->program.size);
	program.insns = (const struct bpf_insn *)c->program.data;
	program.n_insns = c->program.size / sizeof(struct bpf_insn);
	r = translate_object(&program, 1, c->maps, c->n_maps, result, &message);
	if (r > 0) {
		*error = message;
		return -1;
	}
	if (r < 0)
		return fail(error, "translate: %s", strerror(-r));
	if (c->patch && !result->programs[0].patch) {
		r = fail(error, "no patch form: %s", result->programs[0].patch_reason);
		translate_result_deinit(result);
	}
	return r;
}

struct run {
	const struct driver *driver;
	const struct test_case *test;
	const struct translate_result *translated;
	void *module;
	uint64_t memory, arguments, result;
	uint64_t slots, process; /* of a patch */
	uint64_t data[MAPS_MAX], buffers[MAPS_MAX]; /* of each map; what of it is ours */
};

/* Memory for a map, as it is at first. */
static int run_make_instance(struct run *run, size_t map, char **error) {
	const struct map_layout *layout = &run->translated->maps[map].layout;
	const struct driver *d = run->driver;
	size_t size = instance_size(layout);
	uint8_t *initial = calloc(size, 1);
	int r;

	if (!initial)
		return fail(error, "out of memory");
	r = driver_check(d, d->alloc(run->buffers + map, size), "cuMemAlloc", error);
	run->data[map] = run->buffers[map];
	instance_init(layout, initial, run->data[map], run->test->heads[map],
		      run->test->tails[map]);
	if (!r)
		r = driver_check(d, d->to_device(run->data[map], initial, size), "cuMemcpyHtoD",
				 error);
	free(initial);
	return r;
}

/* What the shim would say about the process. */
static const struct gpuprobe_process process = { .pid_tgid = UINT64_C(0x123400001234),
						 .device = 3,
						 .comm = "bpf-run" };

static int run_arm_process(struct run *run, char **error) {
	const struct driver *d = run->driver;
	uint64_t slot;
	size_t size;
	int r;

	if (!run->translated->programs[0].process)
		return 0;
	r = driver_check(d, d->module_global(&slot, &size, run->module, WIRE_PROCESS_SYMBOL),
			 "cuModuleGetGlobal", error);
	if (!r && size != sizeof(process))
		return fail(error, WIRE_PROCESS_SYMBOL " has %zu bytes", size);
	return r ? r
		 : driver_check(d, d->to_device(slot, &process, sizeof(process)), "cuMemcpyHtoD",
				error);
}

/* The slots that a patch's first parameter points to, and what they point to. */
static int run_arm_patch(struct run *run, char **error) {
	const struct driver *d = run->driver;
	uint64_t slots[1 + MAPS_MAX] = { 0 };
	size_t n = 1;
	int r = driver_check(d, d->alloc(&run->process, sizeof(process)), "cuMemAlloc", error);

	if (!r)
		r = driver_check(d, d->to_device(run->process, &process, sizeof(process)),
				 "cuMemcpyHtoD", error);
	slots[0] = run->process;
	for (size_t i = 0; !r && i < run->test->n_maps; i++) {
		if (!run->translated->maps[i].used)
			continue;
		if (!run->test->unarmed)
			r = run_make_instance(run, i, error);
		slots[n++] = run->data[i];
	}
	if (!r && n != run->translated->programs[0].patch_maps)
		return fail(error, "the program has %" PRIu32 " slots, not %zu",
			    run->translated->programs[0].patch_maps, n);
	if (!r)
		r = driver_check(d, d->alloc(&run->slots, 8 * n), "cuMemAlloc", error);
	return r ? r
		 : driver_check(d, d->to_device(run->slots, slots, 8 * n), "cuMemcpyHtoD", error);
}

static int run_arm(struct run *run, char **error) {
	const struct driver *d = run->driver;
	int r = run_arm_process(run, error);

	for (size_t i = 0; !r && i < run->test->n_maps; i++) {
		const struct translate_map_result *layout = run->translated->maps + i;
		const char *symbol = run->test->maps[i].slot_symbol;
		uint64_t slot;
		size_t size;

		if (!layout->used)
			continue;
		r = driver_check(d, d->module_global(&slot, &size, run->module, symbol),
				 "cuModuleGetGlobal", error);
		if (r)
			return r;
		if (size != (layout->resident ? layout->layout.data_size : 8))
			return fail(error, "%s has %zu bytes", symbol, size);
		if (layout->resident)
			run->data[i] = slot;
		else if (!run->test->unarmed)
			r = run_make_instance(run, i, error);
		if (!r && run->buffers[i])
			r = driver_check(d, d->to_device(slot, run->data + i, 8), "cuMemcpyHtoD",
					 error);
	}
	return r;
}

static int run_collect(struct run *run, struct outcome *outcome, char **error) {
	const struct driver *d = run->driver;
	int r = driver_check(d, d->to_host(&outcome->r0, run->result, 8), "cuMemcpyDtoH", error);

	if (!r && run->test->memory.size)
		r = driver_check(
			d, d->to_host(run->test->memory.data, run->memory, run->test->memory.size),
			"cuMemcpyDtoH", error);
	for (size_t i = 0; !r && i < run->test->n_maps; i++) {
		const struct translate_map_result *layout = run->translated->maps + i;
		bool used = layout->used && run->data[i];
		size_t size = instance_size(&layout->layout);
		uint8_t *raw = used ? malloc(size) : NULL;

		if (used && !raw)
			return fail(error, "out of memory");
		if (raw)
			r = driver_check(d, d->to_host(raw, run->data[i], size), "cuMemcpyDtoH",
					 error);
		if (!r && instance_read(run->test->maps + i, layout, raw, run->test->heads[i],
					run->test->records[i], outcome->maps + i))
			r = fail(error, "map %zu is not as map-layout.h says", i);
		free(raw);
	}
	return r;
}

static int run_launch(struct run *run, char **error) {
	const struct driver *d = run->driver;
	const struct test_case *test = run->test;
	uint8_t arguments[8 * POINT_FIELDS] = { [POINT_UNIFORM] = test->uniform };
	uint64_t length = test->memory.size, memory;
	void *function, *parameters[] = { &run->arguments, &run->result, &run->slots };
	int r;

	/* some memory even where there is none, so that r1 is an address */
	r = driver_check(d, d->alloc(&run->memory, test->memory.size + 16), "cuMemAlloc", error);
	if (!r)
		r = driver_check(d, d->alloc(&run->result, 8), "cuMemAlloc", error);
	if (!r && test->memory.size)
		r = driver_check(d, d->to_device(run->memory, test->memory.data, test->memory.size),
				 "cuMemcpyHtoD", error);
	if (!r)
		r = driver_check(d, d->module_function(&function, run->module, "bpf_run"),
				 "cuModuleGetFunction", error);
	if (r)
		return r;
	memory = test->memory.size ? run->memory : 0;
	memcpy(arguments, &memory, 8);
	memcpy(arguments + 8, &length, 8);
	if (test->has_context)
		memcpy(arguments, test->context.data, test->context.size);
	r = driver_check(d, d->alloc(&run->arguments, sizeof(arguments)), "cuMemAlloc", error);
	if (!r)
		r = driver_check(d, d->to_device(run->arguments, arguments, sizeof(arguments)),
				 "cuMemcpyHtoD", error);
	if (r)
		return r;
	r = driver_check(d,
			 d->launch(function, test->grid[0], test->grid[1], test->grid[2],
				   test->block[0], test->block[1], test->block[2], 0, NULL,
				   parameters, NULL),
			 "cuLaunchKernel", error);
	if (!r)
		r = driver_check(d, d->context_synchronize(), "cuCtxSynchronize", error);
	return r;
}

static void run_deinit(struct run *run) {
	for (size_t i = 0; i < MAPS_MAX; i++)
		if (run->buffers[i])
			run->driver->free(run->buffers[i]);
	if (run->memory)
		run->driver->free(run->memory);
	if (run->arguments)
		run->driver->free(run->arguments);
	if (run->slots)
		run->driver->free(run->slots);
	if (run->process)
		run->driver->free(run->process);
	if (run->result)
		run->driver->free(run->result);
	if (run->module)
		run->driver->module_unload(run->module);
}

/* Runs a case. Returns 0 and the outcome (maps[].data are the caller's), or -1 and a message. */
static int run_case(const struct driver *driver, const struct test_case *test,
		    struct outcome *outcome, char **error) {
	struct translate_result translated;
	struct run run = { .driver = driver, .test = test, .translated = &translated };
	char *text;
	int r;

	r = translate_case(test, &translated, error);
	if (r)
		return r;
	text = module_text(test, translated.programs);
	if (text && test->mask)
		text = pretend_mask(text, test->mask);
	if (!text) {
		r = fail(error, "out of memory");
	} else if (test->print_ptx) {
		fputs(text, stdout);
	} else {
		r = driver_check(driver, driver->module_load(&run.module, text), "cuModuleLoadData",
				 error);
		if (!r)
			r = test->patch ? run_arm_patch(&run, error) : run_arm(&run, error);
		if (!r)
			r = run_launch(&run, error);
		if (!r)
			r = run_collect(&run, outcome, error);
		run_deinit(&run);
	}
	free(text);
	translate_result_deinit(&translated);
	return r;
}

/* All of a stream, NUL-terminated. The caller frees. */
static char *read_all(FILE *stream) {
	size_t size = 0, capacity = 4096, n;
	char *text = malloc(capacity);

	while (text && (n = fread(text + size, 1, capacity - size - 1, stream)) > 0) {
		size += n;
		if (capacity - size < 2048) {
			char *larger = realloc(text, capacity *= 2);

			if (!larger)
				free(text);
			text = larger;
		}
	}
	if (text)
		text[size] = '\0';
	return text;
}

/* ---- output ---- */

static void print_hex(const struct bytes *bytes) {
	fputs(bytes->size ? " " : " -", stdout);
	for (size_t i = 0; i < bytes->size; i++)
		printf("%02x", bytes->data[i]);
}

static void print_outcome(const struct test_case *test, struct outcome *outcome) {
	printf("0x%" PRIx64, outcome->r0);
	for (size_t i = 0; i < test->n_maps; i++) {
		print_hex(outcome->maps + i);
		free(outcome->maps[i].data);
	}
	if (test->want_memory)
		print_hex(&test->memory);
	putchar('\n');
}

static void batch_line(const struct driver *driver, const struct test_case *like, char *line) {
	struct test_case test = { .grid = { 1, 1, 1 },
				  .block = { 1, 1, 1 },
				  .patch = like->patch,
				  .print_ptx = like->print_ptx };
	struct outcome outcome = { 0 };
	char *save, *error = NULL, *name = strtok_r(line, " \t\n", &save), *word;
	int r = 0;

	if (!name || *name == '#')
		return;
	while (!r && (word = strtok_r(NULL, " \t\n", &save)))
		r = parse_word(&test, word, &error);
	if (test.print_ptx)
		printf("// %s\n", name);
	if (!r)
		r = run_case(driver, &test, &outcome, &error);
	if (!test.print_ptx)
		printf("%s ", name);
	if (r)
		printf("error: %s\n", error ? error : "out of memory");
	else if (!test.print_ptx)
		print_outcome(&test, &outcome);
	fflush(stdout);
	free(error);
	test_case_deinit(&test);
}

/* like: the form of all cases, and whether they are only printed. */
static int batch(const struct driver *driver, const struct test_case *like, const char *path,
		 char **error) {
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
	char *line = NULL;
	size_t size = 0;

	if (!file)
		return fail(error, "%s: %s", path, strerror(errno));
	while (getline(&line, &size, file) > 0)
		batch_line(driver, like, line);
	free(line);
	fclose(file);
	return 0;
}

static const char usage[] =
	"usage: bpf-run [--map TYPE:KEY:VALUE:ENTRIES[,OPTION]...]... [--grid SHAPE] [--block "
	"SHAPE]\n"
	"               [MEMORY | --context CONTEXT] < PROGRAM\n"
	"       bpf-run --ptx [--map ...] < PROGRAM     print the module and do not run it\n"
	"       bpf-run [--ptx] --batch FILE            a case a line; with --ptx, \"// NAME\" and "
	"the module of each\n"
	"--patch: the patch form of the program, in all cases\n"
	"PROGRAM, MEMORY and CONTEXT are bytes in hex; prints r0 in hex, then each map's "
	"contents.\n";

static int single(const struct driver *driver, struct test_case *test, char **error) {
	struct outcome outcome = { 0 };
	char *text = read_all(stdin);
	int r;

	if (!text)
		return fail(error, "out of memory");
	r = parse_hex(text, &test->program, error);
	free(text);
	if (!r)
		r = run_case(driver, test, &outcome, error);
	if (!r && !test->print_ptx)
		print_outcome(test, &outcome);
	return r;
}

static int parse_options(int argc, char **argv, struct test_case *test, const char **batch_path,
			 char **error) {
	static const struct option options[] = {
		{ "map", required_argument, NULL, 'm' },
		{ "context", required_argument, NULL, 'c' },
		{ "grid", required_argument, NULL, 'g' },
		{ "block", required_argument, NULL, 'b' },
		{ "ptx", no_argument, NULL, 'p' },
		{ "patch", no_argument, NULL, 'P' },
		{ "batch", required_argument, NULL, 'B' },
		{ "help", no_argument, NULL, 'h' },
		{ 0 },
	};
	int option, r = 0;

	while (!r && (option = getopt_long(argc, argv, "h", options, NULL)) >= 0) {
		switch (option) {
		case 'm':
			r = parse_map(test, optarg, error);
			break;
		case 'c':
			r = parse_context(test, optarg, error);
			break;
		case 'g':
			r = parse_shape(optarg, test->grid, error);
			break;
		case 'b':
			r = parse_shape(optarg, test->block, error);
			break;
		case 'p':
			test->print_ptx = true;
			break;
		case 'P':
			test->patch = true;
			break;
		case 'B':
			*batch_path = optarg;
			break;
		case 'h':
			fputs(usage, stdout);
			exit(0);
		default:
			return fail(error, "try --help");
		}
	}
	if (!r && optind + 1 < argc)
		return fail(error, "one memory only");
	return !r && optind < argc ? parse_hex(argv[optind], &test->memory, error) : r;
}

int main(int argc, char **argv) {
	struct test_case test = { .grid = { 1, 1, 1 }, .block = { 1, 1, 1 } };
	const char *batch_path = NULL;
	struct driver driver = { 0 };
	char *error = NULL;
	int r;

	r = parse_options(argc, argv, &test, &batch_path, &error);
	if (!r && !test.print_ptx)
		r = driver_open(&driver, &error);
	if (!r)
		r = batch_path ? batch(&driver, &test, batch_path, &error)
			       : single(&driver, &test, &error);
	if (r)
		fprintf(stderr, "bpf-run: %s\n", error ? error : "out of memory");
	free(error);
	test_case_deinit(&test);
	return r ? 1 : 0;
}
