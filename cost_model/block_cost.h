// What the blocks of a model cost on one rank: ops, tensor-parallel messages and memory of the
// embedding, a transformer layer and the head, for one micro batch.
//
// This is the closed form's description of engine/layers: one function per block, in the order of
// the engine's calls, from the engine's own op costs. Tests hold it equal to the dry run.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cost_model/estimate.h"
#include "cost_model/price.h"
#include "engine/config/model_config.h"
#include "engine/config/precision.h"
#include "engine/device/device.h"

namespace trimtab {

/// Ops and messages of the tensor-parallel group, counted and priced.
struct Cost {
  double compute_s = 0;
  double tp_s = 0;
  int64_t flops = 0;
  int64_t ops = 0;
  CommTotal tp_all_reduce;
  CommTotal tp_reduce_scatter;
  CommTotal tp_all_gather;

  /// Adds `times` times `other`.
  void Add(const Cost& other, int64_t times);
};

/// Bytes in use relative to a starting point, and their peak.
struct MemoryLevel {
  int64_t now = 0;
  int64_t peak = 0;

  void Take(int64_t bytes) {
    now += bytes;
    peak = std::max(peak, now);
  }
  void Give(int64_t bytes) { now -= bytes; }
};

/// One block. Peaks are above what is in use when the block is entered.
struct BlockCost {
  Cost forward;
  Cost backward_first;       // the micro batch that overwrites the gradients
  Cost backward_accumulate;  // one that adds to them
  int64_t kept_bytes = 0;    // activations kept for the backward pass, without the block's output
  int64_t forward_peak = 0;
  int64_t forward_activations_peak = 0;  // of what is allocated as an activation
  int64_t backward_peak = 0;
};

/// The linear layers of a transformer layer.
enum LinearKind { kQkv, kProj, kFc1, kFc2, kLinearKindCount };
/// Those that compute in fp8.
using Fp8Linears = std::array<bool, kLinearKindCount>;

/// The size and the types of one micro batch on one rank.
struct BlockShape {
  int64_t tp = 1;
  bool sequence_parallel = false;  // only with tp > 1
  int64_t micro_batch = 1;
  int64_t sequence = 0;
  Executor executor{};
  TrainingTypes types{};
  Fp8Linears fp8{};              // with types.fp8
  bool current_scaling = false;  // fp8 scales from the tensor at hand

  int64_t tokens() const { return micro_batch * sequence; }
  /// Rows of the residual stream on this rank.
  int64_t rows() const { return sequence_parallel ? tokens() / tp : tokens(); }
};

BlockCost EmbeddingCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer);
BlockCost LayerCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer);
BlockCost HeadCost(const ModelConfig& model, const BlockShape& shape, const Pricer& pricer);

}  // namespace trimtab
