/* SPDX-License-Identifier: Apache-2.0 */

/* The grammar of a script. What a name means, and whether types fit, is for check.c. */

%code requires {
#include "parse-tree.h"
}

%define api.pure full
%define api.prefix {script_yy}
%define api.location.type {struct place}
%define parse.error custom
%define parse.lac full
%locations
%initial-action { @$ = (struct place){ 1, 1 }; }
%lex-param { void *scanner }
%parse-param { void *scanner } { struct script *script }

%union {
	const char *text;
	int64_t number;
	enum op op;
	struct node *node;
	struct probe *probe;
}

%code {
#include <stdio.h>

/* scan.l; its header cannot be read beside the parser's: both define yylex */
int script_scan_lex(YYSTYPE *value, YYLTYPE *place, void *scanner);
int script_scan_lex_init_extra(struct scan *scan, void **scannerp);
struct yy_buffer_state *script_scan__scan_bytes(const char *text, int n, void *scanner);
int script_scan_lex_destroy(void *scanner);

#define YYLLOC_DEFAULT(current, rhs, n) \
	((current) = (n) ? YYRHSLOC(rhs, 1) : YYRHSLOC(rhs, 0))

static int script_yylex(YYSTYPE *value, YYLTYPE *place, void *scanner) {
	return script_scan_lex(value, place, scanner);
}

static void script_yyerror(YYLTYPE *place, void *scanner, struct script *script,
			   const char *message);
static struct node *operation(struct script *script, enum op op, struct place place,
			      struct node *a, struct node *b) {
	return tree_operation(script, b ? NODE_BINARY : NODE_UNARY, op, place, a, b, NULL);
}
}

%token <text> PART "a name" STRING "a string" WORD "a word" LOCAL "a variable" MAP "a map"
%token <number> NUMBER "a number" FLOAT "a decimal number"
%token <op> ASSIGN "+="
%token END_OF_SCRIPT 0 "the end of the script"
%token PREDICATE_BEGIN "/" PREDICATE_END "/ {" IF "if" ELSE "else" UNROLL "unroll"
%token WHILE "while" FOR "for" BREAK "break" CONTINUE "continue"
%token EQ "==" NE "!=" LE "<=" GE ">=" LEFT "<<" RIGHT ">>" BOTH "&&" EITHER "||"
%token INCREMENT "++" DECREMENT "--" SCAN_FAILED "a mistake" SEMICOLON ";"

%type <text> part
%type <probe> probe probes
%type <node> predicate body statements statement simple assignment choice otherwise expression
%type <node> map arguments call target locals

%right '?' ':'
%left EITHER
%left BOTH
%left '|'
%left '^'
%left '&'
%left EQ NE
%left '<' '>' LE GE
%left LEFT RIGHT
%left '+' '-'
%left '*' '/' '%'
%precedence UNARY

%%

script: clause | script clause;

clause: probes predicate body {
		if (!tree_clause(script, $1, $2, $3))
			YYABORT;
	};

probes: probe
	| probes ',' probe {
		struct probe *last = $1;

		while (last->next)
			last = last->next;
		last->next = $3;
		$$ = $1;
	};

probe: part { $$ = tree_probe(script, NULL, @1, $1); if (!$$) YYABORT; }
	| probe ':' { $$ = tree_probe(script, $1, @2, ""); if (script->failed) YYABORT; }
	| probe ':' part { $$ = tree_probe(script, $1, @3, $3); if (script->failed) YYABORT; };

part: PART | STRING;

predicate: %empty { $$ = NULL; }
	| PREDICATE_BEGIN expression PREDICATE_END { $$ = $2; };

body: '{' statements '}' { $$ = $2; }
	| '{' statements simple '}' { $$ = tree_append($2, $3); };

statements: %empty { $$ = NULL; }
	| statements statement { $$ = tree_append($1, $2); };

statement: simple SEMICOLON { $$ = $1; }
	| SEMICOLON { $$ = NULL; }
	| choice
	| UNROLL '(' NUMBER ')' body {
		$$ = tree_operation(script, NODE_UNROLL, OP_NONE, @1, tree_number(script, @3, $3), $5, NULL);
		if (script->failed) YYABORT;
	}
	| WHILE '(' expression ')' body {
		$$ = tree_operation(script, NODE_WHILE, OP_NONE, @1, $3, $5, NULL);
		if (script->failed) YYABORT;
	}
	| FOR '(' locals ':' MAP ')' body {
		$$ = tree_operation(script, NODE_FOR, OP_NONE, @5, $3, $7, NULL);
		if (script->failed) YYABORT;
		$$->text = $5;
	};

locals: LOCAL { $$ = tree_node(script, NODE_LOCAL, @1, $1); }
	| locals ',' LOCAL { $$ = tree_append($1, tree_node(script, NODE_LOCAL, @3, $3)); };

choice: IF '(' expression ')' body otherwise {
		$$ = tree_operation(script, NODE_IF, OP_NONE, @1, $3, $5, $6);
		if (script->failed) YYABORT;
	};

otherwise: %empty { $$ = NULL; }
	| ELSE body { $$ = $2; }
	| ELSE choice { $$ = $2; };

simple: assignment
	| BREAK { $$ = tree_node(script, NODE_BREAK, @1, "break"); }
	| CONTINUE { $$ = tree_node(script, NODE_CONTINUE, @1, "continue"); }
	| call { $$ = tree_operation(script, NODE_DO, OP_NONE, @1, $1, NULL, NULL); if (script->failed) YYABORT; };

assignment: target '=' expression { $$ = tree_operation(script, NODE_ASSIGN, OP_NONE, @1, $1, $3, NULL); if (script->failed) YYABORT; }
	| target ASSIGN expression { $$ = tree_operation(script, NODE_ASSIGN, $2, @1, $1, $3, NULL); if (script->failed) YYABORT; }
	| target INCREMENT { $$ = tree_operation(script, NODE_ASSIGN, OP_ADD, @1, $1, tree_number(script, @2, 1), NULL); }
	| target DECREMENT { $$ = tree_operation(script, NODE_ASSIGN, OP_SUB, @1, $1, tree_number(script, @2, 1), NULL); }
	| INCREMENT target { $$ = tree_operation(script, NODE_ASSIGN, OP_ADD, @1, $2, tree_number(script, @1, 1), NULL); }
	| DECREMENT target { $$ = tree_operation(script, NODE_ASSIGN, OP_SUB, @1, $2, tree_number(script, @1, 1), NULL); };

target: map | LOCAL { $$ = tree_node(script, NODE_LOCAL, @1, $1); };

map: MAP { $$ = tree_node(script, NODE_MAP, @1, $1); }
	| MAP '[' arguments ']' {
		$$ = tree_operation(script, NODE_MAP, OP_NONE, @1, $3, NULL, NULL);
		if (script->failed) YYABORT;
		$$->text = $1;
	};

call: WORD '(' ')' { $$ = tree_node(script, NODE_CALL, @1, $1); }
	| WORD '(' arguments ')' {
		$$ = tree_operation(script, NODE_CALL, OP_NONE, @1, $3, NULL, NULL);
		if (script->failed) YYABORT;
		$$->text = $1;
	};

arguments: expression | arguments ',' expression { $$ = tree_append($1, $3); };

expression: NUMBER { $$ = tree_number(script, @1, $1); }
	| FLOAT { $$ = tree_number(script, @1, $1); if ($$) $$->kind = NODE_FLOAT; }
	| STRING { $$ = tree_node(script, NODE_STRING, @1, $1); }
	| WORD { $$ = tree_node(script, NODE_WORD, @1, $1); }
	| LOCAL { $$ = tree_node(script, NODE_LOCAL, @1, $1); }
	| map
	| call
	| '(' expression ')' { $$ = $2; }
	| '-' expression %prec UNARY { $$ = operation(script, OP_MINUS, @1, $2, NULL); if (script->failed) YYABORT; }
	| '!' expression %prec UNARY { $$ = operation(script, OP_NOT, @1, $2, NULL); if (script->failed) YYABORT; }
	| '~' expression %prec UNARY { $$ = operation(script, OP_INVERT, @1, $2, NULL); if (script->failed) YYABORT; }
	| expression '+' expression { $$ = operation(script, OP_ADD, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '-' expression { $$ = operation(script, OP_SUB, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '*' expression { $$ = operation(script, OP_MUL, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '/' expression { $$ = operation(script, OP_DIV, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '%' expression { $$ = operation(script, OP_MOD, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '&' expression { $$ = operation(script, OP_AND, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '|' expression { $$ = operation(script, OP_OR, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '^' expression { $$ = operation(script, OP_XOR, @2, $1, $3); if (script->failed) YYABORT; }
	| expression LEFT expression { $$ = operation(script, OP_LEFT, @2, $1, $3); if (script->failed) YYABORT; }
	| expression RIGHT expression { $$ = operation(script, OP_RIGHT, @2, $1, $3); if (script->failed) YYABORT; }
	| expression EQ expression { $$ = operation(script, OP_EQ, @2, $1, $3); if (script->failed) YYABORT; }
	| expression NE expression { $$ = operation(script, OP_NE, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '<' expression { $$ = operation(script, OP_LT, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '>' expression { $$ = operation(script, OP_GT, @2, $1, $3); if (script->failed) YYABORT; }
	| expression LE expression { $$ = operation(script, OP_LE, @2, $1, $3); if (script->failed) YYABORT; }
	| expression GE expression { $$ = operation(script, OP_GE, @2, $1, $3); if (script->failed) YYABORT; }
	| expression BOTH expression { $$ = operation(script, OP_BOTH, @2, $1, $3); if (script->failed) YYABORT; }
	| expression EITHER expression { $$ = operation(script, OP_EITHER, @2, $1, $3); if (script->failed) YYABORT; }
	| expression '?' expression ':' expression {
		$$ = tree_operation(script, NODE_CHOICE, OP_NONE, @2, $1, $3, $5);
		if (script->failed) YYABORT;
	};

%%

/* Of the parser itself: its stack is full. */
static void script_yyerror(YYLTYPE *place, void *scanner, struct script *script,
			   const char *message) {
	script_fail(script, *place, "nested too deeply, or too long: %s", message);
}

/* "expected ; or }, not a word". More than four things that could stand there help nobody. */
static int yyreport_syntax_error(const yypcontext_t *context, void *scanner,
				 struct script *script) {
	enum { SHOWN = 4 };
	yysymbol_kind_t expected[YYNTOKENS], found = yypcontext_token(context);
	int n = yypcontext_expected_tokens(context, expected, YYNTOKENS);
	char text[160] = "";
	bool ends = false, begins = false;
	size_t used = 0;

	/* behind an expression an operator could stand, too, but what is missing is the end */
	for (int i = 0; n > SHOWN && i < n; i++) {
		ends |= expected[i] == YYSYMBOL_SEMICOLON;
		begins |= expected[i] == YYSYMBOL_WORD;
	}
	if (ends && !begins)
		used = (size_t)snprintf(text, sizeof(text), "expected ;");
	for (int i = 0; n <= SHOWN && i < n; i++)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s",
					 !i ? "expected " : i == n - 1 ? " or " : ", ",
					 yysymbol_name(expected[i]));
	if (found == YYSYMBOL_SCAN_FAILED)
		return 0;
	script_fail(script, *yypcontext_location(context), "%s%s%s",
		    used ? text : "this cannot stand here: ", used ? ", not " : "",
		    yysymbol_name(found));
	return 0;
}

bool script_parse(struct script *script, const char *text, size_t n_text) {
	struct scan scan = { .script = script, .line = 1, .column = 1 };
	void *scanner;

	if (script_scan_lex_init_extra(&scan, &scanner))
		return script_fail(script, (struct place){ 1, 1 }, "out of memory");
	if (script_scan__scan_bytes(text, (int)n_text, scanner))
		script_yyparse(scanner, script);
	else
		script_fail(script, (struct place){ 1, 1 }, "out of memory");
	script_scan_lex_destroy(scanner);
	return !script->failed;
}
