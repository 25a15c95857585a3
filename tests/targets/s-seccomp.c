/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A target for tests of the shim. A sandbox that kills for socket, connect and memfd_create: fine
 * for CUDA as long as nobody is interested in the process. "threads": one that lets the first
 * thread make none; "threads later": another thread, which may, launches for two seconds then.
 */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "s.h"

#define KILL(number)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

#define FAIL(number)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN)

static struct s_loaded loaded;
static sem_t begun;

static void *launch(void *unused) {
	CUcontext context;
	int sum = 0;

	while (sem_wait(&begun))
		;
	CHECK(driver.primary_retain(&context, 0));
	CHECK(driver.ctx_set_current(context));
	for (int i = 0; i < 20; i++) {
		sum += s_launch(&loaded);
		usleep(100000);
	}
	printf("%d\n", sum);
	return NULL;
}

int main(int argc, char *argv[]) {
	pthread_t other;
	struct sock_filter without_threads[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		FAIL(SYS_clone),
		FAIL(SYS_clone3),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		KILL(SYS_socket),
		KILL(SYS_connect),
		KILL(SYS_memfd_create),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog filter = { sizeof(code) / sizeof(code[0]), code };

	if (argc > 1)
		filter = (struct sock_fprog){ sizeof(without_threads) / sizeof(without_threads[0]),
					      without_threads };
	sem_init(&begun, 0, 0);
	if (argc > 2 && pthread_create(&other, NULL, launch, NULL))
		return 1;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 77;
	driver_start(false);
	printf("%d %d\n", s_once(S_MODULE), s_once(S_LIBRARY));
	if (argc > 2) {
		loaded = s_load(S_MODULE);
		sem_post(&begun);
		pthread_join(other, NULL);
	}
	return 0;
}
