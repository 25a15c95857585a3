/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Writes programs and maps as an ELF object, such as clang makes and libbpf reads: a section for
 * each point with its programs, relocations where they name maps, maps and contexts in BTF. Numbers
 * are little-endian, as the GPU and all hosts that it works in.
 */

#include <bpf/btf.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "code.h"

#define MAP_SIZE 32 /* of a map in .maps: four pointers */
#define SECTIONS_MAX (2 * CODE_PROGRAMS_MAX + 8)
#define RELOCATION_64_64 1 /* R_BPF_64_64: the address of a map in a 64-bit constant */

/* Bytes that grow; without memory they stay as they are, and failed is set. */
struct bytes {
	char *data;
	size_t n;
	bool failed;
};

static size_t put(struct bytes *bytes, const void *data, size_t n) {
	const size_t at = bytes->n;
	char *more = bytes->failed ? NULL : realloc(bytes->data, at + n + 1);

	if (!more) {
		bytes->failed = true;
		return 0;
	}
	bytes->data = more;
	memcpy(more + at, data, n);
	bytes->n += n;
	return at;
}

static size_t put_text(struct bytes *bytes, const char *text) {
	return put(bytes, text, strlen(text) + 1);
}

static void align(struct bytes *bytes) {
	static const char zeros[8];

	put(bytes, zeros, (8 - bytes->n % 8) % 8);
}

struct object {
	const struct code *code;
	struct bytes file, strings, symbols;
	size_t n_sections;
	Elf64_Shdr sections[SECTIONS_MAX];
	size_t map_symbols[CODE_MAPS_MAX];
};

/* A section with its bytes. Without a name: it is set later. Returns its number. */
static size_t add_section(struct object *object, const char *name, uint32_t type, uint64_t flags,
			  const void *data, size_t n) {
	Elf64_Shdr *section = &object->sections[object->n_sections];

	align(&object->file);
	*section = (Elf64_Shdr){ .sh_name = name ? (Elf64_Word)put_text(&object->strings, name) : 0,
				 .sh_type = type,
				 .sh_flags = flags,
				 .sh_offset = put(&object->file, data, n),
				 .sh_size = n,
				 .sh_addralign = 8 };
	return object->n_sections++;
}

static void add_symbol(struct object *object, const char *name, unsigned char type, size_t section,
		       size_t value, size_t size) {
	const Elf64_Sym symbol = { .st_name = (Elf64_Word)put_text(&object->strings, name),
				   .st_info = ELF64_ST_INFO(STB_GLOBAL, type),
				   .st_shndx = (Elf64_Section)section,
				   .st_value = value,
				   .st_size = size };

	put(&object->symbols, &symbol, sizeof(symbol));
}

/* ---- BTF ---- */

struct types {
	struct btf *btf;
	int number, word, context[2];
};

/* So many words of 8 bytes: one number, or a struct. */
static int add_words(struct types *types, const char *name, uint32_t n) {
	char member[16];
	int id;

	if (n == 1)
		return types->word;
	id = btf__add_struct(types->btf, name, 8 * n);
	for (uint32_t i = 0; id > 0 && i < n; i++) {
		snprintf(member, sizeof(member), "w%u", i);
		if (btf__add_field(types->btf, member, types->word, 64 * i, 0))
			return -1;
	}
	return id;
}

/* A number as libbpf reads it from a map: a pointer to an array of so many. */
static int add_constant(struct types *types, uint32_t value) {
	return btf__add_ptr(types->btf,
			    btf__add_array(types->btf, types->number, types->number, value));
}

static int add_map(struct types *types, const struct code_map *map) {
	static const char *const names[] = { "type", "max_entries", "key", "value" };
	char name[24];
	int members[4], id;

	members[0] = add_constant(types, map->type);
	members[1] = add_constant(types, map->max_entries);
	snprintf(name, sizeof(name), "%s_key", map->name);
	members[2] =
		btf__add_ptr(types->btf, map->key_words ? add_words(types, name, map->key_words)
							: types->number);
	snprintf(name, sizeof(name), "%s_value", map->name);
	members[3] = btf__add_ptr(types->btf, add_words(types, name, map->value_words));
	id = btf__add_struct(types->btf, NULL, MAP_SIZE);
	for (int i = 0; id > 0 && i < 4; i++)
		if (members[i] <= 0 ||
		    btf__add_field(types->btf, names[i], members[i], 64 * (uint32_t)i, 0))
			return -1;
	return id > 0 ? btf__add_var(types->btf, map->name, BTF_VAR_GLOBAL_ALLOCATED, id) : -1;
}

static bool add_maps(struct types *types, const struct code *code) {
	int ids[CODE_MAPS_MAX];
	uint32_t size = 0;

	for (size_t i = 0; i < code->n_maps; i++) {
		ids[i] = code->maps[i].max_entries ? add_map(types, &code->maps[i]) : 0;
		size += code->maps[i].max_entries ? MAP_SIZE : 0;
		if (ids[i] < 0)
			return false;
	}
	if (btf__add_datasec(types->btf, ".maps", size) < 0)
		return false;
	size = 0;
	for (size_t i = 0; i < code->n_maps; i++) {
		if (!ids[i])
			continue;
		if (btf__add_datasec_var_info(types->btf, ids[i], size, MAP_SIZE))
			return false;
		size += MAP_SIZE;
	}
	return true;
}

/* int NAME(struct CONTEXT *ctx) */
static bool add_programs(struct types *types, const struct code *code) {
	for (size_t i = 0; i < code->n_programs; i++) {
		const struct code_program *program = &code->programs[i];
		const int proto = btf__add_func_proto(types->btf, types->number);

		if (proto < 0 ||
		    btf__add_func_param(types->btf, "ctx", types->context[program->memory]) ||
		    btf__add_func(types->btf, program->name, BTF_FUNC_GLOBAL, proto) < 0)
			return false;
	}
	return true;
}

/* The contexts of gpuprobe.bpf.h: their names decide what the program gets. */
static int add_context(struct types *types, const char *name, uint32_t words) {
	return btf__add_ptr(types->btf, add_words(types, name, words));
}

static struct btf *make_btf(const struct code *code) {
	struct types types = { .btf = btf__new_empty() };

	if (!types.btf)
		return NULL;
	types.number = btf__add_int(types.btf, "int", 4, BTF_INT_SIGNED);
	types.word = btf__add_int(types.btf, "unsigned long long", 8, 0);
	types.context[0] = add_context(&types, "gpuprobe_launch_ctx", 21);
	types.context[1] = add_context(&types, "gpuprobe_memory_ctx", 10);
	if (types.number > 0 && types.word > 0 && types.context[0] > 0 && types.context[1] > 0 &&
	    add_maps(&types, code) && add_programs(&types, code))
		return types.btf;
	btf__free(types.btf);
	return NULL;
}

/* ---- sections ---- */

/* Programs at one point share a section, one behind the other. */
static void add_code_section(struct object *object, const char *name) {
	const struct code *code = object->code;
	struct bytes bytes = {}, relocations = {};
	size_t section = object->n_sections;
	char *relocation_name = NULL;

	for (size_t i = 0; i < code->n_programs; i++) {
		const struct code_program *program = &code->programs[i];
		size_t at;

		if (strcmp(program->section, name))
			continue;
		at = put(&bytes, program->insns, program->n_insns * sizeof(*program->insns));
		add_symbol(object, program->name, STT_FUNC, section, at,
			   program->n_insns * sizeof(*program->insns));
		for (size_t j = 0; j < program->n_references; j++) {
			const struct code_reference *reference = &program->references[j];
			const Elf64_Rel relocation = {
				.r_offset = at + reference->insn * sizeof(struct bpf_insn),
				.r_info = ELF64_R_INFO(object->map_symbols[reference->map],
						       RELOCATION_64_64)
			};

			put(&relocations, &relocation, sizeof(relocation));
		}
	}
	add_section(object, name, SHT_PROGBITS, SHF_ALLOC | SHF_EXECINSTR, bytes.data, bytes.n);
	if (asprintf(&relocation_name, ".rel%s", name) < 0)
		relocation_name = NULL;
	if (relocation_name && relocations.n) {
		size_t number = add_section(object, relocation_name, SHT_REL, SHF_INFO_LINK,
					    relocations.data, relocations.n);

		object->sections[number].sh_info = (Elf64_Word)section;
		object->sections[number].sh_entsize = sizeof(Elf64_Rel);
	}
	object->file.failed |= bytes.failed || relocations.failed || !relocation_name;
	free(relocation_name);
	free(bytes.data);
	free(relocations.data);
}

static bool is_first(const struct code *code, size_t program) {
	for (size_t i = 0; i < program; i++)
		if (!strcmp(code->programs[i].section, code->programs[program].section))
			return false;
	return true;
}

/* The maps are zeros: what they are is in BTF. */
static void add_map_section(struct object *object) {
	const struct code *code = object->code;
	const size_t section = object->n_sections;
	char zeros[MAP_SIZE] = {};
	struct bytes bytes = {};

	for (size_t i = 0; i < code->n_maps; i++) {
		if (!code->maps[i].max_entries)
			continue;
		object->map_symbols[i] = object->symbols.n / sizeof(Elf64_Sym);
		add_symbol(object, code->maps[i].name, STT_OBJECT, section,
			   put(&bytes, zeros, sizeof(zeros)), MAP_SIZE);
	}
	add_section(object, ".maps", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, bytes.data, bytes.n);
	object->file.failed |= bytes.failed;
	free(bytes.data);
}

/* Symbols and strings come last, as all sections add to them. */
static void add_tables(struct object *object) {
	size_t symbols, strings, name;

	symbols = add_section(object, ".symtab", SHT_SYMTAB, 0, object->symbols.data,
			      object->symbols.n);
	name = put_text(&object->strings, ".strtab");
	strings = add_section(object, NULL, SHT_STRTAB, 0, object->strings.data, object->strings.n);
	object->sections[strings].sh_name = (Elf64_Word)name;
	object->sections[symbols].sh_link = (Elf64_Word)strings;
	object->sections[symbols].sh_info = 1; /* the first one that is global */
	object->sections[symbols].sh_entsize = sizeof(Elf64_Sym);
	for (size_t i = 0; i < object->n_sections; i++)
		if (object->sections[i].sh_type == SHT_REL)
			object->sections[i].sh_link = (Elf64_Word)symbols;
}

static void put_header(struct object *object) {
	Elf64_Ehdr header = { .e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					   ELFDATA2LSB, EV_CURRENT },
			      .e_type = ET_REL,
			      .e_machine = EM_BPF,
			      .e_version = EV_CURRENT,
			      .e_ehsize = sizeof(header),
			      .e_shentsize = sizeof(Elf64_Shdr) };

	align(&object->file);
	header.e_shoff = object->file.n;
	header.e_shnum = (Elf64_Half)object->n_sections;
	header.e_shstrndx = (Elf64_Half)(object->n_sections - 1);
	put(&object->file, object->sections, object->n_sections * sizeof(*object->sections));
	if (!object->file.failed)
		memcpy(object->file.data, &header, sizeof(header));
}

void *object_make(const struct code *code, size_t *sizep) {
	struct object *object = calloc(1, sizeof(*object));
	struct btf *btf = make_btf(code);
	const Elf64_Ehdr header = {};
	const Elf64_Sym none = {};
	const void *types = NULL;
	uint32_t n_types = 0;
	void *file = NULL;

	if (object && btf)
		types = btf__raw_data(btf, &n_types);
	if (types) {
		object->code = code;
		object->n_sections = 1;
		put(&object->file, &header, sizeof(header));
		put_text(&object->strings, "");
		put(&object->symbols, &none, sizeof(none));
		add_map_section(object);
		for (size_t i = 0; i < code->n_programs; i++)
			if (is_first(code, i))
				add_code_section(object, code->programs[i].section);
		add_section(object, "license", SHT_PROGBITS, SHF_ALLOC | SHF_WRITE, "GPL", 4);
		add_section(object, ".BTF", SHT_PROGBITS, 0, types, n_types);
		add_tables(object);
		put_header(object);
		if (object->file.failed || object->strings.failed || object->symbols.failed)
			free(object->file.data);
		else
			file = object->file.data;
		*sizep = object->file.n;
		free(object->strings.data);
		free(object->symbols.data);
	}
	btf__free(btf);
	free(object);
	return file;
}
