/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Counts what each user uses of the daemon, against the quotas (account.h). Few users use a GPU at
 * a time, so a list is enough.
 */

#include "account.h"

#include <errno.h>
#include <stdlib.h>

struct account_limits account_table_limits(const struct account_table *table) {
	return table->limits ? *table->limits : ACCOUNT_LIMITS_DEFAULT;
}

static void account_free(struct account *account) {
	struct account **place = &account->table->first;

	while (*place != account)
		place = &(*place)->next;
	*place = account->next;
	free(account);
}

void account_table_deinit(struct account_table *table) {
	while (table->first)
		account_free(table->first);
}

int account_get(struct account_table *table, uid_t uid, struct account **accountp) {
	struct account *account;

	for (account = table->first; account; account = account->next)
		if (account->uid == uid) {
			*accountp = account_ref(account);
			return 0;
		}
	account = calloc(1, sizeof(*account));
	if (!account)
		return -ENOMEM;
	account->table = table;
	account->n_refs = 1;
	account->uid = uid;
	TAILQ_INIT(&account->kept);
	account->next = table->first;
	table->first = account;
	*accountp = account;
	return 0;
}

struct account *account_ref(struct account *account) {
	account->n_refs++;
	return account;
}

struct account *account_unref(struct account *account) {
	if (account && !--account->n_refs && !account->worked)
		account_free(account);
	return NULL;
}

int account_charge_connection(struct account *account) {
	if (account->connections >= account_table_limits(account->table).connections) {
		account->table->refused_connections++;
		return ACCOUNT_E_QUOTA;
	}
	account->connections++;
	return 0;
}

void account_discharge_connection(struct account *account) {
	account->connections--;
}

int account_charge_image(struct account *account, uint64_t bytes) {
	const struct account_limits limits = account_table_limits(account->table);

	if (account->images >= limits.images ||
	    (account->images && (account->image_bytes > limits.image_bytes ||
				 bytes > limits.image_bytes - account->image_bytes)))
		return ACCOUNT_E_QUOTA;
	account->images++;
	account->image_bytes += bytes;
	return 0;
}

void account_discharge_image(struct account *account, uint64_t bytes) {
	account->images--;
	account->image_bytes -= bytes;
}

int account_charge_result(struct account *account, uint64_t bytes) {
	if (bytes > ACCOUNT_RESULT_BYTES_MAX - account->result_bytes) {
		account->table->refused_images++;
		return ACCOUNT_E_QUOTA;
	}
	account->result_bytes += bytes;
	return 0;
}

void account_discharge_result(struct account *account, uint64_t bytes) {
	account->result_bytes -= bytes;
}

int account_charge_attach(struct account *account, unsigned int max) {
	if (account->attaches >= max)
		return ACCOUNT_E_QUOTA;
	account->attaches++;
	return 0;
}

void account_discharge_attach(struct account *account) {
	account->attaches--;
}

int account_charge_module(struct account *account) {
	if (account->modules >= ACCOUNT_MODULES_MAX ||
	    account->table->modules >= ACCOUNT_MODULES_ALL_MAX) {
		account->table->refused_images++;
		return ACCOUNT_E_QUOTA;
	}
	account->modules++;
	account->table->modules++;
	return 0;
}

void account_discharge_module(struct account *account) {
	account->modules--;
	account->table->modules--;
}

/* A minute forgives compile_seconds. */
static void account_forgive(struct account *account, uint64_t now) {
	const uint64_t limit = account_table_limits(account->table).compile_seconds;
	const uint64_t passed = now > account->worked_at ? now - account->worked_at : 0;
	const uint64_t forgiven =
		passed > UINT32_MAX ? UINT64_MAX : passed * limit * 1000 / 60; /* microseconds */

	account->worked = limit && account->worked > forgiven ? account->worked - forgiven : 0;
	account->worked_at = now;
}

/* Those that are kept for nothing but what they have worked. */
static void account_table_prune(struct account_table *table, uint64_t now) {
	struct account *account, *next;

	for (account = table->first; account; account = next) {
		next = account->next;
		if (account->n_refs)
			continue;
		account_forgive(account, now);
		if (!account->worked)
			account_free(account);
	}
}

void account_charge_time(struct account *account, uint64_t ms, uint64_t now) {
	account_table_prune(account->table, now);
	account_forgive(account, now);
	if (account_table_limits(account->table).compile_seconds)
		account->worked += ms * 1000;
}

int account_check_time(struct account *account, uint64_t now) {
	const uint64_t limit = account_table_limits(account->table).compile_seconds;

	account_forgive(account, now);
	return limit && account->worked >= limit * 1000000 ? ACCOUNT_E_QUOTA : 0;
}
