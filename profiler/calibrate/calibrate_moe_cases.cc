#include "engine/ops/activation/gate_rows.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/grouped_gemm.h"
#include "engine/ops/moe/permute.h"
#include "engine/ops/moe/router.h"
#include "engine/ops/moe/sequence_routing.h"
#include "profiler/calibrate/calibrate_op_cases.h"

namespace trimtab {
namespace {

constexpr int64_t kExperts = 64;
constexpr int64_t kTopk = 4;
constexpr int64_t kGroups = 8;

}  // namespace

Tensor OpCases::Choices(int64_t tokens, int64_t topk) {
  Tensor choices = Tensor::Empty(rig_.device(), {tokens, topk}, DType::kI32, MemoryTag::kWorkspace);
  std::vector<int32_t> values(static_cast<size_t>(choices.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<int32_t>(i * 5 % static_cast<size_t>(kExperts));
  }
  CopyFromHost(choices, values);
  return choices;
}

void OpCases::AddRouters(std::vector<OpCase>& cases) {
  // The logits are most of what these move.
  const int64_t tokens = Rows(static_cast<double>(kExperts) / kColumns);
  const RouterOptions options = {.topk = kTopk, .pre_softmax = true};
  const Tensor logits = Warm({tokens, kExperts});
  Tensor choice = Choices(tokens, kTopk);
  Tensor weights = Warm({tokens, kTopk});
  cases.push_back({RouterChooseRecord(tokens, kExperts, kTopk, false),
                   [=]() mutable { RouterChoose(logits, {}, options, choice); }});
  cases.push_back({RouterWeightsRecord(tokens, kExperts, kTopk),
                   [=]() mutable { RouterWeights(logits, choice, options, weights); }});
  cases.push_back({RouterWeightsBackwardRecord(tokens, kExperts, kTopk), [=, this] {
                     Tensor dlogits = rig_.Fresh({tokens, kExperts});
                     RouterWeightsBackward(logits, choice, weights, options, dlogits);
                   }});
  const Tensor load = Warm({1, kExperts});
  const Tensor scale = Warm({1});
  Tensor dlogits = Warm({tokens, kExperts});
  cases.push_back({RouterLossBackwardRecord(tokens, kExperts, 1), [=, this]() mutable {
                     Tensor losses = rig_.Fresh({2, tokens});
                     RouterLossBackward(logits, load, {.aux_factor = 1e-9f, .z_coeff = 1e-9f},
                                        scale, dlogits, losses);
                   }});
  const SequenceRows sequence = {.batch = 1, .sequence = tokens};
  Tensor one = Choices(tokens, 1);
  cases.push_back({SinkhornChooseRecord(tokens, kExperts),
                   [=]() mutable { SinkhornChoose(sequence, logits, one); }});
  const int64_t experts = Rows(1) * kColumns / 3;
  const Tensor counts = Warm({experts});
  Tensor bias = Warm({experts});
  cases.push_back(
      {UpdateExpertBiasRecord(experts), [=]() mutable { UpdateExpertBias(counts, 1e-9f, bias); }});
}

void OpCases::AddChoices(std::vector<OpCase>& cases) {
  const int64_t tokens = Rows(3.0 * kTopk / kColumns);
  const int64_t choices = tokens * kTopk;
  const Tensor choice = Choices(tokens, kTopk);
  const Tensor weights = Warm({tokens, kTopk});
  Tensor counts = Warm({1, kExperts});
  Tensor kept = Choices(tokens, kTopk);
  Tensor choice_of = Choices(choices, 1).Reshape({choices});
  cases.push_back({CountChoicesRecord(tokens, kExperts, kTopk, 1),
                   [=]() mutable { CountChoices(choice, counts, /*accumulate=*/false); }});
  const SequenceRows sequence = {.batch = 1, .sequence = tokens};
  const int64_t capacity = choices / kExperts;
  cases.push_back({DropTokensRecord(tokens, kExperts, kTopk), [=]() mutable {
                     DropTokens(sequence, kExperts, capacity, DropPolicy::kProbability, choice,
                                weights, kept);
                   }});
  cases.push_back({SortByExpertRecord(choices, kExperts, tokens, kTopk), [=]() mutable {
                     SortByExpert(choice, {0, kExperts}, /*padded_rows=*/0, kept, choice_of);
                   }});
  // As if one rank had sent as many rows for each expert.
  const int64_t each = choices / kExperts;
  Tensor sent = Warm({1, kExperts});
  Fill(sent, static_cast<float>(each));
  Tensor by_expert = Choices(each * kExperts, 1).Reshape({each * kExperts});
  Tensor by_rank = Choices(each * kExperts, 1).Reshape({each * kExperts});
  cases.push_back({OrderArrivalsRecord(each * kExperts, 1, kExperts), [=]() mutable {
                     OrderArrivals(sent, /*lead=*/1, {0, kExperts}, by_expert, by_rank);
                   }});
}

void OpCases::AddDispatch(std::vector<OpCase>& cases) {
  const int64_t tokens = Rows(1 + kTopk);
  const int64_t rows = tokens * kTopk;
  Tensor row_of = Choices(tokens, kTopk);
  Tensor choice_of = Choices(rows, 1).Reshape({rows});
  SortByExpert(Choices(tokens, kTopk), {0, kExperts}, /*padded_rows=*/0, row_of, choice_of);
  const Tensor x = Warm({tokens, kColumns});
  const Tensor expert_out = Warm({rows, kColumns});
  const Tensor weights = Warm({tokens, kTopk});
  cases.push_back({PermuteRecord(rows, kColumns, tokens, kTopk), [=, this] {
                     Tensor out = rig_.Fresh({rows, kColumns});
                     Permute(x, choice_of, kTopk, out);
                   }});
  cases.push_back({UnpermuteRecord(rows, kColumns, tokens, kTopk, true), [=, this] {
                     Tensor y = rig_.Fresh({tokens, kColumns});
                     Unpermute(expert_out, row_of, weights, y);
                   }});
  cases.push_back({UnpermuteBackwardRecord(rows, kColumns, tokens, kTopk), [=, this] {
                     Tensor drows = rig_.Fresh({rows, kColumns});
                     Tensor dweights = rig_.Fresh({tokens, kTopk});
                     UnpermuteBackward(x, rig_.ColdInput({rows, kColumns}), row_of, choice_of,
                                       weights, drows, dweights);
                   }});
}

void OpCases::AddExperts(std::vector<OpCase>& cases) {
  const int64_t rows = Rows(2);
  std::vector<int64_t> groups(kGroups, rows / kGroups);
  groups.back() += rows % kGroups;
  const Tensor bias = Warm({kGroups, kColumns});
  Tensor dbias = Warm({kGroups, kColumns});
  Tensor y = Warm({rows, kColumns});
  cases.push_back({GroupedAddBiasRecord(rows, kColumns, kGroups),
                   [=]() mutable { GroupedAddBias(bias, groups, y); }});
  cases.push_back({GroupedBiasBackwardRecord(rows, kColumns, kGroups),
                   [=]() mutable { GroupedBiasBackward(y, groups, dbias, /*accumulate=*/true); }});
  const Tensor gate = Warm({rows, 1});
  cases.push_back({GateRowsRecord(rows, kColumns), [=, this] {
                     Tensor gated = rig_.Fresh({rows, kColumns});
                     GateRows(gate, y, gated);
                   }});
  cases.push_back({GateRowsBackwardRecord(rows, kColumns), [=, this] {
                     Tensor dx = rig_.Fresh({rows, kColumns});
                     Tensor dgate = rig_.Fresh({rows, 1});
                     GateRowsBackward(gate, rig_.ColdInput({rows, kColumns}), y, dx, dgate);
                   }});
}

}  // namespace trimtab
