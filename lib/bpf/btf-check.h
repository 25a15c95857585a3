/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Checks that libbpf may follow every reference in the sections .BTF and .BTF.ext. */

#include <stdbool.h>
#include <stddef.h>

#define BTF_CHECK_ERROR_SIZE 128

/* True, or false with the reason in error. data NULL: nothing, which is wrong. */
bool btf_check(const void *data, size_t size, char error[static BTF_CHECK_ERROR_SIZE]);

/* The same. btf: what btf_check() has found good. */
bool btf_ext_check(const void *data, size_t size, const void *btf,
		   char error[static BTF_CHECK_ERROR_SIZE]);

/*
 * The name of the next section of code with CO-RE relocations (against types of the running
 * kernel); NULL: there is no more. data has been checked; *at is 0 at first.
 */
const char *btf_ext_core_section(const void *data, const void *btf, size_t *at);
