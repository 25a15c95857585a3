/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Decides where a host program is attached (host-target.h). Its section says its kind (uprobe,
 * tracepoint, ...) and, after the first slash, where. libbpf attaches programs that have both. A
 * section without a target is meant for a loader that attaches by hand: here the caller does, with
 * --host-target.
 */

#include "host-target.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
	KIND_UPROBE,
	KIND_USDT,
	KIND_KPROBE,
	KIND_TRACEPOINT,
	KIND_RAW_TRACEPOINT,
	KIND_BTF, /* the target is known to the kernel when it loads the program */
};

struct form {
	const char *section;
	enum kind kind;
	bool returns;
	const char *target; /* what one looks like */
};

static const struct form forms[] = {
	{ "uprobe", KIND_UPROBE, false, "FILE:FUNCTION" },
	{ "uprobe.s", KIND_UPROBE, false, "FILE:FUNCTION" },
	{ "uretprobe", KIND_UPROBE, true, "FILE:FUNCTION" },
	{ "uretprobe.s", KIND_UPROBE, true, "FILE:FUNCTION" },
	{ "usdt", KIND_USDT, false, "FILE:PROVIDER:NAME" },
	{ "kprobe", KIND_KPROBE, false, "FUNCTION" },
	{ "kretprobe", KIND_KPROBE, true, "FUNCTION" },
	{ "tracepoint", KIND_TRACEPOINT, false, "GROUP:NAME" },
	{ "tp", KIND_TRACEPOINT, false, "GROUP:NAME" },
	{ "raw_tracepoint", KIND_RAW_TRACEPOINT, false, "NAME" },
	{ "raw_tp", KIND_RAW_TRACEPOINT, false, "NAME" },
	{ "fentry", KIND_BTF, false, "FUNCTION" },
	{ "fexit", KIND_BTF, false, "FUNCTION" },
	{ "fmod_ret", KIND_BTF, false, "FUNCTION" },
	{ "tp_btf", KIND_BTF, false, "NAME" },
	{ "lsm", KIND_BTF, false, "HOOK" },
};

/* The form of the section's kind; NULL: none of these. */
static const struct form *form_of(const char *section) {
	const size_t n = strcspn(section, "/");

	for (size_t i = 0; i < sizeof(forms) / sizeof(forms[0]); i++)
		if (strlen(forms[i].section) == n && strncmp(forms[i].section, section, n) == 0)
			return &forms[i];
	return NULL;
}

/* Whether a target has as many parts as its form, none of them empty. */
static bool is_whole(const struct form *form, const char *target) {
	const char *wanted = strchr(form->target, ':'), *colon = strchr(target, ':');

	if (!*target || *target == ':' || (wanted != NULL) != (colon != NULL))
		return false;
	if (!wanted)
		return true;
	if (form->kind == KIND_USDT) {
		const char *second = strchr(colon + 1, ':');

		return second && second > colon + 1 && second[1];
	}
	return colon[1];
}

int host_target_resolve(const char *program, const char *section, const char *target,
			const char *folder, char **targetp,
			char error[static HOST_TARGET_ERROR_SIZE]) {
	const struct form *form = form_of(section);
	const char *slash = strchr(section, '/'), *said = target, *in_path;
	bool has_file, relative;

	*targetp = NULL;
	if (!form && target) {
		snprintf(error, HOST_TARGET_ERROR_SIZE,
			 "program %.60s: a section \"%.60s\" takes no target", program, section);
		return 1;
	}
	if (!form)
		return 0;
	if (!said && slash)
		said = slash + 1;
	if (!said || !*said) {
		snprintf(error, HOST_TARGET_ERROR_SIZE,
			 "program %.60s: its section \"%.20s\" lacks /%s: say where with "
			 "--host-target=%.60s=%s",
			 program, section, form->target, program, form->target);
		return 1;
	}
	if (target && !is_whole(form, target)) {
		snprintf(error, HOST_TARGET_ERROR_SIZE,
			 "program %.60s: %.60s: expected %s for a section \"%.20s\"", program,
			 target, form->target, section);
		return 1;
	}
	has_file = form->kind == KIND_UPROBE || form->kind == KIND_USDT;
	in_path = strchr(
		said, '/'); /* without a slash it is a library or program that libbpf looks for */
	relative = has_file && *said != '/' && in_path && in_path < said + strcspn(said, ":");
	if (relative && (!folder || *folder != '/')) {
		snprintf(error, HOST_TARGET_ERROR_SIZE,
			 "program %.60s: %.100s: the path is relative, and the caller did not say "
			 "its folder",
			 program, said);
		return 1;
	}
	if (relative)
		return asprintf(targetp, "%s/%s", folder, said) < 0 ? -ENOMEM : 0;
	if (!target)
		return 0;
	*targetp = strdup(target);
	return *targetp ? 0 : -ENOMEM;
}

int host_target_prepare(struct bpf_program *program, const char *section, const char *target) {
	const struct form *form = form_of(section);

	return form && target && form->kind == KIND_BTF
		       ? bpf_program__set_attach_target(program, 0, target)
		       : 0;
}

/* Cuts *atp behind the next ':' and returns what was before it. */
static char *next_part(char **atp) {
	return strsep(atp, ":");
}

/* FILE:FUNCTION, with +OFFSET perhaps. */
static struct bpf_link *attach_uprobe(struct bpf_program *program, bool returns, char *text) {
	LIBBPF_OPTS(bpf_uprobe_opts, options, .retprobe = returns);
	char *file = next_part(&text), *plus = strchr(text, '+'), *end = NULL;
	unsigned long offset = 0;

	if (plus) {
		errno = 0;
		offset = strtoul(plus + 1, &end, 0);
		if (errno || end == plus + 1 || *end) {
			errno = EINVAL;
			return NULL;
		}
		*plus = '\0';
	}
	options.func_name = text;
	return bpf_program__attach_uprobe_opts(program, -1, file, offset, &options);
}

struct bpf_link *host_target_attach(struct bpf_program *program, const char *section,
				    const char *target) {
	const struct form *form = form_of(section);
	char *text = form ? strdup(target) : NULL, *at = text, *first, *second;
	struct bpf_link *link = NULL;
	int error;

	if (!text) {
		errno = form ? ENOMEM : EINVAL;
		return NULL;
	}
	switch (form->kind) {
	case KIND_UPROBE:
		link = attach_uprobe(program, form->returns, text);
		break;
	case KIND_USDT:
		first = next_part(&at);
		second = next_part(&at);
		link = bpf_program__attach_usdt(program, -1, first, second, at, NULL);
		break;
	case KIND_KPROBE:
		link = bpf_program__attach_kprobe(program, form->returns, text);
		break;
	case KIND_TRACEPOINT:
		first = next_part(&at);
		link = bpf_program__attach_tracepoint(program, first, at);
		break;
	case KIND_RAW_TRACEPOINT:
		link = bpf_program__attach_raw_tracepoint(program, text);
		break;
	case KIND_BTF:
		link = bpf_program__attach(program);
		break;
	}
	error = errno;
	free(text);
	errno = error;
	return link;
}
