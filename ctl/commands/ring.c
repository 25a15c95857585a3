/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The command ring read: prints the records of a ring as they come, one a line.
 *
 * A record is printed by the type that --type names, else by that of the map's values, if its size
 * is that of the type (padding aside), because one ring may have records of several kinds. Any
 * other record is printed in hexadecimal.
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ctl/base/ctl.h"
#include "ctl/base/records.h"
#include "names.h"
#include "lib/json.h"
#include "proto/ring-reply.h"
#include "ctl/base/value.h"

static const char help[] =
	"Usage: gpuprobectl ring read [OPTION]... MAP\n"
	"\n"
	"Prints the records of a ring, which is given by its name or id, and takes them out: "
	"process, SM, lane, value. Each record goes\n"
	"to one reader.\n"
	"\n"
	"  -f, --follow       go on until Ctrl-C\n"
	"  -n, --count=COUNT  stop after so many records; more may have been taken out\n"
	"      --type=STRUCT  show records as this struct of the object; else as the map's values\n"
	"      --raw          bytes in hexadecimal\n";

struct reader {
	struct ctl *ctl;
	struct value_types *types; /* NULL: no reply so far */
	struct names names;
	const char *type_name; /* --type, or NULL */
	uint32_t type;
	int64_t type_size;
	bool raw;
	bool type_missing;
	bool in_array; /* JSON: elements of one, not lines */
	size_t n; /* records printed */
	struct records records;
	int64_t n_left; /* records to print; negative: all */
};

/*
 * Takes the types from the first reply. Returns the exit status. Records come with it, and nobody
 * else gets them: without the type that
 * --type names they are shown nevertheless.
 */
static int begin(struct reader *reader, json_object *parameters) {
	int r = ctl_value_types(reader->raw ? NULL : json_member(parameters, "btf"),
				&reader->types);

	if (r)
		return r;
	if (!reader->ctl->json)
		value_types_set_namer(reader->types, names_of, &reader->names);
	if (reader->raw)
		return CTL_OK;
	reader->type = reader->type_name ? value_types_find(reader->types, reader->type_name) : 0;
	if (reader->type_name && !reader->type) {
		ctl_fail(CTL_NOT_FOUND,
			 "--type: the object has no struct %s: records are shown as the map's "
			 "values",
			 reader->type_name);
		reader->type_missing = true;
		reader->type_name = NULL;
	}
	if (!reader->type_name)
		reader->type = (uint32_t)json_int_of(parameters, "btf_value_type");
	reader->type_size = value_types_size(reader->types, reader->type);
	if (reader->type_size <= 0 && !reader->type_missing && !reader->ctl->json &&
	    isatty(STDOUT_FILENO))
		ctl_tell("the map has no type for its records, which are shown as bytes: "
			 "--type=STRUCT shows them as this struct of the object");
	return CTL_OK;
}

/* The bytes by their type; NULL without memory. */
static json_object *read_value(const struct reader *reader, const unsigned char *data,
			       size_t n_data) {
	const int64_t padding = (int64_t)n_data - reader->type_size;
	bool fits = reader->type_size > 0 && padding >= 0 && (reader->type_name || padding < 8);

	return value_json(reader->types, fits ? reader->type : 0, data, n_data);
}

/* 1234 sm 17 lane 3: {.ts = 5} */
static void print_record(const struct reader *reader, const struct ring_reply_batch *batch,
			 unsigned int lane, const unsigned char *data) {
	json_object *value = read_value(reader, data, batch->size), *output;

	if (reader->ctl->json) {
		output = json_object_new_object();
		json_add_int(output, "pid", batch->pid);
		json_add_int(output, "sm", batch->sm);
		json_add_int(output, "lane", lane);
		json_add(output, "record", json_object_get(value));
		fputs(reader->in_array && reader->n ? "," : "", stdout);
		if (reader->in_array)
			ctl_put_json(reader->ctl, output);
		else
			ctl_print_json(reader->ctl, output);
		json_object_put(output);
	} else {
		printf("%u sm %u lane %u: ", batch->pid, batch->sm, lane);
		value_print(value, stdout);
		putchar('\n');
	}
	json_object_put(value);
}

/* Prints batches of proto/ring-reply.h. Returns the exit status, or CTL_STREAM_ENOUGH. */
static int print_batches(struct reader *reader, const unsigned char *data, size_t n_data) {
	struct ring_reply_batch batch;

	while (n_data) {
		if (n_data < sizeof(batch))
			goto fail;
		memcpy(&batch, data, sizeof(batch));
		data += sizeof(batch);
		n_data -= sizeof(batch);
		if (!batch.size || __builtin_popcount(batch.lanes) != (int)batch.count ||
		    (uint64_t)batch.size * batch.count > n_data)
			goto fail;
		for (; batch.lanes; batch.lanes &= batch.lanes - 1) {
			if (!reader->n_left)
				return CTL_STREAM_ENOUGH;
			print_record(reader, &batch, (unsigned int)__builtin_ctz(batch.lanes),
				     data);
			reader->n++;
			reader->n_left -= reader->n_left > 0;
			data += batch.size;
			n_data -= batch.size;
		}
	}
	return reader->n_left ? CTL_OK : CTL_STREAM_ENOUGH;
fail:
	return ctl_fail(CTL_ERROR, "the daemon sent records that make no sense");
}

static int take_records(json_object *parameters, void *userdata) {
	struct reader *reader = userdata;
	int r = reader->types ? CTL_OK : begin(reader, parameters);
	const unsigned char *data;
	size_t n_data;

	if (!r)
		r = records_take(&reader->records, reader->ctl, parameters, "batches", &data,
				 &n_data);
	if (!r)
		r = print_batches(reader, data, n_data);
	records_done(&reader->records);
	return r;
}

/* With the parameters of the command line. Returns the exit status. */
static int read_ring(struct reader *reader, json_object *parameters, const char *map) {
	int r;

	json_add_string(parameters, "map", map);
	json_add_bool(parameters, "raw", true);
	json_add_bool(parameters, "descriptor", true);
	r = ctl_stream(reader->ctl, "ReadRing", parameters, map, take_records, reader);
	records_deinit(&reader->records);
	value_types_free(reader->types);
	names_deinit(&reader->names);
	return r;
}

int ctl_read_ring(struct ctl *ctl, const char *map, bool in_array) {
	struct reader reader = { .ctl = ctl, .names.ctl = ctl, .n_left = -1, .in_array = in_array };

	return read_ring(&reader, json_object_new_object(), map);
}

static int ring_read(struct ctl *ctl, int argc, char **argv) {
	struct reader reader = { .ctl = ctl, .names.ctl = ctl, .n_left = -1 };
	const struct ctl_option options[] = {
		{ "follow", 'f', .key = "follow" },
		{ "count", 'n', .value = CTL_NUMBER, .min = 1, .number = &reader.n_left },
		{ "raw", .flag = &reader.raw },
		{ "type", .value = CTL_TEXT, .text = &reader.type_name },
		{},
	};
	json_object *parameters = json_object_new_object();
	struct ctl_command_line line = { .help = help,
					 .options = options,
					 .parameters = parameters,
					 .arguments = CTL_ONE,
					 .argument = "map" };
	int r;

	r = ctl_parse(ctl, argc, argv, &line);
	if (r < 0 && reader.raw && reader.type_name)
		r = ctl_usage("ring read takes --raw or --type, not both");
	if (r >= 0) {
		json_object_put(parameters);
		return r;
	}
	r = read_ring(&reader, parameters, argv[optind]);
	return r ?: reader.type_missing ? CTL_NOT_FOUND : CTL_OK;
}

int command_ring(struct ctl *ctl, int argc, char **argv) {
	static const struct ctl_command verbs[] = {
		{ "read", ring_read },
		{},
	};

	return ctl_verb(ctl, argc, argv, help, verbs);
}
