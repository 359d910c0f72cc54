// Matrix products on a GPU, by cuBLASLt.
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/cuda/fill.h"
#include "engine/ops/cuda/gemm_plans.h"

namespace trimtab {
namespace {

/// The first call of a kind of product outside a capture also chooses its algorithm, which takes a
/// few dozen runs.
void GemmCuda(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
              const GemmOptions& options) {
  if (c.numel() == 0) return;
  auto& device = static_cast<CudaDevice&>(c.device());
  const GemmKey key = KeyOf(a, trans_a, b, trans_b, c, options);
  if (key.k == 0) {
    TRIMTAB_ASSERT(!key.bias, "gemm: no k to sum over, and a bias of {} columns", key.n);
    if (!key.accumulate) {
      TRIMTAB_CUDA_CHECK(
          cudaMemsetAsync(c.raw(), 0, static_cast<size_t>(c.bytes()), device.Activate()));
    }
    return;
  }
  const GemmOperands operands{a.raw(), b.raw(), c.raw()};
  const GemmPlan& plan = device.State<GemmPlans>().Get(device, key, operands, options);
  RunGemm(device, plan, plan.algorithm, operands, key.accumulate);
}

}  // namespace

void FillGemmOps(CudaOps& ops) { ops.gemm = GemmCuda; }

}  // namespace trimtab
