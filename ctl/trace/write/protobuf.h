/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages of protobuf's wire format, built in memory one after another. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct protobuf {
	uint8_t *data;
	size_t n, capacity;
	bool failed; /* out of memory: the message is incomplete and must not be used */
};

void protobuf_deinit(struct protobuf *buffer);
void protobuf_varint(struct protobuf *buffer, unsigned field, uint64_t number);
void protobuf_fixed64(struct protobuf *buffer, unsigned field, uint64_t number);
void protobuf_double(struct protobuf *buffer, unsigned field, double number);
void protobuf_text(struct protobuf *buffer, unsigned field, const char *text, size_t n);
void protobuf_string(struct protobuf *buffer, unsigned field, const char *text);
size_t protobuf_begin(struct protobuf *buffer, unsigned field);
void protobuf_end(struct protobuf *buffer, size_t mark);
void protobuf_message(struct protobuf *buffer, unsigned field, const struct protobuf *message);
