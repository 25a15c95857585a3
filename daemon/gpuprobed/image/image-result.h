/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a worker made of an image: shared by the cache, the modules that carry it, and the outcomes.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct account;
struct registry;

struct image_kernel {
	char *name; /* mangled */
	char *demangled;
	bool device_function;
	uint64_t *attachments;
	size_t n_attachments;
	uint64_t *missing; /* attachments that name it and found no such point, or were left out */
	size_t n_missing;
	bool left_out;
	char missing_text[192]; /* the point of the first of them; or why they were left out */
};

struct image_slot {
	uint64_t map; /* 0: of the process */
	uint32_t kind; /* enum wire_slot_kind */
	uint32_t offset; /* of a plan: in struct patch_data */
	char symbol[64];
};

struct image_result {
	unsigned int n_refs;
	bool made; /* there is a twin (proto/twin.h) or a plan; else a reason why not: */
	bool failed; /* something went wrong */
	bool later; /* it may pass */
	bool machine_code; /* the twin was made from machine code */
	bool no_ptx; /* the image has no PTX that could be edited */
	bool plan; /* of the sanitizer engine: it patches what is loaded (proto/patch.h) */
	int fd; /* the twin's image or the plan, sealed; -1 unless made, or if it cannot be asked
		   for any more */
	bool cached; /* somebody can */
	uint64_t size;
	char reason[192]; /* why there is none */
	uint32_t image; /* upper half of the ids of its instructions */
	int instructions; /* JSON of a worker (job.md), sealed; -1: none */
	uint64_t n_instructions; /* bytes */
	struct image_kernel *kernels;
	size_t n_kernels;
	uint64_t *attachments; /* applied */
	size_t n_attachments;
	struct image_slot *slots;
	size_t n_slots;
	const void
		*listed; /* of kernels-list.c: the process among whose modules it was seen last */
	/* Of a plan: what the numbers in it stand for (plan-names.h). */
	uint64_t *asked; /* the attachments that its bits stand for */
	size_t n_asked;
	int names; /* the list of names that it was made for, sealed; -1: not kept */
	uint64_t names_size;
	struct account *account; /* that memory is charged to; NULL: not yet */
	uint64_t memory;
	uint64_t kept; /* bytes of names, instructions and the plan, which are charged to it; 0:
			  nothing is kept any more */
	TAILQ_ENTRY(image_result) kept_link; /* of account->kept */
};

/* One reference, everything empty. 0 or -ENOMEM. */
int image_result_new(struct image_result **resultp);
struct image_result *image_result_ref(struct image_result *result);
struct image_result *image_result_unref(struct image_result *result); /* NULL is fine */

/*
 * Charges a result that is complete to a uid, for as long as it lives, with what it keeps for
 * people who ask: its instructions; of a plan it and the list of names that it was made for, of
 * which it takes a copy of the descriptor (-1: none). When the uid has too many, those go first
 * whose module no process has any more, then the oldest; without them the result is as good, but
 * less is known of its kernels. 0, ACCOUNT_E_QUOTA, or -errno.
 */
int image_result_charge(struct image_result *result, struct account *account, int names,
			uint64_t names_size);

/*
 * The image cannot be asked for any more: closes it, unless it is a plan that names are kept for.
 */
void image_result_uncache(struct image_result *result);

/* The reason why not. printf-like; made printable. */
int image_result_new_own(struct image_result **resultp, bool failed, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

bool image_result_applies(const struct image_result *result, uint64_t attachment);
bool image_result_uses(const struct image_result *result, uint64_t map);

/* Whether an attachment that stands in it is left. */
bool image_result_wanted(const struct registry *registry, const struct image_result *result);
