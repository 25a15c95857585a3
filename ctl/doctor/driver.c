/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of `gpuprobectl doctor` on NVIDIA's driver: devices, kernel module, library. It only
 * reads.
 */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "doctor.h"

/* ---- devices ---- */

static bool count_gpu(const char *name, void *userdata) {
	++*(unsigned int *)userdata;
	return true;
}

static bool count_node(const char *name, void *userdata) {
	if (!strncmp(name, "nvidia", 6) && isdigit((unsigned char)name[6]))
		++*(unsigned int *)userdata;
	return true;
}

static void look_devices(const struct doctor *doctor, struct finding *finding) {
	unsigned int gpus = 0, nodes = 0;

	doctor_folder(doctor, "/proc/driver/nvidia/gpus", count_gpu, &gpus);
	doctor_folder(doctor, "/dev", count_node, &nodes);
	if (!gpus && !nodes)
		doctor_say(finding, DOCTOR_WARNING,
			   "on a machine with an NVIDIA GPU: load the driver (modprobe nvidia)",
			   "no GPU: neither /proc/driver/nvidia/gpus nor /dev/nvidia0");
	else if (!nodes)
		doctor_say(finding, DOCTOR_FAILED,
			   "nvidia-modprobe -u -c 0, or run nvidia-smi as root once",
			   "%u GPUs, and no /dev/nvidia0", gpus);
	else if (!doctor_exists(doctor, "/dev/nvidiactl") ||
		 !doctor_exists(doctor, "/dev/nvidia-uvm"))
		doctor_say(finding, DOCTOR_FAILED,
			   "nvidia-modprobe -u -c 0 (module nvidia-uvm): no CUDA program starts "
			   "without",
			   "%s is missing",
			   doctor_exists(doctor, "/dev/nvidiactl") ? "/dev/nvidia-uvm"
								   : "/dev/nvidiactl");
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%u GPU%s", nodes, nodes == 1 ? "" : "s");
}

/* The version in a text: the first word of digits with two dots, or one. */
static bool find_version(const char *text, char version[static 32]) {
	for (const char *at = text; *at; at += strcspn(at, " \t\n"), at += strspn(at, " \t\n")) {
		size_t n = strspn(at, "0123456789.");

		if (n >= 5 && n < 32 && isdigit((unsigned char)*at) && memchr(at, '.', n) &&
		    (!at[n] || isspace((unsigned char)at[n]))) {
			snprintf(version, 32, "%.*s", (int)n, at);
			return true;
		}
	}
	return false;
}

static bool module_version(const struct doctor *doctor, char version[static 32], bool *openp) {
	char *text = doctor_read(doctor, "/proc/driver/nvidia/version");
	bool found;

	if (!text)
		return false;
	*strchrnul(text, '\n') = '\0';
	*openp = strstr(text, "Open Kernel Module");
	found = find_version(text, version);
	free(text);
	return found;
}

static void look_module(const struct doctor *doctor, struct finding *finding) {
	char version[32];
	bool open;

	if (!module_version(doctor, version, &open))
		doctor_say(finding, DOCTOR_WARNING,
			   "on a machine with an NVIDIA GPU: modprobe nvidia",
			   "not loaded: no /proc/driver/nvidia/version");
	else if (atoi(version) < 525)
		doctor_say(finding, DOCTOR_WARNING,
			   "use driver 525 or later: CUDA 12 begins with it", "%s", version);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%s%s", version, open ? ", open" : "");
}

static void look_library(const struct doctor *doctor, struct finding *finding) {
	char path[4096], name[256], version[32] = "";
	const char *of_library;
	bool open;

	if (!doctor_library(doctor, "libcuda.so.1", path, name)) {
		doctor_say(finding, DOCTOR_WARNING,
			   "install the driver's libraries (package libcuda1, or NVIDIA's "
			   "installer), then: ldconfig",
			   "the dynamic linker finds no libcuda.so.1");
		return;
	}
	of_library = strncmp(name, "libcuda.so.", 11) || !strchr(name + 11, '.') ? NULL : name + 11;
	if (!of_library)
		doctor_say(finding, DOCTOR_WARNING, NULL,
			   "%.500s (%.200s): its name does not tell its version, as that of "
			   "NVIDIA's does",
			   path, name);
	else if (module_version(doctor, version, &open) &&
		 atoi(version) < atoi(of_library)) /* of branches; an older module may have a newer
						      library */
		doctor_say(finding, DOCTOR_WARNING,
			   "nothing, if it is NVIDIA's forward compatibility (package cuda-compat) "
			   "on a GPU for data centers; else reboot, or load the module anew",
			   "%.500s is of version %.32s, and the module that is loaded of %s: other "
			   "GPUs' CUDA programs fail (errors 803, 804)",
			   path, of_library, version);
	else if (*version && strcmp(version, of_library))
		doctor_say(finding, DOCTOR_FAILED,
			   "reboot, or unload the module and load it anew; on a machine with "
			   "several libraries: ldconfig",
			   "%.500s is of version %.32s, and the module that is loaded of %s: CUDA "
			   "programs fail (error 803)",
			   path, of_library, version);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%.500s, version %.32s", path, of_library);
}

/* ---- what the driver has been told ---- */

static void look_profiling(const struct doctor *doctor, struct finding *finding) {
	char *text = doctor_read(doctor, "/proc/driver/nvidia/params"),
	     *line = text ? strstr(text, "RmProfilingAdminOnly:") : NULL;

	if (!line)
		doctor_say(finding, DOCTOR_SKIPPED, NULL, "the driver is not loaded");
	else if (atoi(line + strlen("RmProfilingAdminOnly:")))
		doctor_say(finding, DOCTOR_WARNING,
			   "nothing for gpuprobe; for profilers of users: options nvidia "
			   "NVreg_RestrictProfilingToAdminUsers=0 in /etc/modprobe.d",
			   "for administrators only (RmProfilingAdminOnly: 1): hardware counters "
			   "and traces of context switches need CAP_SYS_ADMIN; probes do not");
	else
		doctor_say(finding, DOCTOR_OK, NULL, "for all users (RmProfilingAdminOnly: 0)");
	free(text);
}

struct mig {
	const struct doctor *doctor;
	unsigned int instances;
};

static bool count_instance(const char *name, void *userdata) {
	if (!strncmp(name, "gi", 2))
		++*(unsigned int *)userdata;
	return true;
}

static bool take_gpu(const char *name, void *userdata) {
	struct mig *mig = userdata;
	char path[512];

	snprintf(path, sizeof(path), "/proc/driver/nvidia/capabilities/%.255s/mig", name);
	doctor_folder(mig->doctor, path, count_instance, &mig->instances);
	return true;
}

static void look_mig(const struct doctor *doctor, struct finding *finding) {
	struct mig mig = { .doctor = doctor };

	doctor_folder(doctor, "/proc/driver/nvidia/capabilities", take_gpu, &mig);
	if (mig.instances)
		doctor_say(finding, DOCTOR_WARNING, "nothing; tell us what you see",
			   "%u GPU instances: not tried so far. Each has its own SMs: numbers of "
			   "SMs are those of the instance",
			   mig.instances);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "no GPU instances");
}

struct search {
	const struct doctor *doctor;
	const char *comm;
	bool found;
};

static bool take_process(const char *name, void *userdata) {
	struct search *search = userdata;
	char path[512], *text;

	if (!isdigit((unsigned char)*name))
		return true;
	snprintf(path, sizeof(path), "/proc/%.255s/comm", name);
	text = doctor_read(search->doctor, path);
	if (text)
		text[strcspn(text, "\n")] = '\0';
	search->found = text && !strncmp(text, search->comm, strlen(search->comm));
	free(text);
	return !search->found;
}

static void look_mps(const struct doctor *doctor, struct finding *finding) {
	struct search search = { .doctor = doctor, .comm = "nvidia-cuda-mps" };

	doctor_folder(doctor, "/proc", take_process, &search);
	if (search.found)
		doctor_say(finding, DOCTOR_WARNING,
			   "for a job that is to be probed, stop it: echo quit | "
			   "nvidia-cuda-mps-control",
			   "runs: programs that share a GPU by it were not tried with probes; what "
			   "one process's probe does wrong ends the others' kernels");
	else
		doctor_say(finding, DOCTOR_OK, NULL, "does not run");
}

const struct doctor_check doctor_driver_checks[] = {
	{ "driver.devices", "GPUs", look_devices },
	{ "driver.module", "driver (module)", look_module },
	{ "driver.library", "driver (libcuda)", look_library },
	{ "driver.profiling", "profiling", look_profiling },
	{ "driver.mig", "MIG", look_mig },
	{ "driver.mps", "MPS", look_mps },
	{},
};
