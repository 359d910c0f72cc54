// Which of cuBLASLt's algorithms runs a product: chosen once per kind of product and device.
#pragma once

#include <map>

#include "engine/device/cuda/cuda_device.h"
#include "engine/ops/cuda/gemm_descriptors.h"

namespace trimtab {

/// A product that is ready to run.
struct GemmPlan {
  GemmDescriptors descriptors;
  cublasLtMatmulAlgo_t algorithm{};
};

/// The addresses of one call, in our order.
struct GemmOperands {
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
};

/// c = op(a) op(b) (+ c), on the device's stream.
void RunGemm(CudaDevice& device, const GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
             const GemmOperands& operands, bool accumulate);

/// The plans of one device.
class GemmPlans {
 public:
  /// The plan of `key`; its pointers are those of `options`. At the first call of a key up to eight
  /// algorithms that cuBLASLt proposes are timed on the operands (c is not disturbed if it is added
  /// to), and the fastest is kept. A deterministic device takes the first proposal, which does not
  /// depend on timing; so does a call within a capture, where nothing may be waited for: run a
  /// shape once before capturing it. Throws EnvironmentError when cuBLASLt has no algorithm.
  const GemmPlan& Get(CudaDevice& device, const GemmKey& key, const GemmOperands& operands,
                      const GemmOptions& options);

 private:
  std::map<GemmKey, GemmPlan> plans_;
  std::map<GemmKey, GemmPlan> untimed_;  // of captures
};

}  // namespace trimtab
