/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Computes the keys of the cache by libgcrypt (key.h). libsystemd needs libgcrypt, so it is loaded
 * already, and it uses the processor's SHA instructions (2 GB/s). OpenSSL's libcrypto would take 5
 * MB more. The kernel's AF_ALG sockets are not AF_UNIX, and the unit allows only these.
 */

#include "key.h"

#include <errno.h>
#include <gcrypt.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define HASH_PART ((size_t)64 * 1024)

struct cache_hash {
	gcry_md_hd_t md;
};

int cache_hash_setup(void) {
	if (gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P))
		return 0;
	if (!gcry_check_version("1.8.0"))
		return -ENOSYS;
	gcry_control(GCRYCTL_DISABLE_SECMEM,
		     0); /* nothing here is secret, and locked memory is limited */
	gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
	return 0;
}

int cache_hash_new(struct cache_hash **hashp) {
	struct cache_hash *hash = calloc(1, sizeof(*hash));

	if (!hash || gcry_md_open(&hash->md, GCRY_MD_SHA256, 0)) {
		free(hash);
		return -ENOMEM;
	}
	*hashp = hash;
	return 0;
}

struct cache_hash *cache_hash_free(struct cache_hash *hash) {
	if (hash)
		gcry_md_close(hash->md);
	free(hash);
	return NULL;
}

void cache_hash_add(struct cache_hash *hash, const void *data, size_t size) {
	const uint64_t length = size;

	gcry_md_write(hash->md, &length, sizeof(length));
	if (size)
		gcry_md_write(hash->md, data, size);
}

int cache_hash_add_memfd(struct cache_hash *hash, int fd, uint64_t size) {
	void *part = malloc(HASH_PART);
	uint64_t at = 0;
	int r = part ? 0 : -ENOMEM;

	gcry_md_write(hash->md, &size, sizeof(size));
	while (r == 0 && at < size) {
		ssize_t n =
			pread(fd, part, size - at < HASH_PART ? size - at : HASH_PART, (off_t)at);

		if (n > 0) {
			gcry_md_write(hash->md, part, (size_t)n);
			at += (uint64_t)n;
		} else if (n == 0 || errno != EINTR) {
			r = n == 0 ? -ENODATA : -errno;
		}
	}
	free(part);
	return r;
}

void cache_hash_add_text(struct cache_hash *hash, const char *text) {
	cache_hash_add(hash, text, strlen(text));
}

void cache_hash_add_int(struct cache_hash *hash, uint64_t number) {
	cache_hash_add(hash, &number, sizeof(number));
}

void cache_hash_finish(struct cache_hash *hash, struct cache_key *key) {
	memcpy(key->bytes, gcry_md_read(hash->md, GCRY_MD_SHA256), sizeof(key->bytes));
}

void cache_key_text(const struct cache_key *key, char text[static CACHE_KEY_TEXT_SIZE]) {
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < CACHE_KEY_SIZE; i++) {
		text[2 * i] = digits[key->bytes[i] >> 4];
		text[2 * i + 1] = digits[key->bytes[i] & 15];
	}
	text[2 * CACHE_KEY_SIZE] = '\0';
}
