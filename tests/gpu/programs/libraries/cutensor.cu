// SPDX-License-Identifier: Apache-2.0
// cuTENSOR: a contraction over two modes and a permutation, of small whole numbers.
#include <cstdint>
#include <library_types.h>
#include "library.h"

typedef int create(void **);
typedef int describe(void *, void **, uint32_t, const int64_t *, const int64_t *, cudaDataType_t,
		     uint32_t);
typedef int contraction(void *, void **, void *, const int *, int, void *, const int *, int, void *,
			const int *, int, void *, const int *, void *);
typedef int permutation(void *, void **, void *, const int *, int, void *, const int *, void *);
typedef int prefer(void *, void **, int, int);
typedef int estimate(void *, void *, void *, int, uint64_t *);
typedef int plan_of(void *, void **, void *, void *, uint64_t);
typedef int contract(void *, void *, const void *, const void *, const void *, const void *,
		     const void *, void *, void *, uint64_t, cudaStream_t);
typedef int permute(void *, void *, const void *, const void *, void *, cudaStream_t);

enum { IDENTITY = 1, ALGORITHM_DEFAULT = -1, NO_JIT = 0, WORKSPACE_DEFAULT = 2 };

static void *library, *handle, *preference;

static void *tensor(std::initializer_list<int64_t> extents)
{
	void *description;

	OK(function_of<describe>(library, "cutensorCreateTensorDescriptor")(
		handle, &description, extents.size(), extents.begin(), nullptr, CUDA_R_32F, 128));
	return description;
}

int main()
{
	// c[i,j,m] = a[i,k,l,j] b[l,m,k]; then d[m,i,j] = c[i,j,m]
	const int modes_a[] = {'i', 'k', 'l', 'j'}, modes_b[] = {'l', 'm', 'k'},
		  modes_c[] = {'i', 'j', 'm'}, modes_d[] = {'m', 'i', 'j'};
	float *a = small_numbers<float>(32 * 16 * 24 * 20), *b = small_numbers<float>(24 * 40 * 16),
	      *c = allocate<float>(32 * 20 * 40);
	float *d = allocate<float>(32 * 20 * 40), one = 1, zero = 0;
	void *a_tensor, *b_tensor, *c_tensor, *d_tensor, *single, *operation, *plan;
	uint64_t size = 0;

	library = open_library("libcutensor.so.2");
	single = *function_of<void *>(library, "CUTENSOR_COMPUTE_DESC_32F");
	OK(function_of<create>(library, "cutensorCreate")(&handle));
	OK(function_of<prefer>(library, "cutensorCreatePlanPreference")(handle, &preference,
									ALGORITHM_DEFAULT, NO_JIT));
	a_tensor = tensor({32, 16, 24, 20});
	b_tensor = tensor({24, 40, 16});
	c_tensor = tensor({32, 20, 40});
	d_tensor = tensor({40, 32, 20});
	OK(function_of<contraction>(library, "cutensorCreateContraction")(
		handle, &operation, a_tensor, modes_a, IDENTITY, b_tensor, modes_b, IDENTITY,
		c_tensor, modes_c, IDENTITY, c_tensor, modes_c, single));
	OK(function_of<estimate>(library, "cutensorEstimateWorkspaceSize")(
		handle, operation, preference, WORKSPACE_DEFAULT, &size));
	OK(function_of<plan_of>(library, "cutensorCreatePlan")(handle, &plan, operation, preference,
							       size));
	OK(function_of<contract>(library, "cutensorContract")(handle, plan, &one, a, b, &zero, c, c,
							      allocate<char>(size + 1), size, 0));
	print_result("contraction", c, 32 * 20 * 40);
	OK(function_of<permutation>(library, "cutensorCreatePermutation")(
		handle, &operation, c_tensor, modes_c, IDENTITY, d_tensor, modes_d, single));
	OK(function_of<plan_of>(library, "cutensorCreatePlan")(handle, &plan, operation, preference,
							       size));
	OK(function_of<permute>(library, "cutensorPermute")(handle, plan, &one, c, d, 0));
	print_result("permutation", d, 32 * 20 * 40);
	return 0;
}
