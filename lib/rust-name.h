/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Rust's own mangling, "v0": names that begin with _R, as RFC 2603 describes them. */

#include <stdbool.h>
#include <stddef.h>

enum rust_name_style {
	RUST_NAME_FULL, /* <mykr::Matrix<f32>>::scale::<4> */
	RUST_NAME_PLAIN, /* without generic arguments, and with a type alone in place of <type as
			    trait>: mykr::Matrix::scale */
};

/*
 * Demangles into text, without memory of its own and in bounded time, whatever the name is. False:
 * it is not such a name, has something in it that this does not know, or does not fit.
 */
bool rust_name(const char *mangled, enum rust_name_style style, char *text, size_t size);
