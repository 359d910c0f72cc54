// The cases of op_list.h that belong to a mixture of experts.
#include "engine/ops/activation/gate_rows.h"
#include "engine/ops/fp8/grouped_quantize.h"
#include "engine/ops/gemm/grouped_gemm.h"
#include "engine/ops/moe/permute.h"
#include "engine/ops/moe/router.h"
#include "engine/ops/moe/sequence_routing.h"
#include "tests/engine/ops/op_inputs.h"

namespace trimtab {
namespace {

constexpr int64_t kTokens = 1530;
constexpr int64_t kColumns = 197;
constexpr int64_t kExperts = 12;
constexpr int64_t kTopk = 3;
constexpr int64_t kRows = kTokens * kTopk;
constexpr SequenceRows kSequences = {.batch = 5, .sequence = 306, .ranks = 3};
const Shape kChoices = {kTokens, kTopk};
const Shape kLogits = {kTokens, kExperts};
const std::vector<int64_t> kGroups = {400, 0, 1, 1129};  // kTokens in all
constexpr int64_t kWidth = 61;

// Three different experts for each token.
Tensor Choice(Device& device) {
  return ListIds(device, kChoices,
                 [](int64_t i) { return (i / kTopk * 5 + i % kTopk) % kExperts; });
}
// A row of its own for each choice.
Tensor Mixed(Device& device, const Shape& shape) {
  return ListIds(device, shape, [](int64_t i) { return i * 1709 % kRows; });
}
// The other way round.
Tensor MixedBack(Device& device) {
  std::vector<int64_t> back(static_cast<size_t>(kRows));
  for (int64_t i = 0; i < kRows; ++i) back[static_cast<size_t>(i * 1709 % kRows)] = i;
  return ListIds(device, {kRows}, [&back](int64_t i) { return back[static_cast<size_t>(i)]; });
}

}  // namespace

std::vector<OpCase> RouterOps() {
  const RouterOptions options = {.topk = kTopk,
                                 .score = RouterScore::kSigmoid,
                                 .norm_topk = true,
                                 .scaling_factor = 2.0f,
                                 .num_groups = 4,
                                 .group_topk = 2,
                                 .group_score = GroupScore::kSumOfTopTwo};
  const RouterOptions softmax = {.topk = kTopk, .pre_softmax = true};
  std::vector<OpCase> ops;
  ops.push_back(ListCase(RouterChooseRecord(kTokens, kExperts, kTopk, true), [options](Device& d) {
    Tensor choice = Choice(d);
    RouterChoose(ListValues(d, kLogits, 1), ListValues(d, {kExperts}, 2), options, choice);
    return std::vector<Tensor>{choice};
  }));
  ops.push_back(ListCase(RouterChooseRecord(kTokens, kExperts, kTopk, false), [](Device& d) {
    Tensor choice = Choice(d);
    RouterChooseInTurn({1, 306}, kExperts, choice);
    return std::vector<Tensor>{choice};
  }));
  ops.back().name += "_in_turn";
  for (const RouterOptions& each : {options, softmax}) {
    const char* name = each.pre_softmax ? "_softmax" : "_sigmoid";
    ops.push_back(ListCase(RouterWeightsRecord(kTokens, kExperts, kTopk), [each](Device& d) {
      Tensor weights = ListConstant(d, kChoices, 0.0f);
      RouterWeights(ListValues(d, kLogits, 1), Choice(d), each, weights);
      return std::vector<Tensor>{weights};
    }));
    ops.back().name += name;
    ops.push_back(
        ListCase(RouterWeightsBackwardRecord(kTokens, kExperts, kTopk), [each](Device& d) {
          Tensor dlogits = ListConstant(d, kLogits, 0.0f);
          RouterWeightsBackward(ListValues(d, kLogits, 1), Choice(d), ListValues(d, kChoices, 2),
                                each, dlogits);
          return std::vector<Tensor>{dlogits};
        }));
    ops.back().name += name;
    ops.push_back(ListCase(RouterLossBackwardRecord(kTokens, kExperts, 5), [each](Device& d) {
      Tensor dlogits = ListValues(d, kLogits, 3);
      Tensor losses = ListConstant(d, {2, kTokens}, 0.0f);
      RouterLossBackward(ListValues(d, kLogits, 1), ListValues(d, {5, kExperts}, 2),
                         {.score = each.score, .aux_factor = 0.5f, .z_coeff = 0.25f},
                         ListConstant(d, {1}, 0.125f), dlogits, losses);
      return std::vector<Tensor>{dlogits, losses};
    }));
    ops.back().name += name;
  }
  ops.push_back(ListCase(CountChoicesRecord(kTokens, kExperts, kTopk, 5), [](Device& d) {
    Tensor counts = ListConstant(d, {5, kExperts}, 2.0f);
    CountChoices(Choice(d), counts, true);
    return std::vector<Tensor>{counts};
  }));
  ops.push_back(ListCase(UpdateExpertBiasRecord(kExperts), [](Device& d) {
    Tensor bias = ListValues(d, {kExperts}, 1);
    UpdateExpertBias(ListValues(d, {kExperts}, 2), 0.01f, bias);
    return std::vector<Tensor>{bias};
  }));
  ops.push_back(ListCase(SinkhornChooseRecord(kTokens, kExperts), [](Device& d) {
    Tensor choice = ListIds(d, {kTokens, 1}, [](int64_t) { return 0; });
    SinkhornChoose(kSequences, ListValues(d, kLogits, 1), choice);
    return std::vector<Tensor>{choice};
  }));
  for (const DropPolicy policy : {DropPolicy::kProbability, DropPolicy::kPosition}) {
    ops.push_back(ListCase(DropTokensRecord(kTokens, kExperts, kTopk), [policy](Device& d) {
      Tensor kept = Choice(d);
      DropTokens(kSequences, kExperts, 70, policy, Choice(d), ListValues(d, kChoices, 2), kept);
      return std::vector<Tensor>{kept};
    }));
    ops.back().name += policy == DropPolicy::kPosition ? "_position" : "_probability";
  }
  ops.push_back(ListCase(SortByExpertRecord(kRows, kExperts, kTokens, kTopk), [](Device& d) {
    Tensor row_of = Choice(d);
    Tensor choice_of = Mixed(d, {kRows});
    SortByExpert(Choice(d), {0, kExperts}, 0, row_of, choice_of);
    return std::vector<Tensor>{row_of, choice_of};
  }));
  ops.push_back(
      ListCase(SortByExpertRecord(kExperts * 400, kExperts, kTokens, kTopk), [](Device& d) {
        Tensor row_of = Choice(d);
        Tensor choice_of = ListIds(d, {kExperts * 400}, [](int64_t) { return 0; });
        SortByExpert(Choice(d), {0, kExperts}, 400, row_of, choice_of);
        return std::vector<Tensor>{row_of, choice_of};
      }));
  ops.back().name += "_padded";
  // 4 ranks, two of which share each expert, send 0 to 6 rows for each of 9 experts; 5 came.
  constexpr int64_t kSenders = 4;
  constexpr int64_t kAll = 9;
  const auto sent = [](int64_t i) { return i * i % 7; };
  int64_t arrived = 0;
  for (int64_t i = 0; i < kSenders * kAll; ++i) {
    if (i % kAll >= 2 && i % kAll < 7) arrived += sent(i);
  }
  ops.push_back(ListCase(OrderArrivalsRecord(arrived, kSenders, 5), [=](Device& d) {
    Tensor counts = ListConstant(d, {kSenders, kAll}, 0.0f);
    std::vector<float> values;
    for (int64_t i = 0; i < kSenders * kAll; ++i) values.push_back(static_cast<float>(sent(i)));
    if (d.kind() != DeviceKind::kMeta) CopyFromHost(counts, values);
    const auto zeros = [&] { return ListIds(d, {arrived}, [](int64_t) { return 0; }); };
    Tensor by_expert = zeros();
    Tensor by_rank = zeros();
    OrderArrivals(counts, /*lead=*/2, {2, 5}, by_expert, by_rank);
    return std::vector<Tensor>{by_expert, by_rank};
  }));
  return ops;
}

namespace {

void AddGroupedFp8(std::vector<OpCase>& ops, DType dtype, DType gradient) {
  constexpr int64_t kIn = 192;
  constexpr int64_t kOut = 80;
  const auto groups = static_cast<int64_t>(kGroups.size());
  ops.push_back(ListCase(QuantizeRecord(kTokens, kColumns, dtype, true, true), [=](Device& d) {
    Fp8Output out = {.rows = ListConstant(d, {kTokens, kColumns}, 0.0f, DType::kF8E5M2),
                     .transposed = ListConstant(d, {TransposedGroupsSize(kGroups, kColumns)}, 0.0f,
                                                DType::kF8E5M2),
                     .amax = ListConstant(d, {1}, 0.25f)};
    QuantizeGroups(ListValues(d, {kTokens, kColumns}, 2, dtype), kGroups,
                   ListConstant(d, {1}, 3.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  }));
  ops.back().name += "_groups";
  const GemmTypes forward = {DType::kF8E4M3, DType::kF8E4M3, dtype};
  ops.push_back(ListCase(GroupedGemmRecord(groups, kTokens, kOut, kIn, forward), [=](Device& d) {
    Tensor c = ListValues(d, {kTokens, kOut}, 1, dtype);
    GroupedGemm(ListValues(d, {kTokens, kIn}, 2, DType::kF8E4M3),
                ListValues(d, {groups, kOut, kIn}, 3, DType::kF8E4M3), Transpose::kYes, kGroups, c,
                {.scale_a = ListConstant(d, {1}, 0.3f), .scale_b = ListConstant(d, {1}, 2)});
    return std::vector<Tensor>{c};
  }));
  ops.back().name += "_fp8";
  const GemmTypes weights = {DType::kF8E5M2, DType::kF8E4M3, gradient};
  ops.push_back(
      ListCase(GroupedGemmWeightsRecord(groups, kOut, kIn, kTokens, true, weights), [=](Device& d) {
        Tensor c = ListValues(d, {groups, kOut, kIn}, 1, gradient);
        GroupedGemmWeights(ListValues(d, {TransposedGroupsSize(kGroups, kOut)}, 2, DType::kF8E5M2),
                           ListValues(d, {TransposedGroupsSize(kGroups, kIn)}, 3, DType::kF8E4M3),
                           kGroups, c,
                           {.accumulate = true,
                            .scale_a = ListConstant(d, {1}, 0.3f),
                            .scale_b = ListConstant(d, {1}, 0.7f)});
        return std::vector<Tensor>{c};
      }));
  ops.back().name += "_weights_fp8";
}

}  // namespace

std::vector<OpCase> ExpertOpsIn(DType dtype, DType gradient) {
  const auto groups = static_cast<int64_t>(kGroups.size());
  std::vector<OpCase> ops;
  ops.push_back(ListCase(
      GroupedGemmRecord(groups, kTokens, kWidth, kColumns, {dtype, dtype, dtype}), [=](Device& d) {
        Tensor c = ListValues(d, {kTokens, kWidth}, 1, dtype);
        GroupedGemm(ListValues(d, {kTokens, kColumns}, 2, dtype),
                    ListValues(d, {groups, kWidth, kColumns}, 3, dtype), Transpose::kYes, kGroups,
                    c);
        return std::vector<Tensor>{c};
      }));
  for (const bool accumulate : {false, true}) {
    ops.push_back(ListCase(GroupedGemmWeightsRecord(groups, kColumns, kWidth, kTokens, accumulate,
                                                    {dtype, dtype, gradient}),
                           [=](Device& d) {
                             Tensor c = ListValues(d, {groups, kColumns, kWidth}, 1, gradient);
                             GroupedGemmWeights(ListValues(d, {kTokens, kColumns}, 2, dtype),
                                                ListValues(d, {kTokens, kWidth}, 3, dtype), kGroups,
                                                c, {.accumulate = accumulate});
                             return std::vector<Tensor>{c};
                           }));
    ops.back().name += accumulate ? "_weights_accumulate" : "_weights";
  }
  AddGroupedFp8(ops, dtype, gradient);
  ops.push_back(ListCase(GroupedAddBiasRecord(kTokens, kColumns, groups, dtype), [=](Device& d) {
    Tensor x = ListValues(d, {kTokens, kColumns}, 1, dtype);
    GroupedAddBias(ListValues(d, {groups, kColumns}, 2, dtype), kGroups, x);
    return std::vector<Tensor>{x};
  }));
  ops.push_back(ListCase(
      GroupedBiasBackwardRecord(kTokens, kColumns, groups, dtype, gradient), [=](Device& d) {
        Tensor dbias = ListValues(d, {groups, kColumns}, 1, gradient);
        GroupedBiasBackward(ListValues(d, {kTokens, kColumns}, 2, dtype), kGroups, dbias, true);
        return std::vector<Tensor>{dbias};
      }));
  ops.push_back(ListCase(PermuteRecord(kRows, kColumns, kTokens, kTopk, dtype), [=](Device& d) {
    Tensor rows = ListValues(d, {kRows, kColumns}, 1, dtype);
    Permute(ListValues(d, {kTokens, kColumns}, 2, dtype), MixedBack(d), kTopk, rows);
    return std::vector<Tensor>{rows};
  }));
  ops.push_back(
      ListCase(UnpermuteRecord(kRows, kColumns, kTokens, kTopk, true, dtype), [=](Device& d) {
        Tensor y = ListValues(d, {kTokens, kColumns}, 1, dtype);
        Unpermute(ListValues(d, {kRows, kColumns}, 2, dtype), Mixed(d, kChoices),
                  ListValues(d, kChoices, 3), y);
        return std::vector<Tensor>{y};
      }));
  ops.push_back(
      ListCase(UnpermuteBackwardRecord(kRows, kColumns, kTokens, kTopk, dtype), [=](Device& d) {
        Tensor drows = ListValues(d, {kRows, kColumns}, 1, dtype);
        Tensor dweights = ListValues(d, kChoices, 4);
        UnpermuteBackward(ListValues(d, {kTokens, kColumns}, 2, dtype),
                          ListValues(d, {kRows, kColumns}, 3, dtype), Mixed(d, kChoices),
                          MixedBack(d), ListValues(d, kChoices, 5), drows, dweights);
        return std::vector<Tensor>{drows, dweights};
      }));
  ops.push_back(ListCase(GateRowsRecord(kTokens, kColumns, dtype), [=](Device& d) {
    Tensor y = ListValues(d, {kTokens, kColumns}, 1, dtype);
    GateRows(ListValues(d, {kTokens, 1}, 2), ListValues(d, {kTokens, kColumns}, 3, dtype), y);
    return std::vector<Tensor>{y};
  }));
  ops.push_back(ListCase(GateRowsBackwardRecord(kTokens, kColumns, dtype), [=](Device& d) {
    Tensor dx = ListValues(d, {kTokens, kColumns}, 1, dtype);
    Tensor dgate = ListValues(d, {kTokens, 1}, 4);
    GateRowsBackward(ListValues(d, {kTokens, 1}, 2), ListValues(d, {kTokens, kColumns}, 3, dtype),
                     ListValues(d, {kTokens, kColumns}, 5, dtype), dx, dgate);
    return std::vector<Tensor>{dx, dgate};
  }));
  return ops;
}

}  // namespace trimtab
