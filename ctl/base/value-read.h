/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Bytes of maps, read from what people type: the other way of value.h. */

#include <stddef.h>
#include <stdint.h>

#include "value.h"

#define VALUE_ERROR_SIZE 256

/*
 * Reads text as a value of the type into `size` bytes: what value_print() and value_json() make,
 * where members that are not there are zeros; or "hex 01 02 ..." or hex digits for all bytes, which
 * is what a value without a type (0) can be, beside a number of at most 8 bytes. 0, or -EINVAL with
 * one line in error.
 */
int value_read(struct value_types *types, uint32_t type, const char *text, unsigned char *data,
	       size_t size, char error[static VALUE_ERROR_SIZE]);
