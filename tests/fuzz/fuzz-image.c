/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Fuzz target. Any bytes as the image of a job: first byte the kind, the device and the points, the
 * rest the image. There is no compiler, so a new image carries PTX; it must be a fatbin (or PTX)
 * that can be read, and the edited PTX must pass for what a pass of the user might have made. Then
 * the same as a twin, which is all but compiled: whatever can be edited can be cut, too.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/worker/fatbin/fatbin.h"
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

static void check_image(const uint8_t *image, size_t size) {
	struct ptx_module module;
	struct ptx_error error;
	struct fatbin fatbin;

	if (!fatbin_parse(&fatbin, image, size)) {
		if (!fatbin.n_entries || fatbin.size != size)
			abort();
		fatbin_deinit(&fatbin);
	} else if (!ptx_module_parse(&module, (const char *)image, size, &error)) {
		ptx_module_deinit(&module);
	} else {
		abort();
	}
}

/* Runs a job; returns its status, for static strings alone. */
static const char *run(const char *request, const int *fds, size_t n_fds) {
	static const char *const known[] = { "replaced", "own", "text", "error" };
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

static void check_result(int fd) {
	struct stat result;
	void *map;

	if (fstat(fd, &result) || !result.st_size)
		abort();
	map = mmap(NULL, (size_t)result.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map == MAP_FAILED)
		abort();
	check_image(map, (size_t)result.st_size);
	munmap(map, (size_t)result.st_size);
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
	char common[512], request[2048], attachments[1024] = "";
	const char *twin;
	bool replaced;
	int fds[5];

	if (size < 2)
		return 0;
	snprintf(common, sizeof(common),
		 "\"job\":\"image\",\"id\":1,\"kind\":\"%s\",\"input\":0,\"output\":1,"
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
	fds[3] = make_memfd("", 0, false);
	fds[4] = make_memfd("", 0, false);
	snprintf(request, sizeof(request),
		 "{%s,\"flags\":0,\"attachments\":[%s],\"text_output\":3,\"instructions\":4}",
		 common, attachments);
	replaced = !strcmp(run(request, fds, 5), "replaced");
	if (replaced) {
		check_result(fds[1]);
		if (fcntl(fds[3], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE))
			abort();
		snprintf(request, sizeof(request),
			 "{%s,\"flags\":0,\"attachments\":[],\"stage\":\"check\",\"text\":3,"
			 "\"isa\":999}",
			 common);
		if (strcmp(run(request, fds, 5), "text"))
			abort();
	}
	snprintf(request, sizeof(request), "{%s,\"flags\":4,\"attachments\":[%s]}", common,
		 attachments);
	twin = run(request, fds, 3);
	if (!strcmp(twin, "replaced") || (replaced && strcmp(twin, "own")))
		abort();
	for (int i = 0; i < 5; i++)
		close(fds[i]);
	return 0;
}
