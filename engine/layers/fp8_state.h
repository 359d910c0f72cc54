// fp8 training: the scales of every quantised tensor, and the weights in fp8.
//
// A linear layer has three quantised tensors: its input x and weight w in e4m3, the gradient of its
// output dy in e5m2 (Micikevicius et al., arXiv:2209.05433). Weights always have current scales:
// they are quantised once per optimizer step. Inputs and gradients have the scale of the largest
// value of the last steps (delayed scaling), or of the tensor at hand (current scaling; also in a
// run's first step, which has no history). The experts of a layer are one linear layer.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/layout/precision.h"
#include "engine/layers/layer_context.h"
#include "engine/ops/fp8/grouped_quantize.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/parameters/fp8_snapshot.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// The fp8 copies of an operand that a fused op is to write.
struct Fp8Target {
  Fp8Output out;
  int64_t slot = 0;      // of the operand's scale
  bool sharded = false;  // each tp rank has a part of the operand
};

/// The weight [out, in] of one linear layer in fp8; those of experts [E, out, in].
struct Fp8Weight {
  Tensor rows;        // [out, in]
  Tensor transposed;  // [in, out]
  Tensor inverse;     // fp32 [1]: stored * inverse = value
};

class Fp8State {
 public:
  explicit Fp8State(Fp8Config config) : config_(std::move(config)) {}
  Fp8State(const Fp8State&) = delete;
  Fp8State& operator=(const Fp8State&) = delete;

  /// Adds the linear layer `name`: its index, or -1 when the configuration keeps it in bf16.
  int Declare(const std::string& name, const Parameter& weight);
  /// Throws InputError when the configuration names a layer that was not declared.
  void RequireNamedLayers() const;
  /// Allocates scales and, if `keeps_weights`, the fp8 weights; otherwise these are there only
  /// between QuantizeUnit and ReleaseUnit. `in_flight`: micro batches between whose passes those of
  /// others may come.
  void Allocate(Device& device, int64_t in_flight = 1, bool keeps_weights = true);
  /// What is quantised from now on is of a micro batch of this number. Current scales are kept for
  /// the last `in_flight` numbers.
  void EnterMicroBatch(int64_t number) { micro_batch_ = number % in_flight_; }
  /// Not in a run's first step, whose scales come from the tensors at hand.
  bool has_history() const { return has_history_; }
  /// How products add up, and how those of input gradients do.
  Fp8Sums sums() const {
    return config_.fast_gradients ? Fp8Sums::kShortOnCpuToo : Fp8Sums::kShort;
  }
  Fp8Sums gradient_sums() const { return config_.fast_gradients ? sums() : Fp8Sums::kFull; }
  /// Of the linear layers that compute in fp8.
  std::vector<std::string> LayerNames() const;
  /// For each linear layer declared, whether it computes in fp8.
  std::vector<bool> InFp8() const;

  /// Quantises every weight anew: after the first values, a checkpoint, an optimizer step.
  void QuantizeWeights(const ParallelContext& parallel);
  /// Makes the fp8 weights of one unit of parameters from its weights, in new memory where it keeps
  /// none; frees them.
  void QuantizeUnit(const ParallelContext& parallel, size_t unit);
  void ReleaseUnit(size_t unit);
  /// At the end of a step: with delayed scaling, the scales of the next one.
  void EndStep(const ParallelContext& parallel);

  /// For checkpoints. Restore takes the layers of this rank out of a snapshot of more. It warns,
  /// and leaves everything as it is, when one is missing or the history is of another length: the
  /// next step then has current scales, like a first one.
  Fp8Snapshot Snapshot() const;
  void Restore(const Fp8Snapshot& snapshot);

  const Fp8Weight& weight(int layer) const { return layers_[Index(layer)].fp8; }

  enum class Operand { kInput, kGradient };
  /// Quantises x [rows, C] of a layer: `rows` into [rows, C], `transposed` into [C, rows], those
  /// that are defined. With current scaling the scale is set first, from the largest value over the
  /// tensor-parallel ranks when `sharded` says that each holds a part of the tensor; `keep_scale`
  /// reuses the scale of an earlier call on the same values.
  void Quantize(const ParallelContext& parallel, int layer, Operand operand, const Tensor& x,
                bool sharded, bool keep_scale, Tensor rows, Tensor transposed);
  /// The same of the rows of experts, as trimtab::QuantizeGroups does it: the ranks that together
  /// hold a layer's experts have a part each.
  void QuantizeGroups(const ParallelContext& parallel, int layer, Operand operand, const Tensor& x,
                      GroupRows groups, bool keep_scale, Tensor rows, Tensor transposed);
  /// Where a fused op may write the operand [rows, columns] of a layer itself: both copies, the
  /// transposed one under `transposed_tag`. Empty with current scaling.
  std::optional<Fp8Target> Target(int layer, Operand operand, bool sharded, int64_t rows,
                                  int64_t columns, MemoryTag transposed_tag) const;
  /// Has `op` write target.out with `scale`. In a run's first step it is called twice: the first
  /// call, a `rehearsal` whose results are thrown away, only finds the largest value.
  using FusedOp = std::function<void(const Tensor& scale, Fp8Output& out, bool rehearsal)>;
  void Write(const ParallelContext& parallel, Fp8Target& target, const FusedOp& op);
  /// Factor [1] that restores the values of the last Quantize, or of what was written to a Target.
  Tensor inverse(int layer, Operand operand) const;

 private:
  struct Layer {
    std::string name;
    const Parameter* parameter = nullptr;
    Fp8Weight fp8;
  };
  static constexpr int64_t kOperands = 2;

  /// Indices [begin, end) into layers_.
  struct LayerRange {
    size_t begin = 0;
    size_t end = 0;
  };
  LayerRange LayersOf(size_t unit) const;
  void AllocateWeights(Device& device, const LayerRange& range, MemoryTag tag);
  void QuantizeRange(const ParallelContext& parallel, const LayerRange& range);

  static size_t Index(int layer) { return static_cast<size_t>(layer); }
  int64_t Slot(int layer, Operand operand) const {
    return kOperands * layer + (operand == Operand::kGradient ? 1 : 0);
  }
  bool delayed() const { return config_.scaling == "delayed"; }
  /// Whether scales are those of the tensor at hand.
  bool current() const { return !delayed() || !has_history_; }
  /// Of every operand [S], and of one [1].
  Fp8Scales DelayedScales() const;
  Fp8Scales ScalesOf(int64_t slot) const;
  /// Where x is quantised to; sets the scale first where that is x's own. `sharers` have a part of
  /// x each; nullptr: nobody else.
  Fp8Output Begin(int64_t slot, const Tensor& x, Communicator* sharers, bool keep_scale,
                  Tensor rows, Tensor transposed);
  /// Sets the scale of `slot` from current_amax_.
  void SetCurrentScale(int64_t slot, Communicator* sharers);

  Fp8Config config_;
  bool has_history_ = false;
  int64_t in_flight_ = 1;
  int64_t micro_batch_ = 0;
  std::vector<std::string> names_;  // of all linear layers
  std::vector<Layer> layers_;
  // Inputs and gradients: S = 2 per layer. Weights: one per layer.
  Tensor amax_;          // [history, S]; only with delayed scaling
  Tensor current_amax_;  // [1, 1]: of the tensor at hand
  Tensor fp8_max_;       // [S]
  Fp8Scales scales_;     // [in_flight * S]; those of delayed scaling first
  Tensor weight_amax_;   // [1, layers]
  Tensor weight_max_;    // [layers]
  Fp8Scales weight_scales_;
};

}  // namespace trimtab
