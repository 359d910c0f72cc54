#include "engine/train/routing_report.h"

#include <algorithm>
#include <numeric>

namespace trimtab {
namespace {

std::vector<float> HostCopy(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

}  // namespace

RoutingReport ReportRouting(const std::vector<std::unique_ptr<GptModel>>& chunks, double tokens) {
  RoutingReport report;
  for (const auto& chunk : chunks) {
    for (const TransformerLayer& layer : chunk->layers()) {
      if (layer.moe() == nullptr) continue;
      const MoeRouter& router = layer.moe()->router();
      const std::vector<float> losses = HostCopy(router.losses());
      const std::vector<float> load = HostCopy(router.load());
      report.aux_loss += losses[0] / tokens;
      report.z_loss += losses[1] / tokens;
      const double most = *std::max_element(load.begin(), load.end());
      const double sum = std::accumulate(load.begin(), load.end(), 0.0);
      // The dry run reads zeros.
      if (sum == 0) continue;
      report.imbalance = std::max(report.imbalance, most * static_cast<double>(load.size()) / sum);
    }
  }
  return report;
}

RoutingReport OverStages(const RoutingReport& stage, const ParallelContext& parallel,
                         Device& device) {
  constexpr int64_t kValues = 3;
  const int64_t stages = parallel.layout.pp;
  if (stages == 1) return stage;
  Tensor own = Tensor::Empty(device, {kValues}, DType::kF32, MemoryTag::kCommunication);
  Tensor all = Tensor::Empty(device, {stages * kValues}, DType::kF32, MemoryTag::kCommunication);
  CopyFromHost(
      own, std::vector<float>{static_cast<float>(stage.aux_loss), static_cast<float>(stage.z_loss),
                              static_cast<float>(stage.imbalance)});
  parallel.pp->AllGather(own, all);
  const std::vector<float> values = HostCopy(all);
  RoutingReport report;
  for (size_t i = 0; i < values.size(); i += kValues) {
    report.aux_loss += values[i];
    report.z_loss += values[i + 1];
    report.imbalance = std::max<double>(report.imbalance, values[i + 2]);
  }
  return report;
}

}  // namespace trimtab
