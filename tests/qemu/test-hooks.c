/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Hooks of a driver that stands in for NVIDIA's (module/), in a kernel that has kprobes: by which
 * method each is attached, and what it shows. Runs as the only program of a virtual machine.
 */

#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <termios.h>

#include "daemon/gpuprobed/trace/hook/hook-programs.h"
#include "daemon/gpuprobed/trace/hook/test-hook-session.h"

#define RM_CONTROL 0xc020462au
#define RM_ALLOC 0xc030462bu
#define XID 0x4600u
#define UVM_MIGRATE 51u

static bool has_fprobe, has_uvm_btf;

/* What a program of CUDA would do. */
static void use_driver(void) {
	unsigned char control[32] = { 1, 2, 3 }, alloc[48] = {}, uvm[64] = { 9 };
	int ctl = open("/dev/nvidiactl", O_RDWR), gpu = open("/dev/nvidia3", O_RDWR),
	    uvm_fd = open("/dev/nvidia-uvm", O_RDWR);

	if (ioctl(ctl, RM_CONTROL, control) || ioctl(gpu, RM_ALLOC, alloc) || ioctl(ctl, XID, 0) ||
	    ioctl(uvm_fd, UVM_MIGRATE, uvm))
		_exit(1);
	mmap(NULL, 3 * 4096, PROT_READ, MAP_SHARED, gpu, 5 * 4096);
	close(gpu);
	_exit(0);
}

static const struct trace_event *find_event(const char *name) {
	const struct trace_event *event = NULL;

	while ((event = next(event, TRACE_EVENT)))
		if (name_of(event) && !strcmp(name_of(event), name))
			return event;
	return NULL;
}

static const struct trace_event *get_event(const char *name) {
	const struct trace_event *event = find_event(name);

	if (!event)
		fail_msg("no event %s", name);
	return event;
}

static const struct hook_attachment *find_attachment(const char *name) {
	for (size_t i = 0; i < hooks->n_attachments; i++)
		if (!strcmp(hooks->attachments[i].hook->name, name))
			return &hooks->attachments[i];
	fail_msg("no hook %s", name);
	return NULL;
}

static void check_method(const char *name, enum hook_method method) {
	const struct hook_attachment *attachment = find_attachment(name);

	printf("%-16s %s; %s\n", name, hook_method_name(attachment->method), attachment->reason);
	if (attachment->method != method)
		fail_msg("%s: %s instead of %s: %s", name, hook_method_name(attachment->method),
			 hook_method_name(method), attachment->reason);
}

/* ---- ---- */

static void test_methods(void **state) {
	const enum hook_method best = has_fprobe ? HOOK_METHOD_MULTI : HOOK_METHOD_KPROBE,
			       uvm = has_uvm_btf ? HOOK_METHOD_FENTRY : best;
	struct child child = child_new(use_driver);

	begin_at(child.pid, (struct trace_options){ .kernel = true, HOOKS("all", "sysmem-free") },
		 NULL); /* what is named has a line of its own */
	assert_string_equal(hooks->kernel.version_text, "595.45.04");
	check_method("ioctl", best);
	check_method("open", best);
	check_method("sysmem-alloc", best);
	check_method("dma-map", best);
	check_method("driver-work", best);
	/* what ftrace does not reach, Debian's kernels refuse */
	check_method("rm-ioctl", HOOK_METHOD_NONE);
	check_method("gsp-rpc", HOOK_METHOD_NONE);
	assert_non_null(
		strstr(find_attachment("gsp-rpc")->reason, "CONFIG_KPROBE_EVENTS_ON_NOTRACE"));
	check_method("api-lock", best);
	assert_string_equal(find_attachment("api-lock")->alternative->name,
			    "os_acquire_rwlock_write");
	check_method("uvm-ioctl", uvm);
	check_method("uvm-migrate", uvm);
	check_method("uvm-work", uvm);
	check_method("xid", HOOK_METHOD_TRACEPOINT);
	check_method("irq", HOOK_METHOD_TRACEPOINT);
	check_method("sysmem-free", HOOK_METHOD_NONE);
	assert_true(is_missing("hook sysmem-free: nvidia:nv_free_pages: there is no such function "
			       "(or the compiler inlined it)"));
	/* what is not of this version was not tried */
	assert_null(strstr(find_attachment("sysmem-alloc")->reason, "no such function"));
	child_run(&child);
	finish();
	assert_int_equal(session.lost, 0);
}

static void test_ioctls(void **state) {
	struct child child = child_new(use_driver);
	const struct trace_ioctl *io;

	begin_at(child.pid, (struct trace_options){ .kernel = true }, NULL);
	child_run(&child);
	finish();
	io = next(NULL, TRACE_IOCTL);
	assert_non_null(io);
	assert_int_equal(io->command, RM_CONTROL);
	assert_int_equal(io->device, TRACE_DEVICE_CTL);
	assert_int_equal(io->minor, 255);
	assert_int_equal(io->result, 0);
	assert_int_equal(io->n_before, 32);
	assert_int_equal(io->n_after, 32);
	assert_int_equal(io->bytes[2], 3);
	assert_int_equal(io->bytes[28], 0);
	assert_int_equal(io->bytes[32 + 28], 0x1f); /* the status */
	assert_true(io->end - io->start >= 200000);
	assert_int_equal(io->pid, child.pid);
	io = next(io, TRACE_IOCTL);
	assert_int_equal(io->command, RM_ALLOC);
	assert_int_equal(io->device, TRACE_DEVICE_GPU);
	assert_int_equal(io->minor, 3);
	io = next(io, TRACE_IOCTL);
	assert_int_equal(io->command, XID);
	io = next(io, TRACE_IOCTL);
	assert_int_equal(io->command, UVM_MIGRATE);
	assert_int_equal(io->device, TRACE_DEVICE_UVM);
	assert_int_equal(io->bytes[0], 9);
	assert_int_equal(io->bytes[io->n_before], 0x57);
	assert_null(next(io, TRACE_IOCTL));
}

static void test_arguments(void **state) {
	struct child child = child_new(use_driver);
	const struct trace_event *event;
	const struct trace_ioctl *io;

	begin_at(child.pid,
		 (struct trace_options){ .kernel = true,
					 HOOKS("all", "!xid"),
					 PROBES("k:nvidia:nv_alloc_pages(zeroed=arg5:bool,"
						"unencrypted=arg6:bool,node=arg7:s32)=ret:s32") },
		 NULL);
	child_run(&child);
	finish();
	event = get_event(
		"memory "
		"nvidia:nv_alloc_pages(pages:u32,page_size:u64,contiguous:bool,cache:u32)=s32");
	assert_int_equal(event->words[0], 4);
	assert_int_equal(event->words[1], 65536);
	assert_int_equal(event->words[2], 1);
	assert_int_equal(event->words[3], 2);
	assert_int_equal(event->result, -7);
	event = get_event("user nvidia:nv_alloc_pages(zeroed:bool,unencrypted:bool,node:s32)=s32");
	assert_int_equal(event->words[0], 0);
	assert_int_equal(event->words[1], 1);
	assert_int_equal((int64_t)event->words[2], -7);
	event = get_event("memory nvidia:nv_dma_map_alloc(pages:u64,contiguous:bool)=s32");
	assert_int_equal(event->words[0], 9);
	assert_int_equal(event->words[1], 0);
	event = get_event(
		"driver nvidia:nv_post_event(handle:u32,index:u32,info32:u32,info16:u16)");
	assert_int_equal(event->words[0], 0xc1d00001);
	assert_int_equal(event->words[3], 7);
	assert_int_equal(event->record.flags, TRACE_EVENT_INSTANT);
	event = get_event("driver nvidia:nvidia_mmap(start:hex,end:hex,page:hex)=s32");
	assert_int_equal(event->words[1] - event->words[0], 3 * 4096);
	assert_int_equal(event->words[2], 5);
	event = get_event("work nvidia:nv_kthread_q_schedule_q_item(queue:ptr,function:ptr)=s32");
	assert_int_equal(event->words[1], 0x1234);
	assert_int_equal(event->result, 1);
	assert_null(find_event(
		"work nvidia_uvm:nv_kthread_q_schedule_q_item(queue:ptr,function:ptr)=s32"));
	event = get_event("uvm nvidia_uvm:uvm_migrate(base:hex,length:u64)=s32");
	assert_int_equal(event->words[0], 0x7f0000000000);
	assert_int_equal(event->words[1], 2 << 20);
	assert_int_equal(event->result, -3);
	event = get_event("lock nvidia:os_acquire_rwlock_write(lock:ptr)=s32");
	assert_int_equal(event->words[0], 0x77);
	io = next(NULL, TRACE_IOCTL);
	assert_non_null(io);
	assert_true(io->start <= event->start && event->end <= io->end && io->tid == event->tid);
}

static void test_xid(void **state) {
	struct child child = child_new(use_driver);
	const struct trace_event *event;
	const char *text;

	begin_at(child.pid, (struct trace_options){ .kernel = true, HOOKS("xid") }, NULL);
	assert_int_equal(session.n_missing, 0);
	child_run(&child);
	finish();
	event = get_event("xid nvidia:nvidia_dev_xid(device:str,code:u32,message:str)");
	assert_int_equal(event->pid, 0);
	assert_int_equal(event->words[1], 31);
	text = text_of(event);
	assert_string_equal(text, "0000:3b:00");
	assert_string_equal(text + strlen(text) + 1, "pid=1, MMU Fault");
}

/* A function of the kernel itself, which has BTF. */
static void test_fentry(void **state) {
	struct child child = child_new(use_driver);
	const struct trace_event *event;

	begin_at(child.pid,
		 (struct trace_options){
			 PROBES("k:vmlinux:chrdev_open(inode=arg0:ptr,file=arg1:ptr)=ret:s32",
				"k:vmlinux:vfs_open(path=arg0:ptr)=void") },
		 NULL);
	assert_int_equal(session.n_missing, 0);
	check_method("k:vmlinux:vfs_open", HOOK_METHOD_FENTRY);
	child_run(&child);
	finish();
	event = get_event("user vmlinux:chrdev_open(inode:ptr,file:ptr)=s32");
	assert_true(event->words[0] && event->words[1]);
	assert_int_equal(event->result, 0);
	get_event("user vmlinux:vfs_open(path:ptr)");
}

/* Without kprobes.multi, and without BTF, as on other kernels: system calls see the same ioctls. */
static void test_system_calls(void **state) {
	static const struct hook_places none = { .symbols = "/dev/null" };
	struct child child = child_new(use_driver);
	const struct trace_ioctl *io = NULL;
	const struct trace_event *event;
	size_t n = 0;

	begin_at(child.pid, (struct trace_options){ .kernel = true, HOOKS("driver", "uvm") },
		 &none);
	check_method("ioctl", HOOK_METHOD_RAW_TRACEPOINT);
	child_run(&child);
	finish();
	while ((io = next(io, TRACE_IOCTL)))
		n++;
	assert_int_equal(n, 4);
	event = get_event("driver mmap(fd:s32,device:u8,minor:u8,length:u64,offset:hex)=hex");
	assert_int_equal(event->words[1], TRACE_DEVICE_GPU);
	assert_int_equal(event->words[2], 3);
	assert_int_equal(event->words[3], 3 * 4096);
	assert_int_equal(event->words[4], 5 * 4096);
	get_event("uvm open(path:str,flags:u32)=s32");
}

/* A pair of tracepoints, where the first has a name: interrupts of the console, in place of those
 * of a GPU. */
static void test_pair(void **state) {
	static const struct hook_places with_file = { .folder = "/tmp/hooks.d" };
	struct child child = child_new(use_driver);
	const struct trace_event *event;
	FILE *file;

	mkdir("/tmp/hooks.d", 0755);
	file = fopen("/tmp/hooks.d/console.json", "we");
	assert_non_null(file);
	fputs("{\"version\":1,\"hooks\":[{\"name\":\"console\",\"set\":\"interrupt\",\"purpose\":"
	      "\"p\",\"process\":\"none\",\"alternatives\":["
	      "{\"tracepoint\":\"irq:irq_handler_entry\",\"until\":\"irq:irq_handler_exit\","
	      "\"match\":{\"field\":\"name\",\"value\":\"ttyS0\"},"
	      "\"arguments\":[{\"name\":\"name\",\"source\":\"name\",\"type\":\"str\"},{\"name\":"
	      "\"irq\",\"source\":\"irq\",\"type\":\"s32\"}],"
	      "\"return\":\"s32\",\"returned\":\"ret\"}]}]}",
	      file);
	assert_int_equal(fclose(file), 0);
	begin_at(child.pid, (struct trace_options){ .kernel = true, HOOKS("console") }, &with_file);
	assert_int_equal(session.n_missing, 0);
	printf("these words make interrupts\n");
	fflush(stdout);
	tcdrain(1);
	child_run(&child);
	finish();
	event = get_event("interrupt irq:irq_handler_entry(name:str,irq:s32)=s32");
	for (const struct trace_event *each = NULL; (each = next(each, TRACE_EVENT));)
		assert_string_equal(text_of(each), "ttyS0");
	assert_int_equal(event->words[1], 4);
	assert_int_equal(event->result, 1); /* IRQ_HANDLED */
	assert_int_equal(event->pid, 0);
	assert_true(event->end > event->start);
	assert_int_equal(event->record.flags, 0);
}

static void test_discover(void **state) {
	struct child child = child_new(use_driver);
	const struct trace_event *event;

	begin_at(child.pid, (struct trace_options){ .kernel = true, HOOKS("discover:*") }, NULL);
	child_run(&child);
	finish();
	event = get_event("discover nvidia:nvidia_open(calls:u64)");
	assert_int_equal(event->words[0], 2);
	event = get_event("discover nvidia_uvm:uvm_migrate(calls:u64)");
	assert_int_equal(event->words[0], 1);
	get_event("discover nvidia:nv_alloc_pages(calls:u64)");
	assert_null(find_event("discover nvidia:rm_ioctl(calls:u64)"));
	assert_true(is_missing("ftrace does not reach the others"));
	assert_null(find_event("discover nvidia_uvm:nv_kthread_q_schedule_q_item(calls:u64)"));
}

static const char *member(json_object *hook, const char *name) {
	return json_object_get_string(json_object_object_get(hook, name));
}

static void test_list(void **state) {
	size_t n_available = 0;
	json_object *array;

	assert_int_equal(trace_hooks_list(NULL, NULL, 0, &array), 0);
	for (size_t i = 0; i < json_object_array_length(array); i++) {
		json_object *hook = json_object_array_get_idx(array, i);

		n_available += !strcmp(member(hook, "state"), "available");
		if (!strcmp(member(hook, "name"), "sysmem-alloc"))
			assert_string_equal(member(hook, "method"),
					    has_fprobe ? "kprobe-multi" : "kprobe");
		if (!strcmp(member(hook, "name"), "rm-ioctl"))
			assert_string_equal(member(hook, "state"), "unavailable");
		if (!strcmp(member(hook, "name"), "uvm-migrate") && has_uvm_btf)
			assert_string_equal(member(hook, "method"), "fentry");
	}
	assert_in_range(n_available, 17, 23);
	json_object_put(array);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_methods),   cmocka_unit_test(test_ioctls),
		cmocka_unit_test(test_arguments), cmocka_unit_test(test_xid),
		cmocka_unit_test(test_fentry),    cmocka_unit_test(test_system_calls),
		cmocka_unit_test(test_discover),  cmocka_unit_test(test_list),
		cmocka_unit_test(test_pair),
	};
	struct utsname name;
	int major = 0, minor = 0;

	/* Debian's 6.1 has no fprobe */
	if (uname(&name) || sscanf(name.release, "%d.%d", &major, &minor) != 2)
		return 1;
	has_fprobe = major > 6 || minor >= 12;
	has_uvm_btf = !access("/sys/kernel/btf/nvidia_uvm", F_OK);
	printf("[==========] Running in %s, %s BTF of nvidia_uvm\n", name.release,
	       has_uvm_btf ? "with" : "without");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
