/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the parts of the image worker that decide something: names, options, which entry of
 * a fatbin.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <elf.h>
#include <errno.h>
#include <sched.h>

#include "daemon/worker/compiler/cubin.h"
#include "image-select.h"
#include "lib/kernel-name.h"
#include "daemon/worker/base/processors.h"
#include "lib/rust-name.h"
#include "daemon/worker/compiler/ptxas-options.h"

static void test_names(void **state) {
	static const struct {
		const char *mangled, *demangled, *qualified, *plain;
	} cases[] = {
		{ "_Z9vectorAddPKfS0_Pfi", "vectorAdd(float const*, float const*, float*, int)",
		  "vectorAdd", "vectorAdd" },
		{ "_ZN2ns6kernelIfEEvPT_", "void ns::kernel<float>(float*)", "ns::kernel<float>",
		  "ns::kernel" },
		/* A return type, arguments and parameters with all kinds of brackets and spaces. */
		{ "_ZN12_GLOBAL__N_11kIiEEvv", "void (anonymous namespace)::k<int>()",
		  "(anonymous namespace)::k<int>", "(anonymous namespace)::k" },
		{ "_Z1fPFivE", "f(int (*)())", "f", "f" },
		{ "_Z1fIPFivEEvT_", "void f<int (*)()>(int (*)())", "f<int (*)()>", "f" },
		{ "_ZN1a1bILi3EEEvRA3_i", "void a::b<3>(int (&) [3])", "a::b<3>", "a::b" },
		{ "_ZN2at6native12_GLOBAL__N_16kernelIZNS0_1fEvEUliE_EEvT_",
		  "void at::native::(anonymous "
		  "namespace)::kernel<at::native::f()::{lambda(int)#1}>(at::native::f()::{lambda("
		  "int)#1})",
		  "at::native::(anonymous namespace)::kernel<at::native::f()::{lambda(int)#1}>",
		  "at::native::(anonymous namespace)::kernel" },
		{ "_ZN1AIiE1kEv", "A<int>::k()", "A<int>::k", "A::k" },
		/* ABI tags, and the hash of Rust's older mangling */
		{ "_ZN6cudapy8__main__3addB2v1B4cw51E5ArrayIfLi1E1CE",
		  "cudapy::__main__::add[abi:v1][abi:cw51](Array<float, 1, C>)",
		  "cudapy::__main__::add", "cudapy::__main__::add" },
		{ "_Z1fB5cxx11IiEvT_", "void f[abi:cxx11]<int>(int)", "f<int>", "f" },
		{ "_ZN4mykr3add17h0123456789abcdefE", "mykr::add::h0123456789abcdef", "mykr::add",
		  "mykr::add" },
		{ "_RNvCs1234_4mykr3add", "mykr::add", "mykr::add", "mykr::add" },
		{ "_RINvCs1234_4mykr3addfE", "mykr::add::<f32>", "mykr::add::<f32>", "mykr::add" },
		{ "_RNvXCs1_4mykrINtB2_6MatrixfENtB2_5Scale5scale",
		  "<mykr::Matrix<f32> as mykr::Scale>::scale",
		  "<mykr::Matrix<f32> as mykr::Scale>::scale", "mykr::Matrix::scale" },
		{ "_Rnonsense", NULL, NULL, NULL },
		{ "plain", NULL, NULL, NULL },
		{ "_Znonsense", NULL, NULL, NULL },
		{ "", NULL, NULL, NULL },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct kernel_name name;

		kernel_name_init(&name, cases[i].mangled);
		assert_int_equal(kernel_name_demangle(&name), 0);
		assert_int_equal(!!name.demangled, !!cases[i].demangled);
		if (cases[i].demangled) {
			assert_string_equal(name.demangled, cases[i].demangled);
			assert_string_equal(name.qualified, cases[i].qualified);
			assert_string_equal(name.plain, cases[i].plain);
			assert_int_equal(kernel_name_match(&name, cases[i].demangled), 1);
			assert_int_equal(kernel_name_match(&name, cases[i].qualified), 1);
			assert_int_equal(kernel_name_match(&name, cases[i].plain), 1);
		}
		assert_int_equal(kernel_name_match(&name, cases[i].mangled), 1);
		assert_int_equal(kernel_name_match(&name, "*"), 1);
		assert_int_equal(kernel_name_match(&name, "else"), 0);
		assert_int_equal(kernel_name_match(&name, "x::*"), 0);
		kernel_name_deinit(&name);
	}
}

/* What RFC 2603 and rustc's own tests have, and what must not be believed. */
static void test_rust(void **state) {
	static const struct {
		const char *mangled, *full, *plain;
	} cases[] = {
		{ "_RNvC6_123foo3bar", "123foo::bar", "123foo::bar" },
		{ "_RNCNvCs1_4mykr3foo0B3_", "mykr::foo::{closure#0}", "mykr::foo::{closure#0}" },
		{ "_RMCs4fqI2P2rA04_13const_genericINtB0_8CharTrueKc74_E",
		  "<const_generic::CharTrue<'t'>>", "const_generic::CharTrue" },
		{ "_RINvNtC3std3mem8align_ofNtNtC3std3mem12DiscriminantE",
		  "std::mem::align_of::<std::mem::Discriminant>", "std::mem::align_of" },
		{ "_RINbNbCskIICzLVPPb_5alloc5alloc8box_freeDINbNiB4_5boxed5FnBoxuEp6OutputuEL_"
		  "ECs1iopQbuBiw2_3std",
		  "alloc::alloc::box_free::<dyn alloc::boxed::FnBox<(), Output = ()>>",
		  "alloc::alloc::box_free" },
		{ "_RINvC1a1bDNtC1c1dp1XuEL_E", "a::b::<dyn c::d<X = ()>>", "a::b" },
		{ "_RINvC1a1bFG_RL0_hEuE", "a::b::<for<'a> fn(&'a u8)>", "a::b" },
		{ "_RINvC1a1bFUKCmERfE", "a::b::<unsafe extern \"C\" fn(u32) -> &f32>", "a::b" },
		{ "_RINvC1a1bAhj4_SxTlETmtEPdOaQzE",
		  "a::b::<[u8; 4], [i64], (i32,), (u32, u16), *const f64, *mut i8, &mut !>",
		  "a::b" },
		{ "_RINvC1a1bKlnf_Kb1_KpKy123456789abcdef01_E",
		  "a::b::<-15, true, _, 0x123456789abcdef01>", "a::b" },
		{ "_RYNvC1a1bNvC1c1d", "<a::b as c::d>", "a::b" },
		{ "_RNvC1a1b.llvm.123", "a::b", "a::b" },
	};
	static const char *const bad[] = {
		"_R",
		"_RC",
		"_RNv",
		"_RNvC1a",
		"_RNvC9a1b",
		"_RNvB_1a",
		"_RNvC1a1b!",
		"_R1NvC1a1b",
		"_RINvC1a1bB99999999999999_E",
		"_RNvCszzzzzzzzzzzzzzzzzzzzzz_1a1b",
		"_RINvC1a1bFG99999_EuE",
		"_RINvC1a1bRL0_hE",
	};
	/* a type that doubles with each tuple, and does not end */
	static const char grows[] = "_RINvC1a1bTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTT"
				    "TTuEB7_EB6_EB5_EB4_EB3_EB2_EB1_E";
	char text[256], small[8], deep[4096] = "_RINvC1a1b";

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_true(rust_name(cases[i].mangled, RUST_NAME_FULL, text, sizeof(text)));
		assert_string_equal(text, cases[i].full);
		assert_true(rust_name(cases[i].mangled, RUST_NAME_PLAIN, text, sizeof(text)));
		assert_string_equal(text, cases[i].plain);
		assert_false(rust_name(cases[i].mangled, RUST_NAME_FULL, small, 4));
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		assert_false(rust_name(bad[i], RUST_NAME_FULL, text, sizeof(text)));
	assert_false(rust_name(grows, RUST_NAME_FULL, text, sizeof(text)));
	memset(deep + strlen(deep), 'S', sizeof(deep) - strlen(deep) - 1);
	assert_false(rust_name(deep, RUST_NAME_FULL, text, sizeof(text)));
}

/* Names that fit into a line. */
static void test_short_names(void **state) {
	static const char *const cases[][2] = {
		{ "_Z9vectorAddPKfS0_Pf", "vectorAdd" },
		{ "_ZN2ns6kernelIfEEvPT_", "ns::kernel" },
		{ "_ZN6cudapy8__main__3addB2v1B4cw51E5ArrayIfLi1E1CE", "cudapy::__main__::add" },
		{ "_Z1fB5cxx11IiEvT_", "f" },
		{ "_ZN4mykr3add17h0123456789abcdefE", "mykr::add" },
		{ "_ZN4mykr17h0123456789abcdegE", "mykr::h0123456789abcdeg" },
		{ "_RNvCs1234_4mykr3add", "mykr::add" },
		{ "_RINvCs1234_4mykr3addfE", "mykr::add" },
		{ "plain", "plain" },
		{ "_Rnonsense", "_Rnonsense" },
	};
	char text[49];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		assert_true(kernel_name_short(cases[i][0], text, sizeof(text)));
		assert_string_equal(text, cases[i][1]);
	}
	assert_false(kernel_name_short("_ZN2ns1fB99xE", text, sizeof(text)));
	assert_false(kernel_name_short("_ZN2ns6kernelIfEEvPT_", text, 4));
}

static void test_names_before_demangling(void **state) {
	struct kernel_name name;

	/* An identifier that is no part of the name is refused without demangling; one that is, is
	 * looked at. */
	kernel_name_init(&name, "_ZN2ns6kernelIfEEvPT_");
	assert_int_equal(kernel_name_match(&name, "vectorAdd"), 0);
	assert_false(name.tried);
	assert_int_equal(kernel_name_match(&name, "kernel"), 0);
	assert_true(name.tried);
	kernel_name_deinit(&name);
}

static void test_options(void **state) {
	static const struct {
		const char *line;
		const char *options[4];
	} cases[] = {
		{ "", {} },
		{ "-O2  -maxrregcount=40 ", { "--opt-level=2", "--maxrregcount=40" } },
		{ "-O 1 --maxrregcount 32", { "--opt-level=1", "--maxrregcount=32" } },
		{ " --fmad false ", { "--fmad=false" } },
		{ "--register-usage-level=3  ", { "--register-usage-level=3" } },
		{ "-uumn --ext-desc-file=\"/usr/local/cuda-13.1/bin/ptxExtDesc.txt\"  ", {} },
		{ "-maxrregcount=96 -v --compile-only  ", { "--maxrregcount=96" } },
		{ "-dlcm=cg -dscm cs -g -lineinfo",
		  { "--def-load-cache=cg", "--def-store-cache=cs", "--device-debug",
		    "--generate-line-info" } },
		/* Values that are none, and files. */
		{ "-O9 -O -1 --maxrregcount=99999 --maxrregcount=-1 --maxrregcount= --fmad maybe",
		  {} },
		{ "--fmad=true\t--output-file=/etc/passwd -o /etc/passwd --options-file=x @x",
		  { "--fmad=true" } },
		{ "--fmad=true --fmad=true", { "--fmad=true" } },
		{ "--maxrregcount", {} },
		{ "--fmad= true", {} },
	};
	struct ptxas_options options;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		size_t n = 0;

		ptxas_options_read(&options, cases[i].line, strlen(cases[i].line));
		while (n < 4 && cases[i].options[n])
			n++;
		assert_int_equal(options.n, n);
		for (size_t j = 0; j < n; j++)
			assert_string_equal(options.options[j], cases[i].options[j]);
	}
	ptxas_options_read(&options, NULL, 0);
	assert_int_equal(options.n, 0);
}

/* An entry as image_select_*() look at it. */
static struct fatbin_entry entry(uint16_t kind, uint32_t sm, char suffix) {
	return (struct fatbin_entry){
		.kind = kind,
		.sm = sm,
		.flags = FATBIN_FLAG_64BIT | (suffix == 'a'   ? FATBIN_FLAG_ARCH_SPECIFIC
					      : suffix == 'f' ? FATBIN_FLAG_FAMILY
							      : 0),
	};
}

static void test_select(void **state) {
	struct fatbin_entry entries[] = {
		entry(FATBIN_KIND_ELF, 75, 0),    entry(FATBIN_KIND_ELF, 80, 0),
		entry(FATBIN_KIND_ELF, 86, 0),    entry(FATBIN_KIND_ELF, 90, 0),
		entry(FATBIN_KIND_ELF, 90, 'a'),  entry(FATBIN_KIND_ELF, 100, 'f'),
		entry(FATBIN_KIND_PTX, 80, 0),    entry(FATBIN_KIND_PTX, 90, 'a'),
		entry(FATBIN_KIND_PTX, 100, 'f'), entry(FATBIN_KIND_PTX, 110, 0),
		entry(FATBIN_KIND_LTO_IR, 89, 0),
	};
	const struct fatbin fatbin = { .entries = entries,
				       .n_entries = sizeof(entries) / sizeof(*entries) };
	static const struct {
		unsigned int capability;
		int code, ptx; /* indexes, -1: none */
	} cases[] = {
		{ 70, -1, -1 }, { 75, 0, -1 },  { 80, 1, 6 },   { 86, 2, 6 },
		{ 87, 2, 6 },   { 89, 2, 6 },   { 90, 4, 7 },   { 100, 5, 8 },
		{ 103, 5, 8 },  { 110, -1, 9 }, { 120, -1, 9 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const struct fatbin_entry *code = image_select_code(&fatbin, cases[i].capability);
		const struct fatbin_entry *ptx = image_select_ptx(&fatbin, cases[i].capability);

		assert_int_equal(code ? code - entries : -1, cases[i].code);
		assert_int_equal(ptx ? ptx - entries : -1, cases[i].ptx);
	}
	/* The source of code is PTX of that number and kind. */
	assert_ptr_equal(image_select_source(&fatbin, 86, &entries[2], 80), &entries[6]);
	assert_null(image_select_source(&fatbin, 86, &entries[2], 86));
	assert_null(image_select_source(&fatbin, 86, &entries[2], 0));
	assert_ptr_equal(image_select_source(&fatbin, 90, &entries[4], 0), &entries[7]);
	assert_null(image_select_source(&fatbin, 90, &entries[3], 90));
	entries[7].container = 1;
	assert_null(image_select_source(&fatbin, 90, &entries[4], 0));
	/* 32-bit code is nobody's. */
	entries[1].flags = 0;
	assert_null(image_select_code(&fatbin, 80));
}

/* The smallest cubin: a symbol table, its strings, section names, a note. */
struct tiny {
	Elf64_Ehdr header;
	Elf64_Shdr sections[5];
	Elf64_Sym symbols[4];
	char strings[32];
	char names[64];
	struct {
		Elf64_Nhdr header;
		char name[12];
		uint16_t version, virtual_sm;
		uint32_t toolkit;
	} note;
};

static void make_tiny(struct tiny *tiny) {
	*tiny = (struct tiny){
		.header = {
			.e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB, 1, 0x41, 8 },
			.e_machine = EM_CUDA,
			.e_shoff = offsetof(struct tiny, sections),
			.e_shnum = 5,
			.e_shentsize = sizeof(Elf64_Shdr), .e_shstrndx = 3,
		},
		.symbols = {
			{ 0 },
			/* A kernel, a function, a kernel that is somewhere else. */
			{ .st_name = 1, .st_info = STT_FUNC, .st_other = 0x10, .st_shndx = 1 },
			{ .st_name = 5, .st_info = STT_FUNC, .st_other = 0, .st_shndx = 1 },
			{ .st_name = 5, .st_info = STT_FUNC, .st_other = 0x10, .st_shndx = 0 },
		},
		.strings = "\0one\0two",
		.names = "\0.symtab\0.strtab\0.shstrtab\0.note.nv.cuinfo\0.text.three",
		.note = { { 12, 8, 1000 }, "NVIDIA Corp", 2, 90, 130 },
	};
	tiny->sections[1] = (Elf64_Shdr){ .sh_name = 1,
					  .sh_type = SHT_SYMTAB,
					  .sh_offset = offsetof(struct tiny, symbols),
					  .sh_size = sizeof(tiny->symbols),
					  .sh_link = 2,
					  .sh_entsize = sizeof(Elf64_Sym) };
	tiny->sections[2] = (Elf64_Shdr){ .sh_name = 9,
					  .sh_type = SHT_STRTAB,
					  .sh_offset = offsetof(struct tiny, strings),
					  .sh_size = sizeof(tiny->strings) };
	tiny->sections[3] = (Elf64_Shdr){ .sh_name = 17,
					  .sh_type = SHT_STRTAB,
					  .sh_offset = offsetof(struct tiny, names),
					  .sh_size = sizeof(tiny->names) };
	tiny->sections[4] = (Elf64_Shdr){ .sh_name = 27,
					  .sh_type = SHT_NOTE,
					  .sh_offset = offsetof(struct tiny, note),
					  .sh_size = sizeof(tiny->note) };
}

static void test_cubin(void **state) {
	struct cubin cubin;
	struct tiny tiny;

	make_tiny(&tiny);
	assert_int_equal(cubin_parse(&cubin, &tiny, sizeof(tiny)), 0);
	assert_int_equal(cubin.n_kernels, 1);
	assert_string_equal(cubin.kernels[0], "one");
	assert_int_equal(cubin.virtual_sm, 90);
	assert_int_equal(cubin.abi_version, 8);
	assert_false(cubin.relocatable);
	cubin_deinit(&cubin);

	/* Without symbols: by its sections. CUDA 12's ABI: the virtual sm is in the flags. */
	tiny.sections[1] = (Elf64_Shdr){ .sh_name = 43, .sh_type = SHT_PROGBITS };
	tiny.header.e_ident[EI_ABIVERSION] = 7;
	tiny.header.e_flags = 0x500550;
	tiny.header.e_type = ET_REL;
	tiny.sections[4].sh_type = SHT_NULL;
	assert_int_equal(cubin_parse(&cubin, &tiny, sizeof(tiny)), 0);
	assert_int_equal(cubin.n_kernels, 1);
	assert_string_equal(cubin.kernels[0], "three");
	assert_int_equal(cubin.virtual_sm, 0x50);
	assert_true(cubin.relocatable);
	cubin_deinit(&cubin);
}

#define CUBIN_CASE(field, value) \
	{ offsetof(struct tiny, field), sizeof(((struct tiny *)0)->field), value }

static void test_cubin_malformed(void **state) {
	static const struct {
		size_t offset, size;
		uint64_t value;
	} cases[] = {
		CUBIN_CASE(header.e_ident[0], 0),
		CUBIN_CASE(header.e_ident[EI_CLASS], ELFCLASS32),
		CUBIN_CASE(header.e_machine, EM_X86_64),
		CUBIN_CASE(header.e_shoff, UINT64_MAX),
		CUBIN_CASE(header.e_shoff, UINT64_MAX - 100),
		CUBIN_CASE(header.e_shnum, 0xffff),
		CUBIN_CASE(header.e_shentsize, 8),
		CUBIN_CASE(header.e_shstrndx, 5),
		CUBIN_CASE(sections[1].sh_offset, UINT64_MAX),
		CUBIN_CASE(sections[1].sh_size, UINT64_MAX),
		CUBIN_CASE(sections[1].sh_entsize, 0),
		CUBIN_CASE(sections[1].sh_link, 99),
		CUBIN_CASE(sections[1].sh_link, 1),
		CUBIN_CASE(sections[2].sh_size, 3),
		CUBIN_CASE(sections[2].sh_offset, sizeof(struct tiny)),
		CUBIN_CASE(symbols[1].st_name, UINT32_MAX),
	};
	struct cubin cubin;
	struct tiny tiny;

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		make_tiny(&tiny);
		memcpy((char *)&tiny + cases[i].offset, &cases[i].value, cases[i].size);
		assert_int_equal(cubin_parse(&cubin, &tiny, sizeof(tiny)), CUBIN_E_MALFORMED);
	}
	/* The symbols once more, as a section of its own. */
	make_tiny(&tiny);
	tiny.sections[4] = tiny.sections[1];
	assert_int_equal(cubin_parse(&cubin, &tiny, sizeof(tiny)), CUBIN_E_MALFORMED);
	/* Every prefix but the whole. The note is last: what is cut of it is a section that lies
	 * outside. */
	make_tiny(&tiny);
	for (size_t size = 0; size < sizeof(tiny); size++) {
		uint8_t *copy = malloc(size + !size);

		memcpy(copy, &tiny, size);
		assert_int_equal(cubin_parse(&cubin, copy, size), CUBIN_E_MALFORMED);
		free(copy);
	}
}

/* A name without end is no name, though the file holds its last byte. */
static void test_cubin_long_name(void **state) {
	const size_t size = sizeof(struct tiny) + (1 << 20);
	struct cubin cubin;
	struct tiny *tiny;

	tiny = calloc(1, size);
	assert_non_null(tiny);
	make_tiny(tiny);
	tiny->sections[2].sh_offset = sizeof(*tiny);
	tiny->sections[2].sh_size = 1 << 20;
	memset(tiny + 1, 'x', (1 << 20) - 1);
	assert_int_equal(cubin_parse(&cubin, tiny, size), CUBIN_E_MALFORMED);
	((char *)(tiny + 1))[1000] = '\0';
	assert_int_equal(cubin_parse(&cubin, tiny, size), 0);
	assert_int_equal(strlen(cubin.kernels[0]), 999);
	cubin_deinit(&cubin);
	free(tiny);
}

/* Whatever stands in a demangled name is found there by a glob, though most names are refused
 * before they are demangled. */
static void test_pieces_of_names(void **state) {
	static const char *const names[] = {
		"_Z9vectorAddPKfS0_Pf",
		"_ZN2ns6kernelIfLi128ELj4ELm7ELb1EEEvPT_",
		"_ZN12_GLOBAL__N_16kernelIZ4mainEUlvE_EEvT_",
		"_Z1fSsSaIcESoSiSd",
		"_ZplRK1AS1_",
		"_ZN1AcviEv",
		"_Z1fDv4_fyxnoDn",
		"_Z1gIXadL_Z1hvEEEvv",
		"_Z1fB5cxx11PrVKc",
		"_ZTV1A",
		"_ZGVZ1fvE1x",
		"_Z1fIJifdEEvDpT_",
		"_ZN1AC1ERKS_",
		"_ZNK1A1fEv",
		"_Z3fooIfEDTcl1gfp_EET_",
		"_Z4funcSt6vectorIhSaIhEE",
		"_ZNSt3mapIiSsE5clearEv",
		"_Z1fPFvjEM1AKFmvE",
		"_Z1kIDdDfEvv",
		"_ZnwmSt11align_val_t",
		"_Z1fILf3f800000EEvv",
		"_ZN3foo3bar3bazIN1A1BEEEvNT_1CE",
		"_Z3runILN2ns4kindE2EEvv.part.0",
	};
	char pattern[80];

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct kernel_name demangled, name;
		size_t length;

		kernel_name_init(&demangled, names[i]);
		assert_int_equal(kernel_name_demangle(&demangled), 0);
		assert_non_null(demangled.demangled);
		length = strlen(demangled.demangled);
		for (size_t from = 0; from < length; from++) {
			for (size_t size = 1; size <= 24 && from + size <= length; size++) {
				snprintf(pattern, sizeof(pattern), "*%.*s*", (int)size,
					 demangled.demangled + from);
				if (strpbrk(pattern + 1, "[]"))
					continue;
				kernel_name_init(&name, names[i]);
				if (kernel_name_match(&name, pattern) != 1)
					fail_msg("%s does not mean %s", pattern,
						 demangled.demangled);
				kernel_name_deinit(&name);
			}
		}
		kernel_name_init(&name, names[i]);
		assert_int_equal(kernel_name_match(&name, "*softmax*"), 0);
		assert_false(name.tried);
		kernel_name_deinit(&name);
		kernel_name_deinit(&demangled);
	}
}

/* No more than the affinity says, whatever the machine and its cgroups have. */
static void test_processors(void **state) {
	cpu_set_t all, one;
	unsigned int n = processors_allowed();

	assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
	assert_in_range(n, 1, CPU_COUNT(&all));
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	assert_int_equal(processors_allowed(), 1);
	assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_rust),
		cmocka_unit_test(test_short_names),
		cmocka_unit_test(test_names_before_demangling),
		cmocka_unit_test(test_pieces_of_names),
		cmocka_unit_test(test_options),
		cmocka_unit_test(test_select),
		cmocka_unit_test(test_cubin),
		cmocka_unit_test(test_cubin_malformed),
		cmocka_unit_test(test_cubin_long_name),
		cmocka_unit_test(test_processors),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
