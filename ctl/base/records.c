/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Takes records out of the memory that the daemon shares, or decodes them (records.h). The data is
 * mapped twice, one behind the other, so that what goes around its end lies in one piece.
 */

#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base64.h"
#include "lib/json.h"
#include "proto/client-ring.h"
#include "records.h"

#define SIZE_MAX_TAKEN ((int64_t)1 << 30) /* of data */

static void unmap(struct records *records) {
	if (records->ring)
		munmap(records->ring, sizeof(struct client_ring) + 2 * records->size);
	records->ring = NULL;
}

/* Maps the header and the data, and the data again. */
static bool map(struct records *records, int fd, size_t size) {
	const size_t header = sizeof(struct client_ring);
	unsigned char *memory = mmap(NULL, header + 2 * size, PROT_NONE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (memory == MAP_FAILED)
		return false;
	if (mmap(memory, header + size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
		    MAP_FAILED ||
	    mmap(memory + header + size, size, PROT_READ, MAP_SHARED | MAP_FIXED, fd,
		 (off_t)header) == MAP_FAILED) {
		munmap(memory, header + 2 * size);
		return false;
	}
	records->ring = (struct client_ring *)memory;
	records->data = records->ring->data;
	records->size = size;
	records->taken = 0;
	return true;
}

/* A reply with a descriptor: that of a new daemon takes the place of the one before. */
static int take_memory(struct records *records, struct ctl *ctl, int64_t size) {
	const int fd = varlink_client_take_descriptor(ctl->client);
	struct stat st;
	bool fine;

	unmap(records);
	fine = fd >= 0 && size >= 4096 && size <= SIZE_MAX_TAKEN && !(size & (size - 1)) &&
	       !fstat(fd, &st) && st.st_size == (off_t)sizeof(struct client_ring) + size &&
	       map(records, fd, (size_t)size);
	if (fd >= 0)
		close(fd);
	return fine ? CTL_OK
		    : ctl_fail(CTL_ERROR, "the daemon sent no memory for records that can be used");
}

static int take_from_memory(struct records *records, uint64_t end, const unsigned char **bytesp,
			    size_t *np) {
	if (!records->ring || end < records->taken || end - records->taken > records->size)
		return ctl_fail(CTL_ERROR, "the daemon sent records that make no sense");
	*bytesp = records->data + (records->taken & (records->size - 1));
	*np = (size_t)(end - records->taken);
	records->taken = end;
	return CTL_OK;
}

int records_take(struct records *records, struct ctl *ctl, json_object *reply, const char *member,
		 const unsigned char **bytesp, size_t *np) {
	json_object *text = json_member(reply, member), *end = json_member(reply, "end");
	int r = CTL_OK;

	records_done(records);
	*bytesp = NULL;
	*np = 0;
	if (json_member(reply, "descriptor"))
		r = take_memory(records, ctl, json_int_of(reply, "descriptor"));
	if (!r && end)
		r = take_from_memory(records, (uint64_t)json_object_get_int64(end), bytesp, np);
	if (r || !text || *np || !json_object_get_string_len(text))
		return r; /* the daemon writes a reply's records to one place */
	records->bytes = ctl_decode(text, np);
	*bytesp = records->bytes;
	return records->bytes ? CTL_OK
			      : ctl_fail(CTL_ERROR, "the daemon sent records that are not base64");
}

void records_done(struct records *records) {
	free(records->bytes);
	records->bytes = NULL;
	if (records->ring)
		__atomic_store_n(&records->ring->consumed, records->taken, __ATOMIC_RELEASE);
}

void records_deinit(struct records *records) {
	free(records->bytes);
	records->bytes = NULL;
	unmap(records);
}
