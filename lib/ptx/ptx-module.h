/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/*
 * A PTX module as a structure over its text. ptx_module_parse() reads module scope and finds the
 * ends of bodies. ptx_body_parse() reads one body, when it is needed. Both only point into the
 * text. The caller must keep it unchanged for as long as the module lives. Everything is an index
 * or a range, so that a module with half a million statements stays small.
 */

#include "ptx-lexer.h"

#include <stdio.h>

#define PTX_NONE UINT32_MAX /* no index */
#define PTX_NESTING_MAX 256 /* scopes in scopes, brackets in brackets */

enum ptx_linkage {
	PTX_LINKAGE_LOCAL,
	PTX_LINKAGE_EXTERN,
	PTX_LINKAGE_VISIBLE,
	PTX_LINKAGE_WEAK,
	PTX_LINKAGE_COMMON,
};

enum ptx_space {
	PTX_SPACE_NONE,
	PTX_SPACE_REG,
	PTX_SPACE_PARAM,
	PTX_SPACE_GLOBAL,
	PTX_SPACE_CONST,
	PTX_SPACE_SHARED,
	PTX_SPACE_LOCAL,
	PTX_SPACE_TEX,
	PTX_SPACE_SREG,
};

enum ptx_type {
	PTX_TYPE_NONE,
	PTX_TYPE_PRED,
	PTX_TYPE_B8,
	PTX_TYPE_B16,
	PTX_TYPE_B32,
	PTX_TYPE_B64,
	PTX_TYPE_B128,
	PTX_TYPE_U8,
	PTX_TYPE_U16,
	PTX_TYPE_U32,
	PTX_TYPE_U64,
	PTX_TYPE_S8,
	PTX_TYPE_S16,
	PTX_TYPE_S32,
	PTX_TYPE_S64,
	PTX_TYPE_F16,
	PTX_TYPE_F16X2,
	PTX_TYPE_BF16,
	PTX_TYPE_BF16X2,
	PTX_TYPE_F32,
	PTX_TYPE_F64,
	PTX_TYPE_TEXREF,
	PTX_TYPE_SAMPLERREF,
	PTX_TYPE_SURFREF,
	PTX_TYPE_OTHER, /* a type that only instructions use, or a newer one: .tf32, .e4m3, ... */
};

/* ".u32" or "u32" -> PTX_TYPE_U32; PTX_TYPE_NONE if it names no type. */
enum ptx_type ptx_type_from_name(const char *name, size_t length);

/* Bytes of one element; a predicate counts 1, an opaque reference 8, NONE and OTHER 0. */
unsigned int ptx_type_size(enum ptx_type type);

/* A variable at module scope or in a body, or a parameter: one declarator. */
struct ptx_variable {
	struct ptx_range name; /* `_` is a name too */
	/* the statement with its `;`, which its declarators share; a parameter without its comma */
	struct ptx_range text;
	struct ptx_range initializer; /* after `=`; length 0 if there is none */
	/* product of the array bounds; 1 if no array; if one is open, x[], as many as are
	 * initialized */
	uint64_t elements;
	uint64_t size; /* bytes: elements x vector x size of the type */
	uint32_t count; /* x<4> is x0 ... x3, of that size each; 0: it is one, named x */
	uint32_t alignment; /* as written, 0 if not */
	uint32_t statement; /* in a body: the statement that declares it; else PTX_NONE */
	uint8_t linkage; /* enum ptx_linkage */
	uint8_t space; /* enum ptx_space */
	uint8_t type; /* enum ptx_type */
	uint8_t vector; /* 1, 2, 4 or 8 */
	bool array; /* written with [] */
};

/* `.reg .b32 %r<33>` is {name "%r", count 33}: %r0 ... %r32. `.reg .b32 x` has count 0. */
struct ptx_register {
	struct ptx_range name;
	uint32_t count;
	uint32_t statement;
	uint8_t type;
	uint8_t vector;
};

/* `.maxntid 128, 1, 1`: name ".maxntid", arguments "128, 1, 1" (length 0 if there are none). */
struct ptx_directive {
	struct ptx_range name;
	struct ptx_range arguments;
};

struct ptx_function {
	struct ptx_range name;
	struct ptx_range text; /* from the linkage directive to the `}` or `;` */
	struct ptx_range body; /* from `{` to `}`, both included; length 0: a prototype */
	uint32_t first_return, return_count; /* in module->parameters */
	uint32_t first_parameter, parameter_count; /* in module->parameters */
	uint32_t first_directive, directive_count; /* in module->directives */
	uint8_t linkage; /* enum ptx_linkage */
	bool entry; /* a kernel */
};

enum ptx_item_kind {
	PTX_ITEM_FILE, /* .file 1 "x.cu" */
	PTX_ITEM_SECTION, /* .section .debug_info { ... } */
	PTX_ITEM_PRAGMA, /* .pragma "x"; */
	PTX_ITEM_ALIAS, /* .alias a, b; */
	PTX_ITEM_LOC, /* .loc 1 2 3 */
	PTX_ITEM_DWARF, /* @@DWARF ..., the old form of debug sections: a line */
};

/* What else stands at module scope. */
struct ptx_item {
	struct ptx_range text;
	enum ptx_item_kind kind;
};

/* sm_90a is {90, 'a'}, compute_75 and sm_75 are {75, 0}. Of several the last one counts. */
struct ptx_target {
	struct ptx_range range; /* the word itself */
	uint32_t number;
	char suffix;
	bool debug; /* option `debug` */
	bool texmode_independent;
};

struct ptx_module {
	const char *text; /* borrowed */
	uint32_t length;
	uint32_t isa; /* .version 8.3 is 83 (major * 10 + minor) */
	struct ptx_range isa_range; /* the number in .version */
	struct ptx_target target;
	uint32_t address_size; /* 64 or 32; 64 if the module does not say */
	uint32_t header_end; /* offset after .version, .target, .address_size: text may go here */

	struct ptx_function *functions; /* in the order of the text, prototypes too */
	uint32_t function_count;
	struct ptx_variable *variables; /* at module scope */
	uint32_t variable_count;
	struct ptx_variable *parameters;
	uint32_t parameter_count;
	struct ptx_directive *directives;
	uint32_t directive_count;
	struct ptx_item *items;
	uint32_t item_count;

	struct ptx_symbols *symbols; /* private: names -> functions and variables */
};

/*
 * Parses text (kept by the caller). On success *out owns arrays: ptx_module_deinit(). On failure
 * *out is untouched. Returns 0, PTX_E_SYNTAX or PTX_E_LIMIT (error is filled in), or -ENOMEM.
 */
int ptx_module_parse(struct ptx_module *out, const char *text, size_t length,
		     struct ptx_error *error);
void ptx_module_deinit(struct ptx_module *module);

/*
 * The function of that name: the one with a body if there is one, else a prototype; NULL if there
 * is none.
 */
const struct ptx_function *ptx_module_find_function(const struct ptx_module *module,
						    const char *name, size_t length);
/* x<4> is found by the names x0 ... x3, and x. */
const struct ptx_variable *ptx_module_find_variable(const struct ptx_module *module,
						    const char *name, size_t length);

/* Does a function, variable or alias at module scope have this name? */
bool ptx_module_has_symbol(const struct ptx_module *module, const char *name, size_t length);

/* The next kernel (with or without body) after `after`; NULL starts, NULL ends. */
const struct ptx_function *ptx_module_next_kernel(const struct ptx_module *module,
						  const struct ptx_function *after);

/* The first performance directive of that name (".maxntid"), or NULL. */
const struct ptx_directive *ptx_function_directive(const struct ptx_module *module,
						   const struct ptx_function *function,
						   const char *name);

enum ptx_statement_kind {
	PTX_STATEMENT_INSTRUCTION,
	PTX_STATEMENT_LABEL, /* L: -- name is tokens[first] */
	PTX_STATEMENT_REGISTERS, /* .reg ...; */
	PTX_STATEMENT_VARIABLE, /* .local .shared .param .global .const ...; */
	PTX_STATEMENT_SCOPE_OPEN, /* { */
	PTX_STATEMENT_SCOPE_CLOSE, /* } */
	PTX_STATEMENT_LOC, /* .loc ... */
	PTX_STATEMENT_FILE, /* .file ... */
	PTX_STATEMENT_PRAGMA, /* .pragma "...", ...; */
	PTX_STATEMENT_BRANCH_TARGETS, /* .branchtargets L1, L2; -- named by the label before it */
	PTX_STATEMENT_CALL_TARGETS, /* .calltargets f, g; */
	PTX_STATEMENT_CALL_PROTOTYPE, /* .callprototype (.param .b32 _) _ (.param .b64 _); */
	PTX_STATEMENT_SECTION, /* .section ... { } */
	PTX_STATEMENT_OTHER, /* a directive that we do not know, up to its `;` */
};

/*
 * One statement. first, end, guard and opcode are indexes into body->tokens. Of each pair, the
 * second is behind the last, or a count.
 */
struct ptx_statement {
	uint32_t first, end; /* all its tokens, with the `;` or `:` */
	uint32_t guard; /* the predicate of `@%p`; PTX_NONE if there is none */
	/* the mnemonic: `ld.global.u32` is one token, `ld .global .u32` three; else PTX_NONE */
	uint32_t opcode, opcode_end;
	/* in body->operands: of instructions, and the names in .branchtargets and .calltargets */
	uint32_t first_operand, operand_count;
	/* SCOPE_OPEN and SCOPE_CLOSE: the statement at the other end; else PTX_NONE */
	uint32_t partner;
	/* REGISTERS: in body->registers; VARIABLE: in body->variables */
	uint32_t first_declaration, declaration_count;
	uint16_t depth; /* scopes around it; SCOPE_OPEN and SCOPE_CLOSE stand outside theirs */
	uint8_t kind; /* enum ptx_statement_kind */
	bool guard_negated; /* @!%p */
};

/*
 * Tokens of one operand: what stands between top-level commas. `{%f1, %f2}`, `[%rd1+4]` and `(a,
 * b)` are one each.
 */
struct ptx_operand {
	uint32_t first, end;
};

struct ptx_body {
	const struct ptx_module *module; /* borrowed */
	const struct ptx_function *function; /* borrowed */
	struct ptx_token *tokens; /* without the outer braces */
	uint32_t token_count;
	struct ptx_statement *statements;
	uint32_t statement_count;
	struct ptx_operand *operands;
	uint32_t operand_count;
	struct ptx_register *registers;
	uint32_t register_count;
	struct ptx_variable *variables;
	uint32_t variable_count;
};

/* Parses the body of a function that has one. Returns as ptx_module_parse(). */
int ptx_body_parse(struct ptx_body *out, const struct ptx_module *module,
		   const struct ptx_function *function, struct ptx_error *error);
void ptx_body_deinit(struct ptx_body *body);

/*
 * The parts of an instruction's mnemonic, however it was spaced: part 0 of `@p ld.global.u32` is
 * "ld", part 1 "global". A part of length 0 means that there is none. `shared::cluster` is one
 * part.
 */
struct ptx_range ptx_instruction_part(const struct ptx_body *body,
				      const struct ptx_statement *statement, unsigned int part);
bool ptx_instruction_is(const struct ptx_body *body, const struct ptx_statement *statement,
			const char *name);
/* Is there a part of that name after part 0? */
bool ptx_instruction_has(const struct ptx_body *body, const struct ptx_statement *statement,
			 const char *modifier);

/* A call, however many lines it takes. */
struct ptx_call {
	uint32_t target; /* token: a function's name, or a register (indirect) */
	uint32_t prototype; /* token: the label of a .callprototype, .calltargets, or a table of
			       functions; PTX_NONE if direct */
	uint32_t returns,
		returns_end; /* tokens between the first parentheses; equal if there are none */
	uint32_t arguments, arguments_end; /* tokens between the last parentheses */
	bool indirect;
};

/* Is this statement a `call`? Then fills in *call. */
bool ptx_instruction_call(const struct ptx_body *body, const struct ptx_statement *statement,
			  struct ptx_call *call);

/* From the first byte of the statement to the last. */
struct ptx_range ptx_statement_text(const struct ptx_body *body,
				    const struct ptx_statement *statement);

/* Writes `@%p ` or `@!%p ` (negate: the other one) if the statement has a guard. */
void ptx_statement_write_guard(const struct ptx_body *body, const struct ptx_statement *statement,
			       bool negate, FILE *stream);

static inline const char *ptx_body_token_text(const struct ptx_body *body, uint32_t token) {
	return body->module->text + body->tokens[token].offset;
}
