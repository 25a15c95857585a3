/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sandbox that kills for socket, connect and memfd_create: fine for CUDA as long as nobody is
 * interested in the process. With an argument: one that lets nobody make a thread.
 */

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "s.h"

#define KILL(number)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

#define FAIL(number)                                         \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN)

int main(int argc, char *argv[])
{
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
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter))
		return 77;
	driver_start(false);
	printf("%d %d\n", s_once(S_MODULE), s_once(S_LIBRARY));
	return 0;
}
