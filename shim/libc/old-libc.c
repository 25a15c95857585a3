/* SPDX-License-Identifier: Apache-2.0 */

/*
 * Lets the shim run with a libc that is older than the one it was built with (old-libc.h).
 *
 * The shim is loaded into programs of containers, whose libc may be much older than the one that it
 * was built with. A version that is missing there would keep all programs from starting. So this
 * file defines, for the shim alone, what libc.so.6 has under a newer version than GLIBC_2.17: what
 * came later, and what moved there from libpthread.so.0 and libdl.so.2 (glibc 2.34). Each is a
 * system call, or calls the process's own function, which is found by its name when it is needed. A
 * test reads the versions from the library (test-exports.py).
 *
 * In a process without libpthread.so.0 these functions fail as they would for want of memory. A
 * process with NVIDIA's driver has that library.
 */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "real-dlsym.h"

#define PAUSE_FIRST_NS 20000
#define PAUSE_LAST_NS 1000000
#define ONCE_DONE 2 /* glibc's */

static void *find(void **kept, const char *name) {
	void *found = __atomic_load_n(kept, __ATOMIC_RELAXED);

	if (found)
		return found;
	found = dlsym_libc(name);
	__atomic_store_n(kept, found, __ATOMIC_RELAXED);
	return found;
}

/* The function of that name that the process has, or NULL. */
#define REAL(name)                                      \
	({                                              \
		static void *kept;                      \
		(__typeof__(name) *)find(&kept, #name); \
	})

/* A function that calls the process's own; what it returns where there is none. */
#define FORWARD(result, name, parameters, arguments, otherwise) \
	result name parameters {                                \
		__typeof__(name) *real = REAL(name);            \
                                                                \
		return real ? real arguments : otherwise;       \
	}

/* ---- <dlfcn.h> ---- */

FORWARD(void *, dlopen, (const char *file, int mode), (file, mode), NULL)
FORWARD(int, dlclose, (void *library), (library), -1)
FORWARD(char *, dlerror, (void), (), NULL)
FORWARD(int, dladdr, (const void *address, Dl_info *info), (address, info), 0)
FORWARD(int, dladdr1, (const void *address, Dl_info *info, void **extra, int flags),
	(address, info, extra, flags), 0)

/* ---- threads ---- */

FORWARD(int, pthread_create,
	(pthread_t * thread, const pthread_attr_t *attributes, void *(*run)(void *),
	 void *argument),
	(thread, attributes, run, argument), EAGAIN)
FORWARD(int, pthread_attr_setstacksize, (pthread_attr_t * attributes, size_t size),
	(attributes, size), EAGAIN)
FORWARD(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *before), (how, set, before),
	EAGAIN)
FORWARD(int, pthread_key_create, (pthread_key_t * key, void (*destroy)(void *)), (key, destroy),
	EAGAIN)
FORWARD(int, pthread_setspecific, (pthread_key_t key, const void *value), (key, value), EAGAIN)
/* 0: as libc.so.6 locks and unlocks without libpthread.so.0 */
FORWARD(int, pthread_mutex_trylock, (pthread_mutex_t * mutex), (mutex), 0)

int pthread_once(pthread_once_t *once, void (*run)(void)) {
	__typeof__(pthread_once) *real = REAL(pthread_once);

	if (real)
		return real(once, run);
	if (*once != ONCE_DONE) /* there is one thread */
		run();
	*once = ONCE_DONE;
	return 0;
}

/* No point of cancellation. False: the time has come. */
static bool pause_until(long *pause_ns, clockid_t clock, const struct timespec *until) {
	const struct timespec pause = { .tv_nsec = *pause_ns };
	struct timespec now;
	int saved = errno;

	clock_gettime(clock, &now);
	if (now.tv_sec > until->tv_sec ||
	    (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec))
		return false;
	syscall(SYS_nanosleep, &pause, NULL);
	errno = saved;
	if (*pause_ns < PAUSE_LAST_NS)
		*pause_ns *= 2;
	return true;
}

/* glibc has the next two since 2.30. Without them a thread that waits looks again and again. */
int pthread_mutex_clocklock(pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
	__typeof__(pthread_mutex_clocklock) *real;
	long pause_ns = PAUSE_FIRST_NS;

	if (pthread_mutex_trylock(mutex) == 0)
		return 0;
	real = libc_minor() < 30 ? NULL : REAL(pthread_mutex_clocklock);
	if (real)
		return real(mutex, clock, until);
	while (pause_until(&pause_ns, clock, until))
		if (pthread_mutex_trylock(mutex) == 0)
			return 0;
	return ETIMEDOUT;
}

int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock,
			   const struct timespec *until) {
	__typeof__(pthread_cond_clockwait) *real =
		libc_minor() < 30 ? NULL : REAL(pthread_cond_clockwait);
	long pause_ns = PAUSE_LAST_NS;
	bool early;

	if (real)
		return real(condition, mutex, clock, until);
	pthread_mutex_unlock(mutex);
	early = pause_until(&pause_ns, clock, until);
	pthread_mutex_lock(mutex);
	return early ? 0 : ETIMEDOUT; /* one may wake up without a reason */
}

/* ---- files and memory ---- */

int fstat64(int fd, struct stat64 *status) {
	return (int)syscall(SYS_fstat, fd, status);
}

int stat64(const char *path, struct stat64 *status) {
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, 0);
}

int lstat64(const char *path, struct stat64 *status) {
	return (int)syscall(SYS_newfstatat, AT_FDCWD, path, status, AT_SYMLINK_NOFOLLOW);
}

/* For commands with a number, or nothing. */
int fcntl64(int fd, int command, ...) {
	va_list arguments;
	long argument;

	va_start(arguments, command);
	argument = va_arg(arguments, int);
	va_end(arguments);
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

int memfd_create(const char *name, unsigned flags) {
	return (int)syscall(SYS_memfd_create, name, flags);
}

void *reallocarray(void *memory, size_t count, size_t size) {
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(memory, bytes);
}
