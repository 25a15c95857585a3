/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The front end of gputrace: what is a script, and what is said about one that is none: the place,
 * what is wrong, and a hint. The object that is made for the GPU is read by libbpf.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>
#include <cmocka.h>

#include "code.h"
#include "operate.h"
#include "script.h"
#include "words.h"

static const struct {
	const char *script, *error;
} wrong[] = {
	/* the scanner */
	{ "", "1:1: expected a name or a string, not the end of the script" },
	{ "launch:* { /* }", "1:12: the comment has no end: */" },
	{ "launch:* { @x = \"a }", "1:17: the string has no end: a \" is missing on this line" },
	{ "BEGIN { printf(\"\\q\") }",
	  "1:16: \\q is no escape; there are \\n, \\t, \\\" and \\\\" },
	{ "BEGIN { $x = 12ab }",
	  "1:14: 12ab is no number that can be used: 12, 0x1f, 1_000 and 1e6 are, up to "
	  "9223372036854775807" },
	{ "BEGIN { $x = 9223372036854775808 }",
	  "1:14: 9223372036854775808 is no number that can be used: 12, 0x1f, 1_000 and 1e6 are, "
	  "up to 9223372036854775807" },
	{ "BEGIN { $x = 1e30 }",
	  "1:14: 1e30 is no number that can be used: 12, 0x1f, 1_000 and 1e6 are, up to "
	  "9223372036854775807" },
	{ "thread:f<int> { @ = count() }",
	  "1:9: a name with < in it must be quoted, as in thread:\"f<int>\"" },
	{ "BEGIN { $ = 1 }", "1:9: $ needs a name: $x" },
	{ "BEGIN { $x = #1 }", "1:14: a script has no # here" },
	/* the parser */
	{ "launch:*", "1:9: expected /, ':', ',' or '{', not the end of the script" },
	{ "launch:* { @x = count() @y = count() }", "1:25: expected ;, not a map" },
	{ "launch:*\n{\n  $x = 1 +;\n}", "3:11: this cannot stand here: ;" },
	{ "launch:* { if (1) $x = 2; }", "1:19: expected '{', not a variable" },
	{ "launch:* { 5 }", "1:12: this cannot stand here: a number" },
	{ "a:b:c:d:e:f:g:h:i { }", "1:17: a probe has at most 8 parts" },
	/* probes */
	{ "thrad:x { }", "1:1: there is no probe thrad:; did you mean thread?" },
	{ "qqqqqqqqq:x { }", "1:1: there is no probe qqqqqqqqq:; gputrace -l lists the probes" },
	{ "barrier:f { }",
	  "1:1: barrier: is not in this version; gpuprobectl attach has kprobe/K@barrier" },
	{ "mem:f:loud { }", "1:1: mem: \"loud\" cannot stand there; it is "
			    "mem:KERNEL[:global|shared|local][:load|store|atomic]" },
	{ "mem:f, mem.thread:f { }",
	  "1:8: mem: and mem.thread: cannot share a body: events of mem: are "
	  "of whole warps" },
	{ "mem:f { @ = sum(addr) }",
	  "1:17: addr is of one lane: any all sum min max first say of which, as in first(addr)" },
	{ "mem:f { @ = sum(sum(lanes)) }", "1:21: lanes is of the whole warp, not of one lane" },
	{ "mem:f { @ = sum(any(all(addr))) }", "1:21: all() cannot stand in another one of lanes" },
	{ "mem.thread:f { @ = sum(any(addr)) }",
	  "1:24: any() is of all lanes of a warp: mem:KERNEL has it" },
	{ "mem:f { $x = 1; @ = sum(any($x)) }",
	  "1:29: $x is not known in each lane: words, numbers and operators are" },
	{ "mem:f { first(addr) }", "1:9: first() is a value: @x = sum(first(addr))" },
	{ "mem.thread:f { @ = sum(sectors) }",
	  "1:24: mem.thread: has no sectors; mem:KERNEL has it" },
	{ "block:f { @ = sum(lane) }", "1:19: block: has no lane; thread:KERNEL has it" },
	{ "warp:f { @ = sum(threadid) }", "1:18: warp: has no threadid; thread:KERNEL has it" },
	{ "grid:f:end { @ = sum(blockid) }", "1:22: grid: has no blockid; thread:KERNEL has it" },
	{ "grid:f { @ = sum(duration) }", "1:18: grid: has no duration; with :end it is there" },
	{ "module:lode { }", "1:1: module is written module:load or module:unload" },
	{ "process:exited { }",
	  "1:1: process: is of seen, fork, exec or exit, not \"exited\"; did you mean exit?" },
	{ "process: { @ = sum(args.stat) }",
	  "1:20: no event of this probe has an argument stat; did you mean status?" },
	{ "driver:cuLaunchKernelEx { @ = max(args.sharedMemByte) }",
	  "1:35: no event of this probe has an argument sharedMemByte; did you mean "
	  "sharedMemBytes?" },
	{ "idle:x { }", "1:1: idle is written idle:" },
	{ "launch:f { @ = sum(duration) }",
	  "1:20: launch: has no duration; with :end it is there" },
	{ "kprobe:f { }", "1:1: kprobe: is not in this version; bpftrace has it; of GPU kernels: "
			  "thread:" },
	{ "thread { }", "1:1: thread is written thread:KERNEL[:end]" },
	{ "thread: { }", "1:1: thread is written thread:KERNEL[:end]" },
	{ "thread:a:b { }", "1:1: thread is written thread:KERNEL[:end]; a name with a : in it "
			    "must be quoted" },
	{ "launch:f:g { }",
	  "1:1: launch is written launch:KERNEL[:end]; a name with a : in it must be "
	  "quoted" },
	{ "thread:\"a@b\" { }",
	  "1:1: a name has printable characters other than @; * stands for any" },
	{ "thread:\"dev:f\" { }", "1:1: \"dev:f\" cannot be the name of a kernel; func: is for "
				  "device functions" },
	{ "thread:__memcapture { }", "1:1: \"__memcapture\" cannot be the name of a kernel" },
	{ "interval:h:1 { }", "1:1: interval:h: the unit is s or ms, as in interval:s:1" },
	{ "interval:s:0 { }", "1:1: interval: expected a number from 1 to 86400, not \"0\"" },
	{ "line:a.cu:x { }", "1:1: line: expected a number from 1 to 4294967294, not \"x\"" },
	{ "mem.thread:f:load:global { }",
	  "1:1: mem.thread: \"global\" cannot stand there; it is "
	  "mem.thread:KERNEL[:global|shared|local][:load|store|atomic]" },
	{ "driver:cuMemAloc { }",
	  "1:1: driver: the driver has no such function: cuMemAloc; did you mean cuMemAlloc?" },
	{ "thread:f, launch:f { }",
	  "1:11: thread: and launch: cannot share a body, one is on the host and one on the GPU: "
	  "write it twice" },
	/* words */
	{ "launch:* { @[kernle] = count() }", "1:14: there is no kernle; did you mean kernel?" },
	{ "launch:* { @[qqqqqqqq] = count() }",
	  "1:14: there is no qqqqqqqq; gputrace --help lists the words" },
	{ "thread:f { @[tid] = count() }",
	  "1:14: thread: has no tid; the thread of the GPU is threadid" },
	{ "thread:f { @ = max(nsecs) }", "1:20: thread: has no nsecs; with :end there is duration, "
					 "and gputime is the GPU's clock" },
	{ "thread:f { @ = max(duration) }",
	  "1:20: thread: has no duration; with :end it is there" },
	{ "launch:f { @ = max(lane) }", "1:20: launch: has no lane; thread:KERNEL has it" },
	{ "thread:f { @ = max(addr) }", "1:20: thread: has no addr; mem.thread:KERNEL has it" },
	{ "interval:s:1 { @ = max(grid) }", "1:24: interval: has no grid; launch:KERNEL has it" },
	{ "launch:f { @ = max(retval) }", "1:20: launch: has no retval; driver:FUNCTION has it" },
	{ "driver:cuMemAlloc_v2 { @ = sum(args.bytsize) }",
	  "1:32: no event of this probe has an argument bytsize; did you mean bytesize?" },
	{ "driver:cuMemAlloc_v2 { @ = sum(args) }",
	  "1:32: args is all arguments of a call: say which, as in args.bytesize" },
	/* variables and types */
	{ "launch:f { @ = sum($x) }", "1:20: $x has no value yet: $x = ... comes first" },
	{ "launch:f { $x += 1 }", "1:12: $x has no value yet: $x = ... comes first" },
	{ "launch:f { $x = 1; $x = kernel }", "1:25: $x was given another type before" },
	{ "thread:f { @ = sum(kernel) }",
	  "1:20: kernel is a name here, not a number: it can be the key of a map" },
	{ "thread:f { $x = kernel }",
	  "1:17: kernel is a name here, not a number: it can be the key of a map" },
	{ "launch:f { @ = sum(kernel) }", "1:20: sum takes numbers, this is a text" },
	{ "launch:f /kernel/ { }", "1:11: a predicate takes numbers, this is a text" },
	{ "launch:f /kernel == 1/ { }", "1:18: a text and a number are never equal" },
	{ "thread:f /kernel == 1/ { }",
	  "1:18: a kernel cannot be compared on the GPU: say which one in the probe, as in "
	  "thread:NAME" },
	{ "thread:f { @[\"a\"] = count() }", "1:14: there are no texts on the GPU" },
	{ "launch:f { $x = 1 ? 2 : kernel }", "1:19: both sides of : have the same type" },
	{ "launch:f { $x = 1 / 0 }", "1:21: division by zero" },
	{ "launch:f { unroll(0) { } }", "1:12: unroll takes a number from 1 to 100" },
	{ "BEGIN { unroll(100) { unroll(100) { unroll(2) { } } } }",
	  "1:37: unroll in unroll: more than 10000 rounds in all" },
	/* maps */
	{ "launch:f { @a = count(); @a = sum(1) }",
	  "1:26: @a is count() at line 1, column 12, but sum() here: use two maps" },
	{ "launch:f { @a[1] = count(); @a = count() }",
	  "1:29: @a has 1 key at line 1, column 12, but 0 here" },
	{ "launch:f { @a[1] = count(); @a[kernel] = count() }",
	  "1:32: key 1 of @a is of another type at line 1, column 12: a number here, a name "
	  "there, or the other way" },
	{ "launch:f { @a[1,2,3,4,5,6,7,8,9] = count() }", "1:31: a map has at most 8 keys" },
	{ "END { print(@a) }", "1:13: nothing is put into @a: assign to it, as in @a = count()" },
	{ "thread:f { @x[1] = 3 } END { printf(\"%d\", @x[1]) }",
	  "1:43: @x is read here on the host, but set on the GPU at line 1, column 12: both "
	  "can use a map without keys alone; aggregate, and let the host print it" },
	{ "BEGIN { @x = kernel } thread:f { }",
	  "1:14: BEGIN: has no kernel; launch:KERNEL has it" },
	{ "launch:f { @x = kernel } thread:f { @y = sum(@x) }",
	  "1:46: @x is a text, which the GPU cannot read" },
	{ "BEGIN { @x[1] = 3 } thread:f /@x[1]/ { }",
	  "1:31: @x is read here on the GPU, but set on the host at line 1, column 9: both "
	  "can use a map without keys alone; aggregate, and let the host print it" },
	{ "BEGIN { @x = 3 } thread:f { @x = 4 }",
	  "1:9: @x is set on the GPU, too, at line 1, column 29: use two maps" },
	{ "thread:f { @x = max(lane) } interval:s:1 { clear(@x) }",
	  "1:50: @x is kept on the GPU: counts, sums and histograms can be cleared there, not "
	  "max(); in END all can" },
	{ "thread:f { @x *= 3 }",
	  "1:12: many threads change @x at once: = += -= ++ -- can do that" },
	{ "launch:f { @x += count() }",
	  "1:12: an aggregation is assigned by =, as in @x = count()" },
	{ "BEGIN { printf(\"%d\", @x) }",
	  "1:22: nothing is put into @x: assign to it, as in @x = count()" },
	{ "launch:f { @x = hist(grid) } END { printf(\"%d\", @x) }",
	  "1:49: @x is hist(), which is more than one number: print(@x), or read a count(), sum() "
	  "or avg()" },
	{ "thread:f { @x[1] = count() } END { delete(@x[1]) }",
	  "1:43: @x is kept on the GPU: its elements cannot be deleted; clear(@x) can" },
	/* loops */
	{ "thread:f { while (1) { } }",
	  "1:12: while is for probes on the host; unroll (N) { } repeats on the GPU" },
	{ "thread:f { for ($k : @x) { } }",
	  "1:22: for is for probes on the host; unroll (N) { } repeats on the GPU" },
	{ "BEGIN { break; }", "1:9: break stands in a while or for" },
	{ "BEGIN { continue; }", "1:9: continue stands in a while or for" },
	{ "BEGIN { while (kernel) { } }", "1:16: BEGIN: has no kernel; launch:KERNEL has it" },
	{ "BEGIN { while (\"a\") { } }", "1:16: while takes numbers, this is a text" },
	{ "BEGIN { for ($k, $v : @x) { } }",
	  "1:23: nothing was put into @x before this place: write the probe that fills it first" },
	{ "launch:f { @x[1] = count() } END { for ($k : @x) { } }",
	  "1:46: @x has 1 key and a value: for takes 2 variables, as in for ($k, $v : @x)" },
	{ "launch:f { @x[kernel] = count() } END { $k = 1; for ($k, $v : @x) { } }",
	  "1:54: $k was given another type before" },
	{ "launch:f { @x = stats(grid) } END { for ($v : @x) { } }",
	  "1:47: @x is stats(), which is more than one number: print(@x), or read a count(), sum() "
	  "or avg()" },
	{ "BEGIN { for (@x) { } }", "1:14: expected a variable, not a map" },
	/* functions */
	{ "launch:f { @ = counts() }", "1:16: there is no function counts(); did you mean count?" },
	{ "launch:f { @ = count(1) }", "1:16: count is written count()" },
	{ "launch:f { @ = lhist(1) }", "1:16: lhist is written lhist(number, min, max, step)" },
	{ "launch:f { @ = lhist(grid, grid, 2, 1) }",
	  "1:28: min, max and step of lhist() are numbers as they are, such as lhist(x, 0, 100, "
	  "10)" },
	{ "launch:f { @ = lhist(grid, 0, 100, 7) }",
	  "1:16: lhist() takes min below max, and a step that divides what lies between them "
	  "into 1 to 1000 parts" },
	{ "launch:f { @ = lhist(grid, 0, 4, 1); @ = lhist(grid, 0, 4, 2) }",
	  "1:42: @ has another min, max or step at line 1, column 12" },
	{ "launch:f { count() }",
	  "1:12: count is an aggregation: put it into a map, as in @x = count()" },
	{ "launch:f { $x = count() }",
	  "1:17: count is an aggregation: put it into a map, as in @x = count()" },
	{ "launch:f { $x = 1 + count() }",
	  "1:21: count() is no value: it stands behind a map and =, as in @x = count()" },
	{ "launch:f { $x = 1 + exit() }", "1:21: exit() gives no value" },
	{ "thread:f { printf(\"%s\", lane) }", "1:25: %s is for a text, this is a number: %d" },
	{ "thread:f { printf(\"%d\", kernel) }", "1:25: %d is for a number, this is a text: %s" },
	{ "thread:f { time() }", "1:12: time() is for probes on the host, such as interval:s:1 and "
				 "END; a probe on the GPU "
				 "puts what it has seen into a map" },
	{ "launch:f { @ = sum(param(0)) }",
	  "1:20: param() is for probes on the GPU, such as thread:KERNEL" },
	{ "thread:f { @ = sum(param(9)) }",
	  "1:20: param() takes the number of a parameter, from 0 to 8" },
	{ "thread:f { param(1) }", "1:12: param() is a value: @ = sum(param(0))" },
	{ "mem.thread:f { @ = sum(param(1)) }", "1:24: mem.thread: has no param()" },
	{ "END { print(1) }", "1:13: print() takes a map: print(@map), print(@map, top), "
			      "print(@map, top, div)" },
	{ "END { print(@x[1]) }", "1:13: print() takes the whole map: @x without its keys" },
	{ "END { @x = 1; print(@x, 0) }",
	  "1:25: print() takes numbers from 1 up behind the map: print(@map), print(@map, top), "
	  "print(@map, top, div)" },
	{ "END { delete(1) }", "1:14: delete() takes an element: delete(@map[key])" },
	{ "END { @x = 1; delete(@x) }", "1:22: @x has no keys: clear(@x)" },
	{ "thread:f { @x[1] = 1; delete(@x[1]) }",
	  "1:23: delete() on the GPU is not in this version" },
	{ "END { printf(1) }", "1:14: printf() begins with a string: printf(\"format\", ...)" },
	{ "END { printf(\"%q\", 1) }",
	  "1:14: %q: printf() has %d %u %x %s %f %e %g %%, with a width" },
	{ "END { printf(\"%f\", 1) }", "1:20: %f is for a float, this is a number: %d" },
	{ "END { printf(\"%s\", f32(1)) }",
	  "1:20: %s is for a text, this is a float: %f, %e or %g" },
	{ "END { printf(\"%d\", 1.5) }",
	  "1:20: %d is for a number, this is a float: %f, %e or %g" },
	/* floats */
	{ "thread:f { $x = f32(1) + 1 }",
	  "1:17: arithmetic takes integers, this is a float: it can be compared, tested by isnan() "
	  "and isinf(), and given to sum() avg() min() max() stats() and hist()" },
	{ "thread:f { @ = lhist(f32(1), 0, 4, 1) }",
	  "1:22: lhist takes integers, this is a float: it can be compared, tested by isnan() and "
	  "isinf(), and given to sum() avg() min() max() stats() and hist()" },
	{ "thread:f /f32(1)/ { }",
	  "1:11: a predicate takes integers, this is a float: it can be "
	  "compared, tested by isnan() "
	  "and isinf(), and given to sum() avg() min() max() stats() and hist()" },
	{ "thread:f /f32(1) > lane/ { }",
	  "1:18: a float is compared with a float, or with a number as it is written" },
	{ "thread:f /isnan(1)/ { }", "1:17: isnan() takes a float, such as f32(value)" },
	{ "thread:f { @x = f32(1) }",
	  "1:17: a map keeps floats by sum() avg() min() max() stats() and hist(): @x = max(...)" },
	{ "thread:f { @[f32(1)] = count() }", "1:14: a float cannot be a key" },
	{ "thread:f { @ = max(f32(1)); @ = max(1) }",
	  "1:37: @ was given floats at line 1, column 12" },
	{ "thread:f { @ = hist(1); @ = hist(f32(1)) }",
	  "1:34: @ was given integers at line 1, column 12" },
	{ "thread:f { @m = max(f32(1)) } END { $x = @m }",
	  "1:42: @m holds floats, which print(@m) shows: it cannot be read" },
	{ "thread:f { f32(1) }", "1:12: f32() is a value: if (isnan(f32(value)))" },
	{ "thread:f, mem.thread:f { @[kernel] = count() }",
	  "1:28: at mem.thread: kernel is known in another way than at thread:; write the body "
	  "twice" },
	{ "thread:f { @[type] = count() }", "1:14: thread: has no type; mem.thread:KERNEL has it" },
	{ "END { printf(\"%d\") }", "1:14: the format has more conversions than there are values" },
	{ "END { printf(\"%d\", 1, 2) }",
	  "1:23: the format has fewer conversions than there are values" },
	{ "END { printf(\"%s\", 1) }", "1:20: %s is for a text, this is a number: %d" },
	{ "END { printf(\"%d\", \"a\") }", "1:20: %d is for a number, this is a text: %s" },
	{ "END { time(1) }", "1:12: time() takes a string: time(\"%H:%M:%S\\n\")" },
	{ "END { exit(\"a\") }", "1:12: exit takes numbers, this is a text" },
};

static struct script *make(const char *text) {
	return script_new("-e", NULL, text, strlen(text));
}

static void test_errors(void **state) {
	int n_wrong = 0;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		struct script *script = make(wrong[i].script);

		assert_non_null(script);
		if (!script->failed || strncmp(script->error, "-e:", 3) ||
		    strcmp(script->error + 3, wrong[i].error)) {
			n_wrong++;
			print_error("%s\n  said     %s\n  expected -e:%s\n", wrong[i].script,
				    script->failed ? script->error : "nothing", wrong[i].error);
		}
		script_free(script);
	}
	assert_int_equal(n_wrong, 0);
}

/* -k NAME takes the place of *, where that is a kernel; else it is wrong. */
static void test_kernel_option(void **state) {
	static const char text[] = "launch:* { @ = count() } thread:*:end, bb:f:1 { @t = count() }";
	struct script *script = script_new("-e", "vec*", text, strlen(text));

	assert_non_null(script);
	assert_false(script->failed);
	assert_string_equal(script->clauses->probes->name, "vec*");
	assert_string_equal(script->clauses->next->probes->name, "vec*");
	assert_string_equal(script->clauses->next->probes->next->name, "f");
	script_free(script);
	script = script_new("-e", "vec*", "launch:f, interval:s:1 { }", 26);
	assert_non_null(script);
	assert_string_equal(script->error, "-e:1:1: -k is for probes whose kernel is *, as in "
					   "launch:*; there is none");
	script_free(script);
}

static const char *const right[] = {
	"BEGIN{}",
	"#!/usr/bin/env gputrace\n// a comment\nlaunch:* { /* ** */ @[kernel] = count(); }",
	"launch:\"at::native::*<float*>\" { @ = count() }",
	"launch:at::native::f,launch:g { @ = count() } END { print(@); clear(@); zero(@) }",
	"thread:f /1/ { } block.lead:*:end { @ = hist(duration) } func:g { @b = count() }",
	"launch:* /grid.x / 2 > 3/ { @ = count() }",
	"BEGIN { $x = 0x1F + 1_000 + 2e3; ++$x; $x--; @s = \"a\\tb\"; printf(\"%s %5d%%\", @s, $x) "
	"}",
	"BEGIN { if (1) { } else if (2) { } else { exit(1) } ; ; unroll(3) { $x = 1; } }",
	"launch:f { @[kernel, 1] = count(); @s = kernel } END { for ($a, $b, $c : @) { if ($c > "
	"@[$a, 1]) "
	"{ break; } while (0) { continue } } for ($t : @s) { printf(\"%s\", $t) } }",
	"launch:*:end { @ = sum(latency + duration + device) } idle: { @i = sum(duration) }",
	"process:, process:exit { @[args.exe] = sum(args.status) } module:unload, module:load { }",
	"thread:f { @x = 3; @c = count() } END { printf(\"%d %d\", @x, @c) }",
	"mem.thread:* /f32(value) > -0.5 && 1e3 != f64(value)/ { }",
	"mem.thread:* { $x = f32(value); $y = -1.5; if ($x < $y || isinf(f16(value))) { @[kernel, "
	"type] = "
	"max(gputime); @h[line] = hist($x); @m = min(bf16(value >> 16)); } } END { clear(@m); }",
	"grid:f { @[kernel, launch, grid.x] = sum(param(0)) } block:f:end, warp:f:end { @b[sm] = "
	"sum(duration + blockid) } warp:* { @w[warp] = count() }",
	"mem:*:global:load /lanes > 3 && any(value < 0)/ { @[line, insn, kernel] = sum(sectors); "
	"@b = "
	"max(bytes + min(addr) - max(addr)); if (isnan(first(f32(value)))) { @s = sum(sum(lane)); "
	"} }",
	"BEGIN { @on = 1; } interval:s:1 { @on = !@on; } thread:f /@on/ { @ = count(); }",
	"thread:f { @s = sum(f32(1)); @a[sm] = avg(f16(lane)); @t = stats(f64(1)); } interval:s:1 "
	"{ clear(@s); }",
	"thread:f { printf(\"%s %d %-5x %g\", kernel, lane, sm, f32(1)); } mem.thread:f { "
	"unroll(2) { printf(\"%s %s\", line, type); } }",
	"driver:cuLaunchKernelEx { @ = max(args.sharedMemBytes + args.gridDimX) }",
	"line:a.cu:7 { @ = count() } bb:k:0 { @c = sum(1 ? 2 : 3) }",
	"copy: { @[func] = sum(bytes) } sync:cuCtxSynchronize { @t = max(duration) }",
	"mem.thread:*:shared { @ = count() } mem.thread:*:store { @ = count() }",
	"launch:f { @[kernel] = count() } thread:f { @[kernel] = count() }",
};

static void test_right(void **state) {
	for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
		struct script *script = make(right[i]);

		assert_non_null(script);
		if (script->failed)
			fail_msg("%s\n  said %s", right[i], script->error);
		script_free(script);
	}
}

/* "BEGIN { $x = " n times @open 1 n times @close " }" */
static struct script *nested(const char *open, const char *close, int n) {
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	struct script *script;

	fputs("BEGIN { $x = ", stream);
	for (int i = 0; i < n; i++)
		fputs(open, stream);
	fputc('1', stream);
	for (int i = 0; i < n; i++)
		fputs(close, stream);
	fputs(" }", stream);
	fclose(stream);
	script = script_new("-e", NULL, text, size);
	free(text);
	return script;
}

static void check_refused(struct script *script, const char *part) {
	assert_non_null(script);
	assert_true(script->failed);
	if (!strstr(script->error, part) || strchr(script->error, '\n'))
		fail_msg("%s, expected %s", script->error, part);
	script_free(script);
}

/* What is too large or too deep is refused in one line, and does not take the stack. */
static void test_bounds(void **state) {
	char *text = malloc(SCRIPT_SIZE_MAX + 1);
	struct script *script;

	check_refused(nested("- ", "", SCRIPT_DEPTH_MAX + 1), "nested too deeply: at most 64");
	check_refused(nested("1 + (", ")", SCRIPT_DEPTH_MAX + 1), "nested too deeply: at most 64");
	check_refused(nested("1 + ", "", SCRIPT_DEPTH_MAX + 1), "nested too deeply: at most 64");
	check_refused(nested("(", "", 20000), "nested too deeply");
	script = nested("- ", "", SCRIPT_DEPTH_MAX - 3);
	assert_false(script->failed);
	script_free(script);
	memset(text, ';', SCRIPT_SIZE_MAX + 1);
	check_refused(script_new("-e", NULL, text, SCRIPT_SIZE_MAX + 1),
		      "the script has 65537 bytes; at most 65536 can be read");
	check_refused(script_new("-e", NULL, "a\0b", 3),
		      "the script has a zero byte in it: is it a text?");
	free(text);
}

/* So many of something, one after the other. */
static void check_many(const char *before, const char *each, const char *after, int n,
		       const char *error) {
	char *text = NULL;
	size_t size = 0;
	FILE *stream = open_memstream(&text, &size);
	struct script *script;

	fputs(before, stream);
	for (int i = 0; i < n; i++) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		fprintf(stream, each, i);
#pragma GCC diagnostic pop
	}
	fputs(after, stream);
	fclose(stream);
	script = script_new("-e", NULL, text, size);
	free(text);
	assert_non_null(script);
	if (error) {
		check_refused(script, error);
		return;
	}
	assert_false(script->failed);
	script_free(script);
}

static void test_many(void **state) {
	check_many("thread:f { ", "if (%d) { printf(\"x\"); } ", "}", SCRIPT_PRINTS_MAX, NULL);
	check_many("thread:f { ", "if (%d) { printf(\"x\"); } ", "}", SCRIPT_PRINTS_MAX + 1,
		   "a script has at most 64 printf() on the GPU");
	check_many("BEGIN { ", "@m%d = 1; ", "}", SCRIPT_MAPS_MAX, NULL);
	check_many("BEGIN { ", "@m%d = 1; ", "}", SCRIPT_MAPS_MAX + 1,
		   "a script has at most 31 maps");
	check_many("BEGIN { ", "$x%d = 1; ", "}", SCRIPT_LOCALS_MAX, NULL);
	check_many("BEGIN { ", "$x%d = 1; ", "}", SCRIPT_LOCALS_MAX + 1,
		   "a body has at most 24 variables");
	check_many("", "thread:k%d { @ = count(); } ", "", SCRIPT_PROBES_MAX, NULL);
	check_many("", "thread:k%d { @ = count(); } ", "", SCRIPT_PROBES_MAX + 1,
		   "a script has at most 32 probes");
}

/* ---- code ---- */

/* What is refused when instructions are made. */
static void check_code(const char *text, const char *error) {
	struct script *script = make(text);
	struct code code;

	assert_false(script->failed);
	assert_false(code_make(&code, script));
	if (!strstr(code.error, error))
		fail_msg("%s, expected %s", code.error, error);
	code_deinit(&code);
	script_free(script);
}

static void test_code_bounds(void **state) {
	char text[1024] = "thread:f { ";
	size_t n = strlen(text);

	check_code("thread:f { unroll(100) { unroll(100) { @ = count(); } } }",
		   "this probe is too long for the GPU: more than 16384 instructions");
	/* 20 variables, and 50 intermediate results */
	for (char name = 'a'; name < 'a' + 20; name++)
		n += (size_t)sprintf(text + n, "$%c = lane; ", name);
	n += (size_t)sprintf(text + n, "@ = sum(");
	for (int i = 0; i < 50; i++)
		n += (size_t)sprintf(text + n, "1 + (");
	n += (size_t)sprintf(text + n, "lane");
	memset(text + n, ')', 51);
	strcpy(text + n + 51, " }");
	check_code(text, "this probe needs more than the 512 bytes that a program on the GPU has");
}

/* libbpf reads what we write: programs by their sections, maps by their BTF. */
static void test_object(void **state) {
	struct script *script = make("thread:f, thread:f { @a = count(); } "
				     "thread:f:end { @b[lane, sm] = stats(duration); } "
				     "BEGIN { @host = 1; } mem.thread:* { @l[line] = count(); }");
	struct bpf_object *object;
	struct bpf_program *program;
	struct bpf_map *map;
	size_t n, n_entry = 0, n_maps = 0;
	struct code code;
	void *bytes;

	assert_false(script->failed);
	assert_true(code_make(&code, script));
	bytes = object_make(&code, &n);
	assert_non_null(bytes);
	object = bpf_object__open_mem(bytes, n, NULL);
	assert_non_null(object);
	bpf_object__for_each_program(program, object) n_entry +=
		!strcmp(bpf_program__section_name(program), "kprobe/f");
	assert_int_equal(n_entry, 3); /* two of the script, and one that keeps the time */
	map = bpf_object__find_map_by_name(object, "m1");
	assert_non_null(map);
	assert_int_equal(bpf_map__type(map), BPF_MAP_TYPE_HASH);
	assert_int_equal(bpf_map__key_size(map), 16);
	assert_int_equal(bpf_map__value_size(map), 16);
	assert_int_equal(bpf_map__max_entries(map), CODE_KEYS_GPU);
	bpf_object__for_each_map(map, object) n_maps++;
	assert_int_equal(n_maps, 5); /* @a, @b, @l, times, lost; not the host's */
	bpf_object__close(object);
	free(bytes);
	code_deinit(&code);
	script_free(script);
}

/* What -v prints: the longest way, all instructions, names of maps. */
static void test_print(void **state) {
	struct script *script =
		make("thread:f /lane < 3/ { @many[1] = count(); } thread:g { $x = 1; }");
	char *text = NULL;
	size_t n = 0;
	struct code code;
	FILE *out = open_memstream(&text, &n);

	assert_false(script->failed);
	assert_true(code_make(&code, script));
	code_print(&code, out);
	fclose(out);
	assert_non_null(strstr(text, "kprobe/f: at most "));
	assert_non_null(
		strstr(text, "with 3 lookups and 1 changes of maps, 1 atomics, 1 helpers\n"));
	assert_non_null(strstr(text, " r1 = map @many\n"));
	assert_non_null(strstr(text,
			       "kprobe/g: at most 7 instructions an event, with 0 lookups and 0 "
			       "changes of maps, 0 atomics, 0 helpers\n"
			       "     0: r6 = r1\n"));
	free(text);
	code_deinit(&code);
	script_free(script);
}

/* ---- numbers ---- */

static void test_operations(void **state) {
	assert_int_equal(operate(OP_DIV, -7, 2), -3);
	assert_int_equal(operate(OP_MOD, -7, 3), -1);
	assert_int_equal(operate(OP_DIV, 5, 0), 0);
	assert_int_equal(operate(OP_MOD, 5, 0), 5);
	assert_int_equal(operate(OP_DIV, INT64_MIN, -1), INT64_MIN);
	assert_int_equal(operate(OP_MOD, INT64_MIN, -1), 0);
	assert_int_equal(operate(OP_RIGHT, -8, 1), -4);
	assert_int_equal(operate(OP_LEFT, 1, 65), 2);
	assert_int_equal(operate(OP_ADD, INT64_MAX, 1), INT64_MIN);
	assert_int_equal(operate_unary(OP_MINUS, INT64_MIN), INT64_MIN);
}

static void test_floats(void **state) {
	const int64_t nan = float_of(BUILTIN_F32, 0x7fc00000), one = float_of(BUILTIN_F16, 0x3c00);
	const struct map map = { .kind = MAP_HIST, .value = TYPE_FLOAT };

	assert_true(float_real(one) == 1 && float_is_nan(nan));
	assert_true(float_real(float_of(BUILTIN_F16, 0x0001)) == 0x1p-24);
	assert_true(float_real(float_of(BUILTIN_F16, 0xfbff)) == -65504);
	assert_true(float_real(float_of(BUILTIN_BF16, 0xc040)) == -3);
	assert_true(float_real(float_of(BUILTIN_F32, 1)) == 0x1p-149);
	assert_true(float_real(float_of(BUILTIN_F32, INT64_C(0x1230ff800000))) < -1e308);
	assert_int_equal(operate_float(OP_NE, nan, nan), 1);
	assert_int_equal(operate_float(OP_LE, nan, one), 0);
	assert_int_equal(operate_float(OP_EQ, INT64_MIN, 0), 1); /* both zeros */
	assert_int_equal(operate_float(OP_LT, float_of(BUILTIN_BF16, 0xff80), INT64_MIN), 1);
	assert_int_equal(float_unorder(float_order(INT64_MIN | one)), INT64_MIN | one);
	assert_true(float_order(INT64_MIN | one) < float_order(INT64_MIN | 1));
	assert_int_equal(map_buckets(&map), SCRIPT_FLOAT_BUCKETS);
	assert_int_equal(map_bucket(&map, nan), 0);
	assert_int_equal(map_bucket(&map, INT64_MIN | one), 1);
	assert_int_equal(map_bucket(&map, INT64_MIN), 2);
	assert_int_equal(map_bucket(&map, 1), 3);
	assert_int_equal(map_bucket(&map, one), 35);
	assert_int_equal(map_bucket(&map, float_of(BUILTIN_F32, 0x7f800000)), 67);
}

static void test_buckets(void **state) {
	const struct map log = { .kind = MAP_HIST },
			 linear = { .kind = MAP_LHIST, .min = -10, .max = 10, .step = 5 };

	assert_int_equal(map_bucket(&log, -5), 0);
	assert_int_equal(map_bucket(&log, 0), 1);
	assert_int_equal(map_bucket(&log, 1), 2);
	assert_int_equal(map_bucket(&log, 2), 3);
	assert_int_equal(map_bucket(&log, 3), 3);
	assert_int_equal(map_bucket(&log, INT64_MAX), 64);
	assert_true(map_bucket(&log, INT64_MAX) < map_buckets(&log));
	assert_int_equal(map_buckets(&linear), 6);
	assert_int_equal(map_bucket(&linear, -11), 0);
	assert_int_equal(map_bucket(&linear, -10), 1);
	assert_int_equal(map_bucket(&linear, 9), 4);
	assert_int_equal(map_bucket(&linear, 10), 5);
}

/* Each word is in a probe, and each probe has a form. */
static void test_tables(void **state) {
	for (size_t i = 0; word_at(i); i++)
		assert_true(word_at(i)->probes && !(word_at(i)->ends & ~word_at(i)->probes));
	for (size_t i = 0; probe_row_at(i); i++)
		assert_int_equal(strncmp(probe_row_at(i)->form, probe_row_at(i)->name,
					 strlen(probe_row_at(i)->name)),
				 0);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_errors),      cmocka_unit_test(test_right),
		cmocka_unit_test(test_bounds),      cmocka_unit_test(test_many),
		cmocka_unit_test(test_code_bounds), cmocka_unit_test(test_object),
		cmocka_unit_test(test_operations),  cmocka_unit_test(test_buckets),
		cmocka_unit_test(test_tables),      cmocka_unit_test(test_kernel_option),
		cmocka_unit_test(test_print),       cmocka_unit_test(test_floats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
