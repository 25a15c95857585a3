/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Marks the calls of kfuncs in an object so that the number of the kfunc survives libbpf's linking
 * (kfunc-link.h). A call has no use for its dst_reg, and libbpf does not change it: it holds the
 * number.
 */

#include "kfunc-link.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/base/elf.h"
#include "lib/bpf/helper-name.h"

#define CALL_KFUNC 2 /* src_reg; <linux/bpf.h> of the build machine may be too old to know it */

/* Notes the calls that one table relocates: numbers[i] is that of the instruction at byte 8 * i. */
static void note_table(const struct elf_view *elf, const Elf64_Shdr *table, uint8_t *numbers) {
	Elf64_Shdr target, symbols, names;
	Elf64_Rel relocation;
	Elf64_Sym symbol;

	if (!elf_view_section(elf, table->sh_info, &target) ||
	    !elf_view_section(elf, table->sh_link, &symbols) ||
	    !elf_view_section(elf, symbols.sh_link, &names) || !(target.sh_flags & SHF_EXECINSTR))
		return;
	for (uint64_t i = 0; elf_view_record(elf, table, i, &relocation, sizeof(relocation)); i++) {
		const uint64_t at = target.sh_offset + relocation.r_offset;
		const char *name;

		if (!elf_view_record(elf, &symbols, ELF64_R_SYM(relocation.r_info), &symbol,
				     sizeof(symbol)) ||
		    symbol.st_shndx != SHN_UNDEF || at % sizeof(struct bpf_insn) || at >= elf->size)
			continue;
		name = elf_view_string(elf, &names, symbol.st_name);
		numbers[at / sizeof(struct bpf_insn)] = name ? (uint8_t)kfunc_find(name) : 0;
	}
}

int kfunc_mark(void *elf, size_t size) {
	struct bpf_insn *insns = elf;
	struct elf_view view;
	Elf64_Shdr section;
	uint8_t *numbers;

	if (!elf_view_init(&view, elf, size))
		return 0;
	/* All is read before anything is written, as an instruction may lie in what is read. */
	numbers = calloc(size / sizeof(*insns) + 1, 1);
	if (!numbers)
		return -ENOMEM;
	for (uint64_t i = 1; elf_view_section(&view, i, &section); i++)
		if (section.sh_type == SHT_REL)
			note_table(&view, &section, numbers);
	for (size_t i = 0; i < size / sizeof(*insns); i++)
		if (numbers[i] && insns[i].code == (BPF_JMP | BPF_CALL))
			insns[i].dst_reg = numbers[i] & 15;
	free(numbers);
	return 0;
}

void kfunc_finish(struct bpf_insn *insns, size_t n_insns) {
	for (size_t i = 0; i < n_insns; i++) {
		if (insns[i].code == (BPF_LD | BPF_IMM | BPF_DW)) {
			i++;
			continue;
		}
		if (insns[i].code != (BPF_JMP | BPF_CALL) || insns[i].src_reg != CALL_KFUNC)
			continue;
		insns[i].imm = kfunc_name(insns[i].dst_reg) ? insns[i].dst_reg : 0;
		insns[i].dst_reg = 0;
		insns[i].off = 0;
	}
}
