/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of the daemon's side of the shim wire, over a real socket: what a process is told
 * about itself, slots of all kinds, and which process gets which instance of a map. Other users are
 * this process with another effective uid when it connects, so that part needs root.
 */

#include "client.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/gpuprobed/base/closer.h"
#include "daemon/gpuprobed/daemon-private.h"
#include "daemon/gpuprobed/base/memfd.h"
#include "daemon/gpuprobed/map/test-map-view.h"

#define OTHER_USER 65534

struct world {
	uv_loop_t loop;
	struct config config;
	struct daemon daemon;
	struct object *object;
	char folder[64], path[128];
	uint32_t sequence;
};

static int setup(void **state) {
	struct world *world = calloc(1, sizeof(*world));
	struct daemon *daemon = &world->daemon;
	struct attachment *attachment;
	int fd;

	strcpy(world->folder, "/tmp/test-client-XXXXXX");
	assert_non_null(mkdtemp(world->folder));
	assert_int_equal(chmod(world->folder, 0755), 0);
	snprintf(world->path, sizeof(world->path), "%s/shim.sock", world->folder);
	assert_int_equal(uv_loop_init(&world->loop), 0);
	daemon->loop = &world->loop;
	daemon->config = &world->config;
	config_set_defaults(&world->config);
	registry_init(&daemon->registry);
	process_table_init(&daemon->processes, &world->loop, client_process_gone, &daemon->client);
	outcome_log_init(&daemon->outcomes);
	LIST_INIT(&daemon->client.syncs);
	assert_int_equal(image_cache_init(&daemon->image.images), 0);
	assert_int_equal(map_accounts_new(&daemon->map_accounts, UINT64_C(1) << 30), 0);
	daemon_connect_rooms(daemon);
	fd = shim_server_listen(world->path, 0666);
	assert_true(fd >= 0);
	assert_int_equal(
		shim_server_new(&daemon->shims, &world->loop, fd,
				&(struct shim_server_options){ .accounts = &daemon->accounts,
							       .handlers = &client_handlers,
							       .userdata = &daemon->client }),
		0);
	assert_int_equal(object_new(&world->object, 1, 0), 0);
	assert_int_equal(attachment_new(&attachment, world->object, ATTACHMENT_GPU), 0);
	attachment->of.gpu.maps = UINT64_MAX;
	registry_link(&daemon->registry, world->object, &attachment, 1);
	*state = world;
	return 0;
}

static int teardown(void **state) {
	struct world *world = *state;
	struct daemon *daemon = &world->daemon;

	daemon->shims = shim_server_free(daemon->shims);
	uv_run(&world->loop, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&world->loop), 0);
	registry_deinit(&daemon->registry);
	outcome_log_deinit(&daemon->outcomes);
	map_accounts_free(daemon->map_accounts);
	unlink(world->path);
	rmdir(world->folder);
	free(world);
	return 0;
}

/* A map of the object, of a type and place; id 11 and on. */
static struct map *add_map(struct world *world, uint32_t type, uint32_t place, uint32_t merge,
			   int kernel_fd) {
	struct map_shape shape = { .type = type,
				   .key_size = 4,
				   .value_size = 8,
				   .max_entries = 512,
				   .place = place,
				   .merge = merge };
	struct map_spec spec = { .name = "m",
				 .type = type,
				 .key_size = 4,
				 .value_size = 8,
				 .max_entries = 512,
				 .kernel_fd = kernel_fd };
	struct map **mapp = &world->object->maps[world->object->n_maps++];

	assert_null(map_layout_init(&spec.layout, &shape));
	assert_int_equal(map_new(mapp, 10 + world->object->n_maps, 1, 0, &spec,
				 world->daemon.map_accounts),
			 0);
	return *mapp;
}

/* Lets the daemon work off what is there. */
static void turn(struct world *world) {
	for (int i = 0; i < 8; i++)
		uv_run(&world->loop, UV_RUN_NOWAIT);
}

/* The next message, and its descriptor or -1. */
static int receive(int fd, union wire_message *message) {
	char control[CMSG_SPACE(sizeof(int))];
	struct iovec vector = { message, sizeof(*message) };
	struct msghdr header = { .msg_iov = &vector,
				 .msg_iovlen = 1,
				 .msg_control = control,
				 .msg_controllen = sizeof(control) };
	ssize_t n = recvmsg(fd, &header, MSG_DONTWAIT);
	int got = -1;

	assert_true(n > 0);
	assert_true(wire_valid(message, (size_t)n));
	if (CMSG_FIRSTHDR(&header))
		memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&header)), sizeof(got));
	return got;
}

static void send_message(struct world *world, int fd, union wire_message *message, uint16_t type) {
	message->header = (struct wire_header){ WIRE_MAGIC, WIRE_VERSION, type,
						(uint32_t)wire_size(type), ++world->sequence };
	assert_int_equal(send(fd, message, wire_size(type), 0), wire_size(type));
	turn(world);
}

/* Connects as a user and says hello. The socket. */
static int connect_as(struct world *world, uid_t uid, uint32_t role, union wire_message *welcome) {
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	union wire_message hello = { .hello = { .role = role, .shim_version = "test" } };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(address.sun_path, world->path);
	if (uid != geteuid())
		assert_int_equal(seteuid(uid), 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	if (geteuid() != getuid())
		assert_int_equal(seteuid(getuid()), 0);
	send_message(world, fd, &hello, WIRE_HELLO);
	assert_int_equal(receive(fd, welcome), -1);
	assert_int_equal(welcome->header.type, WIRE_WELCOME);
	return fd;
}

/* The newest process gets a module that uses all maps of the object. */
static void load_module(struct world *world) {
	struct process *process = LIST_FIRST(&world->daemon.processes.list);
	struct image_result *result;
	struct module *module;

	assert_int_equal(image_result_new(&result), 0);
	result->slots = calloc(world->object->n_maps, sizeof(*result->slots));
	for (size_t i = 0; i < world->object->n_maps; i++)
		result->slots[result->n_slots++].map = world->object->maps[i]->id;
	assert_int_equal(process_module_new(&world->daemon.processes, process, result, &module), 0);
	image_result_unref(result);
}

/* Asks for an instance. Its descriptor; the reply in *reply. */
static int ask(struct world *world, int fd, const struct map *map, uint32_t device,
	       struct wire_instance_reply *reply) {
	union wire_message message = { .instance = { .map_id = map->id, .device = device } };
	int got;

	send_message(world, fd, &message, WIRE_INSTANCE);
	got = receive(fd, &message);
	assert_int_equal(message.header.type, WIRE_INSTANCE_REPLY);
	assert_int_equal(message.instance_reply.map_id, map->id);
	*reply = message.instance_reply;
	return got;
}

/* Whether both are the same file. Closes them. */
static bool same(int a, int b) {
	struct stat x, y;

	assert_int_equal(fstat(a, &x), 0);
	assert_int_equal(fstat(b, &y), 0);
	close(a);
	close(b);
	return x.st_ino == y.st_ino && x.st_dev == y.st_dev;
}

/* A process may ask again and again whether it is traced; here nobody does. Nothing else may come
 * on that connection. */
static void test_trace(void **state) {
	union wire_message message;
	int fd = connect_as(*state, geteuid(), WIRE_ROLE_TRACE, &message);

	for (int i = 0; i < 3; i++) {
		memset(&message, 0, sizeof(message));
		send_message(*state, fd, &message, WIRE_TRACE);
		assert_int_equal(receive(fd, &message), -1);
		assert_int_equal(message.header.type, WIRE_TRACE_REPLY);
		assert_int_equal(message.trace_reply.size, 0);
	}
	memset(&message, 0, sizeof(message));
	send_message(*state, fd, &message, WIRE_SYNCED);
	assert_int_equal(recv(fd, &message, sizeof(message), MSG_DONTWAIT), 0);
	close(fd);
}

static void test_welcome(void **state) {
	union wire_message welcome;
	int fd = connect_as(*state, geteuid(), WIRE_ROLE_LOADER, &welcome);
	char comm[17] = "";
	FILE *file = fopen("/proc/self/comm", "r");

	assert_int_equal(fread(comm, 1, 16, file) > 0, 1);
	fclose(file);
	comm[strcspn(comm, "\n")] = '\0';
	assert_int_equal(welcome.welcome.pid, getpid());
	assert_string_equal(welcome.welcome.comm, comm);
	assert_int_equal(welcome.welcome.session, 0); /* nobody keeps anything */
	close(fd);
}

/* A map for itself: each context has an instance, whose places and kinds are told. */
static void test_own(void **state) {
	struct world *world = *state;
	const struct map *device = add_map(world, 2, MAP_PLACE_DEVICE, MAP_MERGE_SUM64, -1);
	const struct map *host = add_map(world, 1513, MAP_PLACE_DEVICE, MAP_MERGE_NONE, -1);
	const struct map *ring = add_map(world, 1527, MAP_PLACE_HOST, MAP_MERGE_NONE, -1);
	struct wire_instance_reply a, b;
	union wire_message welcome;
	int fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome), first, second;

	assert_int_equal(ask(world, fd, device, 0, &a), -1); /* no module of it uses the map */
	assert_int_equal(a.size, 0);
	load_module(world);
	first = ask(world, fd, device, 0, &a);
	second = ask(world, fd, device, 0, &b);
	assert_int_equal(a.place, MAP_PLACE_DEVICE);
	assert_int_equal(a.kind, MAP_KIND_ARRAY);
	assert_int_equal(a.size, map_memfd_size(&device->spec.layout));
	assert_int_equal(a.data_size, device->spec.layout.data_size);
	assert_true(a.instance_id != b.instance_id);
	assert_false(same(first, second));
	first = ask(world, fd, host, 0, &a);
	second = ask(world, fd, host, 0, &b);
	assert_int_equal(a.place, MAP_PLACE_HOST);
	assert_false(same(first, second));
	close(ask(world, fd, ring, 1, &a));
	assert_int_equal(a.place, MAP_PLACE_DEVICE);
	assert_int_equal(a.kind, MAP_KIND_RING);
	assert_int_equal(a.size, map_memfd_size(&ring->spec.layout));
	close(fd);
}

/* Attached as shared: one for all processes and contexts of a user, which stays when they go; rings
 * are not. */
static void test_shared(void **state) {
	struct world *world = *state;
	const struct map *host = add_map(world, 2, MAP_PLACE_HOST, MAP_MERGE_NONE, -1);
	const struct map *ring = add_map(world, 1527, MAP_PLACE_HOST, MAP_MERGE_NONE, -1);
	struct wire_instance_reply a, b;
	union wire_message welcome;
	int fd, first, second, other;

	world->object->shared = true;
	fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome);
	load_module(world);
	first = ask(world, fd, host, 0, &a);
	assert_true(same(dup(first), ask(world, fd, host, 1, &b)));
	assert_int_equal(a.instance_id, b.instance_id);
	assert_false(same(ask(world, fd, ring, 0, &a), ask(world, fd, ring, 0, &b)));
	if (geteuid() == 0) {
		other = connect_as(world, OTHER_USER, WIRE_ROLE_LOADER, &welcome);
		load_module(world);
		second = ask(world, other, host, 0, &b);
		assert_true(same(dup(second), ask(world, other, host, 3, &a)));
		assert_false(same(dup(first), second));
		close(other);
	}
	close(fd);
	turn(world);
	assert_int_equal(world->daemon.processes.n, 0);
	fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome); /* a new process */
	load_module(world);
	assert_true(same(first, ask(world, fd, host, 0, &a)));
	close(fd);
}

/* What host programs share goes to one user's processes. Any file that can be mapped stands for the
 * kernel's map. */
static void test_kernel(void **state) {
	struct world *world = *state;
	struct wire_instance_reply reply;
	union wire_message welcome;
	const struct map *map;
	int kernel = memfd_create("array", MFD_CLOEXEC), fd, other;

	assert_int_equal(ftruncate(kernel, 4096), 0);
	map = add_map(world, 2, MAP_PLACE_KERNEL, MAP_MERGE_NONE, kernel);
	fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome);
	load_module(world);
	assert_true(same(kernel, ask(world, fd, map, 0, &reply)));
	assert_int_equal(reply.place, MAP_PLACE_KERNEL);
	assert_int_equal(reply.size, 4096);
	assert_int_equal(reply.data_size, 4096);
	if (geteuid() == 0) {
		other = connect_as(world, OTHER_USER, WIRE_ROLE_LOADER, &welcome);
		load_module(world);
		assert_int_equal(ask(world, other, map, 0, &reply), -1);
		assert_int_equal(reply.size, 0);
		assert_non_null(
			strstr(TAILQ_FIRST(&world->daemon.outcomes.list)->reason, "another user"));
		close(other);
	}
	close(fd);
}

/* Processes of other users leave half of the memory to who attached. */
static void test_share(void **state) {
	struct world *world = *state;
	const struct map *ring = add_map(world, 1527, MAP_PLACE_DEVICE, MAP_MERGE_NONE, -1);
	struct wire_instance_reply reply;
	union wire_message welcome;
	int other, fd, n = 0;

	if (geteuid() != 0)
		skip();
	other = connect_as(world, OTHER_USER, WIRE_ROLE_LOADER, &welcome);
	load_module(world);
	while ((fd = ask(world, other, ring, 0, &reply)) >= 0) {
		close(fd);
		n++;
	}
	assert_in_range(n, 60, 63); /* of 8 MiB, in half of 1 GiB */
	assert_int_equal(reply.size, 0);
	assert_non_null(strstr(TAILQ_FIRST(&world->daemon.outcomes.list)->reason, "half of"));
	fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome);
	load_module(world);
	close(ask(world, fd, ring, 0, &reply));
	assert_true(reply.size > 0);
	close(other);
	turn(world);
	assert_int_equal(ring->n_instances, 1);
	assert_non_null(world->daemon.client.folding); /* not all of them in one turn */
	while (world->daemon.client.folding)
		turn(world);
	other = connect_as(world, OTHER_USER, WIRE_ROLE_LOADER, &welcome);
	load_module(world);
	close(ask(world, other, ring, 0, &reply));
	assert_true(reply.size > 0);
	close(other);
	close(fd);
}

/* What processes of another user left behind in a hash map, and what they have now, leave a quarter
 * to who attached. */
static void test_left_behind(void **state) {
	const uint64_t limit = UINT64_C(1) << 20;
	struct world *world = *state;
	struct map *map = add_map(world, BPF_MAP_TYPE_HASH, MAP_PLACE_DEVICE, MAP_MERGE_NONE, -1);
	const struct map_layout *layout = &map->spec.layout;
	struct map_accounts *accounts = world->daemon.map_accounts;
	struct wire_instance_reply reply;
	union wire_message welcome;
	int other, fd, n = 0;

	if (geteuid() != 0)
		skip();
	map_accounts_set_limit(accounts, limit);
	for (uint64_t key = 0; !map->lost;) {
		struct view view = view_make(map, 1000 + key, 0);

		view.instance->uid = OTHER_USER;
		for (uint64_t slot = 0; slot < layout->capacity; slot++)
			put64(&view, sizeof(struct map_hash) + slot * layout->entry_stride,
			      MAP_SLOT_LIVE | key++ << 32);
		map_process_gone(map, 1000 + key - layout->capacity);
		view_free(&view);
	}
	assert_in_range(map_accounts_totals(accounts, 0), limit / 4 + 1, limit / 2);
	other = connect_as(world, OTHER_USER, WIRE_ROLE_LOADER, &welcome);
	load_module(world);
	for (; (fd = ask(world, other, map, 0, &reply)) >= 0; n++)
		close(fd);
	assert_true(n > 1);
	assert_non_null(
		strstr(TAILQ_FIRST(&world->daemon.outcomes.list)->reason, "left much behind"));
	assert_in_range(map_accounts_used(accounts, 0), limit / 2,
			limit / 4 * 3 + 8192); /* and what the map has without instances */
	close(other);
	turn(world);
}

/* A process that makes contexts and ends them, without an end, is counted all the time. */
static void test_contexts(void **state) {
	enum {
		n = 300
	};
	struct world *world = *state;
	struct map *map = add_map(world, 2, MAP_PLACE_DEVICE, MAP_MERGE_SUM64, -1);
	const uint32_t final = MAP_INSTANCE_FINAL;
	struct wire_instance_reply reply;
	union wire_message welcome;
	struct map_entry entry;
	uint64_t value = 1;
	int fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome), got;

	load_module(world);
	for (int i = 0; i < n; i++) {
		got = ask(world, fd, map, 0, &reply);
		assert_true(got >= 0);
		assert_int_equal(pread(got, &value, sizeof(value), MAP_DATA_OFFSET), sizeof(value));
		assert_int_equal(value, 0);
		value = 1;
		assert_int_equal(pwrite(got, &value, sizeof(value), MAP_DATA_OFFSET),
				 sizeof(value));
		assert_int_equal(pwrite(got, &final, sizeof(final),
					offsetof(struct map_header, state)),
				 sizeof(final));
		close(got);
		assert_int_equal(map_read(map, 0, &entry), 0);
		memcpy(&value, entry.values, sizeof(value));
		assert_int_equal(value, i + 1);
	}
	assert_in_range(map->n_instances, 1, 256);
	close(fd);
}

/* Who has but an instance that has ended, and is being folded, is not asked for a copy of it. */
static void test_sync(void **state) {
	struct world *world = *state;
	struct map *map = add_map(world, 2, MAP_PLACE_DEVICE, MAP_MERGE_NONE, -1);
	struct map_instance *ended, *other;
	struct wire_instance_reply reply;
	struct sync_request *request;
	union wire_message message;
	int loader = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &message),
	    mirror = connect_as(world, geteuid(), WIRE_ROLE_MIRROR, &message), r;

	load_module(world);
	close(ask(world, loader, map, 0, &reply));
	request = client_sync(&world->daemon.client, map, 60000, NULL, NULL, &r);
	assert_non_null(request);
	assert_int_equal(receive(mirror, &message), -1);
	assert_int_equal(message.header.type, WIRE_SYNC);
	ended = map->instances;
	assert_int_equal(map_instance_get(map, 999, 999, 0, 999, &other), 0);
	map_instance_end(ended);
	assert_int_equal(map->n_instances, 1);
	assert_null(client_sync(&world->daemon.client, map, 60000, NULL, NULL, &r));
	assert_int_equal(r, 0);
	assert_true(recv(mirror, &message, sizeof(message), MSG_DONTWAIT) < 0);
	close(mirror);
	close(loader);
	turn(world); /* which ends the first request */
}

/* Processes of one user leave descriptors to others. */
static void test_descriptors(void **state) {
	struct world *world = *state;
	const struct map *map = add_map(world, 2, MAP_PLACE_DEVICE, MAP_MERGE_SUM64, -1);
	struct wire_instance_reply reply;
	union wire_message welcome;
	struct rlimit limit, low;
	uint32_t n = 0;
	int fd, got;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	low = limit;
	low.rlim_cur = 200;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome);
	load_module(world);
	while ((got = ask(world, fd, map, n % SHIM_DEVICES_MAX, &reply)) >= 0) {
		close(got);
		n++;
	}
	assert_int_equal(n, 100);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_non_null(strstr(TAILQ_FIRST(&world->daemon.outcomes.list)->reason, "one user"));
	close(fd);
}

/* Detaching tells those whose modules use the map, wherever its instance is. */
static void test_disarm(void **state) {
	struct world *world = *state;
	const struct map *map = add_map(world, 2, MAP_PLACE_HOST, MAP_MERGE_NONE, -1);
	struct wire_instance_reply reply;
	union wire_message message;
	int loader = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &message),
	    mirror = connect_as(world, geteuid(), WIRE_ROLE_MIRROR, &message);

	client_disarm(&world->daemon.client, world->object, 1);
	assert_true(recv(mirror, &message, sizeof(message), MSG_DONTWAIT) < 0);
	load_module(world);
	close(ask(world, loader, map, 0, &reply));
	add_map(world, 2, MAP_PLACE_HOST, MAP_MERGE_NONE, -1); /* which it was not given */
	client_disarm(&world->daemon.client, world->object, 3);
	assert_int_equal(receive(mirror, &message), -1);
	assert_int_equal(message.header.type, WIRE_DISARM);
	assert_int_equal(message.disarm.map_id, map->id);
	assert_true(recv(mirror, &message, sizeof(message), MSG_DONTWAIT) < 0);
	close(mirror);
	close(loader);
}

/* Says that the process has the module, armed, with the attachment. Whether the daemon knows it
 * now. */
static bool resume(struct world *world, int fd, uint64_t module) {
	union wire_message message = {
		.resume = { .module_id = module, .attachment_count = 2, .flags = WIRE_RESUME_ARMED }
	};

	send_message(world, fd, &message, WIRE_RESUME);
	message =
		(union wire_message){ .ids = { .module_id = module, .count = 2, .ids = { 1, 1 } } };
	send_message(world, fd, &message, WIRE_IDS);
	assert_int_equal(receive(fd, &message), -1);
	assert_int_equal(message.header.type, WIRE_RESUMED);
	return message.resumed.known;
}

/* Modules that processes resume are counted: for who asks what has an attachment, and against the
 * user's bound. */
static void test_resume(void **state) {
	struct world *world = *state;
	union wire_message welcome;
	int fd = connect_as(world, geteuid(), WIRE_ROLE_LOADER, &welcome);
	const struct attachment *attachment = TAILQ_FIRST(&world->daemon.registry.attachments);
	struct account *account = account_ref(LIST_FIRST(&world->daemon.processes.list)->account);

	account->modules += ACCOUNT_MODULES_MAX - 2;
	for (uint64_t module = 1; module <= 4; module++)
		assert_int_equal(resume(world, fd, module), module <= 2);
	process_table_count(&world->daemon.processes, &world->daemon.registry);
	assert_int_equal(attachment->n_modules, 2);
	assert_int_equal(attachment->n_recompiled, 2);
	assert_int_equal(attachment->n_processes, 1);
	LIST_FIRST(&LIST_FIRST(&world->daemon.processes.list)->modules)->result->machine_code =
		true; /* that of both, which say the same */
	process_table_count(&world->daemon.processes, &world->daemon.registry);
	assert_int_equal(attachment->n_modules, 2);
	assert_int_equal(attachment->n_recompiled, 0);
	assert_int_equal(world->daemon.outcomes.n, 1); /* said once */
	assert_non_null(strstr(TAILQ_FIRST(&world->daemon.outcomes.list)->reason, "quota"));
	close(fd);
	turn(world);
	assert_int_equal(account->modules, ACCOUNT_MODULES_MAX - 2);
	account_unref(account);
}

/* ---- turns ---- */

static struct {
	unsigned int mine, other;
} handled;

static int turns_on_hello(struct shim_connection *connection, const struct wire_hello *hello,
			  void *userdata) {
	return 0;
}

static int turns_on_message(struct shim_connection *connection, const union wire_message *message,
			    int consumed_fd, void *userdata) {
	*(connection->uid == geteuid() ? &handled.mine : &handled.other) += 1;
	uv_sleep(2);
	return 0;
}

static void turns_on_closed(struct shim_connection *connection, void *userdata) {
}

/* However many connections a user has, he has some milliseconds of a turn, and the others theirs.
 */
static void test_turns(void **state) {
	static const struct shim_server_handlers handlers = { turns_on_hello, turns_on_message,
							      turns_on_closed };
	enum {
		n = 20,
		each = 3
	};
	struct world *world = *state;
	union wire_message report = { .report = { .header = { WIRE_MAGIC, WIRE_VERSION, WIRE_REPORT,
							      sizeof(report.report), 1 } } };
	const union wire_message hello = { .hello = { .header = { WIRE_MAGIC, WIRE_VERSION,
								  WIRE_HELLO, sizeof(hello.hello),
								  1 },
						      .role = WIRE_ROLE_LOADER } };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct shim_server *server;
	unsigned int mine, other;
	char path[160];
	int fds[n + 1];

	snprintf(path, sizeof(path), "%s/turns.sock", world->folder);
	strcpy(address.sun_path, path);
	assert_int_equal(
		shim_server_new(&server, &world->loop, shim_server_listen(path, 0666),
				&(struct shim_server_options){ .accounts = &world->daemon.accounts,
							       .handlers = &handlers }),
		0);
	handled.mine = handled.other = 0;
	for (int i = 0; i <= n; i++) {
		fds[i] = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		if (i == n && geteuid() == 0)
			assert_int_equal(seteuid(OTHER_USER), 0);
		assert_int_equal(connect(fds[i], (struct sockaddr *)&address, sizeof(address)), 0);
		if (getuid() == 0)
			assert_int_equal(seteuid(0), 0);
		assert_int_equal(send(fds[i], &hello, sizeof(hello.hello), 0), sizeof(hello.hello));
		turn(world);
	}
	while (shim_server_counters(server)->messages < n + 1)
		turn(world);
	strcpy(report.report.reason, "why");
	for (int k = 0; k < each; k++)
		for (int i = 0; i <= n; i++)
			assert_int_equal(send(fds[i], &report, sizeof(report.report), 0),
					 sizeof(report.report));
	uv_run(&world->loop, UV_RUN_NOWAIT);
	mine = handled.mine;
	other = handled.other;
	while (handled.mine + handled.other < each * (n + 1))
		uv_run(&world->loop, UV_RUN_ONCE);
	for (int i = 0; i <= n; i++)
		close(fds[i]);
	shim_server_free(server);
	turn(world);
	unlink(path);
	assert_in_range(mine, 1, 3);
	if (getuid() == 0)
		assert_in_range(other, 1, 3);
}

/* Who comes while sockets wait to be closed waits, too, and is served then. */
static void test_behind(void **state) {
	static const struct shim_server_handlers handlers = { turns_on_hello, turns_on_message,
							      turns_on_closed };
	struct world *world = *state;
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	struct rlimit before, limit;
	struct shim_server *server;
	struct closer *closer;
	uint64_t n_served;
	char path[160];
	bool waited = false;
	int fd, memory;

	snprintf(path, sizeof(path), "%s/behind.sock", world->folder);
	strcpy(address.sun_path, path);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
	limit = (struct rlimit){ 0, before.rlim_max }; /* one that waits is too many */
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(closer_new(&closer, &world->loop), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
	assert_int_equal(
		shim_server_new(&server, &world->loop, shim_server_listen(path, 0666),
				&(struct shim_server_options){ .accounts = &world->daemon.accounts,
							       .handlers = &handlers,
							       .closer = closer }),
		0);
	for (int tries = 0; tries < 100 && !waited;
	     tries++) { /* this thread may be the one that stands still */
		memory = memfd_create("memory", MFD_CLOEXEC);
		assert_int_equal(fallocate(memory, 0, 0, 256 << 20),
				 0); /* to let go of it takes a while */
		closer_memory(closer, memory);
		n_served = shim_server_counters(server)->connections;
		fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
		assert_int_equal(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
		uv_run(&world->loop, UV_RUN_NOWAIT);
		waited = closer_is_behind(closer);
		if (waited)
			assert_int_equal(shim_server_counters(server)->connections, n_served);
		while (shim_server_counters(server)->connections == n_served)
			uv_run(&world->loop, UV_RUN_ONCE);
		close(fd);
	}
	assert_true(waited);
	shim_server_free(server);
	closer_free(closer);
	turn(world);
	unlink(path);
}

int main(void) {
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_welcome, setup, teardown),
		cmocka_unit_test_setup_teardown(test_trace, setup, teardown),
		cmocka_unit_test_setup_teardown(test_own, setup, teardown),
		cmocka_unit_test_setup_teardown(test_shared, setup, teardown),
		cmocka_unit_test_setup_teardown(test_kernel, setup, teardown),
		cmocka_unit_test_setup_teardown(test_share, setup, teardown),
		cmocka_unit_test_setup_teardown(test_left_behind, setup, teardown),
		cmocka_unit_test_setup_teardown(test_contexts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptors, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sync, setup, teardown),
		cmocka_unit_test_setup_teardown(test_disarm, setup, teardown),
		cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
		cmocka_unit_test_setup_teardown(test_turns, setup, teardown),
		cmocka_unit_test_setup_teardown(test_behind, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
