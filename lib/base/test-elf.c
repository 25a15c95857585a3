/* SPDX-License-Identifier: Apache-2.0 */

/* ELF files in memory: a small one at every alignment, cut at each byte, with each field wrong. */

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/elf.h"

enum {
	NONE,
	SYMBOLS,
	STRINGS,
	NAMES,
	ZEROS,
	N_SECTIONS,
};

struct small {
	Elf64_Ehdr header;
	Elf64_Shdr sections[N_SECTIONS];
	Elf64_Sym symbols[2];
	char strings[5];
	char names[35]; /* no padding behind it */
};

#define PLACE(member) \
	.sh_offset = offsetof(struct small, member), .sh_size = sizeof(((struct small *)0)->member)

static void make_small(struct small *small) {
	*small = (struct small){
		.header = {
			.e_ident = { ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB },
			.e_shoff = offsetof(struct small, sections),
			.e_shentsize = sizeof(Elf64_Shdr),
			.e_shnum = N_SECTIONS,
			.e_shstrndx = NAMES,
		},
		.sections = {
			[SYMBOLS] = { .sh_name = 1, .sh_type = SHT_SYMTAB, .sh_link = STRINGS,
				      PLACE(symbols) },
			[STRINGS] = { .sh_name = 9, .sh_type = SHT_STRTAB, PLACE(strings) },
			[NAMES] = { .sh_name = 17, .sh_type = SHT_STRTAB, PLACE(names) },
			[ZEROS] = { .sh_name = 27, .sh_type = SHT_NOBITS, PLACE(strings) },
		},
		.symbols = { [1] = { .st_name = 1, .st_value = 42 } },
		.strings = "\0one",
		.names = "\0.symtab\0.strtab\0.shstrtab\0.bss",
	};
}

static void check_small(const void *bytes) {
	Elf64_Shdr table, strings, section;
	struct elf_view view;
	Elf64_Sym symbol;

	assert_true(elf_view_init(&view, bytes, sizeof(struct small)));
	assert_true(elf_view_find(&view, ".symtab", &table));
	assert_int_equal(table.sh_type, SHT_SYMTAB);
	assert_true(elf_view_section(&view, table.sh_link, &strings));
	assert_string_equal(elf_view_name(&view, &strings), ".strtab");
	assert_true(elf_view_record(&view, &table, 1, &symbol, sizeof(symbol)));
	assert_int_equal(symbol.st_value, 42);
	assert_string_equal(elf_view_string(&view, &strings, symbol.st_name), "one");
	assert_string_equal(elf_view_string(&view, &strings, 4), "");
	assert_ptr_equal(elf_view_content(&view, &strings),
			 (const uint8_t *)bytes + offsetof(struct small, strings));

	assert_false(elf_view_record(&view, &table, 2, &symbol, sizeof(symbol)));
	assert_false(elf_view_record(&view, &table, UINT64_MAX, &symbol, sizeof(symbol)));
	assert_null(elf_view_string(&view, &strings, 5));
	assert_null(elf_view_string(&view, &strings, UINT64_MAX));
	assert_null(elf_view_string(&view, &table, 0));
	assert_false(elf_view_section(&view, N_SECTIONS, &section));
	assert_false(elf_view_section(&view, UINT64_MAX, &section));
	/* what takes no room in the file */
	assert_false(elf_view_find(&view, ".bss", &section));
	assert_true(elf_view_section(&view, ZEROS, &section));
	assert_string_equal(elf_view_name(&view, &section), ".bss");
	assert_null(elf_view_content(&view, &section));
	assert_false(elf_view_find(&view, "", &section));
}

static void test_alignments(void **state) {
	struct small small;

	make_small(&small);
	for (size_t shift = 0; shift < 8; shift++) {
		uint8_t *copy = malloc(shift + sizeof(small));

		assert_non_null(copy);
		memcpy(copy + shift, &small, sizeof(small));
		check_small(copy + shift);
		free(copy);
	}
}

/* Reads all that there is; memory checkers tell if that is too much. The number of texts. */
static unsigned int read_all(const struct elf_view *view) {
	unsigned int texts = 0;
	volatile size_t sum = 0;
	Elf64_Shdr section, strings;
	Elf64_Sym symbol;

	for (uint64_t i = 0; elf_view_section(view, i, &section); i++) {
		const uint8_t *content = elf_view_content(view, &section);
		const char *name = elf_view_name(view, &section);

		texts += name != NULL;
		sum += name ? strlen(name) : 0;
		if (content && section.sh_size)
			sum += content[0] + content[section.sh_size - 1];
		if (!elf_view_section(view, section.sh_link, &strings))
			continue;
		for (uint64_t k = 0; elf_view_record(view, &section, k, &symbol, sizeof(symbol));
		     k++) {
			name = elf_view_string(view, &strings, symbol.st_name);
			texts += name != NULL;
			sum += name ? strlen(name) : 0;
		}
	}
	return texts;
}

/* A file that is cut is one without its last part, or none. */
static void test_cut(void **state) {
	struct elf_view view;
	struct small small;

	make_small(&small);
	assert_true(elf_view_init(&view, &small, sizeof(small)));
	assert_int_equal(read_all(&view), N_SECTIONS + 2);
	for (size_t size = 0; size < sizeof(small); size++) {
		uint8_t *copy = malloc(size ? size : 1);

		assert_non_null(copy);
		memcpy(copy, &small, size);
		assert_int_equal(elf_view_init(&view, copy, size),
				 size >= offsetof(struct small, symbols));
		if (size >= offsetof(struct small, symbols))
			assert_in_range(read_all(&view), 0, 2); /* the names of sections are last */
		free(copy);
	}
}

#define FIELD(member, value) \
	{ offsetof(struct small, member), sizeof(((struct small *)0)->member), value }

static const struct wrong {
	size_t offset, size;
	uint64_t value;
} no_files[] = {
	FIELD(header.e_ident[EI_MAG0], 0),
	FIELD(header.e_ident[EI_CLASS], ELFCLASS32),
	FIELD(header.e_ident[EI_DATA], ELFDATA2MSB),
	FIELD(header.e_shoff, 0),
	FIELD(header.e_shoff, sizeof(struct small)),
	FIELD(header.e_shoff, UINT64_MAX),
	FIELD(header.e_shoff, UINT64_MAX - 63),
	FIELD(header.e_shentsize, 0),
	FIELD(header.e_shentsize, sizeof(Elf64_Shdr) - 1),
	FIELD(header.e_shnum, 0xffff),
}, no_symbols[] = {
	FIELD(sections[SYMBOLS].sh_offset, UINT64_MAX),
	FIELD(sections[SYMBOLS].sh_offset, sizeof(struct small) - 1),
	FIELD(sections[SYMBOLS].sh_size, UINT64_MAX),
	FIELD(sections[SYMBOLS].sh_size, sizeof(Elf64_Sym) - 1),
	FIELD(sections[SYMBOLS].sh_type, SHT_NOBITS),
	FIELD(sections[SYMBOLS].sh_link, N_SECTIONS),
	FIELD(sections[SYMBOLS].sh_link, SYMBOLS),
	FIELD(sections[SYMBOLS].sh_link, UINT32_MAX),
	FIELD(sections[STRINGS].sh_offset, UINT64_MAX - 4),
	FIELD(sections[STRINGS].sh_size, 0),
	FIELD(sections[STRINGS].sh_size, 3), /* the text does not end */
	FIELD(sections[STRINGS].sh_type, SHT_NOBITS),
};

static void spoil(struct small *small, const struct wrong *wrong) {
	make_small(small);
	memcpy((char *)small + wrong->offset, &wrong->value, wrong->size);
}

static void test_wrong_fields(void **state) {
	struct elf_view view;
	struct small small;

	for (size_t i = 0; i < sizeof(no_files) / sizeof(*no_files); i++) {
		spoil(&small, &no_files[i]);
		assert_false(elf_view_init(&view, &small, sizeof(small)));
	}
	for (size_t i = 0; i < sizeof(no_symbols) / sizeof(*no_symbols); i++) {
		spoil(&small, &no_symbols[i]);
		assert_true(elf_view_init(&view, &small, sizeof(small)));
		assert_int_equal(read_all(&view), N_SECTIONS);
	}
	spoil(&small, &(struct wrong)FIELD(header.e_shstrndx, N_SECTIONS));
	assert_true(elf_view_init(&view, &small, sizeof(small)));
	assert_int_equal(read_all(&view), 2);
	spoil(&small, &(struct wrong)FIELD(symbols[1].st_name, UINT32_MAX));
	assert_true(elf_view_init(&view, &small, sizeof(small)));
	assert_int_equal(read_all(&view), N_SECTIONS + 1);
}

/* Counts too large for the header of a file are in its first section; a file may have none. */
static void test_counts(void **state) {
	static const uint64_t too_many[] = { N_SECTIONS + 10, UINT64_MAX, UINT64_MAX / 64 + 2 };
	struct elf_view view;
	struct small small;

	make_small(&small);
	small.header.e_shnum = 0;
	small.header.e_shstrndx = SHN_XINDEX;
	small.sections[0].sh_size = N_SECTIONS;
	small.sections[0].sh_link = NAMES;
	check_small(&small);
	for (size_t i = 0; i < sizeof(too_many) / sizeof(*too_many); i++) {
		small.sections[0].sh_size = too_many[i];
		assert_false(elf_view_init(&view, &small, sizeof(small)));
	}
	small.header.e_shoff = 0;
	assert_true(elf_view_init(&view, &small, sizeof(small)));
	assert_int_equal(view.n_sections, 0);
	assert_int_equal(read_all(&view), 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alignments),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_wrong_fields),
		cmocka_unit_test(test_counts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
