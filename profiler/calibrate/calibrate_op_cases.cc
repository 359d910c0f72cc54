#include "profiler/calibrate/calibrate_op_cases.h"

#include "engine/base/units.h"
#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/head_norm.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/optimizer/adamw.h"
#include "engine/ops/vocabulary/cross_entropy.h"
#include "engine/ops/vocabulary/embedding.h"

namespace trimtab {

void OpCases::AddNorms(std::vector<OpCase>& cases) {
  const int64_t rows = Rows(2);
  const Tensor x = Warm({rows, kColumns});
  const Tensor weight = Warm({kColumns});
  const Tensor bias = Warm({kColumns});
  Tensor dweight = Warm({kColumns});
  Tensor dbias = Warm({kColumns});
  Tensor mean = Warm({rows});
  Tensor rstd = Warm({rows});
  cases.push_back({LayerNormForwardRecord(rows, kColumns), [=, this]() mutable {
                     Tensor y = rig_.Fresh({rows, kColumns});
                     LayerNormForward(x, weight, bias, 1e-5, y, mean, rstd);
                   }});
  cases.push_back({RmsNormForwardRecord(rows, kColumns), [=, this]() mutable {
                     Tensor y = rig_.Fresh({rows, kColumns});
                     RmsNormForward(x, weight, 1e-5, y, rstd);
                   }});
  const int64_t back = Rows(4);
  const Tensor dy = Warm({back, kColumns});
  Tensor dx = Warm({back, kColumns});
  const Tensor back_mean = Warm({back});
  const Tensor back_rstd = Warm({back});
  cases.push_back({LayerNormBackwardRecord(back, kColumns), [=, this]() mutable {
                     LayerNormBackward(dy, rig_.ColdInput({back, kColumns}), weight, back_mean,
                                       back_rstd, dx, dweight, dbias, true);
                   }});
  cases.push_back({RmsNormBackwardRecord(back, kColumns), [=, this]() mutable {
                     RmsNormBackward(dy, rig_.ColdInput({back, kColumns}), weight, back_rstd, dx,
                                     dweight, true);
                   }});
}

void OpCases::AddHeadNorms(std::vector<OpCase>& cases) {
  const AttentionShape shape = {.rows = {1, Rows(2)},
                                .heads = kColumns / 64 / 2,
                                .kv_heads = kColumns / 64 / 4,
                                .head_size = 64};
  const Shape matrix = {shape.tokens(), shape.qkv_size()};
  const Tensor qkv = Warm(matrix);
  const Tensor weight = Warm({shape.head_size});
  Tensor rstd = Warm({shape.tokens(), shape.heads + shape.kv_heads});
  cases.push_back({HeadNormForwardRecord(shape), [=, this]() mutable {
                     Tensor out = rig_.Fresh(matrix);
                     HeadNormForward(shape, qkv, weight, weight, 1e-5, out, rstd);
                   }});
  Tensor dqkv = Warm(matrix);
  Tensor dweights = Warm({2, shape.head_size});
  cases.push_back({HeadNormBackwardRecord(shape), [=, this]() mutable {
                     HeadNormBackward(shape, rig_.ColdInput(matrix), weight, weight, rstd,
                                      /*plus_one=*/false, dqkv, dweights);
                   }});
}

void OpCases::AddActivations(std::vector<OpCase>& cases) {
  const int64_t rows = Rows(2);
  const Tensor x = Warm({rows, kColumns});
  cases.push_back({ActivationForwardRecord(rows, kColumns), [=, this] {
                     Tensor y = rig_.Fresh({rows, kColumns});
                     ActivationForward(ActivationFunction::kGelu, x, y);
                   }});
  const int64_t back = Rows(3);
  Tensor dy = Warm({back, kColumns});
  cases.push_back(
      {ActivationBackwardRecord(back, kColumns), [=, this]() mutable {
         ActivationBackward(ActivationFunction::kGelu, rig_.ColdInput({back, kColumns}), dy, dy);
       }});
  const int64_t gated = Rows(3);
  const Tensor gate_up = Warm({gated, 2 * kColumns});
  cases.push_back({GatedActivationForwardRecord(gated, kColumns), [=, this] {
                     Tensor y = rig_.Fresh({gated, kColumns});
                     GatedActivationForward(ActivationFunction::kSilu, gate_up, y);
                   }});
  const int64_t gated_back = Rows(5);
  const Tensor gated_dy = Warm({gated_back, kColumns});
  cases.push_back({GatedActivationBackwardRecord(gated_back, kColumns), [=, this] {
                     Tensor dgate_up = rig_.Fresh({gated_back, 2 * kColumns});
                     GatedActivationBackward(ActivationFunction::kSilu,
                                             rig_.ColdInput({gated_back, 2 * kColumns}), gated_dy,
                                             dgate_up);
                   }});
  const AttentionShape rope = {.rows = {1, Rows(2)},
                               .heads = kColumns / 64 / 2,
                               .kv_heads = kColumns / 64 / 4,
                               .head_size = 64};
  Tensor qkv = Warm({rope.tokens(), rope.qkv_size()});
  cases.push_back({RopeRecord(rope), [=]() mutable { Rope(rope, 10000.0, false, qkv); }});
}

void OpCases::AddEmbeddings(std::vector<OpCase>& cases) {
  const int64_t rows = Rows(2);
  const Tensor ids = Ids(rows);
  const Tensor x = Warm({rows, kColumns});
  cases.push_back({EmbeddingForwardRecord(rows, kColumns), [=, this] {
                     Tensor out = rig_.Fresh({rows, kColumns});
                     EmbeddingForward(ids, rig_.ColdInput({kColumns, kColumns}), 0, out);
                   }});
  cases.push_back({EmbeddingBackwardRecord(rows, kColumns), [=, this] {
                     Tensor table = rig_.ColdOutput({kColumns, kColumns});
                     EmbeddingBackward(ids, x, 0, table);
                   }});
  Tensor stream = Warm({rows, kColumns});
  const int64_t sequence = std::min<int64_t>(rows, 1024);
  const RowLayout layout(CeilDiv(rows, sequence), sequence);
  cases.push_back({PositionForwardRecord(rows, kColumns), [=, this]() mutable {
                     PositionForward(rig_.ColdInput({sequence, kColumns}), 0, layout, stream);
                   }});
  cases.push_back({PositionBackwardRecord(rows, kColumns), [=, this] {
                     Tensor table = rig_.ColdOutput({sequence, kColumns});
                     PositionBackward(x, 0, layout, table);
                   }});
}

void OpCases::AddLoss(std::vector<OpCase>& cases) {
  const int64_t part_rows = Rows(1);
  const VocabShard shard = {.start = 0, .valid = kColumns};
  const Tensor part_targets = Ids(part_rows);
  const Tensor part_logits = Warm({part_rows, kColumns});
  Tensor part = Warm({3, part_rows});
  cases.push_back({CrossEntropyPartsRecord(part_rows, kColumns),
                   [=]() mutable { CrossEntropyParts(part_logits, part_targets, shard, part); }});
  const int64_t rows = Rows(2);
  const Tensor targets = Ids(rows);
  Tensor logits = Warm({rows, kColumns});
  constexpr int64_t kShards = 2;
  const Tensor parts = Warm({kShards, 3, rows});
  Tensor losses = Warm({rows});
  const Tensor scale = Warm({1});
  cases.push_back({CrossEntropyRecord(rows, kColumns),
                   [=]() mutable { CrossEntropy(targets, kColumns, scale, logits, losses); }});
  cases.push_back({CrossEntropyGradRecord(rows, kColumns, kShards), [=]() mutable {
                     CrossEntropyGrad(targets, shard, parts, scale, logits, losses);
                   }});
}

void OpCases::AddElementwise(std::vector<OpCase>& cases) {
  const int64_t rows = Rows(2);
  const int64_t numel = rows * kColumns;
  const Tensor bias = Warm({kColumns});
  Tensor dbias = Warm({kColumns});
  Tensor y = Warm({rows, kColumns});
  cases.push_back({AddRecord(numel), [=, this]() mutable {
                     Add(rig_.ColdInput({rows, kColumns}), y);
                   }});
  cases.push_back({CopyRecord(numel), [=, this] {
                     Tensor target = rig_.Fresh({rows, kColumns});
                     Copy(y, target);
                   }});
  cases.push_back({FillRecord(numel), [=, this] {
                     Tensor target = rig_.Fresh({rows, kColumns});
                     Fill(target, 0.01f);
                   }});
  const SoftCap soft_cap = {.cap = 50.0f};
  cases.push_back({ApplySoftCapRecord(numel), [=]() mutable { ApplySoftCap(soft_cap, y); }});
  cases.push_back({AddBiasRecord(rows, kColumns), [=]() mutable { AddBias(bias, y); }});
  cases.push_back(
      {BiasBackwardRecord(rows, kColumns), [=]() mutable { BiasBackward(y, dbias, true); }});
}

void OpCases::AddUpdate(std::vector<OpCase>& cases) {
  const int64_t numel = Rows(1) * kColumns;
  Tensor sum = Warm({1});
  cases.push_back({SumRecord(numel), [=, this]() mutable {
                     Sum(rig_.ColdInput({numel}), sum, /*accumulate=*/false);
                   }});
  cases.push_back(
      {SumSquaresRecord(numel), [=, this]() mutable { SumSquares(rig_.ColdInput({numel}), sum); }});
  const Tensor sums = Warm({numel});
  Tensor clipped = Warm({kUpdateScalarCount});
  cases.push_back({ClipRecord(numel), [=]() mutable { Clip(sums, 1.0f, clipped); }});
  const int64_t updated = Rows(7) * kColumns;
  const AdamWConfig adamw = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f};
  // A learning rate so small that the weights stay; nothing to correct or to clip.
  Tensor scalars = rig_.Fresh({kUpdateScalarCount});
  CopyFromHost(scalars, std::vector<float>{1e-9f, 1, 1, 1, 1, 1, 1});
  cases.push_back({AdamWRecord(updated), [=, this] {
                     const Tensor gradient = rig_.ColdInput({updated});
                     AdamWState state = {.weight = rig_.ColdOutput({updated}),
                                         .m = rig_.ColdOutput({updated}),
                                         .v = rig_.ColdOutput({updated})};
                     AdamW(adamw, scalars, gradient, state);
                   }});
}

}  // namespace trimtab
