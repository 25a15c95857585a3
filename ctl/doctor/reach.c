/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of `gpuprobectl doctor` on what the preloaded shim does not reach: processes that have
 * the driver but not the shim, and why; other C libraries; 32-bit programs; containers.
 */

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

#define NAMED_MAX 3

struct reach {
	const struct doctor *doctor;
	unsigned int cuda, missed;
	char namespace[64]; /* of mounts, ours */
	char names[512]; /* of the first that are missed */
};

/* Whether a process was told to be left alone. */
static bool is_off(const struct doctor *doctor, const char *pid) {
	char path[300], *text;
	int r = 0;

	snprintf(path, sizeof(path), "/proc/%.255s/environ", pid);
	text = doctor_read(doctor, path);
	for (const char *at = text; at && *at && !r;
	     at += strlen(at) + 1) /* doctor_read() puts two NULs behind a file */
		r = !strcmp(at, "GPUPROBE=off");
	free(text);
	return r;
}

static const char *why_missed(const struct reach *reach, const char *pid) {
	char path[300], target[4096];

	snprintf(path, sizeof(path), "/proc/%.255s/ns/mnt", pid);
	if (*reach->namespace && doctor_link(reach->doctor, path, target) &&
	    strcmp(target, reach->namespace))
		return "in a container";
	if (is_off(reach->doctor, pid))
		return "GPUPROBE=off";
	return "began before, or is set-uid";
}

static bool take_process(const char *pid, void *userdata) {
	struct reach *reach = userdata;
	char path[300], *maps, *comm;
	bool cuda, missed;
	size_t n;

	if (!isdigit((unsigned char)*pid))
		return true;
	snprintf(path, sizeof(path), "/proc/%.255s/maps", pid);
	maps = doctor_read(reach->doctor, path);
	cuda = maps && strstr(maps, "/libcuda.so.");
	missed = cuda && !strstr(maps, "/libgpuprobe-shim.so");
	free(maps);
	reach->cuda += cuda;
	if (!missed || reach->missed++ >= NAMED_MAX)
		return true;
	snprintf(path, sizeof(path), "/proc/%.255s/comm", pid);
	comm = doctor_read(reach->doctor, path);
	n = strlen(reach->names);
	snprintf(reach->names + n, sizeof(reach->names) - n, "%s%.16s (%.16s): %s", n ? "; " : "",
		 pid, comm ? strtok(comm, "\n") : "?", why_missed(reach, pid));
	free(comm);
	return true;
}

static void look_processes(const struct doctor *doctor, struct finding *finding) {
	struct reach reach = { .doctor = doctor };
	char target[4096];

	if (doctor_link(doctor, "/proc/self/ns/mnt", target))
		snprintf(reach.namespace, sizeof(reach.namespace), "%.63s", target);
	doctor_folder(doctor, "/proc", take_process, &reach);
	if (reach.missed)
		doctor_say(finding, DOCTOR_WARNING,
			   "start them again after gpuprobectl shim enable; containers: "
			   "gpuprobectl shim cdi; gpuprobe-shim(7) says what else is not reached",
			   "%u of %u CUDA processes have no library of ours: %s%s", reach.missed,
			   reach.cuda, reach.names, reach.missed > NAMED_MAX ? "; ..." : "");
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%u CUDA processes, all with the library%s",
			   reach.cuda,
			   doctor->live && geteuid() != 0 ? " (of those that you may look at)"
							  : "");
}

static bool take_loader(const char *name, void *userdata) {
	if (strncmp(name, "ld-musl-", 8))
		return true;
	snprintf(userdata, 256, "%s", name);
	return false;
}

static void look_libc(const struct doctor *doctor, struct finding *finding) {
	char loader[256] = "";

	doctor_folder(doctor, "/lib", take_loader, loader);
	if (*loader)
		doctor_say(finding, DOCTOR_WARNING,
			   "for CUDA programs use glibc, as NVIDIA's libraries do",
			   "/lib/%s: programs of this C library do not read ld.so.preload, and do "
			   "not start with the library in LD_PRELOAD",
			   loader);
	else
		doctor_say(finding, DOCTOR_OK, NULL,
			   "glibc alone; static executables and set-uid programs are not reached "
			   "anyway");
}

/* $LIB in the path of the library would not help: ld.so says likewise that there is no such file.
 */
static void look_32_bit(const struct doctor *doctor, struct finding *finding) {
	static const char *const loaders[] = { "/lib/ld-linux.so.2", "/lib/ld-linux-armhf.so.3" };
	const char *loader = NULL;

	for (size_t i = 0; !loader && i < sizeof(loaders) / sizeof(loaders[0]); i++)
		if (doctor_exists(doctor, loaders[i]))
			loader = loaders[i];
	if (loader)
		doctor_say(finding, DOCTOR_WARNING,
			   "where that harms, LD_PRELOAD=libgpuprobe-shim.so for CUDA programs "
			   "instead of gpuprobectl shim enable",
			   "%s: while the library is enabled, each 32-bit program says \"wrong ELF "
			   "class\" on standard error, and runs without it",
			   loader);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "no loader for them");
}

/* ---- containers ---- */

struct specifications {
	const struct doctor *doctor;
	const char *folder;
	char found[512];
};

static bool take_specification(const char *name, void *userdata) {
	struct specifications *specifications = userdata;
	char path[512], *text;

	snprintf(path, sizeof(path), "%s/%.255s", specifications->folder, name);
	text = doctor_read(specifications->doctor, path);
	if (text && strstr(text, "libgpuprobe-shim.so"))
		snprintf(specifications->found, sizeof(specifications->found), "%s", path);
	free(text);
	return !*specifications->found;
}

static void look_containers(const struct doctor *doctor, struct finding *finding) {
	static const char *const runtimes[] = { "/run/containerd/containerd.sock",
						"/run/docker.sock", "/run/crio/crio.sock",
						"/usr/bin/podman" };
	struct specifications specifications = { .doctor = doctor };
	static const char *const folders[] = { "/etc/cdi", "/run/cdi" };
	const char *runtime = NULL;

	for (size_t i = 0; !runtime && i < sizeof(runtimes) / sizeof(runtimes[0]); i++)
		if (doctor_exists(doctor, runtimes[i]))
			runtime = runtimes[i];
	for (size_t i = 0; i < 2 && !*specifications.found; i++) {
		specifications.folder = folders[i];
		doctor_folder(doctor, folders[i], take_specification, &specifications);
	}
	if (*specifications.found)
		doctor_say(finding, DOCTOR_OK, NULL,
			   "%s: containers that ask for its device have the library (glibc 2.17 or "
			   "later, or no program starts in them)",
			   specifications.found);
	else if (runtime)
		doctor_say(finding, DOCTOR_WARNING,
			   "mkdir -p /etc/cdi; gpuprobectl shim cdi > /etc/cdi/gpuprobe.json; then "
			   "run containers with --device gpuprobe.io/shim=all",
			   "%s is here, and no CDI specification in /etc/cdi gives containers the "
			   "library",
			   runtime);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "no runtime for containers");
}

const struct doctor_check doctor_reach_checks[] = {
	{ "reach.processes", "CUDA processes without the library", look_processes },
	{ "reach.libc", "C libraries", look_libc },
	{ "reach.class", "32-bit programs", look_32_bit },
	{ "reach.containers", "containers", look_containers },
	{},
};
