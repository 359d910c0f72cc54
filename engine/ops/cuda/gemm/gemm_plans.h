// Which of cuBLASLt's algorithms runs a product: chosen once per kind of product and device.
// Products whose rows vary, those of experts, share a choice with others of about as many rows.
#pragma once

#include <optional>

#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/cuda/gemm/gemm_descriptors.h"
#include "engine/ops/cuda/gemm/gemm_plan_cache.h"

namespace trimtab {

/// A product that is ready to run.
struct GemmPlan {
  GemmKey key;
  GemmDescriptors descriptors;
  cublasLtMatmulAlgo_t algorithm{};
  BucketAlgorithms<cublasLtMatmulAlgo_t> of_sizes{};  // of the size that varies, or of one
};

/// The addresses of one call: our a and b, and cuBLASLt's C and D.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  const void* added = nullptr;  // null: nothing is
  void* out = nullptr;
  void* auxiliary = nullptr;  // or null
};

/// out = op(a) op(b) (+ added), and what the plan's epilogue makes of it, on the device's stream.
/// Throws EnvironmentError if the algorithm does not run, which cuBLASLt may only notice here.
void RunGemm(CudaDevice& device, const GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
             const GemmOperands& operands);

/// The plans of one device.
class GemmPlans {
 public:
  /// The plan of `key`; its pointers are those of `options`. At the first call of a key up to eight
  /// algorithms that cuBLASLt proposes are timed on the operands (c is not disturbed if it is added
  /// to), and the fastest is kept. A deterministic device takes the first proposal, which does not
  /// depend on timing; so does a call within a capture, where nothing may be waited for: run a
  /// shape once before capturing it. Varying sizes are timed once per bucket, on what comes first;
  /// on a deterministic device, whose choice must not depend on that, each size has its own plan.
  /// A size of the bucket that the bucket's algorithm does not run takes the first proposal for it;
  /// cuBLASLt is asked once per size.
  /// The plans used last are kept, some thousands of them. When cuBLASLt has no algorithm, or runs
  /// none, that is nullptr for a product with an epilogue of its own; for any other it throws
  /// EnvironmentError.
  const GemmPlan* Find(CudaDevice& device, const GemmKey& key, const GemmOperands& operands,
                       const GemmOptions& options);

 private:
  static constexpr size_t kMostPlans = 4096;
  // nullopt where there is no algorithm.
  using Plans = PlanCache<GemmKey, std::optional<GemmPlan>>;
  Plans plans_{kMostPlans};
  Plans untimed_{kMostPlans};  // of captures
};

}  // namespace trimtab
