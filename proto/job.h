/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * The job protocol: what the daemon and its workers write to each other. Both ends take words,
 * names and limits from here. daemon/worker/job.md says what each message means.
 *
 * One datagram is one JSON object, with descriptors beside it. A request names its job; a
 * reply has a status (enum job_status), and an error says which one (enum job_error). Nobody
 * decides on the text of a message or a reason: it is for people.
 *
 * There is no version in the messages, because the daemon starts workers of its own build. The
 * cache on the disk holds replies of other builds: its key has what the worker says of its build
 * (JOB_FEATURE_BUILD).
 */

#include <stddef.h>
#include <string.h>

#define JOB_MESSAGE_MAX (128 * 1024) /* bytes of one message */
#define JOB_FDS_MAX 64 /* descriptors beside one message */
#define JOB_IMAGE_PROGRAMS_MAX 58 /* of a job about an image, beside its other descriptors */
#define JOB_COMPILE_PROGRAMS_MAX 60 /* of a job `compile`, beside its other descriptors */
#define JOB_KERNELS_MAX 500 /* in the reply of a job `image` or `patch` */

/* Jobs. Every worker does `ping`. */
#define JOB_PING "ping"
#define JOB_IMAGE "image"
#define JOB_PATCH "patch"
#define JOB_LINK "link"
#define JOB_COMPILE "compile"
#define JOB_PASS "pass"

/*
 * Words, as messages have them: each enum has an array of its words. job_word() is the number of a
 * text in such an array, or -1; NULL is no word.
 */
static inline int job_word(const char *const *words, size_t n, const char *text) {
	for (size_t i = 0; text && i < n; i++)
		if (words[i] && !strcmp(words[i], text))
			return (int)i;
	return -1;
}
#define JOB_WORD(words, text) job_word(words, sizeof(words) / sizeof((words)[0]), text)

enum job_status {
	JOB_ERROR,
	JOB_PONG, /* of `ping` */
	JOB_MADE, /* of `image`, as the next two: the output is a twin */
	JOB_OWN, /* there is none, for a reason: the process launches its own kernels */
	JOB_TEXT, /* a stage that makes no image is done */
	JOB_PLANNED, /* of `patch` */
	JOB_LINKED,
	JOB_COMPILED,
	JOB_PASSED,
};
static const char *const job_statuses[] = {
	[JOB_ERROR] = "error",   [JOB_PONG] = "pong",         [JOB_MADE] = "made",
	[JOB_OWN] = "own",       [JOB_TEXT] = "text",         [JOB_PLANNED] = "planned",
	[JOB_LINKED] = "linked", [JOB_COMPILED] = "compiled", [JOB_PASSED] = "passed",
};

enum job_error {
	JOB_E_INTERNAL, /* the daemon, the worker or the machine is at fault */
	JOB_E_IMAGE, /* the image, or the list of names, is malformed */
	JOB_E_TRANSFORM, /* the PTX cannot be edited, or a pass made PTX that cannot be used */
	JOB_E_COMPILE, /* the compiler refused: `log` has its words */
	JOB_E_PROGRAM, /* the program does what cannot be done there */
	JOB_E_UNSUPPORTED, /* this worker has no compiler for it */
	JOB_E_OBJECT, /* libbpf refused the object: `log` has its words */
	JOB_E_PASS, /* the pass failed */
};
static const char *const job_errors[] = {
	[JOB_E_INTERNAL] = "internal",   [JOB_E_IMAGE] = "image",
	[JOB_E_TRANSFORM] = "transform", [JOB_E_COMPILE] = "compile",
	[JOB_E_PROGRAM] = "program",     [JOB_E_UNSUPPORTED] = "unsupported",
	[JOB_E_OBJECT] = "object",       [JOB_E_PASS] = "pass",
};

/* Why there is no twin (JOB_KEY_CAUSE), where the daemon has to know. */
enum job_cause {
	JOB_CAUSE_NO_PTX, /* no PTX that could be edited: machine code alone could be patched */
};
static const char *const job_causes[] = { [JOB_CAUSE_NO_PTX] = "no_ptx" };

/*
 * From what a job `image` makes a twin (JOB_KEY_TWINS of the request, JOB_KEY_TWIN of the reply).
 * "First": from the other where that cannot be. Machine code needs a cubin for exactly the device;
 * JOB_TWINS_PTX_FIRST takes it only for architectures on which it has run.
 */
enum job_twins {
	JOB_TWINS_PTX, /* the request's default */
	JOB_TWINS_PTX_FIRST,
	JOB_TWINS_MACHINE_CODE_FIRST,
	JOB_TWINS_MACHINE_CODE,
};
static const char *const job_twins[] = {
	[JOB_TWINS_PTX] = "ptx",
	[JOB_TWINS_PTX_FIRST] = "ptx_first",
	[JOB_TWINS_MACHINE_CODE_FIRST] = "machine_code_first",
	[JOB_TWINS_MACHINE_CODE] = "machine_code",
};

/* Stages of a job `image`, in their order; all in one where no pass of the user takes part. */
enum job_stage {
	JOB_STAGE_ALL,
	JOB_STAGE_EXTRACT,
	JOB_STAGE_CHECK,
	JOB_STAGE_EDIT,
	JOB_STAGE_CHECK_EDITED,
	JOB_STAGE_BUILD,
};
static const char *const job_stages[] = {
	[JOB_STAGE_ALL] = "all",     [JOB_STAGE_EXTRACT] = "extract",
	[JOB_STAGE_CHECK] = "check", [JOB_STAGE_EDIT] = "edit",
	[JOB_STAGE_BUILD] = "build", [JOB_STAGE_CHECK_EDITED] = "check_edited",
};

/* Kinds of images of a job `image`, by the numbers of enum wire_image_kind (wire.h). */
static const char *const job_image_kinds[] = { [1] = "fatbin", [2] = "ptx", [3] = "cubin" };

/* The first message of a worker, and what it says of itself. */
#define JOB_KEY_READY "ready"
#define JOB_KEY_FEATURES "features"
#define JOB_FEATURE_BUILD "build" /* changes with the worker and all that it has loaded */
#define JOB_FEATURE_COMPILER "compiler" /* name and version */
#define JOB_FEATURE_NO_COMPILER "no_compiler" /* in its place: why there is none */
#define JOB_FEATURE_PATCH "patch" /* the compiler that makes patches */

/* Every request and every reply. */
#define JOB_KEY_JOB "job"
#define JOB_KEY_ID "id"
#define JOB_KEY_STATUS "status"
#define JOB_KEY_ERROR "error"
#define JOB_KEY_MESSAGE "message"
#define JOB_KEY_LOG "log"

/* Descriptors, by their index in the message. */
#define JOB_KEY_INPUT "input"
#define JOB_KEY_OUTPUT "output"
#define JOB_KEY_TEXT "text"
#define JOB_KEY_TEXT_OUTPUT "text_output"
#define JOB_KEY_INSTRUCTIONS "instructions"
#define JOB_KEY_NAMES "names"
#define JOB_KEY_PATCH "patch"
#define JOB_KEY_FD "fd"

/* Requests of `image` and `patch`. */
#define JOB_KEY_KIND "kind"
#define JOB_KEY_CAPABILITY "capability"
#define JOB_KEY_IMAGE "image"
#define JOB_KEY_STUBS "stubs"
#define JOB_KEY_CALL "call"
#define JOB_KEY_STAGE "stage"
#define JOB_KEY_ONE_THREAD "one_thread"
#define JOB_KEY_TWINS "twins"
#define JOB_KEY_PTX "ptx" /* of an attachment: it is for twins from PTX alone */
#define JOB_KEY_TWIN "twin" /* of a reply: what it was made from */
#define JOB_KEY_PROGRAMS "programs"
#define JOB_KEY_ATTACHMENTS "attachments" /* also of a kernel in a reply */

/* A member of `programs`. */
#define JOB_KEY_NAME "name" /* also of a kernel in a reply */
#define JOB_KEY_LABEL "label"
#define JOB_KEY_ISA "isa" /* also of a request, and of a reply, as the next */
#define JOB_KEY_TARGET "target"
#define JOB_KEY_CONTEXT "context"
#define JOB_KEY_MAPS "maps"

/* A member of `attachments`; `point` and what belongs to it are those of point.h. */
#define JOB_KEY_KERNEL "kernel"
#define JOB_KEY_PREFIXED "prefixed"
#define JOB_KEY_DEVICE_FUNCTION "device_function" /* also of a kernel in a reply */
#define JOB_KEY_POINT "point" /* also of a member of `missing` */
#define JOB_KEY_PROGRAM "program"
#define JOB_KEY_FILE "file"
#define JOB_KEY_LINE "line"
#define JOB_KEY_BLOCK "block"
#define JOB_KEY_SPACES "spaces"

/* Replies of `image` and `patch`. */
#define JOB_KEY_SIZE "size" /* bytes of the output; of all jobs */
#define JOB_KEY_TEXT_SIZE "text_size"
#define JOB_KEY_INSTRUCTIONS_SIZE "instructions_size"
#define JOB_KEY_REASON "reason"
#define JOB_KEY_CAUSE "cause"
#define JOB_KEY_APPLIED "applied"
#define JOB_KEY_KERNELS "kernels"
#define JOB_KEY_KERNEL_COUNT "kernel_count"
#define JOB_KEY_TRUNCATED "truncated"
#define JOB_KEY_DEMANGLED "demangled"
#define JOB_KEY_MISSING "missing"
#define JOB_KEY_FUNCTIONS "functions"
#define JOB_KEY_INSTRUCTION "instruction" /* of a function, as the next four */
#define JOB_KEY_REGISTERS "registers"
#define JOB_KEY_SPILL_STORES "spill_stores"
#define JOB_KEY_SPILL_LOADS "spill_loads"
#define JOB_KEY_STACK "stack"

/* `compile`. Maps and programs are those of a linked object (lib/bpf/linked.h), with these. */
#define JOB_KEY_PREFIX "prefix"
#define JOB_KEY_SLOT_SYMBOL "slot_symbol" /* of a map of the request */
#define JOB_KEY_MERGE "merge" /* of a map of the reply, as the next two */
#define JOB_KEY_USED "used"
#define JOB_KEY_RESIDENT "resident"
#define JOB_KEY_INDEX "index" /* of a program of both */
#define JOB_KEY_PATCH_OUTPUT "patch_output" /* of a program of the request: a descriptor */
#define JOB_KEY_SYMBOL "symbol" /* of a program of the reply, as the next five */
#define JOB_KEY_LOCAL_BYTES "local_bytes"
#define JOB_KEY_PATCH_SIZE "patch_size"
#define JOB_KEY_PATCH_MAPS "patch_maps"
#define JOB_KEY_PATCH_REASON "patch_reason"
#define JOB_KEY_PROCESS "process" /* also of a program of a job `patch` */

/* `pass`. */
#define JOB_KEY_EXECUTABLE "executable"
#define JOB_KEY_ATTACH_POINT "attach_point"
#define JOB_KEY_PARAMETERS "parameters"
#define JOB_KEY_MAX_OUTPUT "max_output_bytes"
#define JOB_KEY_TIMEOUT "timeout_ms"
#define JOB_KEY_MEMORY "memory_mib"
#define JOB_KEY_REQUIRED_SYMBOLS "required_symbols"
#define JOB_KEY_MODIFIED "modified"
