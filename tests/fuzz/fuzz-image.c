/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as the image of a job: first byte the kind, the device and the points, the
 * rest the image. There is no compiler, so a twin is all but compiled. The stages for passes of the
 * user are run on the image's own PTX: edited, it must pass for what a pass might have made, and
 * whatever can be edited can be cut.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/worker/image/image-job.h"
#include "lib/ptx/ptx-module.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char probe[] = ".visible .global .align 8 .u64 m;\n"
			    ".func (.param .b64 r) p(.param .b64 c0, .param .b64 c1)\n"
			    "{\n"
			    "	ret;\n"
			    "}\n";

static int make_memfd(const void *data, size_t size, bool seal) {
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size ||
	    (seal && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)))
		abort();
	return fd;
}

/* Runs a job; returns its status, for static strings alone. */
static const char *run(const char *request, const int *fds, size_t n_fds) {
	static const char *const known[] = { "made", "own", "text", "error" };
	struct worker_job job = { .id = 1, .fds = fds, .n_fds = n_fds };
	struct json_object *reply = json_object_new_object(), *status;
	struct image_worker worker = {};
	const char *found = NULL;

	job.request = json_tokener_parse(request);
	if (!job.request || image_job(&job, reply, &worker) ||
	    !json_object_object_get_ex(reply, "status", &status))
		abort();
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++)
		if (!strcmp(json_object_get_string(status), known[i]))
			found = known[i];
	if (!found)
		abort();
	json_object_put(reply);
	json_object_put(job.request);
	return found;
}

static void seal(int fd) {
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
		abort();
}

/* Runs the stages one after the other; `common` is what their requests have in common. */
static void run_stages(const char *common, const int *fds, size_t n_fds) {
	char request[2048];

	snprintf(request, sizeof(request), "{%s,\"stage\":\"extract\",\"output\":3}", common);
	if (strcmp(run(request, fds, n_fds), "text"))
		return;
	seal(fds[3]);
	snprintf(request, sizeof(request), "{%s,\"stage\":\"check\",\"text\":3}", common);
	if (strcmp(run(request, fds, n_fds), "text"))
		abort();
	snprintf(request, sizeof(request),
		 "{%s,\"stage\":\"edit\",\"text\":3,\"output\":4,\"instructions\":5}", common);
	if (strcmp(run(request, fds, n_fds), "text"))
		return;
	seal(fds[4]);
	snprintf(request, sizeof(request),
		 "{%s,\"stage\":\"check_edited\",\"text\":4,\"isa\":999,\"target\":999}", common);
	if (strcmp(run(request, fds, n_fds), "text"))
		abort();
	snprintf(request, sizeof(request),
		 "{%s,\"stage\":\"build\",\"text\":4,\"isa\":999,\"target\":999,\"output\":1}",
		 common);
	if (strcmp(run(request, fds, n_fds), "own"))
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
	static const char *const kinds[] = { "fatbin", "ptx", "cubin" };
	static const int capabilities[] = { 75, 80, 90, 103 };
	static const char *const points[] = {
		"\"point\":\"entry\"",
		"\"point\":\"return\"",
		"\"point\":\"memory\",\"spaces\":[\"generic\",\"global\",\"shared\",\"local\","
		"\"const\",\"param\"]",
		"\"point\":\"block\",\"block\":1",
		"\"point\":\"line\",\"file\":\"x.cu\",\"line\":1",
	};
	const size_t n_points = sizeof(points) / sizeof(*points);
	char common[512], request[1800], attachments[1024] = "";
	int fds[6];

	if (size < 2)
		return 0;
	snprintf(common, sizeof(common),
		 "\"job\":\"image\",\"id\":1,\"kind\":\"%s\",\"input\":0,"
		 "\"capability\":%d,\"image\":1,\"stubs\":[\"stub\"],\"call\":%s,"
		 "\"programs\":[{\"name\":\"p\",\"fd\":2,\"isa\":63,\"target\":52,\"context\":[8,"
		 "64]}]",
		 kinds[data[0] % 3], capabilities[data[0] / 3 % 4],
		 data[0] & 128 ? "true" : "false");
	/* One point, or all of them, in kernels and device functions. */
	for (size_t i = 0; i < n_points; i++)
		if (data[0] / 12 % 6 == i || data[0] / 12 % 6 == n_points)
			for (int device = 0; device < 2; device++)
				snprintf(attachments + strlen(attachments),
					 sizeof(attachments) - strlen(attachments),
					 "%s{\"id\":%zu,\"kernel\":\"*\",\"device_function\":%s,%s,"
					 "\"program\":\"p\"}",
					 *attachments ? "," : "", i, device ? "true" : "false",
					 points[i]);
	fds[0] = make_memfd(data + 1, size - 1, true);
	fds[1] = make_memfd("", 0, false);
	fds[2] = make_memfd(probe, sizeof(probe) - 1, true);
	for (int i = 3; i < 6; i++)
		fds[i] = make_memfd("", 0, false);
	snprintf(request, sizeof(request), "%s,\"attachments\":[%s]", common, attachments);
	run_stages(request, fds, 6);
	snprintf(request, sizeof(request), "{%s,\"attachments\":[%s],\"output\":1}", common,
		 attachments);
	if (!strcmp(run(request, fds, 6), "made"))
		abort();
	for (int i = 0; i < 6; i++)
		close(fds[i]);
	return 0;
}
