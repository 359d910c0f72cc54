#include "engine/ops/attention/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace trimtab {
namespace {

constexpr double kTurn = 2.0 * std::numbers::pi;

/// How much of a pair's frequency is divided by the factor: 0 = none of it, 1 = all.
double Llama3Share(const RopeScaling& scaling, double frequency) {
  const double turns = static_cast<double>(scaling.original_length) * frequency / kTurn;
  const double kept =
      (turns - scaling.low_frequency) / (scaling.high_frequency - scaling.low_frequency);
  return 1.0 - std::clamp(kept, 0.0, 1.0);
}

/// The number of the pair, as a real number, that turns `turns` times over the original length.
double PairThatTurns(const Rotary& rotary, int64_t dims, double turns) {
  const auto length = static_cast<double>(rotary.scaling.original_length);
  return static_cast<double>(dims) * std::log(length / (turns * kTurn)) /
         (2.0 * std::log(rotary.theta));
}

double YarnShare(const Rotary& rotary, int64_t dims, int64_t pair) {
  const RopeScaling& scaling = rotary.scaling;
  double first = PairThatTurns(rotary, dims, scaling.beta_fast);
  double last = PairThatTurns(rotary, dims, scaling.beta_slow);
  if (scaling.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(dims - 1));
  if (first == last) last += 0.001;
  return std::clamp((static_cast<double>(pair) - first) / (last - first), 0.0, 1.0);
}

double ScaledShare(const Rotary& rotary, int64_t dims, int64_t pair, double frequency) {
  switch (rotary.scaling.kind) {
    case RopeScalingKind::kNone:
      return 0.0;
    case RopeScalingKind::kLinear:
      return 1.0;
    case RopeScalingKind::kLlama3:
      return Llama3Share(rotary.scaling, frequency);
    case RopeScalingKind::kYarn:
      return YarnShare(rotary, dims, pair);
  }
  return 0.0;
}

double AttentionFactor(const RopeScaling& scaling) {
  if (scaling.kind != RopeScalingKind::kYarn) return 1.0;
  return scaling.attention_factor > 0 ? scaling.attention_factor
                                      : 0.1 * std::log(scaling.factor) + 1.0;
}

}  // namespace

RotaryFrequencies FrequenciesOf(const Rotary& rotary, int64_t head_size, bool inverse) {
  const int64_t pairs = rotary.pairs(head_size);
  const int64_t dims = 2 * pairs;
  RotaryFrequencies frequencies;
  frequencies.factor = static_cast<float>(AttentionFactor(rotary.scaling));
  for (int64_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(dims);
    const double frequency = std::pow(rotary.theta, exponent);
    const double share = ScaledShare(rotary, dims, i, frequency);
    const double scaled = frequency * (1.0 - share) + frequency / rotary.scaling.factor * share;
    frequencies.per_position[static_cast<size_t>(i)] = inverse ? -scaled : scaled;
  }
  return frequencies;
}

}  // namespace trimtab
