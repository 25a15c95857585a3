/* SPDX-License-Identifier: Apache-2.0 */

/*
 * fatbin-tool: looks into fatbins, wherever they are.
 *
 * A file is mapped, never read whole. Containers are taken from the sections of an ELF file that
 * hold them (.nv_fatbin, __nv_relfatbin) or from the start of a raw fatbin. In anything else
 * (archives, core files, --scan) they are found by their magic number. `verify` takes each
 * container apart and decompresses every payload. It writes the container again twice (entries
 * copied; entries written from their fields), reads that and compares: a good one has gone through
 * the whole codec.
 */

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fatbin.h"
#include "lib/base/clock.h"
#include "lib/base/elf.h"

#define UNCOMPRESSED_MAX (UINT64_C(2) << 30)

enum command {
	COMMAND_LIST,
	COMMAND_EXTRACT,
	COMMAND_VERIFY,
};

struct tool {
	enum command command;
	const char *file;
	const char *directory;
	bool scan;
	bool quiet;
	const uint8_t *data;
	size_t size;
	/* What was seen. */
	uint64_t n_containers, n_entries, n_opaque, n_bad;
	uint64_t n_kinds[4]; /* ptx, elf, lto-ir, other */
	uint64_t bytes_stored, bytes_uncompressed;
};

static void complain(struct tool *tool, const uint8_t *where, const char *what, int r) {
	fprintf(stderr, "fatbin-tool: %s: offset %zu: %s%s%s\n", tool->file,
		(size_t)(where - tool->data), what, r ? ": " : "", r ? fatbin_strerror(r) : "");
	tool->n_bad++;
}

static const char *arch_suffix(const struct fatbin_entry *entry) {
	if (entry->flags & FATBIN_FLAG_ARCH_SPECIFIC)
		return "a";
	return entry->flags & FATBIN_FLAG_FAMILY ? "f" : "";
}

static void list_entry(const struct tool *tool, const struct fatbin_entry *entry) {
	static const char *const compression[] = { "raw", "lz4", "zstd" };

	printf("%" PRIu64 " %-6s sm_%u%s version %u.%u flags 0x%" PRIx64 " %s %" PRIu64,
	       tool->n_containers, fatbin_kind_name(entry->kind), entry->sm, arch_suffix(entry),
	       entry->isa_major, entry->isa_minor, entry->flags,
	       compression[fatbin_entry_compression(entry)], entry->payload_size);
	if (fatbin_entry_compression(entry) != FATBIN_RAW)
		printf(" of %" PRIu64, entry->uncompressed_size);
	if (entry->flags & FATBIN_FLAG_SCRAMBLED)
		printf(" scrambled");
	if (entry->name)
		printf(" name \"%.*s\"", (int)entry->name_size, entry->name);
	if (entry->options_size && !(entry->flags & FATBIN_FLAG_ATTRIBUTES))
		printf(" options \"%.*s\"", (int)entry->options_size, entry->options);
	printf("\n");
}

static int extract_entry(struct tool *tool, const struct fatbin_entry *entry, size_t index) {
	const char *extension = "bin";
	const uint8_t *bytes;
	uint8_t *payload = NULL;
	uint64_t size;
	size_t length;
	char path[4096];
	FILE *file;
	int r;

	if (entry->kind == FATBIN_KIND_PTX) {
		r = fatbin_entry_ptx(entry, UNCOMPRESSED_MAX, (char **)&payload, &length);
		size = length;
		extension = "ptx";
	} else {
		r = fatbin_entry_decompress(entry, UNCOMPRESSED_MAX, &payload, &size);
		extension = entry->kind == FATBIN_KIND_ELF ? "cubin" : "bin";
	}
	bytes = payload;
	if (r == FATBIN_E_OPAQUE) {
		bytes = entry->payload;
		size = entry->payload_size;
		extension = "scrambled";
	} else if (r) {
		complain(tool, entry->raw, "cannot be decompressed", r);
		return 0;
	}
	snprintf(path, sizeof(path), "%s/%" PRIu64 ".%zu.sm_%u%s.%s", tool->directory,
		 tool->n_containers, index, entry->sm, arch_suffix(entry), extension);
	file = fopen(path, "wxe");
	if (!file || fwrite(bytes, 1, size, file) != size || fclose(file)) {
		fprintf(stderr, "fatbin-tool: %s: %m\n", path);
		free(payload);
		return -EIO;
	}
	printf("%s\n", path);
	free(payload);
	return 0;
}

static bool same_bytes(const char *a, size_t a_size, const char *b, size_t b_size) {
	return a_size == b_size && (!a_size || !memcmp(a, b, a_size));
}

/* Writes an entry from its fields, reads that, and compares. NULL: no difference. */
static const char *rewrite_entry(const struct fatbin_entry *entry, const uint8_t *payload,
				 uint64_t size) {
	const struct fatbin_spec spec = {
		.kind = entry->kind,
		.isa_major = entry->isa_major,
		.isa_minor = entry->isa_minor,
		.sm = entry->sm,
		.flags = entry->flags,
		.compression = fatbin_entry_compression(entry),
		.options = entry->options,
		.options_size = entry->options_size,
		.name = entry->name,
		.name_size = entry->name_size,
		.payload = payload,
		.payload_size = size,
	};
	const char *difference = NULL;
	struct fatbin_writer writer = {};
	struct fatbin again = {};
	uint8_t *container = NULL, *payload_again = NULL;
	uint64_t size_again = 0;
	size_t container_size;

	if (fatbin_writer_init(&writer) || fatbin_writer_add(&writer, &spec) ||
	    fatbin_writer_finish(&writer, &container, &container_size) ||
	    fatbin_parse(&again, container, container_size) || again.n_entries != 1 ||
	    again.size != container_size ||
	    fatbin_entry_decompress(&again.entries[0], size, &payload_again, &size_again)) {
		difference = "cannot be written and read again";
	} else {
		const struct fatbin_entry *other = &again.entries[0];

		if (other->kind != entry->kind || other->version != entry->version ||
		    other->isa_major != entry->isa_major || other->isa_minor != entry->isa_minor ||
		    other->sm != entry->sm || other->key != entry->key)
			difference = "a header field was lost";
		else if ((other->flags ^ entry->flags) & ~(uint64_t)FATBIN_FLAGS_COMPRESSION)
			difference = "a flag was lost";
		else if (!same_bytes(other->options, other->options_size, entry->options,
				     entry->options_size))
			difference = "the options were lost";
		else if (!same_bytes(other->name, other->name_size, entry->name, entry->name_size))
			difference = "the name was lost";
		else if (!same_bytes((char *)payload_again, size_again, (const char *)payload,
				     size))
			difference = "the payload changed";
	}
	free(payload_again);
	fatbin_deinit(&again);
	fatbin_writer_deinit(&writer);
	free(container);
	return difference;
}

static void verify_entry(struct tool *tool, const struct fatbin_entry *entry) {
	const char *difference;
	uint8_t *payload;
	uint64_t size;
	int r;

	r = fatbin_entry_decompress(entry, UNCOMPRESSED_MAX, &payload, &size);
	if (r == FATBIN_E_OPAQUE) {
		tool->n_opaque++;
		return;
	}
	if (r) {
		complain(tool, entry->raw, "cannot be decompressed", r);
		return;
	}
	tool->bytes_uncompressed += size;
	difference = rewrite_entry(entry, payload, size);
	if (difference)
		complain(tool, entry->raw, difference, 0);
	else if (entry->kind == FATBIN_KIND_ELF &&
		 (size < SELFMAG || memcmp(payload, ELFMAG, SELFMAG)))
		complain(tool, entry->raw, "an ELF entry holds no ELF file", 0);
	free(payload);
}

/* Does the command for the one container at `data`, which is `size` bytes. */
static int do_container(struct tool *tool, const uint8_t *data, uint64_t size) {
	struct fatbin fatbin;
	int r;

	r = fatbin_parse(&fatbin, data, size);
	if (r) {
		complain(tool, data, "container", r);
		return r < 0 ? r : 0;
	}
	for (size_t i = 0; !r && i < fatbin.n_entries; i++) {
		const struct fatbin_entry *entry = &fatbin.entries[i];

		tool->n_kinds[entry->kind == FATBIN_KIND_PTX      ? 0
			      : entry->kind == FATBIN_KIND_ELF    ? 1
			      : entry->kind == FATBIN_KIND_LTO_IR ? 2
								  : 3]++;
		if (tool->command == COMMAND_LIST && !tool->quiet)
			list_entry(tool, entry);
		else if (tool->command == COMMAND_EXTRACT)
			r = extract_entry(tool, entry, i);
		else if (tool->command == COMMAND_VERIFY)
			verify_entry(tool, entry);
	}
	tool->n_containers++;
	tool->n_entries += fatbin.n_entries;
	tool->bytes_stored += size;
	fatbin_deinit(&fatbin);
	return r;
}

static int ignore_entry(const struct fatbin_entry *entry, void *userdata) {
	return 0;
}

/* Containers one behind the other, zeros between them; `strict`: anything else is an error. */
static int do_range(struct tool *tool, const uint8_t *data, uint64_t size, bool strict) {
	const uint32_t magic = FATBIN_MAGIC;
	uint64_t position = 0, taken;
	int r;

	while (position < size) {
		const uint8_t *found =
			memmem(data + position, size - position, &magic, sizeof(magic));
		uint64_t next = found ? (uint64_t)(found - data) : size;

		for (; strict && position < next; position++) {
			if (data[position]) {
				complain(tool, data + position, "bytes between containers", 0);
				break;
			}
		}
		if (!found)
			break;
		position = next;
		r = fatbin_container_each(found, size - position, &taken, ignore_entry, NULL);
		if (r < 0)
			return r;
		if (r) {
			/* When scanning, four bytes that look like the magic number are no
			 * container. */
			if (strict)
				complain(tool, found, "container", r);
			position += sizeof(magic);
			continue;
		}
		r = do_container(tool, found, taken);
		if (r)
			return r;
		position += taken;
	}
	return 0;
}

static bool is_fatbin_section(const char *name) {
	return !strcmp(name, ".nv_fatbin") || !strcmp(name, "__nv_relfatbin");
}

/* Sections of an ELF64 file that hold fatbins. Positive: there are none, or it is no such file. */
static int do_elf(struct tool *tool) {
	struct elf_view view;
	Elf64_Shdr section;
	bool found = false;

	if (!elf_view_init(&view, tool->data, tool->size))
		return 1;
	for (uint64_t i = 0; elf_view_section(&view, i, &section); i++) {
		const uint8_t *content = elf_view_content(&view, &section);
		const char *name = elf_view_name(&view, &section);
		int r;

		if (!content || !name || !is_fatbin_section(name))
			continue;
		found = true;
		r = do_range(tool, content, section.sh_size, true);
		if (r)
			return r;
	}
	return found ? 0 : 1;
}

static int do_file(struct tool *tool) {
	struct stat status;
	uint32_t magic;
	void *data;
	int fd, r;

	fd = open(tool->file, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &status)) {
		fprintf(stderr, "fatbin-tool: %s: %m\n", tool->file);
		if (fd >= 0)
			close(fd);
		return -EIO;
	}
	tool->size = (size_t)status.st_size;
	data = tool->size ? mmap(NULL, tool->size, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
	close(fd);
	if (data == MAP_FAILED) {
		fprintf(stderr, "fatbin-tool: %s: %m\n", tool->file);
		return -EIO;
	}
	tool->data = data;
	if (tool->scan) {
		r = do_range(tool, data, tool->size, false);
	} else if (tool->size >= sizeof(magic) &&
		   (memcpy(&magic, data, sizeof(magic)), magic == FATBIN_MAGIC)) {
		r = do_range(tool, data, tool->size, true);
	} else {
		r = do_elf(tool);
		if (r > 0)
			r = do_range(tool, data, tool->size, false);
	}
	if (data)
		munmap(data, tool->size);
	return r;
}

static int usage(FILE *file) {
	fprintf(file, "usage: fatbin-tool list [--scan] [--quiet] FILE...\n"
		      "       fatbin-tool extract [--scan] FILE -o DIRECTORY\n"
		      "       fatbin-tool verify [--scan] FILE...\n"
		      "\n"
		      "FILE is a program, library, object, archive or fatbin. --scan looks for "
		      "containers everywhere,\n"
		      "not only in an ELF file's fatbin sections. verify reads, decompresses and "
		      "rewrites all, and compares.\n");
	return file == stdout ? 0 : 2;
}

static int run(struct tool *tool, char *files[], int n_files) {
	const uint64_t start = monotonic_now();
	int r = 0;

	for (int i = 0; i < n_files && !r; i++) {
		tool->file = files[i];
		r = do_file(tool);
	}
	if (tool->command != COMMAND_EXTRACT && !r)
		printf("%" PRIu64 " containers, %" PRIu64 " entries (%" PRIu64 " ptx, %" PRIu64
		       " elf, %" PRIu64 " lto-ir, %" PRIu64 " other), %" PRIu64 " bytes",
		       tool->n_containers, tool->n_entries, tool->n_kinds[0], tool->n_kinds[1],
		       tool->n_kinds[2], tool->n_kinds[3], tool->bytes_stored);
	if (tool->command == COMMAND_VERIFY && !r)
		printf(", %" PRIu64 " bytes uncompressed, %" PRIu64
		       " scrambled entries copied, %" PRIu64 " failures, %.1f s",
		       tool->bytes_uncompressed, tool->n_opaque, tool->n_bad,
		       (double)(monotonic_now() - start) / 1e9);
	if (tool->command != COMMAND_EXTRACT && !r)
		printf("\n");
	return r || tool->n_bad ? 1 : 0;
}

int main(int argc, char *argv[]) {
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' },
		{ "scan", no_argument, NULL, 's' },
		{ "quiet", no_argument, NULL, 'q' },
		{ "help", no_argument, NULL, 'h' },
		{},
	};
	struct tool tool = {};
	int c;

	while ((c = getopt_long(argc, argv, "o:sqh", options, NULL)) >= 0) {
		if (c == 'o')
			tool.directory = optarg;
		else if (c == 's')
			tool.scan = true;
		else if (c == 'q')
			tool.quiet = true;
		else
			return usage(c == 'h' ? stdout : stderr);
	}
	if (argc - optind < 2)
		return usage(stderr);
	if (!strcmp(argv[optind], "list"))
		tool.command = COMMAND_LIST;
	else if (!strcmp(argv[optind], "extract"))
		tool.command = COMMAND_EXTRACT;
	else if (!strcmp(argv[optind], "verify"))
		tool.command = COMMAND_VERIFY;
	else
		return usage(stderr);
	if ((tool.command == COMMAND_EXTRACT) != !!tool.directory)
		return usage(stderr);
	if (tool.directory && mkdir(tool.directory, 0777) && errno != EEXIST) {
		fprintf(stderr, "fatbin-tool: %s: %m\n", tool.directory);
		return 1;
	}
	return run(&tool, argv + optind + 1, argc - optind - 1);
}
