// SPDX-License-Identifier: Apache-2.0
// A parent shares memory and an event with a child by IPC handles; each of them has one launch. The
// child is this program again.
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include "../result.h"

#define COUNT 4096

struct shared {
	cudaIpcMemHandle_t memory;
	cudaIpcEventHandle_t event;
};

__global__ void produce(unsigned *values)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = i * 2654435761u;
}

__global__ void turn(unsigned *values)
{
	unsigned i = blockIdx.x * blockDim.x + threadIdx.x;

	values[i] = values[i] << 7 | values[i] >> 25;
}

static int child()
{
	cudaEvent_t event;
	unsigned *values;
	shared handles;

	if (fread(&handles, sizeof(handles), 1, stdin) != 1)
		return 1;
	CHECK(cudaIpcOpenMemHandle((void **)&values, handles.memory,
				   cudaIpcMemLazyEnablePeerAccess));
	CHECK(cudaIpcOpenEventHandle(&event, handles.event));
	CHECK(cudaStreamWaitEvent(0, event, 0));
	turn<<<COUNT / 128, 128>>>(values);
	CHECK(cudaDeviceSynchronize());
	CHECK(cudaIpcCloseMemHandle(values));
	return 0;
}

int main(int argc, char **argv)
{
	char self[] = "/proc/self/exe", again[] = "child", *arguments[] = {argv[0], again, nullptr};
	unsigned *values = nullptr;
	posix_spawn_file_actions_t actions;
	cudaEvent_t event;
	shared handles;
	int pipe_ends[2], status;
	pid_t pid;

	if (argc > 1)
		return child();
	values = allocate<unsigned>(COUNT);
	CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventInterprocess));
	CHECK(cudaIpcGetMemHandle(&handles.memory, values));
	CHECK(cudaIpcGetEventHandle(&handles.event, event));
	produce<<<COUNT / 128, 128>>>(values);
	CHECK(cudaEventRecord(event, 0));
	OK(pipe(pipe_ends));
	OK(posix_spawn_file_actions_init(&actions));
	OK(posix_spawn_file_actions_adddup2(&actions, pipe_ends[0], 0));
	OK(posix_spawn(&pid, self, &actions, nullptr, arguments, environ));
	if (write(pipe_ends[1], &handles, sizeof(handles)) != sizeof(handles) ||
	    waitpid(pid, &status, 0) != pid)
		return 1;
	printf("child: exit %d\n", WEXITSTATUS(status));
	print_result("turned by the child", values, COUNT);
	return 0;
}
