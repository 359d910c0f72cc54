#include "profiler/calibrate_ops.h"

#include <algorithm>
#include <functional>

#include "engine/base/units.h"
#include "engine/ops/activation.h"
#include "engine/ops/adamw.h"
#include "engine/ops/attention.h"
#include "engine/ops/cross_entropy.h"
#include "engine/ops/elementwise.h"
#include "engine/ops/embedding.h"
#include "engine/ops/fused_fp8.h"
#include "engine/ops/gemm.h"
#include "engine/ops/norm.h"
#include "engine/ops/quantize.h"

namespace trimtab {
namespace {

constexpr int64_t kColumns = 512;  // of the matrices that row-wise ops are measured on

/// One op at one size: what it costs by its own count, and how to run it once as the engine does.
struct OpCase {
  OpRecord record;
  std::function<void()> run;
};

/// Makes cases of about `bytes` of traffic each, one maker per kind of op. Tensors that the engine
/// allocates for the op's result are allocated anew in every run; what it kept since the forward
/// pass, and parameters, come from the cold buffer; what the op before has just written is warm.
class OpCases {
 public:
  OpCases(Rig& rig, int64_t bytes) : rig_(rig), bytes_(bytes) {}

  std::vector<OpCase> All() {
    std::vector<OpCase> cases;
    AddNorms(cases);
    AddActivations(cases);
    AddEmbeddings(cases);
    AddLoss(cases);
    AddElementwise(cases);
    AddUpdate(cases);
    AddFp8(cases);
    AddFusedFp8(cases);
    return cases;
  }

 private:
  /// Rows of [rows, kColumns] such that `tensors` of them make up the traffic.
  int64_t Rows(double tensors) const {
    const double row_bytes = static_cast<double>(kColumns * SizeOf(DType::kF32)) * tensors;
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(bytes_) / row_bytes));
  }
  Tensor Warm(const Shape& shape) {
    Tensor tensor = rig_.Fresh(shape);
    FillForTiming(tensor);
    return tensor;
  }
  Tensor Ids(int64_t rows) {
    Tensor ids = Tensor::Empty(rig_.device(), {rows}, DType::kI32, MemoryTag::kWorkspace);
    std::vector<int32_t> values(static_cast<size_t>(rows));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int32_t>(i * 37 % static_cast<size_t>(kColumns));
    }
    CopyFromHost(ids, values);
    return ids;
  }

  void AddNorms(std::vector<OpCase>& cases);
  void AddActivations(std::vector<OpCase>& cases);
  void AddEmbeddings(std::vector<OpCase>& cases);
  void AddLoss(std::vector<OpCase>& cases);
  void AddElementwise(std::vector<OpCase>& cases);
  void AddUpdate(std::vector<OpCase>& cases);
  void AddFp8(std::vector<OpCase>& cases);
  void AddFusedFp8(std::vector<OpCase>& cases);
  /// Fresh copies [rows, columns] in fp8, both ways.
  Fp8Output Copies(int64_t rows, int64_t columns, DType dtype) {
    const auto fresh = [&](const Shape& shape) {
      return Tensor::Empty(rig_.device(), shape, dtype, MemoryTag::kWorkspace);
    };
    return {.rows = fresh({rows, columns}), .transposed = fresh({columns, rows}), .amax = {}};
  }

  Rig& rig_;
  int64_t bytes_;
};

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

void OpCases::AddActivations(std::vector<OpCase>& cases) {
  const int64_t rows = Rows(2);
  const Tensor x = Warm({rows, kColumns});
  cases.push_back({GeluForwardRecord(rows, kColumns), [=, this] {
                     Tensor y = rig_.Fresh({rows, kColumns});
                     GeluForward(x, y);
                   }});
  const int64_t back = Rows(3);
  Tensor dy = Warm({back, kColumns});
  cases.push_back({GeluBackwardRecord(back, kColumns), [=, this]() mutable {
                     GeluBackward(rig_.ColdInput({back, kColumns}), dy, dy);
                   }});
  const int64_t gated = Rows(3);
  const Tensor gate_up = Warm({gated, 2 * kColumns});
  cases.push_back({SwiGluForwardRecord(gated, kColumns), [=, this] {
                     Tensor y = rig_.Fresh({gated, kColumns});
                     SwiGluForward(gate_up, y);
                   }});
  const int64_t gated_back = Rows(5);
  const Tensor gated_dy = Warm({gated_back, kColumns});
  cases.push_back({SwiGluBackwardRecord(gated_back, kColumns), [=, this] {
                     Tensor dgate_up = rig_.Fresh({gated_back, 2 * kColumns});
                     SwiGluBackward(rig_.ColdInput({gated_back, 2 * kColumns}), gated_dy, dgate_up);
                   }});
  const AttentionShape rope = {.batch = 1,
                               .sequence = Rows(2),
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
  cases.push_back({PositionForwardRecord(rows, kColumns), [=, this]() mutable {
                     PositionForward(rig_.ColdInput({sequence, kColumns}), 0, sequence, stream);
                   }});
  cases.push_back({PositionBackwardRecord(rows, kColumns), [=, this] {
                     Tensor table = rig_.ColdOutput({sequence, kColumns});
                     PositionBackward(x, 0, sequence, table);
                   }});
}

void OpCases::AddLoss(std::vector<OpCase>& cases) {
  const int64_t rows = Rows(1);
  const VocabShard shard = {.start = 0, .valid = kColumns};
  const Tensor targets = Ids(rows);
  Tensor logits = Warm({rows, kColumns});
  Tensor row_max = Warm({rows});
  Tensor sums = Warm({2, rows});
  Tensor losses = Warm({rows});
  cases.push_back({CrossEntropyMaxRecord(rows, kColumns),
                   [=]() mutable { CrossEntropyMax(logits, shard, row_max); }});
  cases.push_back({CrossEntropySumRecord(rows, kColumns),
                   [=]() mutable { CrossEntropySum(logits, targets, shard, row_max, sums); }});
  const int64_t grad_rows = Rows(2);
  const Tensor grad_targets = Ids(grad_rows);
  Tensor grad_logits = Warm({grad_rows, kColumns});
  const Tensor grad_max = Warm({grad_rows});
  const Tensor grad_sums = Warm({2, grad_rows});
  Tensor grad_losses = Warm({grad_rows});
  const Tensor scale = Warm({1});
  cases.push_back({CrossEntropyGradRecord(grad_rows, kColumns), [=]() mutable {
                     CrossEntropyGrad(grad_targets, shard, grad_max, grad_sums, scale, grad_logits,
                                      grad_losses);
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
  Fp8Scales scales = {Warm({count}), Warm({count})};
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
}

double MeasureProduct(Rig& rig, int64_t m, int64_t n, int64_t k) {
  // A forward product and an input gradient, which a step has in equal number.
  const double both = rig.Seconds([&] {
    {
      Tensor c = rig.Fresh({m, n});
      Gemm(rig.ColdInput({m, k}), Transpose::kNo, rig.ColdInput({n, k}), Transpose::kYes, c);
    }
    Tensor c = rig.Fresh({m, n});
    Gemm(rig.ColdInput({m, k}), Transpose::kNo, rig.ColdInput({k, n}), Transpose::kNo, c);
  });
  return both / 2;
}

double MeasureWeightGradient(Rig& rig, int64_t m, int64_t n, int64_t k) {
  return rig.Seconds([&] {
    Tensor gradient = rig.ColdOutput({m, n});
    Gemm(rig.ColdInput({k, m}), Transpose::kYes, rig.ColdInput({k, n}), Transpose::kNo, gradient,
         {.accumulate = true});
  });
}

}  // namespace

CalibrationPlan MakeCalibrationPlan(bool quick) {
  CalibrationPlan plan;
  plan.gemm_m = {32, 128, 512, 2048};
  plan.gemm_nk = {64, 256, 1024, 4096};
  plan.batch_heads = {2, 8, 32};
  plan.sequences = {32, 128, 256, 512, 1024};
  plan.head_sizes = {32, 64};
  plan.op_bytes = {32 * kKiB, 512 * kKiB, 8 * kMiB};
  plan.message_bytes = {256, 32 * kKiB, kMiB, 16 * kMiB};
  plan.most_flops = 800'000'000;
  plan.repeats = 3;
  plan.window_s = 0.003;
  plan.reference_steps = 2;
  if (quick) return plan;
  plan.gemm_m = {32, 128, 512, 1024, 2048};
  plan.gemm_nk = {64, 256, 512, 1024, 4096};
  plan.batch_heads = {2, 8, 32};
  plan.sequences = {32, 64, 128, 256, 512, 1024};
  plan.head_sizes = {16, 32, 64, 128};
  plan.op_bytes = {8 * kKiB, 64 * kKiB, 512 * kKiB, 4 * kMiB, 32 * kMiB};
  plan.message_bytes = {64, 4 * kKiB, 64 * kKiB, kMiB, 8 * kMiB, 64 * kMiB};
  plan.most_flops = 1'500'000'000;
  plan.repeats = 5;
  plan.window_s = 0.005;
  plan.reference_steps = 5;
  return plan;
}

std::vector<GemmPoint> MeasureGemm(Rig& rig, const CalibrationPlan& plan) {
  std::vector<GemmPoint> points;
  for (const int64_t tokens : plan.gemm_m) {
    for (const int64_t a : plan.gemm_nk) {
      for (const int64_t b : plan.gemm_nk) {
        if (2 * tokens * a * b > plan.most_flops) continue;
        points.push_back({tokens, a, b, false, MeasureProduct(rig, tokens, a, b)});
        // The weight gradient of the same layer multiplies over the tokens.
        points.push_back({a, b, tokens, true, MeasureWeightGradient(rig, a, b, tokens)});
      }
    }
  }
  return points;
}

std::vector<AttentionPoint> MeasureAttention(Rig& rig, const CalibrationPlan& plan) {
  std::vector<AttentionPoint> points;
  for (const int64_t heads : plan.batch_heads) {
    for (const int64_t sequence : plan.sequences) {
      for (const int64_t head_size : plan.head_sizes) {
        const AttentionShape shape = {.batch = 1,
                                      .sequence = sequence,
                                      .heads = heads,
                                      .kv_heads = heads,
                                      .head_size = head_size};
        if (AttentionBackwardRecord(shape).flops > plan.most_flops) continue;
        const Shape qkv_shape = {shape.tokens(), shape.qkv_size()};
        const Shape out_shape = {shape.tokens(), heads * head_size};
        Tensor log_sum_exp = rig.Fresh({1, heads, sequence});
        AttentionPoint point = {heads, sequence, head_size, 0, 0};
        point.forward_s = rig.Seconds([&] {
          Tensor out = rig.Fresh(out_shape);
          AttentionForward(shape, rig.ColdInput(qkv_shape), out, log_sum_exp);
        });
        point.backward_s = rig.Seconds([&] {
          Tensor dqkv = rig.Fresh(qkv_shape);
          AttentionBackward(shape, rig.ColdInput(qkv_shape), rig.ColdInput(out_shape), log_sum_exp,
                            rig.ColdInput(out_shape), dqkv);
        });
        points.push_back(point);
      }
    }
  }
  return points;
}

std::map<OpKind, std::vector<BytesPoint>> MeasureOps(Rig& rig, const CalibrationPlan& plan) {
  std::map<OpKind, std::vector<BytesPoint>> tables;
  for (const int64_t bytes : plan.op_bytes) {
    for (OpCase& each : OpCases(rig, bytes).All()) {
      std::vector<BytesPoint>& points = tables[each.record.kind];
      // Sizes of less than a row come out alike.
      if (!points.empty() && points.back().bytes >= each.record.bytes) continue;
      points.push_back({each.record.bytes, rig.Seconds(each.run)});
    }
  }
  return tables;
}

std::map<CollectiveKind, std::vector<BytesPoint>> MeasureCollectives(Rig& rig,
                                                                     const CalibrationPlan& plan) {
  std::map<CollectiveKind, std::vector<BytesPoint>> tables;
  Communicator& group = *rig.context().tp;
  for (const int64_t bytes : plan.message_bytes) {
    const int64_t part = std::max<int64_t>(1, bytes / SizeOf(DType::kF32) / group.size());
    const int64_t numel = part * group.size();
    const int64_t message = numel * SizeOf(DType::kF32);
    Tensor whole = rig.Fresh({numel});
    Fill(whole, 0.0f);  // zeros stay zeros however often they are added up
    Tensor shard = rig.Fresh({part});
    Fill(shard, 0.0f);
    const auto add = [&](CollectiveKind kind, const std::function<void()>& run) {
      tables[kind].push_back({message, rig.Seconds(run)});
    };
    add(CollectiveKind::kAllReduce, [&] { group.AllReduce(whole); });
    add(CollectiveKind::kReduceScatter, [&] {
      Tensor out = rig.Fresh({part});
      group.ReduceScatter(whole, out);
    });
    add(CollectiveKind::kAllGather, [&] {
      Tensor out = rig.Fresh({numel});
      group.AllGather(shard, out);
    });
  }
  return tables;
}

}  // namespace trimtab
