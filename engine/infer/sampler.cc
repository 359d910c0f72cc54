#include "engine/infer/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/mix.h"
#include "engine/ops/kernel.h"
#include "engine/ops/math.h"

namespace trimtab {
namespace {

struct Candidate {
  float weight = 0;  // e^((logit - highest logit) / temperature), or another increasing measure
  int32_t token = 0;
};

/// Whether `a` is drawn before `b`: likelier, or as likely with a lower id.
bool Before(const Candidate& a, const Candidate& b) {
  return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
}

TRIMTAB_CLONES float SpanMax(size_t n, const float* x) {
  float highest = -std::numeric_limits<float>::infinity();
#pragma omp simd reduction(max : highest)
  for (size_t i = 0; i < n; ++i) highest = highest < x[i] ? x[i] : highest;
  return highest;
}

/// y = e^(factor (x - shift)).
TRIMTAB_CLONES void SpanExp(size_t n, const float* x, float shift, float factor, float* y) {
#pragma omp simd
  for (size_t i = 0; i < n; ++i) y[i] = Exp((x[i] - shift) * factor);
}

TRIMTAB_CLONES int AnyNotNumber(size_t n, const float* x) {
  int found = 0;
#pragma omp simd reduction(| : found)
  for (size_t i = 0; i < n; ++i) found |= x[i] != x[i];
  return found;
}

float HighestLogit(std::span<const float> logits, size_t position) {
  const float highest = SpanMax(logits.size(), logits.data());
  if (std::isfinite(highest) && AnyNotNumber(logits.size(), logits.data()) == 0) return highest;
  throw InputError(fmt::format(
      "the model's logits at position {} are not finite numbers: its weights are damaged, or its "
      "numbers too large for this precision",
      position));
}

int32_t Likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

std::vector<float> Weights(std::span<const float> logits, float highest, double temperature) {
  // Lower temperatures draw the likeliest as well, and times infinity its distance of 0 is no
  // number.
  constexpr double kColdest = 1e-30;
  std::vector<float> weights(logits.size());
  SpanExp(logits.size(), logits.data(), highest,
          static_cast<float>(1.0 / std::max(temperature, kColdest)), weights.data());
  return weights;
}

double Sum(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

/// The logits as the history changes them, each token that occurs in it once.
std::vector<float> Penalised(std::span<const float> logits, std::span<const int32_t> history,
                             double penalty) {
  std::vector<float> changed(logits.begin(), logits.end());
  std::vector<int32_t> tokens(history.begin(), history.end());
  std::sort(tokens.begin(), tokens.end());
  tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
  const auto factor = static_cast<float>(penalty);
  for (const int32_t token : tokens) {
    float& logit = changed[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / factor : logit * factor;
  }
  return changed;
}

/// The likeliest `count` tokens of all, likeliest first.
std::vector<Candidate> Top(std::span<const float> weights, size_t count) {
  std::vector<Candidate> all(weights.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = {weights[i], static_cast<int32_t>(i)};
  const auto end = all.begin() + static_cast<int64_t>(std::min(count, all.size()));
  std::partial_sort(all.begin(), end, all.end(), Before);
  all.erase(end, all.end());
  return all;
}

/// The tokens that may be drawn, likeliest first: each of the three limits keeps a beginning of
/// that order, so they are looked for together, and no more is sorted than is kept.
std::vector<Candidate> Kept(std::span<const float> weights, const SamplingOptions& options) {
  const bool limited = options.top_k > 0 && static_cast<size_t>(options.top_k) < weights.size();
  std::vector<Candidate> heap;
  if (limited) {
    heap = Top(weights, static_cast<size_t>(options.top_k));
  } else {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] >= options.min_p) heap.push_back({weights[i], static_cast<int32_t>(i)});
    }
  }
  double total = 0;  // of what top_k leaves
  if (limited) {
    for (const Candidate& each : heap) total += each.weight;
  } else {
    total = Sum(weights);
  }
  const auto last_first = [](const Candidate& a, const Candidate& b) { return Before(b, a); };
  std::make_heap(heap.begin(), heap.end(), last_first);
  std::vector<Candidate> kept;
  double reached = 0;
  while (!heap.empty() && (kept.empty() || reached < options.top_p * total)) {
    std::pop_heap(heap.begin(), heap.end(), last_first);
    if (heap.back().weight < options.min_p) break;
    kept.push_back(heap.back());
    reached += heap.back().weight;
    heap.pop_back();
  }
  return kept;
}

/// In [0, 1), from the upper 53 bits.
double Uniform(uint64_t seed, size_t position) {
  return static_cast<double>(MixBits(MixBits(seed) + position) >> 11) * 0x1.0p-53;
}

int32_t Draw(std::span<const float> weights, double uniform, const SamplingOptions& options) {
  if (options.top_k == 0 && options.top_p == 1 && options.min_p == 0) {
    const double target = uniform * Sum(weights);
    double reached = 0;
    size_t last = 0;
    for (size_t i = 0; i < weights.size(); ++i) {
      if (weights[i] == 0) continue;
      last = i;
      reached += weights[i];
      if (reached > target) break;
    }
    return static_cast<int32_t>(last);
  }
  const std::vector<Candidate> kept = Kept(weights, options);
  double total = 0;
  for (const Candidate& each : kept) total += each.weight;
  double reached = 0;
  for (const Candidate& each : kept) {
    reached += each.weight;
    if (reached > uniform * total) return each.token;
  }
  return kept.back().token;
}

void AddLogProbabilities(std::span<const float> logits, float highest, int64_t count,
                         SampledToken& sample) {
  const double log_sum = highest + std::log(Sum(Weights(logits, highest, 1.0)));
  const auto log_probability = [&](int32_t token) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - log_sum);
  };
  sample.log_probability = log_probability(sample.id);
  if (count == 0) return;
  for (const Candidate& each : Top(logits, static_cast<size_t>(count))) {
    sample.likeliest.emplace_back(each.token, log_probability(each.token));
  }
}

}  // namespace

SampledToken SampleToken(std::span<const float> logits, std::span<const int32_t> history,
                         const SamplingOptions& options) {
  const float highest = HighestLogit(logits, history.size());
  std::vector<float> penalised;
  std::span<const float> changed = logits;
  if (options.repetition_penalty != 1) {
    penalised = Penalised(logits, history, options.repetition_penalty);
    changed = penalised;
  }
  SampledToken sample;
  if (options.temperature == 0) {
    sample.id = Likeliest(changed);
  } else {
    const float shift = SpanMax(changed.size(), changed.data());
    sample.id = Draw(Weights(changed, shift, options.temperature),
                     Uniform(options.seed, history.size()), options);
  }
  AddLogProbabilities(logits, highest, options.log_probabilities, sample);
  return sample;
}

}  // namespace trimtab
