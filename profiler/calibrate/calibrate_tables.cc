#include "profiler/calibrate/calibrate_tables.h"

#include <algorithm>
#include <functional>

#include "engine/comm/communicator.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/gemm/gemm.h"
#include "profiler/calibrate/calibrate_op_cases.h"

namespace trimtab {
namespace {

/// What the op before has just written.
Tensor WarmInput(Rig& rig, const Shape& shape) {
  Tensor input = rig.Fresh(shape);
  FillForTiming(input);
  return input;
}

double MeasureProduct(Rig& rig, int64_t m, int64_t n, int64_t k) {
  // A forward product and an input gradient, which a step has in equal number.
  const Tensor x = WarmInput(rig, {m, k});
  const double both = rig.Seconds([&] {
    {
      Tensor c = rig.Fresh({m, n});
      Gemm(x, Transpose::kNo, rig.ColdInput({n, k}), Transpose::kYes, c);
    }
    Tensor c = rig.Fresh({m, n});
    Gemm(x, Transpose::kNo, rig.ColdInput({k, n}), Transpose::kNo, c);
  });
  return both / 2;
}

double MeasureWeightGradient(Rig& rig, int64_t m, int64_t n, int64_t k) {
  // The gradient of the output was just made, the input kept since the forward pass.
  const Tensor dy = WarmInput(rig, {k, m});
  return rig.Seconds([&] {
    Tensor gradient = rig.ColdOutput({m, n});
    Gemm(dy, Transpose::kYes, rig.ColdInput({k, n}), Transpose::kNo, gradient,
         {.accumulate = true});
  });
}

/// Each rank sends to the next of its group what it receives as much of from the one before.
void PassAround(Communicator& group, const Tensor& sent, Tensor& received) {
  CommHandle send = group.SendAsync(sent, (group.rank() + 1) % group.size());
  CommHandle receive = group.RecvAsync(received, (group.rank() + group.size() - 1) % group.size());
  send.Wait();
  receive.Wait();
}

}  // namespace

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
        const AttentionShape shape = {
            .rows = {1, sequence}, .heads = heads, .kv_heads = heads, .head_size = head_size};
        if (AttentionBackwardRecord(shape).flops > plan.most_flops) continue;
        const Shape qkv_shape = {shape.tokens(), shape.qkv_size()};
        const Shape out_shape = {shape.tokens(), heads * head_size};
        Tensor log_sum_exp = rig.Fresh({1, heads, sequence});
        AttentionPoint point = {heads, sequence, head_size, 0, 0};
        const Tensor qkv = WarmInput(rig, qkv_shape);
        point.forward_s = rig.Seconds([&] {
          Tensor out = rig.Fresh(out_shape);
          AttentionForward(shape, qkv, out, log_sum_exp);
        });
        const Tensor dout = WarmInput(rig, out_shape);
        // The weight gradient of the projection behind it has just read it.
        const Tensor out = WarmInput(rig, out_shape);
        point.backward_s = rig.Seconds([&] {
          Tensor dqkv = rig.Fresh(qkv_shape);
          AttentionBackward(shape, rig.ColdInput(qkv_shape), out, log_sum_exp, dout, dqkv);
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
    OpCases cases(rig, bytes);  // its cases refer to it
    for (OpCase& each : cases.All()) {
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
    std::vector<BufferPart> parts;
    for (int rank = 0; rank < group.size(); ++rank) parts.push_back({rank * part, part});
    add(CollectiveKind::kAllToAll, [&] {
      Tensor out = rig.Fresh({numel});
      group.AllToAll(whole, parts, out, parts);
    });
    // Whichever end comes last copies, so a rank that sends and receives copies once.
    const double both_s = rig.Seconds([&] {
      Tensor out = rig.Fresh({numel});
      PassAround(group, whole, out);
    });
    tables[CollectiveKind::kSend].push_back({message, both_s / 2});
    tables[CollectiveKind::kRecv].push_back({message, both_s / 2});
  }
  return tables;
}

}  // namespace trimtab
