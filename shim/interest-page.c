/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the daemons' interest pages (proto/interest.h): the session daemon of this user, then the
 * system one. The pages stay mapped; one stat a load tells whether the file was replaced by a new
 * daemon. Everything that is doubtful about a file or a folder means: no daemon there.
 */

#include "interest-page.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "interest.h"
#include "paths.h"

#define DEADLINE_MAX_MS 60000
#define INITIAL_PID_NAMESPACE "pid:[4026531836]"
#define INITIAL_USER_NAMESPACE "user:[4026531837]"

struct page {
	char folder[INTEREST_FOLDER_MAX];
	char name[PATHS_SESSION_NAME_MAX + 1]; /* of the session that was looked for */
	const struct interest_page *page; /* or NULL */
	dev_t device;
	ino_t inode;
};

static struct page session_page, system_page;

/* A session name: letters, digits, underscore, 1 to 32 of them. */
static bool valid_name(const char *name)
{
	size_t length =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

	return length && length <= PATHS_SESSION_NAME_MAX && !name[length];
}

/* Writes the session folder of this user; false if there can be none. */
static bool session_folder(char *folder, const char *name)
{
	struct stat status;
	char user[64];
	int length;

	snprintf(user, sizeof(user), PATHS_USER_DIR, (unsigned)getuid());
	length = snprintf(folder, INTEREST_FOLDER_MAX,
			  stat(user, &status) == 0 && S_ISDIR(status.st_mode)
				  ? PATHS_SESSION_IN_USER_DIR
				  : PATHS_SESSION_IN_TMP,
			  (unsigned)getuid());
	if (name)
		snprintf(folder + length, INTEREST_FOLDER_MAX - (size_t)length, "-%s", name);
	return lstat(folder, &status) == 0 && S_ISDIR(status.st_mode) &&
	       status.st_uid == getuid() && (status.st_mode & 07777) == 0700;
}

/*
 * Is the mapped page still that of its folder? A new daemon makes a new file; the old one's number
 * is not free while we map it.
 */
static bool is_fresh(const struct page *page)
{
	char path[INTEREST_FOLDER_MAX + sizeof(PATHS_INTEREST_PAGE) + 1];
	struct stat status;

	if (!page->page)
		return false;
	snprintf(path, sizeof(path), "%s/%s", page->folder, PATHS_INTEREST_PAGE);
	return stat(path, &status) == 0 && status.st_dev == page->device &&
	       status.st_ino == page->inode;
}

/* Maps the page of a folder; without one (NULL) there is none. */
static void map_page(struct page *page, const char *folder)
{
	char path[INTEREST_FOLDER_MAX + sizeof(PATHS_INTEREST_PAGE) + 1];
	struct stat status;
	void *mapped;
	int fd;

	if (page->page)
		munmap((void *)page->page, INTEREST_PAGE_SIZE);
	page->page = NULL;
	if (!folder)
		return;
	snprintf(path, sizeof(path), "%s/%s", folder, PATHS_INTEREST_PAGE);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
	    status.st_size >= INTEREST_PAGE_SIZE) {
		mapped = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0);
		if (mapped != MAP_FAILED) {
			page->page = mapped;
			page->device = status.st_dev;
			page->inode = status.st_ino;
			strcpy(page->folder, folder);
		}
	}
	close(fd);
}

static bool in_namespace(const char *link, const char *initial)
{
	char text[64];
	ssize_t length = readlink(link, text, sizeof(text) - 1);

	if (length < 0)
		return false;
	text[length] = 0;
	return !strcmp(text, initial);
}

static bool pid_is(uint32_t wanted)
{
	static int numbered_alike; /* as the daemon numbers them: 1; -1: no. A process stays in its
				      namespace. */

	if (wanted == (uint32_t)getpid())
		return true;
	if (!numbered_alike)
		numbered_alike = in_namespace("/proc/self/ns/pid", INITIAL_PID_NAMESPACE) ? 1 : -1;
	return numbered_alike < 0;
}

static bool uid_is(uint32_t wanted)
{
	return wanted == (uint32_t)getuid() ||
	       !in_namespace("/proc/self/ns/user", INITIAL_USER_NAMESPACE);
}

/* What rules ask about this process, read when first asked. */
struct facts {
	bool has_comm, has_exe; /* tried */
	char comm[16]; /* empty: unknown */
	uint64_t exe; /* 0: unknown */
};

static bool comm_is(struct facts *facts, const char *wanted)
{
	if (!facts->has_comm) {
		int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);
		ssize_t length = fd < 0 ? -1 : read(fd, facts->comm, sizeof(facts->comm));

		if (fd >= 0)
			close(fd);
		if (length > 0 && facts->comm[length - 1] == '\n')
			facts->comm[length - 1] = 0;
		facts->has_comm = true;
	}
	return !facts->comm[0] || !strncmp(facts->comm, wanted, sizeof(facts->comm));
}

static bool exe_is(struct facts *facts, uint64_t wanted)
{
	if (!facts->has_exe) {
		char path[4097];
		ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

		if (length > 0) {
			path[length] = 0;
			facts->exe = interest_hash(path);
		}
		facts->has_exe = true;
	}
	return !facts->exe || facts->exe == wanted;
}

/* Could this rule mean this process? Where one cannot know, it could. */
static bool rule_matches(const struct interest_rule *rule, struct facts *facts)
{
	if ((rule->flags & INTEREST_RULE_PID) && !pid_is(rule->pid))
		return false;
	if ((rule->flags & INTEREST_RULE_UID) && !uid_is(rule->uid))
		return false;
	if ((rule->flags & INTEREST_RULE_COMM) && !comm_is(facts, rule->comm))
		return false;
	return !(rule->flags & INTEREST_RULE_EXE) || exe_is(facts, rule->exe);
}

/* Takes a stable copy of the page; false if the daemon kept writing. */
static bool snapshot(const struct interest_page *page, struct interest_page *copy)
{
	for (unsigned i = 0; i < INTEREST_RETRIES; i++) {
		uint64_t before = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);

		memcpy(copy, page, sizeof(*copy));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && __atomic_load_n(&page->generation, __ATOMIC_RELAXED) == before)
			return true;
	}
	return false;
}

static bool page_matches(const struct page *page, struct interest *interest)
{
	struct interest_page copy;
	struct facts facts = { 0 };
	bool stable, meant;

	if (!page->page || page->page->magic != INTEREST_MAGIC ||
	    page->page->version != INTEREST_VERSION)
		return false;
	stable = snapshot(page->page, &copy);
	if (copy.flags & INTEREST_FLAG_CLOSED)
		return false;
	meant = !stable || (copy.flags & INTEREST_FLAG_EVERYONE) ||
		copy.rule_count > INTEREST_RULES_MAX;
	for (uint32_t i = 0; !meant && i < copy.rule_count; i++)
		meant = rule_matches(&copy.rules[i], &facts);
	if (!meant)
		return false;
	strcpy(interest->folder, page->folder);
	interest->device = page->device;
	interest->inode = page->inode;
	interest->generation = copy.generation;
	interest->deadline_ms =
		copy.deadline_ms < DEADLINE_MAX_MS ? copy.deadline_ms : DEADLINE_MAX_MS;
	return true;
}

bool interest_find(struct interest *interest)
{
	const char *name = secure_getenv(PATHS_SESSION_VARIABLE);
	char folder[INTEREST_FOLDER_MAX];

	if (name && !*name)
		name = NULL;
	if (name && !valid_name(name))
		return false; /* a session was asked for, and none has such a name */
	if (!is_fresh(&session_page) || strcmp(session_page.name, name ? name : "") != 0) {
		map_page(&session_page, session_folder(folder, name) ? folder : NULL);
		strcpy(session_page.name, name ? name : "");
	}
	if (page_matches(&session_page, interest))
		return true;
	if (name)
		return false;
	if (!is_fresh(&system_page))
		map_page(&system_page, PATHS_SYSTEM_DIR);
	return page_matches(&system_page, interest);
}
