/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Reads the daemons' interest pages (proto/interest.h): the session daemon of this user, then the
 * system one. The pages stay mapped; one stat a load tells whether the file was replaced.
 * Everything that is doubtful about a file or a folder means: no daemon there. The system's folder
 * is root's or a daemon's to make, so whose its page is is not asked; a page of zeros, or of
 * garbage, means nobody, and is watched as any other.
 *
 * Calls and launches that find a page changed read it as it is mapped, and have the process's ids
 * already: rules about other processes must not cause a system call in a sandboxed process.
 *
 * Launches read the generations of the mapped pages without a lock, and may be interrupted there
 * for any time. So a mapping stays, and a new page is mapped in the same place. Without a page they
 * read a word that never changes.
 */

#include "interest-page.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/file.h"
#include "proto/interest.h"
#include "proto/paths.h"

#define INITIAL_PID_NAMESPACE "pid:[4026531836]"
#define INITIAL_USER_NAMESPACE "user:[4026531837]"
#define INITIAL_CGROUP_NAMESPACE "cgroup:[4026531835]"

struct page {
	char folder[INTEREST_FOLDER_MAX];
	bool looked; /* for its file, in this process */
	const struct interest_page *page; /* or NULL */
	void *memory; /* where pages are mapped; NULL: none was yet */
	void *before; /* the one before, so that no new file gets its number */
	dev_t device;
	ino_t inode;
};

enum {
	SESSION,
	SYSTEM,
	PAGES
};

static const uint64_t no_generation;
static struct page pages[PAGES];

const uint64_t *interest_generations[2] = { &no_generation, &no_generation };
struct interest_watch trace_watch[2] = {
	{ &no_generation, INTEREST_UNSEEN },
	{ &no_generation, INTEREST_UNSEEN },
};
static uint64_t asked[2]; /* generations for which interest_wants_trace() has answered */
uint64_t interest_trace_looked[2] = { INTEREST_UNSEEN, INTEREST_UNSEEN };

#define CGROUP_MAX 1024

/* What takes room while one looks: threads that call the driver may have little stack. */
static struct {
	struct interest_page page; /* a copy of the one that is looked at */
	char text[4097]; /* of a file of /proc, or a path */
	char cgroup[CGROUP_MAX]; /* of this process; empty: unknown */
} scratch;

/* This process, as of the last look for files. */
static struct {
	pid_t pid; /* 0: not known yet */
	uid_t uid;
	bool same_pids, same_users; /* are they numbered as the daemon does? */
} self;

/*
 * The name of the session that is asked for, perhaps no valid one; NULL: none is. Read once: the
 * program may be changing its environment in another thread.
 */
static const char *session_name(void) {
	static char name[PATHS_SESSION_NAME_MAX + 2];
	static bool known;
	const char *text = known ? NULL : secure_getenv(PATHS_SESSION_VARIABLE);

	if (text)
		strncpy(name, text, sizeof(name) - 1);
	known = true;
	return name[0] ? name : NULL;
}

/* A session name: letters, digits, underscore, 1 to 32 of them. */
static bool valid_name(const char *name) {
	size_t length =
		strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

	return length && length <= PATHS_SESSION_NAME_MAX && !name[length];
}

/* Writes the session folder of this user; false if there can be none. */
static bool session_folder(char *folder, const char *name) {
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
static bool is_fresh(const struct page *page) {
	char path[INTEREST_FOLDER_MAX + sizeof(PATHS_INTEREST_PAGE) + 1];
	struct stat status;

	if (!page->page)
		return false;
	snprintf(path, sizeof(path), "%s/%s", page->folder, PATHS_INTEREST_PAGE);
	return stat(path, &status) == 0 && status.st_dev == page->device &&
	       status.st_ino == page->inode;
}

static bool has_flag(const struct page *page, uint32_t flag) {
	return __atomic_load_n(&page->page->flags, __ATOMIC_RELAXED) & flag;
}

/*
 * Does the page change when another daemon comes? That of a session daemon which has ended does
 * not: its file is gone.
 */
static bool is_told(const struct page *page) {
	return page->page && !has_flag(page, page == &pages[SYSTEM] ? INTEREST_FLAG_REPLACED
								    : INTEREST_FLAG_CLOSED);
}

/* Is there nothing to look for, as far as is known without a system call? */
static bool is_settled(const struct page *page) {
	return page->looked && (!page->page || is_told(page));
}

static bool is_known(const struct page *page) {
	return page->page && page->page->magic == INTEREST_MAGIC &&
	       page->page->version == INTEREST_VERSION;
}

/* A page that no daemon has written to yet: the first one goes on with it. */
static bool is_empty(const struct page *page) {
	return page->page && !page->page->magic && !page->page->version;
}

/* Lets launches and trampolines read the generations of a page; of none, if it is not mapped. */
static void watch(const struct page *page) {
	size_t which = (size_t)(page - pages);
	struct interest_watch *traces = &trace_watch[which];

	__atomic_store_n(&interest_generations[which],
			 page->page ? &page->page->generation : &no_generation, __ATOMIC_RELEASE);
	asked[which] = INTEREST_UNSEEN;
	interest_trace_looked[which] = INTEREST_UNSEEN;
	__atomic_store_n(&traces->seen, INTEREST_UNSEEN, __ATOMIC_RELEASE);
	__atomic_store_n(&traces->generation,
			 is_known(page) || is_empty(page) ? &page->page->trace_generation
							  : &no_generation,
			 __ATOMIC_RELEASE);
}

/* Maps a file where the page before it was. There is no moment at which nothing is there. */
static bool map_in_place(struct page *page, int fd) {
	void *mapped = mmap(NULL, INTEREST_PAGE_SIZE, PROT_READ, MAP_SHARED, fd, 0), *before;

	if (mapped == MAP_FAILED)
		return false;
	if (!page->memory) {
		page->memory = mapped;
		return true;
	}
	before = mremap(page->memory, 0, INTEREST_PAGE_SIZE,
			MREMAP_MAYMOVE); /* of size 0: a second one */
	if (mremap(mapped, INTEREST_PAGE_SIZE, INTEREST_PAGE_SIZE, MREMAP_MAYMOVE | MREMAP_FIXED,
		   page->memory) == MAP_FAILED) {
		munmap(mapped, INTEREST_PAGE_SIZE);
		mapped = NULL;
	}
	if (page->before)
		munmap(page->before, INTEREST_PAGE_SIZE);
	page->before = before == MAP_FAILED ? NULL : before;
	return mapped != NULL;
}

/* Opens the page of a folder; -1: there is none, and errno says why. */
static int open_page(const char *folder) {
	char path[INTEREST_FOLDER_MAX + sizeof(PATHS_INTEREST_PAGE) + 1];

	snprintf(path, sizeof(path), "%s/%s", folder, PATHS_INTEREST_PAGE);
	return open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
}

/* Maps the page of a folder; without one (NULL) there is none. */
static void map_page(struct page *page, const char *folder) {
	struct stat status;
	int fd;

	page->looked = true;
	if (page->page) {
		page->page = NULL;
		watch(page);
	}
	if (!folder)
		return;
	fd = open_page(folder);
	if (fd < 0)
		return;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) &&
	    status.st_size >= INTEREST_PAGE_SIZE && map_in_place(page, fd)) {
		page->page = page->memory;
		page->device = status.st_dev;
		page->inode = status.st_ino;
		strcpy(page->folder, folder);
		watch(page);
	}
	close(fd);
}

static bool in_namespace(const char *link, const char *initial) {
	char text[64];
	ssize_t length = readlink(link, text, sizeof(text) - 1);

	if (length < 0)
		return false;
	text[length] = 0;
	return !strcmp(text, initial);
}

/* What rules ask about this process, read when first asked. */
struct facts {
	bool has_comm, has_exe, has_cgroup; /* tried */
	bool doubt; /* what a rule says that cannot be decided: true where it may be too wide */
	char comm[16]; /* empty: unknown */
	uint64_t exe; /* 0: unknown */
};

/* Namespaces change with the process, and with them the numbers of users. */
static void know_self(void) {
	pid_t pid = getpid();
	uid_t uid = getuid();

	if (self.pid == pid && self.uid == uid)
		return;
	self.pid = pid;
	self.uid = uid;
	self.same_pids = in_namespace("/proc/self/ns/pid", INITIAL_PID_NAMESPACE);
	self.same_users = in_namespace("/proc/self/ns/user", INITIAL_USER_NAMESPACE);
}

static bool pid_is(const struct facts *facts, uint32_t wanted) {
	return wanted == (uint32_t)self.pid || (!self.same_pids && facts->doubt);
}

static bool uid_is(const struct facts *facts, uint32_t wanted) {
	const bool same = wanted == (uint32_t)self.uid;

	if (same == facts->doubt) /* whatever namespace it is in */
		return same;
	return self.same_users ? same : facts->doubt;
}

static bool comm_is(struct facts *facts, const char *wanted) {
	if (!facts->has_comm) {
		char text[sizeof(facts->comm) + 1];
		ssize_t length = file_read_text(AT_FDCWD, "/proc/self/comm", text, sizeof(text));

		if (length > 0 && text[length - 1] == '\n')
			text[length - 1] = 0;
		if (length > 0)
			memcpy(facts->comm, text, strnlen(text, sizeof(facts->comm)));
		facts->has_comm = true;
	}
	return facts->comm[0] ? !strncmp(facts->comm, wanted, sizeof(facts->comm)) : facts->doubt;
}

static bool exe_is(struct facts *facts, uint64_t wanted) {
	if (!facts->has_exe) {
		ssize_t length = readlink("/proc/self/exe", scratch.text, sizeof(scratch.text) - 1);

		if (length > 0) {
			scratch.text[length] = 0;
			facts->exe = interest_hash(scratch.text);
		}
		facts->has_exe = true;
	}
	return facts->exe ? facts->exe == wanted : facts->doubt;
}

/* The path in the unified hierarchy; none in a namespace, where it begins elsewhere. */
static void read_cgroup(struct facts *facts) {
	char *text = scratch.text, *line;

	facts->has_cgroup = true;
	scratch.cgroup[0] = 0;
	if (!in_namespace("/proc/self/ns/cgroup", INITIAL_CGROUP_NAMESPACE) ||
	    file_read_text(AT_FDCWD, "/proc/self/cgroup", text, sizeof(scratch.text)) <= 0)
		return;
	line = strncmp(text, "0::/", 4) ? strstr(text, "\n0::/") : text;
	if (!line)
		return;
	line = strchr(line, '/');
	line[strcspn(line, "\n")] = 0;
	if (strlen(line) < sizeof(scratch.cgroup))
		strcpy(scratch.cgroup, line);
}

/* Is it in the cgroup with this hash, or in one below it? */
static bool cgroup_is(struct facts *facts, uint64_t wanted) {
	char *path = scratch.text;

	if (!facts->has_cgroup)
		read_cgroup(facts);
	if (!scratch.cgroup[0])
		return facts->doubt;
	strcpy(path, scratch.cgroup);
	for (char *slash = path; (slash = strrchr(path, '/')) != NULL; *slash = 0)
		if (interest_hash(path) == wanted)
			return true;
	return interest_hash("/") == wanted;
}

/* Could this rule mean this process? Where one cannot know, it could, if facts->doubt is true. */
static bool rule_matches(const struct interest_rule *rule, struct facts *facts) {
	if ((rule->flags & INTEREST_RULE_PID) && !pid_is(facts, rule->pid))
		return false;
	if ((rule->flags & INTEREST_RULE_UID) && !uid_is(facts, rule->uid))
		return false;
	if ((rule->flags & INTEREST_RULE_COMM) && !comm_is(facts, rule->comm))
		return false;
	if ((rule->flags & INTEREST_RULE_CGROUP) && !cgroup_is(facts, rule->cgroup))
		return false;
	return !(rule->flags & INTEREST_RULE_EXE) || exe_is(facts, rule->exe);
}

/* Is this process left alone, as far as it can know? */
static bool is_excluded(const struct interest_page *copy) {
	struct facts facts = { .doubt = false };

	for (uint32_t i = 0; i < copy->exclude_rule_count && i < INTEREST_EXCLUDE_RULES_MAX; i++)
		if (copy->exclude_rules[i].flags && rule_matches(&copy->exclude_rules[i], &facts))
			return true;
	return false;
}

/*
 * Do these rules of a copy, of which there can be `most`, mean this process? What cannot be known
 * counts as yes. everyone: they mean all processes. stable: the copy is of one moment.
 */
static bool is_meant(const struct interest_page *copy, const struct interest_rule *rules,
		     uint32_t count, uint32_t most, bool everyone, bool stable) {
	struct facts facts = { .doubt = true };
	bool meant = everyone || !stable || count > most;

	for (uint32_t i = 0; !meant && i < count; i++)
		meant = rule_matches(&rules[i], &facts);
	return meant && !(stable && is_excluded(copy));
}

/* Takes a stable copy of the page; false if the daemon kept writing. */
static bool snapshot(const struct interest_page *page, struct interest_page *copy) {
	for (unsigned i = 0; i < INTEREST_RETRIES; i++) {
		uint64_t before = __atomic_load_n(&page->generation, __ATOMIC_ACQUIRE);

		memcpy(copy, page, sizeof(*copy));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (!(before & 1) && __atomic_load_n(&page->generation, __ATOMIC_RELAXED) == before)
			return true;
	}
	return false;
}

static uint32_t deadline_of(const struct interest_page *page) {
	uint32_t ms = page->deadline_ms;

	return ms < INTEREST_DEADLINE_MAX_MS ? ms : INTEREST_DEADLINE_MAX_MS;
}

static bool page_matches(const struct page *page, struct interest *interest) {
	const struct interest_page *copy = &scratch.page;
	bool stable;

	if (!is_known(page))
		return false;
	stable = snapshot(page->page, &scratch.page);
	if ((copy->flags & INTEREST_FLAG_CLOSED) ||
	    !is_meant(copy, copy->rules, copy->rule_count, INTEREST_RULES_MAX,
		      copy->flags & INTEREST_FLAG_EVERYONE, stable))
		return false;
	strcpy(interest->folder, page->folder);
	interest->device = page->device;
	interest->inode = page->inode;
	interest->daemon = copy->daemon;
	interest->generation = copy->generation;
	interest->deadline_ms = deadline_of(copy);
	return true;
}

/* Does the page say whether the process gets the engine? Then *wanted is the answer. */
static bool page_decides(const struct page *page, bool *wanted, char *sanitizer) {
	const struct interest_page *copy = &scratch.page;
	struct facts facts = { 0 };

	if (!is_known(page) || !snapshot(page->page, &scratch.page) ||
	    (copy->flags & INTEREST_FLAG_CLOSED) ||
	    copy->sass_rule_count > INTEREST_SASS_RULES_MAX ||
	    !memchr(copy->sanitizer, 0, sizeof(copy->sanitizer)))
		return false;
	*wanted = false;
	if (is_excluded(copy))
		return true;
	for (uint32_t i = 0; i < copy->sass_rule_count; i++) {
		const struct interest_rule *rule = &copy->sass_rules[i];

		facts.doubt = !(rule->flags & INTEREST_RULE_NOT);
		if (!rule_matches(rule, &facts))
			continue;
		*wanted = !(rule->flags & INTEREST_RULE_NOT);
		strcpy(sanitizer, copy->sanitizer);
		return true;
	}
	return false;
}

/* What a page says about traces; *stable: at one moment. Returns the generation. */
static uint64_t trace_snapshot(const struct interest_page *page, struct interest_page *copy,
			       bool *stable) {
	uint64_t before = 0;

	*stable = false;
	for (unsigned i = 0; !*stable && i < INTEREST_RETRIES; i++) {
		before = __atomic_load_n(&page->trace_generation, __ATOMIC_ACQUIRE);
		copy->trace_rule_count = page->trace_rule_count;
		memcpy(copy->trace_rules, page->trace_rules, sizeof(copy->trace_rules));
		copy->exclude_rule_count = page->exclude_rule_count;
		memcpy(copy->exclude_rules, page->exclude_rules, sizeof(copy->exclude_rules));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		*stable = !(before & 1) &&
			  __atomic_load_n(&page->trace_generation, __ATOMIC_RELAXED) == before;
	}
	return before;
}

/* Has the page begun to say that this process may be traced? */
static bool page_traces(const struct page *page, unsigned which, struct interest *interest) {
	const struct interest_page *copy = &scratch.page, *mapped;
	uint64_t generation;
	bool stable;

	if (!is_known(page)) {
		interest_trace_looked[which] = interest_trace_generation(which);
		return false;
	}
	mapped = page->page; /* a signal handler that forks below lets go of the page, in the child,
				not of the memory */
	generation = trace_snapshot(mapped, &scratch.page, &stable);
	interest_trace_looked[which] = generation;
	if (generation == asked[which])
		return false;
	asked[which] = generation;
	if (!is_meant(copy, copy->trace_rules, copy->trace_rule_count, INTEREST_TRACE_RULES_MAX,
		      false, stable) ||
	    (mapped->flags & INTEREST_FLAG_CLOSED))
		return false;
	strcpy(interest->folder, page->folder);
	interest->deadline_ms = deadline_of(mapped);
	return interest->deadline_ms > 0;
}

/*
 * Sees to it that the pages of the session that is asked for are mapped; (changed) because one of
 * those that are has changed: then its daemon is there, and files are not looked at. Returns how
 * many of the pages count.
 */
static unsigned map_pages(bool changed) {
	bool (*is_good)(const struct page *) = changed ? is_settled : is_fresh;
	const char *name = session_name();
	char folder[INTEREST_FOLDER_MAX];

	if (name && !valid_name(name))
		return 0; /* a session was asked for, and none has such a name */
	if (!is_good(&pages[SESSION]))
		map_page(&pages[SESSION], session_folder(folder, name) ? folder : NULL);
	if (!name && !is_good(&pages[SYSTEM]))
		map_page(&pages[SYSTEM], PATHS_SYSTEM_DIR);
	if ((!changed || !self.pid) && (pages[SESSION].page || pages[SYSTEM].page))
		know_self();
	return name ? 1 : 2;
}

bool interest_find(struct interest *interest, bool changed) {
	unsigned count = map_pages(changed);

	for (unsigned i = 0; i < count; i++)
		if (page_matches(&pages[i], interest))
			return true;
	return false;
}

bool interest_is_foreign(void) {
	for (unsigned i = 0; i < PAGES; i++)
		if (pages[i].page && pages[i].page->magic == INTEREST_MAGIC &&
		    !is_known(&pages[i]) && !has_flag(&pages[i], INTEREST_FLAG_CLOSED))
			return true;
	return false;
}

bool interest_is_gone(void) {
	return !is_told(&pages[SESSION]) && !is_told(&pages[SYSTEM]);
}

enum interest_change interest_look_again(const struct interest *found, struct interest *now) {
	struct interest_page page;
	struct stat status;
	bool same, whole;
	int fd = open_page(found->folder);

	if (fd < 0)
		return errno == ENOENT ? INTEREST_ENDED : INTEREST_UNCHANGED;
	whole = fstat(fd, &status) == 0 && pread(fd, &page, sizeof(page), 0) == sizeof(page);
	close(fd);
	if (!whole)
		return INTEREST_UNCHANGED;
	if (page.generation & 1)
		return INTEREST_UNCHANGED; /* it is being written */
	same = status.st_dev == found->device && status.st_ino == found->inode &&
	       page.daemon == found->daemon;
	if (page.magic != INTEREST_MAGIC || (page.flags & INTEREST_FLAG_CLOSED))
		return INTEREST_ENDED;
	if (same || page.version != INTEREST_VERSION)
		return INTEREST_UNCHANGED;
	*now = *found;
	now->device = status.st_dev;
	now->inode = status.st_ino;
	now->daemon = page.daemon;
	now->generation = page.generation;
	now->deadline_ms = deadline_of(&page);
	return INTEREST_OTHER;
}

bool interest_wants_sass(char sanitizer[INTEREST_SANITIZER_MAX]) {
	unsigned count = map_pages(false);
	bool wanted = false;

	for (unsigned i = 0; i < count; i++)
		if (page_decides(&pages[i], &wanted, sanitizer))
			return wanted;
	return false;
}

bool interest_wants_trace(struct interest *interest) {
	unsigned count = map_pages(true);
	bool wanted = false;

	for (unsigned i = 0; i < PAGES; i++) {
		if (i >= count) {
			__atomic_store_n(&trace_watch[i].generation, &no_generation,
					 __ATOMIC_RELEASE);
			interest_trace_looked[i] = 0;
		} else if (!wanted) {
			wanted = page_traces(&pages[i], i, interest);
		}
	}
	return wanted;
}

void interest_traces_seen(void) {
	for (unsigned i = 0; i < PAGES; i++)
		__atomic_store_n(&trace_watch[i].seen, interest_trace_looked[i], __ATOMIC_RELEASE);
}

void interest_ignore_traces(void) {
	for (unsigned i = 0; i < PAGES; i++) {
		__atomic_store_n(&trace_watch[i].generation, &no_generation, __ATOMIC_RELEASE);
		__atomic_store_n(&trace_watch[i].seen, 0, __ATOMIC_RELEASE);
	}
}

void interest_forked(void) {
	self.pid = 0;
	for (unsigned i = 0; i < PAGES; i++) {
		pages[i] = (struct page){ .memory = pages[i].memory, .before = pages[i].before };
		watch(&pages[i]);
	}
}
