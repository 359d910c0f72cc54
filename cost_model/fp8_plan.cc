#include "cost_model/fp8_plan.h"

#include <algorithm>
#include <string>

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr std::array<const char*, kLinearKindCount> kLinearNames = {
    "self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1", "mlp.linear_fc2"};

std::string NameOf(int64_t layer, size_t kind) {
  return fmt::format("decoder.layers.{}.{}", layer, kLinearNames[kind]);
}

/// Whether any linear layer is called `kept` or lies in it.
bool Exists(const std::string& kept, int64_t layers) {
  const Fp8Config only = {.bf16_layers = {kept}};
  for (int64_t layer = 0; layer < layers; ++layer) {
    for (size_t kind = 0; kind < kLinearKindCount; ++kind) {
      if (!ComputesInFp8(only, NameOf(layer, kind))) return true;
    }
  }
  return false;
}

}  // namespace

std::vector<LayerRun> PlanFp8(const ModelConfig& model, const Fp8Config& fp8) {
  for (const std::string& kept : fp8.bf16_layers) {
    if (Exists(kept, model.num_layers)) continue;
    throw InputError(
        fmt::format("fp8.bf16_layers: no linear layer is called '{}' or lies in it; expected a "
                    "name such as '{}'",
                    kept, NameOf(0, 0)));
  }
  std::vector<LayerRun> runs;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    Fp8Linears linears;
    for (size_t kind = 0; kind < kLinearKindCount; ++kind) {
      linears[kind] = ComputesInFp8(fp8, NameOf(layer, kind));
    }
    if (runs.empty() || runs.back().fp8 != linears) runs.push_back({linears, 0});
    ++runs.back().layers;
  }
  return runs;
}

std::array<int64_t, kLinearKindCount> CountFp8(const std::vector<LayerRun>& runs) {
  std::array<int64_t, kLinearKindCount> count{};
  for (const LayerRun& run : runs) {
    for (size_t kind = 0; kind < kLinearKindCount; ++kind) {
      if (run.fp8[kind]) count[kind] += run.layers;
    }
  }
  return count;
}

}  // namespace trimtab
