/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The shim wire protocol: what libgpuprobe-shim.so and gpuprobed tell each other.
 *
 * Transport: AF_UNIX, SOCK_SEQPACKET, at <runtime dir>/shim.sock (paths.h). One datagram is one
 * message. Each message type has one fixed size; little-endian, no pointers, no unnamed padding. A
 * message carries at most one descriptor (SCM_RIGHTS), and only where its struct says so. Every
 * descriptor is a memfd (but for MAP_PLACE_KERNEL). The sender of an image seals it
 * (SHRINK|GROW|WRITE|SEAL); the daemon seals map instances against SHRINK|GROW|SEAL. A receiver
 * checks seals and size before mapping.
 *
 * A process opens up to three connections, told apart by wire_hello.role:
 *   LOADER   strictly request and reply, driven by a thread that launches a kernel:
 *              HELLO -> WELCOME,
 *              IMAGE -> IMAGE_REPLY [+ slot_count x SLOT + IDS],
 *              INSTANCE -> INSTANCE_REPLY,
 *              RESUME [+ IDS] -> RESUMED,
 *              KEEP -> KEPT,
 *              and ARMED, UNLOAD, REPORT, which have no reply.
 *   TRACE    opened by a process that may be traced (interest.h):
 *              HELLO -> WELCOME,
 *              TRACE -> TRACE_REPLY,
 *              then nothing, until one side closes it: the daemon when the trace is over, the
 *              process when it ends. Calls go through shared memory (trace-ring.h).
 *   MIRROR   opened only while there are instances, twins or patches. The daemon speaks first:
 *              HELLO -> WELCOME, then at any time
 *              SYNC -> SYNCED,
 *              DISARM -> SYNCED,
 *              and another WELCOME (it sets a new mirror_period_ms), which has no reply.
 * The daemon identifies the process by SO_PEERCRED only; it trusts no message on that. When the
 * last connection of a process closes, the daemon takes the process as gone and folds its map
 * instances into the maps' totals.
 *
 * A daemon may end, and another one may continue with its state: WELCOME then has the same
 * `session` and another `start`. The process then tells the new daemon what it has: RESUME for each
 * module (with its attachments and maps, IDS), then KEEP for each instance. It forgets what the
 * daemon does not know any more. If the session differs, it forgets all. Until then, memory is
 * shared with the daemon as before.
 *
 * A process keeps its shim when the daemon is upgraded. The header and HELLO are the same in all
 * versions, so a daemon can recognize and report shims that it does not understand; it closes the
 * connection then. Such a process goes on counting in the memory that it has, as without a daemon.
 *
 * On an unknown type, wrong version, wrong size, or a missing or surplus descriptor the receiver
 * closes the connection. The shim then launches the application's own kernels.
 */

#include <stddef.h>
#include <stdint.h>

#define WIRE_MAGIC UINT32_C(0x57525047) /* "GPRW" */
#ifndef WIRE_VERSION /* tests build programs of other versions */
#define WIRE_VERSION UINT16_C(7)
#endif

#define WIRE_REASON_MAX 192 /* one line of text, NUL-terminated and NUL-padded */
#define WIRE_SYMBOL_MAX 64 /* a PTX symbol, NUL-terminated and NUL-padded */
#define WIRE_SLOTS_MAX 256 /* slots of one image */
#define WIRE_IDS_MAX 24 /* ids in one IDS message */
#define WIRE_ATTACHMENTS_MAX 64 /* attachments of one image */
#define WIRE_IMAGE_SIZE_MAX (UINT64_C(1) << 30)

enum wire_type {
	/* shim to daemon */
	WIRE_HELLO = 1,
	WIRE_IMAGE = 2,
	WIRE_INSTANCE = 3,
	WIRE_ARMED = 4,
	WIRE_UNLOAD = 5,
	WIRE_REPORT = 6,
	WIRE_SYNCED = 7,
	WIRE_TRACE = 8,
	WIRE_RESUME = 9,
	WIRE_KEEP = 10,
	/* daemon to shim */
	WIRE_WELCOME = 64,
	WIRE_IMAGE_REPLY = 65,
	WIRE_SLOT = 66,
	WIRE_INSTANCE_REPLY = 67,
	WIRE_SYNC = 68,
	WIRE_DISARM = 69,
	WIRE_TRACE_REPLY = 70,
	WIRE_RESUMED = 71,
	WIRE_KEPT = 72,
	/* either way */
	WIRE_IDS = 128,
};

struct wire_header {
	uint32_t magic; /* WIRE_MAGIC */
	uint16_t version; /* WIRE_VERSION */
	uint16_t type; /* enum wire_type */
	uint32_t size; /* bytes of the whole message, with this header */
	uint32_t sequence; /* a reply has the number of its request; else the sender chooses it */
};

enum wire_role {
	WIRE_ROLE_LOADER = 1,
	WIRE_ROLE_MIRROR = 2,
	WIRE_ROLE_TRACE = 3,
};

struct wire_hello {
	struct wire_header header;
	uint32_t role; /* enum wire_role */
	uint32_t driver_version; /* cuDriverGetVersion: 1000 * major + 10 * minor; 0 unknown */
	char shim_version[32];
};

struct wire_welcome {
	struct wire_header header;
	uint32_t deadline_ms; /* how long the shim waits for any one reply */
	uint32_t mirror_period_ms; /* how often device-resident maps are copied out; 0: only when
				      asked */
	uint32_t pid; /* the process's id as the daemon sees it */
	uint32_t start; /* counts the daemons of the session */
	char comm[16]; /* as in /proc/PID/comm, NUL-padded */
	uint64_t session; /* the same if a daemon continues with an earlier one's state; 0: none
			     ever will */
};

enum wire_image_kind {
	WIRE_IMAGE_FATBIN = 1, /* one fatbin container (magic 0xBA55ED50), without its wrapper */
	WIRE_IMAGE_PTX = 2, /* PTX text; a terminating NUL is not sent */
	WIRE_IMAGE_CUBIN = 3, /* an ELF image */
	WIRE_IMAGE_NAMES =
		4, /* no image, but names of loaded kernels, for the sanitizer engine (patch.h) */
};

enum wire_image_flags {
	WIRE_IMAGE_FLAG_AWAITED =
		1 << 0, /* the module was loaded under an attachment, and its first launch waits:
			   the answer may take as long as the process's budget. Else it comes at
			   once, and is WIRE_LATER_KEEP while there is no twin yet */
};

/*
 * Descriptor: the sealed image. Every byte of it must have been written (no holes), else the answer
 * is WIRE_VERDICT_OWN.
 */
struct wire_image {
	struct wire_header header;
	uint64_t image_size; /* bytes; equals the memfd's size */
	uint32_t kind; /* enum wire_image_kind */
	uint32_t flags; /* enum wire_image_flags */
	uint32_t capability_major; /* of the device, e.g. 9 */
	uint32_t capability_minor; /* e.g. 0 */
	uint32_t device; /* driver ordinal */
	uint32_t reserved; /* 0 */
};

enum wire_verdict {
	WIRE_VERDICT_OWN = 0, /* the application's own kernels are launched; no descriptor */
	WIRE_VERDICT_MADE = 1, /* descriptor: the sealed image of a twin (twin.h), or a plan
				  (patch.h) */
};

/*
 * In an answer without a plan or a twin: whether the shim asks again later, and what becomes of the
 * patches, or of the twin, that are in place.
 */
enum wire_later {
	WIRE_LATER_NOT = 0, /* there is nothing to patch, and no twin */
	WIRE_LATER_KEEP = 1, /* what is in place stays */
	WIRE_LATER_REMOVE = 2, /* what is in place is removed, because some attachments are gone */
};

/*
 * Descriptor: the twin or plan, if made. slot_count SLOT messages follow on the same connection,
 * then as many IDS messages as attachment_count ids of attachments need.
 */
struct wire_image_reply {
	struct wire_header header;
	uint64_t module_id; /* identifies the twin or plan in ARMED, UNLOAD, REPORT; never 0 */
	uint64_t image_size; /* bytes, 0 if not made; the image starts at offset 0 of the memfd */
	uint32_t verdict; /* enum wire_verdict */
	uint32_t slot_count; /* <= WIRE_SLOTS_MAX, 0 if not made */
	uint32_t attachment_count; /* <= WIRE_ATTACHMENTS_MAX, 0 if not made */
	uint32_t later; /* enum wire_later; 0 if made */
	char reason[WIRE_REASON_MAX]; /* why the application's own kernels are launched; empty if
					 made */
};

enum wire_slot_kind {
	/*
	 * 8 bytes: a pointer that the shim sets to the device address of the data of map `map_id`,
	 * in this process's instance for that context. While it is 0 the probe does nothing. So a
	 * module works before it is armed and when arming fails. May lie in constant memory.
	 */
	WIRE_SLOT_POINTER = 1,
	/*
	 * data_size bytes that *are* data of the instance. The map merges by sums or keeps the
	 * latest (map-layout.h). The mirror holds the merged data of all modules that the process
	 * has or had in that context.
	 */
	WIRE_SLOT_DATA = 2,
	/*
	 * A struct gpuprobe_process, which the shim fills in (in a plan: the address of one).
	 * map_id is 0. May lie in constant memory.
	 */
	WIRE_SLOT_PROCESS = 3,
	/*
	 * In a plan only: a pointer to data_size bytes of device memory. The shim allocates it, all
	 * zeros at first; it is data of the instance like that of WIRE_SLOT_DATA.
	 */
	WIRE_SLOT_REGION = 4,
};

/* The contents of WIRE_SLOT_PROCESS, the same in all modules of a process and device. */
#define WIRE_PROCESS_SYMBOL "__gpuprobe_process"
struct gpuprobe_process {
	uint64_t pid_tgid; /* pid << 32 | pid */
	uint64_t device; /* ordinal in the process */
	char comm[16];
	uint64_t reserved[4]; /* 0 */
};

/* One variable of the twin's module. */
struct wire_slot {
	struct wire_header header;
	uint64_t module_id;
	uint64_t map_id;
	uint32_t kind; /* enum wire_slot_kind; in a plan POINTER, REGION or PROCESS */
	uint32_t offset; /* in a plan: offset in struct patch_data of the 8 bytes to fill in; else 0
			  */
	char symbol[WIRE_SYMBOL_MAX]; /* empty in a plan */
};

/* Ids that belong to the message before. All IDS messages but the last are full. */
struct wire_ids {
	struct wire_header header;
	uint64_t module_id;
	uint32_t count; /* 1..WIRE_IDS_MAX */
	uint32_t reserved; /* 0 */
	uint64_t ids[WIRE_IDS_MAX]; /* 0 from ids[count] on */
};

enum wire_resume_flags {
	WIRE_RESUME_ARMED = 1 << 0, /* in at least one context */
	WIRE_RESUME_PLAN = 1 << 1, /* it is a plan of the sanitizer engine */
};

/*
 * A twin or plan of an earlier daemon of the session. IDS messages follow, with the ids of its
 * attachments, then of its maps.
 */
struct wire_resume {
	struct wire_header header;
	uint64_t module_id;
	uint32_t attachment_count; /* <= WIRE_ATTACHMENTS_MAX, not 0 */
	uint32_t map_count; /* <= WIRE_SLOTS_MAX */
	uint32_t flags; /* enum wire_resume_flags */
	uint32_t reserved; /* 0 */
};

struct wire_resumed {
	struct wire_header header;
	uint64_t module_id;
	uint32_t known; /* 0: none of its attachments is left */
	uint32_t reserved; /* 0 */
};

/* An instance from an earlier daemon of the session. */
struct wire_keep {
	struct wire_header header;
	uint64_t map_id;
	uint64_t instance_id;
};

struct wire_kept {
	struct wire_header header;
	uint64_t map_id;
	uint64_t instance_id;
	uint32_t known; /* 0: the daemon does not read it any more */
	uint32_t reserved; /* 0 */
};

/* Asks for this process's instance of a map for one more context. */
struct wire_instance {
	struct wire_header header;
	uint64_t map_id;
	uint32_t device; /* driver ordinal of the context that the instance is for */
	uint32_t reserved; /* 0 */
};

/*
 * Descriptor: the instance's memfd, or with MAP_PLACE_KERNEL that of an array of Linux
 * (map-layout.h). size 0: refused (quota, unknown map), no descriptor.
 */
struct wire_instance_reply {
	struct wire_header header;
	uint64_t map_id;
	uint64_t instance_id; /* never 0 */
	uint64_t size; /* bytes of the memfd, map_memfd_size(); with MAP_PLACE_KERNEL: whole pages
			  to map */
	uint64_t data_size; /* bytes of the device buffer, or of the data in host memory */
	uint32_t place; /* enum map_place */
	uint32_t kind; /* enum map_kind */
};

/* The module's slots are filled in for one more context: probes count from now on. */
struct wire_armed {
	struct wire_header header;
	uint64_t module_id;
	uint32_t device;
	uint32_t reserved; /* 0 */
};

struct wire_unload {
	struct wire_header header;
	uint64_t module_id;
};

/*
 * The shim could not do something; `gpuprobectl why` shows it. The beginning of the reason says
 * what it is about (a longer name of a kernel is cut to WIRE_REPORT_NAME_MAX bytes):
 *
 *   WIRE_REPORT_KERNEL, a kernel's name, ": "   that kernel of the module only
 *   WIRE_REPORT_MAP, a map's id, ": "           only the attachments that use the map
 *   WIRE_REPORT_MODULE, a kernel's name (or that none is known), ": "
 *                                               no failure: why the module of that kernel is not
 *                                               patched
 */
#define WIRE_REPORT_KERNEL "kernel "
#define WIRE_REPORT_MAP "map "
#define WIRE_REPORT_MODULE "module with "
#define WIRE_REPORT_NAME_MAX 96
struct wire_report {
	struct wire_header header;
	uint64_t module_id; /* 0: about no single module */
	char reason[WIRE_REASON_MAX];
};

/* Asks the process to copy all its instances to their memfds now, and then to answer SYNCED. */
struct wire_sync {
	struct wire_header header;
};

/*
 * Asks the process to stop probes from using the map (write 0 into its slots), to copy it a last
 * time, and then to answer SYNCED.
 */
struct wire_disarm {
	struct wire_header header;
	uint64_t map_id;
};

/* Asks whether anybody traces this process. */
struct wire_trace {
	struct wire_header header;
	uint32_t flags; /* 0 */
	/*
	 * The pid, as the daemon sees it, of a process that this one descends from. Either the
	 * process whose memory it was forked with, if that was traced, or the CMD of a trace
	 * (paths.h). The processes between may be gone. 0: none is known.
	 */
	uint32_t ancestor;
};

/* Descriptor: the memfd of trace-ring.h. size 0: nobody traces it, no descriptor. */
struct wire_trace_reply {
	struct wire_header header;
	uint64_t size; /* bytes of the memfd */
};

struct wire_synced {
	struct wire_header header; /* sequence: that of the SYNC or DISARM */
};

/* Any message; a buffer large enough to receive every type. */
union wire_message {
	struct wire_header header;
	struct wire_hello hello;
	struct wire_welcome welcome;
	struct wire_image image;
	struct wire_image_reply image_reply;
	struct wire_slot slot;
	struct wire_instance instance;
	struct wire_instance_reply instance_reply;
	struct wire_armed armed;
	struct wire_unload unload;
	struct wire_report report;
	struct wire_sync sync;
	struct wire_disarm disarm;
	struct wire_synced synced;
	struct wire_trace trace;
	struct wire_trace_reply trace_reply;
	struct wire_ids ids;
	struct wire_resume resume;
	struct wire_resumed resumed;
	struct wire_keep keep;
	struct wire_kept kept;
};

/* The size in bytes of messages of a type; 0: unknown type. */
static inline size_t wire_size(uint16_t type) {
	switch (type) {
	case WIRE_HELLO:
		return sizeof(struct wire_hello);
	case WIRE_IMAGE:
		return sizeof(struct wire_image);
	case WIRE_INSTANCE:
		return sizeof(struct wire_instance);
	case WIRE_ARMED:
		return sizeof(struct wire_armed);
	case WIRE_UNLOAD:
		return sizeof(struct wire_unload);
	case WIRE_REPORT:
		return sizeof(struct wire_report);
	case WIRE_SYNCED:
		return sizeof(struct wire_synced);
	case WIRE_TRACE:
		return sizeof(struct wire_trace);
	case WIRE_WELCOME:
		return sizeof(struct wire_welcome);
	case WIRE_IMAGE_REPLY:
		return sizeof(struct wire_image_reply);
	case WIRE_SLOT:
		return sizeof(struct wire_slot);
	case WIRE_INSTANCE_REPLY:
		return sizeof(struct wire_instance_reply);
	case WIRE_SYNC:
		return sizeof(struct wire_sync);
	case WIRE_DISARM:
		return sizeof(struct wire_disarm);
	case WIRE_TRACE_REPLY:
		return sizeof(struct wire_trace_reply);
	case WIRE_IDS:
		return sizeof(struct wire_ids);
	case WIRE_RESUME:
		return sizeof(struct wire_resume);
	case WIRE_RESUMED:
		return sizeof(struct wire_resumed);
	case WIRE_KEEP:
		return sizeof(struct wire_keep);
	case WIRE_KEPT:
		return sizeof(struct wire_kept);
	}
	return 0;
}

/*
 * Whether the `received` bytes at message are one well-formed message: magic, version, type, size.
 */
static inline int wire_valid(const union wire_message *message, size_t received) {
	return received >= sizeof(message->header) && message->header.magic == WIRE_MAGIC &&
	       message->header.version == WIRE_VERSION && message->header.size == received &&
	       wire_size(message->header.type) == received;
}
