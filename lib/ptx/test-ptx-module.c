/* SPDX-License-Identifier: Apache-2.0 */

/* Unit tests of ptx-module.c and ptx-body.c: module scope and bodies, one trap after another. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

#include "ptx-module.h"

#define HEADER ".version 8.3\n.target sm_90a, debug\n.address_size 64\n"

static struct ptx_module parse(const char *text) {
	struct ptx_error error = { 0 };
	struct ptx_module module;

	if (ptx_module_parse(&module, text, strlen(text), &error))
		fail_msg("%u:%u: %s", error.line, error.column, error.message);
	return module;
}

static struct ptx_body parse_body(const struct ptx_module *module, const char *name) {
	const struct ptx_function *function = ptx_module_find_function(module, name, strlen(name));
	struct ptx_error error = { 0 };
	struct ptx_body body;

	assert_non_null(function);
	if (ptx_body_parse(&body, module, function, &error))
		fail_msg("%u:%u: %s", error.line, error.column, error.message);
	return body;
}

static void assert_range(const char *text, struct ptx_range range, const char *expected) {
	char copy[512];

	assert_true(range.length < sizeof(copy));
	memcpy(copy, text + range.offset, range.length);
	copy[range.length] = '\0';
	assert_string_equal(copy, expected);
}

static void assert_token(const struct ptx_body *body, uint32_t token, const char *expected) {
	assert_in_range(token, 0, body->token_count - 1);
	assert_range(body->module->text,
		     (struct ptx_range){ body->tokens[token].offset, body->tokens[token].length },
		     expected);
}

/* The whole text fails, bodies included, with this message at this place. */
static void assert_error(const char *text, int expected, unsigned int line, unsigned int column,
			 const char *message) {
	struct ptx_error error = { 0 };
	struct ptx_module module;
	struct ptx_body body;
	int r;

	r = ptx_module_parse(&module, text, strlen(text), &error);
	if (!r) {
		for (uint32_t i = 0; i < module.function_count && !r; i++) {
			if (!module.functions[i].body.length)
				continue;
			r = ptx_body_parse(&body, &module, &module.functions[i], &error);
			if (!r)
				ptx_body_deinit(&body);
		}
		ptx_module_deinit(&module);
	}
	if (r != expected || error.line != line || error.column != column ||
	    !strstr(error.message, message))
		fail_msg("'%s': %d, %u:%u: %s", text, r, error.line, error.column, error.message);
}

static void test_header(void **state) {
	struct ptx_module module = parse("// comment\n  " HEADER "//x\n");

	assert_int_equal(module.isa, 83);
	assert_range(module.text, module.isa_range, "8.3");
	assert_int_equal(module.target.number, 90);
	assert_int_equal(module.target.suffix, 'a');
	assert_true(module.target.debug);
	assert_range(module.text, module.target.range, "sm_90a");
	assert_int_equal(module.address_size, 64);
	assert_memory_equal(module.text + module.header_end - 2, "64\n", 3);
	ptx_module_deinit(&module);

	module = parse(".version 6.0 .target compute_35,texmode_independent");
	assert_int_equal(module.target.number, 35);
	assert_int_equal(module.target.suffix, 0);
	assert_true(module.target.texmode_independent);
	assert_int_equal(module.address_size, 64);
	assert_int_equal(module.header_end, module.length);
	ptx_module_deinit(&module);

	assert_error("", PTX_E_SYNTAX, 1, 1, "expected .version, not the end");
	assert_error(".target sm_90\n", PTX_E_SYNTAX, 1, 1, "expected .version");
	assert_error(".version 8\n.target sm_90\n", PTX_E_SYNTAX, 1, 10, "a version like 8.3");
	assert_error(".version 8.33\n.target sm_90\n", PTX_E_SYNTAX, 1, 10, "a version like 8.3");
	assert_error(".version 8.3\n", PTX_E_SYNTAX, 2, 1, "expected .target");
	assert_error(".version 8.3\n.target debug\n", PTX_E_SYNTAX, 3, 1, "a target like sm_90");
	assert_error(".version 8.3\n.target sm_9_0\n", PTX_E_SYNTAX, 2, 9, "a target like sm_90");
	assert_error(".version 8.3\n.target sm_90\n.address_size 16", PTX_E_SYNTAX, 3, 15,
		     "32 or 64");
	assert_error(HEADER ".version 8.3", PTX_E_SYNTAX, 4, 1, "not '.version'");
}

static const char functions_text[] =
	HEADER ".extern .func  (.param .b32 func_retval0) vprintf\n(\n\t.param .b64 "
	       "vprintf_param_0,\n\t.param .b64 vprintf_param_1\n)\n;\n"
	       ".func _Z1fv() .noreturn ;\n"
	       ".visible .entry $k.x(.param .u64 .ptr .global .align 16 $k_param_0, .param .align "
	       "8 .b8 $k_param_1[24], .param .texref t)\n"
	       ".maxntid 128, 1, 1 .minnctapersm 2\n.pragma \"x } {\"; .explicitcluster\n{ ret; /* "
	       "} */ // }\n }\n"
	       ".weak .func (.reg .b32 r) f (.reg .v2 .f32 a, .reg .pred b) { ret; }\n"
	       ".func .attribute(.unified(1, 2)) plain { }\n"
	       ".func _Z1fv() .noreturn { trap; }\n"
	       ".alias other, plain;\n";

static void test_functions(void **state) {
	struct ptx_module module = parse(functions_text);
	const struct ptx_function *function;
	const struct ptx_variable *parameter;

	assert_int_equal(module.function_count, 6);
	function = &module.functions[0];
	assert_range(module.text, function->name, "vprintf");
	assert_int_equal(function->linkage, PTX_LINKAGE_EXTERN);
	assert_false(function->entry);
	assert_int_equal(function->body.length, 0);
	assert_int_equal(function->return_count, 1);
	assert_int_equal(function->parameter_count, 2);
	assert_range(module.text, module.parameters[function->first_parameter + 1].name,
		     "vprintf_param_1");

	function = ptx_module_next_kernel(&module, NULL);
	assert_ptr_equal(function, ptx_module_find_function(&module, "$k.x", 4));
	assert_null(ptx_module_next_kernel(&module, function));
	assert_true(function->entry);
	assert_int_equal(function->linkage, PTX_LINKAGE_VISIBLE);
	assert_range(module.text, function->body, "{ ret; /* } */ // }\n }");
	assert_int_equal(module.text[function->text.offset], '.');
	assert_int_equal(module.text[function->text.offset + function->text.length - 1], '}');
	assert_int_equal(function->parameter_count, 3);
	parameter = &module.parameters[function->first_parameter];
	assert_int_equal(parameter[0].type, PTX_TYPE_U64);
	assert_int_equal(parameter[0].alignment, 0);
	assert_int_equal(parameter[0].space, PTX_SPACE_PARAM);
	assert_range(module.text, parameter[1].text, ".param .align 8 .b8 $k_param_1[24]");
	assert_int_equal(parameter[1].alignment, 8);
	assert_int_equal(parameter[1].size, 24);
	assert_true(parameter[1].array);
	assert_int_equal(parameter[2].type, PTX_TYPE_TEXREF);
	assert_int_equal(function->directive_count, 4);
	assert_range(module.text, ptx_function_directive(&module, function, ".maxntid")->arguments,
		     "128, 1, 1");
	assert_range(module.text, ptx_function_directive(&module, function, ".pragma")->arguments,
		     "\"x } {\"");
	assert_int_equal(
		ptx_function_directive(&module, function, ".explicitcluster")->arguments.length, 0);
	assert_null(ptx_function_directive(&module, function, ".reqntid"));

	function = ptx_module_find_function(&module, "f", 1);
	assert_int_equal(function->linkage, PTX_LINKAGE_WEAK);
	assert_int_equal(module.parameters[function->first_return].space, PTX_SPACE_REG);
	assert_int_equal(module.parameters[function->first_parameter].vector, 2);
	assert_int_equal(module.parameters[function->first_parameter].size, 8);
	assert_int_equal(ptx_module_find_function(&module, "plain", 5)->parameter_count, 0);

	/* a definition is found before its prototype, wherever it stands */
	function = ptx_module_find_function(&module, "_Z1fv", 5);
	assert_range(module.text, function->body, "{ trap; }");
	assert_non_null(ptx_function_directive(&module, function, ".noreturn"));

	assert_true(ptx_module_has_symbol(&module, "other", 5));
	assert_null(ptx_module_find_function(&module, "other", 5));
	assert_false(ptx_module_has_symbol(&module, "$k", 2));
	assert_false(ptx_module_has_symbol(&module, "", 0));
	ptx_module_deinit(&module);
	ptx_module_deinit(&module); /* twice does no harm */
}

static void test_variables(void **state) {
	struct ptx_module module =
		parse(HEADER ".global .align 1 .b8 $str[4] = {37, 100, 10}; .extern .shared .align "
			     "16 .b8 dyn[];\n"
			     ".visible .const .v2 .f32 a[3][5], b = { 1, (2) }, c; .global .u64 "
			     "p=generic(a)+8;\n"
			     ".extern .global .attribute(.managed) .align 4 .b32 m; .const[3] .b32 "
			     "old; .weak.global.s16 w;\n"
			     ".global .samplerref s = {addr_mode_0=clamp_to_edge, "
			     "filter_mode=nearest}; .common .global .b128 q;\n");
	const struct ptx_variable *v = module.variables;

	assert_int_equal(module.variable_count, 11);
	assert_range(module.text, v[0].name, "$str");
	assert_range(module.text, v[0].initializer, "{37, 100, 10}");
	assert_int_equal(v[0].size, 4);
	assert_int_equal(v[1].elements, 0);
	assert_true(v[1].array);
	assert_int_equal(v[1].linkage, PTX_LINKAGE_EXTERN);
	assert_int_equal(v[1].space, PTX_SPACE_SHARED);
	assert_int_equal(v[1].alignment, 16);
	assert_int_equal(v[2].elements, 15);
	assert_int_equal(v[2].size, 120);
	assert_range(module.text, v[3].name, "b");
	assert_range(module.text, v[3].initializer, "{ 1, (2) }");
	assert_range(module.text, v[4].text,
		     ".visible .const .v2 .f32 a[3][5], b = { 1, (2) }, c;");
	assert_int_equal(v[4].linkage, PTX_LINKAGE_VISIBLE);
	assert_range(module.text, v[5].initializer, "generic(a)+8");
	assert_int_equal(v[6].alignment, 4);
	assert_int_equal(v[7].space, PTX_SPACE_CONST);
	assert_int_equal(v[8].linkage, PTX_LINKAGE_WEAK);
	assert_int_equal(v[8].size, 2);
	assert_int_equal(v[9].type, PTX_TYPE_SAMPLERREF);
	assert_int_equal(v[10].size, 16);
	assert_ptr_equal(ptx_module_find_variable(&module, "m", 1), &v[6]);
	assert_null(ptx_module_find_variable(&module, "dy", 2));
	ptx_module_deinit(&module);
	module = parse(HEADER ".extern .global .b32 x;\n.visible .global .b32 x = 3;");
	assert_ptr_equal(ptx_module_find_variable(&module, "x", 1), &module.variables[1]);
	ptx_module_deinit(&module);

	assert_error(HEADER ".global .b32 x", PTX_E_SYNTAX, 4, 15, "not the end");
	assert_error(HEADER ".func f();\n.func f() { ret; }\n.func f() { }", PTX_E_SYNTAX, 6, 7,
		     "f is defined twice");
	assert_error(HEADER ".global .b32 x;\n.const .b16 x;", PTX_E_SYNTAX, 5, 13,
		     "x is defined twice");
	assert_error(HEADER ".global x;", PTX_E_SYNTAX, 4, 9, "expected a type");
	assert_error(HEADER ".global .b32 x = ;", PTX_E_SYNTAX, 4, 18, "initial value");
	assert_error(HEADER ".global .b32 x[4;", PTX_E_SYNTAX, 4, 17, "expected ']'");
	assert_error(HEADER ".global .align 3 .b32 x;", PTX_E_SYNTAX, 4, 16, "power of two");
	assert_error(HEADER ".global .b64 x[0xFFFFFFFFFFFFFFFF];", PTX_E_SYNTAX, 4, 35,
		     "smaller array bound");
	assert_error(HEADER ".global .b32 x = {1, (2};", PTX_E_SYNTAX, 4, 24,
		     "another closing bracket");
	assert_error(HEADER ".global .unheard_of x;", PTX_E_SYNTAX, 4, 9,
		     "expected a type, a state space");
}

/* What ptxas takes and compilers do not write. */
static void test_written_by_hand(void **state) {
	struct ptx_module module =
		parse(".version 8.0\n.target sm_70, debug\n.target sm_90\n.address_size 64\n"
		      ".align 16 .attribute(.managed) .global .b32 m; .visible .align WARP_SZ "
		      ".const .b8 w[WARP_SZ][2];\n"
		      ".global .align 8 .u32 x<3>, y, nothing<0>;\n"
		      ".visible .entry k(.align 8 .param .b8 p[WARP_SZ]) .maxntid WARP_SZ, 2 {\n"
		      ".align 8 .reg .b32 r<WARP_SZ>, s; .align 4 .attribute(.managed) .shared .b8 "
		      "b<12>; .extern .func f (.param .b32 a); ret; }");
	const struct ptx_variable *v = module.variables;
	const struct ptx_function *function = ptx_module_find_function(&module, "k", 1);
	struct ptx_error error;
	struct ptx_body body;

	assert_int_equal(module.target.number, 90);
	assert_range(module.text, module.target.range, "sm_90");
	assert_int_equal(module.variable_count, 4);
	assert_int_equal(v[0].alignment, 16);
	assert_int_equal(v[0].space, PTX_SPACE_GLOBAL);
	assert_range(module.text, v[0].text, ".align 16 .attribute(.managed) .global .b32 m;");
	assert_int_equal(v[1].linkage, PTX_LINKAGE_VISIBLE);
	assert_int_equal(v[1].alignment, 32);
	assert_int_equal(v[1].size, 64);
	assert_int_equal(v[2].count, 3);
	assert_int_equal(v[2].size, 4);
	assert_int_equal(v[3].count, 0);
	assert_ptr_equal(ptx_module_find_variable(&module, "x0", 2), &v[2]);
	assert_ptr_equal(ptx_module_find_variable(&module, "x2", 2), &v[2]);
	assert_ptr_equal(ptx_module_find_variable(&module, "x", 1), &v[2]);
	assert_null(ptx_module_find_variable(&module, "x3", 2));
	assert_null(ptx_module_find_variable(&module, "x02", 3));
	assert_null(ptx_module_find_variable(&module, "y0", 2));
	assert_true(ptx_module_has_symbol(&module, "x1", 2));
	assert_false(ptx_module_has_symbol(&module, "nothing", 7));
	assert_false(ptx_module_has_symbol(&module, "0", 1));
	assert_int_equal(module.parameters[function->first_parameter].size, 32);
	assert_int_equal(module.parameters[function->first_parameter].alignment, 8);
	assert_range(module.text, ptx_function_directive(&module, function, ".maxntid")->arguments,
		     "WARP_SZ, 2");
	assert_int_equal(ptx_body_parse(&body, &module, function, &error), 0);
	assert_int_equal(body.statements[0].kind, PTX_STATEMENT_REGISTERS);
	assert_int_equal(body.statements[0].declaration_count, 2);
	assert_int_equal(body.registers[0].count, 32);
	assert_int_equal(body.statements[1].kind, PTX_STATEMENT_VARIABLE);
	assert_int_equal(body.variables[0].count, 12);
	assert_int_equal(body.variables[0].space, PTX_SPACE_SHARED);
	assert_int_equal(body.statements[2].kind, PTX_STATEMENT_OTHER);
	assert_int_equal(body.statements[3].kind, PTX_STATEMENT_INSTRUCTION);
	ptx_body_deinit(&body);
	ptx_module_deinit(&module);
}

/* An open array has as many elements as are initialized. */
static void test_open_arrays(void **state) {
	static const struct {
		const char *declaration;
		uint64_t elements, size;
	} rows[] = {
		{ ".global .b32 x[]", 0, 0 },
		{ ".global .b32 x[] = {}", 0, 0 },
		{ ".global .b32 x[] = {1, 2, (3)}", 3, 12 },
		{ ".global .u8 x[] = {0xff(y), 0xff00(generic(y)+8)}", 2, 2 },
		{ ".global .b32 x[][3] = {{1, 2, 3}, {4}, {}}", 9, 36 },
		{ ".global .b32 x[][3] = {1, 2, 3, 4}", 6, 24 },
		{ ".global .v2 .b32 x[] = {{1, 2}, {3, 4}, {5, 6}}", 3, 24 },
		{ ".global .v2 .b32 x[] = {1, 2, 3, 4}", 2, 16 },
		{ ".global .b32 x[2] = {1}", 2, 8 },
	};
	char text[256];

	for (unsigned int i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct ptx_module module;

		snprintf(text, sizeof(text), HEADER "%s;", rows[i].declaration);
		module = parse(text);
		assert_int_equal(module.variables[0].elements, rows[i].elements);
		assert_int_equal(module.variables[0].size, rows[i].size);
		ptx_module_deinit(&module);
	}
}

static void test_items(void **state) {
	struct ptx_module module =
		parse(HEADER ".file 1 \"a } b.cu\", 123, 456\n.section .debug_str { $L: .b8 1,2 // "
			     "}\n.b64 .debug_line+4 }\n.pragma \"x;\" , \"y\";\n"
			     ".section\t.debug_loc\n{\n}\n@@DWARF .section .debug_info, "
			     "\"\n@@DWARF\n.loc 1 2 3\n.alias a, b;");

	assert_int_equal(module.item_count, 8);
	assert_int_equal(module.items[1].kind, PTX_ITEM_SECTION);
	assert_int_equal(module.items[2].kind, PTX_ITEM_PRAGMA);
	assert_range(module.text, module.items[2].text, ".pragma \"x;\" , \"y\";");
	assert_int_equal(module.items[4].kind, PTX_ITEM_DWARF);
	assert_range(module.text, module.items[4].text, "@@DWARF .section .debug_info, \"");
	assert_range(module.text, module.items[6].text, ".loc 1 2 3");
	assert_range(module.text, module.items[7].text, ".alias a, b;");
	ptx_module_deinit(&module);

	assert_error(HEADER ".func f() {\n\n/* no end ", PTX_E_SYNTAX, 6, 1, "comment without end");
	assert_error(HEADER ".func f() {\n{ }\n", PTX_E_SYNTAX, 4, 11, "'{' without '}'");
	assert_error(HEADER ".func f() { \" }", PTX_E_SYNTAX, 4, 13, "string without end");
	assert_error(HEADER "}", PTX_E_SYNTAX, 4, 1, "not '}'");
	assert_error(HEADER ".entry (", PTX_E_SYNTAX, 4, 9, "not the end");
	assert_error(HEADER ".entry k(.param .b32 a,)", PTX_E_SYNTAX, 4, 24, "a parameter");
	assert_error(HEADER ".visible k", PTX_E_SYNTAX, 4, 10,
		     "a function, a variable or a directive");
	assert_error(HEADER "hello", PTX_E_SYNTAX, 4, 1, "not 'hello'");
	assert_error(HEADER ".section .x", PTX_E_SYNTAX, 4, 12, "expected '{'");
}

static const char body_text[] = HEADER
	".entry k(.param .u64 p) {\n"
	".reg .b32 %r<33>, x; .reg .v4 .f32 v; .reg.pred p;\n"
	".shared .align 4 .b8 tile[512], q;\n"
	"ret: @p bra ret; @ ! p ld .global.v2 .u32 {%r1,%r2}, [%r3 + 4];\n"
	"{ // }\n .reg .b32 t; .param .b64 param0;\n"
	"call.uni (%r0), // (\n vprintf, \n (\n param0, \n x\n );\n"
	"{ call %r1, (x, (y)), proto; } }\n"
	"proto: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 4 .b8 _[12]);\n"
	"t1: .branchtargets a, b; .calltargets f, g;\n"
	".loc 1 2 3, function_name $L+4, inlined_at 5 6\n a: b:\n.pragma \"no } ret;\";\n"
	"setp.eq.and.u32 p|q, x, 1, !p; .future thing {;}; call plain; call (r), f; ret; }\n";

static void test_body(void **state) {
	struct ptx_module module = parse(body_text);
	struct ptx_body body = parse_body(&module, "k");
	const struct ptx_statement *s = body.statements;
	static const uint8_t kinds[] = {
		PTX_STATEMENT_REGISTERS,
		PTX_STATEMENT_REGISTERS,
		PTX_STATEMENT_REGISTERS,
		PTX_STATEMENT_VARIABLE,
		PTX_STATEMENT_LABEL,
		PTX_STATEMENT_INSTRUCTION,
		PTX_STATEMENT_INSTRUCTION,
		PTX_STATEMENT_SCOPE_OPEN,
		PTX_STATEMENT_REGISTERS,
		PTX_STATEMENT_VARIABLE,
		PTX_STATEMENT_INSTRUCTION,
		PTX_STATEMENT_SCOPE_OPEN,
		PTX_STATEMENT_INSTRUCTION,
		PTX_STATEMENT_SCOPE_CLOSE,
		PTX_STATEMENT_SCOPE_CLOSE,
		PTX_STATEMENT_LABEL,
		PTX_STATEMENT_CALL_PROTOTYPE,
		PTX_STATEMENT_LABEL,
		PTX_STATEMENT_BRANCH_TARGETS,
		PTX_STATEMENT_CALL_TARGETS,
		PTX_STATEMENT_LOC,
		PTX_STATEMENT_LABEL,
		PTX_STATEMENT_LABEL,
		PTX_STATEMENT_PRAGMA,
		PTX_STATEMENT_INSTRUCTION,
		PTX_STATEMENT_OTHER,
		PTX_STATEMENT_INSTRUCTION,
		PTX_STATEMENT_INSTRUCTION,
		PTX_STATEMENT_INSTRUCTION,
	};

	assert_int_equal(body.statement_count, sizeof(kinds));
	for (size_t i = 0; i < sizeof(kinds); i++) {
		assert_int_equal(s[i].kind, kinds[i]);
		assert_int_equal(s[i].first, i ? s[i - 1].end : 0);
	}
	assert_int_equal(s[body.statement_count - 1].end, body.token_count);
	assert_range(module.text, body.registers[0].name, "%r");
	assert_int_equal(body.registers[0].count, 33);
	assert_int_equal(body.registers[1].count, 0);
	assert_int_equal(s[0].declaration_count, 2);
	assert_int_equal(body.registers[2].vector, 4);
	assert_int_equal(body.registers[3].type, PTX_TYPE_PRED);
	assert_int_equal(body.variables[0].size, 512);
	assert_int_equal(body.variables[1].statement, 3);
	assert_int_equal(body.variables[2].space, PTX_SPACE_PARAM);
	assert_token(&body, s[4].first, "ret");
	assert_token(&body, s[5].guard, "p");
	assert_false(s[5].guard_negated);
	assert_true(s[6].guard_negated);
	assert_range(module.text, ptx_statement_text(&body, &s[6]),
		     "@ ! p ld .global.v2 .u32 {%r1,%r2}, [%r3 + 4];");
	assert_int_equal(s[6].operand_count, 2);
	assert_int_equal(s[7].partner, 14);
	assert_int_equal(s[14].partner, 7);
	assert_int_equal(s[11].partner, 13);
	assert_int_equal(s[7].depth, 0);
	assert_int_equal(s[8].depth, 1);
	assert_int_equal(s[12].depth, 2);
	assert_int_equal(s[14].depth, 0);
	assert_int_equal(s[18].operand_count, 2);
	assert_int_equal(s[24].operand_count, 4);
	assert_token(&body, body.operands[s[24].first_operand].first, "p");
	assert_int_equal(body.operands[s[24].first_operand].end -
				 body.operands[s[24].first_operand].first,
			 3);
	ptx_body_deinit(&body);
	ptx_body_deinit(&body);
	ptx_module_deinit(&module);
}

static void test_instructions(void **state) {
	struct ptx_module module = parse(body_text);
	struct ptx_body body = parse_body(&module, "k");
	const struct ptx_statement *s = body.statements;
	struct ptx_call call;

	/* ld .global.v2 .u32 */
	assert_range(module.text, ptx_instruction_part(&body, &s[6], 0), "ld");
	assert_range(module.text, ptx_instruction_part(&body, &s[6], 1), "global");
	assert_range(module.text, ptx_instruction_part(&body, &s[6], 2), "v2");
	assert_range(module.text, ptx_instruction_part(&body, &s[6], 3), "u32");
	assert_int_equal(ptx_instruction_part(&body, &s[6], 4).length, 0);
	assert_int_equal(ptx_instruction_part(&body, &s[4], 0).length, 0); /* a label */
	assert_true(ptx_instruction_is(&body, &s[6], "ld"));
	assert_false(ptx_instruction_is(&body, &s[6], "l"));
	assert_true(ptx_instruction_has(&body, &s[6], "u32"));
	assert_false(ptx_instruction_has(&body, &s[6], "ld"));

	assert_false(ptx_instruction_call(&body, &s[6], &call));
	assert_true(ptx_instruction_call(&body, &s[10], &call));
	assert_token(&body, call.target, "vprintf");
	assert_false(call.indirect);
	assert_int_equal(call.prototype, PTX_NONE);
	assert_int_equal(call.returns_end - call.returns, 1);
	assert_token(&body, call.returns, "%r0");
	assert_int_equal(call.arguments_end - call.arguments, 3);
	assert_token(&body, call.arguments, "param0");

	assert_true(ptx_instruction_call(&body, &s[12], &call));
	assert_true(call.indirect);
	assert_token(&body, call.target, "%r1");
	assert_token(&body, call.prototype, "proto");
	assert_int_equal(call.returns, call.returns_end);

	assert_true(ptx_instruction_call(&body, &s[26], &call));
	assert_token(&body, call.target, "plain");
	assert_int_equal(call.arguments, call.arguments_end);
	assert_true(ptx_instruction_call(&body, &s[27], &call));
	assert_token(&body, call.target, "f");
	ptx_body_deinit(&body);
	ptx_module_deinit(&module);
}

static void test_body_errors(void **state) {
	struct ptx_error error = { 0 };
	struct ptx_module module;
	struct ptx_body body;

	assert_error(HEADER ".entry k() { ret }", PTX_E_SYNTAX, 4, 18, "not the end");
	assert_error(HEADER ".entry k() { { ret } }", PTX_E_SYNTAX, 4, 20, "not '}'");
	assert_error(HEADER ".entry k() { ; }", PTX_E_SYNTAX, 4, 14, "a statement");
	assert_error(HEADER ".entry k() { add a,, b; }", PTX_E_SYNTAX, 4, 20, "an operand");
	assert_error(HEADER ".entry k() { add a, [b; }", PTX_E_SYNTAX, 4, 25, "a closing bracket");
	assert_error(HEADER ".entry k() { add a, (b]; }", PTX_E_SYNTAX, 4, 23,
		     "another closing bracket");
	assert_error(HEADER ".entry k() { @bra; }", PTX_E_SYNTAX, 4, 18, "an instruction");
	assert_error(HEADER ".entry k() { @1 bra x; }", PTX_E_SYNTAX, 4, 15, "a predicate");
	assert_error(HEADER ".entry k() { .reg .b32 %r<x>; }", PTX_E_SYNTAX, 4, 27,
		     "how many there are");
	assert_error(HEADER ".entry k() { .align 8 .reg .b32 %r = 1; }", PTX_E_SYNTAX, 4, 36,
		     "expected ','");
	assert_error(HEADER ".entry k() { .reg .b32 %r<2; }", PTX_E_SYNTAX, 4, 28, "expected '>'");
	assert_error(HEADER ".entry k() { .reg %r; }", PTX_E_SYNTAX, 4, 19, "a type");
	assert_error(HEADER ".entry k() { .loc 1; }", PTX_E_SYNTAX, 4, 20, "number of a line");
	assert_error(HEADER ".entry k() { %r1 = 2; }", PTX_E_SYNTAX, 4, 14, "an instruction");
	assert_error(HEADER ".entry k() { add.u32 a, 0f12, b; }", PTX_E_SYNTAX, 4, 25,
		     "malformed number");

	module = parse(HEADER ".entry k();");
	assert_int_equal(ptx_body_parse(&body, &module, module.functions, &error), PTX_E_SYNTAX);
	assert_non_null(strstr(error.message, "prototype"));
	ptx_module_deinit(&module);
}

/* Brackets and scopes nest to a limit, and no further. */
static void test_nesting(void **state) {
	static const char brackets[] = "({[";
	char text[4096], *at;

	for (unsigned int i = 0; i < 3; i++) {
		at = text + sprintf(text, HEADER ".global .b32 x = ");
		memset(at, brackets[i], PTX_NESTING_MAX + 1);
		at[PTX_NESTING_MAX + 1] = '\0';
		assert_error(text, PTX_E_LIMIT, 4, 18 + PTX_NESTING_MAX, "brackets in brackets");
	}
	for (int extra = 0; extra < 2; extra++) {
		at = text + sprintf(text, HEADER ".func f ");
		memset(at, '{', PTX_NESTING_MAX + extra);
		memset(at + PTX_NESTING_MAX + extra, '}', PTX_NESTING_MAX + extra);
		at[2 * (PTX_NESTING_MAX + extra)] = '\0';
		if (extra)
			assert_error(text, PTX_E_LIMIT, 4, 9 + PTX_NESTING_MAX, "scopes in scopes");
		else
			assert_error(text, 0, 0, 0, "");
	}
}

static void test_size(void **state) {
	struct ptx_error error = { 0 };
	struct ptx_module module;

	assert_int_equal(ptx_module_parse(&module, "", (size_t)PTX_SOURCE_MAX + 1, &error),
			 PTX_E_LIMIT);
	assert_non_null(strstr(error.message, "bytes of PTX"));
}

/* Any prefix of a good text: fails or not, but cleanly (run under sanitizers). */
static void test_prefixes(void **state) {
	static const char *const texts[] = { functions_text, body_text };
	struct ptx_error error;
	struct ptx_module module;
	struct ptx_body body;
	char *copy;

	for (unsigned int i = 0; i < 2; i++) {
		for (size_t length = 0; length < strlen(texts[i]); length++) {
			copy = malloc(length + 1);
			memcpy(copy, texts[i], length);
			copy = realloc(copy, length ?: 1);
			if (!ptx_module_parse(&module, copy, length, &error)) {
				for (uint32_t j = 0; j < module.function_count; j++)
					if (module.functions[j].body.length &&
					    !ptx_body_parse(&body, &module, &module.functions[j],
							    &error))
						ptx_body_deinit(&body);
				ptx_module_deinit(&module);
			}
			free(copy);
		}
	}
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_header),
		cmocka_unit_test(test_functions),
		cmocka_unit_test(test_variables),
		cmocka_unit_test(test_items),
		cmocka_unit_test(test_body),
		cmocka_unit_test(test_instructions),
		cmocka_unit_test(test_body_errors),
		cmocka_unit_test(test_nesting),
		cmocka_unit_test(test_size),
		cmocka_unit_test(test_prefixes),
		cmocka_unit_test(test_written_by_hand),
		cmocka_unit_test(test_open_arrays),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
