/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Unit tests of device-lib-hash.c with simulated threads.
 *
 * The hash map of the device library under every schedule of two or three threads with few
 * switches, and under many random ones: a thread may be interrupted before each access to memory.
 * After each step no key has two elements; in the end the counts are those of the elements, and the
 * results are those of an order of the calls in which none comes before one that ended before it
 * began; of a map that evicts, what calls may answer at all. And a thread that stops for good, at
 * any access, keeps no other from ending: a warp may not run some of its lanes. Memory is
 * sequentially consistent here; see test-hash-threads.c for the other half.
 *
 *     test-hash-schedules [RANDOM_RUNS [SEED]]
 */

#include <stdbool.h>
#include <stdio.h>
#include <ucontext.h>

#define HASH_POLITE 2
#define HASH_PATIENT 200
#define TEST_WINDOW 2 /* elements come to lie beyond it */

#include "test-hash.h"

#define THREADS_MAX 3
#define CALLS_MAX 3 /* of a thread */
#define STEPS_MAX 4096
#define STALLED_STEPS_MAX 100000 /* of all threads while one has stopped */
#define STACK_SIZE 65536
#define N_KEYS 3
#define KEY_WORDS 2
#define NOBODY THREADS_MAX

enum call_kind {
	CALL_END,
	CALL_LOOKUP,
	CALL_UPDATE,
	CALL_DELETE,
	CALL_COUNT
};

struct call {
	enum call_kind kind;
	u32 key; /* index */
	u64 flags;
	/* what came of it: */
	long result; /* a lookup: 1 or 0 */
	u32 begin, end; /* steps */
};

/* What is tried. */
struct scenario {
	const char *name;
	u32 capacity, max_entries, key_size;
	bool same_tag; /* the keys begin at one slot and have one tag */
	u32 preemptions;
	u32 prepared; /* bit i: key i is an element */
	struct call calls[THREADS_MAX][CALLS_MAX];
	bool lru;
};

/* One run of it. */
static struct {
	const struct scenario *scenario;
	struct hash hash;
	u64 keys[N_KEYS][KEY_WORDS];
	u32 group_bits, n_threads, current, steps, preemptions;
	bool random;
	bool stalls; /* thread `stalled` stops for good, before access number `stalls_at` from now
		      */
	u32 stalled, stalls_at;
	ucontext_t main, threads[THREADS_MAX];
	char stacks[THREADS_MAX][STACK_SIZE];
	bool done[THREADS_MAX], waits[THREADS_MAX];
	struct call calls[THREADS_MAX][CALLS_MAX];
	const char *wrong;
} run;

/* The choices of the schedule: what was taken at each point where there were several. */
static struct {
	u32 taken[STEPS_MAX], of[STEPS_MAX];
	u32 n, at;
	u64 state; /* of random numbers */
} choices;

static u32 random_below(u32 n) {
	choices.state = choices.state * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((choices.state >> 33) % n);
}

/* One of n possibilities; 0 first. */
static u32 choose(u32 n) {
	if (n == 1)
		return 0;
	if (run.random)
		return random_below(n);
	if (choices.at == choices.n) {
		if (choices.n == STEPS_MAX) {
			run.wrong = "too long";
			return 0;
		}
		choices.taken[choices.n] = 0;
		choices.of[choices.n++] = n;
	}
	return choices.taken[choices.at++];
}

/* To the next schedule. False: that was the last. */
static bool choices_advance(void) {
	while (choices.n && choices.taken[choices.n - 1] + 1 == choices.of[choices.n - 1])
		choices.n--;
	choices.at = 0;
	if (!choices.n)
		return false;
	choices.taken[choices.n - 1]++;
	return true;
}

static void switch_to(u32 thread) {
	u32 from = run.current;

	run.current = thread;
	swapcontext(&run.threads[from], &run.threads[thread]);
}

/* Whether a thread is another one that has not ended, nor waits if that matters. */
static bool is_other(u32 thread, bool awake) {
	return thread != run.current && !run.done[thread] && !(awake && run.waits[thread]);
}

static u32 count_others(bool awake) {
	u32 n = 0;

	for (u32 i = 0; i < run.n_threads; i++)
		n += is_other(i, awake);
	return n;
}

/* The nth of them, from the current one on. */
static u32 other_thread(u32 n, bool awake) {
	for (u32 i = 1; i < run.n_threads; i++) {
		u32 thread = (run.current + i) % run.n_threads;

		if (is_other(thread, awake) && n-- == 0)
			return thread;
	}
	return run.current;
}

static void check_keys(void) {
	for (u64 i = 0; i <= run.hash.mask; i++)
		for (u64 j = 0; j < i; j++) {
			const u64 *a = slot_at(&run.hash, i);
			const u64 *b = slot_at(&run.hash, j);

			if ((*a & MAP_SLOT_STATE_MASK) == MAP_SLOT_LIVE &&
			    (*b & MAP_SLOT_STATE_MASK) == MAP_SLOT_LIVE &&
			    !memcmp(a + 1, b + 1, 8 * run.hash.key_words))
				run.wrong = "two elements with one key";
		}
}

/* One more access where a thread stops. */
static void step_stalled(void) {
	if (run.steps > STALLED_STEPS_MAX)
		run.wrong = "waits for a thread that has stopped";
	else if (run.current != run.stalled || run.stalls_at--)
		return;
	run.done[run.current] = true;
	if (run.wrong || !count_others(false))
		setcontext(&run.main);
	switch_to(other_thread(0, false));
}

static void step(void) {
	u32 others = count_others(false), next = 0;

	check_keys();
	run.steps++;
	if (run.stalls) {
		step_stalled();
		return;
	}
	if (run.random)
		next = random_below(4) == 0 ? choose(others + 1) : 0;
	else if (run.preemptions)
		next = choose(others + 1);
	if (!next)
		return;
	run.preemptions--;
	switch_to(other_thread(next - 1, false));
}

/* Somebody else's turn: the others that wait get theirs once all wait. */
static void look_again(void) {
	u32 others = count_others(true);

	run.waits[run.current] = true;
	if (!others) {
		memset(run.waits, 0, sizeof(run.waits));
		others = count_others(true);
		run.waits[run.current] = true;
	}
	if (others)
		switch_to(other_thread(choose(others), true));
}

/* Anything that was there once: here, what is there, or nothing. */
static void weak_pair(u64 address, u64 *a, u64 *b) {
	bool stale = choose(2) == 0;

	*a = stale ? 0 : *(u64 *)(uintptr_t)address;
	*b = stale ? 0 : *(u64 *)(uintptr_t)(address + 8);
}

static u32 shard(void) {
	return 0;
}

static void perform(struct call *call) {
	const u64 *key = run.keys[call->key];
	u64 value;

	call->begin = ++run.steps;
	switch (call->kind) {
	case CALL_LOOKUP:
		value = hash_lookup(&run.hash, key);
		call->result = value != 0;
		if (value && run.hash.immortal && host_load(value) >> 32 != call->key + 1)
			run.wrong = "a value of another key, or none yet";
		break;
	case CALL_UPDATE:
		call->result = hash_update(&run.hash, key, (u64)(call->key + 1) << 32, call->flags);
		break;
	case CALL_DELETE:
		call->result = erase(&run.hash, key);
		break;
	default:
		call->result = hash_count(&run.hash, key);
	}
	call->end = ++run.steps;
}

static void thread_main(void) {
	u32 self = run.current;

	for (u32 i = 0; i < CALLS_MAX && run.calls[self][i].kind != CALL_END; i++)
		perform(&run.calls[self][i]);
	run.done[self] = true;
	if (count_others(false))
		switch_to(other_thread(choose(count_others(false)), false));
	setcontext(&run.main);
}

/* ---- what the calls may have answered ---- */

struct order {
	u32 next[THREADS_MAX]; /* call */
	u32 present; /* bit i: key i */
};

/* Whether a call may answer what it did, as the next one; then its effect. */
static bool may_answer(const struct call *call, struct order *order, u32 full) {
	bool present = order->present >> call->key & 1;
	u32 n = (u32)__builtin_popcount(order->present);

	switch (call->kind) {
	case CALL_LOOKUP:
		return call->result == present;
	case CALL_DELETE:
		order->present &= ~(1u << call->key);
		return call->result == (present ? 0 : -HASH_ENOENT);
	default:
		if (present)
			return call->result == (call->flags == HASH_NOEXIST ? -HASH_EEXIST : 0);
		if (call->flags == HASH_EXIST)
			return call->result == -HASH_ENOENT;
		if (call->result == -HASH_E2BIG)
			return n + full >= run.hash.max_entries;
		order->present |= 1u << call->key;
		return call->result == 0 && n < run.hash.max_entries;
	}
}

/* Whether there is an order from here on. Room is free once the call that deletes has returned. */
static bool has_order(const struct order *from) {
	bool ended = true;

	for (u32 t = 0; t < run.n_threads; t++) {
		const struct call *call = &run.calls[t][from->next[t]];
		struct order order = *from;
		u32 full = 0;
		bool first = true;

		if (from->next[t] == CALLS_MAX || call->kind == CALL_END)
			continue;
		ended = false;
		for (u32 o = 0; o < run.n_threads; o++) {
			const struct call *other = &run.calls[o][from->next[o]];

			if (from->next[o] < CALLS_MAX && other->kind != CALL_END &&
			    other->end < call->begin)
				first = false;
			for (u32 i = 0; i < from->next[o]; i++)
				full += run.calls[o][i].kind == CALL_DELETE &&
					!run.calls[o][i].result &&
					run.calls[o][i].end > call->begin;
		}
		order.next[t]++;
		if (first && may_answer(call, &order, full) && has_order(&order))
			return true;
	}
	return ended;
}

/* All threads count: what was counted is there, and where all keys have room, that is all. */
static const char *check_counts(void) {
	u32 want[N_KEYS] = { 0 }, keys = 0;
	bool refused = false;

	for (u32 t = 0; t < run.n_threads; t++)
		for (u32 i = 0; i < CALLS_MAX && run.calls[t][i].kind != CALL_END; i++) {
			want[run.calls[t][i].key] += run.calls[t][i].result != 0;
			keys |= 1u << run.calls[t][i].key;
			refused |= run.calls[t][i].result == 0;
		}
	if (refused && (u32)__builtin_popcount(keys) <= run.hash.max_entries)
		return "a key that was refused though there is room";
	for (u32 k = 0; k < N_KEYS; k++) {
		u64 value = hash_lookup(&run.hash, run.keys[k]);

		if ((value ? *(u64 *)(uintptr_t)value : 0) != want[k])
			return "a count that is wrong";
	}
	return NULL;
}

/* Whether none of its calls is one of a kind. */
static bool is_without(const struct scenario *s, enum call_kind first, enum call_kind last) {
	for (u32 t = 0; t < THREADS_MAX; t++)
		for (u32 i = 0; i < CALLS_MAX; i++)
			if (s->calls[t][i].kind >= first && s->calls[t][i].kind <= last)
				return false;
	return true;
}

/* A map that evicts is never full, has what was inserted only, and something in the end. */
static const char *check_lru(const struct scenario *s) {
	const struct map_hash *header = (const void *)(uintptr_t)run.hash.base;
	u32 inserted = s->prepared;
	bool refused = false, found = false;

	for (u32 t = 0; t < run.n_threads; t++)
		for (u32 i = 0; i < CALLS_MAX && run.calls[t][i].kind != CALL_END; i++) {
			const struct call *call = &run.calls[t][i];

			if (call->kind == CALL_UPDATE && !call->result)
				inserted |= 1u << call->key;
			refused |= call->kind == CALL_UPDATE && call->result == -HASH_E2BIG;
			refused |= call->kind == CALL_COUNT && !call->result;
			if (call->kind == CALL_COUNT)
				inserted |= 1u << call->key;
		}
	for (u32 t = 0; t < run.n_threads; t++)
		for (u32 i = 0; i < CALLS_MAX && run.calls[t][i].kind != CALL_END; i++)
			found |= run.calls[t][i].kind == CALL_LOOKUP && run.calls[t][i].result &&
				 !(inserted >> run.calls[t][i].key & 1);
	if (refused)
		return "full, though it evicts";
	if (found)
		return "found what nobody inserted";
	if (!header->count && inserted && is_without(s, CALL_DELETE, CALL_DELETE))
		return "nothing is left";
	return NULL;
}

/* ---- runs ---- */

/* The word that map_hash_mix() makes a hash of, from 0. */
static u64 unmix(u64 hash) {
	u64 inverse = 1;

	for (int n = 0; n < 6; n++)
		inverse *= 2 - 0x9e3779b97f4a7c15ull * inverse;
	return (hash ^ hash >> 32) * inverse;
}

/* Key number i. The keys that share a tag also share the slot that they begin at. */
static void make_key(const struct scenario *s, u32 i, u64 *key) {
	static const u64 found[2][N_KEYS] = {
		/* by trying 2^26, for maps of 4 and of 8 slots */
		{ 0x368eb6701f02e458, 0x34b6327017112a58, 0x4f53f1300ed48438 },
		{ 0xd59ec4c01f3b90e0, 0x702cc1c01af9b560, 0x4c6275d007094148 },
	};

	memset(key, 0, KEY_WORDS * sizeof(*key));
	if (!s->same_tag)
		key[s->key_size > 8] = i + 1;
	else if (s->key_size > 8)
		key[0] = unmix(unmix(unmix(0x1234567800000000 + i * 64)));
	else
		key[0] = found[s->capacity == 8][i];
}

/* Whether the keys with one tag are: they begin alike. */
static bool is_as_meant(const struct scenario *s) {
	u64 start = hash_key(&run.hash, run.keys[0]);

	for (u32 i = 1; i < N_KEYS; i++) {
		u64 other = hash_key(&run.hash, run.keys[i]);

		if (other >> 32 != start >> 32 || ((other ^ start) & run.hash.mask))
			return !s->same_tag;
	}
	return true;
}

static u32 count_threads(const struct scenario *s) {
	u32 n = 0;

	while (n < THREADS_MAX && s->calls[n][0].kind != CALL_END)
		n++;
	return n;
}

/* `stalled`: the thread that stops for good, before access `at`; NOBODY: none does. */
static void run_threads(const struct scenario *s, u32 stalled, u32 at) {
	struct order start = { .present = s->prepared };

	run.scenario = s;
	run.steps = run.n_threads = 0;
	run.stalled = stalled;
	run.stalls_at = at;
	run.preemptions = run.random ? UINT32_MAX : s->preemptions;
	memcpy(run.calls, s->calls, sizeof(run.calls));
	memset(run.done, 0, sizeof(run.done));
	memset(run.waits, 0, sizeof(run.waits));
	for (u32 t = 0; t < count_threads(s); t++) {
		getcontext(&run.threads[t]);
		run.threads[t].uc_stack.ss_sp = run.stacks[t];
		run.threads[t].uc_stack.ss_size = STACK_SIZE;
		makecontext(&run.threads[t], thread_main, 0);
	}
	hash_init(&run.hash, s->capacity, run.group_bits, s->max_entries, s->key_size,
		  !s->lru && is_without(s, CALL_DELETE, CALL_DELETE));
	run.hash.lru = s->lru;
	for (u32 i = 0; i < N_KEYS; i++)
		make_key(s, i, run.keys[i]);
	if (!is_as_meant(s))
		abort();
	for (u32 i = 0; i < N_KEYS; i++)
		if (s->prepared >> i & 1)
			hash_update(&run.hash, run.keys[i], (u64)(i + 1) << 32, 0);
	run.n_threads = count_threads(s);
	run.stalls = stalled < run.n_threads;
	run.current = run.stalls ? stalled : choose(run.n_threads);
	swapcontext(&run.main, &run.threads[run.current]);
	if (run.stalls) {
		run.stalls = false;
		free((void *)(uintptr_t)run.hash.base);
		return;
	}

	if (!run.wrong)
		run.wrong = hash_check(&run.hash);
	if (!run.wrong)
		run.wrong = s->lru                                    ? check_lru(s)
			    : is_without(s, CALL_LOOKUP, CALL_DELETE) ? check_counts()
			    : has_order(&start)                       ? NULL
						: "results that no order explains";
	free((void *)(uintptr_t)run.hash.base);
}

static void run_once(const struct scenario *s) {
	run_threads(s, NOBODY, 0);
}

static int report(const struct scenario *s, unsigned long runs) {
	if (!run.wrong) {
		printf("%s: %lu schedules\n", s->name, runs);
		return 0;
	}
	printf("%s: %s, in schedule %lu:", s->name, run.wrong, runs);
	for (u32 i = 0; !run.random && i < choices.at; i++)
		printf(" %u", choices.taken[i]);
	printf("\n");
	for (u32 t = 0; t < run.n_threads; t++)
		for (u32 i = 0; i < CALLS_MAX && run.calls[t][i].kind != CALL_END; i++)
			printf("  thread %u: kind %d, key %u, flags %llu: %ld, steps %u to %u\n", t,
			       run.calls[t][i].kind, run.calls[t][i].key, run.calls[t][i].flags,
			       run.calls[t][i].result, run.calls[t][i].begin, run.calls[t][i].end);
	return 1;
}

#define LOOKUP(k) { CALL_LOOKUP, k, 0, 0, 0, 0 }
#define UPDATE(k, flags) { CALL_UPDATE, k, flags, 0, 0, 0 }
#define DELETE(k) { CALL_DELETE, k, 0, 0, 0, 0 }
#define COUNT(k) { CALL_COUNT, k, 0, 0, 0, 0 }

static const struct scenario scenarios[] = {
	{ "two insert one key", 4, 1, 8, false, 4, 0, { { UPDATE(0, 1) }, { UPDATE(0, 1) } } },
	{ "two insert one key, then look",
	  4,
	  1,
	  4,
	  false,
	  3,
	  0,
	  { { UPDATE(0, 0), LOOKUP(0) }, { UPDATE(0, 1), LOOKUP(0) } } },
	{ "two insert two keys, room for one",
	  4,
	  1,
	  8,
	  false,
	  4,
	  0,
	  { { UPDATE(0, 1) }, { UPDATE(1, 1) } } },
	{ "one tag, room for one", 8, 1, 8, true, 3, 0, { { UPDATE(0, 0) }, { UPDATE(1, 0) } } },
	{ "insert and delete",
	  4,
	  1,
	  8,
	  false,
	  3,
	  0,
	  { { UPDATE(0, 1), DELETE(0) }, { UPDATE(0, 1), LOOKUP(0) } } },
	{ "insert and delete, two keys",
	  4,
	  1,
	  4,
	  false,
	  3,
	  0,
	  { { UPDATE(0, 1), DELETE(0) }, { UPDATE(1, 1), DELETE(1) } } },
	{ "taken again with one tag",
	  4,
	  2,
	  16,
	  true,
	  3,
	  1,
	  { { DELETE(0), UPDATE(1, 1) }, { LOOKUP(1), LOOKUP(1) } } },
	{ "update of what is taken again",
	  4,
	  1,
	  16,
	  true,
	  3,
	  1,
	  { { DELETE(0), UPDATE(1, 1) }, { UPDATE(1, 1), LOOKUP(1) } } },
	{ "free before and behind",
	  4,
	  2,
	  8,
	  true,
	  2,
	  2,
	  { { UPDATE(0, 1) }, { DELETE(1), UPDATE(0, 1) }, { UPDATE(0, 1), LOOKUP(0) } } },
	{ "beyond the window",
	  8,
	  4,
	  8,
	  true,
	  2,
	  3,
	  { { UPDATE(2, 1), LOOKUP(2) }, { UPDATE(2, 1) }, { LOOKUP(2), DELETE(0) } } },
	{ "beyond the window, then before",
	  8,
	  4,
	  8,
	  true,
	  2,
	  3,
	  { { UPDATE(2, 1) }, { DELETE(0), UPDATE(2, 1) }, { LOOKUP(2), UPDATE(2, 0) } } },
	{ "exist", 4, 2, 8, false, 3, 0, { { UPDATE(0, 0), DELETE(0) }, { UPDATE(0, 2) } } },
	{ "two count one key", 4, 1, 8, false, 2, 0, { { COUNT(0), COUNT(0) }, { COUNT(0) } } },
	{ "two count two keys", 4, 1, 4, false, 1, 0, { { COUNT(0), COUNT(1) }, { COUNT(1) } } },
	{ "three insert one key",
	  4,
	  1,
	  8,
	  false,
	  2,
	  0,
	  { { UPDATE(0, 1) }, { UPDATE(0, 1) }, { UPDATE(0, 1) } } },
	{ "three insert two keys",
	  4,
	  1,
	  8,
	  false,
	  2,
	  0,
	  { { UPDATE(0, 1) }, { UPDATE(1, 1) }, { UPDATE(0, 0) } } },
	{ "three insert and delete",
	  4,
	  1,
	  8,
	  true,
	  2,
	  0,
	  { { UPDATE(0, 1), DELETE(0) }, { UPDATE(0, 1) }, { UPDATE(1, 1) } } },
	{ "three count", 4, 2, 8, true, 1, 0, { { COUNT(0) }, { COUNT(0) }, { COUNT(1) } } },
	{ "two evict",
	  4,
	  1,
	  8,
	  false,
	  3,
	  4,
	  { { UPDATE(0, 1), LOOKUP(0) }, { UPDATE(1, 1) } },
	  true },
	{ "two evict one another, one tag",
	  8,
	  1,
	  8,
	  true,
	  2,
	  1,
	  { { UPDATE(1, 0), LOOKUP(1) }, { UPDATE(0, 0), UPDATE(2, 0) } },
	  true },
	{ "evicted and inserted",
	  4,
	  1,
	  16,
	  false,
	  2,
	  1,
	  { { UPDATE(1, 1) }, { UPDATE(0, 1), LOOKUP(0) }, { DELETE(0), UPDATE(1, 1) } },
	  true },
	{ "three evict",
	  4,
	  1,
	  4,
	  false,
	  2,
	  1,
	  { { UPDATE(0, 1) }, { UPDATE(1, 1) }, { UPDATE(2, 1) } },
	  true },
	{ "no slot to spare",
	  2,
	  1,
	  8,
	  false,
	  2,
	  0,
	  { { UPDATE(0, 1) }, { UPDATE(0, 1) }, { UPDATE(0, 1) } } },
};

static int run_all_schedules(const struct scenario *s) {
	unsigned long runs = 0;

	run.random = false;
	run.group_bits = s->capacity == 8;
	choices.n = choices.at = 0;
	do {
		run_once(s);
		runs++;
	} while (!run.wrong && choices_advance());
	return report(s, runs);
}

static int run_random_schedules(const struct scenario *s, unsigned long runs) {
	run.random = true;
	for (unsigned long i = 0; !run.wrong && i < runs; i++) {
		run.group_bits = i & 1;
		run_once(s);
	}
	return report(s, runs);
}

/* Each thread stops once before each of its accesses; the others end all the same. */
static int run_all_stalls(const struct scenario *s) {
	unsigned long runs = 0;

	run.random = true;
	for (u32 t = 0; t < count_threads(s) && !run.wrong; t++)
		for (u32 at = 0; !run.wrong; at++, runs++) {
			run_threads(s, t, at);
			if (run.stalls_at != UINT32_MAX) /* it has ended before */
				break;
		}
	return report(s, runs);
}

/* Random calls of random threads, on a map with hardly enough room. */
static void make_random(struct scenario *s) {
	bool counts = random_below(4) == 0, deletes = random_below(3) != 0;

	*s = (struct scenario){ .name = "random calls", .capacity = 4u << random_below(2) };
	s->max_entries = 1 + random_below(s->capacity / 2);
	s->key_size = random_below(2) ? 8 : random_below(2) ? 4 : 16;
	s->same_tag = s->key_size > 4 && random_below(2);
	s->lru = !counts && s->capacity > 4 && random_below(4) == 0;
	for (u32 t = 0; t < 2 + random_below(2); t++) {
		for (u32 i = 0; i < CALLS_MAX; i++) {
			struct call *call = &s->calls[t][i];

			call->kind = counts ? CALL_COUNT : CALL_LOOKUP + random_below(2 + deletes);
			call->key = random_below(1 + random_below(N_KEYS));
			call->flags = call->kind == CALL_UPDATE ? random_below(3) : 0;
		}
	}
	if (!counts && s->max_entries > 1)
		s->prepared = random_below(2) ? 2 : 3;
}

int main(int argc, char **argv) {
	unsigned long random_runs = argc > 1 ? strtoul(argv[1], NULL, 0) : 40000;
	struct scenario s = { .name = "random calls" };

	choices.state = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (run_all_schedules(&scenarios[i]) || run_all_stalls(&scenarios[i]) ||
		    run_random_schedules(&scenarios[i], random_runs / 2))
			return 1;
	run.random = true;
	for (unsigned long i = 0; i < random_runs; i++) {
		make_random(&s);
		run.group_bits = random_below(3);
		run_once(&s);
		if (run.wrong)
			return report(&s, i);
	}
	return report(&s, random_runs);
}
