/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * Objects, with their maps, and the attachments of their programs. Maps and the bytes of an object
 * live as long as it has an attachment.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "daemon/gpuprobed/settings/engine.h"
#include "daemon/gpuprobed/settings/filter.h"
#include "daemon/gpuprobed/verify/host.h"
#include "interest-writer.h"
#include "daemon/gpuprobed/map/map.h"
#include "lib/pass/section.h"

enum {
	_REGISTRY_E_SUCCESS,
	REGISTRY_E_LIMIT,
};

#define REGISTRY_ATTACHMENTS_MAX 1024
#define REGISTRY_KEPT_FOR_FEW                                                                \
	256 /* of these, for users who have up to REGISTRY_FEW, so that some cannot shut all \
	       others out */
#define REGISTRY_KEPT_FOR_ROOT 64 /* ... and for root, and the daemon's user */
#define REGISTRY_FEW 64
#define REGISTRY_OBJECT_MAPS_MAX 64
#define REGISTRY_SYMBOL_SIZE 64
#define REGISTRY_PREFIX_SIZE 56 /* room for _pN and _mN behind it */
#define REGISTRY_PROGRAM_SIZE 128
#define REGISTRY_CONTEXT_MAX 64 /* fields of a context that a program reads */

/* What the symbols of an object begin with. It comes from what the object is, so that the same one
 * has the same machine code again; of those that live at a time no two have the same. */
struct prefix {
	LIST_ENTRY(prefix) link;
	char text[REGISTRY_PREFIX_SIZE];
};

LIST_HEAD(prefix_list, prefix);

struct object {
	TAILQ_ENTRY(object) link;
	uint64_t id;
	struct prefix *prefix; /* of its symbols; owned */
	uid_t owner;
	bool shared; /* maps in host memory are one for all processes of a user */
	void *btf; /* NULL: none */
	size_t n_btf;
	size_t n_maps;
	struct map *maps[REGISTRY_OBJECT_MAPS_MAX]; /* NULL: declared, but used by no attached
						       program */
	char slots[REGISTRY_OBJECT_MAPS_MAX]
		  [REGISTRY_SYMBOL_SIZE]; /* symbol of the pointer to it, or of its data */
	uint64_t resident; /* bit i: modules hold the data of map i themselves */
	bool has_kernel_user; /* maps that host programs share went to processes of kernel_user: */
	uid_t kernel_user; /* ... other users get none of them */
	struct host *host; /* its programs on the host; NULL: none */
	unsigned int n_attachments;
	/* for the next daemon (keep.h): */
	bool kept; /* it goes into the state */
	uint32_t slot; /* in the store, of its bytes; 0: none */
	uint32_t kernel_slots[REGISTRY_OBJECT_MAPS_MAX]; /* of kernels' maps */
};

/* A program on the GPU, as it was compiled and as it is attached. */
struct gpu_program {
	char symbol[REGISTRY_SYMBOL_SIZE]; /* to call */
	int fd; /* sealed PTX of the program; -1: none */
	uint64_t size; /* of that, in bytes */
	unsigned int isa, target;
	bool process; /* the module gets a PROCESS slot (wire.h) */
	uint32_t local_bytes; /* of local memory, a thread */
	uint16_t context[REGISTRY_CONTEXT_MAX]; /* offsets of the fields that it reads: multiples
						   of 8, each once */
	size_t n_context;
	uint64_t maps; /* bit i: uses object->maps[i] */
	enum engine engine; /* as asked for */
	int patch_fd; /* sealed patch form of the program; -1: the sanitizer engine cannot have it
		       */
	char patch_reason[192]; /* why not */
	uint8_t patch_maps[REGISTRY_OBJECT_MAPS_MAX]; /* its slots behind that of the process: maps
							 of the object */
	size_t n_patch_maps;
	uint32_t patch_slot; /* in the store (keep.h), of patch_fd; 0: none */
};

struct host_program {
	size_t index; /* for host_detach() */
};

enum attachment_kind {
	ATTACHMENT_GPU,
	ATTACHMENT_HOST,
};

struct attachment {
	TAILQ_ENTRY(attachment) link;
	uint64_t id;
	struct object *object;
	char program[REGISTRY_PROGRAM_SIZE]; /* the C function */
	struct section section; /* where it stands; section.kernel is never empty */
	char section_text[SECTION_KERNEL_SIZE + 16]; /* in the words of the section or --point */
	uint32_t spaces; /* MEMORY: bits of point_space() */
	struct filter filter;
	unsigned int n_modules, n_processes; /* that have it: process_table_count() */
	unsigned int n_recompiled; /* of the modules: twins from PTX */
	const void *counted; /* the process that was counted last */
	bool leaving; /* it goes out of the state */
	uint32_t slot; /* in the store (keep.h), of the program's fd, or of the link of a program on
			  the host; 0: none */
	enum attachment_kind kind;
	union { /* read these through attachment_gpu() and attachment_host() */
		struct gpu_program gpu;
		struct host_program host;
	} of;
};

TAILQ_HEAD(object_list, object);
TAILQ_HEAD(attachment_list, attachment);

struct registry {
	struct object_list objects;
	struct attachment_list attachments; /* in order of id */
	struct attachment *sorted[REGISTRY_ATTACHMENTS_MAX]; /* the same */
	struct prefix_list prefixes; /* of objects, and of those that are being attached */
	unsigned int n_attachments;
	uint64_t last_object, last_attachment, last_map, last_instance;
	uint64_t ring_written, ring_lost; /* records of rings that are gone */
};

void registry_init(struct registry *registry);
void registry_deinit(struct registry *registry);

/* `text`, or `text` with the first number that makes it unique. 0 or -ENOMEM. */
int registry_prefix_new(struct registry *registry, const char *text, struct prefix **prefixp);
struct prefix *prefix_free(struct prefix *prefix); /* NULL is fine */

/* An object without maps or attachments, not in the registry yet. 0 or -ENOMEM. */
int object_new(struct object **objectp, uint64_t id, uid_t owner);
struct object *object_free(struct object *object);

/* A program without text or patch form. */
void gpu_program_init(struct gpu_program *program);
void gpu_program_deinit(struct gpu_program *program);

/* The words of a thread's variables that it uses: bit i is word i. */
uint32_t gpu_program_words(const struct gpu_program *program);

/* A fresh attachment of the object, not in the registry yet. 0 or -ENOMEM. */
int attachment_new(struct attachment **attachmentp, struct object *object,
		   enum attachment_kind kind);
struct attachment *attachment_free(struct attachment *attachment);

/* Its program on the GPU, or on the host. NULL: it is of the other kind, or there is no attachment.
 */
const struct gpu_program *attachment_gpu(const struct attachment *attachment);
const struct host_program *attachment_host(const struct attachment *attachment);

/* How many attachments a user has. */
size_t registry_owned(const struct registry *registry, uid_t owner);

/* Whether n more of this user would fit. 0 or REGISTRY_E_LIMIT. */
int registry_room(const struct registry *registry, uid_t owner, size_t n);

/* Takes the object and its attachments, which get their ids. */
void registry_link(struct registry *registry, struct object *object,
		   struct attachment *attachments[], size_t n);

/* The same for what an earlier daemon had: with the ids that they have. */
void registry_adopt(struct registry *registry, struct object *object,
		    struct attachment *attachments[], size_t n);

/* Takes it out and frees it, and its object if it was the last. */
void registry_remove(struct registry *registry, struct attachment *attachment);

struct attachment *registry_attachment(const struct registry *registry, uint64_t id);
struct map *registry_map(const struct registry *registry, uint64_t id, struct object **objectp);
struct object *registry_object(const struct registry *registry, uint64_t id);

/* Where registry_next_map() is; begin with {}. */
struct registry_place {
	struct object *object; /* of the map that was returned last */
	size_t next; /* of its maps */
};

/* All maps, one after the other; NULL: that was the last. Objects neither come nor go meanwhile. */
struct map *registry_next_map(const struct registry *registry, struct registry_place *place);

/* Whether an engine may have the attachment at all; a process that it means is another matter. */
bool attachment_on_ptx(const struct attachment *attachment);
bool attachment_on_sass(const struct attachment *attachment);

/* Slots of the patch form of its program on the GPU: of the process, then of its maps. */
size_t attachment_patch_slots(const struct attachment *attachment);

bool attachment_uses(const struct attachment *attachment, const struct map *map);

/* Maps that an attachment uses now. */
bool registry_map_used(const struct registry *registry, const struct map *map);

/* The rules of all attachments, for the page. How many. */
size_t registry_rules(const struct registry *registry,
		      struct interest_rule rules[static REGISTRY_ATTACHMENTS_MAX]);

/* Puts them on the page. */
void registry_announce(const struct registry *registry, struct interest_writer *writer);
