// SPDX-License-Identifier: Apache-2.0
// NCCL with one rank on one GPU. It must not use NVLS, which takes what other users of the machine
// share.
#include <nccl.h>
#include "../result.h"

#define COUNT 100000

int main()
{
	float *in = small_numbers<float>(COUNT), *out = allocate<float>(COUNT);
	int device = 0, *words = small_numbers<int>(COUNT, 1000);
	ncclComm_t communicator;

	setenv("NCCL_NVLS_ENABLE", "0", 1);
	CHECK(cudaDeviceSynchronize());
	OK(ncclCommInitAll(&communicator, 1, &device));
	OK(ncclAllReduce(in, out, COUNT, ncclFloat, ncclSum, communicator, 0));
	print_result("all-reduce", out, COUNT);
	OK(ncclAllReduce(words, words, COUNT, ncclInt, ncclMax, communicator, 0));
	print_result("all-reduce in place", words, COUNT);
	OK(ncclBroadcast(in, out, COUNT, ncclFloat, 0, communicator, 0));
	print_result("broadcast", out, COUNT);
	OK(ncclCommDestroy(communicator));
	return 0;
}
