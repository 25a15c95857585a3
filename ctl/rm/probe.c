/* SPDX-License-Identifier: Apache-2.0 */

/*
 * rm-probe [CMD [ARGUMENT]...]: a diagnostic. Does what `gpuprobectl trace` does with the driver's
 * resource manager, step by step, and prints each call with its bytes, its time and what it said;
 * what is refused is tried in other ways. CMD is run twice at a time, so that there are contexts to
 * switch; with the number of a user in RM_PROBE_UID all is done once more as that user.
 */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "ctxsw-tag.h"
#include "lib/base/clock.h"
#include "clock.h"
#include "ctxsw.h"
#include "record.h"

#define SHOWN 96 /* bytes */
#define RECORDS_SHOWN 60
#define SECONDS 9
#define FLUSHES 80 /* the round from which on it is flushed */

static bool quiet;

static void print_bytes(const char *what, const void *data, size_t n) {
	const unsigned char *bytes = data;

	printf("    %s", what);
	for (size_t i = 0; i < n && i < SHOWN; i++)
		printf("%s%02x", i % 4 ? "" : " ", bytes[i]);
	printf("%s\n", n > SHOWN ? " ..." : "");
}

/* ---- system calls, printed ---- */

static int probe_open(void *userdata, const char *path) {
	const int fd = rm_driver_kernel.open(NULL, path);

	if (!quiet)
		printf("  open %s = %d%s%s\n", path, fd, fd < 0 ? " " : "",
		       fd < 0 ? strerror(-fd) : "");
	return fd;
}

static int probe_close(void *userdata, int fd) {
	return rm_driver_kernel.close(NULL, fd);
}

static int probe_ioctl(void *userdata, int fd, unsigned long command, void *argument) {
	const size_t n = _IOC_SIZE(command), nr = _IOC_NR(command);
	const char *inner = NULL;
	uint32_t n_inner = 0;
	uint64_t before, after;
	int r;

	if (nr == 0x2a || nr == 0x2b) {
		memcpy(&inner, (char *)argument + 16, sizeof(inner));
		memcpy(&n_inner, (char *)argument + 24, sizeof(n_inner));
		n_inner = nr == 0x2b ? 128 : n_inner;
	}
	if (!quiet) {
		printf("  ioctl fd %d nr %#zx size %zu\n", fd, nr, n);
		print_bytes("in ", argument, n);
		if (inner)
			print_bytes("  > ", inner, n_inner);
	}
	before = clock_ns(CLOCK_MONOTONIC);
	r = rm_driver_kernel.ioctl(NULL, fd, command, argument);
	after = clock_ns(CLOCK_MONOTONIC);
	if (!quiet) {
		print_bytes("out", argument, n);
		if (inner)
			print_bytes("  > ", inner, n_inner);
		printf("    = %d%s%s, %" PRIu64 " ns\n", r, r < 0 ? " " : "",
		       r < 0 ? strerror(-r) : "", after - before);
	}
	return r;
}

static void *probe_map(void *userdata, int fd, size_t size) {
	void *address = rm_driver_kernel.map(NULL, fd, size);

	printf("  mmap fd %d size %zu = %p%s%s\n", fd, size, address, address ? "" : " ",
	       address ? "" : strerror(errno));
	return address;
}

static void probe_unmap(void *userdata, void *address, size_t size) {
	rm_driver_kernel.unmap(NULL, address, size);
}

static const struct rm_driver driver = { probe_open, probe_close, probe_ioctl,
					 probe_map,  probe_unmap, NULL };

static bool step(struct rm_client *client, const char *what, int r) {
	printf("%s %s%s%s\n", r ? "FAILED" : "ok", what, r ? ": " : "", r ? client->error : "");
	return !r;
}

/* ---- clocks ---- */

struct correlation {
	uint8_t source, n;
	struct {
		uint64_t host, gpu;
	} samples[16];
};

static void print_samples(struct rm_gpu *gpu, uint8_t source, uint8_t n) {
	struct correlation answer = { .source = source, .n = n };
	const uint64_t mono = clock_ns(CLOCK_MONOTONIC), raw = clock_ns(CLOCK_MONOTONIC_RAW),
		       tsc = __builtin_ia32_rdtsc();

	printf("-- 0x20800406 source %u, %u samples; mono %" PRIu64 " raw %" PRIu64 " tsc %" PRIu64
	       "\n",
	       source, n, mono, raw, tsc);
	if (!step(gpu->client, "samples",
		  rm_control(gpu->client, gpu->subdevice, 0x20800406, &answer, sizeof(answer))))
		return;
	for (unsigned int i = 0; i < n; i++)
		printf("    host %" PRIu64 " (+%" PRIu64 ") gpu %" PRIu64 " (+%" PRIu64 ")\n",
		       answer.samples[i].host,
		       i ? answer.samples[i].host - answer.samples[i - 1].host : 0,
		       answer.samples[i].gpu,
		       i ? answer.samples[i].gpu - answer.samples[i - 1].gpu : 0);
}

static void probe_clock(struct rm_gpu *gpu) {
	uint64_t answer[2] = {};
	struct rm_pair first = {}, pair;
	uint64_t before;

	print_samples(gpu, 1, 3);
	quiet = true;
	print_samples(gpu, 2, 16);
	print_samples(gpu, 3, 16);
	print_samples(gpu, 3, 1);
	step(gpu->client, "0x20800403",
	     rm_control(gpu->client, gpu->subdevice, 0x20800403, answer, 8));
	printf("-- single calls: host-gpu against the first\n");
	for (int i = 0; i < 30; i++) {
		struct correlation one = { .source = 3, .n = 1 };
		const uint64_t raw = clock_ns(CLOCK_MONOTONIC_RAW);

		if (rm_control(gpu->client, gpu->subdevice, 0x20800406, &one, sizeof(one)))
			break;
		if (!i)
			first = (struct rm_pair){ one.samples[0].gpu, one.samples[0].host, 0 };
		printf(" %+" PRId64 "/%" PRIu64 "/%" PRIu64,
		       (int64_t)((one.samples[0].host - first.host) -
				 (one.samples[0].gpu - first.gpu)),
		       one.samples[0].host - raw, clock_ns(CLOCK_MONOTONIC_RAW) - raw);
	}
	printf(" (offset/into the call/call)\n-- pairs every 100 ms\n");
	for (int i = 0; i < 30; i++) {
		before = clock_ns(CLOCK_MONOTONIC);
		if (!(i ? !rm_clock_pair(gpu, &pair)
			: step(gpu->client, "pair", rm_clock_pair(gpu, &pair))))
			break;
		if (!i)
			first = pair;
		printf(" %+" PRId64 "+-%" PRIu64 "/%" PRIu64,
		       (int64_t)((pair.host - first.host) - (pair.gpu - first.gpu)), pair.half,
		       clock_ns(CLOCK_MONOTONIC) - before);
		usleep(100000);
	}
	printf(" (offset+-half/ns for it)\n   first: gpu %" PRIu64 " host %" PRIu64 "\n", first.gpu,
	       first.host);
	quiet = false;
}

/* ---- context switches ---- */

static pid_t start(char **command) {
	const pid_t pid = command[0] ? fork() : 0;

	if (pid || !command[0])
		return pid;
	execv(command[0], command);
	fprintf(stderr, "rm-probe: %s: %s\n", command[0], strerror(errno));
	_exit(127);
}

static void print_record(const struct rm_ctxsw_record *record, uint64_t *last) {
	const char *tag = trace_ctxsw_tag_name(record->tag);

	printf("    %5u %-14s pid %-10" PRIu32 " context %#-10" PRIx32
	       " vmid %u mig %u/%u time %" PRIu64 " (%+" PRId64 ")\n",
	       record->sequence, tag ? tag : "?", record->pid, record->context, record->vmid,
	       record->gpu_instance, record->compute_instance, record->gpu_time,
	       *last ? (int64_t)(record->gpu_time - *last) : 0);
	*last = record->gpu_time;
}

/* What was seen so far. */
struct watching {
	size_t n_tags[256], n_shown, gaps;
	uint64_t n_all, last;
	uint64_t flushes, sum, longest; /* of flushes, in nanoseconds */
	uint16_t sequence;
};

static void watch_flush(struct watching *watching, struct rm_ctxsw *ctxsw, int round) {
	const uint64_t before = clock_ns(CLOCK_MONOTONIC);
	uint64_t took;
	int r;

	quiet = round > FLUSHES + 1;
	r = rm_ctxsw_flush(ctxsw);
	took = clock_ns(CLOCK_MONOTONIC) - before;
	watching->sum += took;
	watching->flushes++;
	watching->longest = took > watching->longest ? took : watching->longest;
	if (round == FLUSHES)
		step(ctxsw->gpu->client, "flush", r);
}

static void watch_records(struct watching *watching, const struct rm_ctxsw_record *records,
			  size_t n, int round) {
	for (size_t i = 0; i < n; i++) {
		watching->gaps += watching->n_all + i &&
				  (uint16_t)(watching->sequence + 1) != records[i].sequence;
		watching->sequence = records[i].sequence;
		watching->n_tags[records[i].tag]++;
		if (watching->n_shown < RECORDS_SHOWN &&
		    (round < FLUSHES - 10 || round > FLUSHES + 10)) {
			watching->n_shown++;
			print_record(&records[i], &watching->last);
		}
	}
	watching->n_all += n;
}

static void watch_round(struct watching *watching, struct rm_ctxsw *ctxsw, int round) {
	const struct rm_record_header *header = ctxsw->header.address;
	struct rm_ctxsw_record records[512];
	size_t n;

	if (round >= FLUSHES) /* the first half as the driver does by itself */
		watch_flush(watching, ctxsw, round);
	if (rm_ctxsw_read(ctxsw, records, 512, &n) && round < 100)
		step(ctxsw->gpu->client, "read", RM_E_REFUSED);
	quiet = watching->n_all > 0;
	watch_records(watching, records, n, round);
	if (n || round % 10 == 0)
		printf("   round %d: %zu records, get %u put %u count %" PRIu64 " dropped %" PRIu64
		       ", our get %u\n",
		       round, n, header->get, header->put, header->n_records, header->n_dropped,
		       ctxsw->get);
	if (round == FLUSHES)
		watching->n_shown = RECORDS_SHOWN / 2;
}

static void watch_print(const struct watching *watching) {
	printf("-- %" PRIu64 " records, %zu gaps; %" PRIu64 " flushes, %" PRIu64
	       " ns each, longest %" PRIu64 "\n",
	       watching->n_all, watching->gaps, watching->flushes,
	       watching->flushes ? watching->sum / watching->flushes : 0, watching->longest);
	for (unsigned int i = 0; i < 256; i++)
		if (watching->n_tags[i])
			printf("   %zu of %s\n", watching->n_tags[i],
			       trace_ctxsw_tag_name((uint8_t)i) ?: "?");
}

static void watch(struct rm_ctxsw *ctxsw, char **command) {
	const uint64_t until = clock_ns(CLOCK_MONOTONIC) + SECONDS * UINT64_C(1000000000);
	struct rm_ctxsw_record records[512];
	struct watching watching = {};
	pid_t pids[2];
	size_t n;

	for (int i = 0; i < 2; i++)
		pids[i] = start(command);
	printf("-- watching pids %d %d\n", (int)pids[0], (int)pids[1]);
	for (int round = 0; clock_ns(CLOCK_MONOTONIC) < until; round++) {
		watch_round(&watching, ctxsw, round);
		usleep(50000);
	}
	watch_print(&watching);
	for (int i = 0; i < 2; i++)
		if (pids[i] > 0) {
			kill(pids[i], SIGTERM);
			waitpid(pids[i], NULL, 0);
		}
	quiet = false;
	usleep(200000);
	rm_ctxsw_flush(ctxsw);
	if (!rm_ctxsw_read(ctxsw, records, 512, &n) && n)
		print_record(&records[n - 1], &watching.last);
}

/* What else might work where rm_ctxsw_init() did not. */
static void try_others(struct rm_gpu *gpu) {
	static const uint32_t parents[] = { 0, 1, 2 };
	struct rm_client *client = gpu->client;
	uint32_t handle = 0;

	for (size_t i = 0; i < sizeof(parents) / sizeof(*parents); i++) {
		const uint32_t parent = i == 0   ? client->root
					: i == 1 ? gpu->device
						 : gpu->subdevice;
		uint32_t memory[32] = {
			[6] = UINT32_C(5) << 29, [7] = UINT32_C(1) << 22, [16] = 4096, [18] = 4096
		};

		printf("-- other memory: parent %zu\n", i);
		if (step(client, "0x90ce",
			 rm_alloc(client, parent, 0x90ce, memory, sizeof(memory), &handle)))
			rm_free(client, handle);
		memory[6] |= UINT32_C(1) << 25;
		memory[2] = 0x8000;
		if (step(client, "0x3e",
			 rm_alloc(client, parent, 0x3e, memory, sizeof(memory), &handle)))
			rm_free(client, handle);
	}
}

static void try_binds(struct rm_ctxsw *ctxsw) {
	static const uint32_t sizes[] = { 24, 32 };
	struct rm_client *client = ctxsw->gpu->client;

	for (size_t i = 0; ctxsw->buffer && i < 2; i++)
		for (uint32_t all = 0; all < 2; all++) {
			uint32_t bind[6] = { ctxsw->buffer, sizes[i], 1, 0, all, 0 };

			printf("-- bind size %u all %u\n", sizes[i], all);
			step(client, "V2",
			     rm_control(client, ctxsw->gpu->subdevice, 0x20801238, bind, 24));
			printf("   reason %u\n", bind[5]);
			step(client, "V1",
			     rm_control(client, ctxsw->gpu->subdevice, 0x20801231, bind, 20));
		}
}

static void probe_gpu(struct rm_client *client, const struct rm_card *card, char **command) {
	struct rm_gpu gpu;
	struct rm_ctxsw ctxsw = {};
	int r;

	printf("== GPU %u: id %#x %04x:%02x:%02x.%u\n", card->minor, card->id, card->domain,
	       card->bus, card->slot, card->function);
	if (step(client, "open", rm_gpu_open(&gpu, client, card))) {
		probe_clock(&gpu);
		r = rm_ctxsw_init(&ctxsw, &gpu);
		step(client, "context switches", r);
		printf("   all users %d reason %u\n", ctxsw.all_users, ctxsw.reason);
		if (r)
			try_others(&gpu);
		if (ctxsw.header.address && ctxsw.records.address)
			watch(&ctxsw, command);
		try_binds(&ctxsw);
		rm_ctxsw_deinit(&ctxsw);
	}
	rm_gpu_close(&gpu);
}

static void probe_all(char **command) {
	struct rm_client client;
	struct rm_card cards[RM_GPUS_MAX];
	size_t n = 0;
	int r;

	printf("= as user %u\n", (unsigned int)geteuid());
	r = rm_client_init(&client, &driver);
	printf("version '%s' branch %u\n", client.version, client.branch);
	if (step(&client, "client", r) && step(&client, "cards", rm_cards(&client, cards, &n)))
		for (size_t i = 0; i < n && i < 1; i++)
			probe_gpu(&client, &cards[i], command);
	rm_client_deinit(&client);
	fflush(stdout);
}

int main(int argc, char **argv) {
	const char *uid = getenv("RM_PROBE_UID");
	pid_t child;

	setvbuf(stdout, NULL, _IOLBF, 0);
	probe_all(argv + 1);
	if (!uid)
		return 0;
	child = fork();
	if (!child) {
		if (setgid((gid_t)atoi(uid)) || setuid((uid_t)atoi(uid)))
			perror("rm-probe: setuid");
		probe_all(argv + 1);
		_exit(0);
	}
	waitpid(child, NULL, 0);
	return 0;
}
