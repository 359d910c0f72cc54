#include "engine/layers/attention/context_parallel.h"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <limits>
#include <utility>

#include "engine/device/repeat.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

/// Takes the keys and values of rank `source` (KeyValueShape).
using Visit = std::function<void(int source, const Tensor& kv)>;
/// Takes them, and their gradient to add to.
using VisitBackward = std::function<void(int source, const Tensor& kv, Tensor& dkv)>;

/// Whose keys and values are visited at `step`, beginning with the rank's own: on the ring, those
/// that have come so far.
int SourceAt(const Communicator& cp, int step) {
  return (cp.rank() + cp.size() - step) % cp.size();
}

void TakeKeysValues(const AttentionShape& shape, const Tensor& qkv, Tensor& kv) {
  CopyColumns(qkv, shape.query_size(), kv, 0, kv.dim(1));
}

Tensor NewKeysValues(const LayerContext& context, const AttentionShape& shape, int64_t ranks = 1) {
  const Shape one = KeyValueShape(shape);
  return context.New({ranks * one[0], one[1]}, MemoryTag::kCommunication);
}

/// A tensor on its way to the next rank of the ring, while another one comes from the rank before.
class Pass {
 public:
  void Start(const LayerContext& context, const Tensor& tensor) {
    Communicator& cp = *context.parallel.cp;
    received_ = context.New(tensor.shape(), MemoryTag::kCommunication);
    send_ = cp.SendAsync(tensor, (cp.rank() + 1) % cp.size());
    receive_ = cp.RecvAsync(received_, (cp.rank() + cp.size() - 1) % cp.size());
  }
  /// What has come.
  Tensor Finish() {
    send_.Wait();
    receive_.Wait();
    return std::exchange(received_, {});
  }

 private:
  Tensor received_;
  CommHandle send_;
  CommHandle receive_;
};

/// Takes each step around the ring. Those between the first and the last cost the same: whatever is
/// ahead of a block of another rank's keys, all of it counts.
void GoAround(const LayerContext& context, const std::function<void(int step)>& take) {
  const int last = context.parallel.cp->size() - 1;
  take(0);
  Repeat(context.device, last - 1, [&](int64_t i) { take(static_cast<int>(i) + 1); });
  if (last > 0) take(last);
}

void VisitRing(const LayerContext& context, const AttentionShape& shape, const Tensor& qkv,
               const Visit& visit) {
  const Communicator& cp = *context.parallel.cp;
  Tensor kv = NewKeysValues(context, shape);
  TakeKeysValues(shape, qkv, kv);
  Pass pass;
  GoAround(context, [&](int step) {
    const bool more = step + 1 < cp.size();
    if (more) pass.Start(context, kv);
    visit(SourceAt(cp, step), kv);
    if (more) kv = pass.Finish();
  });
}

/// Returns the gradient of this rank's keys and values. A gradient follows what it is the gradient
/// of, one step behind, and each rank adds its part, until it is back where it belongs.
Tensor VisitRingBackward(const LayerContext& context, const AttentionShape& shape,
                         const Tensor& qkv, const VisitBackward& visit) {
  const Communicator& cp = *context.parallel.cp;
  Tensor kv = NewKeysValues(context, shape);
  TakeKeysValues(shape, qkv, kv);
  Pass pass;
  Pass gradient_pass;
  GoAround(context, [&](int step) {
    const bool more = step + 1 < cp.size();
    if (more) pass.Start(context, kv);
    Tensor dkv = NewKeysValues(context, shape);
    Fill(dkv, 0.0f);
    visit(SourceAt(cp, step), kv, dkv);
    if (step > 0) Add(gradient_pass.Finish(), dkv);
    gradient_pass.Start(context, dkv);
    if (more) kv = pass.Finish();
  });
  return gradient_pass.Finish();
}

/// The keys and values of all ranks on their way here: those of this rank are there.
class Gathering {
 public:
  Gathering(const LayerContext& context, const AttentionShape& shape, const Tensor& qkv)
      : shape_(shape),
        rank_(context.parallel.cp->rank()),
        all_(NewKeysValues(context, shape, context.parallel.cp->size())) {
    Tensor own = Of(rank_, all_);
    TakeKeysValues(shape, qkv, own);
    handle_ = context.parallel.cp->AllGatherAsync(own, all_);
  }

  /// Those of `source`. Waits, if they are another rank's.
  Tensor Await(int source) {
    if (source != rank_) handle_.Wait();
    return Of(source, all_);
  }
  /// The part of `source` in a tensor as all of them make one.
  Tensor Of(int source, const Tensor& all) const {
    const Shape part = KeyValueShape(shape_);
    return all.Slice(source * part.numel(), part);
  }

 private:
  AttentionShape shape_;
  int rank_;
  Tensor all_;
  CommHandle handle_;
};

/// Visits the ranks of the group, this one first. The second visit waits for the messages; those
/// after it are alike.
void VisitEach(const LayerContext& context, const std::function<void(int source)>& visit) {
  const Communicator& cp = *context.parallel.cp;
  const int64_t alone = std::min(cp.size(), 2);
  for (int step = 0; step < alone; ++step) visit(SourceAt(cp, step));
  Repeat(context.device, cp.size() - alone,
         [&](int64_t i) { visit(SourceAt(cp, static_cast<int>(alone + i))); });
}

void VisitGathered(const LayerContext& context, const AttentionShape& shape, const Tensor& qkv,
                   const Visit& visit) {
  Gathering keys(context, shape, qkv);
  VisitEach(context, [&](int source) { visit(source, keys.Await(source)); });
}

/// Returns the gradient of this rank's keys and values.
Tensor VisitGatheredBackward(const LayerContext& context, const AttentionShape& shape,
                             const Tensor& qkv, const VisitBackward& visit) {
  Communicator& cp = *context.parallel.cp;
  Gathering keys(context, shape, qkv);
  Tensor dkv = NewKeysValues(context, shape, cp.size());
  Fill(dkv, 0.0f);
  VisitEach(context, [&](int source) {
    Tensor part = keys.Of(source, dkv);
    visit(source, keys.Await(source), part);
  });
  Tensor own = keys.Of(cp.rank(), dkv);
  cp.ReduceScatter(dkv, own);
  return own;
}

/// Of the keys of `source`, those that this rank's queries see.
std::vector<AttentionBlock> BlocksOf(const LayerContext& context, const AttentionShape& shape,
                                     int source) {
  return VisibleBlocks(context.parallel.cp_rank, source, shape.rows.sequence / 2,
                       /*by_distance=*/shape.scores.window > 0 || shape.scores.alibi_heads > 0 ||
                           context.masks_documents());
}

/// Returns the layout of the keys of rank `source`.
RowLayout KeysOf(const LayerContext& context, int source) {
  return RowLayout::ZigZag(context.micro_batch, context.sequence, context.parallel.layout.cp,
                           source);
}

bool OnRing(const LayerContext& context) {
  return context.parallel.layout.cp_comm_type == CpCommType::kP2p;
}

}  // namespace

std::vector<AttentionBlock> VisibleBlocks(int rank, int source, int64_t run, bool by_distance) {
  // A rank's tokens are in the order of their positions.
  if (source == rank && !by_distance) return {{.query = 0, .key = 0, .size = 2 * run}};
  // Its second run comes after the first one of every rank...
  const AttentionBlock second = {.query = run, .key = 0, .size = run};
  if (source == rank) return {second, {.size = run}, {.query = run, .key = run, .size = run}};
  // ... and after the second one of those with a higher number; its first run after the first one
  // of those with a lower.
  const int64_t other = source < rank ? 0 : run;
  return {second, {.query = other, .key = other, .size = run}};
}

void ContextAttentionForward(const LayerContext& context, const AttentionShape& shape,
                             const Tensor& qkv, Tensor& out, Tensor& log_sum_exp) {
  Tensor sum = context.NewF32(out.shape(), MemoryTag::kWorkspace);
  Fill(sum, 0.0f);
  Fill(log_sum_exp, -std::numeric_limits<float>::infinity());
  const Visit visit = [&](int source, const Tensor& kv) {
    for (const AttentionBlock& block : BlocksOf(context, shape, source)) {
      AttentionBlockForward(shape, KeysOf(context, source), block, qkv, kv, sum, log_sum_exp);
    }
  };
  if (OnRing(context)) {
    VisitRing(context, shape, qkv, visit);
  } else {
    VisitGathered(context, shape, qkv, visit);
  }
  Copy(sum, out);
}

void ContextAttentionBackward(const LayerContext& context, const AttentionShape& shape,
                              const Tensor& qkv, const Tensor& out, const Tensor& log_sum_exp,
                              const Tensor& dout, Tensor& dqkv) {
  Tensor dquery = context.NewF32({shape.tokens(), shape.query_size()}, MemoryTag::kWorkspace);
  Fill(dquery, 0.0f);
  const VisitBackward visit = [&](int source, const Tensor& kv, Tensor& dkv) {
    for (const AttentionBlock& block : BlocksOf(context, shape, source)) {
      AttentionBlockBackward(shape, KeysOf(context, source), block, qkv, kv, out, log_sum_exp, dout,
                             dquery, dkv);
    }
  };
  const Tensor dkv = OnRing(context) ? VisitRingBackward(context, shape, qkv, visit)
                                     : VisitGatheredBackward(context, shape, qkv, visit);
  CopyColumns(dquery, 0, dqkv, 0, shape.query_size());
  CopyColumns(dkv, 0, dqkv, shape.query_size(), dkv.dim(1));
}

}  // namespace trimtab
