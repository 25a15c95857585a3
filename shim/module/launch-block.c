/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Puts the block of a launch behind the arguments of a twin's kernel (launch-block.h).
 *
 * The driver copies arguments before the call of a launch returns, so they lie on the stack of the
 * thread that launches. Kernels with many parameters get memory for the call.
 *
 * Ids are numbers of 64 bits. A thread begins at a random one and counts up. So threads share
 * nothing, and two launches on the machine have the same id with a probability of about the square
 * of the number of threads, times launches of each, divided by 2^64.
 */

#include "launch-block.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What `extra` is made of (cuda.h). */
#define EXTRA_END NULL
#define EXTRA_BUFFER ((void *)1)
#define EXTRA_SIZE ((void *)2)

static __thread struct {
	uint64_t next; /* id */
	uint32_t tid; /* 0: this thread has launched nothing */
} mine;

/* A number all of whose bits depend on all of those of the argument. */
static uint64_t mix(uint64_t value) {
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* A thread's first id: of the random bytes that the kernel gave the process, the thread, the time.
 */
static void begin_ids(void) {
	const void *random = (const void *)getauxval(AT_RANDOM);
	uint64_t words[2] = {};
	struct timespec now;

	if (random)
		memcpy(words, random, sizeof(words));
	clock_gettime(CLOCK_MONOTONIC, &now);
	mine.tid = (uint32_t)syscall(SYS_gettid);
	words[0] = mix(words[0] ^ mine.tid);
	mine.next = mix(words[0] ^ words[1] ^ (uint64_t)now.tv_sec << 30 ^ (uint64_t)now.tv_nsec);
}

void launch_block_fill(struct launch_block *block, uint64_t stream) {
	if (__builtin_expect(!mine.tid, 0))
		begin_ids();
	*block = (struct launch_block){ .stream = stream, .thread = mine.tid };
	while (!block->id) /* a signal handler may launch, too */
		block->id = __atomic_fetch_add(&mine.next, 1, __ATOMIC_RELAXED);
}

/* Memory for arguments; NULL: there is none. */
static void *get_memory(struct launch_frame *frame, size_t size) {
	if (size <= sizeof(frame->bytes))
		return frame->bytes;
	frame->heap = malloc(size);
	return frame->heap;
}

static bool add_pointer(struct launch_frame *frame, const struct launch_form *form) {
	void **list = get_memory(frame, ((size_t)form->count + 1) * sizeof(*list));

	if (!list || (form->count && !frame->parameters))
		return false;
	if (form->count)
		memcpy(list, frame->parameters, form->count * sizeof(*list));
	list[form->count] = &frame->block;
	*frame->parameters_at = list;
	return true;
}

const void *launch_block_buffer(void **extra, size_t *size) {
	const void *buffer = NULL;

	*size = 0;
	for (; *extra != EXTRA_END; extra += 2) {
		if (*extra == EXTRA_BUFFER)
			buffer = extra[1];
		else if (*extra == EXTRA_SIZE && extra[1])
			*size = *(const size_t *)extra[1];
		else
			return NULL;
	}
	return buffer;
}

static bool add_bytes(struct launch_frame *frame, const struct launch_form *form) {
	size_t theirs;
	const void *buffer = launch_block_buffer(frame->extra, &theirs);
	unsigned char *bytes;

	if (!buffer || theirs < form->size)
		return false;
	frame->size = form->offset + sizeof(frame->block);
	bytes = get_memory(frame, frame->size);
	if (!bytes)
		return false;
	memcpy(bytes, buffer, form->size);
	memset(bytes + form->size, 0, (size_t)form->offset - form->size);
	memcpy(bytes + form->offset, &frame->block, sizeof(frame->block));
	frame->list[0] = EXTRA_BUFFER;
	frame->list[1] = bytes;
	frame->list[2] = EXTRA_SIZE;
	frame->list[3] = &frame->size;
	frame->list[4] = EXTRA_END;
	*frame->extra_at = frame->list;
	return true;
}

bool launch_block_begin(struct launch_frame *frame, const struct launch_form *form, uint64_t stream,
			void ***parameters, void ***extra) {
	const int saved = errno;
	bool added;

	frame->used = true;
	frame->heap = NULL;
	frame->parameters_at = parameters;
	frame->parameters = *parameters;
	frame->extra_at = extra;
	frame->extra = extra ? *extra : NULL;
	launch_block_fill(&frame->block, stream);
	if (!frame->extra)
		added = add_pointer(frame, form);
	else /* with both, the driver says that it is wrong: of the original */
		added = !frame->parameters && add_bytes(frame, form);
	if (!added)
		launch_block_restore(frame);
	errno = saved;
	return added;
}

void launch_block_restore(struct launch_frame *frame) {
	const int saved = errno;

	*frame->parameters_at = frame->parameters;
	if (frame->extra_at)
		*frame->extra_at = frame->extra;
	free(frame->heap);
	frame->used = false;
	errno = saved;
}
