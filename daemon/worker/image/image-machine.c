/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes twins from machine code (image-machine.h).
 *
 * First all kernels that are meant are read, and the addresses in their code (sass/address.h); what
 * is not understood leaves its kernel out. Then probes are made for the others, their data is put
 * into the cubin (sass/data.h), and kernels are rewritten one by one. At last the slots with
 * addresses of the application's variables are freed of their relocations and listed.
 *
 * Kernels of the cubin that nobody means stay in it as they are, and are not launched.
 */

#include "image-machine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/worker/fatbin/fatbin.h"
#include "daemon/worker/sass/address.h"
#include "daemon/worker/sass/rewrite.h"
#include "image-table.h"
#include "image-twin.h"
#include "proto/launch.h"

struct machine {
	struct sass_cubin cubin;
	const struct image_request *request;
	struct image_targets *targets;
	struct sass_kernel *kernels; /* owned: by target */
	struct sass_twin *twins; /* owned: likewise */
	struct sass_refusal *refusals; /* owned: likewise; "" where there is a twin */
	struct sass_slots slots;
	struct image_probes probes;
	struct sass_bases bases;
	size_t next; /* in why_left_out() */
	char *reason;
};

static int refuse(char *reason, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int refuse(char *reason, const char *format, ...) {
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(reason, IMAGE_MACHINE_REASON_MAX, format, arguments);
	va_end(arguments);
	return IMAGE_MACHINE_E_NONE;
}

bool image_machine_has_run(unsigned int capability) {
	const struct sass_arch *arch = sass_arch_find(capability);

	return arch && arch->has_run;
}

static bool has_uses(const struct image_target *target) {
	for (uint32_t i = 0; i < target->count; i++)
		if (image_probe_can(&target->uses[i]))
			return true;
	return false;
}

/* Do its programs keep variables of a thread? */
static bool has_thread(const struct image_request *request, const struct image_target *target) {
	for (uint32_t i = 0; i < target->count; i++) {
		const struct probe_program *program = &request->programs[target->uses[i].program];

		for (uint32_t k = 0; k < program->context_count; k++)
			if (point_is_thread(program->context[k]))
				return true;
	}
	return false;
}

/* Is it clear already that a target has no twin? */
static const char *find_fault(const struct image_request *request,
			      const struct image_target *target) {
	if (target->device_function)
		return "probes in device functions need PTX";
	if (has_thread(request, target))
		return "variables of a thread (.thread) need PTX";
	return has_uses(target) ? NULL
				: "probes other than at entry and return, and those of "
				  "--engine=ptx, need PTX";
}

/* Reads a kernel. What it refuses is the target's refusal. */
static int read_kernel(struct machine *machine, size_t i) {
	const struct image_target *target = &machine->targets->targets[i];
	struct sass_refusal *refusal = &machine->refusals[i];
	const char *fault = find_fault(machine->request, target);
	int r;

	if (fault)
		return sass_refuse(refusal, "%s", fault);
	r = sass_kernel_init(&machine->kernels[i], &machine->cubin, target->name.mangled, refusal);
	if (r)
		return r;
	r = sass_slots_add(&machine->slots, &machine->cubin, &machine->kernels[i], refusal);
	if (r)
		sass_kernel_deinit(&machine->kernels[i]);
	return r;
}

/* Why a target has no twin; asked of one after the other. */
static int why_left_out(char **reason, const struct image_target *target, void *userdata) {
	struct machine *machine = userdata;
	const struct sass_refusal *refusal = &machine->refusals[machine->next++];

	if (!refusal->text[0])
		return 0;
	return asprintf(reason, IMAGE_TWIN_NONE "%s", refusal->text) < 0 ? -ENOMEM : 0;
}

static int read_kernels(struct machine *machine) {
	const size_t n = machine->targets->n;

	machine->kernels = calloc(n + 1, sizeof(*machine->kernels));
	machine->twins = calloc(n + 1, sizeof(*machine->twins));
	machine->refusals = calloc(n + 1, sizeof(*machine->refusals));
	if (!machine->kernels || !machine->twins || !machine->refusals)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		if (read_kernel(machine, i) < 0)
			return -ENOMEM;
	return 0;
}

/* A kernel gets its probes. */
static int rewrite(struct machine *machine, size_t i) {
	struct image_target *target = &machine->targets->targets[i];
	const struct image_probe *entry = image_probe_of(&machine->probes, i, IMAGE_PROBE_ENTRY),
				 *exit = image_probe_of(&machine->probes, i, IMAGE_PROBE_EXIT);
	struct sass_request request = {
		.kernel = target->name.mangled,
		.entry = entry ? &entry->probe : NULL,
		.exit = exit ? &exit->probe : NULL,
		.own_parameters = entry ? entry->kernel != NULL : exit && exit->kernel,
		.bases = machine->bases,
		.own_at = machine->probes.ids_at,
		.own_shift = machine->probes.ids ? (uint32_t)(i * sizeof(uint64_t)) : 0,
	};
	int r;

	for (size_t place = 0; place < _IMAGE_PROBE_PLACES; place++) {
		const struct image_probe *one = place ? exit : entry;

		if (one && one->refusal.text[0])
			return sass_refuse(&machine->refusals[i], "%.250s", one->refusal.text);
	}
	r = sass_rewrite(&machine->twins[i], &machine->cubin, &request, &machine->refusals[i]);
	for (uint32_t k = 0; !r && k < target->count; k++) {
		struct probe_use *use = &target->uses[k];

		if (image_probe_can(use))
			use->sites = use->point == POINT_RETURN ? machine->twins[i].exits : 1;
	}
	return r;
}

static int rewrite_all(struct machine *machine, struct compiler *compiler) {
	struct sass_refusal refusal;
	int r;

	r = image_probes_make(&machine->probes, machine->request, machine->targets,
			      machine->kernels, compiler);
	switch (r) {
	case IMAGE_PROBE_E_TRANSFORM:
		refuse(machine->reason, "%s", machine->probes.message);
		return IMAGE_MACHINE_E_TRANSFORM;
	case IMAGE_PROBE_E_COMPILE:
		return IMAGE_MACHINE_E_COMPILE;
	case IMAGE_PROBE_E_NO_COMPILER:
		return refuse(machine->reason, "there is no compiler for this device");
	}
	if (!r)
		r = sass_data_add(&machine->cubin, &machine->probes.cubin, &machine->bases,
				  &refusal);
	if (r)
		return r > 0 ? refuse(machine->reason, "%s", refusal.text) : r;
	for (size_t i = 0; i < machine->targets->n; i++) {
		if (machine->refusals[i].text[0])
			continue;
		if (rewrite(machine, i) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Says why of the first target that has none. all: each must have a twin, else one. */
static int check_refusals(const struct machine *machine, bool all) {
	const struct sass_refusal *first = NULL;
	size_t n = 0;

	for (size_t i = 0; i < machine->targets->n; i++) {
		if (!machine->refusals[i].text[0])
			continue;
		first = first ? first : &machine->refusals[i];
		n++;
	}
	if (!n || (!all && n < machine->targets->n))
		return 0;
	return refuse(machine->reason, "%s", first->text);
}

/* Where a cubin and its bank of addresses are in the image. False: they are not. */
static bool find_bank(const struct image_built *result, uint64_t *at) {
	struct elf_view view;
	struct fatbin fatbin;
	Elf64_Shdr bank;
	bool found;

	if (fatbin_parse(&fatbin, result->data, result->size))
		return false;
	found = fatbin.n_entries == 1 &&
		fatbin_entry_compression(&fatbin.entries[0]) == FATBIN_RAW &&
		elf_view_init(&view, fatbin.entries[0].payload, fatbin.entries[0].payload_size) &&
		elf_view_find(&view, ".nv.constant4", &bank);
	if (found)
		*at = (uint64_t)(fatbin.entries[0].payload - result->data) + bank.sh_offset;
	fatbin_deinit(&fatbin);
	return found;
}

static int add_table(const struct machine *machine, struct image_built *result) {
	struct image_table table = {};
	uint64_t bank = 0;
	int r = 0;

	if (machine->slots.n && !find_bank(result, &bank))
		return -EINVAL;
	for (size_t i = 0; !r && i < machine->slots.n; i++) {
		const struct sass_slot *slot = &machine->slots.slots[i];

		r = image_table_add_variable(&table, slot->variable, bank + slot->at, slot->addend);
	}
	for (size_t i = 0; !r && i < machine->targets->n; i++) {
		const struct sass_twin *twin = &machine->twins[i];
		const char *name = machine->targets->targets[i].name.mangled;

		if (!machine->refusals[i].text[0] && twin->block)
			r = image_table_add_kernel(&table, name, strlen(name), twin->parameters_n,
						   twin->parameters, twin->block_at);
	}
	if (r > 0)
		r = refuse(machine->reason, "the module has too many variables or kernels");
	if (!r)
		r = image_table_append(&table, result);
	image_table_deinit(&table);
	return r;
}

static int finish(struct machine *machine, struct image_built *result) {
	uint8_t *cubin = NULL;
	size_t size = 0;
	int r;

	r = sass_slots_drop(&machine->slots, &machine->cubin);
	if (!r)
		r = sass_cubin_write(&machine->cubin, &cubin, &size);
	if (!r)
		r = image_pack(result, machine->request->capability, cubin, size, NULL, NULL, 0);
	free(cubin);
	if (!r)
		r = add_table(machine, result);
	return r;
}

static int build(struct machine *machine, struct image_built *result, struct compiler *compiler,
		 bool all) {
	int r;

	if (machine->cubin.sm != machine->request->capability)
		return refuse(machine->reason, "its machine code is for sm_%u, the device is sm_%u",
			      machine->cubin.sm, machine->request->capability);
	if (!sass_arch_find(machine->cubin.sm))
		return refuse(machine->reason, "machine code for sm_%u is not understood",
			      machine->cubin.sm);
	r = read_kernels(machine);
	if (!r)
		r = check_refusals(machine, all);
	if (!r)
		r = rewrite_all(machine, compiler);
	if (!r)
		r = check_refusals(machine, all);
	return r ? r : finish(machine, result);
}

static void machine_deinit(struct machine *machine, size_t n) {
	image_probes_deinit(&machine->probes);
	sass_slots_deinit(&machine->slots);
	for (size_t i = 0; machine->kernels && i < n; i++)
		sass_kernel_deinit(&machine->kernels[i]);
	free(machine->kernels);
	free(machine->twins);
	free(machine->refusals);
	sass_cubin_deinit(&machine->cubin);
}

/* What the compiler said, and what it was given. */
static void take_text(struct machine *machine, struct image_built *result) {
	result->log = machine->probes.log;
	result->text = machine->probes.text;
	result->text_length = machine->probes.length;
	result->compile_us = machine->probes.compile_us;
	machine->probes.log = machine->probes.text = NULL;
}

int image_machine_build(struct image_built *result, const struct image_machine_source *source,
			struct image_targets *targets, struct compiler *compiler,
			char reason[IMAGE_MACHINE_REASON_MAX]) {
	struct machine machine = { .request = source->request,
				   .targets = targets,
				   .reason = reason };
	struct sass_refusal refusal;
	const size_t n = targets->n;
	int r;

	*result = (struct image_built){};
	r = sass_cubin_init(&machine.cubin, source->code, source->size, &refusal);
	if (r)
		return r > 0 ? refuse(reason, "%s", refusal.text) : r;
	r = build(&machine, result, compiler, source->all);
	take_text(&machine, result);
	if (!r)
		r = image_targets_leave_out(targets, why_left_out, &machine);
	for (size_t i = 0; r && i < targets->n; i++)
		for (uint32_t k = 0; k < targets->targets[i].count; k++)
			targets->targets[i].uses[k].sites = 0;
	machine_deinit(&machine, n);
	return r;
}
