// The cases of op_list.h that belong to attention.
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_block.h"
#include "engine/ops/attention/attention_sink.h"
#include "engine/ops/attention/latent_heads.h"
#include "engine/ops/norm/head_norm.h"
#include "engine/ops/norm/whole_norm.h"
#include "tests/engine/ops/op_inputs.h"

namespace trimtab {
namespace {

const AttentionShape kAttention = {
    .rows = {5, 131}, .heads = 6, .kv_heads = 3, .head_size = 10, .value_head_size = 7};
const Shape kQkv = {kAttention.tokens(), kAttention.qkv_size()};
const Shape kQuery = {kAttention.tokens(), kAttention.query_size()};
const Shape kOut = {kAttention.tokens(), kAttention.out_size()};
const Shape kLogSumExp = {kAttention.rows.batch, kAttention.heads, kAttention.rows.sequence};

// Where heads have norms, values are of the size of keys.
const AttentionShape kNormed = {.rows = {5, 131}, .heads = 6, .kv_heads = 3, .head_size = 10};
const Shape kNormedQkv = {kNormed.tokens(), kNormed.qkv_size()};

/// Storage types of one round over the ops: of activations and weights, of weights' gradients.
struct Types {
  DType data;
  DType gradient;
};

void AddHeadNorms(std::vector<OpCase>& ops, const Types& t) {
  static const Shape kRstd = {kNormed.tokens(), kNormed.heads + kNormed.kv_heads};
  static const Shape kWeight = {kNormed.head_size};
  ops.push_back(ListCase(HeadNormForwardRecord(kNormed, t.data), [t](Device& d) {
    Tensor out = ListValues(d, kNormedQkv, 1, t.data);
    Tensor rstd = ListValues(d, kRstd, 2);
    HeadNormForward(kNormed, ListValues(d, kNormedQkv, 3, t.data),
                    ListValues(d, kWeight, 4, t.data), ListValues(d, kWeight, 5, t.data), 1e-5, out,
                    rstd);
    return std::vector<Tensor>{out, rstd};
  }));
  ops.push_back(ListCase(HeadNormBackwardRecord(kNormed, t.data, t.gradient), [t](Device& d) {
    Tensor dqkv = ListValues(d, kNormedQkv, 1, t.data);
    Tensor dweights = ListValues(d, {2, kNormed.head_size}, 2, t.gradient);
    HeadNormBackward(kNormed, ListValues(d, kNormedQkv, 3, t.data),
                     ListValues(d, kWeight, 4, t.data), ListValues(d, kWeight, 5, t.data),
                     ListValues(d, kRstd, 6), false, dqkv, dweights);
    return std::vector<Tensor>{dqkv, dweights};
  }));
}

void AddWholeNorms(std::vector<OpCase>& ops, const Types& t) {
  static const Shape kSums = {kNormed.tokens(), 2};
  static const int64_t kQueries = kNormed.heads * kNormed.head_size;
  static const int64_t kKeys = kNormed.kv_heads * kNormed.head_size;
  const auto norms = [t](Device& d) {
    return WholeNorms{.query_weight = ListValues(d, {kQueries}, 11, t.data),
                      .key_weight = ListValues(d, {kKeys}, 12, t.data),
                      .query_count = kQueries,
                      .key_count = kKeys,
                      .options = 1e-5};
  };
  const auto squares = [](Device& d) { return ListConstant(d, kSums, 3.0f); };
  ops.push_back(ListCase(WholeNormSquaresRecord(kNormed, t.data), [t](Device& d) {
    Tensor sums = ListValues(d, kSums, 1);
    WholeNormSquares(kNormed, ListValues(d, kNormedQkv, 3, t.data), sums);
    return std::vector<Tensor>{sums};
  }));
  ops.push_back(ListCase(WholeNormForwardRecord(kNormed, t.data), [=](Device& d) {
    Tensor out = ListValues(d, kNormedQkv, 1, t.data);
    WholeNormForward(kNormed, ListValues(d, kNormedQkv, 3, t.data), norms(d), squares(d), out);
    return std::vector<Tensor>{out};
  }));
  ops.push_back(ListCase(WholeNormSlopesRecord(kNormed, t.data, t.gradient), [=](Device& d) {
    Tensor slopes = ListValues(d, kSums, 1);
    Tensor dweights = ListValues(d, {kQueries + kKeys}, 2, t.gradient);
    WholeNormSlopes(kNormed, ListValues(d, kNormedQkv, 3, t.data), norms(d), squares(d),
                    ListValues(d, kNormedQkv, 4, t.data), slopes, dweights);
    return std::vector<Tensor>{slopes, dweights};
  }));
  ops.push_back(ListCase(WholeNormBackwardRecord(kNormed, t.data), [=](Device& d) {
    Tensor dqkv = ListValues(d, kNormedQkv, 1, t.data);
    WholeNormBackward(kNormed, ListValues(d, kNormedQkv, 3, t.data), norms(d), squares(d),
                      ListValues(d, kSums, 5), dqkv);
    return std::vector<Tensor>{dqkv};
  }));
}

void AddAttention(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(ListCase(AttentionForwardRecord(kAttention, t.data), [t](Device& d) {
    Tensor out = ListValues(d, kOut, 1, t.data);
    Tensor log_sum_exp = ListValues(d, kLogSumExp, 2);
    AttentionForward(kAttention, ListValues(d, kQkv, 3, t.data), out, log_sum_exp);
    return std::vector<Tensor>{out, log_sum_exp};
  }));
  ops.back().workspace_bytes = [](const Executor& executor) {
    return AttentionForwardWorkspaceBytes(kAttention, executor);
  };
  ops.push_back(ListCase(AttentionBackwardRecord(kAttention, t.data), [t](Device& d) {
    Tensor dqkv = ListValues(d, kQkv, 1, t.data);
    AttentionBackward(kAttention, ListValues(d, kQkv, 3, t.data), ListValues(d, kOut, 4, t.data),
                      ListValues(d, kLogSumExp, 5), ListValues(d, kOut, 6, t.data), dqkv);
    return std::vector<Tensor>{dqkv};
  }));
  ops.back().workspace_bytes = [](const Executor& executor) {
    return AttentionBackwardWorkspaceBytes(kAttention, executor);
  };
  const RowLayout& own = kAttention.rows;
  const std::pair<AttentionBlock, RowLayout> blocks[] = {
      {{.size = own.sequence}, own},
      {{.query = 66, .key = 1, .size = 65}, KeysAhead(own, {.query = 66, .key = 1}, 65)}};
  for (const auto& [block, keys] : blocks) {
    const char* name = AheadOf(own, keys, block) == 0 ? "_causal_block" : "_block";
    ops.push_back(ListCase(AttentionBlockForwardRecord(kAttention, keys, block, t.data),
                           [t, block = block, keys = keys](Device& d) {
                             Tensor out = ListValues(d, kOut, 1);
                             Tensor log_sum_exp = ListValues(d, kLogSumExp, 2);
                             AttentionBlockForward(
                                 kAttention, keys, block, ListValues(d, kQkv, 3, t.data),
                                 ListValues(d, KeyValueShape(kAttention), 4, t.data), out,
                                 log_sum_exp);
                             return std::vector<Tensor>{out, log_sum_exp};
                           }));
    ops.back().name += name;
    ops.back().workspace_bytes = [block = block](const Executor& executor) {
      return AttentionBlockForwardWorkspaceBytes(kAttention, block, executor);
    };
    ops.push_back(ListCase(AttentionBlockBackwardRecord(kAttention, keys, block, t.data),
                           [t, block = block, keys = keys](Device& d) {
                             Tensor dquery = ListValues(d, kQuery, 1);
                             Tensor dkv = ListValues(d, KeyValueShape(kAttention), 2, t.data);
                             AttentionBlockBackward(
                                 kAttention, keys, block, ListValues(d, kQkv, 3, t.data),
                                 ListValues(d, KeyValueShape(kAttention), 4, t.data),
                                 ListValues(d, kOut, 5, t.data), ListValues(d, kLogSumExp, 6),
                                 ListValues(d, kOut, 7, t.data), dquery, dkv);
                             return std::vector<Tensor>{dquery, dkv};
                           }));
    ops.back().name += name;
    ops.back().workspace_bytes = [block = block](const Executor& executor) {
      return AttentionBlockBackwardWorkspaceBytes(kAttention, block, executor);
    };
  }
  ops.push_back(ListCase(RopeRecord(kAttention, t.data), [t](Device& d) {
    Tensor qkv = ListValues(d, kQkv, 1, t.data);
    Rope(kAttention, 10000.0, false, qkv);
    return std::vector<Tensor>{qkv};
  }));
}

void AddSinks(std::vector<OpCase>& ops, const Types& t) {
  ops.push_back(ListCase(AttentionSinkRecord(kAttention, t.data), [t](Device& d) {
    Tensor out = ListValues(d, kOut, 1, t.data);
    Tensor log_sum_exp = ListValues(d, kLogSumExp, 2);
    AttentionSink(kAttention, ListValues(d, {kAttention.heads}, 3, t.data), out, log_sum_exp);
    return std::vector<Tensor>{out, log_sum_exp};
  }));
  ops.push_back(
      ListCase(AttentionSinkBackwardRecord(kAttention, t.data, t.gradient), [t](Device& d) {
        Tensor dsinks = ListValues(d, {kAttention.heads}, 1, t.gradient);
        AttentionSinkBackward(kAttention, ListValues(d, {kAttention.heads}, 2, t.data),
                              ListValues(d, kOut, 3, t.data), ListValues(d, kLogSumExp, 4),
                              ListValues(d, kOut, 5, t.data), dsinks, true);
        return std::vector<Tensor>{dsinks};
      }));
}

void AddLatentHeads(std::vector<OpCase>& ops, const Types& t) {
  static const AttentionShape kLatent = {
      .rows = {5, 131}, .heads = 6, .kv_heads = 6, .head_size = 10, .value_head_size = 7};
  static const Rotary kRotary = [] {
    Rotary rotary(10000.0);
    rotary.dims = 4;
    return rotary;
  }();
  static const Shape kJoined = {kLatent.tokens(), kLatent.qkv_size()};
  static const Shape kKeyValue = JoinedKeyValueShape(kLatent, kRotary.dims);
  static const Shape kTurning = {kLatent.tokens(), kRotary.dims};
  ops.push_back(ListCase(JoinHeadsRecord(kLatent, kRotary.dims, t.data), [t](Device& d) {
    Tensor qkv = ListValues(d, kJoined, 1, t.data);
    JoinHeads(kLatent, kRotary, ListValues(d, kQuery, 2, t.data),
              ListValues(d, kKeyValue, 3, t.data), ListValues(d, kTurning, 4, t.data), qkv);
    return std::vector<Tensor>{qkv};
  }));
  ops.push_back(ListCase(JoinHeadsBackwardRecord(kLatent, kRotary.dims, t.data), [t](Device& d) {
    Tensor dquery = ListValues(d, kQuery, 1, t.data);
    Tensor dkey_value = ListValues(d, kKeyValue, 2, t.data);
    Tensor dturning = ListValues(d, kTurning, 3, t.data);
    JoinHeadsBackward(kLatent, kRotary, ListValues(d, kJoined, 4, t.data), dquery, dkey_value,
                      dturning);
    return std::vector<Tensor>{dquery, dkey_value, dturning};
  }));
}

}  // namespace

std::vector<OpCase> AttentionOpsIn(DType dtype, DType gradient) {
  const Types types = {dtype, gradient};
  std::vector<OpCase> ops;
  AddHeadNorms(ops, types);
  AddWholeNorms(ops, types);
  AddAttention(ops, types);
  AddSinks(ops, types);
  AddLatentHeads(ops, types);
  return ops;
}

}  // namespace trimtab
