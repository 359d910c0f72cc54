// What ChunkCosts makes of a recording: the prices of its pieces.
#include <utility>

#include "cost_model/chunk_costs.h"

namespace trimtab {
namespace {

std::vector<WaySpans> SpansOfEach(const std::vector<WayCosts>& costs) {
  std::vector<WaySpans> spans(costs.size());
  for (size_t i = 0; i < costs.size(); ++i) {
    for (size_t way = 0; way < kWayCount; ++way) {
      const PieceCost& cost = costs[i][way];
      const double tensor_wait_s = cost.message_s[static_cast<size_t>(GroupKind::kTensor)];
      spans[i][way] = {cost.seconds(), tensor_wait_s, cost.total};
    }
  }
  return spans;
}

/// The pieces of each way of a recording, priced.
using PricedWays = std::array<std::vector<PieceCost>, kWayCount>;

/// The pieces of `kind` (and of layers [first, first + count)) among those of a recording.
WayCosts CostsOfPieces(PieceKind kind, int64_t first, int64_t count,
                       const MicroBatchRecording& recording, const PricedWays& priced) {
  WayCosts ways;
  for (size_t way = 0; way < kWayCount; ++way) {
    const std::vector<Recording>& pieces = recording.ways[way];
    for (size_t i = 0; i < pieces.size(); ++i) {
      const PieceRecord& piece = pieces[i].piece;
      if (piece.kind != kind || piece.layer < first || piece.layer >= first + count) continue;
      ways[way].Append(priced[way][i]);
    }
  }
  return ways;
}

/// Forward passes that launching a way through a layer counts as: a backward pass launches twice as
/// many ops, and recomputation a forward pass more.
double LaunchesOf(size_t way, const PieceCost& cost) {
  const bool again = cost.recompute_s > 0;
  switch (way) {
    case kForwardFirst:
    case kForwardLater:
    case kWeightSetting:
    case kWeightAdding:
      return 1;
    case kInputSetting:
    case kInputAdding:
      return again ? 2 : 1;
    default:
      return again ? 3 : 2;
  }
}

void WaitForHost(const Pricer& pricer, const ParallelConfig& layout, int64_t layers,
                 WayCosts& ways) {
  for (size_t way = 0; way < kWayCount; ++way) {
    PieceCost& cost = ways[way];
    const Launches launches = {.passes = LaunchesOf(way, cost) * static_cast<double>(layers),
                               .products = cost.products_of_groups};
    cost.host_s += pricer.HostWait(layout, launches, cost.seconds());
  }
}

}  // namespace

void ChunkCosts::Remember(const PriceSetting& setting, std::unique_ptr<LayersRecording> recording,
                          Layers& layers) const {
  PricedLayers<WayCosts> costs = PriceLayers(setting, *recording);
  layers.spans = {.groups = SpansOfEach(costs.groups),
                  .embedding = SpansOfEach(costs.embedding),
                  .head = SpansOfEach(costs.head)};
  layers.prices = prices_;
  if (remembered_ >= Remembered::kCosts) layers.costs = std::move(costs);
  if (remembered_ == Remembered::kRecordings) layers.recording = std::move(recording);
}

ChunkCosts::PricedLayers<WayCosts> ChunkCosts::PriceLayers(const PriceSetting& setting,
                                                           const LayersRecording& layers) {
  PricedOps ops(setting.pricer);
  PricedWays priced;
  bool embedding = false;
  bool head = false;
  for (size_t way = 0; way < kWayCount; ++way) {
    const std::vector<Recording>& pieces = layers.recording.ways[way];
    priced[way] = PriceEach(pieces, layers.layout, ops);
    for (const Recording& piece : pieces) {
      embedding |= piece.piece.kind == PieceKind::kEmbedding;
      head |= piece.piece.kind == PieceKind::kHead;
    }
  }
  const auto price = [&](PieceKind piece, int64_t first, int64_t count) {
    return CostsOfPieces(piece, first, count, layers.recording, priced);
  };
  PricedLayers<WayCosts> costs;
  if (embedding) costs.embedding.push_back(price(PieceKind::kEmbedding, 0, 1));
  if (head) costs.head.push_back(price(PieceKind::kHead, 0, 1));
  int64_t first = layers.first_layer;
  for (const int64_t& count : layers.groups) {
    const bool neighbour = &count == &layers.groups.front() || &count == &layers.groups.back();
    if (!layers.amid || !neighbour) {
      costs.groups.push_back(price(PieceKind::kLayer, first, count));
      WaitForHost(setting.pricer, layers.layout, count, costs.groups.back());
    }
    first += count;
  }
  return costs;
}

}  // namespace trimtab
