/* SPDX-License-Identifier: Apache-2.0 */

/* Immutable once it is complete, so a reference count is all the ownership there is. */

#include "image-result.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "account.h"
#include "memfd.h"
#include "outcome.h"

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

/* Its kernels lose their names. */
static void image_result_drop_names(struct image_result *result) {
	if (!result->account)
		return;
	TAILQ_REMOVE(&result->account->names, result, names_link);
	result->account->names_bytes -= result->names_size;
	result->account = account_unref(result->account);
	result->names = fd_close(result->names);
}

int image_result_keep_names(struct image_result *result, struct account *account, int fd, uint64_t size) {
	struct image_result *other, *next;
	int copy;

	if (result->account || size > ACCOUNT_NAMES_BYTES_MAX)
		return result->account ? 0 : -EFBIG;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy < 0)
		return -errno;
	for (other = TAILQ_FIRST(&account->names); other; other = next) {
		next = TAILQ_NEXT(other, names_link);
		if (account->names_bytes <= ACCOUNT_NAMES_BYTES_MAX - size)
			break;
		if (other->n_refs == 1) /* the cache's */
			image_result_drop_names(other);
	}
	while (account->names_bytes > ACCOUNT_NAMES_BYTES_MAX - size)
		image_result_drop_names(TAILQ_FIRST(&account->names));
	result->names = copy;
	result->names_size = size;
	result->account = account_ref(account);
	account->names_bytes += size;
	TAILQ_INSERT_TAIL(&account->names, result, names_link);
	return 0;
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
	image_result_drop_names(result);
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
	outcome_clean((*resultp)->reason);
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
