// SPDX-License-Identifier: Apache-2.0
// One launch that writes a surface; then one that reads it as a texture.
#include "../result.h"

#define SIZE 128

__global__ void draw(cudaSurfaceObject_t surface)
{
	unsigned x = blockIdx.x * blockDim.x + threadIdx.x,
		 y = blockIdx.y * blockDim.y + threadIdx.y;

	surf2Dwrite<unsigned>(x * y * 2654435761u + x, surface, x * sizeof(unsigned), y);
}

__global__ void look(cudaTextureObject_t texture, unsigned *out)
{
	unsigned x = blockIdx.x * blockDim.x + threadIdx.x,
		 y = blockIdx.y * blockDim.y + threadIdx.y;

	out[y * SIZE + x] = tex2D<unsigned>(texture, (float)y, (float)x);
}

int main(int argc, char **)
{
	cudaChannelFormatDesc format = cudaCreateChannelDesc<unsigned>();
	std::vector<unsigned> pixels(SIZE * SIZE);
	cudaResourceDesc resource = {};
	cudaTextureDesc sampling = {};
	cudaSurfaceObject_t surface;
	cudaTextureObject_t texture;
	unsigned long long sum = 0;
	cudaArray_t array;

	CHECK(cudaMallocArray(&array, &format, SIZE, SIZE, cudaArraySurfaceLoadStore));
	resource.resType = cudaResourceTypeArray;
	resource.res.array.array = array;
	CHECK(cudaCreateSurfaceObject(&surface, &resource));
	draw<<<dim3(SIZE / 16, SIZE / 16), dim3(16, 16)>>>(surface);
	CHECK(cudaMemcpy2DFromArray(pixels.data(), SIZE * sizeof(unsigned), array, 0, 0,
				    SIZE * sizeof(unsigned), SIZE, cudaMemcpyDeviceToHost));
	for (unsigned pixel : pixels)
		sum = sum * 31 + pixel;
	printf("surface %016llx\n", sum);
	first_result();
	if (argc == 1) { // with an argument, the one launch is all
		unsigned *out = allocate<unsigned>(SIZE * SIZE);

		sampling.readMode = cudaReadModeElementType;
		CHECK(cudaCreateTextureObject(&texture, &resource, &sampling, nullptr));
		look<<<dim3(SIZE / 16, SIZE / 16), dim3(16, 16)>>>(texture, out);
		print_result("texture", out, SIZE * SIZE);
	}
	return 0;
}
