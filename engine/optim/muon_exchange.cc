#include "engine/optim/muon_exchange.h"

#include <algorithm>

#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

/// The elements of `range` that rank `rank` of the bucket's shard group has.
int64_t CountOf(const Bucket& bucket, int ranks, int rank, const FlatRange& range) {
  const int64_t each = bucket.range.numel() / ranks;
  const int64_t begin = bucket.range.begin + rank * each;
  return std::max<int64_t>(0, std::min(range.end, begin + each) - std::max(range.begin, begin));
}

}  // namespace

MuonExchange::MuonExchange(const ParallelContext& parallel, const ParameterShards& shards,
                           const MuonRound& round)
    : shards_(shards),
      round_(round),
      shard_(shards.shard_group(round.grid)),
      split_(SplitGroup(parallel, round.grid)) {
  PlanShards();
  PlanSplit();
}

void MuonExchange::PlanShards() {
  shard_sent_.resize(static_cast<size_t>(shard_.size()));
  for (const MuonMatrix& matrix : round_.matrices) {
    const OwnedPart part = shards_.Within(matrix.local);
    pieces_.push_back({part, numel_});
    BufferPart& sent = shard_sent_[static_cast<size_t>(matrix.shard_owner)];
    if (sent.count == 0) sent.begin = numel_;
    sent.count += part.numel;
    numel_ += part.numel;
    if (matrix.shard_owner != shard_.rank()) continue;
    local_.push_back(&matrix);
    local_numel_ += matrix.numel();
  }
  // Of each matrix the ranks have consecutive ranges, in their order.
  std::vector<int64_t> filled(local_.size());
  for (int rank = 0; rank < shard_.size(); ++rank) {
    BufferPart received = {shard_numel_, 0};
    int64_t begin = 0;  // of the matrix among the local parts
    for (size_t i = 0; i < local_.size(); ++i) {
      const Bucket& bucket = shards_.buckets()[shards_.BucketOf(local_[i]->unit)];
      const int64_t count = CountOf(bucket, shard_.size(), rank, local_[i]->local);
      if (count > 0) shard_ranges_.push_back({shard_numel_, begin + filled[i], count});
      filled[i] += count;
      shard_numel_ += count;
      received.count += count;
      begin += local_[i]->numel();
    }
    shard_received_.push_back(received);
  }
}

void MuonExchange::PlanSplit() {
  split_sent_.resize(static_cast<size_t>(split_.size()));
  int64_t begin = 0;
  for (const MuonMatrix* matrix : local_) {
    BufferPart& sent = split_sent_[static_cast<size_t>(matrix->split_owner)];
    if (sent.count == 0) sent.begin = begin;
    sent.count += matrix->numel();
    begin += matrix->numel();
    if (matrix->split_owner != split_.rank()) continue;
    owned_.push_back(matrix);
    owned_numel_ += matrix->numel();
  }
  for (int rank = 0; rank < split_.size(); ++rank) {
    split_received_.push_back({rank * owned_numel_, owned_numel_});
  }
}

void MuonExchange::ForEachWhole(Tensor& pieces,
                                const std::function<void(Tensor& whole)>& change) const {
  if (shard_.size() == 1) return ChangeLocal(pieces, change);
  const auto buffer = [&](int64_t numel) {
    return Tensor::Empty(pieces.device(), {numel}, pieces.dtype(), MemoryTag::kCommunication);
  };
  Tensor received = buffer(shard_numel_);
  Tensor local = buffer(local_numel_);
  shard_.AllToAll(pieces, shard_sent_, received, shard_received_);
  for (const Range& range : shard_ranges_) {
    Tensor target = local.Slice(range.to, {range.count});
    Copy(received.Slice(range.from, {range.count}), target);
  }
  ChangeLocal(local, change);
  for (const Range& range : shard_ranges_) {
    Tensor target = received.Slice(range.from, {range.count});
    Copy(local.Slice(range.to, {range.count}), target);
  }
  shard_.AllToAll(received, shard_received_, pieces, shard_sent_);
}

void MuonExchange::ChangeLocal(Tensor& local,
                               const std::function<void(Tensor& whole)>& change) const {
  if (split_.size() == 1) {
    int64_t begin = 0;
    for (const MuonMatrix* matrix : local_) {
      Tensor whole = local.Slice(begin, {matrix->rows, matrix->columns});
      change(whole);
      begin += matrix->numel();
    }
    return;
  }
  Tensor parts = Tensor::Empty(local.device(), {split_.size() * owned_numel_}, local.dtype(),
                               MemoryTag::kCommunication);
  split_.AllToAll(local, split_sent_, parts, split_received_);
  int64_t begin = 0;
  for (const MuonMatrix* matrix : owned_) {
    Tensor whole = Tensor::Empty(local.device(), {matrix->whole_rows, matrix->whole_columns},
                                 local.dtype(), MemoryTag::kWorkspace);
    Move(Way::kJoin, *matrix, begin, parts, whole);
    change(whole);
    Move(Way::kSplit, *matrix, begin, parts, whole);
    begin += matrix->numel();
  }
  split_.AllToAll(parts, split_received_, local, split_sent_);
}

void MuonExchange::Move(Way way, const MuonMatrix& matrix, int64_t begin, Tensor& parts,
                        Tensor& whole) const {
  const bool joins = way == Way::kJoin;
  for (int rank = 0; rank < split_.size(); ++rank) {
    // Of equal parts the first is taken, and all are given the same.
    if (joins && rank % matrix.copies != 0) continue;
    const int64_t place = rank / matrix.copies;
    Tensor part = parts.Slice(rank * owned_numel_ + begin, {matrix.rows, matrix.columns});
    if (matrix.by_columns()) {
      const int64_t column = place * matrix.columns;
      if (joins) {
        CopyColumns(part, 0, whole, column, matrix.columns);
      } else {
        CopyColumns(whole, column, part, 0, matrix.columns);
      }
      continue;
    }
    Tensor rows = whole.Rows(place * matrix.rows, matrix.rows);
    if (joins) {
      Copy(part, rows);
    } else {
      Copy(rows, part);
    }
  }
}

}  // namespace trimtab
