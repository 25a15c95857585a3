/* SPDX-License-Identifier: Apache-2.0 */

/* The part of `gpuprobectl doctor` on Linux itself, from files in /proc and /sys. */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

/* The version in /proc/sys/kernel/osrelease, 6.18 as 6018; 0: unknown. text is the line. */
static unsigned int release(const struct doctor *doctor, char text[static 128]) {
	unsigned int major = 0, minor = 0;
	char *line = doctor_read(doctor, "/proc/sys/kernel/osrelease");

	*text = '\0';
	if (!line)
		return 0;
	line[strcspn(line, "\n")] = '\0';
	snprintf(text, 128, "%s", line);
	if (sscanf(line, "%u.%u", &major, &minor) != 2)
		major = 0;
	free(line);
	return major * 1000 + (minor < 1000 ? minor : 999);
}

static void look_release(const struct doctor *doctor, struct finding *finding) {
	char text[128];
	unsigned int version = release(doctor, text);

	if (!version)
		doctor_say(finding, DOCTOR_UNKNOWN, "mount /proc",
			   "/proc/sys/kernel/osrelease does not tell");
	else if (version < 5008)
		doctor_say(finding, DOCTOR_FAILED,
			   "use Linux 5.8 or later: CAP_BPF and ring buffers of eBPF are of that "
			   "version",
			   "%s", text);
	else if (version < 6006)
		doctor_say(finding, DOCTOR_OK, NULL,
			   "%s; from 6.6 on one link attaches all uprobes of a trace, which is "
			   "quicker",
			   text);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%s", text);
}

static void look_btf(const struct doctor *doctor, struct finding *finding) {
	struct stat status;

	if (doctor_stat(doctor, "/sys/kernel/btf/vmlinux", &status))
		doctor_say(finding, DOCTOR_OK, NULL, "/sys/kernel/btf/vmlinux, %lld KiB",
			   (long long)status.st_size / 1024);
	else
		doctor_say(finding, DOCTOR_WARNING,
			   "use a kernel that was built with CONFIG_DEBUG_INFO_BTF",
			   "no /sys/kernel/btf/vmlinux: hooks and host programs that need the "
			   "kernel's types are not there");
}

static void look_uprobe(const struct doctor *doctor, struct finding *finding) {
	long type;

	if (doctor_number(doctor, "/sys/bus/event_source/devices/uprobe/type", &type))
		doctor_say(finding, DOCTOR_OK, NULL, "there (perf type %ld)", type);
	else
		doctor_say(finding, DOCTOR_WARNING,
			   "use a kernel that was built with CONFIG_UPROBE_EVENTS",
			   "no uprobe in /sys/bus/event_source/devices: trace --backend=bpf and "
			   "host programs at functions of a library are not there");
}

static bool take_any(const char *name, void *userdata) {
	*(bool *)userdata = true;
	return false;
}

static void look_tracefs(const struct doctor *doctor, struct finding *finding) {
	static const char *const folders[] = { "/sys/kernel/tracing", "/sys/kernel/debug/tracing" };
	bool any = false, there = false;

	for (size_t i = 0; i < 2; i++) {
		char path[64];

		snprintf(path, sizeof(path), "%s/events", folders[i]);
		there = there || doctor_exists(doctor, folders[i]);
		doctor_folder(doctor, path, take_any, &any);
		if (any) {
			doctor_say(finding, DOCTOR_OK, NULL, "%s", folders[i]);
			return;
		}
	}
	if (doctor->live && geteuid() != 0 && there)
		doctor_say(finding, DOCTOR_SKIPPED, "run it as root", "only root may look into it");
	else
		doctor_say(finding, DOCTOR_WARNING, "mount -t tracefs tracefs /sys/kernel/tracing",
			   "not mounted: tracepoints by name (t:GROUP:NAME, host programs at "
			   "tracepoints) are not there; raw tracepoints are");
}

static void look_lockdown(const struct doctor *doctor, struct finding *finding) {
	char *text = doctor_read(doctor, "/sys/kernel/security/lockdown");

	if (!text)
		doctor_say(finding, DOCTOR_OK, NULL, "no lockdown, or securityfs is not mounted");
	else if (strstr(text, "[confidentiality]"))
		doctor_say(finding, DOCTOR_WARNING,
			   "boot with lockdown=integrity if hooks in the driver are wanted",
			   "confidentiality: eBPF may not read the kernel's memory, so most hooks "
			   "are not there; GPU programs are not affected");
	else if (strstr(text, "[integrity]"))
		doctor_say(finding, DOCTOR_OK, NULL,
			   "integrity: eBPF may read, and not write, other memory");
	else
		doctor_say(finding, DOCTOR_OK, NULL, "none");
	free(text);
}

static void look_paranoid(const struct doctor *doctor, struct finding *finding) {
	long level;

	if (!doctor_number(doctor, "/proc/sys/kernel/perf_event_paranoid", &level))
		doctor_say(finding, DOCTOR_WARNING,
			   "use a kernel that was built with CONFIG_PERF_EVENTS",
			   "no performance events: no uprobes before Linux 6.6, no stacks");
	else if (level > 2)
		doctor_say(finding, DOCTOR_WARNING,
			   "nothing unless trace --backend=bpf says that it is not permitted; "
			   "then: sysctl kernel.perf_event_paranoid=2",
			   "%ld, a level of this distribution's: some kernels refuse CAP_PERFMON "
			   "there",
			   level);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%ld: the daemon's CAP_PERFMON is enough",
			   level);
}

static void look_kptr(const struct doctor *doctor, struct finding *finding) {
	long level;

	if (!doctor_number(doctor, "/proc/sys/kernel/kptr_restrict", &level))
		doctor_say(finding, DOCTOR_UNKNOWN, "mount /proc",
			   "/proc/sys/kernel/kptr_restrict does not tell");
	else if (level > 1)
		doctor_say(finding, DOCTOR_WARNING,
			   "sysctl kernel.kptr_restrict=1 where hooks are wanted",
			   "%ld: nobody sees the kernel's addresses, and hooks are found by them",
			   level);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%ld%s", level,
			   level ? ": hooks need CAP_SYSLOG (kernel-hooks.conf)" : "");
}

static void look_memlock(const struct doctor *doctor, struct finding *finding) {
	char text[128], *limits, *line, soft[32];
	unsigned int version = release(doctor, text);

	if (version >= 5011) {
		doctor_say(finding, DOCTOR_OK, NULL, "this kernel does not charge eBPF maps to it");
		return;
	}
	limits = doctor_read(doctor, "/proc/self/limits");
	line = limits ? strstr(limits, "Max locked memory") : NULL;
	if (!line || sscanf(line, "Max locked memory %31s", soft) != 1)
		doctor_say(finding, DOCTOR_UNKNOWN, "mount /proc",
			   "/proc/self/limits does not tell");
	else if (!strcmp(soft, "unlimited"))
		doctor_say(finding, DOCTOR_OK, NULL, "unlimited");
	else
		doctor_say(finding, DOCTOR_WARNING,
			   "for a session daemon: ulimit -l unlimited; the unit has "
			   "LimitMEMLOCK=infinity",
			   "%s bytes: kernels before 5.11 charge eBPF maps to it", soft);
	free(limits);
}

const struct doctor_check doctor_kernel_checks[] = {
	{ "kernel.release", "kernel", look_release },
	{ "kernel.btf", "types of the kernel (BTF)", look_btf },
	{ "kernel.uprobe", "uprobes", look_uprobe },
	{ "kernel.tracefs", "tracepoints", look_tracefs },
	{ "kernel.lockdown", "lockdown", look_lockdown },
	{ "kernel.perf-paranoid", "kernel.perf_event_paranoid", look_paranoid },
	{ "kernel.kptr-restrict", "kernel.kptr_restrict", look_kptr },
	{ "kernel.memlock", "limit of locked memory", look_memlock },
	{},
};
