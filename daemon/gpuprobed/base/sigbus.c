/* SPDX-License-Identifier: Apache-2.0 */

/*
 * The handler of SIGBUS (sigbus.h): puts a page of zeros where shared memory has none.
 *
 * What processes share is not believed anyway, so zeros are as good as anything. What the daemon
 * itself has to keep is allocated before it is mapped (posix_fallocate) and comes here never, but
 * for totals (map-totals.c), of which most is never touched: they go on in this daemon, and such a
 * page is zeros for the next one. State of the process, as handlers of signals are: one counter.
 */

#include "sigbus.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

static uint64_t n_pages;
static uintptr_t page_size;

static bool map_zeros(void *page, int protection) {
	return mmap(page, page_size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
	       page;
}

/* One that cannot be written to counts against no limit: where there is no memory at all, that is
 * what is left. */
static void on_sigbus(int number, siginfo_t *info, void *context) {
	void *page = (void *)((uintptr_t)info->si_addr & ~(page_size - 1));
	const int saved = errno;

	if (info->si_code == BUS_ADRERR &&
	    (map_zeros(page, PROT_READ | PROT_WRITE) || map_zeros(page, PROT_READ)))
		__atomic_fetch_add(&n_pages, 1, __ATOMIC_RELAXED);
	else
		signal(number, SIG_DFL); /* it comes again */
	errno = saved;
}

void sigbus_survive(void) {
	const struct sigaction action = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO };

	page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
	sigaction(SIGBUS, &action, NULL);
}

uint64_t sigbus_pages(void) {
	return __atomic_load_n(&n_pages, __ATOMIC_RELAXED);
}
