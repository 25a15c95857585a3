/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Turns one line of a trace file in JSON into an item (read-line.h). Reports read saved traces with
 * it; it overwrites the line.
 */

#include <string.h>

#include "ctl/trace/base/out.h"
#include "read-json.h"
#include "read-line.h"
#include "report-names.h"

enum key {
	KEY_NONE,
	KEY_ARGS,
	KEY_BASE,
	KEY_CLASS,
	KEY_CMD,
	KEY_COMM,
	KEY_CONTEXT,
	KEY_COUNT,
	KEY_CPU,
	KEY_DAEMON,
	KEY_DEVICE,
	KEY_DRIVER,
	KEY_DURATION_NS,
	KEY_DURATION_US,
	KEY_ERROR_NS,
	KEY_EVENT_ID,
	KEY_EXE,
	KEY_FAILED,
	KEY_FENCE,
	KEY_FLOW,
	KEY_FORMAT,
	KEY_HOST,
	KEY_KERNEL,
	KEY_LOST,
	KEY_MONOTONIC,
	KEY_NAME,
	KEY_OUT,
	KEY_PARENT,
	KEY_PARENT_PID,
	KEY_PHASE,
	KEY_PID,
	KEY_REALTIME,
	KEY_RET,
	KEY_RET_NAME,
	KEY_SEQUENCE,
	KEY_SIZE,
	KEY_SOURCE,
	KEY_STACK,
	KEY_STATUS,
	KEY_STREAM,
	KEY_THREAD,
	KEY_TID,
	KEY_TOTAL,
	KEY_TS,
	KEY_TS_NS,
	KEY_TYPE,
	KEY_UID,
	KEY_VERSION,
	KEY_VIOLATION,
	_KEY_N,
};

static const char *const keys[_KEY_N] = {
	[KEY_ARGS] = "args",
	[KEY_BASE] = "base",
	[KEY_CLASS] = "class",
	[KEY_CMD] = "cmd",
	[KEY_COMM] = "comm",
	[KEY_CONTEXT] = "context",
	[KEY_COUNT] = "count",
	[KEY_CPU] = "cpu",
	[KEY_DAEMON] = "daemon",
	[KEY_DEVICE] = "device",
	[KEY_DRIVER] = "driver",
	[KEY_DURATION_NS] = "dur_ns",
	[KEY_DURATION_US] = "duration_us",
	[KEY_ERROR_NS] = "error_ns",
	[KEY_EVENT_ID] = "event_id",
	[KEY_EXE] = "exe",
	[KEY_FAILED] = "failed",
	[KEY_FENCE] = "fence",
	[KEY_FLOW] = "flow",
	[KEY_FORMAT] = "format",
	[KEY_HOST] = "host",
	[KEY_KERNEL] = "kernel",
	[KEY_LOST] = "lost",
	[KEY_MONOTONIC] = "monotonic",
	[KEY_NAME] = "name",
	[KEY_OUT] = "out",
	[KEY_PARENT] = "parent",
	[KEY_PARENT_PID] = "parent_pid",
	[KEY_PHASE] = "phase",
	[KEY_PID] = "pid",
	[KEY_REALTIME] = "realtime",
	[KEY_RET] = "ret",
	[KEY_RET_NAME] = "ret_name",
	[KEY_SEQUENCE] = "sequence",
	[KEY_SIZE] = "size",
	[KEY_SOURCE] = "source",
	[KEY_STACK] = "stack",
	[KEY_STATUS] = "status",
	[KEY_STREAM] = "stream",
	[KEY_THREAD] = "thread",
	[KEY_TID] = "tid",
	[KEY_TOTAL] = "total",
	[KEY_TS] = "ts",
	[KEY_TS_NS] = "ts_ns",
	[KEY_TYPE] = "type",
	[KEY_UID] = "uid",
	[KEY_VERSION] = "version",
	[KEY_VIOLATION] = "violation",
};

/* What the members of one line say before it is known what the line is. */
struct members {
	uint64_t set; /* 1 << enum key: it was there, and of the right type */
	const char *texts[_KEY_N];
	struct read_json_number numbers[_KEY_N];
};

/* The keys are sorted, so those of a letter are neighbours. */
static enum key key_find(const char *text) {
	static const unsigned char firsts[128] = {
		['a'] = KEY_ARGS,      ['b'] = KEY_BASE,     ['c'] = KEY_CLASS,
		['d'] = KEY_DAEMON,    ['e'] = KEY_ERROR_NS, ['f'] = KEY_FAILED,
		['h'] = KEY_HOST,      ['k'] = KEY_KERNEL,   ['l'] = KEY_LOST,
		['m'] = KEY_MONOTONIC, ['n'] = KEY_NAME,     ['o'] = KEY_OUT,
		['p'] = KEY_PARENT,    ['r'] = KEY_REALTIME, ['s'] = KEY_SEQUENCE,
		['t'] = KEY_THREAD,    ['u'] = KEY_UID,      ['v'] = KEY_VERSION,
	};
	const unsigned char letter = (unsigned char)*text;
	unsigned int i = letter < 128 ? firsts[letter] : KEY_NONE;

	for (; i && i < _KEY_N && (unsigned char)keys[i][0] == letter; i++) {
		size_t n = 1;

		while (text[n] && text[n] == keys[i][n])
			n++;
		if (text[n] == keys[i][n])
			return (enum key)i;
	}
	return KEY_NONE;
}

/* A text that is a number in hexadecimal. */
static bool read_hex(const char *text, uint64_t *valuep) {
	uint64_t value = 0;
	size_t n;

	if (text[0] != '0' || text[1] != 'x')
		return false;
	n = strspn(text + 2, "0123456789abcdef");
	if (!n || n > 16 || text[2 + n])
		return false;
	for (size_t i = 0; i < n; i++)
		value = value << 4 |
			(uint64_t)(text[2 + i] <= '9' ? text[2 + i] - '0' : text[2 + i] - 'a' + 10);
	*valuep = value;
	return true;
}

/* A text that is a decimal number, from INT64_MIN to UINT64_MAX. */
static bool read_decimal(const char *text, struct read_json_number *number) {
	*number = (struct read_json_number){ .whole = true, .negative = *text == '-' };
	text += number->negative;
	if (!*text || text[strspn(text, "0123456789")])
		return false;
	for (; *text; text++)
		if (__builtin_mul_overflow(number->magnitude, 10, &number->magnitude) ||
		    __builtin_add_overflow(number->magnitude, (uint64_t)(*text - '0'),
					   &number->magnitude))
			return false;
	return !number->negative || number->magnitude <= UINT64_C(1) << 63;
}

static bool read_values(struct read_json *json, struct trace_item *item, bool out,
			unsigned int depth, int64_t *np);

/* The value of an argument, which is the last of the item's; one too many goes nowhere. */
static bool read_value(struct read_json *json, struct trace_item *item, struct trace_value *value,
		       unsigned int depth) {
	struct read_json_number number;
	const char next = read_json_next(json);
	uint64_t bits;
	char *text;

	if (next == '{') {
		value->kind = VALUE_GROUP;
		return depth < 8 && read_values(json, item, value->out, depth + 1, &value->number);
	}
	if (next == '"') {
		if (!read_json_string(json, &text))
			return false;
		value->kind = VALUE_STRING;
		value->text = text;
		if (read_hex(text, &bits)) {
			value->kind = VALUE_HEX;
			value->number = (int64_t)bits;
		} else if (read_decimal(text, &number) &&
			   (number.magnitude > UINT64_C(1) << 53 ||
			    trace_name_is_id(value->name))) { /* as our writer has them */
			value->kind = number.negative ? VALUE_INT : VALUE_UINT;
			value->number = read_json_integer(&number);
		}
		return true;
	}
	if (next == 't' || next == 'f') {
		value->kind = VALUE_BOOL;
		value->number = next == 't';
		return read_json_word(json, next == 't' ? "true" : "false");
	}
	value->kind = VALUE_STRING;
	value->text = "";
	if (next == 'n' || next == '[')
		return read_json_skip(json, depth);
	if (!read_json_number(json, &number))
		return false;
	value->kind = !number.whole ? VALUE_FLOAT : number.negative ? VALUE_INT : VALUE_UINT;
	value->number = read_json_integer(&number);
	value->real = number.real;
	return true;
}

/* An object of arguments; *np: how many of its members the item has room for. */
static bool read_values(struct read_json *json, struct trace_item *item, bool out,
			unsigned int depth, int64_t *np) {
	struct trace_value spare, *value;
	char *name;

	*np = 0;
	if (!read_json_take(json, '{'))
		return false;
	if (read_json_take(json, '}'))
		return true;
	do {
		if (!read_json_string(json, &name) || !read_json_take(json, ':'))
			return false;
		*np += item->n_values < TRACE_VALUES_MAX;
		value = item->n_values < TRACE_VALUES_MAX ? &item->values[item->n_values++]
							  : &spare;
		*value = (struct trace_value){ .name = name, .out = out };
		if (!read_value(json, item, value, depth))
			return false;
	} while (read_json_take(json, ','));
	return read_json_take(json, '}');
}

static bool read_stack(struct read_json *json, struct read_line *line, struct report_names *names) {
	char *text;

	line->item.n_frames = 0;
	if (!read_json_take(json, '['))
		return false;
	if (read_json_take(json, ']'))
		return true;
	do {
		if (!read_json_string(json, &text))
			return false;
		if (line->item.n_frames < READ_FRAMES_MAX)
			line->frames[line->item.n_frames++] = report_names_keep(names, text);
	} while (read_json_take(json, ','));
	return read_json_take(json, ']');
}

/* One member's value. Returns false if the line is no JSON. */
static bool read_member(struct read_json *json, enum key key, struct members *members,
			struct read_line *line, struct report_names *names) {
	const char next = read_json_next(json);
	int64_t n;
	char *text;

	if ((key == KEY_ARGS || key == KEY_OUT) && next == '{')
		return read_values(json, &line->item, key == KEY_OUT, 0, &n);
	if (key == KEY_STACK && next == '[')
		return read_stack(json, line, names);
	if (key == KEY_NONE ||
	    !(next == '"' || next == 't' || next == '-' || (next >= '0' && next <= '9')))
		return read_json_skip(json, 0);
	members->set |= UINT64_C(1) << key;
	members->texts[key] = NULL;
	if (next == '"') {
		if (!read_json_string(json, &text))
			return false;
		members->texts[key] = text;
		return true;
	}
	if (next != 't')
		return read_json_number(json, &members->numbers[key]);
	members->numbers[key] =
		(struct read_json_number){ .whole = true, .magnitude = 1, .real = 1 };
	return read_json_word(json, "true");
}

static bool has(const struct members *members, enum key key) {
	return members->set >> key & 1;
}

static const char *text_of(const struct members *members, enum key key) {
	return has(members, key) && members->texts[key] ? members->texts[key] : "";
}

/* A number from 0 up, or hexadecimal in a text; else 0. */
static uint64_t number_of(const struct members *members, enum key key) {
	struct read_json_number number;
	uint64_t value = 0;

	if (!has(members, key))
		return 0;
	if (members->texts[key] && !read_hex(members->texts[key], &value))
		value = read_decimal(members->texts[key], &number) && !number.negative
				? number.magnitude
				: 0;
	else if (members->texts[key])
		return value;
	else if (members->numbers[key].whole && !members->numbers[key].negative)
		value = members->numbers[key].magnitude;
	return value;
}

static int64_t signed_of(const struct members *members, enum key key) {
	struct read_json_number number = members->numbers[key];

	if (members->texts[key] ? !read_decimal(members->texts[key], &number) : !number.whole)
		return 0;
	return read_json_integer(&number);
}

/* Thousandths and millionths, as the seeds write them, in nanoseconds; what is no time is 0. */
static uint64_t scaled_of(const struct members *members, enum key key, double scale) {
	const double real =
		has(members, key) && !members->texts[key] ? members->numbers[key].real * scale : 0;

	return real > 0 && real < 0x1p62 ? (uint64_t)(real + 0.5) : 0;
}

static void copy_text(char *out, size_t n_out, const char *text) {
	const size_t n = strnlen(text, n_out - 1);

	memcpy(out, text, n);
	memset(out + n, 0, n_out - n);
}

static const struct {
	const char *type;
	enum trace_item_kind kind;
	const char *seed_class; /* what it is in a file of the seeds; NULL: not there */
} types[] = {
	{ "userspace", EVENT_CALL, "" },
	{ "ioctl", EVENT_IOCTL, "ioctl" },
	{ "kernel", EVENT_HOOK, "kernel" },
	{ "gpu", EVENT_KERNEL, NULL },
	{ "ctxsw", EVENT_CTXSW, NULL },
	{ "process", EVENT_PROCESS, NULL },
	{ "clock", EVENT_CLOCK, NULL },
	{ "lost", EVENT_LOST, NULL },
	{ "note", EVENT_NOTE, NULL },
	{ "syscall", EVENT_HOOK, "syscall" },
	{ "scheduler", EVENT_HOOK, "scheduler" },
	{ "kernel_mem", EVENT_HOOK, "kernel_mem" },
	{ "memory", EVENT_HOOK, "memory" },
	{ "gpu_complete", EVENT_HOOK, "gpu_complete" },
	{ "gpu_mem", EVENT_HOOK, "gpu_mem" },
};

static enum trace_source source_of(const char *text) {
	unsigned int i = 0;

	while (i < 4 && strcmp(text, trace_source_name((enum trace_source)i)) != 0)
		i++;
	return i < 4 ? (enum trace_source)i : TRACE_SOURCE_DAEMON;
}

static const char *keep_or_null(const struct members *members, enum key key,
				struct report_names *names) {
	const char *text = text_of(members, key);

	return *text ? report_names_keep(names, text) : NULL;
}

/* What items of all kinds and both formats have. */
static void fill_common(struct read_line *line, const struct members *members,
			struct report_names *names) {
	struct trace_item *item = &line->item;
	const char *base = text_of(members, KEY_BASE);

	item->id = number_of(members, KEY_EVENT_ID);
	item->pid = (uint32_t)number_of(members, KEY_PID);
	item->tid = (uint32_t)number_of(members, KEY_TID);
	item->cpu = (uint32_t)number_of(members, KEY_CPU);
	/* what a note says, and what is wrong with times, is another text each time: it would take
	 * the room of names */
	item->name = item->kind == EVENT_NOTE
			     ? text_of(members, KEY_NAME)
			     : report_names_keep(names, text_of(members, KEY_NAME));
	item->base = *base ? report_names_keep(names, base) : item->name;
	item->class = report_names_keep(names, text_of(members, KEY_CLASS));
	item->thread = report_names_keep(
		names, text_of(members, has(members, KEY_THREAD) ? KEY_THREAD : KEY_COMM));
	item->size = number_of(members, KEY_SIZE);
	line->process.pid = item->pid;
	line->process.parent = (uint32_t)number_of(members, KEY_PARENT_PID);
	line->process.uid = (uint32_t)number_of(members, KEY_UID);
	copy_text(line->process.comm, sizeof(line->process.comm), text_of(members, KEY_COMM));
	line->process.exe = report_names_keep(names, text_of(members, KEY_EXE));
	item->process = &line->process;
	item->frames = line->frames;
}

/* The rest of an item of ours. */
static void fill_item(struct read_line *line, const struct members *members,
		      struct report_names *names) {
	struct trace_item *item = &line->item;
	const uint64_t duration = number_of(members, KEY_DURATION_NS);
	const char phase = text_of(members, KEY_PHASE)[0];
	struct read_json_number number;

	item->source = source_of(text_of(members, KEY_SOURCE));
	item->start = number_of(members, KEY_TS_NS);
	if (__builtin_add_overflow(item->start, duration, &item->end))
		item->end = item->start;
	item->instant = phase == 'i' || phase == 'I';
	item->open = phase == 'B';
	item->command = (uint32_t)number_of(members, KEY_CMD);
	item->parent = number_of(members, KEY_PARENT);
	item->flow = number_of(members, KEY_FLOW);
	item->sequence = number_of(members, KEY_SEQUENCE);
	item->stream = number_of(members, KEY_STREAM);
	item->context = number_of(members, KEY_CONTEXT);
	item->device = (uint32_t)number_of(members, KEY_DEVICE);
	item->count = number_of(members, KEY_COUNT);
	item->error = (uint32_t)number_of(members, KEY_ERROR_NS);
	item->kernel = keep_or_null(members, KEY_KERNEL, names);
	item->violation = *text_of(members, KEY_VIOLATION) ? text_of(members, KEY_VIOLATION) : NULL;
	item->result_name = keep_or_null(members, KEY_RET_NAME, names);
	item->failed = number_of(members, KEY_FAILED) != 0;
	item->has_result = has(members, KEY_RET) &&
			   (members->texts[KEY_RET] ? read_decimal(members->texts[KEY_RET], &number)
						    : members->numbers[KEY_RET].whole);
	if (item->has_result)
		item->result = signed_of(members, KEY_RET);
	if (item->kind == EVENT_PROCESS && has(members, KEY_STATUS) &&
	    item->n_values < TRACE_VALUES_MAX)
		item->values[item->n_values++] =
			(struct trace_value){ .name = "status",
					      .kind = VALUE_INT,
					      .number = signed_of(members, KEY_STATUS) };
}

/* A function's name without version and stream suffix: cuMemcpyAsync of cuMemcpyAsync_v2_ptsz. */
static const char *base_name(const char *name, char *base, size_t n_base) {
	size_t n = strlen(name);

	if (strncmp(name, "cu", 2) != 0 || n >= n_base)
		return name;
	memcpy(base, name, n + 1);
	if (n > 5 && (!strcmp(base + n - 5, "_ptsz") || !strcmp(base + n - 5, "_ptds")))
		base[n -= 5] = '\0';
	if (n > 3 && base[n - 3] == '_' && base[n - 2] == 'v' && base[n - 1] >= '2' &&
	    base[n - 1] <= '9')
		base[n - 3] = '\0';
	return base;
}

/* A line of the seeds: their type is the class, and a name may be missing. */
static void fill_seed(struct read_line *line, const struct members *members, const char *type,
		      const char *class, struct report_names *names) {
	struct trace_item *item = &line->item;
	const char phase = text_of(members, KEY_PHASE)[0];
	const bool described = item->kind == EVENT_IOCTL;
	char base[128];

	item->start = item->end = scaled_of(members, KEY_TS, 1e6);
	line->timed = has(members, KEY_TS);
	line->phase = phase == 'B' || phase == 'E' ? phase : '\0';
	line->duration = scaled_of(members, KEY_DURATION_US, 1e3);
	item->class = report_names_keep(names, class);
	if (!*item->name)
		item->name = report_names_keep(
			names, has(members, KEY_FENCE) ? text_of(members, KEY_FENCE) : type);
	/* the probe of the driver's function is the ioctl; the lines of the system call, and of
	 * what the number means, are points beside it */
	if (described) {
		item->kind = EVENT_HOOK;
		line->duration = 0;
	} else if (!strcmp(class, "kernel") && strstr(item->name, "ioctl")) {
		item->kind = EVENT_IOCTL;
		item->class = report_names_keep(names, "ioctl");
	} else if (!strcmp(class, "gpu_complete") && line->duration) {
		item->kind = EVENT_KERNEL; /* by our writer of this format: what it completed */
		item->class = report_names_keep(names, "kernel");
	}
	item->base = report_names_keep(names, base_name(item->name, base, sizeof(base)));
	if (!item->size && has(members, KEY_TOTAL))
		item->size = number_of(members, KEY_TOTAL);
	item->command = (uint32_t)number_of(members, KEY_CMD);
	item->source = TRACE_SOURCE_BPF;
}

static enum read_line_kind interpret(struct read_line *line, const struct members *members,
				     struct report_names *names) {
	const char *type = text_of(members, KEY_TYPE);

	if (!strcmp(type, "start")) {
		line->about = (struct trace_about){ .monotonic = number_of(members, KEY_MONOTONIC),
						    .realtime = number_of(members, KEY_REALTIME) };
		copy_text(line->about.host, sizeof(line->about.host), text_of(members, KEY_HOST));
		copy_text(line->about.driver, sizeof(line->about.driver),
			  text_of(members, KEY_DRIVER));
		copy_text(line->about.daemon, sizeof(line->about.daemon),
			  text_of(members, KEY_DAEMON));
		if (strncmp(text_of(members, KEY_FORMAT), "gpuprobe", 8))
			return READ_LINE_BAD;
		return !has(members, KEY_VERSION) || number_of(members, KEY_VERSION) == 1
			       ? READ_LINE_START
			       : READ_LINE_VERSION;
	}
	if (!strcmp(type, "stop")) {
		line->lost = number_of(members, KEY_LOST);
		return READ_LINE_STOP;
	}
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		if (strcmp(type, types[i].type) != 0)
			continue;
		line->item.kind = types[i].kind;
		if (!has(members, KEY_TS_NS) && !types[i].seed_class)
			return READ_LINE_BAD;
		fill_common(line, members, names);
		if (has(members, KEY_TS_NS)) {
			fill_item(line, members, names);
			return READ_LINE_ITEM;
		}
		fill_seed(line, members, type, types[i].seed_class, names);
		return READ_LINE_SEED;
	}
	return READ_LINE_BAD;
}

void read_line(struct read_line *line, char *text, size_t n, struct report_names *names) {
	struct read_json json = { .at = text, .end = text + n };
	struct members members;
	char *key;

	line->kind = READ_LINE_BAD;
	/* not its values: they are most of it, and most lines have few */
	memset(&line->item, 0, offsetof(struct trace_item, values));
	line->item.n_frames = 0;
	members.set = 0;
	if (!read_json_take(&json, '{'))
		return;
	do {
		if (!read_json_string(&json, &key) || !read_json_take(&json, ':') ||
		    !read_member(&json, key_find(key), &members, line, names))
			return;
	} while (read_json_take(&json, ','));
	if (!read_json_take(&json, '}') || (read_json_next(&json), json.at != json.end))
		return;
	line->kind = interpret(line, &members, names);
}
