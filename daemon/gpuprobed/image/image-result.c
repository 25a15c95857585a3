/* SPDX-License-Identifier: Apache-2.0 */

/*
 * What a worker made of an image (image-result.h). A result never changes once it is complete.
 * Several owners share it by a reference count.
 */

#include "image-result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/gpuprobed/settings/account.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/registry/outcome.h"
#include "daemon/gpuprobed/registry/registry.h"
#include "lib/base/text.h"

int image_result_new(struct image_result **resultp) {
	struct image_result *result;

	result = calloc(1, sizeof(*result));
	if (!result)
		return -ENOMEM;
	result->n_refs = 1;
	result->fd = -1;
	result->instructions = -1;
	result->names = -1;
	*resultp = result;
	return 0;
}

struct image_result *image_result_ref(struct image_result *result) {
	result->n_refs++;
	return result;
}

/* What is known of its kernels is no longer kept. */
static void image_result_drop(struct image_result *result) {
	if (!result->kept)
		return;
	TAILQ_REMOVE(&result->account->kept, result, kept_link);
	result->account->n_kept--;
	result->account->kept_bytes -= result->kept;
	result->kept = 0;
	result->names = fd_close(result->names);
	result->instructions = fd_close(result->instructions);
	if (!result->cached)
		result->fd = fd_close(result->fd);
}

/* Whether the uid has room for so many bytes more. */
static bool image_result_fits(const struct account *account, uint64_t bytes) {
	return account->n_kept < ACCOUNT_KEPT_MAX &&
	       account->kept_bytes <= ACCOUNT_KEPT_BYTES_MAX - bytes;
}

static void image_result_make_room(struct account *account, uint64_t bytes) {
	struct image_result *other, *next;

	for (other = TAILQ_FIRST(&account->kept); other && !image_result_fits(account, bytes);
	     other = next) {
		next = TAILQ_NEXT(other, kept_link);
		if (other->n_refs == 1) /* the cache's */
			image_result_drop(other);
	}
	while (!image_result_fits(account, bytes))
		image_result_drop(TAILQ_FIRST(&account->kept));
}

static uint64_t image_result_memory(const struct image_result *result) {
	uint64_t n = sizeof(*result) + result->n_kernels * sizeof(result->kernels[0]) +
		     result->n_slots * sizeof(result->slots[0]);

	for (size_t i = 0; i < result->n_kernels; i++) {
		const struct image_kernel *kernel = &result->kernels[i];

		n += strlen(kernel->name) + strlen(kernel->demangled) +
		     (kernel->n_attachments + kernel->n_missing) * sizeof(uint64_t);
	}
	return n;
}

int image_result_charge(struct image_result *result, struct account *account, int names,
			uint64_t names_size) {
	uint64_t bytes = result->instructions >= 0 ? result->n_instructions : 0;
	int copy = -1;

	if (result->account)
		return 0;
	result->memory = image_result_memory(result);
	if (account_charge_result(account, result->memory))
		return ACCOUNT_E_QUOTA;
	result->account = account_ref(account);
	if (names >= 0 && names_size <= ACCOUNT_KEPT_BYTES_MAX - bytes &&
	    result->size <= ACCOUNT_KEPT_BYTES_MAX - bytes - names_size) {
		copy = fcntl(names, F_DUPFD_CLOEXEC, 3);
		if (copy < 0)
			return -errno;
		bytes += result->size + names_size;
	}
	if (!bytes)
		return 0;
	image_result_make_room(account, bytes);
	result->names = copy;
	result->names_size = names_size;
	result->kept = bytes;
	account->n_kept++;
	account->kept_bytes += bytes;
	TAILQ_INSERT_TAIL(&account->kept, result, kept_link);
	return 0;
}

void image_result_uncache(struct image_result *result) {
	result->cached = false;
	if (result->names < 0)
		result->fd = fd_close(result->fd);
}

struct image_result *image_result_unref(struct image_result *result) {
	if (!result || --result->n_refs)
		return NULL;
	for (size_t i = 0; i < result->n_kernels; i++) {
		free(result->kernels[i].name);
		free(result->kernels[i].demangled);
		free(result->kernels[i].attachments);
		free(result->kernels[i].missing);
	}
	free(result->kernels);
	free(result->attachments);
	free(result->slots);
	free(result->asked);
	image_result_drop(result);
	if (result->account)
		account_discharge_result(result->account, result->memory);
	account_unref(result->account);
	fd_close(result->fd);
	fd_close(result->instructions);
	free(result);
	return NULL;
}

int image_result_new_own(struct image_result **resultp, bool failed, const char *format, ...) {
	va_list arguments;
	int r;

	r = image_result_new(resultp);
	if (r < 0)
		return r;
	(*resultp)->failed = failed;
	va_start(arguments, format);
	vsnprintf((*resultp)->reason, sizeof((*resultp)->reason), format, arguments);
	va_end(arguments);
	text_make_printable((*resultp)->reason);
	return 0;
}

bool image_result_applies(const struct image_result *result, uint64_t attachment) {
	for (size_t i = 0; i < result->n_attachments; i++)
		if (result->attachments[i] == attachment)
			return true;
	return false;
}

bool image_result_uses(const struct image_result *result, uint64_t map) {
	for (size_t i = 0; i < result->n_slots; i++)
		if (result->slots[i].map == map)
			return true;
	return false;
}

bool image_result_wanted(const struct registry *registry, const struct image_result *result) {
	for (size_t i = 0; i < result->n_attachments; i++)
		if (registry_attachment(registry, result->attachments[i]))
			return true;
	return false;
}
