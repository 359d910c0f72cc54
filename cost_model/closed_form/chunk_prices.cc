// What ChunkCosts makes of a recording: the prices of its pieces.
#include <span>
#include <utility>

#include "cost_model/closed_form/chunk_costs.h"

namespace trimtab {
namespace {

WaySpans SpansOf(const WayCosts& costs) {
  WaySpans spans;
  for (size_t way = 0; way < kWayCount; ++way) {
    const PieceCost& cost = costs[way];
    const double tensor_wait_s = cost.message_s[static_cast<size_t>(GroupKind::kTensor)];
    spans[way] = {cost.seconds(), tensor_wait_s, cost.total};
  }
  return spans;
}

std::vector<WaySpans> SpansOfEach(const std::vector<WayCosts>& costs) {
  std::vector<WaySpans> spans;
  for (const WayCosts& each : costs) spans.push_back(SpansOf(each));
  return spans;
}

/// The pieces of each way of a recording, priced.
using PricedWays = std::array<std::vector<PieceCost>, kWayCount>;

/// The pieces of an end of the chunk among those of a recording.
WayCosts CostsOfEnd(PieceKind kind, const MicroBatchRecording& recording,
                    const PricedWays& priced) {
  WayCosts ways;
  for (size_t way = 0; way < kWayCount; ++way) {
    const std::vector<Recording>& pieces = recording.ways[way];
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (pieces[i].piece.kind == kind) ways[way].Append(priced[way][i]);
    }
  }
  return ways;
}

/// Forward passes that launching pieces of a layer, one after the other, counts as: a backward pass
/// launches twice as many ops where it is in one part, and recomputation a forward pass more.
double LaunchesOf(size_t way, std::span<const Recording> pieces, std::span<const PieceCost> costs) {
  if (way == kForwardFirst || way == kForwardLater) return 1;
  bool again = false;
  bool backward = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (costs[i].ops == 0) continue;
    (pieces[i].piece.pass == PassKind::kRecompute ? again : backward) = true;
  }
  const bool whole = way == kBackwardSetting || way == kBackwardAdding;
  return (again ? 1 : 0) + (backward ? (whole ? 2 : 1) : 0);
}

/// Pieces of the layers of a group, in the parts that a chunk is composed of. What a layer does at
/// once waits for the host to launch it.
class GroupParts {
 public:
  GroupParts(const Pricer& pricer, const ParallelConfig& layout,
             const MicroBatchRecording& recording, const PricedWays& priced)
      : pricer_(pricer), layout_(layout), recording_(recording), priced_(priced) {}

  /// `first`: the group's first layer, in the model.
  std::vector<WayCosts> Of(const ShortGroup& group, int64_t first) const {
    std::vector<WayCosts> parts(1);
    for (size_t way = 0; way < kWayCount; ++way) {
      size_t part = 0;
      bool begun = false;
      const std::vector<Recording>& pieces = recording_.ways[way];
      for (size_t i = 0; i < pieces.size();) {
        const size_t begin = i++;
        const PieceRecord& piece = pieces[begin].piece;
        const int64_t layer = piece.layer - first;
        if (piece.kind != PieceKind::kLayer || layer < 0 || layer >= group.layers) continue;
        PieceCost cost = priced_[way][begin];
        for (; i < pieces.size() && pieces[i].piece.kind == piece.kind &&
               pieces[i].piece.layer == piece.layer;
             ++i) {
          cost.Append(priced_[way][i]);
        }
        const Launches launches = {
            .passes = LaunchesOf(way, std::span(pieces).subspan(begin, i - begin),
                                 std::span(priced_[way]).subspan(begin, i - begin)),
            .products = cost.products_of_groups};
        cost.host_s += pricer_.HostWait(layout_, launches, cost.seconds());
        const bool repeated = group.repeated > 0 && layer == group.repeated;
        const bool goes_on = begun && repeated == (part % 2 == 1);
        if (begun && !goes_on) ++part;
        if (part >= parts.size()) parts.resize(part + 1);
        if (goes_on) {
          parts[part][way].Append(cost);
        } else {
          parts[part][way] = std::move(cost);
        }
        begun = true;
      }
    }
    return parts;
  }

 private:
  const Pricer& pricer_;
  const ParallelConfig& layout_;
  const MicroBatchRecording& recording_;
  const PricedWays& priced_;
};

}  // namespace

void ChunkCosts::Remember(const PriceSetting& setting, std::unique_ptr<LayersRecording> recording,
                          Layers& layers) const {
  PricedLayers<WayCosts> costs = PriceLayers(setting, *recording);
  layers.spans = {
      .groups = {}, .embedding = SpansOfEach(costs.embedding), .head = SpansOfEach(costs.head)};
  for (const PricedGroup<WayCosts>& group : costs.groups) {
    layers.spans.groups.push_back({group.layers, SpansOfEach(group.parts)});
  }
  if (recording->amid) layers.begins = BeginsOf(*recording);
  layers.prices = prices_;
  if (remembered_ >= Remembered::kCosts) layers.costs = std::move(costs);
  if (remembered_ == Remembered::kRecordings) layers.recording = std::move(recording);
}

std::array<int64_t, kWayCount> ChunkCosts::BeginsOf(const LayersRecording& layers) {
  const int64_t first = layers.first_layer + layers.groups.front().layers;
  const int64_t end = first + layers.groups[1].layers;
  const auto change = [&](size_t way, bool until_group) {
    int64_t sum = 0;
    for (const Recording& each : layers.recording.ways[way]) {
      const PieceRecord& piece = each.piece;
      const bool of_group =
          piece.kind == PieceKind::kLayer && piece.layer >= first && piece.layer < end;
      if (until_group && of_group) break;
      sum += each.total.change;
    }
    return sum;
  };
  std::array<int64_t, kWayCount> begins{};
  for (const Way way : {kBackwardSetting, kBackwardAdding, kInputSetting, kInputAdding}) {
    begins[way] = change(IsFirst(way) ? kForwardFirst : kForwardLater, false) + change(way, true);
  }
  return begins;
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
  PricedLayers<WayCosts> costs;
  if (embedding) {
    costs.embedding.push_back(CostsOfEnd(PieceKind::kEmbedding, layers.recording, priced));
  }
  if (head) costs.head.push_back(CostsOfEnd(PieceKind::kHead, layers.recording, priced));
  const GroupParts parts(setting.pricer, layers.layout, layers.recording, priced);
  int64_t first = layers.first_layer;
  for (const ShortGroup& group : layers.groups) {
    const bool neighbour = &group == &layers.groups.front() || &group == &layers.groups.back();
    if (!layers.amid || !neighbour) costs.groups.push_back({group.layers, parts.Of(group, first)});
    first += group.layers;
  }
  return costs;
}

}  // namespace trimtab
