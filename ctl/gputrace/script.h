/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A script of gputrace: its syntax tree, which the parser makes and check.c completes. All memory
 * of a script belongs to it and goes with script_free(). The tree has no pointers to the outside
 * but to constant tables.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SCRIPT_SIZE_MAX 65536 /* bytes of text */
#define SCRIPT_DEPTH_MAX 64 /* expressions and blocks in one another */
#define SCRIPT_KEYS_MAX 8 /* of a map */
#define SCRIPT_MAPS_MAX 31 /* an object has 64 maps and 64 programs at most */
#define SCRIPT_PROBES_MAX 32
#define SCRIPT_LOCALS_MAX 24 /* of one body */
#define SCRIPT_PARTS_MAX 8 /* of a probe: thread:KERNEL:end has 3 */
#define SCRIPT_UNROLL_MAX 100
#define SCRIPT_PRINTS_MAX 64 /* printf() on the GPU */
#define SCRIPT_LANES_MAX 8 /* any() and its like of one body */
#define SCRIPT_VALUES_MAX 15 /* of one printf() */
#define SCRIPT_ROUNDS_MAX 10000 /* of one unroll in another */
#define SCRIPT_WHILE_MAX 1000000 /* rounds of all while of one run of a body */
#define SCRIPT_LINEAR_MAX 1000 /* buckets of lhist() */
#define SCRIPT_LOG_BUCKETS 66 /* of hist(): below 0, 0, and the 64 powers of two */
#define SCRIPT_FLOAT_BUCKETS \
	68 /* of hist() of floats: NaN, below 0, 0, tiny, powers of two, huge */
#define SCRIPT_FLOAT_POWER 31 /* those from 2^-31 up to 2^31 have buckets of their own */
#define SCRIPT_ERROR_SIZE 512

struct place {
	int line, column; /* from 1 */
};

enum type {
	TYPE_NONE, /* of what gives no value */
	TYPE_NUMBER,
	TYPE_FLOAT, /* the bits of a double: compared, and given to min(), max() and hist() */
	TYPE_TEXT, /* on the host alone */
	TYPE_KERNEL, /* on the GPU: a kernel's id, printed as its name */
	TYPE_LINE, /* on the GPU: an instruction's id, printed as its source line, */
	TYPE_LINE_INSN, /* as its text, */
	TYPE_LINE_KERNEL, /* as the kernel that it is in, */
	TYPE_LINE_TYPE, /* as the type that it moves: f32 */
};

enum op {
	OP_NONE,
	OP_ADD,
	OP_SUB,
	OP_MUL,
	OP_DIV,
	OP_MOD,
	OP_AND,
	OP_OR,
	OP_XOR,
	OP_LEFT,
	OP_RIGHT,
	OP_EQ,
	OP_NE,
	OP_LT,
	OP_LE,
	OP_GT,
	OP_GE,
	OP_BOTH, /* && */
	OP_EITHER, /* || */
	OP_NOT,
	OP_MINUS,
	OP_INVERT,
};

enum node_kind {
	NODE_NUMBER,
	NODE_FLOAT, /* number: the bits of a double */
	NODE_STRING,
	NODE_LOCAL, /* $x */
	NODE_WORD, /* kernel, grid.x, args.bytesize */
	NODE_MAP, /* @x[a, b]; a: the list of keys */
	NODE_UNARY,
	NODE_BINARY,
	NODE_CHOICE, /* a ? b : c */
	NODE_CALL, /* text(a) ; a: the list of arguments */
	NODE_ASSIGN, /* a = b, or a op= b */
	NODE_IF, /* if (a) b else c */
	NODE_UNROLL, /* unroll (a) b */
	NODE_WHILE, /* while (a) b */
	NODE_FOR, /* for (a : @text) b; a: a list of variables */
	NODE_BREAK,
	NODE_CONTINUE,
	NODE_DO, /* a call that stands alone */
};

struct node {
	enum node_kind kind;
	enum op op;
	struct place place;
	unsigned int depth; /* of the tree below it */
	int64_t number;
	const char *text;
	struct node *a, *b, *c;
	struct node *next, *last; /* of a list; last: of its first node alone */
	/* by check.c */
	enum type type;
	const struct word *word;
	const struct builtin *builtin;
	unsigned int local; /* number of a $x in its body */
	struct map *map;
	int64_t numbers[3]; /* constant arguments: of lhist() */
};

enum probe_kind {
	PROBE_BEGIN,
	PROBE_END,
	PROBE_INTERVAL,
	PROBE_LAUNCH,
	PROBE_DRIVER,
	PROBE_COPY,
	PROBE_SYNC,
	PROBE_ALLOC,
	PROBE_FREE,
	PROBE_MODULE, /* module:load */
	PROBE_PROCESS,
	PROBE_IDLE,
	/* on the GPU */
	PROBE_THREAD,
	PROBE_BLOCK_LEAD,
	PROBE_WARP_LEAD,
	PROBE_WHOLE_GRID,
	PROBE_WHOLE_BLOCK,
	PROBE_WHOLE_WARP,
	PROBE_LINE,
	PROBE_BLOCK, /* bb: */
	PROBE_FUNCTION,
	PROBE_MEMORY, /* mem.thread: */
	PROBE_WARP_MEMORY, /* mem: */
	_PROBE_N,
};

/* Kinds of accesses: the numbers of enum gpuprobe_access (gpuprobe.bpf.h), which programs of BPF
 * alone can include. */
enum script_access {
	ACCESS_LOAD = 1,
	ACCESS_STORE = 2,
	ACCESS_ATOMIC = 3,
	ACCESS_REDUCTION = 4,
	ACCESS_MATRIX_LOAD = 6,
};

#define PROBE_ON_GPU(kind) ((kind) >= PROBE_THREAD)
#define PROBE_IS_MEMORY(kind) ((kind) == PROBE_MEMORY || (kind) == PROBE_WARP_MEMORY)

struct probe {
	enum probe_kind kind;
	struct place place;
	size_t n_parts;
	const char *parts[SCRIPT_PARTS_MAX]; /* without the quotes */
	/* by check.c */
	bool end; /* :end */
	bool unloads; /* MODULE: module:unload */
	const char *name; /* of kernels or functions: a glob */
	const char *file; /* LINE */
	uint64_t number; /* of a LINE or BLOCK; nanoseconds of an INTERVAL */
	const char *space; /* MEMORY: global, shared or local; NULL: all */
	unsigned int access; /* MEMORY: bits of enum script_access; 0: all */
	struct probe *next;
};

/* Some probes with one body. */
struct clause {
	struct probe *probes;
	struct node *predicate; /* NULL: none */
	struct node *body; /* a list of statements */
	bool on_gpu;
	int64_t rounds; /* in which the statement that is checked is repeated; 0: once */
	bool of_warp; /* its events are of all lanes of a warp */
	bool in_lane; /* what is checked is of each lane: in any() and its like */
	size_t n_lanes; /* any() and its like */
	unsigned int loops; /* while and for around the statement that is checked */
	size_t n_locals;
	const char *locals[SCRIPT_LOCALS_MAX];
	enum type local_types[SCRIPT_LOCALS_MAX];
	struct clause *next;
};

enum map_kind {
	MAP_UNKNOWN,
	MAP_SCALAR, /* @x = 5 */
	MAP_COUNT,
	MAP_SUM,
	MAP_AVG,
	MAP_MIN,
	MAP_MAX,
	MAP_STATS,
	MAP_HIST,
	MAP_LHIST,
};

struct map {
	const char *name; /* with its @ */
	enum map_kind kind;
	struct place kind_place; /* where the kind was seen first */
	bool has_keys; /* n_keys is known */
	size_t n_keys;
	enum type keys[SCRIPT_KEYS_MAX]; /* TYPE_TEXT where the host has TEXT and the GPU an id */
	enum type gpu_keys[SCRIPT_KEYS_MAX];
	struct place keys_place;
	enum type value; /* of a SCALAR: NUMBER or TEXT; of an aggregation: NUMBER or FLOAT */
	int64_t min, max, step; /* LHIST */
	/* by whom, and where first; line 0: nowhere */
	struct place host_writes, gpu_writes, host_reads, gpu_reads, cleared, deleted;
	bool stored; /* `=` on the GPU: not only added to */
};

struct memory;

struct script {
	const char *name; /* of the file, for messages */
	const char *kernel; /* stands where a probe has * for its kernel; NULL: nothing does */
	bool kernel_used;
	struct clause *clauses;
	size_t n_maps;
	struct map maps[SCRIPT_MAPS_MAX];
	size_t n_probes;
	size_t n_prints; /* printf() on the GPU: number of their nodes is the index */
	const struct node *prints[SCRIPT_PRINTS_MAX];
	bool needs_trace, needs_gpu, needs_stacks;
	bool needs_times; /* of kernels, with the trace */
	struct memory *memory;
	/* the first error, in full: "name:1:5: ..." */
	bool failed;
	char error[SCRIPT_ERROR_SIZE];
};

/*
 * Parses and checks a text. @kernel takes the place of * where that is the kernel of a probe; NULL:
 * nothing does. Returns NULL without memory. A script that failed has its error and nothing else
 * that may be used.
 */
struct script *script_new(const char *name, const char *kernel, const char *text, size_t n_text);
struct script *script_free(struct script *script);

/* Notes an error; only the first one stays. Control characters become '?'. Returns false. */
bool script_fail(struct script *script, struct place place, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

/* Zeroed memory of the script; NULL: none, and the script failed. */
void *script_alloc(struct script *script, size_t size);
char *script_copy(struct script *script, const char *text, size_t n);

/* check.c: probes, words, types. False: the script failed. */
bool script_check(struct script *script);

/* Whether a function of the driver is one of a probe's: by name, glob or class. */
struct function;
bool probe_has_function(const struct probe *probe, const struct function *function);

/* Whether the host sets a word that the GPU reads. */
bool map_is_shared(const struct map *map);
/* Whether a map adds up floats. */
bool map_sums_floats(const struct map *map);
/* Number of buckets of a histogram. */
size_t map_buckets(const struct map *map);
/* The bucket of a value; of a map of floats its bits. */
size_t map_bucket(const struct map *map, int64_t value);
