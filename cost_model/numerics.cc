#include "cost_model/numerics.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/precision.h"
#include "engine/ops/adamw.h"

namespace trimtab {
namespace {

const std::vector<std::string> kMasters = {"fp32", "remainder"};
const std::vector<std::string> kMoments = {"fp32", "bf16", "fp16"};
const std::vector<std::string> kGradients = {"fp32", "bf16"};

struct Preset {
  const char* name;
  const char* master;
  const char* moments;
  const char* gradients;
};
constexpr std::array<Preset, 3> kPresets = {{{"full", "fp32", "fp32", "fp32"},
                                             {"reduced", "remainder", "bf16", "fp32"},
                                             {"minimal", "remainder", "bf16", "bf16"}}};

struct PrecisionText {
  const char* name;
  const char* description;
};
constexpr std::array<PrecisionText, 5> kPrecisions = {{
    {"fp32", "weights, activations and products in fp32"},
    {"tf32", "weights and activations in fp32; products round their operands to 10 bits"},
    {"bf16", "weights, activations and products in bf16, sums in fp32"},
    {"fp16", "weights, activations and products in fp16 with loss scaling, sums in fp32"},
    {"fp8", "as bf16, but the layers' products take fp8 operands with a scale per tensor"},
}};

std::string Joined(const ParallelConfig& layout) {
  return layout.master + "/" + layout.moments + "/" + layout.gradients;
}

/// Whether masters may be remainders, and gradients bf16.
bool HasBf16Weights(const ParallelConfig& layout) {
  return TypesOf(layout).weights == DType::kBf16;
}

void SetPreset(const Preset& preset, ParallelConfig& layout) {
  layout.master = HasBf16Weights(layout) ? preset.master : "fp32";
  layout.moments = preset.moments;
  layout.gradients = HasBf16Weights(layout) ? preset.gradients : "fp32";
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void AppendOnce(const std::string& name, std::vector<std::string>& names) {
  if (!Contains(names, name)) names.push_back(name);
}

[[noreturn]] void ThrowUnknownState(const std::string& name) {
  std::vector<std::string> known = OptimizerStatePresets();
  known.emplace_back("auto");
  throw UsageError(fmt::format(
      "unknown optimizer state '{}'{}; or MASTER/MOMENTS/GRADS such as remainder/bf16/fp32", name,
      SuggestName(name, known)));
}

}  // namespace

std::vector<std::string> OptimizerStatePresets() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

void SetOptimizerState(const std::string& name, ParallelConfig& layout) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return SetPreset(preset, layout);
  }
  const size_t first = name.find('/');
  const size_t second = first == std::string::npos ? first : name.find('/', first + 1);
  if (second == std::string::npos) ThrowUnknownState(name);
  const std::string master = name.substr(0, first);
  const std::string moments = name.substr(first + 1, second - first - 1);
  const std::string gradients = name.substr(second + 1);
  if (!Contains(kMasters, master) || !Contains(kMoments, moments) ||
      !Contains(kGradients, gradients)) {
    ThrowUnknownState(name);
  }
  layout.master = master;
  layout.moments = moments;
  layout.gradients = gradients;
}

std::string OptimizerStateName(const ParallelConfig& layout) {
  for (const Preset& preset : kPresets) {
    ParallelConfig same = layout;
    SetPreset(preset, same);
    if (same == layout) return preset.name;
  }
  return Joined(layout);
}

std::vector<std::string> EveryOptimizerState(const std::string& precision) {
  ParallelConfig layout;
  layout.precision = precision;
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    SetPreset(preset, layout);
    AppendOnce(OptimizerStateName(layout), names);
  }
  for (const std::string& master : kMasters) {
    if (master == "remainder" && !HasBf16Weights(layout)) continue;
    for (const std::string& moments : kMoments) {
      for (const std::string& gradients : kGradients) {
        if (gradients == "bf16" && !HasBf16Weights(layout)) continue;
        layout.master = master;
        layout.moments = moments;
        layout.gradients = gradients;
        AppendOnce(OptimizerStateName(layout), names);
      }
    }
  }
  return names;
}

double BytesPerParameter(const ParallelConfig& layout) {
  const TrainingTypes types = TypesOf(layout);
  int64_t bytes = SizeOf(types.weights) + SizeOf(types.gradients) + 2 * SizeOf(types.moments);
  if (types.has_master) bytes += SizeOf(types.master);
  const double scales =
      types.moments == DType::kF16 ? 2.0 * SizeOf(DType::kF32) / kMomentBlock : 0.0;
  return static_cast<double>(bytes) + scales;
}

std::vector<std::string> Precisions() {
  std::vector<std::string> names;
  for (const PrecisionText& each : kPrecisions) names.emplace_back(each.name);
  return names;
}

void RequirePrecision(const std::string& name) {
  if (Contains(Precisions(), name)) return;
  throw UsageError(fmt::format("unknown precision '{}'{}", name, SuggestName(name, Precisions())));
}

std::string DescribePrecision(const std::string& precision) {
  for (const PrecisionText& each : kPrecisions) {
    if (precision == each.name) return each.description;
  }
  return "";
}

std::string DescribeOptimizerState(const ParallelConfig& layout) {
  const TrainingTypes types = TypesOf(layout);
  const std::string master = !types.has_master ? "fp32 weights as their own master"
                             : layout.master == "remainder"
                                 ? "fp32 master as bf16 weight + 16-bit remainder"
                                 : "fp32 master beside the weights";
  return fmt::format("{}, {} moments, {} gradients: {:.4g} bytes a parameter", master,
                     layout.moments, layout.gradients, BytesPerParameter(layout));
}

std::string Unpriceable(const HardwareProfile& profile, const std::string& precision) {
  std::vector<std::string> rates = {precision};
  if (precision == "fp8") rates.emplace_back("bf16");  // of the products that stay in it
  for (const std::string& rate : rates) {
    const bool in_every_mode =
        rate == "fp32" ||
        std::all_of(profile.modes.begin(), profile.modes.end(),
                    [&](const ModeTables& mode) { return mode.precisions.contains(rate); });
    if (profile.peak_flops.contains(rate) && in_every_mode) continue;
    const char* advice = profile.device == "cpu" ? "; `trimtab calibrate` measures it anew" : "";
    return fmt::format("the hardware profile '{}' has no rate of {} products{}", profile.name, rate,
                       advice);
  }
  return "";
}

std::vector<std::string> SensiblePrecisions(const HardwareProfile& profile) {
  if (profile.device == "cpu") return {"fp32"};
  std::vector<std::string> names;
  for (const char* name : {"bf16", "fp8"}) {
    if (Unpriceable(profile, name).empty()) names.emplace_back(name);
  }
  if (names.empty()) names.emplace_back("fp32");
  return names;
}

std::vector<std::string> ResolvePrecisions(const std::vector<std::string>& names,
                                           const HardwareProfile& profile) {
  std::vector<std::string> resolved;
  for (const std::string& name : names) {
    if (name == "auto") {
      for (const std::string& each : SensiblePrecisions(profile)) AppendOnce(each, resolved);
      continue;
    }
    RequirePrecision(name);
    const std::string why = Unpriceable(profile, name);
    if (!why.empty()) throw UsageError(fmt::format("precision {}: {}", name, why));
    AppendOnce(name, resolved);
  }
  if (resolved.empty()) throw UsageError("expected at least one precision");
  return resolved;
}

std::vector<std::string> ResolveOptimizerStates(const std::vector<std::string>& names) {
  std::vector<std::string> resolved;
  for (const std::string& name : names) {
    ParallelConfig layout;
    if (name != "auto") SetOptimizerState(name, layout);
    AppendOnce(name, resolved);
  }
  if (resolved.empty()) throw UsageError("expected at least one optimizer state");
  return resolved;
}

}  // namespace trimtab
