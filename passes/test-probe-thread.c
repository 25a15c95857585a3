/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of variables of a thread in the pass `probe`: which registers hold them, what programs do
 * with them where they stand in a kernel and where they are called, and that nothing of them lies
 * in memory. ptxas is asked if the environment names one (PTXAS).
 */

#include "test-probe.h"
#include "proto/point.h"

#define WORD(n) (POINT_THREAD + 8 * (n))
#define KERNEL                                                                                 \
	HEADER ".visible .entry k(.param .u64 x)\n{\n\t.reg .b64 %rd<3>;\n\t.reg .pred %p;\n"  \
	       "\tld.param.u64 %rd1, [x];\n\tsetp.ne.s64 %p, %rd1, 0;\n"                       \
	       "\t@%p ld.volatile.global.u64 %rd2, [%rd1];\n\tst.global.u64 [%rd1+8], %rd1;\n" \
	       "\t@%p ret;\n\tst.global.u64 [%rd1+16], %rd1;\n\tret;\n}\n"

/* Sets its word to a number that it reads. */
#define BEGIN                                                                              \
	".func (.param .align 8 .b8 r[16]) o1_p0(.param .b64 w)\n{\n\t.reg .b64 %rd<2>;\n" \
	"\tmov.u64 %rd1, %globaltimer;\n\tst.param.b64 [r+0], 0;\n"                        \
	"\tst.param.b64 [r+8], %rd1;\n\tret;\n}\n"
/* Adds a field to the second of its words, and changes both about. */
#define SUM                                                                                    \
	".func (.param .align 8 .b8 r[24]) o1_p1(.param .b64 c, .param .b64 w, .param .b64 v)" \
	"\n{\n\t.reg .b64 %rd<4>;\n\tld.param.b64 %rd1, [v];\n\tld.param.b64 %rd2, [c];\n"     \
	"\tadd.s64 %rd1, %rd1, %rd2;\n\tst.param.b64 [r], 0;\n\tst.param.b64 [r+8], %rd1;\n"   \
	"\tld.param.b64 %rd3, [w];\n\tst.param.b64 [r+16], %rd3;\n\tret;\n}\n"
/* Another object's; it has the same words. */
#define OTHER                                                                              \
	".func (.param .align 8 .b8 r[16]) o2_p0(.param .b64 w)\n{\n\t.reg .b64 %rd<2>;\n" \
	"\tld.param.b64 %rd1, [w];\n\tadd.s64 %rd1, %rd1, 1;\n\tst.param.b64 [r+0], 0;\n"  \
	"\tst.param.b64 [r+8], %rd1;\n\tret;\n}\n"

static const uint16_t first[] = { WORD(0) }, sum[] = { 8, WORD(0), WORD(3) };

static struct probe_program programs[3];

static struct trial trial_of(bool call) {
	programs[0] = program("o1_p0", BEGIN);
	programs[0].context = first;
	programs[0].context_count = 1;
	programs[1] = program("o1_p1", SUM);
	programs[1].context = sum;
	programs[1].context_count = 3;
	programs[2] = program("o2_p0", OTHER);
	programs[2].context = first;
	programs[2].context_count = 1;
	return (struct trial){
		.options.call = call,
		.programs = programs,
		.count = 3,
		.uses = { { .program = 0, .point = POINT_ENTRY },
			  { .program = 1, .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT },
			  { .program = 2, .point = POINT_MEMORY, .spaces = POINT_SPACES_DEFAULT },
			  { .program = 1, .point = POINT_RETURN } },
		.use_count = 4,
		.kernels_only = true,
	};
}

/* ptxas finds no use for memory of a thread. */
static void assemble_in_registers(const char *text) {
	char path[] = "/tmp/test-probe-XXXXXX", command[512], line[512];
	const char *ptxas = getenv("PTXAS");
	size_t frames = 0;
	FILE *said;
	int fd;

	if (!ptxas || !*ptxas)
		return;
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, strlen(text)), strlen(text));
	close(fd);
	snprintf(command, sizeof(command), "%s -v -arch sm_90 -o /dev/null %s 2>&1", ptxas, path);
	said = popen(command, "r");
	assert_non_null(said);
	while (fgets(line, sizeof(line), said)) {
		if (!strstr(line, "bytes stack frame"))
			continue;
		frames++;
		if (!strstr(line, " 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill"))
			fail_msg("%s%s", line, text);
	}
	unlink(path);
	if (pclose(said) || !frames)
		fail_msg("ptxas does not take:\n%s", text);
}

static void test_inlined(void **state) {
	struct trial trial = trial_of(false);

	must(KERNEL, &trial);
	assert_int_equal(trial.sites[0], 1);
	assert_int_equal(trial.sites[1], 3);
	assert_int_equal(trial.sites[3], 2);
	/* two words of o1, one of o2, before all else */
	assert_non_null(strstr(trial.out, "\t.reg .pred %p;\n\t.reg .b64 %gpuprobe_thread<3>;\n"
					  "\tmov.b64 %gpuprobe_thread0, 0;\n"
					  "\tmov.b64 %gpuprobe_thread1, 0;\n"
					  "\tmov.b64 %gpuprobe_thread2, 0;\n"));
	assert_null(strstr(trial.out, "call"));
	assert_null(strstr(trial.out, ".func"));
	/* SUM writes word 0 before it reads it: what it reads was copied */
	assert_non_null(strstr(trial.out, "\tmov.b64 %gpuprobe_was0, %gpuprobe_thread0;\n"
					  "\tmov.b64 %gpuprobe_was1, %gpuprobe_thread1;\n"));
	assert_int_equal(occurrences(trial.out, "\tmov.b64 %gpuprobe_thread0, %rd1;\n"), 6);
	assert_int_equal(occurrences(trial.out, "\tmov.b64 %rd3, %gpuprobe_was0;\n"), 5);
	assert_int_equal(occurrences(trial.out, "\tmov.b64 %gpuprobe_thread1, %rd3;\n"), 5);
	assert_int_equal(occurrences(trial.out, "\tmov.b64 %gpuprobe_thread2, %rd1;\n"), 3);
	assemble_in_registers(trial.out);
	finish(&trial);
}

static void test_called(void **state) {
	struct trial trial = trial_of(true);

	must(KERNEL, &trial);
	assert_non_null(strstr(trial.out,
			       ".func (.param .align 8 .b8 __gpuprobe_w[24]) __memcapture__0("
			       ".param .b64 __gpuprobe_c1, .param .b64 __gpuprobe_t0, "
			       ".param .b64 __gpuprobe_t1, .param .b64 __gpuprobe_t2)"));
	assert_int_equal(occurrences(trial.out, "\tcall (__gpuprobe_w), __memcapture__0, "), 3);
	/* a return knows the words of its own programs alone */
	assert_non_null(strstr(trial.out,
			       ".func (.param .align 8 .b8 __gpuprobe_w[16]) __retprobe_func__k("));
	assert_int_equal(occurrences(trial.out,
				     "\tld.param.b64 %gpuprobe_thread2, [__gpuprobe_w+16];\n"),
			 3);
	assemble_in_registers(trial.out);
	finish(&trial);
}

/* A kernel without such programs gets no register, and one whose loop begins at once starts once.
 */
static void test_start(void **state) {
	struct trial trial = trial_of(false);
	const char *label, *start;

	trial.only = "b";
	must(HEADER ".visible .entry a() { ret; }\n.visible .entry b(.param .u64 x)\n{\n"
		    "\t.reg .b64 %rd<2>;\n$again:\n\tld.param.u64 %rd1, [x];\n"
		    "\tst.global.u64 [%rd1], %rd1;\n\tbra $again;\n}\n",
	     &trial);
	assert_non_null(strstr(trial.out, ".visible .entry a() { ret; }"));
	start = strstr(trial.out, "mov.b64 %gpuprobe_thread2, 0;\n");
	label = strstr(trial.out, "$again:");
	assert_non_null(start);
	assert_true(label > start);
	assemble_in_registers(trial.out);
	finish(&trial);
}

/* A call would cost more than elsewhere, so more of them stand in the kernel themselves. */
static void test_many(void **state) {
	enum {
		N = 1000
	};
	struct trial trial = trial_of(false);
	char *text = NULL;
	size_t length, calls;
	FILE *stream;

	stream = open_memstream(&text, &length);
	fputs(HEADER ".visible .entry k(.param .u64 x)\n{\n\t.reg .b64 %rd<3>;\n\tld.param.u64 "
		     "%rd1, [x];\n",
	      stream);
	for (int i = 0; i < N; i++)
		fputs("\tld.volatile.global.u64 %rd2, [%rd1];\n", stream);
	fputs("\tret;\n}\n", stream);
	fclose(stream);
	must(text, &trial);
	assert_int_equal(trial.sites[1], N);
	calls = occurrences(trial.out, "\tcall (__gpuprobe_w), __memcapture__0, ");
	length = programs[1].length + programs[2].length; /* they are shorter in the kernel */
	assert_in_range(N - calls, 65536 / (length + 256), 65536 / (length / 2 + 256));
	assemble_in_registers(trial.out);
	finish(&trial);
	free(text);
}

static void expect(const char *text, struct trial *trial, int result, const char *message) {
	assert_int_equal(attempt(text, trial), result);
	if (!strstr(trial->error.message, message))
		fail_msg("%s", trial->error.message);
	finish(trial);
}

static void test_refused(void **state) {
	static const uint16_t beyond[] = { WORD(0), WORD(8) };
	struct trial trial = trial_of(false);

	trial.kernels_only = false;
	expect(HEADER ".func f()\n{\n\tret;\n}\n", &trial, PROBE_E_FUNCTION,
	       "a device function has no variables of a thread (.thread): only a kernel keeps "
	       "them");
	trial.kernels_only = true;
	expect(HEADER ".entry k()\n{\n\t.reg .b64 %gpuprobe_thread<2>;\n\tret;\n}\n", &trial,
	       PROBE_E_TAKEN, "the kernel has a register of a name of ours already");
	programs[0] = program("o1_p0", ".func (.param .align 8 .b8 r[16]) o1_p0(.param .b64 w, "
				       ".param .b64 v) { ret; }\n");
	programs[0].context = beyond;
	programs[0].context_count = 2;
	expect(KERNEL, &trial, PROBE_E_PROGRAM, "a field that its context does not have");
	trial = trial_of(false);
	programs[0].text = ".func (.param .b64 r) o1_p0(.param .b64 w) { ret; }\n";
	programs[0].length = strlen(programs[0].text);
	expect(KERNEL, &trial, PROBE_E_PROGRAM, "its parameters and its result");
	programs[0].text = ".func (.param .align 8 .b8 r[24]) o1_p0(.param .b64 w) { ret; }\n";
	programs[0].length = strlen(programs[0].text);
	expect(KERNEL, &trial, PROBE_E_PROGRAM, "its parameters and its result");
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_inlined), cmocka_unit_test(test_called),
		cmocka_unit_test(test_start),   cmocka_unit_test(test_many),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
