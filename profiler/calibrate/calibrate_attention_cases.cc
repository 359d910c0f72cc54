#include "engine/ops/attention/attention_sink.h"
#include "engine/ops/attention/latent_heads.h"
#include "engine/ops/elementwise/elementwise.h"
#include "profiler/calibrate/calibrate_op_cases.h"

namespace trimtab {

void OpCases::AddLatentHeads(std::vector<OpCase>& cases) {
  constexpr int64_t kRotary = 32;
  const AttentionShape shape = {.rows = {1, Rows(4)},
                                .heads = kColumns / 64,
                                .kv_heads = kColumns / 64,
                                .head_size = 64 + kRotary,
                                .scores = {},
                                .value_head_size = 64};
  Rotary rotary(10000.0);
  rotary.dims = kRotary;
  const Shape query = {shape.tokens(), shape.query_size()};
  const Shape key_value = JoinedKeyValueShape(shape, kRotary);
  const Shape key_rotary = {shape.tokens(), kRotary};
  const Tensor made[] = {Warm(query), Warm(key_value), Warm(key_rotary)};
  cases.push_back({JoinHeadsRecord(shape, kRotary), [=, this] {
                     Tensor qkv = rig_.Fresh({shape.tokens(), shape.qkv_size()});
                     JoinHeads(shape, rotary, made[0], made[1], made[2], qkv);
                   }});
  const Tensor dqkv = Warm({shape.tokens(), shape.qkv_size()});
  cases.push_back({JoinHeadsBackwardRecord(shape, kRotary), [=, this] {
                     Tensor dquery = rig_.Fresh(query);
                     Tensor dkey_value = rig_.Fresh(key_value);
                     Tensor dkey_rotary = rig_.Fresh(key_rotary);
                     JoinHeadsBackward(shape, rotary, dqkv, dquery, dkey_value, dkey_rotary);
                   }});
}

void OpCases::AddSinksAndClamps(std::vector<OpCase>& cases) {
  const AttentionShape shape = {
      .rows = {1, Rows(2)}, .heads = kColumns / 64, .kv_heads = kColumns / 64, .head_size = 64};
  const Shape matrix = {shape.tokens(), shape.out_size()};
  const Tensor sinks = Warm({shape.heads});
  Tensor dsinks = Warm({shape.heads});
  Tensor out = Warm(matrix);
  Tensor log_sum_exp = Warm({1, shape.heads, shape.rows.sequence});
  cases.push_back({AttentionSinkRecord(shape),
                   [=]() mutable { AttentionSink(shape, sinks, out, log_sum_exp); }});
  const Tensor dout = Warm(matrix);
  cases.push_back({AttentionSinkBackwardRecord(shape), [=, this]() mutable {
                     AttentionSinkBackward(shape, sinks, rig_.ColdInput(matrix), log_sum_exp, dout,
                                           dsinks, /*accumulate=*/true);
                   }});
  const int64_t numel = matrix.numel();
  cases.push_back({ClampRecord(numel), [=, this] {
                     Tensor clamped = rig_.Fresh(matrix);
                     Clamp(out, 1.0f, clamped);
                   }});
  Tensor dx = Warm(matrix);
  cases.push_back({ClampBackwardRecord(numel),
                   [=, this]() mutable { ClampBackward(rig_.ColdInput(matrix), 1.0f, dx); }});
}

}  // namespace trimtab
