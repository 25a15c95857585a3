/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU driver's API for programs (api.h). Images, modules, libraries, functions, the linker. */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "api.h"
#include "daemon/worker/compiler/cubin-relocation.h"
#include "daemon/worker/fatbin/fatbin.h"
#include "sim-program.h"

#define IMAGE_MAX (UINT64_C(256) << 20)
#define LINK_MAGIC                                                                               \
	"gpuprobe CPU driver link\n" /* what cuLinkComplete() makes of several texts: this, then \
					size and text of each */
#define LINK_TEXTS_MAX 64

struct wrapper {
	uint32_t magic, version;
	const void *data;
	const void *filename;
};

static bool verbose(void) {
	const char *text = getenv("GPUPROBE_SIM_VERBOSE");

	return text && *text && *text != '0';
}

char *api_read_file(const char *path, size_t *size) {
	FILE *file = fopen(path, "rbe");
	struct stat status;
	char *data = NULL;

	if (!file)
		return NULL;
	if (!fstat(fileno(file), &status) && S_ISREG(status.st_mode) &&
	    (uint64_t)status.st_size <= IMAGE_MAX)
		data = malloc(status.st_size + 1);
	if (data && fread(data, 1, status.st_size, file) != (size_t)status.st_size) {
		free(data);
		data = NULL;
	}
	if (data) {
		data[status.st_size] = '\0';
		*size = status.st_size;
	}
	fclose(file);
	return data;
}

/* The best PTX entry of a fatbin: the newest that this device can run. */
static const struct fatbin_entry *best_entry(const struct fatbin *fatbin) {
	const struct fatbin_entry *best = NULL;

	for (size_t n = 0; n < fatbin->n_entries; n++) {
		const struct fatbin_entry *entry = &fatbin->entries[n];

		if (entry->kind != FATBIN_KIND_PTX || entry->sm > sim_capability())
			continue;
		if ((entry->flags & (FATBIN_FLAG_ARCH_SPECIFIC | FATBIN_FLAG_FAMILY)) &&
		    entry->sm != sim_capability())
			continue;
		if (!best || entry->sm > best->sm)
			best = entry;
	}
	return best;
}

/* The bytes that the header of the first container asks for: the driver's callers do not say a
 * size. */
static CUresult fatbin_texts(const void *data, char **texts, size_t *lengths, unsigned int *count) {
	uint64_t size;
	const struct fatbin_entry *entry;
	struct fatbin fatbin;
	CUresult result;
	int r;

	memcpy(&size, (const char *)data + 8, 8);
	if (size > IMAGE_MAX)
		return CUDA_ERROR_INVALID_IMAGE;
	r = fatbin_parse(&fatbin, data, size + FATBIN_HEADER_SIZE);
	if (r)
		return r < 0 ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_IMAGE;
	entry = best_entry(&fatbin);
	if (!entry) {
		result = CUDA_ERROR_NO_BINARY_FOR_GPU;
	} else {
		r = fatbin_entry_ptx(entry, IMAGE_MAX, texts, lengths);
		result = !r      ? CUDA_SUCCESS
			 : r < 0 ? CUDA_ERROR_OUT_OF_MEMORY
				 : CUDA_ERROR_INVALID_IMAGE;
		*count = !r;
	}
	fatbin_deinit(&fatbin);
	return result;
}

/* Texts from an image of cuLinkComplete(). */
static CUresult linked_texts(const char *data, char **texts, size_t *lengths, unsigned int max,
			     unsigned int *count) {
	const char *p = data + strlen(LINK_MAGIC);

	for (*count = 0; *count < max; ++*count) {
		uint64_t size;

		memcpy(&size, p, 8);
		if (!size)
			return CUDA_SUCCESS;
		p += 8;
		texts[*count] = strndup(p, size);
		if (!texts[*count])
			return CUDA_ERROR_OUT_OF_MEMORY;
		lengths[*count] = strlen(texts[*count]);
		p += size;
	}
	return CUDA_SUCCESS;
}

/* Does it begin like text? PTX has nothing but printable characters and white space. */
static bool is_text(const char *image) {
	for (int n = 0; n < 16 && image[n]; n++)
		if ((unsigned char)image[n] >= 0x7f ||
		    ((unsigned char)image[n] < ' ' && !strchr("\t\n\r\f\v", image[n])))
			return false;
	return image[0];
}

CUresult api_image_texts(const void *image, size_t size, char **texts, size_t *lengths,
			 unsigned int max, unsigned int *count) {
	struct wrapper wrapper;
	uint32_t magic;

	*count = 0;
	if (size && size < 8)
		return CUDA_ERROR_INVALID_IMAGE;
	memcpy(&magic, image, 4);
	if (magic == FATBIN_WRAPPER_MAGIC) {
		memcpy(&wrapper, image, sizeof(wrapper));
		if (!wrapper.data)
			return CUDA_ERROR_INVALID_IMAGE;
		image = wrapper.data;
		size = 0;
		memcpy(&magic, image, 4);
	}
	if (magic == FATBIN_MAGIC)
		return fatbin_texts(image, texts, lengths, count);
	if (!memcmp(image, "\177ELF", 4))
		return CUDA_ERROR_NO_BINARY_FOR_GPU;
	if (!is_text(image))
		return CUDA_ERROR_INVALID_IMAGE;
	if (!strncmp(image, LINK_MAGIC, strlen(LINK_MAGIC)))
		return linked_texts(image, texts, lengths, max, count);
	lengths[0] = size ? strnlen(image, size) : strnlen(image, IMAGE_MAX);
	texts[0] = strndup(image, lengths[0]);
	*count = 1;
	return texts[0] ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Puts a message into a log buffer that the caller gave, and its length in the place of the
 * buffer's. */
static void fill_log(unsigned int options, const CUjit_option *names, void **values,
		     CUjit_option buffer_name, CUjit_option size_name, const char *message) {
	char *buffer = NULL;
	void **size_value = NULL;
	size_t size = 0;

	for (unsigned int n = 0; n < options; n++) {
		if (names[n] == buffer_name)
			buffer = values[n];
		if (names[n] == size_name) {
			size_value = &values[n];
			size = (uintptr_t)values[n];
			values[n] = NULL;
		}
	}
	if (buffer && size) {
		snprintf(buffer, size, "%s", message);
		*size_value = (void *)(uintptr_t)strlen(buffer);
	}
}

/* Says what there is to be said of compiling: nothing if nothing was compiled; the time of it is a
 * number above 0. */
static void fill_logs(unsigned int options, const CUjit_option *names, void **values,
		      const char *error, const char *info) {
	const float milliseconds = *info ? 1.5f : 0;

	fill_log(options, names, values, CU_JIT_ERROR_LOG_BUFFER,
		 CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error);
	fill_log(options, names, values, CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES,
		 info);
	for (unsigned int n = 0; n < options; n++)
		if (names[n] == CU_JIT_WALL_TIME)
			memcpy(&values[n], &milliseconds, sizeof(milliseconds));
}

/* False: the image is no fatbin. Else it needs fatbin_deinit(). */
static bool open_fatbin(struct fatbin *fatbin, const void *image) {
	struct wrapper wrapper;
	uint32_t magic;
	uint64_t size;

	memcpy(&magic, image, 4);
	if (magic == FATBIN_WRAPPER_MAGIC) {
		memcpy(&wrapper, image, sizeof(wrapper));
		image = wrapper.data;
		memcpy(&magic, image, 4);
	}
	if (magic != FATBIN_MAGIC)
		return false;
	memcpy(&size, (const char *)image + 8, 8);
	return !fatbin_parse(fatbin, image, size + FATBIN_HEADER_SIZE);
}

/* Adds the addresses that somebody wrote into a cubin in place of relocations. */
static CUresult add_addresses(const struct fatbin_entry *entry, struct sim_elsewhere **addresses) {
	struct cubin_relocations relocations;
	struct cubin_relocation one;
	size_t count = 0;

	if (!cubin_relocations_init(&relocations, entry->payload, entry->payload_size))
		return CUDA_SUCCESS;
	while (cubin_relocations_next(&relocations, &one) == 1) {
		struct sim_elsewhere *more;

		if (one.type != CUBIN_RELOCATION_NONE || !one.at ||
		    strcmp(one.section, CUBIN_ADDRESSES))
			continue;
		more = reallocarray(*addresses, count + 2, sizeof(*more));
		if (!more)
			return CUDA_ERROR_OUT_OF_MEMORY;
		*addresses = more;
		memcpy(&more[count].address, entry->payload + one.at, sizeof(more->address));
		more[count].address -= (uint64_t)one.addend;
		more[count++].name = one.symbol;
		more[count].name = NULL;
	}
	return CUDA_SUCCESS;
}

/*
 * We run the PTX of a fatbin, but where its machine code has addresses in it, we use these: code of
 * twins (proto/twin.h) works with variables of another module.
 */
static CUresult find_addresses(const void *image, struct sim_elsewhere **addresses) {
	CUresult r = CUDA_SUCCESS;
	struct fatbin fatbin;

	if (!open_fatbin(&fatbin, image))
		return r;
	for (size_t n = 0; r == CUDA_SUCCESS && n < fatbin.n_entries; n++)
		if (fatbin.entries[n].kind == FATBIN_KIND_ELF &&
		    fatbin.entries[n].sm == sim_capability() &&
		    fatbin_entry_compression(&fatbin.entries[n]) == FATBIN_RAW && !*addresses)
			r = add_addresses(&fatbin.entries[n], addresses);
	fatbin_deinit(&fatbin);
	return r;
}

/* Machine code for this device is not compiled, so options of the compiler mean nothing. We run its
 * PTX, but heed that. */
static bool has_code(const void *image) {
	struct fatbin fatbin;
	bool found = false;

	if (!open_fatbin(&fatbin, image))
		return false;
	for (size_t n = 0; n < fatbin.n_entries; n++) {
		const struct fatbin_entry *entry = &fatbin.entries[n];

		found |= entry->kind == FATBIN_KIND_ELF && entry->sm <= sim_capability() &&
			 entry->sm / 10 == sim_capability() / 10;
	}
	fatbin_deinit(&fatbin);
	return found;
}

/* The most registers that a thread may have: 255, or what CU_JIT_MAX_REGISTERS says. */
static uint32_t most_registers(const void *image, unsigned int options, const CUjit_option *names,
			       void **values) {
	uint32_t most = 255;

	for (unsigned int n = 0; n < options; n++)
		if (names[n] == CU_JIT_MAX_REGISTERS && (uintptr_t)values[n] < most &&
		    !has_code(image))
			most = (uint32_t)(uintptr_t)values[n];
	return most;
}

/*
 * A GPU's block has 65536 registers, and a kernel that declares hundreds may get few.
 * GPUPROBE_SIM_REGISTERS is how many a block has here: with it, that limits how many threads there
 * are.
 */
static void count_registers(struct sim_function *function, uint32_t most) {
	const char *text = getenv("GPUPROBE_SIM_REGISTERS");
	uint32_t threads, of_block = text ? (uint32_t)strtoul(text, NULL, 0) : 0;

	function->registers = function->register_count < most ? function->register_count : most;
	if (!of_block || !function->registers)
		return;
	threads = of_block / ((function->registers + 7) / 8 * 8) / 32 * 32;
	function->resident = threads;
	if (threads < function->max_threads)
		function->max_threads = threads;
}

CUresult api_module_make(CUmodule *out, struct sim_program *program, uint32_t registers) {
	const char *text = getenv("GPUPROBE_SIM_LAZY");
	CUmodule module = calloc(1, sizeof(*module));
	bool good = module, lazy = text && *text && *text != '0';

	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	module->functions = calloc(program->function_count + 1, sizeof(*module->functions));
	good = module->functions;
	api_lock();
	for (uint32_t n = 0; good && n < program->function_count; n++) {
		CUfunction function = &module->functions[module->function_count];

		if (!program->functions[n]->entry)
			continue;
		count_registers(program->functions[n], registers);
		function->function = program->functions[n];
		function->module = module;
		function->loaded = !lazy;
		program->functions[n]->user = function;
		good = api_live_add(function, API_FUNCTION);
		module->function_count += good;
	}
	good = good && api_live_add(module, API_MODULE);
	for (uint32_t n = 0; !good && n < module->function_count; n++)
		api_live_remove(&module->functions[n]);
	api_unlock();
	if (!good) {
		free(module->functions);
		free(module);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	module->program = program;
	module->most_registers = registers;
	*out = module;
	return CUDA_SUCCESS;
}

CUresult api_module_load(CUmodule *out, const void *image, size_t size, unsigned int options,
			 const CUjit_option *names, void **values) {
	char *texts[LINK_TEXTS_MAX] = { NULL }, message[512] = "", info[64] = "";
	size_t lengths[LINK_TEXTS_MAX];
	struct sim_elsewhere *addresses = NULL;
	struct sim_program *program;
	unsigned int count = 0;
	CUresult r;

	r = api_image_texts(image, size, texts, lengths, LINK_TEXTS_MAX, &count);
	if (r == CUDA_SUCCESS)
		r = find_addresses(image, &addresses);
	if (r == CUDA_SUCCESS)
		r = sim_program_new(&program, (const char *const *)texts, lengths, count, addresses,
				    message, sizeof(message));
	free(addresses);
	for (unsigned int n = 0; n < count; n++)
		free(texts[n]);
	if (r == CUDA_SUCCESS) {
		r = api_module_make(out, program, most_registers(image, options, names, values));
		if (r != CUDA_SUCCESS)
			sim_program_free(program);
	}
	if (r == CUDA_SUCCESS && !has_code(image))
		snprintf(info, sizeof(info), "CPU driver: compiled %u kernels",
			 (*out)->function_count);
	fill_logs(options, names, values, message, info);
	if (r != CUDA_SUCCESS && verbose())
		fprintf(stderr, "gpuprobe CPU driver: module load: %s\n",
			message[0] ? message : "not an image with PTX for this device");
	return r;
}

static CUresult load(CUmodule *module, const void *image, size_t size, unsigned int options,
		     const CUjit_option *names, void **values) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!module || !image || (options && (!names || !values)))
		return CUDA_ERROR_INVALID_VALUE;
	r = api_module_load(module, image, size, options, names, values);
	if (r == CUDA_SUCCESS) {
		(*module)->home = api_current();
		api_module_loaded(*module);
	}
	return r;
}

API_EXPORT CUresult cuModuleLoadData(CUmodule *module, const void *image) {
	return load(module, image, 0, 0, NULL, NULL);
}

API_EXPORT CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned int numOptions,
				       CUjit_option *options, void **optionValues) {
	return load(module, image, 0, numOptions, options, optionValues);
}

API_EXPORT CUresult cuModuleLoadFatBinary(CUmodule *module, const void *fatCubin) {
	return load(module, fatCubin, 0, 0, NULL, NULL);
}

API_EXPORT CUresult cuModuleLoad(CUmodule *module, const char *fname) {
	CUresult r = api_enter();
	size_t size;
	char *data;

	if (r != CUDA_SUCCESS)
		return r;
	if (!module || !fname)
		return CUDA_ERROR_INVALID_VALUE;
	data = api_read_file(fname, &size);
	if (!data)
		return CUDA_ERROR_FILE_NOT_FOUND;
	r = size >= 16 ? load(module, data, size, 0, NULL, NULL) : CUDA_ERROR_INVALID_IMAGE;
	free(data);
	return r;
}

static bool live_of(const void *handle, enum api_kind kind) {
	bool good;

	api_lock();
	good = api_live(handle, kind);
	api_unlock();
	return good;
}

void api_module_free(CUmodule module) {
	for (unsigned int n = 0; n < module->function_count; n++)
		api_live_remove(&module->functions[n]);
	api_live_remove(module);
	sim_program_free(module->program);
	free(module->functions);
	free(module);
}

/* GPUPROBE_SIM_REFUSE: who listens is told of the first unloading of a module, and it is refused
 * all the same. */
static bool refuses(void) {
	static bool refused;

	return getenv("GPUPROBE_SIM_REFUSE") &&
	       !__atomic_exchange_n(&refused, true, __ATOMIC_RELAXED);
}

API_EXPORT CUresult cuModuleUnload(CUmodule hmod) {
	API_SLOW(cuModuleUnload);
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	api_unsafe_in_capture(); /* it ends captures, and happens all the same */
	if (live_of(hmod, API_MODULE) && !hmod->library)
		api_module_unloading(hmod);
	if (refuses())
		return CUDA_ERROR_UNKNOWN;
	sim_run_lock();
	api_lock();
	if (!api_live(hmod, API_MODULE) || hmod->library)
		r = CUDA_ERROR_INVALID_HANDLE;
	else
		api_module_free(hmod);
	api_unlock();
	sim_run_unlock();
	return r;
}

API_EXPORT CUresult cuModuleGetLoadingMode(CUmoduleLoadingMode *mode) {
	const char *text = getenv("CUDA_MODULE_LOADING");
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!mode)
		return CUDA_ERROR_INVALID_VALUE;
	*mode = text && !strcmp(text, "EAGER") ? CU_MODULE_EAGER_LOADING : CU_MODULE_LAZY_LOADING;
	return CUDA_SUCCESS;
}

/* Under the lock, the handle being checked. */
static CUresult get_function(CUmodule module, const char *name, CUfunction *out) {
	struct sim_function *function = sim_program_kernel(module->program, name);

	if (!function)
		return CUDA_ERROR_NOT_FOUND;
	*out = function->user;
	return CUDA_SUCCESS;
}

static CUresult get_global(CUmodule module, const char *name, CUdeviceptr *dptr, size_t *bytes) {
	const struct sim_variable *variable = sim_program_global(module->program, name);

	if (!variable)
		return CUDA_ERROR_NOT_FOUND;
	if (dptr)
		*dptr = variable->address;
	if (bytes)
		*bytes = variable->size;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuModuleGetFunction(CUfunction *hfunc, CUmodule hmod, const char *name) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!hfunc || !name)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = api_live(hmod, API_MODULE) ? get_function(hmod, name, hfunc)
				       : CUDA_ERROR_INVALID_HANDLE;
	api_unlock();
	if (r == CUDA_SUCCESS)
		api_function_used(*hfunc);
	return r;
}

API_EXPORT CUresult cuModuleGetFunctionCount(unsigned int *count, CUmodule mod) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (api_live(mod, API_MODULE))
		*count = mod->function_count;
	else
		r = CUDA_ERROR_INVALID_HANDLE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuModuleEnumerateFunctions(CUfunction *functions, unsigned int numFunctions,
					       CUmodule mod) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!functions || !numFunctions)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (api_live(mod, API_MODULE)) {
		for (unsigned int n = 0; n < numFunctions && n < mod->function_count; n++)
			functions[n] = &mod->functions[n];
	} else {
		r = CUDA_ERROR_INVALID_HANDLE;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *dptr, size_t *bytes, CUmodule hmod,
					 const char *name) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!name || (!dptr && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = api_live(hmod, API_MODULE) ? get_global(hmod, name, dptr, bytes)
				       : CUDA_ERROR_INVALID_HANDLE;
	api_unlock();
	return r;
}
API_ALIAS(cuModuleGetGlobal, cuModuleGetGlobal_v2);

/* --- libraries --- */

static CUresult make_library(CUlibrary *out, CUmodule module) {
	CUlibrary library = calloc(1, sizeof(*library));
	bool good;

	if (!library)
		return CUDA_ERROR_OUT_OF_MEMORY;
	library->kernels = calloc(module->function_count + 1, sizeof(*library->kernels));
	library->module = module;
	api_lock();
	good = library->kernels && api_live_add(library, API_LIBRARY);
	for (unsigned int n = 0; good && n < module->function_count; n++) {
		library->kernels[n] = (struct CUkern_st){ &module->functions[n], library };
		good = api_live_add(&library->kernels[n], API_KERNEL);
	}
	library->kernel_count = module->function_count;
	module->library = library;
	if (good)
		api_library_add(library);
	api_unlock();
	if (!good)
		return CUDA_ERROR_OUT_OF_MEMORY; /* of a test double: what is lost is lost */
	*out = library;
	return CUDA_SUCCESS;
}

static CUresult load_library(CUlibrary *library, const void *code, size_t size,
			     unsigned int options, CUjit_option *names, void **values) {
	CUmodule module;
	CUresult r;

	if (options && (!names || !values))
		return CUDA_ERROR_INVALID_VALUE;
	r = api_module_load(&module, code, size, options, names, values);
	return r == CUDA_SUCCESS ? make_library(library, module) : r;
}

API_EXPORT CUresult cuLibraryLoadData(CUlibrary *library, const void *code,
				      CUjit_option *jitOptions, void **jitOptionsValues,
				      unsigned int numJitOptions, CUlibraryOption *libraryOptions,
				      void **libraryOptionValues, unsigned int numLibraryOptions) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!library || !code || (numLibraryOptions && !libraryOptions))
		return CUDA_ERROR_INVALID_VALUE;
	return load_library(library, code, 0, numJitOptions, jitOptions, jitOptionsValues);
}

API_EXPORT CUresult cuLibraryLoadFromFile(CUlibrary *library, const char *fileName,
					  CUjit_option *jitOptions, void **jitOptionsValues,
					  unsigned int numJitOptions,
					  CUlibraryOption *libraryOptions,
					  void **libraryOptionValues,
					  unsigned int numLibraryOptions) {
	CUresult r = api_initialized();
	size_t size;
	char *data;

	if (r != CUDA_SUCCESS)
		return r;
	if (!library || !fileName)
		return CUDA_ERROR_INVALID_VALUE;
	data = api_read_file(fileName, &size);
	if (!data)
		return CUDA_ERROR_FILE_NOT_FOUND;
	r = size >= 16
		    ? load_library(library, data, size, numJitOptions, jitOptions, jitOptionsValues)
		    : CUDA_ERROR_INVALID_IMAGE;
	free(data);
	return r;
}

API_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	api_unsafe_in_capture();
	if (live_of(library, API_LIBRARY))
		for (CUmodule module = library->module; module; module = module->next)
			api_module_unloading(module);
	sim_run_lock();
	api_lock();
	if (api_live(library, API_LIBRARY)) {
		for (unsigned int n = 0; n < library->kernel_count; n++)
			api_live_remove(&library->kernels[n]);
		api_live_remove(library);
		api_library_remove(library);
		for (CUmodule module = library->module, next; module; module = next) {
			next = module->next;
			api_module_free(module);
		}
		free(library->kernels);
		free(library);
	} else {
		r = CUDA_ERROR_INVALID_HANDLE;
	}
	api_unlock();
	sim_run_unlock();
	return r;
}

API_EXPORT CUresult cuLibraryGetKernel(CUkernel *pKernel, CUlibrary library, const char *name) {
	CUresult r = api_initialized();
	CUfunction function;

	if (r != CUDA_SUCCESS)
		return r;
	if (!pKernel || !name)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	r = api_live(library, API_LIBRARY) ? get_function(library->module, name, &function)
					   : CUDA_ERROR_INVALID_HANDLE;
	if (r == CUDA_SUCCESS)
		*pKernel = &library->kernels[function - library->module->functions];
	api_unlock();
	return r;
}

API_EXPORT CUresult cuLibraryGetKernelCount(unsigned int *count, CUlibrary lib) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (api_live(lib, API_LIBRARY))
		*count = lib->kernel_count;
	else
		r = CUDA_ERROR_INVALID_HANDLE;
	api_unlock();
	return r;
}

API_EXPORT CUresult cuLibraryEnumerateKernels(CUkernel *kernels, unsigned int numKernels,
					      CUlibrary lib) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!kernels || !numKernels)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (api_live(lib, API_LIBRARY)) {
		for (unsigned int n = 0; n < numKernels && n < lib->kernel_count; n++)
			kernels[n] = &lib->kernels[n];
	} else {
		r = CUDA_ERROR_INVALID_HANDLE;
	}
	api_unlock();
	return r;
}

API_EXPORT CUresult cuLibraryGetModule(CUmodule *pMod, CUlibrary library) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pMod)
		return CUDA_ERROR_INVALID_VALUE;
	if (!live_of(library, API_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	*pMod = api_library_use(library, api_current());
	if (!*pMod)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_module_loaded(*pMod);
	return r;
}

/* A managed variable belongs to no context, and is asked for in another way. */
static CUresult get_library_variable(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				     const char *name, bool managed) {
	const struct sim_variable *variable;
	CUresult r = api_enter();
	CUmodule module;

	if (r != CUDA_SUCCESS)
		return r;
	if (!name || (!dptr && !bytes))
		return CUDA_ERROR_INVALID_VALUE;
	if (!live_of(library, API_LIBRARY))
		return CUDA_ERROR_INVALID_HANDLE;
	module = api_library_use(library, api_current());
	if (!module)
		return CUDA_ERROR_OUT_OF_MEMORY;
	variable = sim_program_global(module->program, name);
	return variable && variable->managed == managed ? get_global(module, name, dptr, bytes)
							: CUDA_ERROR_NOT_FOUND;
}

API_EXPORT CUresult cuLibraryGetGlobal(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
				       const char *name) {
	return get_library_variable(dptr, bytes, library, name, false);
}

API_EXPORT CUresult cuLibraryGetManaged(CUdeviceptr *dptr, size_t *bytes, CUlibrary library,
					const char *name) {
	return get_library_variable(dptr, bytes, library, name, true);
}

API_EXPORT CUresult cuKernelGetFunction(CUfunction *pFunc, CUkernel kernel) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pFunc)
		return CUDA_ERROR_INVALID_VALUE;
	if (!live_of(kernel, API_KERNEL))
		return CUDA_ERROR_INVALID_HANDLE;
	*pFunc = api_kernel_use((CUfunction)(void *)kernel, api_current());
	if (!*pFunc)
		return CUDA_ERROR_OUT_OF_MEMORY;
	api_function_used(*pFunc);
	return r;
}

API_EXPORT CUresult cuKernelGetLibrary(CUlibrary *pLib, CUkernel kernel) {
	CUresult r = api_initialized();

	if (r != CUDA_SUCCESS)
		return r;
	if (!pLib)
		return CUDA_ERROR_INVALID_VALUE;
	api_lock();
	if (api_live(kernel, API_KERNEL))
		*pLib = kernel->library;
	else
		r = CUDA_ERROR_INVALID_HANDLE;
	api_unlock();
	return r;
}

/* --- the linker: keeps texts, and hands out an image that a load takes --- */

struct CUlinkState_st {
	char *texts[LINK_TEXTS_MAX];
	size_t lengths[LINK_TEXTS_MAX];
	unsigned int count;
	char *image;
	unsigned int options;
	CUjit_option *names; /* borrowed: the caller keeps them until the end, as the API says */
	void **values;
};

API_EXPORT CUresult cuLinkCreate_v2(unsigned int numOptions, CUjit_option *options,
				    void **optionValues, CUlinkState *stateOut) {
	CUresult r = api_enter();
	CUlinkState state;

	if (r != CUDA_SUCCESS)
		return r;
	if (!stateOut || (numOptions && (!options || !optionValues)))
		return CUDA_ERROR_INVALID_VALUE;
	state = calloc(1, sizeof(*state));
	if (!state)
		return CUDA_ERROR_OUT_OF_MEMORY;
	state->options = numOptions;
	state->names = options;
	state->values = optionValues;
	api_lock();
	if (!api_live_add(state, API_LINK))
		r = CUDA_ERROR_OUT_OF_MEMORY;
	api_unlock();
	if (r == CUDA_SUCCESS)
		*stateOut = state;
	else
		free(state);
	return r;
}
API_ALIAS(cuLinkCreate, cuLinkCreate_v2);

static bool live_link(CUlinkState state) {
	return live_of(state, API_LINK);
}

API_EXPORT CUresult cuLinkAddData_v2(CUlinkState state, CUjitInputType type, void *data,
				     size_t size, const char *name, unsigned int numOptions,
				     CUjit_option *options, void **optionValues) {
	CUresult r = api_enter();
	unsigned int count;

	if (r != CUDA_SUCCESS)
		return r;
	if (!live_link(state) || state->image)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!data || size < 16 || (type != CU_JIT_INPUT_PTX && type != CU_JIT_INPUT_FATBINARY))
		return type == CU_JIT_INPUT_CUBIN || type == CU_JIT_INPUT_OBJECT ||
				       type == CU_JIT_INPUT_LIBRARY
			       ? CUDA_ERROR_NO_BINARY_FOR_GPU
			       : CUDA_ERROR_INVALID_VALUE;
	if (state->count == LINK_TEXTS_MAX)
		return CUDA_ERROR_OUT_OF_MEMORY;
	r = api_image_texts(data, size, &state->texts[state->count], &state->lengths[state->count],
			    1, &count);
	if (r == CUDA_SUCCESS)
		state->count += count;
	return r;
}
API_ALIAS(cuLinkAddData, cuLinkAddData_v2);

API_EXPORT CUresult cuLinkAddFile_v2(CUlinkState state, CUjitInputType type, const char *path,
				     unsigned int numOptions, CUjit_option *options,
				     void **optionValues) {
	CUresult r;
	size_t size;
	char *data = path ? api_read_file(path, &size) : NULL;

	if (!data)
		return path ? CUDA_ERROR_FILE_NOT_FOUND : CUDA_ERROR_INVALID_VALUE;
	r = cuLinkAddData_v2(state, type, data, size, path, numOptions, options, optionValues);
	free(data);
	return r;
}
API_ALIAS(cuLinkAddFile, cuLinkAddFile_v2);

/* Links for the sake of its errors, then keeps the texts as the image. */
API_EXPORT CUresult cuLinkComplete(CUlinkState state, void **cubinOut, size_t *sizeOut) {
	CUresult r = api_enter();
	char message[512];
	struct sim_program *program;
	size_t size = strlen(LINK_MAGIC) + 8;
	char *p;

	if (r != CUDA_SUCCESS)
		return r;
	if (!live_link(state) || state->image)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!cubinOut || !state->count)
		return CUDA_ERROR_INVALID_VALUE;
	r = sim_program_new(&program, (const char *const *)state->texts, state->lengths,
			    state->count, NULL, message, sizeof(message));
	fill_logs(state->options, state->names, state->values, message,
		  r == CUDA_SUCCESS ? "CPU driver: linked" : "");
	if (r != CUDA_SUCCESS)
		return r;
	sim_program_free(program);
	for (unsigned int n = 0; n < state->count; n++)
		size += 8 + state->lengths[n];
	state->image = malloc(size);
	if (!state->image)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = stpcpy(state->image, LINK_MAGIC);
	for (unsigned int n = 0; n < state->count; n++) {
		uint64_t length = state->lengths[n];

		memcpy(p, &length, 8);
		memcpy(p + 8, state->texts[n], length);
		p += 8 + length;
	}
	memset(p, 0, 8);
	*cubinOut = state->image;
	if (sizeOut)
		*sizeOut = size;
	return CUDA_SUCCESS;
}

API_EXPORT CUresult cuLinkDestroy(CUlinkState state) {
	CUresult r = api_enter();

	if (r != CUDA_SUCCESS)
		return r;
	if (!live_link(state))
		return CUDA_ERROR_INVALID_HANDLE;
	api_lock();
	api_live_remove(state);
	api_unlock();
	for (unsigned int n = 0; n < state->count; n++)
		free(state->texts[n]);
	free(state->image);
	free(state);
	return CUDA_SUCCESS;
}
