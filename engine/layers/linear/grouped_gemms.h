// The three products of the experts of a layer on one rank, in the run's precision: as
// linear_gemms.h, of groups of rows that have a matrix each.
#pragma once

#include <vector>

#include "engine/layers/linear/linear_gemms.h"
#include "engine/ops/gemm/grouped_gemm.h"

namespace trimtab {

class GroupedGemms {
 public:
  /// `weight` is spec.multiplied matrices, one below the other. With fp8, unless the layer is kept
  /// in bf16, operands are quantised; each has one scale for all experts of all ranks.
  GroupedGemms(const LayerContext& context, Parameter& weight);

  Parameter& weight() const { return *weight_; }
  /// Columns of y.
  int64_t out() const { return weight_->spec.rows / weight_->spec.multiplied; }

  /// Writes y [R, out] from x [R, in]. Whoever observes sees the fullest group. `saved` receives
  /// what Backward needs: x itself, or its transposed fp8 copy.
  void Forward(const LayerContext& context, const Tensor& x, GroupRows rows, Tensor& y,
               LinearSaved& saved) const;
  /// Fills `saved` as Forward does, without the product.
  void Keep(const LayerContext& context, const Tensor& x, GroupRows rows, LinearSaved& saved) const;

  /// One backward pass: makes what both products need of dy [R, out] once.
  class Backward {
   public:
    Backward(const GroupedGemms& products, const LayerContext& context, const Tensor& dy,
             GroupRows rows);
    /// Adds to the weight's gradient, or overwrites it when not `accumulate`; or leaves that to
    /// context.deferred.
    void WeightGradient(const LayerContext& context, const LinearSaved& saved,
                        bool accumulate) const;
    /// dx [R, in] of the activations' type.
    void InputGradient(const LayerContext& context, Tensor& dx) const;

   private:
    void MakeWeightGradient(const LayerContext& context, const LinearSaved& saved,
                            bool accumulate) const;

    const GroupedGemms* products_;
    std::vector<int64_t> rows_;
    Tensor dy_;             // [R, out], in fp8 where that is computed in
    Tensor dy_transposed_;  // fp8 alone, by groups
  };

 private:
  bool fp8() const { return fp8_layer_ >= 0; }
  /// The matrices [G, out, in] of what lies as the weight.
  Tensor Matrices(const Tensor& parameter) const;
  /// Quantises x, or dy, into those of the two that are defined.
  void Quantize(const LayerContext& context, Fp8State::Operand operand, const Tensor& x,
                GroupRows rows, bool keep_scale, const Fp8Output& out) const;

  Parameter* weight_;
  int fp8_layer_ = -1;
};

}  // namespace trimtab
