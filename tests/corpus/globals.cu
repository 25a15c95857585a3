// SPDX-License-Identifier: Apache-2.0
// corpus: nvrtc clang flags= -G -lineinfo -rdc=true
// Variables: the constant bank full to the last byte, so that no slot of a program has room in it; large, initialised,
// aligned ones, and ones that hold addresses of others.
struct node {
	const node *next;
	const char *name;
	short numbers[3];
};

extern __device__ node last;
__constant__ unsigned char bank[65536 - 4 * 256];
__constant__ double table[64] = { 1, 2.5, -3e300, 0x1p-1074 };
__constant__ __align__(256) float matrix[64];
__constant__ const char *names[32] = { "a", "} ret;", "\"", "c" };
__device__ float large[64 << 20];
__device__ __align__(128) unsigned int counters[33] = { 1, 2, 3 };
__device__ node first = { &last, "first", { 1, -2, 3 } };
__device__ node last = { nullptr, "last", { 4, 5 } };
static __device__ volatile int hidden;
__device__ float unusual[] = { 3e38f, -0.f, 1e-45f };
template <int N> __device__ int kept[N];

extern "C" __global__ void uses(int i, float *out)
{
	__shared__ unsigned char bytes[3];
	static __shared__ double doubles[5];
	static __device__ int calls;

	bytes[i] = bank[i];
	doubles[i] = table[i] + matrix[i];
	large[i] += unusual[i];
	hidden = names[i][0] + atomicAdd(&calls, 1) + kept<7>[i];
	for (const node *n = &first; n && i--; n = n->next)
		out[i] = n->numbers[1] + n->name[0] + bytes[i] + doubles[i];
	__threadfence_system();
	counters[i] ^= hidden;
}

// Its own constants must not become another's.
extern "C" __global__ void uses_none(float *out)
{
	out[threadIdx.x] = sinf(out[0] * 1e6f);
}
