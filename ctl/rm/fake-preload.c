/* SPDX-License-Identifier: Apache-2.0 */

/*
 * For tests of ctl/rm. The double of the driver for whole programs, by LD_PRELOAD: /dev/nvidiactl
 * and /dev/nvidiaN are there. FAKE_DRIVER has words, as in "gpus=2 version=470.57 open=13
 * refuse=18:0x1b bind=0x56:4 records=FILE": errno of open(2), the number of a call that is refused
 * and by which status, status and reason of a binding, a file of records for the event buffer;
 * slow=25:2000 makes that call and those behind it last so many milliseconds.
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "fake-driver.h"

#define RECORDS_MAX 65536

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fake_driver fake;
static int open_error, slow_at;
static unsigned int slow_ms;

static void read_records(const char *path) {
	static char records[RECORDS_MAX * 32];
	FILE *file = fopen(path, "re");

	if (!file)
		abort();
	fake.records = records;
	fake.n_records = fread(records, 32, RECORDS_MAX, file);
	fclose(file);
}

__attribute__((constructor)) static void configure(void) {
	struct rm_driver driver;
	const char *text = getenv("FAKE_DRIVER");
	char *words = strdup(text ? text : ""), *rest = words, *word;

	fake_driver_init(&fake, &driver);
	while ((word = strsep(&rest, " "))) {
		char *value = strchr(word, '='), *colon = value ? strchr(value, ':') : NULL;
		const unsigned long number = value ? strtoul(value + 1, NULL, 0) : 0,
				    second = colon ? strtoul(colon + 1, NULL, 0) : 0;

		if (!strncmp(word, "gpus=", 5))
			fake.n_gpus = (unsigned int)number;
		else if (!strncmp(word, "version=", 8))
			fake.version = strdup(value + 1);
		else if (!strncmp(word, "open=", 5))
			open_error = (int)number;
		else if (!strncmp(word, "refuse=", 7))
			fake.refuse_at = (int)number, fake.status = (uint32_t)second;
		else if (!strncmp(word, "bind=", 5))
			fake.bind_status = (uint32_t)number, fake.bind_reason = (uint32_t)second;
		else if (!strncmp(word, "slow=", 5))
			slow_at = (int)number, slow_ms = (unsigned int)second;
		else if (!strncmp(word, "records=", 8))
			read_records(value + 1);
	}
	free(words);
}

static bool is_device(const char *path) {
	return !strncmp(path, "/dev/nvidia", 11);
}

static int open_device(const char *path) {
	int fd;

	pthread_mutex_lock(&lock);
	fd = open_error ? -open_error : fake_driver_open(&fake, path);
	pthread_mutex_unlock(&lock);
	if (fd < 0)
		errno = -fd;
	return fd < 0 ? -1 : fd;
}

int open(const char *path, int flags, ...) {
	int (*next)(const char *path, int flags, ...) =
		(int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
	va_list arguments;
	mode_t mode;

	va_start(arguments, flags);
	mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(arguments, mode_t) : 0;
	va_end(arguments);
	return is_device(path) ? open_device(path) : next(path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

int access(const char *path, int mode) {
	int (*next)(const char *path, int mode) =
		(int (*)(const char *, int))dlsym(RTLD_NEXT, "access");

	return is_device(path) ? 0 : next(path, mode);
}

int ioctl(int fd, unsigned long command, ...) {
	int (*next)(int fd, unsigned long command, ...) =
		(int (*)(int, unsigned long, ...))dlsym(RTLD_NEXT, "ioctl");
	va_list arguments;
	void *argument;
	int r;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (_IOC_TYPE(command) != 'F')
		return next(fd, command, argument);
	pthread_mutex_lock(&lock);
	r = fake_driver_ioctl(&fake, fd, command, argument);
	if (slow_at && fake.n_ioctls >= slow_at)
		usleep(slow_ms * 1000);
	pthread_mutex_unlock(&lock);
	if (r < 0)
		errno = -r;
	return r < 0 ? -1 : r;
}
