// SPDX-License-Identifier: Apache-2.0
// corpus: only=90a needs=cutlass flags=
// A warp-specialised matrix product of CUTLASS 3: TMA, mbarriers, wgmma, setmaxnreg, clusters. judge.py --cutlass says where it is.
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

using namespace cute;
using half_float = cutlass::half_t;
using row = cutlass::layout::RowMajor;
using column = cutlass::layout::ColumnMajor;
using tile = Shape<_128, _128, _64>;
using cluster = Shape<_2, _1, _1>;
using end = typename cutlass::epilogue::collective::CollectiveBuilder<
	cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, tile, cluster, cutlass::epilogue::collective::EpilogueTileAuto, float, float,
	half_float, row, 8, half_float, row, 8, cutlass::epilogue::TmaWarpSpecializedCooperative>::CollectiveOp;
using loop = typename cutlass::gemm::collective::CollectiveBuilder<
	cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, half_float, row, 8, half_float, column, 8, float, tile, cluster,
	cutlass::gemm::collective::StageCountAutoCarveout<int(sizeof(typename end::SharedStorage))>,
	cutlass::gemm::KernelTmaWarpSpecializedCooperative>::CollectiveOp;
using kernel = cutlass::gemm::kernel::GemmUniversal<Shape<int, int, int, int>, loop, end>;

void launch(typename kernel::Params params)
{
	cutlass::device_kernel<kernel><<<1, kernel::MaxThreadsPerBlock, kernel::SharedStorageSize>>>(params);
}
