/* SPDX-License-Identifier: Apache-2.0 */

/* Few users use a GPU at a time: a list will do. */

#include "account.h"

#include <errno.h>
#include <stdlib.h>

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
	TAILQ_INIT(&account->names);
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
	if (account && !--account->n_refs) {
		struct account **place = &account->table->first;

		while (*place != account)
			place = &(*place)->next;
		*place = account->next;
		free(account);
	}
	return NULL;
}

int account_charge_connection(struct account *account) {
	if (account->connections >= ACCOUNT_CONNECTIONS_MAX) {
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
	if (account->images >= ACCOUNT_IMAGES_MAX ||
	    (account->images &&
	     (account->image_bytes > ACCOUNT_IMAGE_BYTES_MAX || bytes > ACCOUNT_IMAGE_BYTES_MAX - account->image_bytes))) {
		account->table->refused_images++;
		return ACCOUNT_E_QUOTA;
	}
	account->images++;
	account->image_bytes += bytes;
	return 0;
}

void account_discharge_image(struct account *account, uint64_t bytes) {
	account->images--;
	account->image_bytes -= bytes;
}
