/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Marks the calls of kfuncs in an object so that the number of the kfunc survives libbpf's linking
 * (kfunc-link.h). A call has no use for its dst_reg, and libbpf does not change it: it holds the
 * number.
 */

#include "kfunc-link.h"

#include <elf.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>

#include "lib/bpf/helper-name.h"

#define CALL_KFUNC 2 /* src_reg; <linux/bpf.h> of the build machine may be too old to know it */

/* Notes the calls that one table relocates: numbers[i] is that of the instruction at byte 8 * i. */
static void note_table(const uint8_t *bytes, const Elf64_Shdr *sections, const Elf64_Shdr *table,
		       uint8_t *numbers) {
	const Elf64_Rel *relocations = (const void *)(bytes + table->sh_offset);
	const Elf64_Shdr *target = &sections[table->sh_info], *symbols = &sections[table->sh_link];
	const char *names = (const char *)bytes + sections[symbols->sh_link].sh_offset;
	const Elf64_Sym *all = (const void *)(bytes + symbols->sh_offset);

	if (!(target->sh_flags & SHF_EXECINSTR))
		return;
	for (size_t i = 0; i < table->sh_size / sizeof(*relocations); i++) {
		const Elf64_Sym *symbol = all + ELF64_R_SYM(relocations[i].r_info);
		uint64_t at = target->sh_offset + relocations[i].r_offset;

		if (symbol->st_shndx == SHN_UNDEF && at % sizeof(struct bpf_insn) == 0)
			numbers[at / sizeof(struct bpf_insn)] =
				(uint8_t)kfunc_find(names + symbol->st_name);
	}
}

int kfunc_mark(void *elf, size_t size) {
	const Elf64_Ehdr *header = elf;
	const Elf64_Shdr *sections = (const void *)((const uint8_t *)elf + header->e_shoff);
	struct bpf_insn *insns = elf;
	uint8_t *numbers;

	/* all is read before anything is written, which may be what was to be read */
	numbers = calloc(size / sizeof(*insns) + 1, 1);
	if (!numbers)
		return -ENOMEM;
	for (size_t i = 1; i < header->e_shnum; i++)
		if (sections[i].sh_type == SHT_REL)
			note_table(elf, sections, &sections[i], numbers);
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
