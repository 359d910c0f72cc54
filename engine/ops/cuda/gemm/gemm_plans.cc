#include "engine/ops/cuda/gemm/gemm_plans.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/device/cuda/check.h"
#include "engine/device/cuda/stream.h"

namespace trimtab {
namespace {

constexpr int kProposals = 8;
constexpr int kRuns = 3;

/// What cuBLASLt proposes, most promising first.
std::vector<cublasLtMatmulAlgo_t> Proposals(CudaDevice& device, const GemmDescriptors& descriptors,
                                            int most) {
  std::array<cublasLtMatmulHeuristicResult_t, kProposals> results{};
  int found = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      device.cublas(), descriptors.operation(), descriptors.layout_a(), descriptors.layout_b(),
      descriptors.layout_c(), descriptors.layout_c(), descriptors.preference(), most,
      results.data(), &found);
  if (status != CUBLAS_STATUS_NOT_SUPPORTED) TRIMTAB_CUDA_CHECK(status);
  std::vector<cublasLtMatmulAlgo_t> algorithms;
  for (int i = 0; i < found; ++i) {
    const auto& result = results[static_cast<size_t>(i)];
    if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
  }
  return algorithms;
}

/// Median of a few runs, in milliseconds; infinite when the algorithm does not run.
float Time(CudaDevice& device, const GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
           const GemmOperands& operands) {
  const cudaStream_t stream = device.Activate();
  const CudaEvent begin(CudaEvent::Timing::kYes);
  const CudaEvent end(CudaEvent::Timing::kYes);
  std::array<float, kRuns> times{};
  try {
    RunGemm(device, plan, algorithm, operands);  // loads its kernel
    for (float& time : times) {
      begin.Record(stream);
      RunGemm(device, plan, algorithm, operands);
      end.Record(stream);
      time = end.MillisecondsSince(begin);
    }
  } catch (const EnvironmentError& error) {
    LogDebug("an algorithm that cuBLASLt proposes does not run: {}", error.what());
    return std::numeric_limits<float>::infinity();
  }
  std::sort(times.begin(), times.end());
  return times[kRuns / 2];
}

/// The fastest on these operands; none if none runs.
std::optional<cublasLtMatmulAlgo_t> Fastest(CudaDevice& device, const GemmPlan& plan,
                                            const std::vector<cublasLtMatmulAlgo_t>& algorithms,
                                            GemmOperands operands) {
  const GemmKey& key = plan.key;
  // What is about to be overwritten may be written; what is added to may not.
  BorrowedMemory stand_in;
  if (key.accumulate) {
    const int64_t bytes = key.m * key.n * SizeOf(key.types.c);
    stand_in = device.Borrow(bytes);
    if (stand_in == nullptr) {
      LogWarning("no {} to try the algorithms of {} in: taking the first proposed",
                 FormatBytes(bytes), Describe(key));
      return algorithms.front();
    }
    TRIMTAB_CUDA_CHECK(
        cudaMemsetAsync(stand_in.get(), 0, static_cast<size_t>(bytes), device.Activate()));
    operands.out = stand_in.get();
    operands.added = stand_in.get();
  }
  std::optional<cublasLtMatmulAlgo_t> best;
  float best_time = std::numeric_limits<float>::infinity();
  for (const cublasLtMatmulAlgo_t& algorithm : algorithms) {
    const float time = Time(device, plan, algorithm, operands);
    if (time < best_time) {
      best_time = time;
      best = algorithm;
    }
  }
  return best;
}

/// Returns true if the algorithm runs the GEMM with the sizes that the descriptors have now.
bool Runs(CudaDevice& device, const GemmDescriptors& descriptors,
          const cublasLtMatmulAlgo_t& algorithm) {
  cublasLtMatmulHeuristicResult_t result{};
  const cublasStatus_t status = cublasLtMatmulAlgoCheck(
      device.cublas(), descriptors.operation(), descriptors.layout_a(), descriptors.layout_b(),
      descriptors.layout_c(), descriptors.layout_c(), &algorithm, &result);
  return status == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= static_cast<size_t>(CudaDevice::kCublasWorkspaceBytes);
}

/// Returns the size by which GEMMs of one bucket differ.
int64_t SizeInBucket(const GemmKey& key) { return key.varying == VaryingSize::kK ? key.k : key.m; }

/// Takes a plan of a bucket to the sizes of `key`.
void Resize(CudaDevice& device, const GemmKey& key, GemmPlan& plan) {
  if (plan.key.m == key.m && plan.key.k == key.k) return;
  plan.descriptors.SetSizes(key);
  plan.key = key;
  plan.algorithm = plan.of_sizes.For(
      SizeInBucket(key),
      [&](const cublasLtMatmulAlgo_t& chosen) { return Runs(device, plan.descriptors, chosen); },
      [&] {
        const auto proposals = Proposals(device, plan.descriptors, 1);
        if (proposals.empty()) {
          throw EnvironmentError(fmt::format("{}: cuBLASLt has no algorithm", Describe(key)));
        }
        return proposals.front();
      });
}

}  // namespace

void RunGemm(CudaDevice& device, const GemmPlan& plan, const cublasLtMatmulAlgo_t& algorithm,
             const GemmOperands& operands) {
  const GemmDescriptors& descriptors = plan.descriptors;
  const float alpha = 1.0f;
  const float beta = operands.added != nullptr ? 1.0f : 0.0f;
  const void* added = operands.added != nullptr ? operands.added : operands.out;
  const cublasStatus_t status = cublasLtMatmul(
      device.cublas(), descriptors.operation(), &alpha, operands.b, descriptors.layout_a(),
      operands.a, descriptors.layout_b(), &beta, added, descriptors.layout_c(), operands.out,
      descriptors.layout_c(), &algorithm, device.cublas_workspace(),
      CudaDevice::kCublasWorkspaceBytes, device.Activate());
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
    throw EnvironmentError(
        fmt::format("{}: cuBLASLt does not run the algorithm it proposed", Describe(plan.key)));
  }
  TRIMTAB_CUDA_CHECK(status);
}

const GemmPlan* GemmPlans::Find(CudaDevice& device, const GemmKey& key,
                                const GemmOperands& operands, const GemmOptions& options) {
  // On a deterministic device no plan may depend on which sizes came before.
  const GemmKey of_plan = device.deterministic() ? key : PlanKey(key);
  std::optional<GemmPlan>* known = plans_.Find(of_plan);
  Plans& plans = device.capturing() && known == nullptr ? untimed_ : plans_;
  if (known == nullptr) known = plans.Find(of_plan);
  if (known != nullptr) {
    if (!*known) return nullptr;
    Resize(device, key, **known);
    (*known)->descriptors.SetPointers(options, operands.auxiliary);
    return &**known;
  }
  const bool time = !device.deterministic() && !device.capturing();
  GemmPlan plan{.key = key,
                .descriptors = GemmDescriptors(key, CudaDevice::kCublasWorkspaceBytes,
                                               device.deterministic())};
  plan.descriptors.SetPointers(options, operands.auxiliary);
  const auto algorithms = Proposals(device, plan.descriptors, time ? kProposals : 1);
  std::optional<cublasLtMatmulAlgo_t> chosen;
  if (!algorithms.empty()) {
    chosen = time ? Fastest(device, plan, algorithms, operands) : algorithms.front();
  }
  if (!chosen) {
    const std::string what = fmt::format("{}: cuBLASLt has no algorithm that runs, of {} proposed",
                                         Describe(key), algorithms.size());
    if (!HasEpilogue(key)) throw EnvironmentError(what);
    LogDebug("{}: done apart", what);
    plans.Add(of_plan, std::nullopt);
    return nullptr;
  }
  plan.algorithm = *chosen;
  plan.of_sizes = {SizeInBucket(key), *chosen};
  return &*plans.Add(of_plan, std::move(plan));
}

}  // namespace trimtab
