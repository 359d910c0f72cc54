// The dispatcher of a layer with experts: takes tokens to the rows of their experts, expert by
// expert, and brings the experts' results back. All experts are on the rank.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/layers/layer_context.h"

namespace trimtab {

/// How tokens went to the experts. R rows in all.
struct MoeDispatch {
  Tensor row_of;                     // [N, k] int32: the row of each choice, or -1
  Tensor choice_of;                  // [R] int32: the choice of each row, or -1
  std::vector<int64_t> expert_rows;  // of each of the rank's experts
};

/// The rows of the experts [R, C], an activation, from x [N, C]; `kept` [N, k] (int32) is what
/// MoeRouter::Forward returned. Fills `dispatch`. Where the number of rows depends on the tokens,
/// it waits for the device.
Tensor DispatchTokens(const LayerContext& context, const Tensor& x, const Tensor& kept,
                      MoeDispatch& dispatch);
/// The gradient of x [N, C] from that of the rows [R, C].
Tensor DispatchTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                              const Tensor& drows);

/// y [N, C] under `tag`: of each token the sum of its experts' results, which are rows [R, C], each
/// times its weight [N, k].
Tensor CombineTokens(const LayerContext& context, const MoeDispatch& dispatch, const Tensor& rows,
                     const Tensor& weights, MemoryTag tag);
/// The gradient of the rows [R, C], from dy [N, C]. Writes that of the weights to dweights [N, k].
Tensor CombineTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                             const Tensor& rows, const Tensor& weights, const Tensor& dy,
                             Tensor& dweights);

}  // namespace trimtab
