// How rows of tokens reach the ranks that hold their experts, and come back. The rows of a rank
// stand expert by expert. They go to the ep ranks that hold the experts; where etp ranks share an
// expert, each of them is given the rows of all (Megatron-Core: an all-to-all over ep, then an
// all-gather over etp, and the way back a reduce-scatter and an all-to-all).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/layers/layer_context.h"
#include "engine/layers/moe/expert_counts.h"

namespace trimtab {

/// Who sends how many rows to whom. Made for one micro batch, from what every rank has for each
/// expert; used forward and backward.
class ExpertExchange {
 public:
  /// `counts`: the rows that each rank of the etp_ep group has for each expert; `counted`
  /// [etp_ep ranks, E] has the same on the device, in fp32.
  ExpertExchange(const LayerContext& context, const ExpertCounts& counts, const Tensor& counted);

  /// Rows of each expert of this rank, of all ranks of the group.
  const std::vector<int64_t>& expert_rows() const { return expert_rows_; }
  /// All of them: S.
  int64_t rows() const { return rows_; }

  /// The rows of this rank's experts [S, C] under `tag`, expert by expert, from this rank's rows
  /// [R, C]. Those of an expert come in the order of the ranks.
  Tensor Send(const LayerContext& context, const Tensor& rows, MemoryTag tag) const;
  /// The transpose of Send: what this rank's rows [R, C] have become, from those of its experts
  /// [S, C]; added up over the etp ranks that share each.
  Tensor Return(const LayerContext& context, const Tensor& rows, MemoryTag tag) const;

 private:
  /// Puts the rows that came rank by rank in the order of experts, of which `own` are this rank's.
  void PlanOrder(const LayerContext& context, const ExpertRange& own, const Tensor& counted);

  std::vector<int64_t> expert_rows_;
  int64_t arrived_ = 0;  // rows that the ep ranks of this etp rank have for its experts
  int64_t rows_ = 0;
  // Parts in rows, by rank of the group.
  std::vector<BufferPart> to_ep_;
  std::vector<BufferPart> from_ep_;
  std::vector<BufferPart> to_etp_;
  std::vector<BufferPart> from_etp_;
  // int32 [S], with more than one rank in the group: the row, as they came, of each row as it
  // stands by expert; and the other way round.
  Tensor by_expert_;
  Tensor by_rank_;
};

}  // namespace trimtab
