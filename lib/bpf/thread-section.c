/* SPDX-License-Identifier: Apache-2.0 */

/* Finds the section .thread of an object, and the variables in it (thread-section.h). */

#include "thread-section.h"

#include <bpf/btf.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/elf.h"

_Static_assert(sizeof(THREAD_SECTION) == sizeof(THREAD_LINKED_SECTION), "renamed in place");

/* The section of data of that name. 0: there is none. */
static uint64_t find_data(const struct elf_view *elf, const char *wanted, Elf64_Shdr *section) {
	for (uint64_t i = 1; elf_view_section(elf, i, section); i++) {
		const char *name = elf_view_name(elf, section);

		if ((section->sh_type == SHT_PROGBITS || section->sh_type == SHT_NOBITS) &&
		    !(section->sh_flags & SHF_EXECINSTR) && name && !strcmp(name, wanted))
			return i;
	}
	return 0;
}

/* Renames what the BTF calls by that name: a section and nothing else has a dot in its name. */
static void rename_in_btf(uint8_t *btf, size_t size) {
	struct btf_header header;
	char *at, *end;

	if (size < sizeof(header))
		return;
	memcpy(&header, btf, sizeof(header));
	if (header.hdr_len > size || header.str_off > size - header.hdr_len ||
	    header.str_len > size - header.hdr_len - header.str_off)
		return;
	at = (char *)btf + header.hdr_len + header.str_off;
	end = at + header.str_len;
	while (at < end) {
		const size_t length = strnlen(at, (size_t)(end - at));

		if (length == sizeof(THREAD_SECTION) - 1 && !memcmp(at, THREAD_SECTION, length))
			memcpy(at, THREAD_LINKED_SECTION, length);
		at += length + 1;
	}
}

int thread_section_mark(void *bytes, size_t size) {
	Elf64_Shdr section, names, other;
	struct elf_view elf;
	uint64_t index;

	if (!elf_view_init(&elf, bytes, size))
		return 0;
	index = find_data(&elf, THREAD_SECTION, &section);
	if (!index)
		return 0;
	if (find_data(&elf, THREAD_LINKED_SECTION, &other))
		return THREAD_SECTION_E_TAKEN;
	for (uint64_t i = 1; elf_view_section(&elf, i, &other); i++)
		if (other.sh_type == SHT_REL && other.sh_info == index)
			return THREAD_SECTION_E_POINTERS;
	if (!elf_view_section(&elf, elf.names, &names))
		return 0;
	if (elf_view_find(&elf, ".BTF", &other) && elf_view_content(&elf, &other))
		rename_in_btf((uint8_t *)bytes + other.sh_offset, other.sh_size);
	memcpy((char *)bytes + names.sh_offset + section.sh_name, THREAD_LINKED_SECTION,
	       sizeof(THREAD_LINKED_SECTION) - 1);
	return THREAD_SECTION_FOUND;
}

void thread_variables_read(struct thread_variables *variables, const struct btf *btf) {
	const int id = btf__find_by_name_kind(btf, THREAD_LINKED_SECTION, BTF_KIND_DATASEC);
	const struct btf_type *section = id > 0 ? btf__type_by_id(btf, (uint32_t)id) : NULL;

	variables->n = 0;
	for (uint16_t i = 0; section && i < btf_vlen(section); i++) {
		const struct btf_var_secinfo *info = btf_var_secinfos(section) + i;
		const struct btf_type *type = btf__type_by_id(btf, info->type);
		const char *name = type ? btf__name_by_offset(btf, type->name_off) : NULL;
		struct thread_variable *variable = &variables->variables[variables->n];

		if (!name || variables->n == THREAD_VARIABLES_MAX)
			continue;
		snprintf(variable->name, sizeof(variable->name), "%s", name);
		variable->offset = info->offset;
		variable->size = info->size;
		variables->n++;
	}
}
