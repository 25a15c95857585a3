/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Tests of hooks in the running kernel: ioctls of /dev/null, which stands in for the driver's
 * device; files, processes, tracepoints; probes of a function of this program. Its session keeps
 * all records. It is skipped without the right to load eBPF programs.
 */

#include "lib/elf-symbols.h"
#include "hook-private.h"
#include "hook-programs.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test-hook-session.h"

#define RM_CONTROL 0xc020462au
#define RM_ALLOC 0xc030462bu
#define XFER 0xc01046d3u
#define UVM_FREE 34u
#define UVM_MAP_EXTERNAL 33u

/* ---- help ---- */

static const struct hook_places places = { .extra_devices = "1:3=ctl 1:5=uvm",
					   .devices = "/dev/null",
					   .folder = "/nonexistent",
					   .symbols = "/dev/null" };

static void begin(pid_t pid, struct trace_options options) {
	begin_at(pid, options, &places);
}

/* ---- ioctls ---- */

static void do_ioctls(void) {
	unsigned char control[32], alloc[48], xfer[16], parameters[200], large[9264];
	int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR),
	    other = open("/dev/full", O_RDWR);
	uint64_t address = (uint64_t)(uintptr_t)parameters;
	uint32_t size = sizeof(parameters), small = 24, inner = RM_CONTROL;
	unsigned char *page, *uvm;

	memset(parameters, 0x5a, sizeof(parameters));
	memset(control, 0x11, sizeof(control));
	memcpy(control + 16, &address, 8);
	memcpy(control + 24, &size, 4);
	ioctl(null, RM_CONTROL, control);
	memset(alloc, 0, sizeof(alloc));
	memcpy(alloc + 16, &address, 8);
	memcpy(alloc + 32, &small, 4);
	ioctl(null, RM_ALLOC, alloc);
	memcpy(xfer, &inner, 4);
	memcpy(xfer + 4, &small, 4);
	memcpy(xfer + 8, &address, 8);
	ioctl(null, XFER, xfer);
	ioctl(null, RM_CONTROL, NULL);
	/* UVM's have no size: the page ends after 40 bytes */
	page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(page + 4096, 4096);
	uvm = page + 4096 - 40;
	memset(uvm, 0x33, 40);
	ioctl(zero, UVM_FREE, uvm);
	/* MAP_EXTERNAL_ALLOCATION: its status is the last of 9264 bytes */
	memset(large, 0, sizeof(large));
	memcpy(large + 9260, &small, 4);
	ioctl(zero, UVM_MAP_EXTERNAL, large);
	ioctl(other, RM_CONTROL, control);
	ioctl(12345, RM_CONTROL, control);
	close(null);
}

static const struct trace_ioctl *check_ioctl(const struct trace_ioctl *io, uint32_t command,
					     uint8_t device, uint16_t before, uint16_t inner) {
	io = next(io, TRACE_IOCTL);
	assert_non_null(io);
	assert_int_equal(io->command, command);
	assert_int_equal(io->device, device);
	assert_int_equal(io->n_before, before);
	assert_int_equal(io->n_after, before);
	assert_int_equal(io->n_inner, inner);
	assert_int_equal(io->record.size,
			 sizeof(*io) + 2 * ((before + 7) & ~7) + ((inner + 7) & ~7));
	assert_int_equal(io->pid, session.meant);
	assert_int_equal(io->tid, session.meant);
	assert_int_equal(io->result, -ENOTTY);
	assert_true(io->start && io->start <= io->end);
	return io;
}

static void test_ioctl(void **state) {
	struct child child = child_new(do_ioctls);
	const struct trace_ioctl *io;

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("driver", "uvm") });
	assert_true(is_missing("post-event"));
	assert_false(is_missing(" ioctl,"));
	child_run(&child);
	finish();
	io = check_ioctl(NULL, RM_CONTROL, TRACE_DEVICE_CTL, 32, 128);
	assert_int_equal(io->bytes[0], 0x11);
	assert_int_equal(io->bytes[64], 0x5a);
	assert_int_equal(io->bytes[64 + 127], 0x5a);
	io = check_ioctl(io, RM_ALLOC, TRACE_DEVICE_CTL, 48, 24);
	assert_int_equal(io->bytes[96 + 23], 0x5a);
	io = check_ioctl(io, XFER, TRACE_DEVICE_CTL, 16, 24);
	assert_int_equal(io->bytes[32], 0x5a);
	io = check_ioctl(io, RM_CONTROL, TRACE_DEVICE_CTL, 0, 0);
	io = check_ioctl(io, UVM_FREE, TRACE_DEVICE_UVM, 32, 0);
	assert_int_equal(io->bytes[31], 0x33);
	assert_int_equal(io->record.flags, 0);
	io = check_ioctl(io, UVM_MAP_EXTERNAL, TRACE_DEVICE_UVM, 128, 0);
	assert_int_equal(io->record.flags, TRACE_IOCTL_STATUS);
	assert_int_equal(io->status, 24);
	assert_null(next(io, TRACE_IOCTL));
	assert_int_equal(session.lost, 0);
}

static const struct trace_event *find_event(const char *name) {
	const struct trace_event *event = NULL;

	while ((event = next(event, TRACE_EVENT)))
		if (name_of(event) && !strcmp(name_of(event), name))
			return event;
	return NULL;
}

static void test_files(void **state) {
	struct child child = child_new(do_ioctls);
	const struct trace_event *event;
	size_t n = 0;

	begin(child.pid,
	      (struct trace_options){ .kernel = true, HOOKS("open", "close", "uvm-open") });
	child_run(&child);
	finish();
	for (event = NULL; (event = next(event, TRACE_EVENT)); n++)
		assert_non_null(name_of(event));
	assert_int_equal(n, 3); /* /dev/full is another's */
	assert_null(next(NULL, TRACE_IOCTL));
	event = find_event("driver open(path:str,flags:u32)=s32");
	assert_non_null(event);
	assert_string_equal(text_of(event), "/dev/null");
	assert_int_equal(event->words[1], O_RDWR);
	assert_true(event->result >= 0);
	assert_true(event->end > event->start);
	assert_int_equal(event->record.flags, 0);
	event = find_event("uvm open(path:str,flags:u32)=s32");
	assert_non_null(event);
	assert_string_equal(text_of(event), "/dev/zero");
	event = find_event("driver close(fd:s32,device:u8,minor:u8)=s32");
	assert_non_null(event);
	assert_int_equal(event->words[1], TRACE_DEVICE_CTL);
	assert_int_equal(event->words[2], 3);
}

static void test_mmap(void **state) {
	struct child child = child_new(do_ioctls);

	begin(child.pid,
	      (struct trace_options){ .kernel = true, .errors = true, HOOKS("mmap", "ioctl") });
	child_run(&child);
	finish();
	assert_null(next(NULL, TRACE_EVENT)); /* anonymous memory is of no device */
	assert_non_null(next(NULL, TRACE_IOCTL)); /* they fail */
}

/* Nobody else's are seen, and not our own. */
static void test_others(void **state) {
	struct child child = child_new(do_ioctls), other = child_new(do_ioctls);

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	child_run(&other);
	do_ioctls();
	trace_hooks_drain(hooks);
	assert_int_equal(session.n, 0);
	child_run(&child);
	finish();
	assert_non_null(next(NULL, TRACE_IOCTL));
}

/* ---- processes ---- */

static void do_fork(void) {
	pid_t pid = fork();

	if (!pid) {
		do_ioctls();
		execl("/bin/sh", "sh", "-c", "exit 3", NULL);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
	raise(SIGKILL);
}

static void test_processes(void **state) {
	struct child child = child_new(do_fork);
	const struct trace_process *process;
	const struct trace_ioctl *io;
	pid_t grandchild;

	begin(child.pid, (struct trace_options){ .kernel = true, .follow = true, HOOKS("ioctl") });
	child_run(&child);
	finish();
	assert_int_equal(session.n_told, 4);
	assert_int_equal(session.told[0].what, 'f');
	assert_int_equal(session.told[0].status, child.pid);
	grandchild = session.told[0].pid;
	assert_int_equal(session.told[1].what, 'e');
	assert_int_equal(session.told[1].pid, grandchild);
	assert_int_equal(session.told[2].what, 'x');
	assert_int_equal(session.told[2].pid, grandchild);
	assert_true(WIFEXITED(session.told[2].status));
	assert_int_equal(WEXITSTATUS(session.told[2].status), 3);
	assert_int_equal(session.told[3].what, 'x');
	assert_int_equal(session.told[3].pid, child.pid);
	assert_true(WIFSIGNALED(session.told[3].status));
	assert_int_equal(WTERMSIG(session.told[3].status), SIGKILL);
	/* it is gone when it is read of: its name comes from the kernel */
	process = next(NULL, TRACE_PROCESS);
	assert_non_null(process);
	assert_int_equal(process->pid, grandchild);
	assert_int_equal(process->what, TRACE_PROCESS_EXEC);
	assert_int_equal(process->uid, getuid());
	assert_string_equal(process->comm, "sh");
	for (size_t i = 1; i < 4; i++)
		assert_true(session.told[i].time >= session.told[i - 1].time);
	io = next(NULL, TRACE_IOCTL);
	assert_non_null(io);
	assert_int_equal(io->pid, grandchild); /* from its first call on */
}

static void test_no_follow(void **state) {
	struct child child = child_new(do_fork);

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	child_run(&child);
	finish();
	assert_int_equal(session.n_told, 1);
	assert_int_equal(session.told[0].what, 'x');
	assert_null(next(NULL, TRACE_IOCTL));
}

static void *outlive_main(void *userdata) {
	usleep(200000);
	do_ioctls();
	_exit(3);
}

static void do_end_main(void) {
	pthread_t thread;

	if (pthread_create(&thread, NULL, outlive_main, NULL) == 0)
		pthread_exit(NULL);
}

/* A process ends with its last thread, which need not be its first one. */
static void test_last_thread(void **state) {
	struct child child = child_new(do_end_main);

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	assert_int_equal(write(child.go, "x", 1), 1);
	usleep(100000);
	trace_hooks_drain(hooks);
	assert_int_equal(session.n_told, 0);
	waitpid(child.pid, NULL, 0);
	close(child.go);
	finish();
	assert_int_equal(session.n_told, 1);
	assert_int_equal(session.told[0].what, 'x');
	assert_int_equal(session.told[0].pid, child.pid);
	assert_true(WIFEXITED(session.told[0].status));
	assert_int_equal(WEXITSTATUS(session.told[0].status), 3);
	assert_non_null(next(NULL, TRACE_IOCTL));
}

/* ---- probes of the user ---- */

long test_hook_target(const char *text, int number, const uint64_t *pointer, bool yes, long e,
		      long f, long seventh);

__attribute__((noipa)) long test_hook_target(const char *text, int number, const uint64_t *pointer,
					     bool yes, long e, long f, long seventh) {
	__asm__ volatile("" ::: "memory");
	return number + (long)*pointer + seventh;
}

static void do_calls(void) {
	const uint64_t number = 0x123456789a;
	char hello[] = "hello", text[100] = "";

	test_hook_target(hello, -5, &number, true, 5, 6, 7);
	test_hook_target(memset(text, 'x', 99), -6, &number, false, 5, 6, 8);
}

static char self[4096];

static void test_user(void **state) {
	char spec[8192];
	struct child child = child_new(do_calls);
	const struct trace_event *event;

	snprintf(spec, sizeof(spec),
		 "u:%s:test_hook_target(text=arg0:str,number=arg1:s32,low=arg2+0:u16,yes=arg3:bool,"
		 "seventh=arg6:u64,raw=arg1:u8)=ret:s64",
		 self);
	if (strlen(spec) >= HOOK_SPEC_MAX)
		skip();
	begin(child.pid, (struct trace_options){ PROBES(spec) });
	assert_int_equal(session.n_missing, 0);
	child_run(&child);
	finish();
	event = next(NULL, TRACE_EVENT);
	assert_non_null(event);
	assert_non_null(strstr(
		name_of(event),
		":test_hook_target(text:str,number:s32,low:u16,yes:bool,seventh:u64,raw:u8)=s64"));
	assert_int_equal(event->n_words, 6);
	assert_string_equal(text_of(event), "hello");
	assert_int_equal(event->n_text, 6);
	assert_int_equal((int64_t)event->words[1], -5);
	assert_int_equal(event->words[2], 0x789a);
	assert_int_equal(event->words[3], 1);
	assert_int_equal(event->words[4], 7);
	assert_int_equal(event->words[5], 0xfb);
	assert_int_equal(event->result, 0x123456789a - 5 + 7);
	assert_true(event->end > event->start);
	event = next(event, TRACE_EVENT);
	assert_non_null(event);
	assert_int_equal(event->n_text, 64);
	assert_int_equal(strlen(text_of(event)), 63);
	assert_null(next(event, TRACE_EVENT));
}

/* Calls itself n times; or dies, or is left by longjmp(). */
long test_hook_deep(int n, jmp_buf *back);

__attribute__((noipa)) long test_hook_deep(int n, jmp_buf *back) {
	if (n == -1) {
		usleep(20000);
		kill(getpid(), SIGKILL);
	}
	if (n == -2)
		longjmp(*back, 1);
	if (n > 0)
		test_hook_deep(n - 1, back);
	__asm__ volatile("" ::: "memory"); /* no loop */
	return n;
}

static void do_recursion(void) {
	test_hook_deep(4, NULL);
}

static void do_die(void) {
	test_hook_deep(-1, NULL);
}

static void *leave_by_jump(void *unused) {
	jmp_buf back;

	if (!setjmp(back))
		test_hook_deep(-2, &back);
	return NULL;
}

static void do_jump(void) {
	pthread_t thread;

	if (!pthread_create(&thread, NULL, leave_by_jump, NULL))
		pthread_join(thread, NULL);
	raise(SIGSTOP);
}

static void begin_deep(pid_t pid) {
	char spec[8192];

	snprintf(spec, sizeof(spec), "u:%s:test_hook_deep(n=arg0:s32)=ret:s64", self);
	begin(pid, (struct trace_options){ PROBES(spec) });
}

/* Of calls within calls of the same function the innermost one is told, and the others are lost. */
static void test_user_recursion(void **state) {
	struct child child = child_new(do_recursion);
	const struct trace_event *event;

	begin_deep(child.pid);
	child_run(&child);
	finish();
	event = next(NULL, TRACE_EVENT);
	assert_non_null(event);
	assert_int_equal(event->words[0], 0);
	assert_null(next(event, TRACE_EVENT));
	assert_int_equal(session.lost, 4);
}

/* A call in which its process died lasted until then; one that its thread left before it ended is
 * lost. */
static void test_user_left(void **state) {
	struct child child = child_new(do_die);
	const struct trace_event *event;

	begin_deep(child.pid);
	child_run(&child);
	usleep(50000);
	finish();
	event = next(NULL, TRACE_EVENT);
	assert_non_null(event);
	assert_int_equal(event->record.flags, TRACE_EVENT_OPEN);
	assert_int_equal(session.n_told, 1);
	assert_int_equal(session.told[0].what, 'x');
	assert_in_range(event->end, event->start + 20000000, session.told[0].time);
	assert_int_equal(session.lost, 0);
	child = child_new(do_jump);
	begin_deep(child.pid);
	assert_int_equal(write(child.go, "x", 1), 1);
	assert_int_equal(waitpid(child.pid, NULL, WUNTRACED), child.pid);
	finish();
	assert_null(next(NULL, TRACE_EVENT));
	assert_int_equal(session.lost, 1);
	kill(child.pid, SIGKILL);
	waitpid(child.pid, NULL, 0);
	close(child.go);
}

/* An address in the kernel; 0: it is not told. */
static uint64_t kernel_address(void) {
	FILE *file = fopen("/proc/kallsyms", "re");
	unsigned long address = 0;
	char line[256];

	while (file && !address && fgets(line, sizeof(line), file))
		if (strstr(line, " _stext\n"))
			address = strtoul(line, NULL, 16);
	if (file)
		fclose(file);
	return address;
}

static void do_kernel_address(void) {
	int64_t number = 0;

	test_hook_target((const char *)kernel_address(), 1, (void *)&number, true, 5, 6, 7);
}

/* Arguments are what a program likes: nothing of the kernel's memory is in its records. */
static void test_user_kernel_address(void **state) {
	struct child child = child_new(do_kernel_address);
	const struct trace_event *event;
	char spec[8192];

	snprintf(spec, sizeof(spec), "u:%s:test_hook_target(text=arg0:str,first=arg0+0:u64)", self);
	begin(child.pid, (struct trace_options){ PROBES(spec) });
	child_run(&child);
	finish();
	event = next(NULL, TRACE_EVENT);
	assert_non_null(event);
	assert_int_equal(event->n_words, 2);
	assert_string_equal(text_of(event), "");
	assert_int_equal(event->words[1], 0);
}

static void test_user_instant(void **state) {
	struct child child = child_new(do_calls);
	const struct trace_event *event;
	char spec[8192];

	snprintf(spec, sizeof(spec), "u:%s:test_hook_target", self);
	begin(child.pid, (struct trace_options){ PROBES(spec) });
	child_run(&child);
	finish();
	event = next(NULL, TRACE_EVENT);
	assert_non_null(event);
	assert_int_equal(event->record.flags, TRACE_EVENT_INSTANT);
	assert_int_equal(event->start, event->end);
}

static void test_tracepoint(void **state) {
	struct child child = child_new(do_fork);
	const struct trace_event *event;

	begin(child.pid, (struct trace_options){
				 .follow = true,
				 PROBES("t:sched:sched_process_exec(filename,who=pid,old_pid:hex)",
					"t:sched:sched_process_exit(comm,prio)") });
	if (is_missing("no tracefs"))
		skip();
	assert_int_equal(session.n_missing, 0);
	child_run(&child);
	finish();
	event = find_event("user sched:sched_process_exec(filename:str,who:s32,old_pid:hex)");
	assert_non_null(event);
	assert_string_equal(text_of(event), "/bin/sh");
	assert_int_equal(event->words[1], event->pid);
	assert_int_equal(event->words[2], event->pid);
	assert_int_equal(event->record.flags, TRACE_EVENT_INSTANT);
	event = find_event("user sched:sched_process_exit(comm:str,prio:s32)");
	assert_non_null(event);
	assert_string_equal(text_of(event), "sh");
	assert_int_equal(event->words[1], 120 + getpriority(PRIO_PROCESS, 0));
}

static void test_missing(void **state) {
	struct child child = child_new(do_calls);
	char spec[8192];

	snprintf(spec, sizeof(spec), "u:%s:no_such_function", self);
	begin(child.pid,
	      (struct trace_options){
		      .kernel = true,
		      HOOKS("nonsense", "sysmem-alloc", "gsp"),
		      PROBES(spec, "u:/nonexistent/lib.so:f", "t:sched:no_such_tracepoint",
			     "t:sched:sched_switch(no_such_field)",
			     "t:sched:sched_switch(prev_pid,common_pid)",
			     "k:nvidia:no_such_function", "k:no_such_module:f",
			     "k:nvidia:f(a=arg0)"),
	      });
	assert_true(is_missing("hooks: nonsense is no name, set or glob"));
	assert_true(is_missing("no_such_function: there is no such function"));
	assert_true(is_missing("/nonexistent/lib.so: No such file"));
	assert_true(is_missing("sched:no_such_tracepoint: there is no such tracepoint") ||
		    is_missing("tracefs"));
	assert_true(is_missing("sched:sched_switch has no field no_such_field"));
	assert_true(is_missing(
		"sched:sched_switch has no field common_pid")); /* a program finds an address of the
								   kernel's there */
	assert_true(is_missing("no_such_module:f: the module is not loaded"));
	assert_true(is_missing("k:nvidia:f(a=arg0): character 18: : and a type are missing"));
	assert_true(is_missing("hook sysmem-alloc: "));
	assert_true(is_missing("nvidia:nv_alloc_pages: the module is not loaded"));
	if (access("/proc/driver/nvidia/version", F_OK) < 0)
		assert_true(is_missing("none of "));
	child_run(&child);
	finish();
	assert_null(next(NULL, TRACE_EVENT));
}

/* Where there is no driver, one short line for all hooks of sets, and none if nobody asked for
 * hooks. */
static void test_no_driver(void **state) {
	static const struct hook_places nowhere = { .devices = "/dev/null",
						    .symbols = "/dev/null",
						    .folder = "/nonexistent" };
	struct child child = child_new(do_calls);

	begin_at(child.pid, (struct trace_options){ .kernel = true }, &nowhere);
	assert_int_equal(session.n_missing, 0);
	finish();
	begin_at(child.pid, (struct trace_options){ .kernel = true, HOOKS("driver", "uvm") },
		 &nowhere);
	assert_int_equal(session.n_missing, 1);
	if (access("/proc/driver/nvidia/version", F_OK) < 0) /* whose tracepoint may be there */
		assert_true(is_missing("none of "));
	child_run(&child);
	finish();
}

/* Files of users, who may make anything of them: one that would block who opens it, one that is
 * cut, one that is another's by the time it is opened. */
static void test_user_files(void **state) {
	struct child child = child_new(do_calls);
	char folder[] = "/tmp/test-hook-XXXXXX", command[9000], fifo[64], cut[64], link[64];

	assert_non_null(mkdtemp(folder));
	snprintf(fifo, sizeof(fifo), "%s/fifo", folder);
	snprintf(cut, sizeof(cut), "%s/cut", folder);
	snprintf(link, sizeof(link), "%s/link", folder);
	assert_int_equal(mkfifo(fifo, 0600), 0);
	assert_int_equal(symlink("/bin/sh", link), 0);
	snprintf(command, sizeof(command), "head -c 4096 '%s' > %s", self, cut);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "u:%s/fifo:main", folder);
	snprintf(fifo, sizeof(fifo), "u:%s/cut:main", folder);
	alarm(20);
	begin(child.pid, (struct trace_options){ PROBES(command, fifo) });
	alarm(0);
	assert_true(is_missing("/fifo: main: not a program"));
	assert_true(is_missing("/cut: main: not a program"));
	assert_int_equal(elf_file_open(link, false, 4242),
			 -EACCES); /* where it leads to counts, not whose the link is */
	child_run(&child);
	finish();
	snprintf(command, sizeof(command), "rm -r %s", folder);
	assert_int_equal(system(command), 0);
}

/* A function that the kernel has: the ladder goes down to its last step, and says what each lacked;
 * or one works. */
static void test_ladder(void **state) {
	static const struct hook_places kernel = { .devices = "/dev/null",
						   .folder = "/nonexistent" };
	struct child child = child_new(do_calls);
	const struct hook_attachment *attachment;

	begin_at(child.pid,
		 (struct trace_options){
			 PROBES("k:vmlinux:vfs_write(file=arg0:ptr,size=arg2:u64)=ret:s64") },
		 &kernel);
	attachment = hooks->attachments;
	if (attachment->method == HOOK_METHOD_NONE) {
		assert_non_null(strstr(attachment->reason, "fentry: "));
		assert_non_null(strstr(attachment->reason, "kprobe-multi: "));
		assert_non_null(strstr(attachment->reason, "; kprobe: this kernel has none"));
		assert_true(is_missing("kprobe: this kernel has none"));
	}
	child_run(&child);
	finish();
}

/* Callers who may not attach get what is their own. */
static void test_rights(void **state) {
	struct trace_options options = { .caller = 4242,
					 .own_files = true,
					 .kernel = true,
					 HOOKS("all", "discover:*"),
					 PROBES("k:vmlinux:vfs_read", "t:sched:sched_switch",
						"u:/bin/sh:main", "u:/nonexistent:f") };

	free(session.records);
	memset(&session, 0, sizeof(session));
	assert_int_equal(trace_hooks_new_at(&hooks, &session, &options, &places), 0);
	wait_until_ready();
	assert_int_equal(hooks->n_probes, 2); /* of files, which are others' */
	assert_true(is_missing("k:vmlinux:vfs_read: callers who may not attach"));
	assert_true(is_missing("t:sched:sched_switch: callers"));
	assert_true(is_missing("u:/bin/sh:main: callers"));
	assert_true(is_missing("u:/nonexistent:f: callers")); /* whether it is there is not told */
	assert_true(hooks->n_attachments > 0);
	for (size_t i = 0; i < hooks->n_attachments; i++) {
		assert_int_equal(hooks->attachments[i].hook->process, HOOK_PROCESS_MEANT);
		assert_int_not_equal(hooks->attachments[i].method, HOOK_METHOD_UPROBE);
	}
	do_ioctls();
	finish();
	assert_null(next(NULL, TRACE_IOCTL)); /* another's */
	/* or not that */
	options.own_files = false;
	free(session.records);
	memset(&session, 0, sizeof(session));
	assert_int_equal(trace_hooks_new_at(&hooks, &session, &options, &places), 0);
	assert_int_equal(hooks->n_probes, 0);
	assert_true(
		is_missing("u:/bin/sh:main: callers who may not attach can probe functions of "
			   "their own files only, and that if the daemon has user-attach = yes"));
	finish();
}

/* What still runs at the end is told. */
static void test_open_end(void **state) {
	struct child child = child_new(do_ioctls);
	const struct trace_event *event;

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	/* as if it were within an ioctl that never ends */
	{
		struct hook_ioctl io = { .header = { .type = HOOK_RECORD_IOCTL,
						     .pid = (uint32_t)child.pid,
						     .tid = (uint32_t)child.pid,
						     .start = 5 },
					 .command = RM_CONTROL };
		uint64_t key = HOOK_KEY(child.pid, 0);

		assert_int_equal(
			bpf_map_update_elem(hook_programs_map(hooks->programs, HOOK_MAP_IOCTLS),
					    &key, &io, 0),
			0);
	}
	finish();
	event = next(NULL, TRACE_IOCTL);
	assert_non_null(event);
	assert_int_equal(event->record.flags, 1);
	assert_true(event->end > event->start);
	kill(child.pid, SIGKILL);
	waitpid(child.pid, NULL, 0);
	close(child.go);
}

/* Counters of functions are there for `discover:` only: of all processors together they may be tens
 * of megabytes. */
static void test_counters(void **state) {
	struct child child = child_new(do_ioctls);
	struct bpf_map_info info = {};
	uint32_t size = sizeof(info);

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	assert_int_equal(bpf_obj_get_info_by_fd(hook_programs_map(hooks->programs, HOOK_MAP_COUNTS),
						&info, &size),
			 0);
	assert_int_equal(info.max_entries, 1);
	child_run(&child);
	finish();
}

/* The end of an ioctl that its hook did not see: it is lost, and counted, when the thread does the
 * next one. */
static void test_missed_end(void **state) {
	struct child child = child_new(do_ioctls);
	struct hook_ioctl io = { .header = { .type = HOOK_RECORD_IOCTL,
					     .pid = (uint32_t)child.pid,
					     .tid = (uint32_t)child.pid,
					     .start = 5 },
				 .command = RM_CONTROL };
	uint64_t key = HOOK_KEY(child.pid, 0);

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	assert_int_equal(bpf_map_update_elem(hook_programs_map(hooks->programs, HOOK_MAP_IOCTLS),
					     &key, &io, 0),
			 0);
	child_run(&child);
	finish();
	assert_non_null(check_ioctl(NULL, RM_CONTROL, TRACE_DEVICE_CTL, 32, 128));
	assert_int_equal(session.lost, 1);
}

/* More than the ring holds is counted, exactly. */
static void do_many(void) {
	unsigned char argument[32] = {};
	int null = open("/dev/null", O_RDWR);

	for (size_t i = 0; i < 40000; i++)
		ioctl(null, RM_CONTROL, argument);
}

static void test_loss(void **state) {
	struct child child = child_new(do_many);
	const void *io = NULL;
	size_t n = 0;

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	child_run(&child);
	trace_hooks_drain(hooks);
	assert_int_equal(hooks->n_taken,
			 HOOK_DRAIN_MAX); /* there are more, for which the loop does not wait */
	finish();
	while ((io = next(io, TRACE_IOCTL)))
		n++;
	assert_true(n > 1000);
	assert_true(session.lost > 0);
	/* the end of the process found no room, either */
	assert_in_range(n + session.lost, 40000, 40001);
}

/* ---- the list ---- */

static json_object *find_hook(json_object *array, const char *name) {
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		json_object *hook = json_object_array_get_idx(array, i);

		if (!strcmp(json_object_get_string(json_object_object_get(hook, "name")), name))
			return hook;
	}
	return NULL;
}

static const char *member(json_object *hook, const char *name) {
	return json_object_get_string(json_object_object_get(hook, name));
}

static void test_list(void **state) {
	struct child child = child_new(do_ioctls);
	json_object *array, *hook;

	begin(child.pid, (struct trace_options){ .kernel = true, HOOKS("ioctl") });
	child_run(&child);
	trace_hooks_drain(hooks);
	assert_int_equal(trace_hooks_list(NULL, &hooks, 1, &array), 0);
	assert_true(json_object_array_length(array) > 60);
	for (size_t i = 0; i < json_object_array_length(array); i++)
		assert_int_equal(json_object_object_length(json_object_array_get_idx(array, i)), 9);
	hook = find_hook(array, "ioctl");
	assert_non_null(hook);
	assert_string_equal(member(hook, "state"), "attached");
	assert_string_equal(member(hook, "method"), "raw-tracepoint");
	assert_string_equal(member(hook, "target"), "ioctl(2)");
	assert_int_equal(json_object_get_int(json_object_object_get(hook, "hits")),
			 4); /* that of UVM's is another hook's */
	assert_non_null(strstr(member(hook, "reason"),
			       "nvidia:nvidia_unlocked_ioctl: the module is not loaded"));
	hook = find_hook(array, "sysmem-alloc");
	assert_string_equal(member(hook, "state"), "unavailable");
	assert_string_equal(
		json_object_to_json_string(json_object_object_get(hook, "arguments")),
		"[ \"pages:u32\", \"page_size:u64\", \"contiguous:bool\", \"cache:u32\" ]");
	json_object_put(array);
	assert_int_equal(trace_hooks_list("power", NULL, 0, &array), 0);
	for (size_t i = 0; i < json_object_array_length(array); i++)
		assert_string_equal(member(json_object_array_get_idx(array, i), "set"), "power");
	assert_true(json_object_array_length(array) > 5);
	json_object_put(array);
	assert_int_equal(trace_hooks_list("nothing-is-called-that", NULL, 0, &array), 0);
	assert_int_equal(json_object_array_length(array), 0);
	json_object_put(array);
	finish();
}

int main(int argc, char **argv) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ioctl),          cmocka_unit_test(test_files),
		cmocka_unit_test(test_mmap),           cmocka_unit_test(test_others),
		cmocka_unit_test(test_processes),      cmocka_unit_test(test_no_follow),
		cmocka_unit_test(test_last_thread),    cmocka_unit_test(test_user),
		cmocka_unit_test(test_user_recursion), cmocka_unit_test(test_user_left),
		cmocka_unit_test(test_user_instant),   cmocka_unit_test(test_tracepoint),
		cmocka_unit_test(test_missing),        cmocka_unit_test(test_no_driver),
		cmocka_unit_test(test_user_files),     cmocka_unit_test(test_user_kernel_address),
		cmocka_unit_test(test_ladder),         cmocka_unit_test(test_rights),
		cmocka_unit_test(test_open_end),       cmocka_unit_test(test_missed_end),
		cmocka_unit_test(test_counters),       cmocka_unit_test(test_loss),
		cmocka_unit_test(test_list),
	};
	const struct trace_options nothing = { .all_users = true };
	int r;

	if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0)
		return 1;
	r = trace_hooks_new_at(&hooks, &session, &nothing, &places);
	if (r < 0) {
		printf("skipped: %s\n", session.n_missing ? session.missing[0] : strerror(-r));
		return 77;
	}
	trace_hooks_free(hooks);
	r = cmocka_run_group_tests(tests, NULL, NULL);
	free(session.records);
	return r;
}
