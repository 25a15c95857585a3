/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of `gpuprobectl doctor` on eBPF: tries what the kernel can do, because nothing else says
 * it reliably. It loads programs and attaches none.
 */

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "doctor.h"

#define ATTACH_UPROBE_MULTI                                                                      \
	48 /* BPF_TRACE_UPROBE_MULTI, and below BPF_TRACE_UPROBE_SESSION: Debian 12's header has \
	      neither */
#define ATTACH_UPROBE_SESSION 57

/* Loads `return 0`, as what the verifier sees GPU programs: a kprobe's program. A descriptor or
 * -errno. */
static int load_program(unsigned int attach_type) {
	static const struct bpf_insn program[] = {
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0 },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	LIBBPF_OPTS(bpf_prog_load_opts, options,
		    .expected_attach_type = (enum bpf_attach_type)attach_type);

	return bpf_prog_load(BPF_PROG_TYPE_KPROBE, "doctor", "GPL", program, 2, &options);
}

static bool look_possible(const struct doctor *doctor, struct finding *finding) {
	if (!doctor->live)
		doctor_say(finding, DOCTOR_SKIPPED, NULL, "that system does not run");
	else if (geteuid() != 0)
		doctor_say(finding, DOCTOR_SKIPPED, "run it as root", "only root may try");
	return doctor->live && geteuid() == 0;
}

static void look_load(const struct doctor *doctor, struct finding *finding) {
	LIBBPF_OPTS(bpf_map_create_opts, options);
	int program, map;

	if (!look_possible(doctor, finding))
		return;
	program = load_program(0);
	if (program >= 0)
		close(program);
	map = program < 0 ? program
			  : bpf_map_create(BPF_MAP_TYPE_RINGBUF, "doctor", 0, 0,
					   (unsigned int)sysconf(_SC_PAGESIZE), &options);
	if (map >= 0)
		close(map);
	if (map >= 0)
		doctor_say(finding, DOCTOR_OK, NULL, "a program was verified and a ring made");
	else if (program == -EPERM || program == -EACCES)
		doctor_say(finding, DOCTOR_FAILED,
			   "not in a container: run the daemon on the host, or give the container "
			   "CAP_BPF and CAP_PERFMON and allow bpf(2)",
			   "bpf(2): %s, although this is root", strerror(-program));
	else if (program < 0)
		doctor_say(finding, DOCTOR_FAILED,
			   "use a kernel that was built with CONFIG_BPF_SYSCALL and "
			   "CONFIG_BPF_EVENTS: without its verifier no program is attached",
			   "a program cannot be loaded: %s", strerror(-program));
	else
		doctor_say(finding, DOCTOR_WARNING, "use Linux 5.8 or later",
			   "a ring cannot be made: %s", strerror(-map));
}

/* Whether there are links of many uprobes: of no file, so that a kernel that knows them says EBADF.
 */
static bool has_link(unsigned int attach_type) {
	static const unsigned long offset = 1;
	struct {
		__u32 program, target, attach_type, flags;
		__u64 path, offsets, references, cookies;
		__u32 n, multi_flags, pid, padding;
	} create = { .attach_type = attach_type,
		     .path = (__u64)(unsigned long)"/",
		     .offsets = (__u64)(unsigned long)&offset,
		     .n = 1 };
	int program = load_program(attach_type), link, error;

	if (program < 0)
		return false;
	create.program = (__u32)program;
	link = (int)syscall(SYS_bpf, BPF_LINK_CREATE, &create, sizeof(create));
	error = errno;
	if (link >= 0)
		close(link);
	close(program);
	return link < 0 && error == EBADF;
}

static void look_multi(const struct doctor *doctor, struct finding *finding) {
	int program;

	if (!look_possible(doctor, finding))
		return;
	program = load_program(0);
	if (program < 0) {
		doctor_say(finding, DOCTOR_SKIPPED, NULL,
			   "no program can be loaded: see kernel.bpf");
		return;
	}
	close(program);
	if (has_link(ATTACH_UPROBE_SESSION))
		doctor_say(finding, DOCTOR_OK, NULL, "one link for all functions, in sessions");
	else if (has_link(ATTACH_UPROBE_MULTI))
		doctor_say(finding, DOCTOR_OK, NULL, "one link for all functions");
	else
		doctor_say(finding, DOCTOR_WARNING, "nothing, or use Linux 6.6 or later",
			   "each function is attached by itself: trace --backend=bpf begins some "
			   "seconds later, and costs more a call");
}

const struct doctor_check doctor_bpf_checks[] = {
	{ "kernel.bpf", "eBPF and its verifier", look_load },
	{ "kernel.uprobe-multi", "links of many uprobes", look_multi },
	{},
};
