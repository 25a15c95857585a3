/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CPU driver's API for programs (api.h). A library has a module in each context that uses it,
 * with variables of its own, as on a GPU: it is loaded there at the first use.
 */

#include <stdlib.h>
#include <string.h>

#include "api.h"

static CUlibrary libraries;

void api_library_add(CUlibrary library) {
	library->next = libraries;
	libraries = library;
}

void api_library_remove(CUlibrary library) {
	CUlibrary *link = &libraries;

	while (*link && *link != library)
		link = &(*link)->next;
	if (*link)
		*link = library->next;
}

/* The modules after the first are freed; the first, which kernels' handles lead to, waits for
 * another context. */
void api_libraries_end(CUcontext context) {
	for (CUlibrary library = libraries; library; library = library->next) {
		if (library->module->home == context)
			library->module->home = NULL;
		for (CUmodule *link = &library->module->next; *link;) {
			CUmodule module = *link;

			if (module->home != context) {
				link = &module->next;
				continue;
			}
			*link = module->next;
			api_module_free(module);
		}
	}
}

/* Under the lock. */
static CUmodule find(CUlibrary library, CUcontext context) {
	CUmodule module = library->module;

	while (module && module->home != context)
		module = module->next;
	if (!module && !library->module->home) {
		module = library->module;
		module->home = context;
	}
	return module;
}

/* Variables that lie in another module lie there in the copy, too. Managed ones lie in the first.
 */
static struct sim_elsewhere *elsewhere_of(const struct sim_program *program) {
	struct sim_elsewhere *all = calloc(program->variable_count + 1, sizeof(*all));
	size_t count = 0;

	for (uint32_t n = 0; all && n < program->variable_count; n++) {
		const struct sim_variable *variable = &program->variables[n];

		if (variable->space == PTX_SPACE_GLOBAL && variable->address &&
		    (!variable->memory || variable->managed) &&
		    variable->linkage != PTX_LINKAGE_EXTERN)
			all[count++] = (struct sim_elsewhere){ variable->name, variable->address };
	}
	return all;
}

static struct sim_program *copy_program(const struct sim_program *from) {
	struct sim_elsewhere *addresses = elsewhere_of(from);
	size_t *lengths = calloc(from->module_count + 1, sizeof(*lengths));
	struct sim_program *program = NULL;
	char message[512];

	for (uint32_t n = 0; lengths && n < from->module_count; n++)
		lengths[n] = strlen(from->texts[n]);
	if (addresses && lengths &&
	    sim_program_new(&program, (const char *const *)from->texts, lengths, from->module_count,
			    addresses, message, sizeof(message)) != CUDA_SUCCESS)
		program = NULL;
	free(addresses);
	free(lengths);
	return program;
}

/* What was set for a kernel is set in every context. */
static void copy_attributes(CUmodule to, const struct CUmod_st *from) {
	for (unsigned int n = 0; n < to->function_count; n++) {
		to->functions[n].function->max_dynamic_shared =
			from->functions[n].function->max_dynamic_shared;
		to->functions[n].function->carveout = from->functions[n].function->carveout;
	}
}

CUmodule api_library_use(CUlibrary library, CUcontext context) {
	struct sim_program *program;
	CUmodule module, made;

	api_lock();
	module = context ? find(library, context) : library->module;
	api_unlock();
	if (module)
		return module;
	program = copy_program(library->module->program);
	if (!program)
		return NULL;
	if (api_module_make(&made, program, library->module->most_registers) != CUDA_SUCCESS) {
		sim_program_free(program);
		return NULL;
	}
	sim_run_lock();
	api_lock();
	module = find(library, context);
	if (module) { /* another thread was faster */
		api_module_free(made);
	} else {
		module = made;
		module->library = library;
		module->home = context;
		copy_attributes(module, library->module);
		module->next = library->module->next;
		library->module->next = module;
	}
	api_unlock();
	sim_run_unlock();
	return module;
}

CUfunction api_kernel_use(CUfunction handle, CUcontext context) {
	CUkernel kernel = (CUkernel)(void *)handle;
	CUmodule module;
	bool live;

	api_lock();
	live = api_live(kernel, API_KERNEL);
	api_unlock();
	if (!live)
		return handle;
	module = api_library_use(kernel->library, context);
	return module ? &module->functions[kernel - kernel->library->kernels] : NULL;
}

CUfunction api_function(CUfunction handle) {
	const struct CUkern_st *kernel = (const void *)handle;
	CUmodule module;

	if (api_live(handle, API_FUNCTION))
		return handle;
	if (!api_live(handle, API_KERNEL))
		return NULL;
	module = api_current() ? find(kernel->library, api_current()) : NULL;
	return module ? &module->functions[kernel - kernel->library->kernels] : kernel->function;
}
