/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The output of a trace: which file, and when it is written. Text and tables are for people: they
 * go to standard output, or to standard error if a traced program uses standard output. Other
 * formats go there only if it is no terminal; else, and into a folder, to a file trace_TIME. The
 * link trace_latest names that file once it is complete. A trace that never begins leaves files as
 * they were.
 *
 * A file is written in whole events, some times a second. Formats that need an end get one each
 * time, and the next events overwrite it. So the file can be read whatever ends us: SIGKILL, or a
 * full disk.
 */

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "command.h"
#include "ctl/trace/base/out.h"

#define FILE_BUFFER (1 << 20)
#define FILE_PORTION (1 << 15) /* is written at once: so much is lost when the disk is full */

/* By the end of a name; text if it has none. Returns the exit status. */
static int choose_format(struct trace_command *trace, const char *path) {
	static const struct {
		const char *suffix, *format;
	} suffixes[] = { { ".jsonl", "jsonl" },      { ".json", "chrome" },
			 { ".pftrace", "perfetto" }, { ".perfetto-trace", "perfetto" },
			 { ".folded", "folded" },    { ".csv", "csv" },
			 { ".gtrc", "raw" },         { ".raw", "raw" },
			 { ".txt", "text" },         { ".log", "text" } };
	const char *name = strrchr(path, '/') ? strrchr(path, '/') + 1 : path,
		   *suffix = *name ? strrchr(name + 1, '.') : NULL;

	trace->format_name = suffix ? NULL : "text";
	for (size_t i = 0; suffix && i < sizeof(suffixes) / sizeof(*suffixes); i++)
		if (!strcmp(suffix, suffixes[i].suffix))
			trace->format_name = suffixes[i].format;
	if (!trace->format_name)
		return ctl_usage("-o: %s: no format has the suffix %s; .jsonl, .json, .pftrace, "
				 ".folded, .csv, .gtrc and .txt are some, or say --format",
				 path, suffix);
	trace->format = trace_format_find(trace->format_name);
	return CTL_OK;
}

static bool is_folder(const char *path) {
	struct stat status;

	return path[strlen(path) - 1] == '/' ||
	       (stat(path, &status) >= 0 && S_ISDIR(status.st_mode));
}

/* Creates a file of its own in a folder, which is made if need be. */
static int open_in_folder(struct trace_target *target, struct trace_command *trace,
			  const char *folder) {
	const char *suffix = trace->format ? trace->format->suffix : ".gtrc";
	const int n = (int)strlen(folder) - (folder[strlen(folder) - 1] == '/' && folder[1]);
	char now[32], number[16] = "";
	time_t seconds = time(NULL);
	struct tm tm;

	if (mkdir(folder, 0777) < 0 && errno != EEXIST)
		return ctl_fail_open(folder, errno, true);
	if (!localtime_r(&seconds, &tm) || !strftime(now, sizeof(now), "%Y%m%d_%H%M%S", &tm))
		strcpy(now, "0");
	for (int i = 2; !target->file && i < 1000; i++) {
		free(target->memory);
		target->memory = NULL;
		if (asprintf(&target->memory, "%.*s/trace_%s%s%s", n, folder, now, number, suffix) <
		    0)
			return ctl_fail(CTL_ERROR, "out of memory");
		target->file = fopen(target->memory, "wxe");
		if (!target->file && errno != EEXIST)
			return ctl_fail_open(target->memory, errno, true);
		snprintf(number, sizeof(number), "_%d", i);
	}
	target->path = target->memory;
	target->created = target->file;
	target->link_to = strdup(strrchr(target->memory, '/') + 1);
	if (asprintf(&target->link, "%.*s/trace_latest%s", n, folder, suffix) < 0)
		target->link = NULL;
	return target->file && target->link && target->link_to
		       ? CTL_OK
		       : ctl_fail(CTL_ERROR, "%s: cannot be created", target->memory);
}

static int open_file(struct trace_target *target, struct trace_command *trace) {
	const char *path = trace->output ?: "traces/";
	int r = CTL_OK, fd;

	if (is_folder(path)) {
		r = open_in_folder(target, trace, path);
	} else {
		target->path = path;
		fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		target->created = fd >= 0;
		if (fd < 0 && errno == EEXIST)
			fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
		target->file = fd < 0 ? NULL : fdopen(fd, "w");
		if (!target->file)
			r = ctl_fail_open(path, errno, true);
	}
	target->buffer = r ? NULL : malloc(FILE_BUFFER);
	if (!r && (!target->buffer || setvbuf(target->file, target->buffer, _IOFBF, FILE_BUFFER)))
		r = ctl_fail(CTL_ERROR, "out of memory");
	return r;
}

int trace_target_open(struct trace_target *target, struct trace_command *trace) {
	const bool to_stdout = trace->output && !strcmp(trace->output, "-");
	bool for_people;
	int r = CTL_OK;

	if (trace->table)
		trace->format_name = "table";
	if (trace->format_name)
		trace->format = trace_format_find(trace->format_name);
	else if (trace->output && !to_stdout && is_folder(trace->output))
		trace->format = trace_format_find(trace->format_name = "jsonl");
	else
		r = choose_format(trace, trace->output ?: "-");
	if (r)
		return r;
	for_people = trace->format == &trace_format_text || trace->format == &trace_format_table;
	if (to_stdout ||
	    (!trace->output && !trace->command && (for_people || !isatty(STDOUT_FILENO))))
		target->file = stdout;
	else if (!trace->output && for_people)
		target->file = stderr;
	else
		return open_file(target, trace);
	target->lines = true;
	return CTL_OK;
}

int trace_target_begin(struct trace_target *target) {
	struct stat status;

	target->begun = true;
	target->regular = target->path && fstat(fileno(target->file), &status) == 0 &&
			  S_ISREG(status.st_mode);
	return target->path ? out_empty_file(target->file) : 0;
}

bool trace_target_flush(struct trace_target *target) {
	const char *end = target->regular && !target->ended && target->end ? target->end : "";

	if (target->error)
		return false;
	if (__fpending(target->file))
		fputs(end, target->file);
	else
		end = "";
	errno = 0;
	if (fflush(target->file) == EOF || ferror(target->file)) {
		target->error = errno ?: EIO;
		return false;
	}
	if (!target->regular)
		return true;
	target->written = ftello(target->file) - (off_t)strlen(end);
	if (*end && fseeko(target->file, target->written, SEEK_SET) < 0)
		target->error = errno;
	return !target->error;
}

void trace_target_wrote(struct trace_target *target) {
	if (ferror(target->file) && !target->error) /* it was more than the buffer holds */
		target->error = errno ?: EIO;
	else if (target->path && __fpending(target->file) >= FILE_PORTION)
		trace_target_flush(target);
}

/* What could not be written may be there in part, and have overwritten the end. */
static void keep_whole(struct trace_target *target) {
	const char *end = target->end ?: "";

	__fpurge(target->file);
	if (!target->regular || ftruncate(fileno(target->file), target->written) < 0)
		return;
	if (pwrite(fileno(target->file), end, strlen(end), target->written) < 0)
		return; /* it is said anyway that the file is not complete */
}

/* Puts the link where it is to be at once, also in place of another. */
static int make_link(const struct trace_target *target) {
	char *temporary;
	int r = CTL_OK;

	if (asprintf(&temporary, "%s.%d", target->link, getpid()) < 0)
		return ctl_fail(CTL_ERROR, "out of memory");
	unlink(temporary);
	if (symlink(target->link_to, temporary) < 0 || rename(temporary, target->link) < 0) {
		r = ctl_fail(CTL_ERROR, "%s: %s", target->link, strerror(errno));
		unlink(temporary);
	}
	free(temporary);
	return r;
}

/* Whether nobody reads any more what is not written yet, which is nobody's mistake. */
static bool has_hung_up(const struct trace_target *target) {
	struct pollfd reader = { .fd = fileno(target->file) };

	return !target->path && poll(&reader, 1, 0) > 0 && reader.revents & POLLERR;
}

int trace_target_close(struct trace_target *target, bool complete, bool *hung_upp) {
	int r = CTL_OK;

	if (target->file) {
		if (!trace_target_flush(target))
			keep_whole(target);
		if (target->path && fclose(target->file) == EOF && !target->error)
			target->error = errno;
		if (target->error && has_hung_up(target)) {
			*hung_upp = true;
			clearerr(target->file);
		} else if (target->error) {
			r = ctl_fail(CTL_ERROR, "%s: %s", target->path ?: "cannot write the output",
				     strerror(target->error));
		} else if (target->link && complete) {
			r = make_link(target);
		} else if (target->created && !target->begun) {
			unlink(target->path); /* there was none before, and it is empty */
		}
	}
	free(target->buffer);
	free(target->memory);
	free(target->link);
	free(target->link_to);
	*target = (struct trace_target){};
	return r;
}
