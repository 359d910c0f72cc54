#include "cost_model/chunk_costs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"

namespace trimtab {
namespace {

void Append(const WayCosts& next, bool forward, int64_t times, WayCosts& ways) {
  const size_t begin = forward ? kForwardFirst : kBackwardSetting;
  const size_t end = forward ? kBackwardSetting : kWayCount;
  for (size_t way = begin; way < end; ++way) ways[way].Append(next[way], times);
}

/// The pieces of each way of a recording, priced.
using PricedWays = std::array<std::vector<PieceCost>, kWayCount>;

/// The pieces of `kind` (and of layers [first, first + count)) among those of a recording.
WayCosts CostsOf(PieceKind kind, int64_t first, int64_t count, const MicroBatchRecording& recording,
                 const PricedWays& priced) {
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

Pricer PricerOf(const Cluster& cluster, const Mode& mode, Precision precision,
                const MoeConfig& moe) {
  return Pricer(cluster.profile, mode, cluster.ranks_per_node, cluster.cores, precision,
                cluster.stack, moe);
}

/// A schedule with the same passes, if in another order: zero-bubble ones have parts, and GPipe's
/// free sharded weights at other times.
Schedule PassesOf(const ParallelConfig& layout) {
  if (layout.schedule == Schedule::kZeroBubble) return layout.schedule;
  const bool frees = layout.schedule == Schedule::kGpipe && layout.zero == 3;
  return frees ? Schedule::kGpipe : Schedule::k1F1B;
}

}  // namespace

int64_t FirstLayersAlike(const std::vector<int64_t>& first_alike, const ModelChunk& chunk) {
  const auto layers = first_alike.begin() + chunk.first_layer;
  const auto end = layers + chunk.num_layers;
  return std::search(first_alike.begin(), end, layers, end) - first_alike.begin();
}

const PriceSetting& ChunkCosts::SettingOf(const RunConfig& run) {
  const Mode mode = ModeOf(run, cluster_);
  const Precision precision = run.layout.precision;
  for (const PriceSetting& each : settings_) {
    if (each.mode == mode && each.precision == precision && each.fp8 == run.fp8 &&
        each.routing == run.routing) {
      return each;
    }
  }
  settings_.push_back({.number = static_cast<int64_t>(settings_.size()),
                       .mode = mode,
                       .precision = precision,
                       .fp8 = run.fp8,
                       .routing = run.routing,
                       .moe = run.model.moe,
                       .pricer = PricerOf(cluster_, mode, precision, run.model.moe),
                       .executor = ExecutorOf(mode, cluster_),
                       .first_alike = FirstAlike(run)});
  return settings_.back();
}

PackedKey ChunkCosts::ShapeKey(const PriceSetting& setting, const ParallelConfig& layout) {
  // What makes no difference to a micro batch is left out: it would be recorded once for each.
  const bool gradients_sharded = layout.zero >= 2;
  return PackedKey()
      .Put(setting.number, 10)
      .Put(layout.tp, 20)
      .Put(layout.sequence_parallel ? 1 : 0, 1)
      .Put(layout.cp, 20)
      .Put(layout.cp_comm_type)
      .Put(layout.ep, 20)
      .Put(layout.etp, 20)
      .Put(layout.dispatch)
      .Put(layout.tp_overlap_chunks, 7)
      .Put(layout.micro_batch, 24)
      .Put(layout.gradients)
      .Put(PassesOf(layout))
      // Passes talk to the data-parallel ranks from stage 2 on.
      .Put(gradients_sharded ? layout.zero : 0, 2)
      .Put(gradients_sharded ? layout.dp : 0, 20)
      .Put(gradients_sharded ? layout.shard : 0, 20)
      .Put(gradients_sharded && !layout.overlap_grad_reduce ? 1 : 0, 1)
      .Put(layout.reshard_after_forward ? 1 : 0, 1)
      // fp8 copies of what is gathered then are made in the forward pass.
      .Put(TypesOf(layout).fp8 && layout.overlap_param_gather ? 1 : 0, 1);
}

const ChunkCosts::KindCosts& ChunkCosts::KindOf(const PriceSetting& setting, const RunConfig& run,
                                                const ModelChunk& chunk,
                                                const RecomputeGroup& group) {
  const RecordedLayers layers = LayersToRecord(run, chunk, group);
  ModelChunk cut = chunk;
  cut.first_layer += layers.first;
  cut.num_layers = layers.count;
  const RecomputeConfig& plan = layers.recompute;
  const PackedKey key = ShapeKey(setting, run.layout)
                            .Put(chunk.embedding ? 1 : 0, 1)
                            .Put(chunk.head ? 1 : 0, 1)
                            .Put(plan.kind)
                            .Put(plan.method)
                            .Put(plan.modules.bits, kRecomputeModuleCount)
                            .Put(plan.num_layers + 1, 16)
                            .Put(group.first - layers.first, 16)
                            .Put(group.count, 16)
                            .Put(layers.count, 16)
                            .Put(FirstLayersAlike(setting.first_alike, cut), 16);
  auto found = kinds_.find(key);
  if (found == kinds_.end()) {
    RunConfig alone = run;
    alone.layout.recompute = plan;
    KindRecording kind;
    kind.layout = run.layout;
    kind.first_layer = chunk.first_layer + group.first;
    kind.layers = group.count;
    kind.recording = RecordMicroBatch(alone, cut, setting.executor);
    kind.prices = prices_;
    kind.costs = PriceKind(setting, kind);
    if (!keep_) kind.recording = {};
    found = kinds_.emplace(key, std::move(kind)).first;
  }
  KindRecording& kind = found->second;
  if (kind.prices != prices_) {
    kind.costs = PriceKind(setting, kind);
    kind.prices = prices_;
  }
  return kind.costs;
}

ChunkCosts::KindCosts ChunkCosts::PriceKind(const PriceSetting& setting,
                                            const KindRecording& kind) {
  PricedWays priced;
  for (size_t way = 0; way < kWayCount; ++way) {
    priced[way] = PriceEach(kind.recording.ways[way], kind.layout, setting.pricer);
  }
  const auto price = [&](PieceKind piece, int64_t first, int64_t count) {
    return CostsOf(piece, first, count, kind.recording, priced);
  };
  KindCosts costs = {.embedding = price(PieceKind::kEmbedding, 0, 1),
                     .group = price(PieceKind::kLayer, kind.first_layer, kind.layers),
                     .head = price(PieceKind::kHead, 0, 1)};
  WaitForHost(setting.pricer, kind.layout, kind.layers, costs.group);
  return costs;
}

void ChunkCosts::SetPrices(const Cluster& cluster) {
  TRIMTAB_ASSERT(keep_, "only what was kept can be priced again");
  cluster_ = cluster;
  for (PriceSetting& setting : settings_) {
    setting.pricer = PricerOf(cluster_, setting.mode, setting.precision, setting.moe);
  }
  ++prices_;
}

WayCosts ChunkCosts::Compose(const PriceSetting& setting, const RunConfig& run,
                             const ModelChunk& chunk) {
  /// Neighbouring groups that cost alike.
  struct Groups {
    const KindCosts* kind = nullptr;
    int64_t count = 0;
  };
  std::vector<Groups> groups;
  for (int64_t i = 0; i < chunk.num_layers;) {
    const RecomputeGroup group = RecomputeGroupOf(run.layout.recompute[0], i, chunk.num_layers);
    i += group.count;
    const KindCosts& kind = KindOf(setting, run, chunk, group);
    if (groups.empty() || groups.back().kind != &kind) groups.push_back({&kind, 0});
    ++groups.back().count;
  }
  const KindCosts* none = groups.empty() ? &KindOf(setting, run, chunk, {.count = 0}) : nullptr;
  const WayCosts& embedding = (none != nullptr ? none : groups.front().kind)->embedding;
  const WayCosts& head = (none != nullptr ? none : groups.back().kind)->head;
  WayCosts ways;
  for (const bool forward : {true, false}) {
    const bool first = forward ? chunk.embedding : chunk.head;
    const bool last = forward ? chunk.head : chunk.embedding;
    if (first) Append(forward ? embedding : head, forward, 1, ways);
    for (const Groups& each : groups) Append(each.kind->group, forward, each.count, ways);
    if (last) Append(forward ? head : embedding, forward, 1, ways);
    std::reverse(groups.begin(), groups.end());
  }
  return ways;
}

const WayCosts& ChunkCosts::Of(const PriceSetting& setting, const RunConfig& run,
                               const ModelChunk& chunk) {
  const RecomputeConfig& recompute = run.layout.recompute[0];
  const PackedKey key = ShapeKey(setting, run.layout)
                            .Put(recompute.kind)
                            .Put(recompute.method)
                            .Put(recompute.modules.bits, kRecomputeModuleCount)
                            .Put(recompute.num_layers + 1, 20)
                            .Put(chunk.embedding ? 1 : 0, 1)
                            .Put(chunk.head ? 1 : 0, 1)
                            .Put(chunk.num_layers, 20)
                            .Put(FirstLayersAlike(setting.first_alike, chunk), 20);
  const auto [found, is_new] = chunks_.try_emplace(key);
  PricedChunk& priced = found->second;
  if (is_new || priced.prices != prices_) {
    priced = {.ways = Compose(setting, run, chunk), .prices = prices_};
  }
  return priced.ways;
}

int64_t ChunkCosts::IdBytes(const PriceSetting& setting, const RunConfig& run,
                            const ModelChunk& chunk, int64_t in_flight) {
  const PackedKey key = ShapeKey(setting, run.layout)
                            .Put(run.layout.recompute[0].modules.bits, kRecomputeModuleCount)
                            .Put(chunk.embedding ? 1 : 0, 1)
                            .Put(chunk.head ? 1 : 0, 1)
                            .Put(in_flight, 40);
  const auto found = id_bytes_.find(key);
  if (found != id_bytes_.end()) return found->second;
  return id_bytes_.emplace(key, RecordIds(run, chunk, in_flight, setting.executor)).first->second;
}

const MessageRecording& ChunkCosts::Messages(const PriceSetting& setting, const RunConfig& run) {
  const PackedKey key = ShapeKey(setting, run.layout).Put(run.layout.pp, 20);
  const auto found = messages_.find(key);
  if (found != messages_.end()) return found->second;
  return messages_.emplace(key, RecordMessages(run, setting.executor)).first->second;
}

}  // namespace trimtab
