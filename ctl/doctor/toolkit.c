/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The part of `gpuprobectl doctor` on the CUDA toolkit and those of its libraries that gpuprobed
 * uses. Programs run without them; each library makes one feature possible.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "doctor.h"

static void look_toolkit(const struct doctor *doctor, struct finding *finding) {
	char path[4096], *text, *line;
	int version;

	if (!doctor_toolkit(doctor, "include/cuda.h", path)) {
		doctor_say(finding, DOCTOR_WARNING,
			   "nothing to run programs; to build some: install NVIDIA's package "
			   "cuda-toolkit, or set CUDA_HOME",
			   "none at $CUDA_HOME, /usr/local/cuda");
		return;
	}
	text = doctor_read(doctor, path);
	line = text ? strstr(text, "#define CUDA_VERSION ") : NULL;
	version = line ? atoi(line + strlen("#define CUDA_VERSION ")) : 0;
	path[strlen(path) - strlen("/include/cuda.h")] = '\0';
	if (!version)
		doctor_say(finding, DOCTOR_UNKNOWN, NULL,
			   "%.500s: its version is not in include/cuda.h", path);
	else if (version < 12000)
		doctor_say(finding, DOCTOR_WARNING, "use CUDA 12.0 or later",
			   "%.500s, version %d.%d: programs made with its runtime are not reached",
			   path, version / 1000, version % 1000 / 10);
	else
		doctor_say(finding, DOCTOR_OK, NULL, "%.500s, version %d.%d", path, version / 1000,
			   version % 1000 / 10);
	free(text);
}

static void look_ptxcompiler(const struct doctor *doctor, struct finding *finding) {
	char path[4096];

	if (doctor_exists(doctor, WORKER_FOLDER "/libgpuprobe-ptxcompiler.so") ||
	    (doctor->live && ctl_find_file(path, WORKER_FOLDER "/libgpuprobe-ptxcompiler.so",
					   "../daemon/worker/libgpuprobe-ptxcompiler.so")))
		doctor_say(finding, DOCTOR_OK, NULL, "built in (libgpuprobe-ptxcompiler.so)");
	else
		doctor_say(
			finding, DOCTOR_WARNING,
			"install the package gpuprobed-ptxcompiler, or build gpuprobe beside a "
			"toolkit that has libnvptxcompiler_static.a",
			"not there: the sanitizer engine has no compiler, and the PTX engine uses "
			"nvJitLink or the driver's");
}

static void look_jitlink(const struct doctor *doctor, struct finding *finding) {
	static const char *const names[] = { "libnvJitLink.so.13", "libnvJitLink.so.12" };
	static const char *const folders[] = { "lib64", "lib", "targets/x86_64-linux/lib" };
	char path[4096], name[256], file[64];

	for (size_t i = 0; i < 2; i++) {
		bool found = doctor_library(doctor, names[i], path, name);

		for (size_t k = 0; !found && k < sizeof(folders) / sizeof(folders[0]); k++) {
			snprintf(file, sizeof(file), "%s/%s", folders[k], names[i]);
			found = doctor_toolkit(doctor, file, path);
		}
		if (found) {
			doctor_say(finding, DOCTOR_OK, NULL, "%.900s", path);
			return;
		}
	}
	doctor_say(finding, DOCTOR_WARNING,
		   "nothing if nvPTXCompiler is built in; else install NVIDIA's package "
		   "libnvjitlink, or set --toolkit of gpuprobed",
		   "not found: without a compiler the driver compiles edited PTX at each load");
}

static void look_sanitizer(const struct doctor *doctor, struct finding *finding) {
	char path[4096], name[256];

	if (doctor_toolkit(doctor, "compute-sanitizer/libsanitizer-public.so", path) ||
	    doctor_library(doctor, "libsanitizer-public.so", path, name))
		doctor_say(finding, DOCTOR_OK, NULL, "%.900s", path);
	else
		doctor_say(
			finding, DOCTOR_WARNING,
			"for the sanitizer engine (gpuprobed --engine): install NVIDIA's package "
			"cuda-sanitizer, or name it with --sanitizer",
			"libsanitizer-public.so is not found: machine code that is loaded "
			"cannot be probed");
}

static void look_cupti(const struct doctor *doctor, struct finding *finding) {
	char path[4096], name[256];
	bool found = doctor_toolkit(doctor, "extras/CUPTI/lib64/libcupti.so", path) ||
		     doctor_toolkit(doctor, "lib64/libcupti.so", path) ||
		     doctor_library(doctor, "libcupti.so.13", path, name) ||
		     doctor_library(doctor, "libcupti.so.12", path, name);

	if (found)
		doctor_say(finding, DOCTOR_OK, NULL,
			   "%.700s: times kernels for trace --gpu=cupti; in programs that use it "
			   "(torch.profiler, Nsight) the sanitizer engine steps back",
			   path);
	else
		doctor_say(finding, DOCTOR_OK, NULL,
			   "not there: trace --gpu=cupti times kernels by events, unless the "
			   "program has one of its own");
}

const struct doctor_check doctor_toolkit_checks[] = {
	{ "toolkit.cuda", "CUDA toolkit", look_toolkit },
	{ "toolkit.ptxcompiler", "nvPTXCompiler", look_ptxcompiler },
	{ "toolkit.nvjitlink", "nvJitLink", look_jitlink },
	{ "toolkit.sanitizer", "patching library", look_sanitizer },
	{ "toolkit.cupti", "CUPTI", look_cupti },
	{},
};
