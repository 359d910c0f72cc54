#include "engine/infer/api/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/mix.h"
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

constexpr float kNever = -std::numeric_limits<float>::infinity();

/// True if a request leaves logits as they are.
bool ChangesNothing(const SamplingOptions& options, const TokenRules& rules) {
  if (options.repetition_penalty != 1 || options.presence_penalty != 0 ||
      options.frequency_penalty != 0 || !rules.mask.empty()) {
    return false;
  }
  const GenerationRequest* request = rules.request;
  return request == nullptr ||
         (request->min_tokens == 0 && request->logit_bias.empty() &&
          request->allowed_tokens.empty() && request->banned_sequences.empty());
}

/// The logits that a token is chosen by: a copy that one rule after the other changes.
class ChangedLogits {
 public:
  ChangedLogits(std::span<const float> logits, std::span<const int32_t> history)
      : logits_(logits.begin(), logits.end()), history_(history) {}

  void Mask(std::span<const uint64_t> mask) {
    for (size_t i = 0; i < logits_.size() && !mask.empty(); ++i) {
      if ((mask[i / 64] >> (i % 64) & 1) == 0) logits_[i] = kNever;
    }
  }

  void Restrict(const GenerationRequest& request, std::span<const int32_t> answer) {
    if (!request.allowed_tokens.empty()) Allow(request.allowed_tokens);
    for (const std::vector<int32_t>& banned : request.banned_sequences) {
      const auto before = std::span(banned).first(banned.size() - 1);
      if (before.size() > answer.size()) continue;
      if (std::ranges::equal(before, answer.last(before.size()))) Forbid(banned.back());
    }
    if (std::ssize(answer) < request.min_tokens) {
      for (const int32_t token : request.stop_tokens) Forbid(token);
    }
    for (const auto& [token, bias] : request.logit_bias) At(token) += bias;
  }

  void Penalise(const SamplingOptions& options, std::span<const int32_t> answer) {
    if (options.repetition_penalty != 1) {
      const auto factor = static_cast<float>(options.repetition_penalty);
      for (const auto& [token, count] : Counts(history_)) {
        At(token) = At(token) > 0 ? At(token) / factor : At(token) * factor;
      }
    }
    if (options.presence_penalty == 0 && options.frequency_penalty == 0) return;
    for (const auto& [token, count] : Counts(answer)) {
      At(token) -= static_cast<float>(options.presence_penalty +
                                      static_cast<double>(count) * options.frequency_penalty);
    }
  }

  std::span<const float> logits() const { return logits_; }

 private:
  /// How often each token occurs.
  static std::unordered_map<int32_t, int64_t> Counts(std::span<const int32_t> tokens) {
    std::unordered_map<int32_t, int64_t> counts;
    for (const int32_t token : tokens) ++counts[token];
    return counts;
  }

  float& At(int32_t token) { return logits_[static_cast<size_t>(token)]; }
  void Forbid(int32_t token) {
    // End tokens of a tokenizer may lie beyond the model's vocabulary.
    if (token >= 0 && static_cast<size_t>(token) < logits_.size()) At(token) = kNever;
  }
  void Allow(std::span<const int32_t> tokens) {
    std::vector<float> kept(logits_.size(), kNever);
    for (const int32_t token : tokens) kept[static_cast<size_t>(token)] = At(token);
    logits_ = std::move(kept);
  }

  std::vector<float> logits_;
  std::span<const int32_t> history_;
};

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
                         const SamplingOptions& options, const TokenRules& rules) {
  const float highest = HighestLogit(logits, history.size());
  std::optional<ChangedLogits> own;
  std::span<const float> changed = logits;
  float shift = highest;
  if (!ChangesNothing(options, rules)) {
    const auto answer = history.subspan(static_cast<size_t>(rules.prompt_tokens));
    own.emplace(logits, history);
    own->Mask(rules.mask);
    if (rules.request != nullptr) own->Restrict(*rules.request, answer);
    own->Penalise(options, answer);
    changed = own->logits();
    shift = SpanMax(changed.size(), changed.data());
    if (shift == kNever) {
      throw InputError(fmt::format(
          "no token may follow at position {}: what the request allows and bans leaves none",
          history.size()));
    }
  }
  SampledToken sample;
  if (options.temperature == 0) {
    sample.id = Likeliest(changed);
  } else {
    sample.id = Draw(Weights(changed, shift, options.temperature),
                     Uniform(options.seed, history.size()), options);
  }
  AddLogProbabilities(logits, highest, options.log_probabilities, sample);
  return sample;
}

SampledToken ScoreToken(std::span<const float> logits, int32_t token, int64_t likeliest,
                        int64_t position) {
  const float highest = HighestLogit(logits, static_cast<size_t>(position));
  SampledToken scored = {.id = token};
  AddLogProbabilities(logits, highest, likeliest, scored);
  return scored;
}

}  // namespace trimtab
