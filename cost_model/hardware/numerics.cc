#include "cost_model/hardware/numerics.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <ranges>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/text_values.h"
#include "engine/config/layout/precision.h"
#include "engine/ops/optimizer/update_state.h"

namespace trimtab {
namespace {

constexpr MasterWeights kMasters[] = {MasterWeights::kFp32, MasterWeights::kRemainder};
constexpr DType kMoments[] = {DType::kF32, DType::kBf16, DType::kF16, DType::kI8};
constexpr DType kGradients[] = {DType::kF32, DType::kBf16};

struct Preset {
  const char* name;
  MasterWeights master;
  DType moments;
  DType gradients;
};
constexpr Preset kPresets[] = {{"full", MasterWeights::kFp32, DType::kF32, DType::kF32},
                               {"reduced", MasterWeights::kRemainder, DType::kBf16, DType::kF32},
                               {"minimal", MasterWeights::kRemainder, DType::kBf16, DType::kBf16}};

std::string Joined(const Numerics& numerics) {
  return fmt::format("{}/{}/{}", Name(numerics.master), Name(numerics.moments),
                     Name(numerics.gradients));
}

/// Whether masters may be remainders, and gradients bf16.
bool HasBf16Weights(const Numerics& numerics) { return TypesOf(numerics).weights == DType::kBf16; }

void SetPreset(const Preset& preset, Numerics& numerics) {
  numerics.master = HasBf16Weights(numerics) ? preset.master : MasterWeights::kFp32;
  numerics.moments = preset.moments;
  numerics.gradients = HasBf16Weights(numerics) ? preset.gradients : DType::kF32;
}

template <typename T>
void AppendOnce(const T& value, std::vector<T>& values) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

/// Sets `value` to the one of `valid` that is called `name`; false if none is.
template <typename Values, typename T>
bool FindNamed(const Values& valid, std::string_view name, T& value) {
  const auto found = std::find_if(std::begin(valid), std::end(valid),
                                  [&](const T& each) { return Name(each) == name; });
  if (found != std::end(valid)) value = *found;
  return found != std::end(valid);
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

void SetOptimizerState(const std::string& name, Numerics& numerics) {
  for (const Preset& preset : kPresets) {
    if (name == preset.name) return SetPreset(preset, numerics);
  }
  const std::vector<std::string> parts = Split(name, '/');
  const bool known = parts.size() == 3 && FindNamed(kMasters, parts[0], numerics.master) &&
                     FindNamed(kMoments, parts[1], numerics.moments) &&
                     FindNamed(kGradients, parts[2], numerics.gradients);
  if (!known) ThrowUnknownState(name);
}

std::string OptimizerStateName(const Numerics& numerics) {
  for (const Preset& preset : kPresets) {
    Numerics same = numerics;
    SetPreset(preset, same);
    if (same == numerics) return preset.name;
  }
  return Joined(numerics);
}

std::vector<std::string> EveryOptimizerState(Precision precision) {
  Numerics numerics = {.precision = precision};
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) {
    SetPreset(preset, numerics);
    AppendOnce(OptimizerStateName(numerics), names);
  }
  for (const MasterWeights master : kMasters) {
    if (master == MasterWeights::kRemainder && !HasBf16Weights(numerics)) continue;
    for (const DType moments : kMoments) {
      for (const DType gradients : kGradients) {
        if (gradients == DType::kBf16 && !HasBf16Weights(numerics)) continue;
        numerics.master = master;
        numerics.moments = moments;
        numerics.gradients = gradients;
        AppendOnce(OptimizerStateName(numerics), names);
      }
    }
  }
  return names;
}

double BytesPerParameter(const Numerics& numerics, OptimizerKind optimizer) {
  const TrainingTypes types = TypesOf(numerics);
  const int64_t moments = optimizer == OptimizerKind::kAdamW ? 2 : 1;
  int64_t bytes = SizeOf(types.weights) + SizeOf(types.gradients);
  if (types.has_master) bytes += SizeOf(types.master);
  const auto block = static_cast<double>(moments * MomentBytes(types.moments, kMomentBlock));
  return static_cast<double>(bytes) + block / kMomentBlock;
}

std::span<const Precision> Precisions() { return kPrecisions; }

Precision ParsePrecision(const std::string& name) {
  Precision precision{};
  if (FindNamed(Precisions(), name, precision)) return precision;
  std::vector<std::string> valid;
  for (const Precision each : kPrecisions) valid.emplace_back(Name(each));
  throw UsageError(fmt::format("unknown precision '{}'{}", name, SuggestName(name, valid)));
}

std::string DescribePrecision(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return "weights, activations and products in fp32";
    case Precision::kTf32:
      return "weights and activations in fp32; products round their operands to 10 bits";
    case Precision::kBf16:
      return "weights, activations and products in bf16, sums in fp32";
    case Precision::kFp16:
      return "weights, activations and products in fp16 with loss scaling, sums in fp32";
    case Precision::kFp8:
      return "as bf16, but the layers' products take fp8 operands with a scale per tensor";
  }
  TRIMTAB_ASSERT(false, "precision {}", static_cast<int>(precision));
}

std::string DescribeOptimizerState(const Numerics& numerics, OptimizerKind optimizer) {
  const TrainingTypes types = TypesOf(numerics);
  const std::string master = !types.has_master ? "fp32 weights as their own master"
                             : numerics.master == MasterWeights::kRemainder
                                 ? "fp32 master as bf16 weight + 16-bit remainder"
                                 : "fp32 master beside the weights";
  const double bytes = BytesPerParameter(numerics, optimizer);
  if (optimizer == OptimizerKind::kAdamW) {
    return fmt::format("{}, {} moments, {} gradients: {:.4g} bytes a parameter", master,
                       Name(numerics.moments), Name(numerics.gradients), bytes);
  }
  return fmt::format("{}, {} momentum of {}, {} gradients: {:.4g} bytes a parameter{}", master,
                     Name(numerics.moments), Name(optimizer), Name(numerics.gradients), bytes,
                     optimizer == OptimizerKind::kMuon ? " of layers' matrices" : "");
}

std::string Unpriceable(const HardwareProfile& profile, Precision precision) {
  std::vector<std::string> rates = {std::string(Name(precision))};
  if (precision == Precision::kFp8) rates.emplace_back("bf16");  // of the products that stay in it
  for (const std::string& rate : rates) {
    const bool in_every_mode =
        rate == "fp32" ||
        std::all_of(profile.modes.begin(), profile.modes.end(),
                    [&](const ModeTables& mode) { return mode.precisions.contains(rate); });
    if (profile.peak_flops.contains(rate) && in_every_mode) continue;
    const std::string advice =
        profile.device == DeviceKind::kCpu
            ? "`trimtab calibrate` measures it anew"
            : fmt::format("it has {}", fmt::join(std::views::keys(profile.peak_flops), ", "));
    return fmt::format("the hardware profile '{}' has no rate of {} products; {}", profile.name,
                       rate, advice);
  }
  return "";
}

std::vector<Precision> SensiblePrecisions(const HardwareProfile& profile) {
  if (profile.device == DeviceKind::kCpu) return {Precision::kFp32};
  std::vector<Precision> sensible;
  for (const Precision each : {Precision::kBf16, Precision::kFp8}) {
    if (Unpriceable(profile, each).empty()) sensible.push_back(each);
  }
  if (!sensible.empty()) return sensible;
  const bool has_fp16 = Unpriceable(profile, Precision::kFp16).empty();
  return {has_fp16 ? Precision::kFp16 : Precision::kFp32};
}

std::vector<Precision> ResolvePrecisions(const std::vector<std::string>& names,
                                         const HardwareProfile& profile) {
  std::vector<Precision> resolved;
  for (const std::string& name : names) {
    if (name == "auto") {
      for (const Precision each : SensiblePrecisions(profile)) AppendOnce(each, resolved);
      continue;
    }
    const Precision precision = ParsePrecision(name);
    const std::string why = Unpriceable(profile, precision);
    if (!why.empty()) throw UsageError(fmt::format("precision {}: {}", name, why));
    AppendOnce(precision, resolved);
  }
  if (resolved.empty()) throw UsageError("expected at least one precision");
  return resolved;
}

std::vector<std::string> ResolveOptimizerStates(const std::vector<std::string>& names) {
  std::vector<std::string> resolved;
  for (const std::string& name : names) {
    Numerics numerics;
    if (name != "auto") SetOptimizerState(name, numerics);
    AppendOnce(name, resolved);
  }
  if (resolved.empty()) throw UsageError("expected at least one optimizer state");
  return resolved;
}

}  // namespace trimtab
