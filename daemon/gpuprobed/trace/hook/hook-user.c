/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Probes that a user asks for on functions of files, u:PATH:SYMBOL (hook-user.h).
 *
 * Two steps, so that a file which does not answer keeps none that is attached: all files are opened
 * and read, each once for all of its functions; then each has one link for the returns and one for
 * the entries (Linux 6.6), or where the kernel has or takes no such links, two perf events for each
 * function. These take a tenth of a second each to go away, under a lock that others want, too.
 *
 * What a user has here is counted from its beginning until the last probe is gone, so that no
 * threads, descriptors or programs can be heaped up.
 */

#include "hook-user.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lib/clock.h"
#include "daemon/gpuprobed/trace/source/cpu-list.h"
#include "daemon/gpuprobed/base/detached.h"
#include "lib/elf-symbols.h"
#include "daemon/gpuprobed/trace/source/site.h"
#include "daemon/gpuprobed/trace/source/uprobe-attach.h"

#define USERS_MAX 64 /* of all owners */
#define USERS_OF_ONE 8 /* twice what quota-traces lets one have, unless it is configured */
#define PATIENCE UINT64_C(10000000000)

struct user_probe {
	char *path, *symbol;
	uint32_t row;
	bool span;
	bool open; /* its file has been looked at */
	int fd; /* of the first probe of a file; -1 */
	const struct user_probe *first; /* that one */
	uint64_t offset;
	int r, error;
};

struct hook_user {
	uid_t owner;
	bool any;
	pid_t pid;
	struct hook_user_programs programs;
	struct user_probe *probes;
	size_t n;
	struct uprobe_fds links;
	uint64_t deadline;
	atomic_bool stop; /* nobody waits for the thread any more */
	bool running, abandoned; /* under the mutex */
};

/* Threads outlive whoever asked, so what they share belongs to the process. */
static struct {
	pthread_mutex_t mutex;
	uid_t owners[USERS_MAX];
	size_t n;
} users = { .mutex = PTHREAD_MUTEX_INITIALIZER };

static bool users_add(uid_t owner) {
	size_t n = 0;
	bool may;

	pthread_mutex_lock(&users.mutex);
	for (size_t i = 0; i < users.n; i++)
		n += users.owners[i] == owner;
	may = n < USERS_OF_ONE && users.n < USERS_MAX;
	if (may)
		users.owners[users.n++] = owner;
	pthread_mutex_unlock(&users.mutex);
	return may;
}

static void users_remove(uid_t owner) {
	pthread_mutex_lock(&users.mutex);
	for (size_t i = 0; i < users.n; i++)
		if (users.owners[i] == owner) {
			users.owners[i] = users.owners[--users.n];
			break;
		}
	pthread_mutex_unlock(&users.mutex);
}

/* ---- files ---- */

/* Where the probe goes: behind the entry, if the kernel need not single-step there, and nothing can
 * jump to it (as to a branch that begins a loop). */
static uint64_t find_site(int fd, uint64_t offset, uint64_t size) {
	uint8_t bytes[SITE_BYTES];
	size_t n = size < sizeof(bytes) ? size : sizeof(bytes), site;

	if (elf_file_read(fd, bytes, n, offset) || site_select(bytes, n, &site) != SITE_EMULATED)
		return offset;
	if ((bytes[site] & 0xf8) == 0x50 ||
	    (bytes[site] == 0x41 && (bytes[site + 1] & 0xf8) == 0x50)) /* push */
		return offset + site;
	return offset;
}

/* Reads a file for all of its probes, from the first on. */
static int read_file(struct hook_user *user, struct user_probe *first) {
	/* of who may be a stranger: what a file of his may cost */
	static const struct elf_limits own = { .symbols = UINT64_C(256) << 10,
					       .strings = UINT64_C(16) << 20 },
				       all = { .symbols = UINT64_C(2) << 20,
					       .strings = UINT64_C(64) << 20 };
	struct elf_wanted *wanted = calloc(user->n, sizeof(*wanted));
	size_t n = 0;
	int r;

	if (!wanted)
		return -ENOMEM;
	for (struct user_probe *probe = first; probe < user->probes + user->n; probe++)
		if (probe->first == first)
			wanted[n++].name = probe->symbol;
	r = elf_functions_find(first->fd, user->any ? &all : &own, wanted, n, &user->stop);
	n = 0;
	for (struct user_probe *probe = first; probe < user->probes + user->n; probe++) {
		const struct elf_wanted *found = &wanted[n];

		if (probe->first != first)
			continue;
		n++;
		probe->r = r                               ? r
			   : found->r == ELF_E_NO_FUNCTION ? HOOK_USER_E_NO_FUNCTION
			   : found->r == ELF_E_IFUNC       ? HOOK_USER_E_IFUNC
							   : found->r;
		if (!probe->r)
			probe->offset = find_site(first->fd, found->offset, found->size);
		if (probe->r == -ENOEXEC)
			probe->r = HOOK_USER_E_NO_PROGRAM;
	}
	free(wanted);
	return 0;
}

/* Opens the file of a probe, and reads it. */
static int look_at_file(struct hook_user *user, struct user_probe *first) {
	for (struct user_probe *probe = first; probe < user->probes + user->n; probe++)
		if (!probe->open && !strcmp(probe->path, first->path)) {
			probe->open = true;
			probe->first = first;
		}
	first->fd = elf_file_open(first->path, user->any, user->owner);
	if (first->fd >= 0)
		return read_file(user, first);
	for (struct user_probe *probe = first; probe < user->probes + user->n; probe++)
		if (probe->first == first) {
			/* whether others have such a file is not for strangers */
			probe->r = !user->any              ? HOOK_USER_E_FOREIGN
				   : first->fd == -ENOEXEC ? HOOK_USER_E_NO_PROGRAM
							   : HOOK_USER_E_NO_FILE;
			probe->error = -first->fd;
		}
	return 0;
}

/* ---- attaching ---- */

/* "6.12.38+deb13-amd64" is 6012038; 0: it is no release. */
static unsigned int release_number(const char *release) {
	unsigned int major, minor, patch = 0;

	if (sscanf(release, "%u.%u.%u", &major, &minor, &patch) < 2 || major > 999 || minor > 999)
		return 0;
	return major * 1000000 + minor * 1000 + (patch < 999 ? patch : 999);
}

/* Whether a link of one process sees calls of all of its threads: before 6.10 those of the first
 * alone. */
static bool links_know_threads(void) {
	struct utsname name;

	return !uname(&name) && release_number(name.release) >= 6010000;
}

bool hook_user_returns_are_safe(const char *release) {
#ifdef __x86_64__
	const unsigned int number = release_number(release);

	/* the mend is in 6.14, and came into 6.12 and 6.13 in between: with some margin */
	return number < 6011000 || (number >= 6012020 && number < 6013000) || number >= 6013008;
#else
	return true;
#endif
}

/* Leaves out what would do harm. */
static void refuse_returns(struct hook_user *user) {
	struct utsname name;

	if (!uname(&name) && hook_user_returns_are_safe(name.release))
		return;
	for (size_t i = 0; i < user->n; i++)
		if (user->probes[i].span && !user->probes[i].r)
			user->probes[i].r = HOOK_USER_E_HARM;
}

/* A link of a program on functions of one file. */
static int multi_link(struct hook_user *user, int program, bool at_return,
		      const struct uprobe_place *place, const uint64_t *offsets,
		      const uint64_t *rows, size_t n) {
	if (program < 0 || (user->pid && !links_know_threads()))
		return -EOPNOTSUPP;
	return uprobe_fds_add(&user->links,
			      uprobe_attach_multi(program, UPROBE_ATTACH_MULTI, at_return, place,
						  offsets, rows, n));
}

/* Those of a file that were found; the ends first: a beginning without end would stay pending. */
static int attach_file(struct hook_user *user, const struct user_probe *first,
		       const struct uprobe_place *place) {
	uint64_t *offsets = calloc(4 * user->n, sizeof(*offsets)), *rows = offsets + user->n,
		 *ends = rows + user->n, *end_rows = ends + user->n;
	size_t n = 0, n_ends = 0, before = user->links.n;
	int r = 0;

	if (!offsets)
		return -ENOMEM;
	for (const struct user_probe *probe = first; probe < user->probes + user->n; probe++) {
		if (probe->first != first || probe->r)
			continue;
		offsets[n] = probe->offset;
		rows[n++] = probe->row;
		if (probe->span) {
			ends[n_ends] = probe->offset;
			end_rows[n_ends++] = probe->row;
		}
	}
	if (n_ends)
		r = multi_link(user, user->programs.multi_return, true, place, ends, end_rows,
			       n_ends);
	if (!r && n)
		r = multi_link(user, user->programs.multi_entry, false, place, offsets, rows, n);
	free(offsets);
	return uprobe_fds_undo(&user->links, before, r);
}

static int attach_probe(struct hook_user *user, const struct user_probe *probe,
			const struct uprobe_place *place) {
	const size_t before = user->links.n;
	const uint64_t row = probe->row;
	int r = 0;

	if (probe->span)
		r = multi_link(user, user->programs.multi_return, true, place, &probe->offset, &row,
			       1);
	if (!r)
		r = multi_link(user, user->programs.multi_entry, false, place, &probe->offset, &row,
			       1);
	if (!uprobe_fds_undo(&user->links, before, r))
		return 0;
	r = probe->span
		    ? uprobe_fds_add(&user->links, uprobe_attach_event(user->programs.end, true,
								       place, probe->offset, row))
		    : 0;
	if (!r)
		r = uprobe_fds_add(&user->links, uprobe_attach_event(user->programs.entry, false,
								     place, probe->offset, row));
	return uprobe_fds_undo(&user->links, before, r);
}

/* All of one file, or each that the kernel does not refuse. */
static void attach(struct hook_user *user, const struct user_probe *first) {
	char path[64]; /* the very inode that was looked at */
	const struct uprobe_place place = { path, user->pid, cpu_first_online(),
					    uprobe_event_type() };

	snprintf(path, sizeof(path), "/proc/self/fd/%d", first->fd);
	if (!attach_file(user, first, &place))
		return;
	for (struct user_probe *probe = user->probes; probe < user->probes + user->n; probe++)
		if (probe->first == first && !probe->r && !atomic_load(&user->stop))
			probe->r = attach_probe(user, probe, &place);
}

/* ---- threads ---- */

static void *destroy(void *userdata) {
	struct hook_user *user = userdata;
	const int programs[] = { user->programs.multi_entry, user->programs.multi_return,
				 user->programs.entry, user->programs.end };

	uprobe_fds_close(&user->links, 0);
	for (size_t i = 0; i < sizeof(programs) / sizeof(*programs); i++)
		if (programs[i] >= 0)
			close(programs[i]);
	for (size_t i = 0; i < user->n; i++) {
		if (user->probes[i].fd >= 0)
			close(user->probes[i].fd);
		free(user->probes[i].path);
		free(user->probes[i].symbol);
	}
	users_remove(user->owner);
	free(user->probes);
	free(user->links.fds);
	free(user);
	return NULL;
}

static void *run(void *userdata) {
	struct hook_user *user = userdata;
	bool abandoned;

	for (size_t i = 0; i < user->n && !atomic_load(&user->stop); i++)
		if (!user->probes[i].open && look_at_file(user, &user->probes[i]) < 0)
			user->probes[i].r = -ENOMEM;
	refuse_returns(user);
	for (size_t i = 0; i < user->n; i++)
		if (user->probes[i].fd >= 0) {
			if (!atomic_load(&user->stop))
				attach(user, &user->probes[i]);
			close(user->probes[i].fd); /* links hold the file; and a server can make one
						      wait here, too */
			user->probes[i].fd = -1;
		}
	pthread_mutex_lock(&users.mutex);
	user->running = false;
	abandoned = user->abandoned;
	pthread_mutex_unlock(&users.mutex);
	return abandoned ? destroy(user) : NULL;
}

int hook_user_new(struct hook_user **userp, uid_t owner, bool any, pid_t pid) {
	struct hook_user *user;

	if (!users_add(owner))
		return HOOK_USER_E_BUSY;
	user = calloc(1, sizeof(*user));
	if (!user) {
		users_remove(owner);
		return -ENOMEM;
	}
	user->owner = owner;
	user->any = any;
	user->pid = pid;
	user->programs = (struct hook_user_programs){ -1, -1, -1, -1 };
	*userp = user;
	return 0;
}

int hook_user_add(struct hook_user *user, const char *path, const char *symbol, uint32_t row,
		  bool span) {
	struct user_probe *probes = reallocarray(user->probes, user->n + 1, sizeof(*probes));
	struct user_probe *probe;

	if (!probes)
		return -ENOMEM;
	user->probes = probes;
	probe = &probes[user->n++];
	*probe = (struct user_probe){
		.path = strdup(path), .symbol = strdup(symbol), .row = row, .span = span, .fd = -1
	};
	return probe->path && probe->symbol ? 0 : -ENOMEM;
}

static int copy(int *to, int fd) {
	*to = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	return fd >= 0 && *to < 0 ? -errno : 0;
}

int hook_user_start(struct hook_user *user, const struct hook_user_programs *programs) {
	int r;

	r = copy(&user->programs.multi_entry, programs->multi_entry);
	r = r ? r : copy(&user->programs.multi_return, programs->multi_return);
	r = r ? r : copy(&user->programs.entry, programs->entry);
	r = r ? r : copy(&user->programs.end, programs->end);
	if (r)
		return r;
	user->deadline = monotonic_now() + PATIENCE;
	user->running = true;
	r = detached_start(run, user, 0);
	if (r)
		user->running = false;
	return r;
}

static bool is_running(struct hook_user *user) {
	bool running;

	pthread_mutex_lock(&users.mutex);
	running = user->running;
	pthread_mutex_unlock(&users.mutex);
	return running;
}

bool hook_user_over(struct hook_user *user) {
	if (!atomic_load(&user->stop) && monotonic_now() >= user->deadline && is_running(user))
		atomic_store(&user->stop, true);
	return atomic_load(&user->stop) || !is_running(user);
}

int hook_user_result(const struct hook_user *user, uint32_t row, int *errorp) {
	if (atomic_load(&user->stop))
		return HOOK_USER_E_SILENT;
	for (size_t i = 0; i < user->n; i++)
		if (user->probes[i].row == row) {
			*errorp = user->probes[i].error;
			return user->probes[i].r;
		}
	return -ENOENT;
}

struct hook_user *hook_user_free(struct hook_user *user) {
	bool running;

	if (!user)
		return NULL;
	pthread_mutex_lock(&users.mutex);
	running = user->running;
	user->abandoned = true;
	atomic_store(&user->stop, true);
	pthread_mutex_unlock(&users.mutex);
	if (!running && (!user->links.n || detached_start(destroy, user, 0)))
		destroy(user);
	return NULL;
}
