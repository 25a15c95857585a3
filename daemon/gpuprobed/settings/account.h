/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * What each uid uses of the daemon, mostly through the shim socket, and its quotas. A quota that is
 * used up is an ordinary positive result. An account lives as long as references to it exist, and
 * as long as it remembers time of workers.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

enum {
	_ACCOUNT_E_SUCCESS,
	ACCOUNT_E_QUOTA,
};

struct account_limits {
	unsigned int connections;
	unsigned int images; /* in work at a time */
	uint64_t image_bytes; /* of these; one image may be larger if it is alone */
	unsigned int compile_seconds; /* of workers, in a minute; 0: no limit */
};

#define ACCOUNT_LIMITS_DEFAULT    \
	((struct account_limits){ \
		.connections = 256, .images = 32, .image_bytes = UINT64_C(256) << 20 })
/* What results of images keep for people who ask (image-result.c): lists of names and of
 * instructions; results that do so, of two descriptors each. */
#define ACCOUNT_KEPT_BYTES_MAX (UINT64_C(128) << 20)
#define ACCOUNT_KEPT_MAX 1024
/*
 * Modules of a user's processes, and of all processes: several calls walk over all of them in one
 * turn of the loop.
 */
#define ACCOUNT_MODULES_MAX 32768
#define ACCOUNT_MODULES_ALL_MAX 262144
#define ACCOUNT_RESULT_BYTES_MAX \
	(UINT64_C(512) << 20) /* of results themselves: names of kernels, mostly */

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
	uint64_t worked, worked_at; /* microseconds of workers that are not forgiven yet, and when
				       (ms) that was said */
	struct image_result_list kept; /* results that keep something, in the order in which they
					  came (image-result.c) */
	unsigned int n_kept;
	uint64_t kept_bytes;
	uint64_t turn, turn_ns; /* how long the user's messages were worked on in the turn of the
				   loop that began at this uv_now() */
	uint64_t result_bytes;
	unsigned int attaches; /* in work */
	bool verifies; /* one of these has a thread of the verifier's */
	uint64_t verify_turn; /* when the user last had one, or began to wait (attach-verify.c) */
	unsigned int modules;
};

struct account_table {
	struct account *first;
	uint64_t refused_connections, refused_images; /* by a quota, so far */
	unsigned int modules; /* of all accounts */
	const struct account_limits *limits; /* NULL: the default; borrowed, may change */
};

/* After all references are gone. */
void account_table_deinit(struct account_table *table);
struct account_limits account_table_limits(const struct account_table *table);

/* The account of uid, with a reference. 0 or -ENOMEM. */
int account_get(struct account_table *table, uid_t uid, struct account **accountp);
struct account *account_ref(struct account *account);
struct account *account_unref(struct account *account); /* NULL is fine */

/* 0 or ACCOUNT_E_QUOTA with nothing charged. */
int account_charge_connection(struct account *account);
void account_discharge_connection(struct account *account);
int account_charge_image(struct account *account,
			 uint64_t bytes); /* a caller that finds no room may wait for it, so it
					     counts as no refusal */
void account_discharge_image(struct account *account, uint64_t bytes);
int account_charge_result(struct account *account, uint64_t bytes);
void account_discharge_result(struct account *account, uint64_t bytes);
int account_charge_attach(struct account *account, unsigned int max);
void account_discharge_attach(struct account *account);
int account_charge_module(struct account *account);
void account_discharge_module(struct account *account);

/*
 * Charges `ms` milliseconds of workers' time to the user; now is a clock in milliseconds. Each
 * minute forgives as much as a user may use in one. So a user who has used it up has the share
 * again after a while.
 */
void account_charge_time(struct account *account, uint64_t ms, uint64_t now);
/* Whether workers may work for the user now. 0 or ACCOUNT_E_QUOTA. */
int account_check_time(struct account *account, uint64_t now);
