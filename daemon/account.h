/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What each uid uses of the daemon through the shim socket. A quota is an ordinary positive result.
 * An account lives as long as somebody holds a reference.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

enum {
	_ACCOUNT_E_SUCCESS,
	ACCOUNT_E_QUOTA,
};

#define ACCOUNT_CONNECTIONS_MAX 256
#define ACCOUNT_IMAGES_MAX 32			      /* in work at a time */
#define ACCOUNT_IMAGE_BYTES_MAX (UINT64_C(256) << 20) /* one image may be larger if it is alone */
#define ACCOUNT_NAMES_BYTES_MAX (UINT64_C(128) << 20) /* of lists of names that are kept with plans */

struct account_table;
struct image_result;

TAILQ_HEAD(image_result_list, image_result);

struct account {
	struct account *next;
	struct account_table *table;
	unsigned int n_refs;
	uid_t uid;
	unsigned int connections;
	unsigned int images;
	uint64_t image_bytes;
	struct image_result_list names; /* whose lists of names are kept, in the order in which they came (image-result.c) */
	uint64_t names_bytes;
};

struct account_table {
	struct account *first;
	uint64_t refused_connections, refused_images; /* by a quota, so far */
};

/* The account of uid, with a reference. 0 or -ENOMEM. */
int account_get(struct account_table *table, uid_t uid, struct account **accountp);
struct account *account_ref(struct account *account);
struct account *account_unref(struct account *account); /* NULL is fine */

/* 0 or ACCOUNT_E_QUOTA with nothing charged. */
int account_charge_connection(struct account *account);
void account_discharge_connection(struct account *account);
int account_charge_image(struct account *account, uint64_t bytes);
void account_discharge_image(struct account *account, uint64_t bytes);
