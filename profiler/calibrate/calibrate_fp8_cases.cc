// The cases that fp8 runs have and others do not.
#include "engine/ops/fp8/quantize.h"
#include "profiler/calibrate/calibrate_op_cases.h"

namespace trimtab {

void OpCases::AddFp8(std::vector<OpCase>& cases) {
  // Both copies of an activation that has just been written, as linear layers make them.
  const int64_t rows = Rows(1.5);
  const Tensor x = Warm({rows, kColumns});
  Tensor amax = Warm({1});
  cases.push_back({AmaxRecord(rows * kColumns), [=]() mutable { Amax(x, amax); }});
  const Tensor scale = Warm({1});
  cases.push_back({QuantizeRecord(rows, kColumns, DType::kF32, true, true), [=, this] {
                     Fp8Output out = Copies(rows, kColumns, DType::kF8E4M3);
                     Quantize(x, scale, out);
                   }});
  constexpr int64_t kHistory = 16;
  const int64_t count = std::max<int64_t>(1, bytes_ / ((2 * kHistory + 3) * SizeOf(DType::kF32)));
  const Tensor largest = Warm({count});
  Tensor history = Warm({kHistory, count});
  Fp8Scales scales = {Warm({count}), Warm({count, kFp8InverseStride})};
  cases.push_back({Fp8ScalesRecord(count, kHistory),
                   [=]() mutable { UpdateFp8Scales(largest, history, scales); }});
}

void OpCases::AddFusedFp8(std::vector<OpCase>& cases) {
  constexpr DType kForward = DType::kF8E4M3;
  constexpr DType kBackward = DType::kF8E5M2;
  const Tensor scale = Warm({1});
  const int64_t rows = Rows(1.5);
  const Tensor x = Warm({rows, kColumns});
  const Tensor weight = Warm({kColumns});
  const Tensor bias = Warm({kColumns});
  Tensor mean = Warm({rows});
  Tensor rstd = Warm({rows});
  cases.push_back(
      {LayerNormForwardFp8Record(rows, kColumns, DType::kF32, true), [=, this]() mutable {
         Fp8Output out = Copies(rows, kColumns, kForward);
         LayerNormForwardFp8(x, weight, bias, 1e-5, scale, out, mean, rstd);
       }});
  cases.push_back({RmsNormForwardFp8Record(rows, kColumns, DType::kF32, true), [=, this]() mutable {
                     Fp8Output out = Copies(rows, kColumns, kForward);
                     RmsNormForwardFp8(x, weight, 1e-5, scale, out, rstd);
                   }});
  cases.push_back({GeluForwardFp8Record(rows, kColumns, DType::kF32, {}), [=, this] {
                     Fp8Output out = Copies(rows, kColumns, kForward);
                     GeluForwardFp8(x, scale, out);
                   }});
  const int64_t back = Rows(2.5);
  const Tensor dy = Warm({back, kColumns});
  Tensor dbias = Warm({kColumns});
  cases.push_back(
      {GeluBackwardFp8Record(back, kColumns, DType::kF32, {}, true), [=, this]() mutable {
         Fp8Output out = Copies(back, kColumns, kBackward);
         GeluBackwardFp8(rig_.ColdInput({back, kColumns}), dy, scale, out, dbias, true);
       }});
  const int64_t gated = Rows(2.5);
  const Tensor gate_up = Warm({gated, 2 * kColumns});
  cases.push_back({SwiGluForwardFp8Record(gated, kColumns, DType::kF32, {}), [=, this] {
                     Fp8Output out = Copies(gated, kColumns, kForward);
                     SwiGluForwardFp8(gate_up, scale, out);
                   }});
  const int64_t gated_back = Rows(4);
  const Tensor gated_dy = Warm({gated_back, kColumns});
  cases.push_back(
      {SwiGluBackwardFp8Record(gated_back, kColumns, DType::kF32, {}), [=, this] {
         Fp8Output out = Copies(gated_back, 2 * kColumns, kBackward);
         SwiGluBackwardFp8(rig_.ColdInput({gated_back, 2 * kColumns}), gated_dy, scale, out);
       }});
  const AttentionShape rope = {.rows = {1, rows},
                               .heads = kColumns / 64 / 2,
                               .kv_heads = kColumns / 64 / 4,
                               .head_size = 64};
  cases.push_back({RopeBackwardFp8Record(rope, DType::kF32, {}), [=, this] {
                     Fp8Output out = Copies(rows, kColumns, kBackward);
                     RopeBackwardFp8(rope, 10000.0, x, scale, out);
                   }});
}

}  // namespace trimtab
