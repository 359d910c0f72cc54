// The three matrix products of a linear layer on one rank, in the run's precision:
// y = x W^T + b, dx = dy W, dW = dy^T x with x [N, in], W [out, in], y [N, out].
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "engine/layers/fp8_state.h"
#include "engine/layers/layer_context.h"
#include "engine/parameters/parameter.h"

namespace trimtab {

/// Told what a linear layer multiplies: for tools that study a run.
class LinearObserver {
 public:
  virtual ~LinearObserver() = default;
  virtual void OnForward(const std::string& name, const Tensor& x, const Tensor& weight) = 0;
  virtual void OnBackward(const std::string& name, const Tensor& dy) = 0;
};

/// What a linear layer multiplies: a matrix, or the fp8 copies that a fused op has written of it.
struct LinearOperand {
  Tensor matrix{};
  Fp8Output fp8{};

  LinearOperand() = default;
  LinearOperand(Tensor stored) : matrix(std::move(stored)) {}    // NOLINT: a matrix is one
  LinearOperand(Fp8Output written) : fp8(std::move(written)) {}  // NOLINT: so are its copies
};

/// What is done to y = x W^T while it is written, each where it is defined.
struct LinearExtras {
  Tensor bias{};      // [out], added to every row
  Tensor residual{};  // of the shape of y, added
  Tensor gelu{};      // of the shape of y, becomes gelu(y); not with a residual
};

/// What a linear layer keeps of its input: one of the two, or neither where the input is made again
/// in the backward pass.
struct LinearSaved {
  Tensor input;             // [rows, in], as the layer got it
  Tensor input_transposed;  // [in, N], fp8

  bool defined() const { return input.defined() || input_transposed.defined(); }
};

/// The layer's name: its weight's, without the last part.
std::string LinearName(const Parameter& weight);

class LinearGemms {
 public:
  /// With fp8, unless the layer is kept in bf16, it quantises its operands.
  /// `input_sharded`: each tp rank has a part of x (and all of dy), else all of x and a part of dy.
  LinearGemms(const LayerContext& context, Parameter& weight, bool input_sharded);
  /// A layer that never computes in fp8: the output projection.
  explicit LinearGemms(Parameter& weight) : weight_(&weight) {}

  Parameter& weight() const { return *weight_; }
  /// Whether the weight has a gradient.
  bool trainable() const { return weight_->spec.trainable; }

  /// Where a fused op may write x [N, in], or dy [N, out], itself; empty where it must be stored.
  /// An op that cannot be repeated must not ask for one in a run's first step (Fp8State::Write).
  std::optional<Fp8Target> InputTarget(const LayerContext& context) const;
  std::optional<Fp8Target> GradientTarget(const LayerContext& context) const;

  /// Writes y from x. `saved` receives what Backward needs: x itself, or its transposed fp8 copy;
  /// the shard of sequence parallelism is kept instead of either, and x gathered again.
  void Forward(const LayerContext& context, const Tensor& x, const Tensor& shard,
               const LinearExtras& extras, Tensor& y, LinearSaved& saved) const;
  /// The same from the copies of an InputTarget.
  void Forward(const LayerContext& context, const Fp8Output& x, const LinearExtras& extras,
               Tensor& y, LinearSaved& saved) const;

  /// Rows of y from those of x, rows of dx from those of dy, where nothing is quantised. Keeps
  /// nothing.
  void Multiply(const LayerContext& context, const Tensor& x, const LinearExtras& extras,
                Tensor& y) const;
  /// Where `gelu_of` is defined, dx is the gradient of that, of which x was gelu.
  void MultiplyBack(const LayerContext& context, const Tensor& dy, Tensor& dx,
                    const Tensor& gelu_of = {}) const;

  /// Fills `saved` as Forward does, without the product. `x` is what the layer got: a shard of
  /// [N, in] where sequence parallelism gathers it.
  void Keep(const LayerContext& context, const LinearOperand& x, LinearSaved& saved) const;

  /// Whether WeightGradient needs x (gathered again), that is: fp8 kept no copy of it.
  bool NeedsInput(const LinearSaved& saved) const { return saved.input.defined(); }

  bool fp8() const { return fp8_layer_ >= 0; }
  /// Whether products have gelu beside them: in fp8 it is made in fp8, and a packed weight has a
  /// kernel of its own.
  bool TakesGelu() const { return !fp8() && !weight_->packed.defined(); }

  /// One backward pass: makes what both products need of dy once.
  class Backward {
   public:
    Backward(const LinearGemms& products, const LayerContext& context, const Tensor& dy);
    /// From the copies of a GradientTarget.
    Backward(const LinearGemms& products, Fp8Output dy);
    /// Of a weight that is trained. Adds to its gradient, or overwrites it when not `accumulate`.
    /// `x` is the gathered input where NeedsInput, else undefined. Likewise the gradient of `bias`,
    /// which may be null; not in fp8.
    void WeightGradient(const LayerContext& context, const LinearSaved& saved, const Tensor& x,
                        bool accumulate, Parameter* bias = nullptr) const;
    /// What WeightGradient alone needs of this.
    Backward WeightPart() const;
    /// dx [N, in] of the activations' type; where `gelu_of` is defined, as of MultiplyBack.
    void InputGradient(const LayerContext& context, Tensor& dx, const Tensor& gelu_of = {}) const;

   private:
    const LinearGemms* products_;
    Tensor dy_;                 // not in fp8
    Tensor dy_fp8_;             // [N, out]
    Tensor dy_fp8_transposed_;  // [out, N]
  };

 private:
  std::string name() const { return LinearName(*weight_); }
  /// Whether x is gathered first: of that, only the shard is kept.
  bool KeepsShard(const LayerContext& context) const {
    return context.sequence_parallel() && !input_sharded_;
  }
  void Fp8Product(const LayerContext& context, const Tensor& rows, const LinearExtras& extras,
                  Tensor& y) const;

  Parameter* weight_ = nullptr;
  int fp8_layer_ = -1;
  bool input_sharded_ = false;
};

}  // namespace trimtab
