/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Any bytes as the image of a job: first byte the kind and the device, the rest the image. There is
 * no compiler, so a new image carries PTX; it must be a fatbin (or PTX) that can be read.
 */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fatbin.h"
#include "image-job.h"
#include "ptx-module.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char probe[] =
	".visible .global .align 8 .u64 m;\n"
	".func (.param .b64 r) p(.param .b64 ctx)\n"
	"{\n"
	"	ret;\n"
	"}\n";

static int make_memfd(const void *data, size_t size, bool seal)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0 || write(fd, data, size) != (ssize_t)size ||
	    (seal && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)))
		abort();
	return fd;
}

static void check_image(const uint8_t *image, size_t size)
{
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const kinds[] = { "fatbin", "ptx", "cubin" };
	static const int capabilities[] = { 75, 80, 90, 103 };
	struct json_object *reply, *status;
	struct image_worker worker = {};
	struct worker_job job = { .id = 1, .n_fds = 3 };
	char request[512];
	int fds[3];

	if (size < 2)
		return 0;
	snprintf(request, sizeof(request),
		 "{\"job\":\"image\",\"id\":1,\"kind\":\"%s\",\"flags\":0,\"input\":0,\"output\":1,"
		 "\"capability\":%d,"
		 "\"programs\":[{\"name\":\"p\",\"fd\":2,\"isa\":63,\"target\":52}],"
		 "\"attachments\":[{\"id\":3,\"kernel\":\"*\",\"point\":\"entry\",\"program\":"
		 "\"p\"}]}",
		 kinds[data[0] % 3], capabilities[data[0] / 3 % 4]);
	fds[0] = make_memfd(data + 1, size - 1, true);
	fds[1] = make_memfd("", 0, false);
	fds[2] = make_memfd(probe, sizeof(probe) - 1, true);
	job.fds = fds;
	job.request = json_tokener_parse(request);
	reply = json_object_new_object();
	if (image_job(&job, reply, &worker) || !json_object_object_get_ex(reply, "status", &status))
		abort();
	if (!strcmp(json_object_get_string(status), "replaced")) {
		struct stat result;
		void *map;

		if (fstat(fds[1], &result) || !result.st_size)
			abort();
		map = mmap(NULL, (size_t)result.st_size, PROT_READ, MAP_PRIVATE, fds[1], 0);
		if (map == MAP_FAILED)
			abort();
		check_image(map, (size_t)result.st_size);
		munmap(map, (size_t)result.st_size);
	}
	json_object_put(reply);
	json_object_put(job.request);
	for (int i = 0; i < 3; i++)
		close(fds[i]);
	return 0;
}
