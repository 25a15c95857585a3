/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Whether the sections .BTF and .BTF.ext are such that libbpf may follow every reference in them.
 */

#include <stdbool.h>
#include <stddef.h>

#define BTF_CHECK_ERROR_SIZE 128

/* True, or false with the reason in error. data NULL: nothing, which is wrong. */
bool btf_check(const void *data, size_t size, char error[static BTF_CHECK_ERROR_SIZE]);

/* The same. CO-RE relocations are refused. */
bool btf_ext_check(const void *data, size_t size, char error[static BTF_CHECK_ERROR_SIZE]);
