// Matrix products on a GPU, by cuBLASLt.
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/gemm/gemm_plans.h"

namespace trimtab {
namespace {

void GemmCuda(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
              const GemmOptions& options);

GemmOperands OperandsOf(const GemmKey& key, const Tensor& a, const Tensor& b, const Tensor& c,
                        const GemmOptions& options) {
  GemmOperands operands = {.a = a.raw(), .b = b.raw(), .out = c.raw()};
  if (key.accumulate) operands.added = c.raw();
  switch (key.extra) {
    case GemmExtra::kNone:
    case GemmExtra::kRowSums:
      break;
    case GemmExtra::kAddend:
      operands.added = options.addend.raw();
      break;
    case GemmExtra::kGelu:
      operands.out = options.gelu.raw();
      operands.auxiliary = c.raw();
      break;
    case GemmExtra::kGeluOf:
      operands.auxiliary = options.gelu_of.raw();
      break;
  }
  return operands;
}

/// A product whose epilogue cuBLASLt does not have, and then what that would have done.
void GemmThenExtra(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b,
                   Tensor& c, const GemmOptions& options) {
  constexpr ActivationFunction kGelu = ActivationFunction::kGelu;
  const auto kernel = [&](auto entry) { return CudaKernel(c.device(), OpKind::kGemm, entry); };
  GemmOptions plain = options;
  plain.gelu = plain.gelu_of = plain.row_sums = {};
  GemmCuda(a, trans_a, b, trans_b, c, plain);
  if (Tensor gelu = options.gelu; gelu.defined()) {
    kernel (&CudaOps::activation_forward)(kGelu, c, gelu);
  } else if (options.gelu_of.defined()) {
    kernel (&CudaOps::activation_backward)(kGelu, options.gelu_of, c, c);
  } else if (Tensor sums = options.row_sums; sums.defined()) {
    kernel (&CudaOps::bias_backward)(a, sums, /*accumulate=*/false);
  }
}

/// The first call of a kind of product outside a capture also chooses its algorithm, which takes a
/// few dozen runs.
void GemmCuda(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
              const GemmOptions& options) {
  if (c.numel() == 0) return;
  auto& device = static_cast<CudaDevice&>(c.device());
  const GemmKey key = KeyOf(a, trans_a, b, trans_b, c, options);
  if (key.k == 0) {
    TRIMTAB_ASSERT(!key.bias && key.extra == GemmExtra::kNone,
                   "gemm: no k to sum over, and more to do with {} columns", key.n);
    if (!key.accumulate) {
      TRIMTAB_CUDA_CHECK(
          cudaMemsetAsync(c.raw(), 0, static_cast<size_t>(c.bytes()), device.Activate()));
    }
    return;
  }
  const GemmOperands operands = OperandsOf(key, a, b, c, options);
  const bool possible = !HasEpilogue(key) || BrokenRule(key).empty();
  const GemmPlan* plan =
      possible ? device.State<GemmPlans>().Find(device, key, operands, options) : nullptr;
  if (plan == nullptr) return GemmThenExtra(a, trans_a, b, trans_b, c, options);
  RunGemm(device, *plan, plan->algorithm, operands);
}

}  // namespace

void FillGemmOps(CudaOps& ops) { ops.gemm = GemmCuda; }

}  // namespace trimtab
