// MuonExchange: brings the matrices of a round together on their owners, and their updates back.
//
// A rank updates its shard of its part of each matrix. First the ranks of a shard group give each
// other what they have of parts, so that the owner's has them whole; then the ranks that split
// matrices do, of those that their shard's rank owns. Both are one all-to-all each way.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/optim/muon_matrices.h"
#include "engine/parallel/parameter_shards.h"

namespace trimtab {

class MuonExchange {
 public:
  /// All must outlive this.
  MuonExchange(const ParallelContext& parallel, const ParameterShards& shards,
               const MuonRound& round);

  /// Returns how many elements of all matrices this rank updates: one matrix after the other.
  int64_t numel() const { return numel_; }
  /// The part of matrix `index` of the round that this rank updates, and where it begins among
  /// these.
  struct Piece {
    OwnedPart part;
    int64_t begin = 0;
  };
  const std::vector<Piece>& pieces() const { return pieces_; }

  /// Calls `change` with every matrix that this rank owns, whole [whole_rows, whole_columns]: of
  /// what the ranks have in `pieces` [numel()], which becomes what the calls leave. Every rank of
  /// both groups calls it.
  void ForEachWhole(Tensor& pieces, const std::function<void(Tensor& whole)>& change) const;

 private:
  /// Consecutive elements of what a rank sends or receives, and where they are in another buffer.
  struct Range {
    int64_t from = 0;
    int64_t to = 0;
    int64_t count = 0;
  };

  void PlanShards();
  void PlanSplit();
  /// Does so with this rank's parts of the matrices of its shard rank, [local_numel_].
  void ChangeLocal(Tensor& local, const std::function<void(Tensor& whole)>& change) const;
  /// Joins a matrix [whole_rows, whole_columns] from the parts of the ranks that split it, or
  /// splits it into them: each `begin` elements into what its rank has in `parts`.
  enum class Way { kJoin, kSplit };
  void Move(Way way, const MuonMatrix& matrix, int64_t begin, Tensor& parts, Tensor& whole) const;

  const ParameterShards& shards_;
  const MuonRound& round_;
  Communicator& shard_;
  Communicator& split_;
  std::vector<Piece> pieces_;  // by matrix
  int64_t numel_ = 0;
  std::vector<const MuonMatrix*> local_;  // that the rank of its shard owns
  int64_t local_numel_ = 0;               // of this rank's parts of them
  std::vector<const MuonMatrix*> owned_;  // by this rank
  int64_t owned_numel_ = 0;               // of a rank's parts of them
  // Between `pieces` and what comes from the shard group: by rank.
  std::vector<BufferPart> shard_sent_;
  std::vector<BufferPart> shard_received_;
  int64_t shard_numel_ = 0;
  std::vector<Range> shard_ranges_;  // from what is received to the local parts
  // Between local parts and what comes from the ranks that split matrices.
  std::vector<BufferPart> split_sent_;
  std::vector<BufferPart> split_received_;
};

}  // namespace trimtab
