// SPDX-License-Identifier: Apache-2.0
/*
 * What probes cost: for one case the bare kernel, the kernel p_CASE that gpuprobe's program (probes.bpf.c) is attached to,
 * and h_CASE, which has the same written by hand in CUDA, interleaved in one process.
 *
 *   probes CASE [--size THREADS] [--rounds N]     (run under the shim with probes.bpf.o attached)
 *
 * All kernels have the same body, but for those of the cases with _gemm: a product of matrices of 2048 x 2048. Each sample is one replay of a CUDA graph of some launches; the figure is the median over the
 * rounds, in microseconds a launch. Prints one JSON object; "launches" is how often p_CASE ran per size, so that the driver can
 * check that the maps hold what they must.
 */
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>
#include <sys/mman.h>
#include <cuda_runtime.h>

#define CHECK(call)                                                                             \
	do {                                                                                    \
		cudaError_t error_ = (call);                                                    \
		if (error_ != cudaSuccess) {                                                    \
			fprintf(stderr, "probes: %s: %s\n", #call, cudaGetErrorString(error_)); \
			exit(1);                                                                \
		}                                                                               \
	} while (0)

typedef unsigned long long u64;

#define SLOT_STRIDE 16 /* counters per SM, on lines of their own */
#define RINGS 128
#define THREADS_MAX 16777216

struct slots {
	u64 values[256 * SLOT_STRIDE];
};

/* A ring in host memory; its head in device memory. */
struct ring {
	u64 head, tail, lost, base;
	u64 pad[12];
};

struct key_value {
	u64 key, value; /* key 0: free */
};

__device__ slots hand_first, hand_second;
__device__ u64 hand_table[16], hand_updated, hand_spread[1 << 16];
__constant__ u64 *hand_threads;
__constant__ key_value *hand_hash;
__constant__ ring *hand_rings;
__constant__ u64 hand_ring_size;
__device__ ulonglong2 hand_warps[1 << 19];

__device__ __forceinline__ unsigned lane_id()
{
	unsigned lane;

	asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
	return lane;
}

__device__ __forceinline__ unsigned sm_id()
{
	unsigned sm;

	asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
	return sm;
}

__device__ __forceinline__ u64 timer()
{
	u64 time;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
	return time;
}

__device__ __forceinline__ void hand_count(slots *slots)
{
	unsigned mask = __activemask();

	if (lane_id() == __ffs(mask) - 1)
		atomicAdd(slots->values + (sm_id() & 255) * SLOT_STRIDE, (u64)__popc(mask));
}

__device__ __forceinline__ void hand_increment(u64 key, u64 capacity)
{
	u64 hash = (key + 1) * 0x9e3779b97f4a7c15ull;
	u64 at = (hash ^ hash >> 32) & (capacity - 1);

	for (;; at = (at + 1) & (capacity - 1)) {
		u64 seen = hand_hash[at].key;

		if (seen == 0)
			seen = atomicCAS(&hand_hash[at].key, 0ull, key + 1);
		if (seen == 0 || seen == key + 1) {
			atomicAdd(&hand_hash[at].value, 1ull);
			return;
		}
	}
}

/* Transposes the warp's events through shuffles, so that it stores runs of 512 bytes. */
__device__ __forceinline__ void hand_event()
{
	unsigned mask = __activemask(), lane = lane_id(), leader = __ffs(mask) - 1, count = __popc(mask);
	unsigned rank = __popc(mask & ((1u << lane) - 1));
	ring *ring = hand_rings + (sm_id() & (RINGS - 1));
	u64 size = hand_ring_size, need = 32 + count * 32, position = ~0ull;

	if (lane == leader) {
		u64 head = *(volatile u64 *)&ring->head;

		for (;;) {
			u64 at = head & (size - 1), skip = at + need > size ? size - at : 0, was;

			if (head + skip + need - *(volatile u64 *)&ring->tail > size) {
				atomicAdd(&ring->lost, (u64)count);
				break;
			}
			was = atomicCAS(&ring->head, head, head + skip + need);
			if (was == head) {
				position = head + skip;
				break;
			}
			head = was;
		}
	}
	position = __shfl_sync(mask, position, leader);
	if (position == ~0ull)
		return;
	u64 time = timer();
	uint4 first = make_uint4((unsigned)time, (unsigned)(time >> 32), blockIdx.x, 0), second = make_uint4(threadIdx.x, 0, 0, 0);
	char *batch = (char *)ring->base + (position & (size - 1));
	uint4 *out = (uint4 *)(batch + 32);

#pragma unroll
	for (unsigned part = 0; part < 2; part++) {
		unsigned word = part * count + rank, source = mask == ~0u ? word / 2 : __fns(mask, 0, word / 2 + 1);
		uint4 x, y;

		x.x = __shfl_sync(mask, first.x, source);
		x.y = __shfl_sync(mask, first.y, source);
		x.z = __shfl_sync(mask, first.z, source);
		x.w = __shfl_sync(mask, first.w, source);
		y.x = __shfl_sync(mask, second.x, source);
		y.y = __shfl_sync(mask, second.y, source);
		y.z = __shfl_sync(mask, second.z, source);
		y.w = __shfl_sync(mask, second.w, source);
		out[word] = word & 1 ? y : x;
	}
	__syncwarp(mask);
	if (lane == leader) {
		__threadfence_system();
		*(ulonglong2 *)batch = make_ulonglong2((position + 1) * 0x9e3779b97f4a7c15ull, (u64)count << 32 | 32);
	}
}

#define KERNEL(NAME, BEFORE, LOAD, STORE)                                          \
	extern "C" __global__ void NAME(const float *a, const float *b, float *c)  \
	{                                                                          \
		size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;          \
                                                                                   \
		BEFORE;                                                            \
		LOAD;                                                              \
		float left = a[i];                                                 \
		LOAD;                                                              \
		float right = b[i];                                                \
		STORE;                                                             \
		c[i] = left + right;                                               \
	}
#define NOTHING (void)0
#define PROBED(CASE) KERNEL(p_##CASE, NOTHING, NOTHING, NOTHING)
#define HAND(CASE, BEFORE) KERNEL(h_##CASE, BEFORE, NOTHING, NOTHING)

KERNEL(bare, NOTHING, NOTHING, NOTHING)
PROBED(empty)
PROBED(entry)
PROBED(return)
PROBED(both)
PROBED(globaltimer)
PROBED(lookup)
PROBED(fill)
PROBED(update)
PROBED(spread)
PROBED(thread)
PROBED(hash1)
PROBED(hash256)
PROBED(hash1m)
PROBED(ring32)
PROBED(memory)
HAND(empty, NOTHING)
HAND(entry, hand_count(&hand_first))
extern "C" __global__ void h_return(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	c[i] = a[i] + b[i];
	hand_count(&hand_first);
}
extern "C" __global__ void h_both(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;

	hand_count(&hand_first);
	c[i] = a[i] + b[i];
	hand_count(&hand_second);
}
HAND(globaltimer, if (!(timer() & 0xffe0)) hand_count(&hand_first))
HAND(lookup, if (hand_table[3]) hand_count(&hand_first))
HAND(update, hand_updated = i + 1)
HAND(spread, hand_spread[i & 0xffff] = i + 1)
HAND(thread, if (i < THREADS_MAX) hand_threads[i]++)
HAND(hash1, hand_increment(0, 64))
HAND(hash256, hand_increment(i & 255, 512))
HAND(hash1m, hand_increment(i & 0xfffff, 1 << 21))
HAND(ring32, hand_event())
KERNEL(h_memory, NOTHING, hand_count(&hand_first), hand_count(&hand_first))

/* What a warp's first lane sees; 16 bytes a warp, stored at the end. */
__device__ __forceinline__ void hand_warp(u64 begin)
{
	if (lane_id() == 0)
		hand_warps[(blockIdx.x * blockDim.x + threadIdx.x) / 32] = make_ulonglong2(begin, timer() - begin);
}

/* Adds up what the lanes have. */
__device__ __forceinline__ void hand_add(slots *slots, u64 value)
{
	for (unsigned distance = 16; distance; distance /= 2)
		value += __shfl_xor_sync(~0u, value, distance);
	if (lane_id() == 0)
		atomicAdd(slots->values + (sm_id() & 255) * SLOT_STRIDE, value);
}

extern "C" __global__ void h_sched(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	u64 begin = lane_id() == 0 ? timer() : 0;

	c[i] = a[i] + b[i];
	hand_warp(begin);
}

extern "C" __global__ void h_bytes(const float *a, const float *b, float *c)
{
	size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
	u64 bytes = 3 * sizeof(float);

	c[i] = a[i] + b[i];
	hand_add(&hand_first, bytes);
}

PROBED(sched)
PROBED(bytes)

/* A tile of 32 x 32 a block of 256 threads. Returns the bytes of global memory that the thread has moved. */
#define GEMM_SIZE 2048
#define GEMM_THREADS (GEMM_SIZE / 32 * GEMM_SIZE / 32 * 256)

__device__ __forceinline__ u64 gemm(const float *a, const float *b, float *c)
{
	__shared__ float left[32][33], right[32][33];
	unsigned row = blockIdx.x / (GEMM_SIZE / 32) * 32 + threadIdx.x / 32, y = threadIdx.x / 32;
	unsigned column = blockIdx.x % (GEMM_SIZE / 32) * 32 + threadIdx.x % 32, x = threadIdx.x % 32;
	float sum[4] = {};
	u64 bytes = 0;

	for (unsigned at = 0; at < GEMM_SIZE; at += 32) {
#pragma unroll
		for (unsigned i = 0; i < 32; i += 8) {
			left[y + i][x] = a[(row + i) * GEMM_SIZE + at + x];
			right[y + i][x] = b[(at + y + i) * GEMM_SIZE + column];
			bytes += 2 * sizeof(float);
		}
		__syncthreads();
#pragma unroll
		for (unsigned k = 0; k < 32; k++)
#pragma unroll
			for (unsigned i = 0; i < 4; i++)
				sum[i] += left[y + 8 * i][k] * right[k][x];
		__syncthreads();
	}
#pragma unroll
	for (unsigned i = 0; i < 4; i++) {
		c[(row + 8 * i) * GEMM_SIZE + column] = sum[i];
		bytes += sizeof(float);
	}
	return bytes;
}

#define GEMM(NAME)                                                                \
	extern "C" __global__ void NAME(const float *a, const float *b, float *c) \
	{                                                                         \
		gemm(a, b, c);                                                    \
	}
GEMM(bare_gemm)
GEMM(p_sched_gemm)
GEMM(p_bytes_gemm)

extern "C" __global__ void h_sched_gemm(const float *a, const float *b, float *c)
{
	u64 begin = lane_id() == 0 ? timer() : 0;

	gemm(a, b, c);
	hand_warp(begin);
}

extern "C" __global__ void h_bytes_gemm(const float *a, const float *b, float *c)
{
	hand_add(&hand_first, gemm(a, b, c));
}

typedef void kernel(const float *, const float *, float *);

static const struct {
	const char *name;
	kernel *bare, *probed, *hand;
	size_t threads; /* 0: of many sizes */
} cases[] = {
#define CASE(NAME) { #NAME, bare, p_##NAME, h_##NAME, 0 }
#define GEMM_CASE(NAME) { #NAME, bare_gemm, p_##NAME, h_##NAME, GEMM_THREADS }
	CASE(empty), CASE(entry), CASE(return), CASE(both), CASE(globaltimer), CASE(lookup), CASE(update), CASE(spread),
	CASE(thread), CASE(hash1), CASE(hash256), CASE(hash1m), CASE(ring32), CASE(memory),
	CASE(sched), CASE(bytes), GEMM_CASE(sched_gemm), GEMM_CASE(bytes_gemm),
};

enum { BARE, OURS, HAND_WRITTEN, VARIANTS };

static float *a, *b, *c;
static cudaStream_t stream;
static cudaEvent_t start, stop;

static void launch(kernel *kernel, size_t threads)
{
	unsigned block = threads < 256 ? threads : 256;

	kernel<<<threads / block, block, 0, stream>>>(a, b, c);
	CHECK(cudaGetLastError());
}

static cudaGraphExec_t build(kernel *kernel, int nodes, size_t threads)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;

	CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	for (int i = 0; i < nodes; i++)
		launch(kernel, threads);
	CHECK(cudaStreamEndCapture(stream, &graph));
	CHECK(cudaGraphInstantiate(&exec, graph, 0));
	CHECK(cudaGraphDestroy(graph));
	return exec;
}

static double median(std::vector<float> values)
{
	std::sort(values.begin(), values.end());
	return values[values.size() / 2];
}

/* The memory of what is written by hand. */
static char *prepare(const char *name, u64 ring_size)
{
	char *host = nullptr;
	void *memory;

	CHECK(cudaMalloc(&memory, THREADS_MAX * sizeof(u64)));
	CHECK(cudaMemset(memory, 0, THREADS_MAX * sizeof(u64)));
	CHECK(cudaMemcpyToSymbol(hand_threads, &memory, sizeof(memory)));
	CHECK(cudaMalloc(&memory, sizeof(key_value) << 21));
	CHECK(cudaMemset(memory, 0, sizeof(key_value) << 21));
	CHECK(cudaMemcpyToSymbol(hand_hash, &memory, sizeof(memory)));
	CHECK(cudaMalloc(&memory, RINGS * sizeof(ring)));
	CHECK(cudaMemcpyToSymbol(hand_rings, &memory, sizeof(memory)));
	CHECK(cudaMemcpyToSymbol(hand_ring_size, &ring_size, sizeof(ring_size)));
	if (strcmp(name, "ring32") == 0) {
		host = (char *)mmap(nullptr, RINGS * ring_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (host == MAP_FAILED) {
			perror("probes: mmap");
			exit(1);
		}
		CHECK(cudaHostRegister(host, RINGS * ring_size, cudaHostRegisterMapped | cudaHostRegisterPortable));
		std::vector<ring> rings(RINGS);

		for (int i = 0; i < RINGS; i++)
			rings[i].base = (u64)(host + i * ring_size);
		CHECK(cudaMemcpy(memory, rings.data(), RINGS * sizeof(ring), cudaMemcpyHostToDevice));
	}
	return host;
}

/* One size: prints an object. */
static void measure(size_t which, size_t threads, int rounds, char *host, u64 ring_size)
{
	kernel *const variants[VARIANTS] = {cases[which].bare, cases[which].probed, cases[which].hand};
	int nodes = threads > 1000000 ? (threads > 10000000 ? 10 : 50) : 200, warm = 3;
	std::vector<float> times[VARIANTS];
	cudaGraphExec_t exec[VARIANTS];

	if (host) { /* as long as the rings have room: nobody empties them */
		u64 room = RINGS * ring_size / (threads * 34);

		nodes = room >= 120 ? 10 : 1;
		warm = 1;
		rounds = std::min<u64>(rounds, std::max<u64>(2, room * 9 / 10 / nodes) - warm);
	}
	for (int v = 0; v < VARIANTS; v++)
		exec[v] = build(variants[v], nodes, threads);
	for (int r = -warm; r < rounds; r++)
		for (int k = 0; k < VARIANTS; k++) {
			int v = (k + r + warm) % VARIANTS; /* each goes first equally often */
			float ms;

			CHECK(cudaEventRecord(start, stream));
			CHECK(cudaGraphLaunch(exec[v], stream));
			CHECK(cudaEventRecord(stop, stream));
			CHECK(cudaEventSynchronize(stop));
			CHECK(cudaEventElapsedTime(&ms, start, stop));
			if (r >= 0)
				times[v].push_back(ms * 1000 / nodes);
		}
	for (int v = 0; v < VARIANTS; v++)
		CHECK(cudaGraphExecDestroy(exec[v]));
	double bare_us = median(times[BARE]), ours = median(times[OURS]), hand = median(times[HAND_WRITTEN]);

	printf("{\"threads\": %zu, \"ours_to_bare\": %.4f, \"ours_to_hand\": %.4f, \"hand_to_bare\": %.4f, \"bare_us\": %.3f, "
	       "\"ours_us\": %.3f, \"hand_us\": %.3f, \"ours_per_s\": %.4g, \"launches\": %d}",
	       threads, ours / bare_us, ours / hand, hand / bare_us, bare_us, ours, hand, threads / ours * 1e6, nodes * (rounds + warm));
}

int main(int argc, char **argv)
{
	std::vector<size_t> sizes = {32, 1024, 10240, 102400, 1048576, THREADS_MAX};
	u64 ring_size = 16 << 20, threads_launched = 0;
	size_t which = 0, count = sizeof(cases) / sizeof(cases[0]);
	int rounds = 31;

	while (argc > 1 && which < count && strcmp(argv[1], cases[which].name))
		which++;
	for (int i = 2; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "--size"))
			sizes = {strtoull(argv[i + 1], nullptr, 10)};
		else if (!strcmp(argv[i], "--rounds"))
			rounds = atoi(argv[i + 1]);
		else
			which = count;
	}
	if (argc < 2 || argc % 2 || which == count || rounds < 1 || !sizes[0] || sizes[0] > THREADS_MAX) {
		fprintf(stderr, "usage: probes CASE [--size THREADS] [--rounds N]\ncases:");
		for (size_t i = 0; i < count; i++)
			fprintf(stderr, " %s", cases[i].name);
		fputc('\n', stderr);
		return 2;
	}
	if (cases[which].threads)
		sizes = {cases[which].threads};
	CHECK(cudaMalloc(&a, THREADS_MAX * sizeof(float)));
	CHECK(cudaMalloc(&b, THREADS_MAX * sizeof(float)));
	CHECK(cudaMalloc(&c, THREADS_MAX * sizeof(float)));
	CHECK(cudaMemset(a, 0, THREADS_MAX * sizeof(float)));
	CHECK(cudaMemset(b, 0, THREADS_MAX * sizeof(float)));
	CHECK(cudaStreamCreate(&stream));
	CHECK(cudaEventCreate(&start));
	CHECK(cudaEventCreate(&stop));
	char *host = prepare(cases[which].name, ring_size);

	printf("{\"case\": \"%s\", \"unit\": \"us per launch, median\", \"rounds\": %d, \"sizes\": [", cases[which].name, rounds);
	for (size_t i = 0; i < sizes.size(); i++) {
		printf("%s\n  ", i ? "," : "");
		measure(which, sizes[i], rounds, host, ring_size);
	}
	if (!strcmp(cases[which].name, "lookup")) { /* every thread finds something from now on */
		launch(p_fill, 32);
		launch(p_lookup, 1048576);
		CHECK(cudaStreamSynchronize(stream));
		threads_launched = 1048576;
	}
	printf("],\n \"checked_threads\": %llu}\n", threads_launched);
	return 0;
}
