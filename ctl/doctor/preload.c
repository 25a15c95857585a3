/* SPDX-License-Identifier: Apache-2.0 */

/* The part of `gpuprobectl doctor` on the shim in all programs; it sees what `shim status` sees. */

#include "ctl/shim/preload.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ctl/shim/check.h"
#include "doctor.h"

struct listing {
	const struct doctor *doctor;
	unsigned int ours, others;
	char path[4096], reason[CHECK_REASON_SIZE]; /* of the first one that is not sound */
};

static void take(const char *path, size_t n, bool ours, void *userdata) {
	struct listing *listing = userdata;
	char resolved[4096], name[4096], reason[CHECK_REASON_SIZE];

	if (!ours) {
		listing->others++;
		return;
	}
	snprintf(name, sizeof(name), "%.*s", (int)n, path);
	if (!listing->ours++)
		snprintf(listing->path, sizeof(listing->path), "%s", name);
	if (check_library(listing->doctor->root, name, resolved, reason) && !*listing->reason)
		strcpy(listing->reason, reason);
}

static void look_file(const struct doctor *doctor, struct finding *finding) {
	struct listing listing = { .doctor = doctor };
	struct preload preload;

	if (!doctor_exists(doctor, "/etc")) {
		doctor_say(finding, DOCTOR_UNKNOWN, "name the root of a system",
			   "there is no /etc");
		return;
	}
	if (preload_read(&preload, doctor->root)) {
		doctor_say(finding, DOCTOR_FAILED, "repair /etc/ld.so.preload",
			   "it cannot be read; the line above says why");
		return;
	}
	preload_each(&preload, take, &listing);
	if (*listing.reason)
		doctor_say(finding, DOCTOR_FAILED,
			   "gpuprobectl shim disable, then reinstall the package libgpuprobe-shim",
			   "enabled in %.300s, and not sound: %.500s", preload.path,
			   listing.reason);
	else if (listing.ours)
		doctor_say(finding, DOCTOR_OK, NULL, "enabled: %.500s is in %.300s", listing.path,
			   preload.path);
	else
		doctor_say(finding, DOCTOR_WARNING,
			   "gpuprobectl shim enable, or LD_PRELOAD=libgpuprobe-shim.so for one "
			   "program",
			   "not enabled%s",
			   listing.others
				   ? "; other libraries are in /etc/ld.so.preload, which stay"
				   : "");
	preload_deinit(&preload);
}

static void look_library(const struct doctor *doctor, struct finding *finding) {
	char resolved[4096], reason[CHECK_REASON_SIZE];
	enum ctl_exit r = check_library(doctor->root, LAUNCH_SHIM, resolved, reason);

	if (r == CTL_OK)
		doctor_say(finding, DOCTOR_OK, NULL, "%.900s: programs run with it", resolved);
	else if (r == CTL_NOT_FOUND)
		doctor_say(finding, DOCTOR_WARNING,
			   "install the package libgpuprobe-shim, or name another one: gpuprobectl "
			   "shim enable LIBRARY",
			   "%.900s", reason);
	else
		doctor_say(finding, DOCTOR_FAILED, "reinstall the package libgpuprobe-shim",
			   "%.900s", reason);
}

/* A library that lies beside the shim: without it, this cannot be done. */
static void look_beside(const struct doctor *doctor, struct finding *finding, const char *name,
			const char *without) {
	char path[4096] = LAUNCH_SHIM;

	snprintf(strrchr(path, '/'), 64, "/%s", name);
	if (doctor_exists(doctor, path))
		doctor_say(finding, DOCTOR_OK, NULL, "%.900s", path);
	else
		doctor_say(finding, DOCTOR_WARNING, "install the package libgpuprobe-shim",
			   "%.900s is not there: %s", path, without);
}

static void look_sass(const struct doctor *doctor, struct finding *finding) {
	look_beside(doctor, finding, "libgpuprobe-sass.so",
		    "machine code that is loaded cannot be probed");
}

static void look_cupti(const struct doctor *doctor, struct finding *finding) {
	look_beside(doctor, finding, "libgpuprobe-cupti.so",
		    "traces with --gpu=cupti time kernels by events");
}

static void look_hold(const struct doctor *doctor, struct finding *finding) {
	look_beside(doctor, finding, "libgpuprobe-hold.so",
		    "a program that closes the driver till that fails does not go on");
}

const struct doctor_check doctor_preload_checks[] = {
	{ "preload.library", "the library that is installed", look_library },
	{ "preload.sass", "the library of the sanitizer engine", look_sass },
	{ "preload.cupti", "the library for times by CUPTI", look_cupti },
	{ "preload.hold", "the library that keeps the driver in a program", look_hold },
	{ "preload.enabled", "the library in all programs", look_file },
	{},
};
