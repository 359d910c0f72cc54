// What every layer call needs to know: the device, the rank's groups, and the size of a micro
// batch.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/layout/precision.h"
#include "engine/config/layout/recompute.h"
#include "engine/config/model/moe_config.h"
#include "engine/config/run/packing_config.h"
#include "engine/device/tensor.h"
#include "engine/ops/attention/paged_attention.h"
#include "engine/ops/attention/row_layout.h"

namespace trimtab {

class Fp8State;
class LinearObserver;
struct LayerContext;
struct ModelConfig;

/// Weight gradients that a backward pass has put off: each adds to its gradient, or overwrites it
/// when not `accumulate`. Keeps the tensors it is the product of.
using DeferredGradients =
    std::vector<std::function<void(const LayerContext& context, bool accumulate)>>;

struct LayerContext {
  Device& device;
  const ParallelContext& parallel;
  const ModelConfig& model;  // what a model makes its layers' specifications of; layers read those
  int64_t micro_batch = 0;   // B of one micro batch
  int64_t sequence = 0;      // T, of which context-parallel ranks have a share each
  TrainingTypes types{};
  RoutingConfig routing{};             // with experts
  Fp8State* fp8 = nullptr;             // scales and weights in fp8; set when types.fp8
  LinearObserver* observer = nullptr;  // sees what linear layers multiply; nullptr = nobody
  // Where linear layers put off their weights' gradients; nullptr = they make them at once.
  DeferredGradients* deferred = nullptr;
  // How sequences hold documents; nullptr = each is one document.
  const PackingConfig* packing = nullptr;
  // [N] int32: the positions of this pass's rows in their documents; where those are masked.
  Tensor positions{};
  // Serving: the rows of this pass, which then has one "sequence" of all of them, and where the
  // layer's attention keeps keys and values; nullptr in training.
  const RowLayout* paged = nullptr;
  const PagedCache* cache = nullptr;
  // [1]: gradients are those of this times the sum over tokens of their losses. In backward passes.
  Tensor gradient_scale{};

  int64_t tp() const { return parallel.layout.tp; }
  /// Chunks of rows in which collectives of linear layers overlap with products; 1 = none. Whoever
  /// looks at what is multiplied sees it whole.
  int64_t tp_chunks() const {
    return tp() == 1 || observer != nullptr ? 1 : parallel.layout.tp_overlap_chunks;
  }
  bool sequence_parallel() const { return parallel.layout.sequence_parallel && tp() > 1; }
  /// Returns true if attention is masked by document.
  bool masks_documents() const { return packing != nullptr && packing->masks_documents(); }
  /// Returns what the rows of this pass are on this rank.
  RowLayout row_layout() const {
    if (paged != nullptr) return *paged;
    RowLayout layout =
        RowLayout::ZigZag(micro_batch, sequence, parallel.layout.cp, parallel.cp_rank);
    layout.positions = positions;
    return layout;
  }
  /// N = B * T / cp, the rows of activations inside attention and MLP.
  int64_t tokens() const { return micro_batch * sequence / parallel.layout.cp; }
  /// Rows of the residual stream on this rank: N, or N / tp with sequence parallelism.
  int64_t rows() const { return sequence_parallel() ? tokens() / tp() : tokens(); }
  /// First row of the residual stream on this rank.
  int64_t row_begin() const { return sequence_parallel() ? parallel.tp_rank * rows() : 0; }

  /// The plan of this rank's pipeline stage.
  const RecomputeConfig& recompute() const { return parallel.layout.recompute[parallel.pp_rank]; }
  /// Whether `module` is made again in the backward pass (recompute.h).
  bool Recomputes(RecomputeModule module) const { return recompute().modules.Has(module); }

  /// Uninitialised memory of the activations' type; `tag` says whether it outlives the layer call.
  Tensor New(const Shape& shape, MemoryTag tag) const {
    return Tensor::Empty(device, shape, types.activations, tag);
  }
  /// The same in fp32: statistics and losses.
  Tensor NewF32(const Shape& shape, MemoryTag tag) const {
    return Tensor::Empty(device, shape, DType::kF32, tag);
  }
};

}  // namespace trimtab
