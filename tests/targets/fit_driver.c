/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests/e2e/test-twin-fit.py. Launches kernels in several contexts and in all ways
 * that a launch has: it does what it is told, as live_driver does. Kernels have two parameters: the
 * address of a context's words, and how many blocks are launched.
 *
 *   module SLOT PATH           loads a module from a file into the current context (slots 0 to 7)
 *   library SLOT PATH
 *   unload SLOT
 *   context N new              makes context N (1 to 31; 0 is the primary one), with words and
 *                              streams of its own, and one that is not current
 *   context N green P          a green one with P multiprocessors at least
 *   context N device D         one on another device
 *   devices                    how many there are
 *   destroy N
 *   current N
 *   block THREADS SHARED       of launches from now on; bytes of dynamic shared memory
 *   launch SLOT N HOW BLOCKS COUNT   COUNT launches of vectorAdd in a stream of context N; says the
 *                              driver's last result. HOW: plain, handle (of a library's kernel),
 *                              listed (that out of the list of its kernels), cooperative; or with attributes: ex (none), coopex, cluster (of 2
 *                              blocks), priority, serial, updatable, newer (one that nobody knows)
 *   begin SLOT N BLOCKS        launches vectorAdd and does not wait
 *   later SLOT N BLOCKS        the same in another stream
 *   wait N                     for both
 *   tell SLOT N                launches the kernel `tell`
 *   word N I                   says a word, and
 *   write N I VALUE            writes one while kernels run
 *   set SLOT N ATTRIBUTE VALUE of the function; or
 *   setkernel SLOT N ATTRIBUTE VALUE   of the library's kernel
 *   get SLOT N ATTRIBUTE
 *   fits SLOT N                how many blocks the driver says that a multiprocessor has room for,
 *                              and how many multiprocessors the device has
 *
 * Each command is answered with a line: "ok" and numbers. Exits 0 at the end of its input.
 */

#include <dlfcn.h>
#include <stdint.h>
#include <string.h>

#include "driver.h"

#define SLOTS 8
#define CONTEXTS 32
#define WORDS 16

static struct place {
	CUcontext context;
	CUgreenCtx green;
	CUstream stream, other;
	CUdeviceptr words;
	CUfunction functions[SLOTS][2]; /* vectorAdd and tell of a library */
} places[CONTEXTS];

static struct slot {
	CUmodule module;
	CUlibrary library;
} slots[SLOTS];

static CUdevice device;
static CUcontext current;
static unsigned block = 64, shared;

/* What the table of driver.h does not have. */
static void *find(const char *name) {
	void *function = dlsym(dlopen("libcuda.so.1", RTLD_NOW), name);

	if (!function) {
		fprintf(stderr, "fit_driver: the driver has no %s\n", name);
		exit(3);
	}
	return function;
}
#define CALL(function, ...) CHECK(((__typeof__(function) *)find(#function))(__VA_ARGS__))

static void make_current(CUcontext context) {
	CHECK(driver.ctx_set_current(context));
	current = context;
}

static void fill_place(struct place *place) {
	CUcontext before = current;

	make_current(place->context);
	if (place->green) {
		CALL(cuGreenCtxStreamCreate, &place->stream, place->green, CU_STREAM_NON_BLOCKING,
		     0);
		CALL(cuGreenCtxStreamCreate, &place->other, place->green, CU_STREAM_NON_BLOCKING,
		     0);
	} else {
		CHECK(driver.stream_create(&place->stream, CU_STREAM_NON_BLOCKING));
		CHECK(driver.stream_create(&place->other, CU_STREAM_NON_BLOCKING));
	}
	CHECK(driver.mem_alloc(&place->words, WORDS * 4));
	CHECK(driver.memset_d8(place->words, 0, WORDS * 4));
	make_current(before);
}

static void make_green(struct place *place, unsigned processors) {
	CUdevResource all, some;
	CUdevResourceDesc description;
	unsigned groups = 1;

	CALL(cuDeviceGetDevResource, device, &all, CU_DEV_RESOURCE_TYPE_SM);
	CALL(cuDevSmResourceSplitByCount, &some, &groups, &all, NULL, 0, processors);
	CALL(cuDevResourceGenerateDesc, &description, &some, 1);
	CALL(cuGreenCtxCreate, &place->green, description, device, CU_GREEN_CTX_DEFAULT_STREAM);
	CALL(cuCtxFromGreenCtx, &place->context, place->green);
}

static void destroy(struct place *place) {
	CUcontext before = current == place->context ? places[0].context : current;

	make_current(place->context);
	CHECK(driver.stream_destroy(place->stream));
	CHECK(driver.stream_destroy(place->other));
	CHECK(driver.mem_free(place->words));
	make_current(before);
	if (place->green)
		CALL(cuGreenCtxDestroy, place->green);
	else
		CALL(cuCtxDestroy_v2, place->context);
	*place = (struct place){};
}

/* A library's is asked for once, while its context is current. */
static CUfunction function_of(int number, struct place *place, const char *name) {
	CUfunction *function = &place->functions[number][!strcmp(name, "tell")];
	CUcontext before = current;
	CUkernel kernel;

	if (!slots[number].library) {
		CHECK(driver.module_get_function(function, slots[number].module, name));
	} else if (!*function) {
		make_current(place->context);
		CHECK(driver.library_get_kernel(&kernel, slots[number].library, name));
		CHECK(driver.kernel_get_function(function, kernel));
		make_current(before);
	}
	return *function;
}

static CUfunction handle_of(int number) {
	CUkernel kernel;

	CHECK(driver.library_get_kernel(&kernel, slots[number].library, "vectorAdd"));
	return (CUfunction)(void *)kernel;
}

static CUfunction listed_of(int number) {
	CUkernel kernels[2];
	const char *name;

	CALL(cuLibraryEnumerateKernels, kernels, 2, slots[number].library);
	CALL(cuKernelGetName, &name, kernels[0]);
	return (CUfunction)(void *)kernels[!strcmp(name, "tell")];
}

static unsigned get_attribute(const char *how, CUlaunchAttribute *attribute) {
	*attribute = (CUlaunchAttribute){ .id = CU_LAUNCH_ATTRIBUTE_IGNORE };
	if (!strcmp(how, "coopex")) {
		attribute->id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
		attribute->value.cooperative = 1;
	} else if (!strcmp(how, "cluster")) {
		attribute->id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
		attribute->value.clusterDim.x = 2;
		attribute->value.clusterDim.y = attribute->value.clusterDim.z = 1;
	} else if (!strcmp(how, "priority")) {
		attribute->id = CU_LAUNCH_ATTRIBUTE_PRIORITY;
	} else if (!strcmp(how, "serial")) {
		attribute->id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
		attribute->value.programmaticStreamSerializationAllowed = 1;
	} else if (!strcmp(how, "updatable")) {
		attribute->id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
		attribute->value.cooperative = 1; /* the first word, too */
	} else if (!strcmp(how, "newer")) {
		attribute->id = (CUlaunchAttributeID)99;
	} else {
		return strcmp(how, "ex") != 0 ? ~0u : 0;
	}
	return 1;
}

static CUresult launch(CUfunction function, const struct place *place, CUstream stream,
		       const char *how, unsigned blocks) {
	CUdeviceptr words = place->words;
	void *parameters[] = { &words, &blocks };
	CUlaunchAttribute attribute;
	CUlaunchConfig configuration = {
		.gridDimX = blocks,
		.gridDimY = 1,
		.gridDimZ = 1,
		.blockDimX = block,
		.blockDimY = 1,
		.blockDimZ = 1,
		.sharedMemBytes = shared,
		.hStream = stream,
		.attrs = &attribute,
	};

	if (!strcmp(how, "cooperative"))
		return driver.launch_cooperative(function, blocks, 1, 1, block, 1, 1, shared,
						 stream, parameters);
	configuration.numAttrs = get_attribute(how, &attribute);
	if (configuration.numAttrs <= 1)
		return driver.launch_kernel_ex(&configuration, function, parameters, NULL);
	return driver.launch_kernel(function, blocks, 1, 1, block, 1, 1, shared, stream, parameters,
				    NULL);
}

static int launches(int number, struct place *place, const char *how, unsigned blocks, int count) {
	CUfunction function = !strcmp(how, "handle")   ? handle_of(number)
			      : !strcmp(how, "listed") ? listed_of(number)
						       : function_of(number, place, "vectorAdd");
	CUresult result = CUDA_SUCCESS;

	for (int i = 0; i < count; i++)
		result = launch(function, place, place->stream, how, blocks);
	CHECK(driver.stream_synchronize(place->stream));
	return (int)result;
}

static void write_word(const struct place *place, int index, unsigned value) {
	static __typeof__(cuMemcpyHtoDAsync_v2) *copy;
	CUcontext before = current;

	if (!copy)
		*(void **)&copy = find("cuMemcpyHtoDAsync_v2");
	make_current(place->context);
	CHECK(copy(place->words + (unsigned)index * 4, &value, sizeof(value), place->other));
	CHECK(driver.stream_synchronize(place->other));
	make_current(before);
}

static unsigned read_word(const struct place *place, int index) {
	CUcontext before = current;
	unsigned words[WORDS];

	make_current(place->context);
	CHECK(driver.memcpy_to_host(words, place->words, sizeof(words)));
	make_current(before);
	return words[index];
}

static bool context(int number, const char *kind, int value) {
	struct place *place = &places[number];
	CUcontext pushed;

	if (place->context)
		return false;
	if (!strcmp(kind, "green")) {
		make_green(place, (unsigned)value);
	} else {
		CALL(cuCtxCreate_v4, &place->context, NULL, 0,
		     strcmp(kind, "device") ? device : value);
		CALL(cuCtxPopCurrent_v2, &pushed);
	}
	fill_place(place);
	return true;
}

static bool load(const char *verb, int number, const char *path) {
	if (!strcmp(verb, "module"))
		CHECK(driver.module_load(&slots[number].module, path));
	else
		CALL(cuLibraryLoadFromFile, &slots[number].library, path, NULL, NULL, 0, NULL, NULL,
		     0);
	return true;
}

static void unload(int number) {
	if (slots[number].library)
		CHECK(driver.library_unload(slots[number].library));
	else
		CHECK(driver.module_unload(slots[number].module));
	slots[number] = (struct slot){};
	for (int n = 0; n < CONTEXTS; n++)
		memset(places[n].functions[number], 0, sizeof(places[n].functions[number]));
}

static void fits(CUfunction function) {
	int blocks, processors;

	CALL(cuOccupancyMaxActiveBlocksPerMultiprocessor, &blocks, function, (int)block, shared);
	CALL(cuDeviceGetAttribute, &processors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device);
	printf("ok %d %d\n", blocks, processors);
}

/* What has to do with a slot and a place. Returns false if it says nothing known. */
static bool run_in(const char *verb, int number, struct place *place, const char *word, int first,
		   int second) {
	CUfunction function;
	int value = 0;

	if (!strcmp(verb, "launch")) {
		printf("ok %d\n", launches(number, place, word, (unsigned)first, second));
		return true;
	}
	function = function_of(number, place, strcmp(verb, "tell") ? "vectorAdd" : "tell");
	if (!strcmp(verb, "tell")) {
		CHECK(launch(function, place, place->stream, "plain", 1));
		CHECK(driver.stream_synchronize(place->stream));
	} else if (!strcmp(verb, "begin") || !strcmp(verb, "later")) {
		CHECK(launch(function, place, verb[0] == 'b' ? place->stream : place->other,
			     "plain", (unsigned)atoi(word)));
	} else if (!strcmp(verb, "set")) {
		CALL(cuFuncSetAttribute, function, (CUfunction_attribute)atoi(word), first);
	} else if (!strcmp(verb, "setkernel")) {
		CALL(cuKernelSetAttribute, (CUfunction_attribute)atoi(word), first,
		     (CUkernel)(void *)handle_of(number), device);
	} else if (!strcmp(verb, "get")) {
		CHECK(driver.function_get_attribute(&value, (CUfunction_attribute)atoi(word),
						    function));
		printf("ok %d\n", value);
		return true;
	} else if (!strcmp(verb, "fits")) {
		fits(function);
		return true;
	} else {
		return false;
	}
	puts("ok");
	return true;
}

/* What has to do with one number alone. */
static bool run_one(const char *verb, int number, const char *word, int value) {
	struct place *place = &places[number];

	if (!strcmp(verb, "module") || !strcmp(verb, "library")) {
		if (number >= SLOTS || !load(verb, number, word))
			return false;
	} else if (!strcmp(verb, "unload") && number < SLOTS) {
		unload(number);
	} else if (!strcmp(verb, "context")) {
		if (!context(number, word, value))
			return false;
	} else if (!strcmp(verb, "destroy") && number) {
		destroy(place);
	} else if (!strcmp(verb, "current")) {
		make_current(place->context);
	} else if (!strcmp(verb, "wait")) {
		CHECK(driver.stream_synchronize(place->stream));
		CHECK(driver.stream_synchronize(place->other));
	} else if (!strcmp(verb, "word")) {
		printf("ok %u\n", read_word(place, atoi(word)));
		return true;
	} else if (!strcmp(verb, "write")) {
		write_word(place, atoi(word), (unsigned)value);
	} else {
		return false;
	}
	puts("ok");
	return true;
}

static bool run(const char *line) {
	char verb[16] = "", word[256] = "";
	int number = 0, where = 0, first = 0, second = 0;

	if (sscanf(line, "%15s %d", verb, &number) < 1 || number < 0)
		return false;
	if (!strcmp(verb, "devices")) {
		CALL(cuDeviceGetCount, &number);
		printf("ok %d\n", number);
		return true;
	}
	if (!strcmp(verb, "block")) {
		if (sscanf(line, "%*s %u %u", &block, &shared) != 2)
			return false;
		puts("ok");
		return true;
	}
	if (number >= CONTEXTS)
		return false;
	if (number < SLOTS &&
	    sscanf(line, "%*s %*d %d %255s %d %d", &where, word, &first, &second) >= 1 &&
	    where >= 0 && where < CONTEXTS && places[where].context &&
	    (slots[number].module || slots[number].library) &&
	    run_in(verb, number, &places[where], word, first, second))
		return true;
	sscanf(line, "%*s %*d %255s %d", word, &first);
	return run_one(verb, number, word, first);
}

int main(void) {
	char line[512];

	driver_start(false);
	CHECK(driver.device_get(&device, 0));
	CHECK(driver.primary_retain(&places[0].context, device));
	current = places[0].context;
	fill_place(&places[0]);
	puts("ok");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!run(line)) {
			fprintf(stderr, "fit_driver: %s", line);
			return 2;
		}
		fflush(stdout);
	}
	return 0;
}
