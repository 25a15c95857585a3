/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Attaches hooks: chooses, for each, the best alternative that works in this kernel
 * (hook-attach.h).
 *
 * The ladder: for each alternative of a hook that is for this driver, fentry, kprobe.multi, kprobe;
 * what is no function has one way. All that want kprobe.multi share a link, because attaching and
 * detaching cost by the link; if one of them spoils it, each is tried by itself. Each step that
 * fails leaves a few words, so that `gpuprobectl hook list` says why.
 */

#include "hook-attach.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hook-kernel.h"
#include "hook-programs.h"
#include "hook-user.h"
#include "proto/trace.h"

const char *hook_method_name(enum hook_method method) {
	static const char *const names[] = { "",       "fentry",     "kprobe-multi",
					     "kprobe", "tracepoint", "raw-tracepoint",
					     "uprobe" };

	return names[method];
}

/* Adds to why the first choice is not it. */
static void __attribute__((format(printf, 2, 3))) because(struct hook_attachment *attachment,
							  const char *format, ...) {
	size_t n = strlen(attachment->reason);
	va_list arguments;

	if (n)
		n += (size_t)snprintf(attachment->reason + n, HOOK_REASON_SIZE - n, "; ");
	if (n >= HOOK_REASON_SIZE)
		return;
	va_start(arguments, format);
	vsnprintf(attachment->reason + n, HOOK_REASON_SIZE - n, format, arguments);
	va_end(arguments);
}

static const char *because_errno(int r) {
	switch (-r) {
	case EPERM:
	case EACCES:
		return "the kernel does not permit it";
	case EOPNOTSUPP:
	case 524: /* ENOTSUPP, the kernel's own */
		return "this kernel has none";
	case ENOENT:
		return "there is none of that name";
	case EINVAL:
		return "this kernel cannot";
	case EBUSY:
	case ESRCH:
		return "the function cannot be traced";
	default:
		return strerror(-r);
	}
}

/* ---- rows ---- */

static int fill_field(struct hook_word *word, struct hook_attachment *attachment,
		      const struct hook_alternative *alternative, size_t i,
		      const struct hook_kernel *kernel, char reason[HOOK_ERROR_SIZE]) {
	const struct hook_argument *argument = &alternative->arguments[i];
	const struct hook_type *type;
	struct hook_field field;

	if (!hook_kernel_field(kernel, alternative->place, alternative->name, argument->field,
			       &field)) {
		snprintf(reason, HOOK_ERROR_SIZE,
			 "%s:%s has no field %s that is a number or a text", alternative->place,
			 alternative->name, argument->field);
		return 1;
	}
	/* a number as a text: it is a pointer to one */
	type = argument->type && field.from == HOOK_FROM_FIELD ? argument->type : field.type;
	attachment->types[i] = type;
	word->from = field.from;
	word->offset = field.offset;
	word->size = field.size;
	word->flags = type->flags;
	return 0;
}

static int fill_word(struct hook_word *word, struct hook_attachment *attachment,
		     const struct hook_alternative *alternative, size_t i,
		     const struct hook_kernel *kernel, char reason[HOOK_ERROR_SIZE]) {
	const struct hook_argument *argument = &alternative->arguments[i];

	if (alternative->kind == HOOK_TRACEPOINT)
		return fill_field(word, attachment, alternative, i, kernel, reason);
	attachment->types[i] = argument->type;
	word->from = HOOK_FROM_ARGUMENT;
	word->index = argument->index;
	word->size = argument->type->size;
	word->flags = argument->type->flags | (argument->follow ? HOOK_WORD_FOLLOW : 0);
	word->offset = argument->offset;
	if (*argument->structure &&
	    !hook_kernel_offset(kernel, argument->structure, argument->member, &word->offset)) {
		snprintf(reason, HOOK_ERROR_SIZE,
			 "%s needs %s.%s, which the kernel's BTF does not have", argument->name,
			 argument->structure, argument->member);
		return 1;
	}
	return 0;
}

/* Words that hook.bpf.c gives for system calls. */
static void fill_syscall(struct hook_row *row, const struct hook_alternative *alternative) {
	for (size_t i = 0; i < alternative->n_arguments; i++) {
		const struct hook_type *type = alternative->arguments[i].type;

		row->words[i] = (struct hook_word){ .from = HOOK_FROM_ARGUMENT,
						    .index = (uint8_t)i,
						    .size = type->size,
						    .flags = type->flags };
	}
	row->n_words = (uint8_t)alternative->n_arguments;
	row->flags |= HOOK_ROW_SPAN | HOOK_ROW_USER | HOOK_ROW_RESULT_SIGNED;
	row->result_size = 8;
}

/* Which word is the only text. */
static uint8_t only_text(const struct hook_row *row) {
	uint8_t found = HOOK_WORDS_MAX;

	for (uint8_t i = 0; i < row->n_words; i++) {
		if (!(row->words[i].flags & HOOK_WORD_TEXT))
			continue;
		if (found < HOOK_WORDS_MAX)
			return HOOK_WORDS_MAX;
		found = i;
	}
	return row->flags & HOOK_ROW_USER ? found : HOOK_WORDS_MAX;
}

static bool is_ioctl(const struct hook *hook) {
	return !strcmp(hook->name, "ioctl") || !strcmp(hook->name, "uvm-ioctl");
}

int hook_row_fill(struct hook_row *row, struct hook_attachment *attachment,
		  const struct hook_alternative *alternative, const struct hook_kernel *kernel,
		  char reason[HOOK_ERROR_SIZE]) {
	const struct hook *hook = attachment->hook;
	struct hook_field returned;

	*row = (struct hook_row){};
	memset(attachment->types, 0, sizeof(attachment->types));
	if (hook->process != HOOK_PROCESS_MEANT)
		row->flags |= HOOK_ROW_ANY_PROCESS;
	if (hook->process == HOOK_PROCESS_NONE)
		row->flags |= HOOK_ROW_NO_PROCESS;
	if (is_ioctl(hook)) {
		row->flags |= HOOK_ROW_IOCTL | HOOK_ROW_SPAN;
		row->device = *hook->name == 'u' ? TRACE_DEVICE_UVM : TRACE_DEVICE_CTL;
		return 0;
	}
	if (alternative->kind == HOOK_SYSCALL) {
		fill_syscall(row, alternative);
		return 0;
	}
	if (alternative->kind == HOOK_USER)
		row->flags |= HOOK_ROW_USER;
	if (alternative->span)
		row->flags |= HOOK_ROW_SPAN;
	if (alternative->until_name)
		row->flags |= HOOK_ROW_BY_CPU;
	if (*alternative->match_field) {
		row->flags |= HOOK_ROW_MATCH;
		memcpy(row->match, alternative->match, sizeof(row->match));
	}
	if (alternative->result) {
		row->result_size = alternative->result->size;
		if (alternative->result->flags & HOOK_WORD_SIGNED)
			row->flags |= HOOK_ROW_RESULT_SIGNED;
	}
	row->n_words = (uint8_t)alternative->n_arguments;
	for (size_t i = 0; i < alternative->n_arguments; i++)
		if (fill_word(&row->words[i], attachment, alternative, i, kernel, reason))
			return 1;
	if (*alternative->returned) {
		if (!hook_kernel_field(kernel, alternative->until_place, alternative->until_name,
				       alternative->returned, &returned)) {
			snprintf(reason, HOOK_ERROR_SIZE, "%s:%s has no field %s",
				 alternative->until_place, alternative->until_name,
				 alternative->returned);
			return 1;
		}
		row->result_offset = returned.offset;
		row->result_size = returned.size;
		row->flags |= HOOK_ROW_RESULT_FIELD;
	}
	return 0;
}

/* ---- what is no function ---- */

static int attach_tracepoint(struct hook_attachment *attachment,
			     const struct hook_alternative *alternative, uint32_t row,
			     struct hook_programs *programs, const struct hook_kernel *kernel) {
	int id = hook_kernel_tracepoint(kernel, alternative->place, alternative->name), end = 0, r;

	if (id == -ENOTSUP) {
		because(attachment, "tracepoints: %s", kernel->tracefs_error);
		return id;
	}
	if (id >= 0 && alternative->until_name)
		end = hook_kernel_tracepoint(kernel, alternative->until_place,
					     alternative->until_name);
	if (id < 0 || end < 0) {
		because(attachment, "%s:%s: there is no such tracepoint", alternative->place,
			alternative->name);
		return -ENOENT;
	}
	r = hook_programs_tracepoint(programs, id, end, row);
	if (r < 0)
		because(attachment, "%s:%s: %s", alternative->place, alternative->name,
			because_errno(r));
	else
		attachment->method = HOOK_METHOD_TRACEPOINT;
	return r;
}

static int write_row(struct hook_attachment *attachment, const struct hook_alternative *alternative,
		     uint32_t index, struct hook_programs *programs,
		     const struct hook_kernel *kernel) {
	char reason[HOOK_ERROR_SIZE];
	struct hook_row row;

	if (hook_row_fill(&row, attachment, alternative, kernel, reason)) {
		because(attachment, "%s", reason);
		return -ENOENT;
	}
	row.late_text = only_text(&row);
	return bpf_map_update_elem(hook_programs_map(programs, HOOK_MAP_ROWS), &index, &row,
				   BPF_ANY)
		       ? -errno
		       : 0;
}

/* Where the version of the driver leaves it, with words about it. */
static bool fits(struct hook_attachment *attachment, const struct hook_alternative *alternative,
		 const struct hook_kernel *kernel) {
	char target[HOOK_SPEC_MAX];

	if (hook_alternative_fits(alternative, kernel->version))
		return true;
	hook_target(target, sizeof(target), alternative);
	because(attachment, "%s is of another version of the driver", target);
	return false;
}

static const char *no_syscalls(const struct hook_kernel *kernel) {
	return kernel->btf ? "there are no devices of the driver"
			   : "the kernel has no BTF, which tells devices of descriptors";
}

/*
 * Takes the next alternative, and attaches it if it is no function. True: it is one, at
 * attachment->address, and left to the steps below.
 */
static bool next_alternative(struct hook_attachment *attachment, uint32_t row,
			     struct hook_programs *programs, const struct hook_kernel *kernel) {
	while (attachment->method == HOOK_METHOD_NONE && !attachment->waiting &&
	       attachment->next < attachment->hook->n_alternatives) {
		const struct hook_alternative *alternative =
			&attachment->hook->alternatives[attachment->next++];
		const char *reason;

		attachment->alternative = alternative;
		if (!fits(attachment, alternative, kernel))
			continue;
		if (alternative->kind == HOOK_FUNCTION) {
			attachment->address = hook_kernel_address(kernel, alternative->place,
								  alternative->name, &reason);
			if (attachment->address &&
			    !write_row(attachment, alternative, row, programs, kernel))
				return true;
			if (!attachment->address)
				because(attachment, "%s:%s: %s", alternative->place,
					alternative->name, reason);
			continue;
		}
		if (alternative->kind != HOOK_RAW &&
		    write_row(attachment, alternative, row, programs, kernel))
			continue;
		if (alternative->kind == HOOK_TRACEPOINT)
			attach_tracepoint(attachment, alternative, row, programs, kernel);
		else if (alternative->kind == HOOK_USER)
			attachment->waiting = true;
		else if (alternative->kind == HOOK_SYSCALL && (!kernel->btf || !kernel->n_devices))
			because(attachment, "system calls: %s", no_syscalls(kernel));
		else
			attachment->method =
				HOOK_METHOD_RAW_TRACEPOINT; /* attached for all at once */
	}
	if (attachment->method == HOOK_METHOD_NONE && !attachment->waiting)
		attachment->alternative = NULL;
	return false;
}

/* ---- functions ---- */

static void try_fentry(struct hook_attachment *attachment, uint32_t row,
		       struct hook_programs *programs, const struct hook_kernel *kernel) {
	const struct hook_alternative *alternative = attachment->alternative;
	int fd = -1, id, r;

	id = hook_kernel_function_btf(kernel, alternative->place, alternative->name, &fd);
	if (id < 0) {
		because(attachment, "fentry: %s is not in BTF", alternative->name);
		return;
	}
	r = hook_programs_fentry(programs, fd, id, row, alternative->span);
	if (fd >= 0)
		close(fd);
	if (r < 0)
		because(attachment, "fentry: %s", because_errno(r));
	else
		attachment->method = HOOK_METHOD_FENTRY;
}

/* Functions for a link of their own. */
struct batch {
	uint64_t *addresses, *rows;
	bool *spans;
	size_t n;
};

/* Unless another hook has that function already: a link finds one cookie for an address. */
static void batch_add(struct batch *batch, const struct hook_attachment *attachment, uint32_t row) {
	for (size_t i = 0; i < batch->n; i++)
		if (batch->addresses[i] == attachment->address)
			return;
	batch->addresses[batch->n] = attachment->address;
	batch->rows[batch->n] = row;
	batch->spans[batch->n++] = attachment->alternative->span;
}

static void attach_singly(struct hook_attachment *attachment, uint32_t row,
			  struct hook_programs *programs) {
	const uint64_t rows[] = { row };
	int r = hook_programs_multi(programs, &attachment->address, rows,
				    &attachment->alternative->span, 1);

	if (r < 0)
		because(attachment, "kprobe-multi: %s", because_errno(r));
	else
		attachment->method = HOOK_METHOD_MULTI;
}

/* All that are left, in one link; else each in its own. */
static int try_multi(struct hook_attachment *attachments, const uint32_t *left, size_t n,
		     struct hook_programs *programs, const struct hook_kernel *kernel) {
	struct batch batch = { .addresses = calloc(2 * n, sizeof(uint64_t)),
			       .spans = calloc(n, sizeof(bool)) };
	int r = -ENOMEM;

	if (!batch.addresses || !batch.spans)
		goto out;
	batch.rows = batch.addresses + n;
	for (size_t i = 0; i < n; i++) {
		const struct hook_alternative *alternative = attachments[left[i]].alternative;

		if (hook_kernel_traceable(kernel, alternative->place, alternative->name))
			batch_add(&batch, &attachments[left[i]], left[i]);
	}
	r = batch.n ? hook_programs_multi(programs, batch.addresses, batch.rows, batch.spans,
					  batch.n)
		    : 0;
	for (size_t i = 0; !r && i < batch.n; i++)
		attachments[batch.rows[i]].method = HOOK_METHOD_MULTI;
	for (size_t i = 0; i < n; i++) {
		struct hook_attachment *attachment = &attachments[left[i]];

		if (attachment->method == HOOK_METHOD_NONE &&
		    hook_kernel_traceable(kernel, attachment->alternative->place,
					  attachment->alternative->name))
			attach_singly(attachment, left[i], programs);
	}
	r = 0;
out:
	free(batch.spans);
	free(batch.addresses);
	return r;
}

static void try_kprobe(struct hook_attachment *attachment, uint32_t row,
		       struct hook_programs *programs, const struct hook_kernel *kernel) {
	int r = hook_programs_kprobe(programs, kernel, attachment->address, row,
				     attachment->alternative->span);

	if (r == -EINVAL && !hook_kernel_traceable(kernel, attachment->alternative->place,
						   attachment->alternative->name))
		because(attachment,
			"kprobe: ftrace does not reach %s, and this kernel was built without "
			"CONFIG_KPROBE_EVENTS_ON_NOTRACE",
			attachment->alternative->name);
	else if (r < 0)
		because(attachment, "kprobe: %s", because_errno(r));
	else
		attachment->method = HOOK_METHOD_KPROBE;
}

/* Those of left that are not attached yet. */
static size_t still_left(const struct hook_attachment *attachments, uint32_t *left, size_t n) {
	size_t k = 0;

	for (size_t i = 0; i < n; i++)
		if (attachments[left[i]].method == HOOK_METHOD_NONE)
			left[k++] = left[i];
	return k;
}

/* Which of hook_programs_syscalls()'s rows a hook has that is attached by system calls. */
static int syscall_index(const struct hook *hook, const struct hook_alternative *alternative) {
	static const char *const names[] = { [HOOK_SYSCALL_IOCTL] = "ioctl",
					     [HOOK_SYSCALL_OPEN] = "open",
					     [HOOK_SYSCALL_CLOSE] = "close",
					     [HOOK_SYSCALL_MMAP] = "mmap" };
	int i = 0;

	while (i < _HOOK_SYSCALL_N - 1 && strcmp(names[i], alternative->name))
		i++;
	return strcmp(hook->set, "uvm") ? i : i + _HOOK_SYSCALL_N;
}

/* The system calls of all hooks that have nothing better, and processes. */
static void attach_syscalls(struct hook_attachment *attachments, size_t n,
			    struct hook_programs *programs) {
	int32_t rows[2 * _HOOK_SYSCALL_N];
	bool wanted = false;
	int r;

	memset(rows, -1, sizeof(rows));
	for (size_t i = 0; i < n; i++)
		if (attachments[i].alternative &&
		    attachments[i].alternative->kind == HOOK_SYSCALL) {
			rows[syscall_index(attachments[i].hook, attachments[i].alternative)] =
				(int32_t)i;
			wanted = true;
		}
	r = wanted ? hook_programs_syscalls(programs, rows) : 0;
	for (size_t i = 0; r < 0 && i < n; i++)
		if (attachments[i].alternative &&
		    attachments[i].alternative->kind == HOOK_SYSCALL) {
			because(&attachments[i], "system calls: %s", because_errno(r));
			attachments[i].method = HOOK_METHOD_NONE;
			attachments[i].alternative = NULL;
		}
}

int hook_attach(struct hook_attachment *attachments, size_t n, struct hook_programs *programs,
		const struct hook_kernel *kernel) {
	uint32_t *left = calloc(n + 1, sizeof(*left));
	size_t n_left;
	int r = 0;

	if (!left)
		return -ENOMEM;
	do {
		n_left = 0;
		for (size_t i = 0; i < n; i++)
			if (attachments[i].method == HOOK_METHOD_NONE &&
			    next_alternative(&attachments[i], (uint32_t)i, programs, kernel))
				left[n_left++] = (uint32_t)i;
		for (size_t i = 0; i < n_left; i++)
			try_fentry(&attachments[left[i]], left[i], programs, kernel);
		n_left = still_left(attachments, left, n_left);
		if (n_left)
			r = try_multi(attachments, left, n_left, programs, kernel);
		n_left = still_left(attachments, left, n_left);
		for (size_t i = 0; i < n_left; i++)
			try_kprobe(&attachments[left[i]], left[i], programs, kernel);
		/* those that failed have perhaps another alternative */
		n_left = still_left(attachments, left, n_left);
	} while (!r && n_left);
	free(left);
	if (!r)
		attach_syscalls(attachments, n, programs);
	return r;
}

void hook_attach_settle(struct hook_attachment *attachment, int r, int error) {
	const struct hook_alternative *alternative = attachment->alternative;

	attachment->waiting = false;
	if (!r) {
		attachment->method = HOOK_METHOD_UPROBE;
		return;
	}
	attachment->alternative = NULL;
	switch (r) {
	case HOOK_USER_E_FOREIGN:
		because(attachment,
			"callers who may not attach can probe functions of their own files only");
		return;
	case HOOK_USER_E_NO_FILE:
		because(attachment, "%s: %s", alternative->place, strerror(error));
		return;
	case HOOK_USER_E_SILENT:
		because(attachment,
			"%s: it, a file of another probe, or a process that has it mapped does not "
			"answer",
			alternative->place);
		return;
	case HOOK_USER_E_BUSY:
		because(attachment, "too many probes of files are being attached or removed for "
				    "this user: try again in a while");
		return;
	}
	because(attachment, "%s: %s: %s", alternative->place, alternative->name,
		r == HOOK_USER_E_HARM
			? "this kernel kills programs with a seccomp filter (containers) whose "
			  "functions' returns are probed "
			  "(6.11 to 6.13 did): update it, or leave out what comes behind )"
		: r == HOOK_USER_E_NO_FUNCTION ? "there is no such function"
		: r == HOOK_USER_E_IFUNC ? "it is an IFUNC: what is called is another function, "
					   "which it chooses when the program starts"
		: r == HOOK_USER_E_NO_PROGRAM
			? "not a program or library for this machine, or too large a one"
			: because_errno(r));
}

/* ---- without attaching ---- */

static enum hook_method guess_function(struct hook_attachment *attachment,
				       const struct hook_alternative *alternative,
				       const struct hook_kernel *kernel) {
	const char *reason;
	int fd = -1, id;

	if (!hook_kernel_address(kernel, alternative->place, alternative->name, &reason)) {
		because(attachment, "%s:%s: %s", alternative->place, alternative->name, reason);
		return HOOK_METHOD_NONE;
	}
	if (!hook_kernel_traceable(kernel, alternative->place, alternative->name)) {
		because(attachment,
			"%s:%s: ftrace does not reach the function: most kernels refuse to probe "
			"it",
			alternative->place, alternative->name);
		return HOOK_METHOD_NONE;
	}
	id = hook_kernel_function_btf(kernel, alternative->place, alternative->name, &fd);
	if (fd >= 0)
		close(fd);
	if (kernel->kprobe_type >= 0)
		return id > 0               ? HOOK_METHOD_FENTRY
		       : kernel->has_fprobe ? HOOK_METHOD_MULTI
					    : HOOK_METHOD_KPROBE;
	because(attachment, "%s:%s: this kernel has no kprobes", alternative->place,
		alternative->name);
	return HOOK_METHOD_NONE;
}

void hook_attach_guess(struct hook_attachment *attachment, const struct hook_kernel *kernel) {
	const struct hook *hook = attachment->hook;

	for (size_t i = 0; attachment->method == HOOK_METHOD_NONE && i < hook->n_alternatives;
	     i++) {
		const struct hook_alternative *alternative = &hook->alternatives[i];

		attachment->alternative = alternative;
		if (!fits(attachment, alternative, kernel))
			continue;
		if (alternative->kind == HOOK_FUNCTION)
			attachment->method = guess_function(attachment, alternative, kernel);
		else if (alternative->kind == HOOK_RAW)
			attachment->method = HOOK_METHOD_RAW_TRACEPOINT;
		else if (alternative->kind == HOOK_SYSCALL && kernel->btf && kernel->n_devices)
			attachment->method = HOOK_METHOD_RAW_TRACEPOINT;
		else if (alternative->kind == HOOK_SYSCALL)
			because(attachment, "system calls: %s", no_syscalls(kernel));
		else if (hook_kernel_tracepoint(kernel, alternative->place, alternative->name) >= 0)
			attachment->method = HOOK_METHOD_TRACEPOINT;
		else
			because(attachment, "%s:%s: there is no such tracepoint",
				alternative->place, alternative->name);
	}
	if (attachment->method == HOOK_METHOD_NONE)
		attachment->alternative = NULL;
}
