// The dispatcher of a layer with experts: takes a rank's tokens to the rows of their experts, which
// stand expert by expert on the ranks that hold them, and brings the experts' results back.
//
// alltoall: each rank puts its own tokens' rows in order and exchanges rows (expert_exchange.h).
// allgather: the ranks that together hold all experts gather their tokens; each takes what goes to
// its experts, and what the results add up to is reduce-scattered.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/layers/layer_context.h"
#include "engine/layers/moe/expert_exchange.h"

namespace trimtab {

/// How tokens went to the experts, and what came back.
struct MoeDispatch {
  // Of the N tokens of this rank, or with allgather of all ranks of etp_ep:
  Tensor row_of;                           // [N, k] int32: the row of each choice, or -1
  Tensor choice_of;                        // [R] int32: the choice of each row, or -1
  std::vector<int64_t> expert_rows;        // of each of the rank's experts
  std::optional<ExpertExchange> exchange;  // with alltoall over several ranks
  Tensor results;                          // [R, C]: what the experts made of the rows
};

/// The rows of this rank's experts [S, C], an activation, from x [rows, C]; `kept` [rows, k]
/// (int32) has the experts that take each token, or -1. Fills `dispatch` but for the results. Where
/// the number of rows depends on the tokens, it waits for the device.
Tensor DispatchTokens(const LayerContext& context, const MoeConfig& moe, const Tensor& x,
                      const Tensor& kept, MoeDispatch& dispatch);
/// The gradient of x [rows, C] from that of the experts' rows [S, C].
Tensor DispatchTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                              const Tensor& drows);

/// Fills dispatch.results from those of this rank's experts [S, C].
void ReturnResults(const LayerContext& context, const Tensor& rows, MoeDispatch& dispatch);
/// y [rows, C], an activation: of each token the sum of its experts' results, each times its weight
/// [rows, k].
Tensor CombineTokens(const LayerContext& context, const MoeDispatch& dispatch,
                     const Tensor& weights);
/// The gradient of the results of this rank's experts [S, C], from dy [rows, C]; and that of the
/// weights, dweights [rows, k].
Tensor CombineTokensBackward(const LayerContext& context, const MoeDispatch& dispatch,
                             const Tensor& weights, const Tensor& dy, Tensor& dweights);

}  // namespace trimtab
