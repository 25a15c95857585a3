/* SPDX-License-Identifier: Apache-2.0 */

/*
 * shim cdi: what a runtime for containers needs to know (Container Device Interface): the library,
 * the folder with the daemon's sockets, and LD_PRELOAD. In containers the library has a path of its
 * own, since the folders of libraries differ from one distribution to the next.
 */

#include "cdi.h"

#include <fcntl.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "ctl/base/ctl.h"
#include "lib/json.h"
#include "proto/paths.h"
#include "preload.h"

#define CDI_VERSION "0.5.0"
#define CDI_KIND "gpuprobe.io/shim"
#define CONTAINER_FOLDER "/usr/lib/gpuprobe"

static json_object *mount(const char *host, const char *container) {
	static const char *const options[] = { "ro", "nosuid", "nodev", "rbind", "rprivate" };
	json_object *mount = json_object_new_object(), *list = json_object_new_array();

	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		json_append_string(list, options[i]);
	json_add_string(mount, "hostPath", host);
	json_add_string(mount, "containerPath", container);
	json_add(mount, "options", list);
	return mount;
}

/* A library that lies beside the shim and that it loads where it is wanted: mounted if it is
 * installed. */
static void add_beside(json_object *mounts, int root, const char *library, const char *name) {
	char path[4096 + 32], container[128];
	int fd;

	snprintf(path, sizeof(path), "%.*s/%s", (int)(strrchr(library, '/') - library), library,
		 name);
	snprintf(container, sizeof(container), CONTAINER_FOLDER "/%s", name);
	fd = preload_open_in_root(root, path, O_PATH);
	if (fd < 0)
		return;
	close(fd);
	json_append(mounts, mount(path, container));
}

int cdi_print(struct ctl *ctl, int root, const char *library) {
	json_object *out, *edits, *mounts, *env, *device, *devices;
	char resolved[4096], reason[CHECK_REASON_SIZE];
	int r;

	r = (int)check_library(root, library, resolved, reason);
	if (r)
		return ctl_fail((enum ctl_exit)r, "%s", reason);
	out = json_object_new_object();
	edits = json_object_new_object();
	mounts = json_object_new_array();
	env = json_object_new_array();
	device = json_object_new_object();
	devices = json_object_new_array();
	json_append(mounts, mount(resolved, CONTAINER_FOLDER "/" PRELOAD_LIBRARY));
	add_beside(mounts, root, resolved, "libgpuprobe-hold.so");
	add_beside(mounts, root, resolved, "libgpuprobe-sass.so");
	add_beside(mounts, root, resolved, "libgpuprobe-cupti.so");
	json_append(mounts, mount(PATHS_SYSTEM_DIR, PATHS_SYSTEM_DIR));
	json_append_string(env, "LD_PRELOAD=" CONTAINER_FOLDER "/" PRELOAD_LIBRARY);
	json_add(edits, "env", env);
	json_add(edits, "mounts", mounts);
	json_add_string(device, "name", "all");
	json_add(device, "containerEdits", edits);
	json_append(devices, device);
	json_add_string(out, "cdiVersion", CDI_VERSION);
	json_add_string(out, "kind", CDI_KIND);
	json_add(out, "devices", devices);
	ctl->pretty = true; /* it is for people, too */
	ctl_print_json(ctl, out);
	json_object_put(out);
	return CTL_OK;
}
