#include "engine/ops/cpu/moe/sequence_routing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/device/cpu/parallel.h"

namespace trimtab {
namespace {

// Keeps a row that nothing weighs from dividing by zero.
constexpr float kLeast = 1e-8f;

/// exp(logit - highest of the row): the iteration takes the scale of a row out again.
std::vector<float> Costs(const SequenceRows& sequences, int64_t b, int64_t experts,
                         const float* logits) {
  std::vector<float> costs;
  costs.reserve(static_cast<size_t>(sequences.sequence * experts));
  for (int64_t p = 0; p < sequences.sequence; ++p) {
    const float* row = logits + sequences.row(b, p) * experts;
    const float highest = *std::max_element(row, row + experts);
    for (int64_t e = 0; e < experts; ++e) costs.push_back(Exp(row[e] - highest));
  }
  return costs;
}

/// What each expert's column is multiplied by.
std::vector<float> ExpertFactors(int64_t tokens, int64_t experts, const std::vector<float>& costs) {
  const auto count = static_cast<size_t>(experts);
  std::vector<float> factors(count, 1.0f);
  std::vector<float> sums(count);
  const float token_share = 1.0f / static_cast<float>(tokens);
  const float expert_share = 1.0f / static_cast<float>(experts);
  for (int round = 0; round < kSinkhornRounds; ++round) {
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* row = costs.data() + t * experts;
      float weight = 0;
      for (size_t e = 0; e < count; ++e) weight += factors[e] * row[e];
      const float token_factor = token_share / (weight + kLeast);
      for (size_t e = 0; e < count; ++e) sums[e] += token_factor * row[e];
    }
    float change = 0;
    for (size_t e = 0; e < count; ++e) {
      const float next = expert_share / (sums[e] + kLeast);
      change += std::abs(next - factors[e]);
      factors[e] = next;
    }
    if (change * expert_share <= kSinkhornTolerance) break;
  }
  return factors;
}

/// One that chose an expert.
struct Claim {
  float weight;
  int64_t position;
  int64_t choice;  // index into the choices
};

}  // namespace

void SinkhornChooseCpu(int threads, const SequenceRows& sequences, int64_t experts,
                       const float* logits, int32_t* choice) {
  ParallelForEach(threads, sequences.batch, [&](int64_t b, int /*worker*/) {
    const std::vector<float> costs = Costs(sequences, b, experts, logits);
    const std::vector<float> factors = ExpertFactors(sequences.sequence, experts, costs);
    for (int64_t p = 0; p < sequences.sequence; ++p) {
      const float* row = costs.data() + p * experts;
      int64_t best = 0;
      for (int64_t e = 1; e < experts; ++e) {
        const auto at = static_cast<size_t>(e);
        if (factors[at] * row[e] > factors[static_cast<size_t>(best)] * row[best]) best = e;
      }
      choice[sequences.row(b, p)] = static_cast<int32_t>(best);
    }
  });
}

void DropTokensCpu(int threads, const SequenceRows& sequences, int64_t experts, int64_t topk,
                   int64_t capacity, DropPolicy policy, const int32_t* choice, const float* weights,
                   int32_t* kept) {
  ParallelForEach(threads, sequences.batch, [&](int64_t b, int /*worker*/) {
    std::vector<std::vector<Claim>> claims(static_cast<size_t>(experts));
    for (int64_t p = 0; p < sequences.sequence; ++p) {
      const int64_t first = sequences.row(b, p) * topk;
      for (int64_t c = first; c < first + topk; ++c) {
        kept[c] = -1;
        if (choice[c] >= 0) claims[static_cast<size_t>(choice[c])].push_back({weights[c], p, c});
      }
    }
    for (std::vector<Claim>& of_expert : claims) {
      // They are in the order of their positions.
      if (policy == DropPolicy::kProbability) {
        std::stable_sort(of_expert.begin(), of_expert.end(),
                         [](const Claim& a, const Claim& c) { return a.weight > c.weight; });
      }
      const auto count = std::min(of_expert.size(), static_cast<size_t>(capacity));
      for (size_t i = 0; i < count; ++i) kept[of_expert[i].choice] = choice[of_expert[i].choice];
    }
  });
}

}  // namespace trimtab
