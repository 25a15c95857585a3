/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Makes the dynamic linker find the shim's trampolines in place of the driver's functions
 * (libcuda.h), from when libcuda.so.1 is in the process.
 *
 * The linker reads an object's symbols where the object's dynamic section says (DT_SYMTAB). There
 * we put a copy of libcuda's table, in which its functions have the addresses of trampolines. So
 * every look-up in libcuda finds ours: dlsym() by any handle, another interposer that looks behind
 * itself, calls that are bound lazily, and libraries that are loaded later. No other library's
 * symbol changes, no symbol is added, and libcuda's own calls stay as they were. Objects that came
 * together with libcuda are bound already: their tables are corrected (imports.c).
 *
 * All this happens within dl_iterate_phdr(), so that no object is unloaded meanwhile, and threads
 * do it one after the other. The lock of dlopen() is not taken: its owner may wait for the lock of
 * dl_iterate_phdr().
 *
 * A program may try one driver after another (a stub of a toolkit first, whose cuInit fails) and
 * unload it: each is found anew. While one has our table, another one beside it stays as it is. A
 * process may have two copies of the shim (/etc/ld.so.preload and LD_PRELOAD): the second one that
 * finds a driver does nothing.
 */

#include "libcuda.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#include "arrival.h"
#include "dlsym.h"
#include "shim/base/elf-object.h"
#include "imports.h"
#include "trampoline.h"

static uintptr_t driver_base; /* of the one that has our table */
static ElfW(Sym) *
	table; /* the copy; that of a driver that has gone is unmapped when another one comes */
static size_t table_size;

/* Only the hash tables say how many symbols there are. */
static size_t count_symbols(uintptr_t base, const ElfW(Dyn) * dynamic) {
	const uint32_t *hash = (const uint32_t *)elf_address(base, dynamic, DT_HASH);
	const uint32_t *gnu = (const uint32_t *)elf_address(base, dynamic, DT_GNU_HASH), *buckets,
		       *chains;
	uint32_t last = 0;

	if (hash)
		return hash[1];
	if (!gnu)
		return 0;
	buckets = gnu + 4 + gnu[2] * sizeof(ElfW(Addr)) / sizeof(*gnu);
	chains = buckets + gnu[0];
	for (uint32_t i = 0; i < gnu[0]; i++)
		last = buckets[i] > last ? buckets[i] : last;
	if (last < gnu[1])
		return gnu[1];
	while (!(chains[last - gnu[1]] & 1))
		last++;
	return last + 1;
}

static bool make_table(size_t count) {
	if (table)
		munmap(table, table_size);
	table_size = count * sizeof(*table);
	table = mmap(NULL, table_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (table == MAP_FAILED)
		table = NULL;
	return table;
}

static bool is_function(const ElfW(Sym) * symbol) {
	return ELF64_ST_TYPE(symbol->st_info) == STT_FUNC &&
	       ELF64_ST_BIND(symbol->st_info) != STB_LOCAL && symbol->st_shndx != SHN_UNDEF;
}

static bool is_driver(const struct dl_phdr_info *object, const ElfW(Dyn) * dynamic) {
	return dynamic && elf_names(object->dlpi_addr, dynamic, DT_SONAME, LIBCUDA);
}

static bool has_our_table(const ElfW(Dyn) * dynamic) {
	return table && elf_value(dynamic, DT_SYMTAB) == (uintptr_t)table;
}

/* Fills our table and own[] by its symbols. */
static void copy_symbols(uintptr_t base, const ElfW(Sym) * symbols, const char *strings,
			 size_t count) {
	for (int i = 0; i < DRIVER_FUNCTION_COUNT; i++)
		driver_function_set_own(i, NULL);
	for (size_t i = 0; i < count; i++) {
		const char *name = strings + symbols[i].st_name;
		void *function = (void *)(base + symbols[i].st_value);
		int index;

		table[i] = symbols[i];
		if (!is_function(&symbols[i]) || !dlsym_is_of_interest(name))
			continue;
		index = driver_function_find(name);
		if (index == DRIVER_FUNCTION_NONE)
			index = driver_function_add(name);
		if (index == DRIVER_FUNCTION_NONE)
			continue;
		driver_function_set_own(index, function);
		table[i].st_value = (uintptr_t)trampoline_function(index) - base;
	}
	for (int i = 0; i < DRIVER_FUNCTION_COUNT; i++)
		trampoline_set(i, driver_function_own(i));
}

/* Which drivers are there: one that has our table, another one. */
struct presence {
	bool ours, other;
};

static int look_at(struct dl_phdr_info *object, size_t size, void *data) {
	struct presence *presence = data;
	const ElfW(Dyn) *dynamic = object_dynamic(object);

	if (is_driver(object, dynamic)) {
		presence->ours |= has_our_table(dynamic);
		presence->other |= !has_our_table(dynamic);
	}
	return presence->ours;
}

static struct presence look(void) {
	struct presence presence = { false, false };

	dl_iterate_phdr(look_at, &presence);
	return presence;
}

static bool is_inside(const struct dl_phdr_info *object, uintptr_t address) {
	for (unsigned i = 0; i < object->dlpi_phnum; i++) {
		const ElfW(Phdr) *segment = &object->dlpi_phdr[i];

		if (segment->p_type == PT_LOAD &&
		    address - object->dlpi_addr - segment->p_vaddr < segment->p_memsz)
			return true;
	}
	return false;
}

/* The first driver gets our table, unless it has that of another copy of the shim. 1 ends the walk.
 */
static int take(struct dl_phdr_info *object, size_t size, void *data) {
	const uintptr_t base = object->dlpi_addr;
	ElfW(Dyn) *dynamic = object_dynamic(object), *entry = dynamic;
	struct object_writer writer = { .object = object };
	const char *strings;
	size_t count;

	if (!is_driver(object, dynamic))
		return 0;
	if (has_our_table(dynamic))
		return 1;
	while (entry->d_tag != DT_SYMTAB && entry->d_tag != DT_NULL)
		entry++;
	count = count_symbols(base, dynamic);
	strings = (const char *)elf_address(base, dynamic, DT_STRTAB);
	if (entry->d_tag != DT_SYMTAB || !count || !is_inside(object, entry->d_un.d_ptr) ||
	    elf_address(base, dynamic, DT_SYMTAB) != entry->d_un.d_ptr || !make_table(count))
		return 1;
	copy_symbols(base, (const ElfW(Sym) *)entry->d_un.d_ptr, strings, count);
	mprotect(table, table_size, PROT_READ);
	driver_base = base;
	__atomic_thread_fence(__ATOMIC_RELEASE);
	object_write(&writer, &entry->d_un.d_ptr, (uintptr_t)table);
	object_end_writing(&writer);
	return 1;
}

static void *instead(const char *name, void *address) {
	int index = driver_function_find(name);

	return address && address == driver_function_own(index) ? trampoline_function(index) : NULL;
}

static int replace_imports(struct dl_phdr_info *object, size_t size, void *data) {
	if (object->dlpi_addr != driver_base)
		imports_replace(object, instead);
	return 0;
}

void libcuda_arrived(void) {
	struct presence presence;
	int saved = errno;

	presence = look();
	if (!presence.ours && presence.other) {
		dl_iterate_phdr(take, NULL);
		dl_iterate_phdr(replace_imports, NULL);
	}
	errno = saved;
}

/*
 * Another thread may be about to load it: dlopen() waits for that. Which objects it loads besides
 * is not known, so none of their tables is written to.
 */
void libcuda_look(void) {
	struct presence presence;
	int saved = errno;
	void *driver;

	presence = look();
	driver = !presence.ours && presence.other ? dlopen(LIBCUDA, RTLD_LAZY | RTLD_NOLOAD) : NULL;
	if (driver) {
		dl_iterate_phdr(take, NULL);
		dlclose(driver);
	}
	errno = saved;
}
