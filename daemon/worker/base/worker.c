/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The main loop of all workers (worker.h).
 *
 * A worker's life: options, sandbox, one message in, one message out, until end of file.
 *
 * The daemon is believed to speak the protocol: a message that is not one (no JSON, no id, cut
 * short) ends the worker with a line on stderr, as there is nobody to answer. A request that is
 * one, but whose job is unknown or whose members are wrong, gets an error reply. What is *in* the
 * descriptors is never believed; that is the handlers' business.
 */

#include "worker.h"
#include "lib/json.h"

#include <errno.h>
#include <getopt.h>
#include <link.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct message {
	char *text; /* JOB_MESSAGE_MAX + 1 bytes */
	size_t size;
	int fds[JOB_FDS_MAX];
	size_t n_fds;
};

static int usage(FILE *file) {
	fprintf(file,
		"usage: %s [--memory=MIB] [--cpu=SECONDS] [--output=MIB]\n"
		"\n"
		"A worker of gpuprobed: serves jobs on descriptor 3, a SOCK_SEQPACKET socket. Not "
		"to be started by hand.\n"
		"\n"
		"  --memory=MIB       limit of the address space, 0: none (default 4096)\n"
		"  --cpu=SECONDS      limit of processor time per job, 0: none (default 60)\n"
		"  --output=MIB       limit of the size of an output (default 1024)\n"
		"  --compiler=NAME    image worker: auto, nvptxcompiler, nvjitlink or none "
		"(default auto)\n"
		"  --threads=N        image worker: of large images (default: processors, at most "
		"8)\n"
		"  --no-sandbox       for sanitizer builds and debuggers only\n"
		"  --test-fault=WHAT  for tests only: crash, hang, garbage or slow when a job "
		"arrives\n",
		program_invocation_short_name);
	return file == stdout ? 1 : -EINVAL;
}

static int parse_number(const char *name, const char *text, uint64_t max, uint64_t *value) {
	char *end;
	unsigned long long number;

	errno = 0;
	number = strtoull(text, &end, 10);
	if (errno || end == text || *end || *text == '-' || number > max) {
		fprintf(stderr, "%s: --%s=%s: not a number from 0 to %llu\n",
			program_invocation_short_name, name, text, (unsigned long long)max);
		return -EINVAL;
	}
	*value = number;
	return 0;
}

static int parse_fault(const char *text, enum worker_fault *fault) {
	if (!strcmp(text, "crash"))
		*fault = WORKER_FAULT_CRASH;
	else if (!strcmp(text, "hang"))
		*fault = WORKER_FAULT_HANG;
	else if (!strcmp(text, "garbage"))
		*fault = WORKER_FAULT_GARBAGE;
	else if (!strcmp(text, "slow"))
		*fault = WORKER_FAULT_SLOW;
	else
		return usage(stderr);
	return 0;
}

int worker_options_parse(struct worker_options *options, int argc, char *argv[]) {
	static const struct option names[] = {
		{ "memory", required_argument, NULL, 'm' },
		{ "cpu", required_argument, NULL, 'c' },
		{ "output", required_argument, NULL, 'o' },
		{ "no-sandbox", no_argument, NULL, 'n' },
		{ "test-fault", required_argument, NULL, 'f' },
		{ "compiler", required_argument, NULL, 'C' },
		{ "threads", required_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, 'v' },
		{},
	};
	uint64_t memory = 4096, cpu = 60, output = 1024, threads = 0;
	int c, r = 0;

	*options = (struct worker_options){ .fd = WORKER_FD, .compiler = "auto" };
	while (!r && (c = getopt_long(argc, argv, "", names, NULL)) >= 0) {
		switch (c) {
		case 'm':
			r = parse_number("memory", optarg, UINT32_MAX, &memory);
			break;
		case 'c':
			r = parse_number("cpu", optarg, 86400, &cpu);
			break;
		case 'o':
			r = parse_number("output", optarg, UINT32_MAX, &output);
			break;
		case 'C':
			options->compiler = optarg;
			break;
		case 't':
			r = parse_number("threads", optarg, WORKER_THREADS_MAX, &threads);
			break;
		case 'n':
			options->no_sandbox = true;
			break;
		case 'f':
			r = parse_fault(optarg, &options->fault);
			break;
		case 'v':
			printf("%s %s\n", program_invocation_short_name, PROJECT_VERSION);
			return 1;
		default:
			return usage(c == 'h' ? stdout : stderr);
		}
	}
	if (r)
		return r;
	if (optind < argc)
		return usage(stderr);
	options->sandbox.memory = memory << 20;
	options->sandbox.cpu_seconds = (uint32_t)cpu;
	options->sandbox.file_size = output << 20;
	options->threads = (unsigned int)threads;
	return 0;
}

static void message_close_fds(struct message *message) {
	for (size_t i = 0; i < message->n_fds; i++)
		close(message->fds[i]);
	message->n_fds = 0;
}

static void take_fds(struct message *message, struct msghdr *header) {
	for (struct cmsghdr *control = CMSG_FIRSTHDR(header); control;
	     control = CMSG_NXTHDR(header, control)) {
		size_t n = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(control) + i * sizeof(fd), sizeof(fd));
			if (message->n_fds < JOB_FDS_MAX)
				message->fds[message->n_fds++] = fd;
			else
				close(fd);
		}
	}
}

/* Receives one message. 1, 0 at end of file, -errno (-EPROTO: cut short). The descriptors are the
 * caller's. */
static int message_receive(struct message *message, int fd) {
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(JOB_FDS_MAX * sizeof(int))];
	} control;
	struct iovec bytes = { .iov_base = message->text, .iov_len = JOB_MESSAGE_MAX };
	struct msghdr header = {
		.msg_iov = &bytes,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	message->n_fds = 0;
	do
		n = recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n < 0)
		return errno == ECONNRESET ? 0 : -errno;
	take_fds(message, &header);
	if (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
		message_close_fds(message);
		return -EPROTO;
	}
	if (!n) {
		message_close_fds(message);
		return 0;
	}
	message->text[n] = '\0';
	message->size = (size_t)n;
	return 1;
}

static int send_text(int fd, const char *text, size_t size) {
	struct iovec bytes = { .iov_base = (void *)text, .iov_len = size };
	struct msghdr header = { .msg_iov = &bytes, .msg_iovlen = 1 };
	ssize_t n;

	do
		n = sendmsg(fd, &header, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

static int send_object(int fd, struct json_object *object, size_t *size) {
	const char *text = json_object_to_json_string_length(
		object, JSON_C_TO_STRING_PLAIN | JSON_C_TO_STRING_NOSLASHESCAPE, size);

	if (!text)
		return -ENOMEM;
	return *size > JOB_MESSAGE_MAX ? -EMSGSIZE : send_text(fd, text, *size);
}

static const struct worker_handler *find_handler(const struct worker_handler *handlers,
						 size_t n_handlers, const char *job) {
	for (size_t i = 0; i < n_handlers; i++)
		if (!strcmp(handlers[i].job, job))
			return &handlers[i];
	return NULL;
}

/* Does what --test-fault says. 0: the job is to be served, 1: it is not, -errno: the worker
 * ends. */
static int make_fault(const struct worker_options *options) {
	static const char garbage[] = "\x7f\x45garbage{\"id\":";
	int r;

	switch (options->fault) {
	case WORKER_FAULT_CRASH:
		signal(SIGSEGV, SIG_DFL);
		raise(SIGSEGV);
		return -EFAULT;
	case WORKER_FAULT_HANG:
		for (;;)
			sleep(3600);
	case WORKER_FAULT_GARBAGE:
		r = send_text(options->fd, garbage, sizeof(garbage) - 1);
		return r < 0 ? r : 1;
	case WORKER_FAULT_SLOW:
		poll(NULL, 0, WORKER_SLOW_MS);
		return 0;
	default:
		return 0;
	}
}

static int serve(const struct worker_options *options, const struct worker_handler *handlers,
		 size_t n_handlers, const struct message *message, void *userdata) {
	struct worker_job job = { .fds = message->fds, .n_fds = message->n_fds };
	const struct worker_handler *handler;
	struct json_object *reply;
	const char *name;
	size_t size;
	int r = 0;

	job.request = json_parse(message->text, message->size, JSON_TOKENER_DEFAULT_DEPTH);
	if (!job.request || !json_get_int(job.request, JOB_KEY_ID, INT64_MIN, INT64_MAX, &job.id)) {
		json_object_put(job.request);
		return -EBADMSG;
	}
	reply = json_object_new_object();
	if (!reply) {
		json_object_put(job.request);
		return -ENOMEM;
	}
	if (!json_get_string(job.request, JOB_KEY_JOB, &name))
		r = worker_reply_error(reply, NULL, JOB_E_INTERNAL, "the request names no job");
	else if (!strcmp(name, JOB_PING))
		json_add_string(reply, JOB_KEY_STATUS, job_statuses[JOB_PONG]);
	else if (!(handler = find_handler(handlers, n_handlers, name)))
		r = worker_reply_error(reply, NULL, JOB_E_INTERNAL,
				       "this worker does not do the job \"%.64s\"", name);
	else
		r = handler->fn(&job, reply, userdata);
	if (!r) {
		json_add_int(reply, JOB_KEY_ID, job.id);
		r = send_object(options->fd, reply, &size);
	}
	if (r == -EMSGSIZE) {
		worker_reply_error(reply, NULL, JOB_E_INTERNAL, "the reply would be %zu bytes long",
				   size);
		json_add_int(reply, JOB_KEY_ID, job.id);
		r = send_object(options->fd, reply, &size);
	}
	json_object_put(reply);
	json_object_put(job.request);
	return r;
}

/* Adds the build id of one loaded object to a hash: dl_iterate_phdr()'s. */
static int hash_build(struct dl_phdr_info *info, size_t size, void *userdata) {
	uint64_t *hash = userdata;

	if (strncmp(info->dlpi_name, "linux-vdso", 10) == 0) /* the kernel's */
		return 0;
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *header = &info->dlpi_phdr[i];
		const uint8_t *notes = (const uint8_t *)(info->dlpi_addr + header->p_vaddr);

		/* sizes, too: not every library has an id */
		*hash = (*hash ^ header->p_memsz) * UINT64_C(0x100000001b3);
		for (size_t k = 0; header->p_type == PT_NOTE && k < header->p_memsz; k++)
			*hash = (*hash ^ notes[k]) * UINT64_C(0x100000001b3);
	}
	return 0;
}

/* What this worker makes depends on everything that it has loaded: its own code, LLVM, the CUDA
 * compiler. One number for all of that. */
static void add_build(struct json_object *features) {
	uint64_t hash = UINT64_C(0xcbf29ce484222325);
	char text[17];

	dl_iterate_phdr(hash_build, &hash);
	snprintf(text, sizeof(text), "%016llx", (unsigned long long)hash);
	json_add_string(features, JOB_FEATURE_BUILD, text);
}

static int say_ready(const struct worker_options *options, worker_warm_fn warm, void *userdata) {
	struct json_object *hello = json_object_new_object(), *features;
	size_t size;
	int r = 0;

	json_add_bool(hello, JOB_KEY_READY, true);
	features = json_add_object(hello, JOB_KEY_FEATURES);
	if (!features)
		r = -ENOMEM;
	else if (warm)
		r = warm(features, userdata);
	if (!r) {
		add_build(features);
		r = send_object(options->fd, hello, &size);
	}
	json_object_put(hello);
	return r;
}

static int complain(const char *what, int r) {
	fprintf(stderr, "%s: %s: %s\n", program_invocation_short_name, what, strerror(-r));
	return r;
}

static int enter(const struct worker_options *options) {
	struct sandbox_options sandbox = options->sandbox;
	const char *what;
	int *keep, r;

	keep = malloc((sandbox.n_keep + 1) * sizeof(*keep));
	if (!keep)
		return complain("sandbox", -ENOMEM);
	if (sandbox.n_keep)
		memcpy(keep, sandbox.keep, sandbox.n_keep * sizeof(*keep));
	keep[sandbox.n_keep++] = options->fd;
	sandbox.keep = keep;
	r = sandbox_enter(&sandbox, &what);
	free(keep);
	if (r)
		fprintf(stderr, "%s: sandbox: %s: %s\n", program_invocation_short_name, what,
			strerror(-r));
	return r;
}

int worker_run(const struct worker_options *options, const struct worker_handler *handlers,
	       size_t n_handlers, worker_warm_fn warm, void *userdata) {
	struct message message = {};
	int r = 0;

	if (!options->no_sandbox)
		r = enter(options);
	if (r)
		return r;
	r = say_ready(options, warm, userdata);
	if (r)
		return complain("starting", r);
	message.text = malloc(JOB_MESSAGE_MAX + 1);
	if (!message.text)
		return complain("starting", -ENOMEM);
	for (;;) {
		r = message_receive(&message, options->fd);
		if (r <= 0)
			break;
		r = make_fault(options);
		if (!r && !options->no_sandbox && (r = sandbox_job_begin(&options->sandbox)))
			complain("processor time limit", r);
		if (!r)
			r = serve(options, handlers, n_handlers, &message, userdata);
		message_close_fds(&message);
		if (r < 0)
			break;
	}
	free(message.text);
	/* The daemon went away: the end of file that it is, seen while writing. */
	if (r == -EPIPE || r == -ECONNRESET)
		r = 0;
	return r ? complain("serving", r) : 0;
}
