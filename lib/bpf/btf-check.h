/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads BTF that may be anything: libbpf alone trusts too much of it. */

#include <stdbool.h>
#include <stddef.h>

#define BTF_CHECK_ERROR_SIZE 128

struct btf;

/*
 * Opens foreign BTF with libbpf, which may then follow every reference in it. data NULL: nothing,
 * which is wrong. 0, or -EINVAL or -ENOMEM with the reason in error. Free *btfp by btf__free().
 */
int btf_open(struct btf **btfp, const void *data, size_t size,
	     char error[static BTF_CHECK_ERROR_SIZE]);

/* Whether .BTF.ext is good; if not, the reason is in error. btf: what btf_open() has found good. */
bool btf_ext_check(const void *data, size_t size, const void *btf,
		   char error[static BTF_CHECK_ERROR_SIZE]);

/*
 * The name of the next section of code with CO-RE relocations (against types of the running
 * kernel); NULL: there is no more. data has been checked; *at is 0 at first.
 */
const char *btf_ext_core_section(const void *data, const void *btf, size_t *at);
