#include "engine/config/layout/recompute.h"

#include <algorithm>
#include <array>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/text_values.h"
#include "engine/config/model/model_limits.h"

namespace trimtab {
namespace {

const std::array<std::string, kRecomputeModuleCount> kModuleNames = {"core_attn", "layernorm",
                                                                     "mlp_act", "mlp", "logits"};

RecomputeModules ParseModules(const std::string& text, const std::string& what) {
  RecomputeModules modules;
  for (const std::string& name : Split(text, '+')) {
    const auto* found = std::find(kModuleNames.begin(), kModuleNames.end(), name);
    if (found == kModuleNames.end()) {
      throw UsageError(
          fmt::format("{}: unknown module '{}'{}", what, name, SuggestName(name, kModuleNames)));
    }
    const auto module = static_cast<RecomputeModule>(found - kModuleNames.begin());
    if (modules.Has(module)) throw UsageError(fmt::format("{}: {} is given twice", what, name));
    modules.Add(module);
  }
  return modules;
}

}  // namespace

std::string_view Name(RecomputeModule module) { return kModuleNames[static_cast<size_t>(module)]; }

RecomputeGroup RecomputeGroupOf(const RecomputeConfig& recompute, int64_t layer,
                                int64_t num_layers) {
  if (recompute.kind != RecomputeKind::kFull) return {.first = layer};
  if (recompute.method == RecomputeMethod::kBlock) {
    const bool within = recompute.num_layers < 0 || layer < recompute.num_layers;
    return {.first = layer, .recomputed = within};
  }
  const int64_t first = layer - layer % recompute.num_layers;
  return {.first = first,
          .count = std::min<int64_t>(recompute.num_layers, num_layers - first),
          .recomputed = true};
}

RecomputeConfig FullOf(int64_t count, int64_t layers) {
  if (count >= layers) return {.kind = RecomputeKind::kFull};
  return {.kind = RecomputeKind::kFull, .num_layers = static_cast<int32_t>(count)};
}

RecomputeConfig UniformOf(int64_t count) {
  if (count == 1) return {.kind = RecomputeKind::kFull};
  return {.kind = RecomputeKind::kFull,
          .num_layers = static_cast<int32_t>(count),
          .method = RecomputeMethod::kUniform};
}

RecomputeConfig RecomputeWithin(const RecomputeConfig& recompute, int64_t first, int64_t count) {
  if (recompute.kind != RecomputeKind::kFull || recompute.num_layers < 0) return recompute;
  if (recompute.method == RecomputeMethod::kUniform) {
    return UniformOf(std::min<int64_t>(recompute.num_layers, count));
  }
  const int64_t recomputed = std::clamp<int64_t>(recompute.num_layers - first, 0, count);
  return recomputed == 0 ? RecomputeConfig() : FullOf(recomputed, count);
}

std::string ToString(const RecomputeConfig& recompute) {
  switch (recompute.kind) {
    case RecomputeKind::kNone:
      return "none";
    case RecomputeKind::kSelective: {
      std::string text;
      for (int i = 0; i < kRecomputeModuleCount; ++i) {
        const auto module = static_cast<RecomputeModule>(i);
        if (!recompute.modules.Has(module)) continue;
        text += fmt::format("{}{}", text.empty() ? "selective:" : "+", Name(module));
      }
      return text;
    }
    case RecomputeKind::kFull:
      break;
  }
  if (recompute.num_layers < 0) return "full";
  const char* method = recompute.method == RecomputeMethod::kBlock ? "block" : "uniform";
  return fmt::format("full:{}:{}", method, recompute.num_layers);
}

RecomputeConfig ParseRecompute(const std::string& text, const std::string& what) {
  if (text == "none") return {};
  if (text == "full") return {.kind = RecomputeKind::kFull};
  const std::vector<std::string> parts = Split(text, ':');
  if (parts[0] == "selective" && parts.size() <= 2) {
    const std::string& modules = parts.size() == 2 ? parts[1] : kModuleNames[0];
    return {.kind = RecomputeKind::kSelective, .modules = ParseModules(modules, what)};
  }
  int64_t layers = 0;
  const bool counts = parts.size() == 3 && parts[0] == "full" &&
                      (parts[1] == "block" || parts[1] == "uniform") &&
                      ParseInteger(parts[2], layers) && layers >= 1 && layers <= kMaxLayers;
  if (!counts) {
    throw UsageError(
        fmt::format("{}: unknown recomputation '{}'; available: {}", what, text, kRecomputeForms));
  }
  if (parts[1] == "uniform") return UniformOf(layers);
  return {.kind = RecomputeKind::kFull, .num_layers = static_cast<int32_t>(layers)};
}

}  // namespace trimtab
