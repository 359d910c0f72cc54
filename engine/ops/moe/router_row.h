// The router's arithmetic for one token, shared by the cpu and the CUDA kernels: E logits in, k
// experts, their weights and the gradients out. All fp32.
#pragma once

#include <cstdint>

#include "engine/ops/math.h"
#include "engine/ops/moe/router.h"

namespace trimtab {

/// What turns the logits of a row into probabilities: softmax p = exp(l - max) / sum.
struct SoftmaxOfRow {
  float max;
  float inverse;  // 1 / sum of exp(l - max)
  float log_sum_exp;

  TRIMTAB_HOST_DEVICE float of(float logit) const { return Exp(logit - max) * inverse; }
};

TRIMTAB_HOST_DEVICE SoftmaxOfRow MakeSoftmax(const float* logits, int64_t experts) {
  float max = logits[0];
  for (int64_t e = 1; e < experts; ++e) max = logits[e] > max ? logits[e] : max;
  float sum = 0;
  for (int64_t e = 0; e < experts; ++e) sum += Exp(logits[e] - max);
  return {max, 1.0f / sum, max + std::log(sum)};
}

/// Whether (value, index) comes after (last, last_index) in the order of a choice: falling values,
/// of equal ones the lowest index first.
TRIMTAB_HOST_DEVICE bool ComesAfter(float value, int64_t index, float last, int64_t last_index) {
  return value < last || (value == last && index > last_index);
}

/// What a choice goes by. A softmax keeps the order of the logits, which then stand for it.
struct ChoiceScores {
  const float* logits;
  const float* bias;  // or null
  RouterScore score;
  bool plain;  // the logits themselves
  SoftmaxOfRow softmax;

  TRIMTAB_HOST_DEVICE float of(int64_t e) const {
    if (plain) return logits[e];
    const float value = score == RouterScore::kSigmoid ? Sigmoid(logits[e]) : softmax.of(logits[e]);
    return bias != nullptr ? value + bias[e] : value;
  }
};

/// The score of the group of experts [first, first + size).
TRIMTAB_HOST_DEVICE float ScoreOfGroup(const ChoiceScores& scores, GroupScore kind, int64_t first,
                                       int64_t size) {
  float best = scores.of(first);
  float second = -INFINITY;
  for (int64_t e = first + 1; e < first + size; ++e) {
    const float value = scores.of(e);
    if (value > best) {
      second = best;
      best = value;
    } else if (value > second) {
      second = value;
    }
  }
  return kind == GroupScore::kSumOfTopTwo && size > 1 ? best + second : best;
}

/// The groups that a row may choose from, as bits.
TRIMTAB_HOST_DEVICE uint64_t ChooseGroups(const ChoiceScores& scores, const RouterOptions& o,
                                          int64_t experts) {
  if (o.group_topk == o.num_groups) return ~uint64_t{0};
  const int64_t size = experts / o.num_groups;
  uint64_t chosen = 0;
  float last = INFINITY;
  int64_t last_group = -1;
  for (int64_t i = 0; i < o.group_topk; ++i) {
    float best = -INFINITY;
    int64_t best_group = -1;
    for (int64_t g = 0; g < o.num_groups; ++g) {
      const float value = ScoreOfGroup(scores, o.group_score, g * size, size);
      if (!ComesAfter(value, g, last, last_group)) continue;
      if (best_group >= 0 && !ComesAfter(best, best_group, value, g)) continue;
      best = value;
      best_group = g;
    }
    chosen |= uint64_t{1} << best_group;
    last = best;
    last_group = best_group;
  }
  return chosen;
}

/// Writes the k experts of a row, the best first. `bias` may be null.
TRIMTAB_HOST_DEVICE void ChooseRow(const float* logits, const float* bias, const RouterOptions& o,
                                   int64_t experts, int32_t* choice) {
  const bool plain = bias == nullptr && o.group_score == GroupScore::kMax;
  const bool softmax = !plain && o.score == RouterScore::kSoftmax;
  const ChoiceScores scores = {logits, bias, o.score, plain,
                               softmax ? MakeSoftmax(logits, experts) : SoftmaxOfRow{}};
  const uint64_t groups = ChooseGroups(scores, o, experts);
  const int64_t group_size = experts / o.num_groups;
  float last = INFINITY;
  int64_t last_expert = -1;
  for (int64_t j = 0; j < o.topk; ++j) {
    float best = -INFINITY;
    int64_t best_expert = -1;
    for (int64_t e = 0; e < experts; ++e) {
      if ((groups >> (e / group_size) & 1) == 0) continue;
      const float value = scores.of(e);
      if (!ComesAfter(value, e, last, last_expert)) continue;
      if (best_expert >= 0 && value <= best) continue;
      best = value;
      best_expert = e;
    }
    // Values that are no numbers come in no order: some expert must be named.
    choice[j] = static_cast<int32_t>(best_expert < 0 ? j : best_expert);
    last = best;
    last_expert = best_expert;
  }
}

/// The unscaled score of expert choice[j], before weights are divided by their sum.
struct ChosenScores {
  const float* logits;
  const int32_t* choice;
  RouterScore score;
  SoftmaxOfRow softmax;  // over all experts, or the chosen ones
  float sum;             // of the scores; 1 where they stay as they are

  TRIMTAB_HOST_DEVICE float of(int64_t j) const {
    const float logit = logits[choice[j]];
    return score == RouterScore::kSigmoid ? Sigmoid(logit) : softmax.of(logit);
  }
};

TRIMTAB_HOST_DEVICE ChosenScores MakeChosenScores(const float* logits, const int32_t* choice,
                                                  const RouterOptions& o, int64_t experts) {
  ChosenScores scores = {logits, choice, o.score, {}, 1.0f};
  if (o.score == RouterScore::kSoftmax) {
    if (o.pre_softmax) {
      scores.softmax = MakeSoftmax(logits, experts);
    } else {
      float max = logits[choice[0]];
      for (int64_t j = 1; j < o.topk; ++j) {
        max = logits[choice[j]] > max ? logits[choice[j]] : max;
      }
      float sum = 0;
      for (int64_t j = 0; j < o.topk; ++j) sum += Exp(logits[choice[j]] - max);
      scores.softmax = {max, 1.0f / sum, 0.0f};
    }
  }
  if (o.norm_topk) {
    float sum = 1e-20f;
    for (int64_t j = 0; j < o.topk; ++j) sum += scores.of(j);
    scores.sum = sum;
  }
  return scores;
}

/// weights[j] of the chosen experts of a row.
TRIMTAB_HOST_DEVICE void WeightsOfRow(const float* logits, const int32_t* choice,
                                      const RouterOptions& o, int64_t experts, float* weights) {
  const ChosenScores scores = MakeChosenScores(logits, choice, o, experts);
  // Divided, so that the weight of an expert alone is exactly 1: which tokens are dropped, where
  // those of little weight are, then does not depend on how it was rounded.
  for (int64_t j = 0; j < o.topk; ++j) {
    weights[j] = o.scaling_factor * (scores.of(j) / scores.sum);
  }
}

/// dlogits[e] of a row from dweights[j].
TRIMTAB_HOST_DEVICE void WeightsOfRowBackward(const float* logits, const int32_t* choice,
                                              const float* dweights, const RouterOptions& o,
                                              int64_t experts, float* dlogits) {
  const ChosenScores scores = MakeChosenScores(logits, choice, o, experts);
  // With s the scores and w = f s / S: dw/ds is f / S, less what s adds to the sum S.
  const float factor = o.scaling_factor / scores.sum;
  float shared = 0;
  if (o.norm_topk) {
    for (int64_t j = 0; j < o.topk; ++j) shared += dweights[j] * scores.of(j);
    shared /= scores.sum;
  }
  if (o.score == RouterScore::kSigmoid) {
    for (int64_t e = 0; e < experts; ++e) dlogits[e] = 0.0f;
    for (int64_t j = 0; j < o.topk; ++j) {
      const float s = scores.of(j);
      dlogits[choice[j]] = factor * (dweights[j] - shared) * s * (1.0f - s) *
                           o.soft_cap.Derivative(logits[choice[j]]);
    }
    return;
  }
  // Softmax p: dl = p (g - sum of g p), with g the gradient of p.
  float mean = 0;
  for (int64_t j = 0; j < o.topk; ++j) mean += factor * (dweights[j] - shared) * scores.of(j);
  for (int64_t e = 0; e < experts; ++e) {
    dlogits[e] = o.pre_softmax
                     ? -mean * scores.softmax.of(logits[e]) * o.soft_cap.Derivative(logits[e])
                     : 0.0f;
  }
  for (int64_t j = 0; j < o.topk; ++j) {
    const float g = factor * (dweights[j] - shared);
    dlogits[choice[j]] = scores.of(j) * (g - mean) * o.soft_cap.Derivative(logits[choice[j]]);
  }
}

/// Adds to dlogits[e] of a row the gradient of its two losses times `scale`, and writes the losses:
/// losses[0] = o.aux_factor sum_e p_e load_e, losses[stride] = o.z_coeff (logsumexp)^2.
TRIMTAB_HOST_DEVICE void LossOfRowBackward(const float* logits, const float* load,
                                           const RouterLossOptions& o, int64_t experts, float scale,
                                           float* dlogits, float* losses, int64_t stride) {
  const SoftmaxOfRow softmax = MakeSoftmax(logits, experts);
  const bool sigmoid = o.score == RouterScore::kSigmoid;
  float inverse_sum = 1.0f;
  if (sigmoid) {
    float sum = 1e-20f;
    for (int64_t e = 0; e < experts; ++e) sum += Sigmoid(logits[e]);
    inverse_sum = 1.0f / sum;
  }
  float aux = 0;
  for (int64_t e = 0; e < experts; ++e) {
    aux += o.aux_factor * load[e] *
           (sigmoid ? Sigmoid(logits[e]) * inverse_sum : softmax.of(logits[e]));
  }
  const float z = softmax.log_sum_exp;
  for (int64_t e = 0; e < experts; ++e) {
    const float p = softmax.of(logits[e]);
    const float s = sigmoid ? Sigmoid(logits[e]) : 0.0f;
    const float slope = sigmoid ? s * (1.0f - s) * inverse_sum : p;
    const float gradient = slope * (o.aux_factor * load[e] - aux) + 2.0f * o.z_coeff * z * p;
    dlogits[e] += scale * gradient * o.soft_cap.Derivative(logits[e]);
  }
  losses[0] = aux;
  losses[stride] = o.z_coeff * z * z;
}

/// RouterChooseInTurn for row `row`.
TRIMTAB_HOST_DEVICE void ChooseRowInTurn(const RowPositions& positions, int64_t row,
                                         int64_t experts, int64_t topk, int32_t* choice) {
  const int64_t position = positions.of(row);
  for (int64_t j = 0; j < topk; ++j) {
    choice[j] = static_cast<int32_t>((position * topk + j) % experts);
  }
}

/// What UpdateExpertBias adds to the bias of an expert that has `count` of `total` choices.
TRIMTAB_HOST_DEVICE float ExpertBiasStep(float total, int64_t experts, float count, float rate) {
  const float excess = count * static_cast<float>(experts) - total;
  if (excess == 0.0f) return 0.0f;
  return excess > 0.0f ? -rate : rate;
}

}  // namespace trimtab
