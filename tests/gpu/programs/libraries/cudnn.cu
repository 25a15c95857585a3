// SPDX-License-Identifier: Apache-2.0
// cuDNN: convolutions by three algorithms, a softmax, a pooling. The convolutions are of small
// whole numbers: exact in any order.
#include <cudnn.h>
#include "../result.h"

#define IMAGES 4
#define CHANNELS 16
#define FILTERS 24
#define SIZE 32

int main()
{
	float *x = small_numbers<float>(IMAGES * CHANNELS * SIZE * SIZE),
	      *w = small_numbers<float>(FILTERS * CHANNELS * 3 * 3, 5);
	float *y = allocate<float>(IMAGES * FILTERS * SIZE * SIZE),
	      *z = allocate<float>(IMAGES * FILTERS * SIZE * SIZE), one = 1, zero = 0;
	cudnnTensorDescriptor_t in, out, half;
	cudnnConvolutionDescriptor_t convolution;
	cudnnPoolingDescriptor_t pooling;
	cudnnFilterDescriptor_t filter;
	cudnnHandle_t handle;
	size_t size = 0;

	OK(cudnnCreate(&handle));
	OK(cudnnCreateTensorDescriptor(&in));
	OK(cudnnCreateTensorDescriptor(&out));
	OK(cudnnCreateTensorDescriptor(&half));
	OK(cudnnCreateFilterDescriptor(&filter));
	OK(cudnnCreateConvolutionDescriptor(&convolution));
	OK(cudnnCreatePoolingDescriptor(&pooling));
	OK(cudnnSetTensor4dDescriptor(in, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, IMAGES, CHANNELS,
				      SIZE, SIZE));
	OK(cudnnSetTensor4dDescriptor(out, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, IMAGES, FILTERS,
				      SIZE, SIZE));
	OK(cudnnSetTensor4dDescriptor(half, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, IMAGES, FILTERS,
				      SIZE / 2, SIZE / 2));
	OK(cudnnSetFilter4dDescriptor(filter, CUDNN_DATA_FLOAT, CUDNN_TENSOR_NCHW, FILTERS,
				      CHANNELS, 3, 3));
	OK(cudnnSetConvolution2dDescriptor(convolution, 1, 1, 1, 1, 1, 1, CUDNN_CROSS_CORRELATION,
					   CUDNN_DATA_FLOAT));
	for (auto algorithm :
	     {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM,
	      CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_GEMM}) {
		TRY(cudnnGetConvolutionForwardWorkspaceSize(handle, in, filter, convolution, out,
							    algorithm, &size));
		TRY(cudnnConvolutionForward(handle, &one, in, x, filter, w, convolution, algorithm,
					    allocate<char>(size + 1), size, &zero, out, y));
		print_result("convolution", y, IMAGES * FILTERS * SIZE * SIZE);
	}
	OK(cudnnSoftmaxForward(handle, CUDNN_SOFTMAX_ACCURATE, CUDNN_SOFTMAX_MODE_CHANNEL, &one,
			       out, y, &zero, out, z));
	print_result("softmax", z, IMAGES * FILTERS * SIZE * SIZE);
	OK(cudnnSetPooling2dDescriptor(pooling, CUDNN_POOLING_MAX, CUDNN_NOT_PROPAGATE_NAN, 2, 2, 0,
				       0, 2, 2));
	OK(cudnnPoolingForward(handle, pooling, &one, out, y, &zero, half, z));
	print_result("pooling", z, IMAGES * FILTERS * SIZE * SIZE / 4);
	OK(cudnnDestroy(handle));
	return 0;
}
