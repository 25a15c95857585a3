/* SPDX-License-Identifier: Apache-2.0 */

/* Builds messages in protobuf's wire format in memory (protobuf.h), for the format perfetto. */

#include <stdlib.h>
#include <string.h>

#include "protobuf.h"
#include "lib/base/utf8.h"

/* Wire types. */
enum {
	VARINT = 0,
	FIXED64 = 1,
	LENGTH = 2,
};

/* Bytes of a length that is written before it is known; such a varint is longer than it need be,
 * which is allowed. */
#define LENGTH_SIZE 4
#define LENGTH_MAX ((1u << 7 * LENGTH_SIZE) - 1)

void protobuf_deinit(struct protobuf *buffer) {
	free(buffer->data);
	*buffer = (struct protobuf){ 0 };
}

/* Room for n bytes at the end, or NULL. */
static uint8_t *make_room(struct protobuf *buffer, size_t n) {
	if (buffer->failed || n > LENGTH_MAX || buffer->n > LENGTH_MAX - n) {
		buffer->failed = true;
		return NULL;
	}
	if (n > buffer->capacity - buffer->n) {
		size_t capacity = 2 * (buffer->n + n) + 256;
		uint8_t *data = realloc(buffer->data, capacity);

		if (!data) {
			buffer->failed = true;
			return NULL;
		}
		buffer->data = data;
		buffer->capacity = capacity;
	}
	return buffer->data + buffer->n;
}

#define VARINT_MAX 10 /* bytes */

static inline uint8_t *write_varint(uint8_t *to, uint64_t number) {
	for (; number >= 0x80; number >>= 7)
		*to++ = (uint8_t)(number | 0x80);
	*to++ = (uint8_t)number;
	return to;
}

static void put_bytes(struct protobuf *buffer, const void *data, size_t n) {
	uint8_t *to = make_room(buffer, n);

	if (!to || !n)
		return;
	memcpy(to, data, n);
	buffer->n += n;
}

/* int64, uint64, bool, enums: negative numbers as two's complement of 64 bits. */
void protobuf_varint(struct protobuf *buffer, unsigned field, uint64_t number) {
	uint8_t *to = make_room(buffer, 2 * VARINT_MAX);

	if (to)
		buffer->n = (size_t)(write_varint(write_varint(to, field << 3 | VARINT), number) -
				     buffer->data);
}

void protobuf_fixed64(struct protobuf *buffer, unsigned field, uint64_t number) {
	uint8_t *to = make_room(buffer, VARINT_MAX + 8);

	if (!to)
		return;
	to = write_varint(to, field << 3 | FIXED64);
	for (size_t i = 0; i < 8; i++)
		*to++ = (uint8_t)(number >> 8 * i);
	buffer->n = (size_t)(to - buffer->data);
}

void protobuf_double(struct protobuf *buffer, unsigned field, double number) {
	uint64_t bits;

	memcpy(&bits, &number, sizeof(bits));
	protobuf_fixed64(buffer, field, bits);
}

/* A string of n bytes; what is no UTF-8 is replaced. */
void protobuf_text(struct protobuf *buffer, unsigned field, const char *text, size_t n) {
	size_t mark = protobuf_begin(buffer, field);

	while (n) {
		size_t run = 0, length = 0;

		while (run < n && (length = utf8_length(text + run, n - run)))
			run += length;
		put_bytes(buffer, text, run);
		if (run < n)
			put_bytes(buffer, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
		run += run < n;
		text += run;
		n -= run;
	}
	protobuf_end(buffer, mark);
}

void protobuf_string(struct protobuf *buffer, unsigned field, const char *text) {
	protobuf_text(buffer, field, text ? text : "", text ? strlen(text) : 0);
}

/* Begins a message within the message; what is returned is for protobuf_end(). */
size_t protobuf_begin(struct protobuf *buffer, unsigned field) {
	uint8_t *to = make_room(buffer, VARINT_MAX + LENGTH_SIZE);

	if (to)
		buffer->n = (size_t)(write_varint(to, field << 3 | LENGTH) - buffer->data) +
			    LENGTH_SIZE;
	return buffer->n;
}

void protobuf_end(struct protobuf *buffer, size_t mark) {
	size_t n = buffer->n - mark;

	if (buffer->failed)
		return;
	for (size_t i = 0; i < LENGTH_SIZE; i++, n >>= 7)
		buffer->data[mark - LENGTH_SIZE + i] =
			(uint8_t)((n & 0x7f) | (i + 1 < LENGTH_SIZE ? 0x80 : 0));
}

/* A message that was built elsewhere. */
void protobuf_message(struct protobuf *buffer, unsigned field, const struct protobuf *message) {
	uint8_t *to = make_room(buffer, 2 * VARINT_MAX);

	if (to)
		buffer->n =
			(size_t)(write_varint(write_varint(to, field << 3 | LENGTH), message->n) -
				 buffer->data);
	put_bytes(buffer, message->data, message->n);
	buffer->failed |= message->failed;
}
