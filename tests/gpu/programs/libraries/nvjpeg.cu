// SPDX-License-Identifier: Apache-2.0
// nvJPEG: an image encoded, and decoded again.
#include "library.h"

#define WIDTH 320
#define HEIGHT 200

struct image { // nvjpegImage_t
	unsigned char *channel[4];
	size_t pitch[4];
};

typedef int create(void **);
typedef int create_of(void *, void **);
typedef int create_on(void *, void **, cudaStream_t);
typedef int set(void *, int, cudaStream_t);
typedef int encode(void *, void *, void *, const image *, int, int, int, cudaStream_t);
typedef int retrieve(void *, void *, unsigned char *, size_t *, cudaStream_t);
typedef int decode(void *, void *, const unsigned char *, size_t, int, image *, cudaStream_t);

enum { RGB_INTERLEAVED = 5, CSS_444 = 0 };

__global__ void draw(unsigned char *pixels)
{
	unsigned x = blockIdx.x, y = threadIdx.x;

	for (int c = 0; c < 3; c++)
		pixels[(y * WIDTH + x) * 3 + c] =
			(x * (c + 1) + y * (3 - c) + (x / 16 ^ y / 16) * 8) & 255;
}

int main()
{
	unsigned char *pixels = allocate<unsigned char>(WIDTH * HEIGHT * 3),
		      *back = allocate<unsigned char>(WIDTH * HEIGHT * 3);
	image in = {{pixels}, {WIDTH * 3}}, out = {{back}, {WIDTH * 3}};
	void *library = open_library("libnvjpeg.so.13"), *handle, *state, *encoder, *parameters;
	unsigned long long hash = 0xcbf29ce484222325ull;
	std::vector<unsigned char> file;
	size_t size;

	draw<<<WIDTH, HEIGHT>>>(pixels);
	OK(function_of<create>(library, "nvjpegCreateSimple")(&handle));
	OK(function_of<create_of>(library, "nvjpegJpegStateCreate")(handle, &state));
	OK(function_of<create_on>(library, "nvjpegEncoderStateCreate")(handle, &encoder, 0));
	OK(function_of<create_on>(library, "nvjpegEncoderParamsCreate")(handle, &parameters, 0));
	OK(function_of<set>(library, "nvjpegEncoderParamsSetQuality")(parameters, 85, 0));
	OK(function_of<set>(library, "nvjpegEncoderParamsSetSamplingFactors")(parameters, CSS_444,
									      0));
	OK(function_of<encode>(library, "nvjpegEncodeImage")(handle, encoder, parameters, &in,
							     RGB_INTERLEAVED, WIDTH, HEIGHT, 0));
	OK(function_of<retrieve>(library, "nvjpegEncodeRetrieveBitstream")(handle, encoder, nullptr,
									   &size, 0));
	file.resize(size);
	OK(function_of<retrieve>(library, "nvjpegEncodeRetrieveBitstream")(handle, encoder,
									   file.data(), &size, 0));
	CHECK(cudaDeviceSynchronize());
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ file[i]) * 0x100000001b3ull;
	printf("file of %zu bytes %016llx\n", size, hash);
	OK(function_of<decode>(library, "nvjpegDecode")(handle, state, file.data(), size,
							RGB_INTERLEAVED, &out, 0));
	print_result("decoded", back, WIDTH * HEIGHT * 3);
	return 0;
}
