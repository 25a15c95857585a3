/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The link step: an ELF object made by clang -target bpf becomes relocated instructions, maps and
 * BTF. Makes no bpf(2) call and opens no file. Not for two threads at a time: libbpf's handlers and
 * print function are global.
 */

#include <stddef.h>
#include <stdint.h>

#include "lib/bpf/linked.h"

enum link_result {
	_LINK_SUCCESS,
	LINK_E_OBJECT, /* the object cannot be used: failure says why */
};

#define LINK_OBJECT_MAX ((size_t)16 << 20)

struct link_output {
	struct linked linked;
	uint8_t *blob; /* linked.size bytes */
	size_t capacity;
};

struct link_failure {
	char reason[256]; /* one line */
	char *log; /* libbpf's words, many lines, may be empty; NULL: it said nothing */
};

/*
 * Links the programs whose name is `only` or matches that glob (NULL: all). Other programs are not
 * looked at: what is wrong with them does not matter. The output may have no program then.
 * 0 with *outputp (link_output_free()), LINK_E_OBJECT with failure filled in
 * (link_failure_deinit()), or -ENOMEM.
 */
int link_object(const void *elf, size_t size, const char *only, struct link_output **outputp,
		struct link_failure *failure);
struct link_output *link_output_free(struct link_output *output);
void link_failure_deinit(struct link_failure *failure);
