/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of session.c and session-process.c, without a client's socket: the buffer and its
 * bound, losses, processes, ends, rights. The processes are this one and its children.
 */

#include "test-session.h"

#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <fcntl.h>

#include "daemon/gpuprobed/registry/interest-writer.h"
#include "daemon/gpuprobed/trace/source/source.h"
#include "daemon/gpuprobed/base/memfd.h"

static const char *program; /* test-uprobe-target; NULL: it was not built */

static void put_call(struct trace_session *session, uint32_t pid, uint32_t tid, uint32_t sequence) {
	struct trace_call call = {
		.record = { .size = sizeof(call), .type = TRACE_CALL, .source = TRACE_SOURCE_SHIM },
		.pid = pid,
		.tid = tid,
		.sequence = sequence
	};

	trace_session_emit(session, &call.record, pid, tid);
}

static void test_frame(void **state) {
	struct test_client client = {};
	const struct trace_start *start;
	const struct trace_stop *stop;

	start_usual(&client);
	turn_for(20);
	start = (const void *)client.bytes;
	assert_true(client.n >= sizeof(*start));
	assert_int_equal(start->record.type, TRACE_START);
	assert_int_equal(start->magic, TRACE_MAGIC);
	assert_int_equal(start->version, TRACE_VERSION);
	assert_string_equal(start->daemon, PROJECT_VERSION);
	assert_true(start->host[0] && start->realtime > start->monotonic && start->monotonic);
	for (uint32_t i = 0; i < 1000; i++)
		put_call(client.session, 7, 8, i);
	trace_session_finish(client.session);
	trace_session_finish(client.session);
	put_call(client.session, 7, 8, 1000); /* too late */
	assert_false(!trace_session_finished(client.session));
	turn_for(20);
	stop = (const void *)(client.bytes + client.n - sizeof(*stop));
	assert_int_equal(stop->record.type, TRACE_STOP);
	assert_int_equal(stop->records, 1001);
	assert_int_equal(stop->lost, 0);
	assert_int_equal(count_records(&client, TRACE_CALL), 1000);
	assert_int_equal(count_records(&client, TRACE_LOST), 0);
	end_client(&client);
}

/* Replies are few: chunks, and some milliseconds between them; what waits is told within 50 ms. */
static void test_wakes(void **state) {
	struct test_client client = {};
	unsigned int wakes;

	start_usual(&client);
	turn_for(30);
	assert_int_equal(client.wakes, 1);
	put_call(client.session, 7, 8, 0);
	turn_for(50);
	assert_int_equal(client.wakes, 2);
	assert_int_equal(count_records(&client, TRACE_CALL), 1);
	turn_for(50);
	assert_int_equal(client.wakes, 2); /* nothing to tell */
	wakes = client.wakes;
	for (uint32_t i = 0; i < 100; i++) {
		put_call(client.session, 7, 8, i);
		uv_run(&world.loop, UV_RUN_NOWAIT);
		usleep(100);
	}
	assert_true(client.wakes - wakes < 30);
	end_client(&client);
}

static void test_slow_reader(void **state) {
	struct test_client client = { .lazy = true };
	struct trace_config config = usual_config(&client);
	uint32_t sequence[2] = {}, lost[2] = {};
	const struct trace_call *call;
	const struct trace_lost *record;
	const struct trace_stop *stop;
	uint64_t told[2] = {}, n_told = 0;
	size_t at = 0, n;

	config.buffer = 1 << 20;
	assert_int_equal(start_session(&client, &config), 0);
	client.lazy = true;
	for (uint32_t i = 0; i < 100000; i++)
		put_call(client.session, 7, 8 + i % 2, i / 2);
	assert_true(client.session->buffered <= 1 << 20);
	client_read(&client);
	n = count_records(&client, TRACE_CALL);
	assert_true(n > 20000 && n < 100000);
	for (uint32_t i = 0; i < 2; i++) /* it goes on */
		put_call(client.session, 7, 8 + i, 50000);
	turn_for(20);
	client_read(&client);
	trace_session_lost(client.session, TRACE_SOURCE_BPF, 0, 0, 5);
	trace_session_finish(client.session);
	client_read(&client);
	while ((call = next_record(&client, &at, TRACE_CALL))) {
		assert_true(call->sequence >= sequence[call->tid - 8]);
		lost[call->tid - 8] += call->sequence - sequence[call->tid - 8];
		sequence[call->tid - 8] = call->sequence + 1;
	}
	at = 0;
	while ((record = next_record(&client, &at, TRACE_LOST))) {
		n_told += record->count;
		if (record->record.source == TRACE_SOURCE_BPF)
			continue;
		assert_int_equal(record->record.source, TRACE_SOURCE_SHIM);
		assert_int_equal(record->pid, 7);
		assert_true(record->tid == 8 || record->tid == 9);
		told[record->tid - 8] += record->count;
	}
	assert_int_equal(lost[0], told[0]);
	assert_int_equal(lost[1], told[1]);
	assert_true(told[0] > 0 && told[1] > 0);
	assert_int_equal(count_lost(&client, TRACE_SOURCE_BPF), 5);
	stop = first_record(&client, TRACE_STOP);
	assert_int_equal(stop->lost, n_told);
	end_client(&client);
}

/* More threads than losses are told apart by: nothing is forgotten. */
static void test_many_lose(void **state) {
	struct test_client client = {};

	start_usual(&client);
	for (uint32_t i = 0; i < 3 * SESSION_LOST_MAX; i++)
		trace_session_lost(client.session, TRACE_SOURCE_GPU, 1 + i % 7, i, 2);
	trace_session_finish(client.session);
	client_read(&client);
	assert_int_equal(count_lost(&client, TRACE_SOURCE_GPU), 6 * SESSION_LOST_MAX);
	assert_true(count_records(&client, TRACE_LOST) <= SESSION_LOST_MAX + 1);
	end_client(&client);
}

/* Names are lost last. */
static void test_names_stay(void **state) {
	struct test_client client = { .lazy = true };
	struct trace_config config = usual_config(&client);

	config.buffer = 1 << 20;
	assert_int_equal(start_session(&client, &config), 0);
	client.lazy = true;
	for (uint32_t i = 0; i < 50000; i++)
		put_call(client.session, 7, 8, i);
	trace_session_process(client.session, getpid());
	assert_int_equal(trace_session_function(client.session, "cuNew"), TRACE_FUNCTION_DYNAMIC);
	client_read(&client);
	assert_non_null(first_record(&client, TRACE_PROCESS));
	assert_string_equal(((const struct trace_name *)first_record(&client, TRACE_NAME))->name,
			    "cuNew");
	end_client(&client);
}

static void test_numbers(void **state) {
	static const uint64_t addresses[] = { 1, 2, 3 };
	struct test_client a = {}, b = {};
	uint64_t here = (uint64_t)(uintptr_t)&test_numbers;
	const struct trace_stack *stack;
	const struct trace_name *file;
	struct stat status;
	char name[200];
	size_t at = 0;

	start_usual(&a);
	start_usual(&b);
	assert_int_equal(trace_session_function(a.session, "cuOne"), TRACE_FUNCTION_DYNAMIC);
	assert_int_equal(trace_session_function(b.session, "cuTwo"), TRACE_FUNCTION_DYNAMIC + 1);
	assert_int_equal(trace_session_function(b.session, "cuOne"), TRACE_FUNCTION_DYNAMIC);
	assert_int_equal(trace_session_function(b.session, "cuOne"), TRACE_FUNCTION_DYNAMIC);
	assert_int_equal(trace_session_function(a.session, ""), 0);
	assert_int_equal(trace_session_function(a.session, "cu One"), 0);
	memset(name, 'x', sizeof(name) - 1);
	name[199] = '\0';
	assert_int_equal(trace_session_function(a.session, name), 0);
	for (int i = 0; i < TRACE_FUNCTION_MAX - TRACE_FUNCTION_DYNAMIC + 5; i++) {
		snprintf(name, sizeof(name), "cuOf%d", i);
		assert_int_equal(trace_session_function(a.session, name),
				 i < TRACE_FUNCTION_MAX - TRACE_FUNCTION_DYNAMIC - 2
					 ? TRACE_FUNCTION_DYNAMIC + 2 + i
					 : 0);
	}
	assert_int_equal(trace_session_stack(a.session, getpid(), addresses, 0), 0);
	assert_int_equal(trace_session_stack(a.session, getpid(), &here, 1), 1);
	assert_int_equal(trace_session_stack(a.session, getpid(), addresses, 3), 2);
	assert_int_equal(trace_session_stack(a.session, getpid(), &here, 1), 1);
	assert_int_equal(trace_session_stack(b.session, getpid(), addresses, 3), 1);
	client_read(&a);
	client_read(&b);
	assert_int_equal(count_records(&a, TRACE_NAME),
			 TRACE_FUNCTION_MAX - TRACE_FUNCTION_DYNAMIC - 1 + 1);
	assert_int_equal(stat("/proc/self/exe", &status), 0);
	while ((file = next_record(&a, &at, TRACE_NAME)) && file->kind != TRACE_NAME_FILE)
		;
	assert_true(file && file->id == status.st_ino && file->pid == (uint32_t)getpid() &&
		    strstr(file->name, "/test-trace-session"));
	assert_int_equal(count_records(&b, TRACE_NAME), 2);
	assert_int_equal(count_records(&a, TRACE_STACK), 2);
	stack = first_record(&a, TRACE_STACK);
	assert_int_equal(stack->n, 1);
	assert_int_equal(strncmp((const char *)&stack->addresses[1], "test-trace-session+0x", 21),
			 0);
	end_client(&a);
	end_client(&b);
	start_usual(&a); /* the table was full, but only as long as it was used */
	assert_int_equal(trace_session_function(a.session, "cuThree"), TRACE_FUNCTION_DYNAMIC);
	end_client(&a);
}

static const char *stack_text(struct test_client *client, const uint64_t *address) {
	const struct trace_stack *stack;

	assert_int_equal(trace_session_stack(client->session, getpid(), address, 1), 1);
	client_read(client);
	stack = first_record(client, TRACE_STACK);
	assert_non_null(stack);
	return (const char *)&stack->addresses[1];
}

/* Where a process's code is is for its owner only; and reading that has its bounds. */
static void test_stacks(void **state) {
	uint64_t here = (uint64_t)(uintptr_t)&test_stacks, nowhere = 16;
	struct test_client mine = {}, other = {}, late = {};
	struct trace_config config = usual_config(&mine);

	config.options.all_users = false;
	assert_int_equal(start_session(&mine, &config), 0);
	config = usual_config(&other);
	config.options.all_users = false;
	config.options.caller = getuid() + 1;
	assert_int_equal(start_session(&other, &config), 0);
	assert_string_equal(stack_text(&other, &here), "");
	assert_int_equal(strncmp(stack_text(&mine, &here), "test-trace-session+0x", 21), 0);
	world.table->shared.stacks.next = UINT64_MAX; /* there is no time */
	start_usual(&late);
	assert_int_equal(strncmp(stack_text(&late, &here), "test-trace-session+0x", 21),
			 0); /* what is known */
	assert_int_equal(trace_session_stack(late.session, getpid(), &nowhere, 1), 2);
	assert_int_equal(trace_session_stack(late.session, getppid(), &here, 1), 3);
	assert_int_equal(world.table->shared.stacks.next, UINT64_MAX);
	world.table->shared.stacks.next = 0;
	assert_int_equal(trace_session_stack(late.session, getppid(), &nowhere, 1), 4);
	assert_true(world.table->shared.stacks.next > 0); /* a while later */
	end_client(&mine);
	end_client(&other);
	end_client(&late);
}

/* A stack that could not be told, as its client does not read, is told when it does. */
static void test_stack_again(void **state) {
	uint64_t here = (uint64_t)(uintptr_t)&test_stack_again;
	struct test_client client = { .lazy = true };
	struct trace_config config = usual_config(&client);
	struct trace_name name = { .record = { .size = sizeof(name), .type = TRACE_NAME },
				   .kind = TRACE_NAME_KERNEL };
	const struct trace_stack *stack;

	config.buffer = 1;
	assert_int_equal(start_session(&client, &config), 0);
	while (trace_session_emit(client.session, &name.record, 7, 0))
		name.id++;
	assert_int_equal(trace_session_stack(client.session, getpid(), &here, 1), 0);
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_STACK), 0);
	assert_int_equal(trace_session_stack(client.session, getpid(), &here, 1), 2);
	assert_int_equal(trace_session_stack(client.session, getpid(), &here, 1), 2);
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_STACK), 1);
	stack = first_record(&client, TRACE_STACK);
	assert_int_equal(stack->id, 2);
	assert_int_equal(stack->addresses[0], here);
	end_client(&client);
}

static void test_warnings(void **state) {
	int fd = memfd_create("stderr", MFD_CLOEXEC), old = dup(STDERR_FILENO);
	char text[8192] = "";
	size_t n = 0;

	assert_true(fd >= 0 && old >= 0 && dup2(fd, STDERR_FILENO) >= 0);
	for (int i = 0; i < 100; i++)
		trace_table_warn(world.table, 7, "lies %d", i);
	for (pid_t pid = 100; pid < 200; pid++)
		trace_table_warn(world.table, pid, "lies");
	world.table->warned[3].time = 0; /* a minute later */
	trace_table_warn(world.table, 200, "lies");
	trace_table_warn(world.table, 201, "lies");
	dup2(old, STDERR_FILENO);
	assert_true(pread(fd, text, sizeof(text) - 1, 0) > 0);
	for (const char *at = text; (at = strstr(at, ": lies")); at++)
		n++;
	assert_int_equal(n, TABLE_WARNED_MAX + 1);
	assert_non_null(strstr(text, "process 7: lies 0\n"));
	assert_null(strstr(text, "lies 1"));
	assert_non_null(strstr(text, "process 200: lies (before: 85 more such messages)\n"));
	close(fd);
	close(old);
}

static int start_of(struct test_client *client, uid_t caller) {
	struct trace_config config = usual_config(client);

	config.options.caller = caller;
	return start_session(client, &config);
}

/* What users hold leaves a share for a user who has none, and root its own. */
static void test_limits(void **state) {
	struct test_client clients[TRACE_SESSIONS_MAX + 1] = {};
	unsigned int n = 0;

	assert_int_equal(start_of(&clients[n++], 1001), 0);
	while (n < trace_table_quota(world.table))
		assert_int_equal(start_of(&clients[n++], 1000), 0);
	assert_int_equal(start_of(&clients[n], 1000), TRACE_E_SESSIONS);
	assert_int_equal(start_of(&clients[n], 1001), TRACE_E_SESSIONS);
	assert_int_equal(start_of(&clients[n++], 1002), 0);
	assert_int_equal(start_of(&clients[n], 1002), TRACE_E_SESSIONS);
	assert_int_equal(start_of(&clients[n++], 1003), 0);
	assert_int_equal(start_of(&clients[n], 1004), TRACE_E_SESSIONS);
	while (n < TRACE_SESSIONS_MAX)
		assert_int_equal(start_of(&clients[n++], 0), 0);
	assert_int_equal(start_of(&clients[n], 0), TRACE_E_SESSIONS);
	end_client(&clients[2]);
	assert_int_equal(start_of(&clients[2], 0), 0);
	assert_int_equal(trace_table_counters(world.table).sessions, TRACE_SESSIONS_MAX);
	while (n)
		end_client(&clients[--n]);
	assert_int_equal(trace_table_counters(world.table).sessions, 0);
}

/* However few there are, a user has no more than his quota. */
static void test_quota(void **state) {
	struct test_client clients[TRACE_SESSIONS_MAX] = {};
	unsigned int n = 0;

	while (n < trace_table_quota(world.table))
		start_usual(&clients[n++]);
	assert_int_equal(start_of(&clients[n], getuid()), TRACE_E_USER);
	while (n)
		end_client(&clients[--n]);
}

/* Who begins and ends traces all the time has to wait, he alone, and not who may trace all. */
static void test_work(void **state) {
	struct test_client clients[3] = {};
	struct trace_config configs[3];

	for (unsigned int i = 0; i < 3; i++) {
		configs[i] = usual_config(&clients[i]);
		configs[i].options.caller = 1000 + (i == 1);
		configs[i].options.all_users = i == 2;
	}
	assert_int_equal(start_session(&clients[0], &configs[0]), 0);
	end_client(&clients[0]);
	trace_table_worked(world.table, &configs[0].options, UINT64_C(1000000000));
	trace_table_worked(world.table, &configs[2].options, UINT64_C(1000000000000));
	assert_int_equal(start_session(&clients[0], &configs[0]), 0);
	end_client(&clients[0]);
	trace_table_worked(world.table, &configs[0].options, UINT64_C(1000000000000));
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(start_session(&clients[i], &configs[i]), i ? 0 : TRACE_E_WORK);
		if (i)
			end_client(&clients[i]);
	}
	/* it is remembered while there are many others who have had less */
	for (uid_t uid = 2000; uid < 2000 + 10 * TABLE_WORK_MAX; uid++) {
		configs[1].options.caller = uid;
		trace_table_worked(world.table, &configs[1].options, 1000);
	}
	assert_int_equal(start_session(&clients[0], &configs[0]), TRACE_E_WORK);
}

/* ---- processes ---- */

static pid_t start_child(uid_t uid, pid_t *grandchildp);
static void end_child(pid_t pid);

/* There are as many processes as a session knows, and a parent is one more: who asks for it stays.
 */
static void test_many_processes(void **state) {
	pid_t child = start_child(getuid(), NULL);
	struct test_client client = {};
	struct trace_config config = usual_config(&client);

	config.options.filter.pid = 1;
	config.options.follow = true;
	assert_int_equal(start_session(&client, &config), 0);
	for (pid_t pid = 1 << 23; client.session->members.table.n < SESSION_PROCESSES_MAX - 1;
	     pid++)
		assert_false(trace_session_means(client.session, pid));
	trace_session_means(client.session, child);
	assert_true(client.session->members.table.n < 100);
	assert_non_null(number_map_find(&client.session->members, (uint64_t)child));
	end_client(&client);
	end_child(child);
}

/* A child that lives until it is killed, and perhaps one of its own; *grandchildp is told by it. */
static pid_t start_child(uid_t uid, pid_t *grandchildp) {
	int pipes[2];
	pid_t pid, grandchild = 0;

	assert_int_equal(pipe(pipes), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (uid != getuid() && setresuid(uid, uid, uid) < 0)
			_exit(1);
		if (grandchildp)
			grandchild = fork();
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (grandchild || !grandchildp)
			if (write(pipes[1], &grandchild, sizeof(grandchild)) < 0)
				_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(pipes[0], &grandchild, sizeof(grandchild)), sizeof(grandchild));
	if (grandchildp)
		*grandchildp = grandchild;
	close(pipes[0]);
	close(pipes[1]);
	return pid;
}

static void end_child(pid_t pid) {
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void test_targets(void **state) {
	pid_t pids[2] = { start_child(getuid(), NULL), start_child(getuid(), NULL) };
	uint32_t targets[2] = { (uint32_t)pids[0], (uint32_t)pids[1] };
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	const struct trace_process *process;
	size_t at = 0;

	config.options.filter.has_pid = false;
	config.options.pids = targets;
	config.options.n_pids = 2;
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(trace_session_means(client.session, pids[0]));
	assert_false(trace_session_means(client.session, getpid()));
	assert_false(trace_session_means(client.session, 1));
	assert_false(trace_session_means(client.session, 0));
	assert_false(trace_session_means(client.session, -1));
	end_child(pids[0]);
	turn_for(200);
	assert_false(trace_session_finished(client.session));
	assert_true(
		trace_session_means(client.session, pids[0])); /* its last records may still come */
	end_child(pids[1]);
	for (int i = 0; i < 100 && !trace_session_finished(client.session); i++)
		turn_for(50);
	assert_true(trace_session_finished(client.session));
	for (int i = 0; i < 4; i++) {
		process = next_record(&client, &at, TRACE_PROCESS);
		assert_non_null(process);
		assert_int_equal(process->pid, pids[i % 2]);
		assert_int_equal(process->what, i < 2 ? TRACE_PROCESS_SEEN : TRACE_PROCESS_EXIT);
		assert_int_equal(process->parent, getpid());
		assert_string_equal(process->comm, "test-trace-sess");
		assert_non_null(strstr(process->exe, "/test-trace-session"));
	}
	assert_null(next_record(&client, &at, TRACE_PROCESS));
	end_client(&client);
}

/* Maps a file of that name, which stays mapped. */
static void map_file_named(const char *name) {
	char folder[] = "/tmp/test-trace-session-XXXXXX", path[128];
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_ptr_not_equal(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0), MAP_FAILED);
	close(fd);
	unlink(path);
	rmdir(folder);
}

/* What a session of this process says is missing, of the sources shim and, if they are to be, bpf
 * and gpu. */
static size_t missing_lines(bool bpf, bool gpu, const char *text) {
	uint32_t targets[1] = { (uint32_t)getpid() };
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	const char *const *lines;
	size_t n = 0;

	config.options.filter.has_pid = false;
	config.options.pids = targets;
	config.options.n_pids = 1;
	config.options.bpf = bpf;
	config.options.gpu = gpu;
	assert_int_equal(start_session(&client, &config), 0);
	for (size_t i = trace_session_trouble(client.session, &lines); i--;)
		n += strstr(lines[i], text) != NULL;
	end_client(&client);
	return n;
}

/* A process that has libcuda without the shim: what only that would tell is said to be missing. */
static void test_no_shim(void **state) {
	assert_int_equal(missing_lines(false, true, "has no shim"), 0); /* no libcuda either */
	map_file_named("libcuda.so.1");
	assert_int_equal(missing_lines(false, false, "has no shim (gpuprobe-shim(7)): its calls"),
			 1);
	assert_int_equal(missing_lines(false, true,
				       "has no shim (gpuprobe-shim(7)): its calls and kernels"),
			 1);
	assert_int_equal(missing_lines(true, true,
				       "has no shim (gpuprobe-shim(7)): times of its kernels"),
			 1);
	assert_int_equal(missing_lines(true, false, "has no shim"), 0);
	map_file_named("libgpuprobe-shim.so");
	assert_int_equal(missing_lines(false, true, "has no shim"), 0);
}

static void test_bad_targets(void **state) {
	pid_t child = start_child(getuid(), NULL), ended = start_child(getuid(), NULL);
	uint32_t targets[2] = { (uint32_t)child, (uint32_t)ended }, bad = 0;
	struct test_client client = {};
	struct trace_config config = usual_config(&client);

	end_child(ended);
	config.options.pids = targets;
	config.options.n_pids = 2;
	assert_int_equal(trace_session_new(&client.session, world.table, &config, &bad),
			 TRACE_E_GONE);
	assert_int_equal(bad, ended);
	targets[1] = 1; /* init */
	config.options.caller = 65534;
	config.options.all_users = false;
	assert_int_equal(trace_session_new(&client.session, world.table, &config, &bad),
			 TRACE_E_FOREIGN);
	assert_int_equal(trace_table_counters(world.table).sessions, 0);
	end_child(child);
}

/* Whose processes a caller without rights may trace: his own, and of these none with other rights
 * than he has. */
static void test_rights(void **state) {
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	pid_t mine, others;

	if (getuid() != 0)
		skip();
	mine = start_child(65534, NULL);
	others = start_child(65533, NULL);
	config.options.filter.has_pid = false;
	config.options.caller = 65534;
	config.options.all_users = false;
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(trace_session_means(client.session, mine));
	assert_false(trace_session_means(client.session, others));
	assert_false(trace_session_means(client.session, getpid()));
	end_client(&client);
	end_child(mine);
	mine = fork();
	if (mine == 0) { /* as a set-user-id program: real uid of the caller, rights of root */
		if (setresuid(65534, 0, 0) < 0)
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	turn_for(50);
	assert_int_equal(start_session(&client, &config), 0);
	assert_false(trace_session_means(client.session, mine));
	end_client(&client);
	config.options.all_users = true;
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(trace_session_means(client.session, others));
	end_client(&client);
	end_child(mine);
	end_child(others);
}

/* A process that gets other rights, as by the exec of a set-user-id program, is the caller's no
 * longer, at once. */
static void test_rights_change(void **state) {
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[2] = { { .effective = 1 << CAP_SETUID,
						    .permitted = 1 << CAP_SETUID } };
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	int ends[2], answers[2];
	pid_t child;
	char byte;

	if (getuid() != 0)
		skip();
	assert_int_equal(pipe(ends) | pipe(answers), 0);
	child = fork();
	if (child == 0) {
		alarm(60); /* PR_SET_PDEATHSIG does not survive what follows */
		if (prctl(PR_SET_KEEPCAPS, 1) || setresuid(65534, 65534, 65534) ||
		    syscall(SYS_capset, &header, sets) || write(answers[1], "", 1) != 1)
			_exit(1);
		if (read(ends[0], &byte, 1) != 1 || setresuid(65534, 0, 0) ||
		    write(answers[1], "", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	config.options.filter.has_pid = false;
	config.options.caller = 65534;
	config.options.all_users = false;
	assert_int_equal(read(answers[0], &byte, 1), 1);
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(trace_session_means(client.session, child));
	assert_int_equal(write(ends[1], "", 1), 1);
	assert_int_equal(read(answers[0], &byte, 1), 1);
	turn_for(5);
	assert_false(trace_session_means(client.session, child));
	end_client(&client);
	end_child(child);
	for (int i = 0; i < 2; i++) {
		close(ends[i]);
		close(answers[i]);
	}
}

static void test_follow(void **state) {
	pid_t grandchild, child = start_child(getuid(), &grandchild),
			  stranger = start_child(getuid(), NULL);
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	uint32_t target = (uint32_t)child;

	config.options.filter.has_pid = false;
	config.options.pids = &target;
	config.options.n_pids = 1;
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(trace_session_means(client.session, child));
	assert_false(trace_session_means(client.session, grandchild));
	end_client(&client);
	config.options.follow = true;
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(trace_session_means(client.session, grandchild));
	assert_false(trace_session_means(client.session, stranger));
	/* by an event: /proc cannot tell */
	trace_session_forked(client.session, grandchild, stranger, 5);
	trace_session_forked(client.session, grandchild, stranger, 5);
	assert_true(trace_session_means(client.session, stranger));
	end_child(stranger);
	trace_session_execed(client.session, stranger,
			     6); /* it is gone when that is learnt: it stays what it was */
	trace_session_ended(client.session, stranger, 3 << 8, 6);
	trace_session_ended(client.session, stranger, 3 << 8, 6);
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_PROCESS), 3);
	for (size_t at = 0, i = 0; i < 3; i++) {
		const struct trace_process *process = next_record(&client, &at, TRACE_PROCESS);

		if (i == 0)
			continue; /* of the target */
		assert_int_equal(process->pid, stranger);
		assert_int_equal(process->what, i == 1 ? TRACE_PROCESS_FORK : TRACE_PROCESS_EXIT);
		assert_int_equal(process->parent,
				 i == 1 ? grandchild : getpid()); /* as /proc said meanwhile */
		assert_int_equal(process->status, i == 1 ? 0 : 3 << 8);
	}
	end_client(&client);
	kill(grandchild, SIGKILL);
	end_child(child);
}

static void test_threads(void **state) {
	struct test_client client = {};
	const struct trace_thread *thread;

	start_usual(&client);
	for (int i = 0; i < 3; i++) {
		trace_session_thread(client.session, getpid(), getpid());
		trace_session_thread(client.session, getpid(), 4194303); /* none */
		trace_session_thread(client.session, getpid(), 0);
	}
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_THREAD), 2);
	thread = first_record(&client, TRACE_THREAD);
	assert_int_equal(thread->tid, getpid());
	assert_string_equal(thread->comm, "test-trace-sess");
	end_client(&client);
}

static bool executes_sleep(pid_t pid) {
	char path[64], comm[16] = "";
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
	file = fopen(path, "re");
	assert_non_null(file);
	assert_non_null(fgets(comm, sizeof(comm), file));
	fclose(file);
	return strcmp(comm, "sleep\n") == 0;
}

/* A program that a process executes, as /proc tells: its thread has its name, and what it calls is
 * after its beginning. */
static void test_exec(void **state) {
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	const struct trace_process *process;
	const struct trace_thread *thread;
	uint64_t before;
	size_t at = 0;
	int go[2];
	pid_t pid;

	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(go[0], &at, 1) == 1)
			execlp("sleep", "sleep", "1000", NULL);
		_exit(1);
	}
	config.options.filter.pid = pid;
	assert_int_equal(start_session(&client, &config), 0);
	trace_session_process(client.session, pid);
	trace_session_thread(client.session, pid, pid);
	before = monotonic_now();
	assert_int_equal(write(go[1], "", 1), 1);
	while (!executes_sleep(pid))
		usleep(1000);
	session_forget_facts(client.session, pid);
	assert_true(trace_session_means(client.session, pid));
	trace_session_thread(client.session, pid, pid);
	trace_session_thread(client.session, pid, pid);
	client_read(&client);
	assert_int_equal(count_records(&client, TRACE_PROCESS), 2);
	next_record(&client, &at, TRACE_PROCESS);
	process = next_record(&client, &at, TRACE_PROCESS);
	assert_int_equal(process->what, TRACE_PROCESS_EXEC);
	assert_string_equal(process->comm, "sleep");
	assert_true(process->time <= before);
	assert_int_equal(count_records(&client, TRACE_THREAD), 2);
	thread = next_record(&client, &at, TRACE_THREAD); /* behind it */
	assert_string_equal(thread->comm, "sleep");
	end_client(&client);
	end_child(pid);
	close(go[0]);
	close(go[1]);
}

/* Of one that has ended: told once, without the name of the file of before, as long as its parent
 * has not waited for it; then not at all. */
static void test_exec_of_dead(void **state) {
	pid_t child = start_child(getuid(), NULL);
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	const struct trace_process *process;
	siginfo_t info;
	size_t at = 0;

	config.options.filter.pid = child;
	assert_int_equal(start_session(&client, &config), 0);
	trace_session_process(client.session, child);
	kill(child, SIGKILL);
	assert_int_equal(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	assert_true(trace_session_execed(client.session, child, 7));
	waitpid(child, NULL, 0);
	assert_false(trace_session_execed(client.session, child, 8));
	client_read(&client);
	process = next_record(&client, &at, TRACE_PROCESS);
	assert_true(process && process->what == TRACE_PROCESS_SEEN && process->exe[0]);
	process = next_record(&client, &at, TRACE_PROCESS);
	assert_true(process && process->what == TRACE_PROCESS_EXEC && !process->exe[0] &&
		    process->time == 7);
	assert_null(next_record(&client, &at, TRACE_PROCESS));
	end_client(&client);
}

static void test_rate(void **state) {
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	size_t n;

	config.options.rate = 100;
	assert_int_equal(start_session(&client, &config), 0);
	for (uint32_t i = 0; i < 5000; i++)
		put_call(client.session, (uint32_t)getpid(), 8, i);
	put_call(client.session, 0, 0, 0); /* of nobody */
	trace_session_process(client.session, getpid()); /* not what is meant */
	trace_session_finish(client.session);
	client_read(&client);
	n = count_records(&client, TRACE_CALL);
	assert_true(n >= 101 && n <= 301);
	assert_int_equal(count_records(&client, TRACE_PROCESS), 1);
	assert_int_equal(count_lost(&client, TRACE_SOURCE_SHIM), 5001 - n);
	end_client(&client);
}

static void test_duration(void **state) {
	struct test_client client = {};
	struct trace_config config = usual_config(&client);

	config.duration = 50000000;
	assert_int_equal(start_session(&client, &config), 0);
	for (int i = 0; i < 200 && !trace_session_finished(client.session); i++)
		turn_for(10);
	assert_true(trace_session_finished(client.session));
	assert_non_null(first_record(&client, TRACE_STOP));
	assert_true(((const struct trace_stop *)first_record(&client, TRACE_STOP))->time >=
		    ((const struct trace_start *)client.bytes)->monotonic + 50000000);
	end_client(&client);
}

static void test_cgroup(void **state) {
	struct test_client client = {};
	struct trace_config config = usual_config(&client);

	config.options.cgroup = "/no/such/group";
	assert_int_equal(start_session(&client, &config), 0);
	assert_false(trace_session_means(client.session, getpid()));
	end_client(&client);
	config.options.cgroup = "/";
	assert_int_equal(start_session(&client, &config), 0);
	assert_true(trace_session_means(client.session, getpid()));
	end_client(&client);
	config.options.cgroup = "relative";
	assert_int_equal(start_session(&client, &config), -EINVAL);
}

/* A page that is stopped in the middle of a trace ends it in good order. */
static void test_stop(void **state) {
	struct test_client client = {};

	start_usual(&client);
	trace_table_stop(world.table);
	assert_int_equal(client.wakes, 1);
	assert_non_null(first_record(&client, TRACE_STOP));
	end_client(&client);
	assert_int_equal(trace_session_new(&client.session, world.table, &(struct trace_config){},
					   &(uint32_t){ 0 }),
			 -ESHUTDOWN);
}

/* ---- the interest page ---- */

static void test_page(void **state) {
	char folder[] = "/tmp/test-session-XXXXXX", path[64];
	const struct interest_options options = { .deadline_ms = 1 };
	uint32_t targets[20] = { (uint32_t)getpid() };
	const volatile struct interest_page *page;
	struct trace_config config;
	struct test_client a = {}, b = {};
	uint64_t generation;
	int fd;

	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/interest", folder);
	assert_int_equal(interest_writer_new(&world.table->interest, path, &options), 0);
	fd = open(path, O_RDONLY);
	page = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
	assert_int_equal(page->trace_rule_count, 0);
	generation = page->trace_generation;
	config = usual_config(&a);
	config.options.filter.has_pid = false;
	config.options.pids = targets;
	config.options.n_pids = 1;
	assert_int_equal(start_session(&a, &config), 0);
	assert_true(page->trace_generation > generation && page->trace_generation % 2 == 0);
	assert_int_equal(page->trace_rule_count, 1);
	assert_int_equal(page->trace_rules[0].flags, INTEREST_RULE_PID);
	assert_int_equal(page->trace_rules[0].pid, getpid());
	/* a caller without rights: his processes only, and children may be anything */
	config = usual_config(&b);
	config.options.all_users = false;
	config.options.follow = true;
	config.options.filter.has_pid = true;
	assert_int_equal(start_session(&b, &config), 0);
	assert_int_equal(page->trace_rule_count, 2);
	assert_int_equal(page->trace_rules[1].flags, INTEREST_RULE_UID);
	assert_int_equal(page->trace_rules[1].uid, getuid());
	end_client(&b);
	assert_int_equal(page->trace_rule_count, 1);
	/* the rules are the same, but who was told no must ask again */
	generation = page->trace_generation;
	config = usual_config(&b);
	config.options.filter.has_uid = true;
	config.options.filter.uid = 12;
	config.options.cgroup = "/a/b";
	assert_int_equal(start_session(&b, &config), 0);
	assert_true(page->trace_generation > generation);
	assert_int_equal(page->trace_rules[1].flags,
			 INTEREST_RULE_PID | INTEREST_RULE_UID | INTEREST_RULE_CGROUP);
	end_client(&b);
	end_client(&a);
	for (int i = 0; i < INTEREST_TRACE_RULES_MAX + 1; i++)
		targets[i] = (uint32_t)start_child(getuid(), NULL);
	config = usual_config(&a);
	config.options.all_users = false;
	config.options.pids = targets;
	config.options.n_pids = 1;
	assert_int_equal(start_session(&a, &config), 0);
	assert_int_equal(page->trace_rule_count, 1);
	assert_int_equal(page->trace_rules[0].flags, INTEREST_RULE_PID | INTEREST_RULE_UID);
	/* more than fit: all processes of the caller, and of no other user */
	config = usual_config(&b);
	config.options.all_users = false;
	config.options.pids = targets;
	config.options.n_pids = INTEREST_TRACE_RULES_MAX + 1;
	assert_int_equal(start_session(&b, &config), 0);
	assert_int_equal(page->trace_rule_count, 1);
	assert_int_equal(page->trace_rules[0].flags, INTEREST_RULE_UID);
	assert_int_equal(page->trace_rules[0].uid, getuid());
	end_client(&b);
	assert_int_equal(page->trace_rules[0].flags, INTEREST_RULE_PID | INTEREST_RULE_UID);
	end_client(&a);
	config = usual_config(&a);
	config.options.pids = targets;
	config.options.n_pids = INTEREST_TRACE_RULES_MAX + 1;
	assert_int_equal(start_session(&a, &config), 0);
	assert_true(page->trace_rule_count > INTEREST_TRACE_RULES_MAX);
	trace_session_finish(a.session);
	for (int i = 0; i < INTEREST_TRACE_RULES_MAX + 1; i++)
		end_child((pid_t)targets[i]);
	assert_int_equal(page->trace_rule_count, 0);
	end_client(&a);
	munmap((void *)page, INTEREST_PAGE_SIZE);
	close(fd);
	world.table->interest = interest_writer_free(world.table->interest);
	unlink(path);
	rmdir(folder);
}

/* Calls, or what was counted of them: of a process, or of all (0). */
static uint64_t count_called(const struct test_client *client, uint32_t pid) {
	const struct trace_counts *counts;
	const struct trace_call *call;
	uint64_t n = 0;
	size_t at = 0;

	while ((call = next_record(client, &at, TRACE_CALL)))
		n += !pid || call->pid == pid;
	at = 0;
	while ((counts = next_record(client, &at, TRACE_COUNTS)))
		n += !pid || counts->pid == pid ? counts->calls : 0;
	return n;
}

/* Until the library of the program is probed. */
static void await_library(struct test_client *client) {
	const size_t n_folder = (size_t)(strrchr(program, '/') + 1 - program);
	const struct trace_name *name = NULL;
	size_t at = 0;

	for (int i = 0; i < 10000 && !name; i++) {
		trace_uprobe_drain(client->session->uprobe);
		client_read(client);
		while ((name = next_record(client, &at, TRACE_NAME)) &&
		       (name->kind != TRACE_NAME_LIBRARY ||
			strncmp(name->name, program, n_folder) != 0))
			;
		usleep(1000);
	}
	assert_non_null(name);
}

/* A child begins, calls libcuda and ends before the kernel is asked about processes. */
static void run_short_child(bool follow, bool aggregate) {
	struct test_client client = {};
	struct trace_config config = usual_config(&client);
	uint32_t target;
	int to[2], from[2];
	char line[16];

	if (!program || getuid() != 0)
		skip();
	assert_int_equal(pipe2(to, O_CLOEXEC), 0);
	assert_int_equal(pipe2(from, O_CLOEXEC), 0);
	target = (uint32_t)fork();
	if (!target) {
		dup2(to[0], STDIN_FILENO);
		dup2(from[1], STDOUT_FILENO);
		execl(program, program, "forks", NULL);
		_exit(127);
	}
	close(from[1]);
	assert_int_equal(read(from[0], line, sizeof(line)), strlen("ready\n"));
	config.options.filter.has_pid = config.options.shim = false;
	config.options.bpf = true;
	config.options.follow = follow;
	config.options.aggregate = aggregate;
	config.options.pids = &target;
	config.options.n_pids = follow;
	assert_int_equal(start_session(&client, &config), 0);
	if (client.session->uprobe && (client.session->hooks || !follow)) {
		await_library(&client);
		assert_int_equal(write(to[1], "\n", 1), 1);
		assert_int_equal(read(from[0], line, sizeof(line)), strlen("done\n"));
		if (aggregate)
			usleep(250000); /* counts are read that seldom */
		trace_uprobe_drain(client.session->uprobe);
		trace_session_finish(client.session);
		client_read(&client);
		assert_int_equal(count_called(&client, target), 1);
		if (follow) { /* the child's, and that of what the child executed */
			assert_int_equal(count_called(&client, 0), 3);
			assert_int_equal(count_lost(&client, TRACE_SOURCE_BPF), 0);
		} else { /* others on the machine may have some, too */
			assert_true(count_lost(&client, TRACE_SOURCE_BPF) >= 2);
		}
	}
	end_client(&client);
	end_child((pid_t)target);
	close(to[0]);
	close(to[1]);
	close(from[0]);
}

/* Its calls are there when it is not; where nobody can know whose child it was, they are lost, and
 * counted. */
static void test_short_child(void **state) {
	run_short_child(true, false);
	run_short_child(true, true);
	run_short_child(false, false);
	run_short_child(false, true);
}

int main(int argc, char **argv) {
#define TEST(NAME) cmocka_unit_test_setup_teardown(NAME, world_setup, world_teardown)
	const struct CMUnitTest tests[] = {
		TEST(test_frame),        TEST(test_wakes),          TEST(test_slow_reader),
		TEST(test_many_lose),    TEST(test_names_stay),     TEST(test_numbers),
		TEST(test_stacks),       TEST(test_many_processes), TEST(test_stack_again),
		TEST(test_warnings),     TEST(test_limits),         TEST(test_quota),
		TEST(test_work),         TEST(test_targets),        TEST(test_no_shim),
		TEST(test_bad_targets),  TEST(test_rights),         TEST(test_rights_change),
		TEST(test_follow),       TEST(test_threads),        TEST(test_exec),
		TEST(test_exec_of_dead), TEST(test_rate),           TEST(test_duration),
		TEST(test_cgroup),       TEST(test_stop),           TEST(test_page),
		TEST(test_short_child),
	};
#undef TEST

	program =
		argc > 1 ? realpath(argv[1], NULL) : NULL; /* as the kernel names files beside it */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
