/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The PTX of a patch image: the programs, and one function for each class of instructions that an
 * attachment needs.
 */

#include "patch-request.h"

enum patch_compose_error {
	_PATCH_COMPOSE_E_SUCCESS,
	PATCH_COMPOSE_E_UNFIT, /* a program cannot be in a patch: error->message */
};

struct patch_text {
	char *text; /* owned; a NUL follows */
	size_t length;
	uint64_t image_id;
	struct patch_point points[PATCH_CLASSES_MAX];
	uint32_t n_points;
};

/* 0, enum patch_compose_error or -ENOMEM. *text needs patch_text_deinit() in any case. */
int patch_compose(struct patch_text *text, const struct patch_request *request,
		  struct ptx_error *error);
void patch_text_deinit(struct patch_text *text);
