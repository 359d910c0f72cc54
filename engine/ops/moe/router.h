// The router of a mixture of experts: from logits [N, E] to the k experts of each token, their
// weights, and back. fp32 throughout; choices are int32. The arithmetic of a token is in
// router_row.h.
#pragma once

#include <cstdint>

#include "engine/config/model/moe_config.h"
#include "engine/device/tensor.h"
#include "engine/ops/attention/row_layout.h"
#include "engine/ops/math.h"

namespace trimtab {

/// How experts are chosen and weighed: members of MoeConfig.
struct RouterOptions {
  int64_t topk = 1;  // k
  RouterScore score = RouterScore::kSoftmax;
  bool pre_softmax = false;
  bool norm_topk = false;
  float scaling_factor = 1.0f;
  int64_t num_groups = 1;  // at most kMaxExpertGroups
  int64_t group_topk = 1;
  GroupScore group_score = GroupScore::kMax;
  SoftCap soft_cap{};  // that has been applied to the logits
};
RouterOptions RouterOptionsOf(const MoeConfig& moe);

OpRecord RouterChooseRecord(int64_t rows, int64_t experts, int64_t topk, bool bias);
OpRecord RouterWeightsRecord(int64_t rows, int64_t experts, int64_t topk);
OpRecord RouterWeightsBackwardRecord(int64_t rows, int64_t experts, int64_t topk);
OpRecord RouterLossBackwardRecord(int64_t rows, int64_t experts, int64_t sequences);
OpRecord CountChoicesRecord(int64_t rows, int64_t experts, int64_t topk, int64_t runs);
OpRecord UpdateExpertBiasRecord(int64_t experts);

/// choice [N, k] = the experts of the k highest scores of each row of logits [N, E], the highest
/// first, of equal ones the lowest number. `bias` [E], which may be undefined, is added to the
/// scores. With groups, of the experts of the best groups (DeepSeek-V3, arXiv:2412.19437, section
/// 2.1.2).
void RouterChoose(const Tensor& logits, const Tensor& bias, const RouterOptions& options,
                  Tensor& choice);
/// choice [N, k] whatever the logits say: the token at position p of a sequence takes the experts
/// p k, p k + 1, ... (mod E). The rows are those of
/// `layout`.
void RouterChooseInTurn(const RowLayout& layout, int64_t experts, Tensor& choice);

/// weights [N, k] of the chosen experts:
///   softmax  over all E logits (pre_softmax) or over the chosen k; sigmoid of each logit
///   divided by their sum + 1e-20 with norm_topk; times scaling_factor.
void RouterWeights(const Tensor& logits, const Tensor& choice, const RouterOptions& options,
                   Tensor& weights);
/// dlogits [N, E], overwritten, from dweights [N, k]: of the logits before the soft cap.
void RouterWeightsBackward(const Tensor& logits, const Tensor& choice, const Tensor& dweights,
                           const RouterOptions& options, Tensor& dlogits);

/// What the losses of a router are weighed with.
struct RouterLossOptions {
  RouterScore score = RouterScore::kSoftmax;
  float aux_factor = 0;  // aux_loss_coeff * E / (k T)
  float z_coeff = 0;
  SoftCap soft_cap{};  // as in RouterOptions
};

/// The losses of each token, with p the softmax of its logits (sigmoids: divided by their sum), and
/// load [B, E] how many of the T tokens of its sequence chose each expert:
///   losses [2, N] = aux_factor * sum_e p_e load_e,  z_coeff * (logsumexp of the logits)^2
/// The mean of the first over the tokens of a sequence is the load-balancing loss of
/// Megatron-Core's seq_aux_loss, coeff * E / (k T^2) * sum_e (sum_t p_te) load_e (arXiv:2101.03961,
/// equation 4); that of the second the z-loss (arXiv:2202.08906, equation 5). Adds gradient_scale
/// [1] times the gradient of their sum to dlogits [N, E]; the
/// logits before the soft cap; loads are constants. The rows are N
/// / B of each of B sequences.
void RouterLossBackward(const Tensor& logits, const Tensor& load, const RouterLossOptions& options,
                        const Tensor& gradient_scale, Tensor& dlogits, Tensor& losses);

/// counts [runs, E] = (counts +) how often each expert stands in each of `runs` equal runs of rows
/// of choice [N, k]. -1 stands for none.
void CountChoices(const Tensor& choice, Tensor& counts, bool accumulate);

/// bias [E] += rate * sign(mean of counts - counts[e]) (arXiv:2408.15664, algorithm 1).
void UpdateExpertBias(const Tensor& counts, float rate, Tensor& bias);

}  // namespace trimtab
