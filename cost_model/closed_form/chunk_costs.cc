#include "cost_model/closed_form/chunk_costs.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/comm/process_groups.h"

namespace trimtab {
namespace {

template <typename Ways>
void Append(const Ways& next, bool forward, int64_t times, Ways& ways) {
  const size_t begin = forward ? kForwardFirst : kBackwardSetting;
  const size_t end = forward ? kBackwardSetting : kWayCount;
  for (size_t way = begin; way < end; ++way) ways[way].Append(next[way], times);
}

/// The longest stretch of neighbouring layers that are alike.
LayerRange LongestStretch(const std::vector<int64_t>& first_alike) {
  LayerRange longest = {0, 0};
  LayerRange stretch = {0, 0};
  for (size_t layer = 0; layer < first_alike.size(); ++layer) {
    const bool goes_on = layer > 0 && first_alike[layer] == first_alike[layer - 1];
    if (!goes_on) stretch = {static_cast<int64_t>(layer), 0};
    ++stretch.count;
    if (stretch.count > longest.count) longest = stretch;
  }
  return longest;
}

/// Whether `count` layers from `first` on are, one by one, like those from `other` on.
bool AreAlike(const PriceSetting& setting, int64_t first, int64_t other, int64_t count) {
  const auto layers = setting.first_alike.begin();
  return setting.alike || std::equal(layers + first, layers + first + count, layers + other);
}

/// A schedule with the same passes, if in another order: zero-bubble ones have parts, and GPipe's
/// free sharded weights at other times.
Schedule PassesOf(const ParallelConfig& layout) {
  if (layout.schedule == Schedule::kZeroBubble) return layout.schedule;
  const bool frees = layout.schedule == Schedule::kGpipe && layout.zero == 3;
  return frees ? Schedule::kGpipe : Schedule::k1F1B;
}

/// What passes see of the shards of a grid: the ranks that share a replica, and whether there are
/// several, for then their group has another name.
void PutShards(const ParallelConfig& layout, GroupKind all, GroupKind within, GroupKind across,
               PackedKey& key) {
  const bool several = PlaceInGroup(layout, across, 0).size > 1;
  key.Put(PlaceInGroup(layout, several ? within : all, 0).size, 20).Put(several ? 1 : 0, 1);
}

/// The run's layout, but for how experts lie where the chunk has none.
ParallelConfig LayoutThatMatters(const RunConfig& run, const ModelChunk& chunk) {
  ParallelConfig layout = run.layout;
  const MoeConfig& moe = run.model.moe;
  if (moe.moe_layers(chunk.first_layer + chunk.num_layers) == moe.moe_layers(chunk.first_layer)) {
    const ParallelConfig none;
    layout.ep = none.ep;
    layout.etp = none.etp;
    layout.dispatch = none.dispatch;
  }
  return layout;
}

}  // namespace

void WaySpan::Append(const WaySpan& next, int64_t times) {
  seconds += static_cast<double>(times) * next.seconds;
  tensor_wait_s += static_cast<double>(times) * next.tensor_wait_s;
  total = total.Then(next.total.Times(times));
}

const PriceSetting& ChunkCosts::SettingOf(const RunConfig& run, const PriceSetting* last) {
  const Mode mode = ModeOf(run, cluster_);
  const Precision precision = run.layout.numerics.precision;
  const auto fits = [&](const PriceSetting& setting) {
    return setting.mode == mode && setting.precision == precision && setting.fp8 == run.fp8 &&
           setting.routing == run.routing && setting.packing == run.packing &&
           setting.frozen == run.frozen && setting.groups == run.optimizer.groups;
  };
  if (last != nullptr && fits(*last)) return *last;
  const MutexLock lock(settings_mutex_);
  const auto known = std::find_if(settings_.begin(), settings_.end(), fits);
  if (known != settings_.end()) return *known;
  settings_.push_back({.number = static_cast<int64_t>(settings_.size()),
                       .mode = mode,
                       .precision = precision,
                       .fp8 = run.fp8,
                       .routing = run.routing,
                       .packing = run.packing,
                       .moe = run.model.moe,
                       .frozen = run.frozen,
                       .groups = run.optimizer.groups,
                       .pricer = PricerOf(cluster_, mode, precision, run.model.moe),
                       .executor = ExecutorOf(mode, cluster_),
                       .first_alike = FirstAlike(run)});
  PriceSetting& setting = settings_.back();
  setting.alike = std::all_of(setting.first_alike.begin(), setting.first_alike.end(),
                              [](int64_t first) { return first == 0; });
  setting.stretch = LongestStretch(setting.first_alike);
  return setting;
}

void ChunkCosts::ForgetIfMany() {
  constexpr size_t kMany = size_t{1} << 11;
  if (layers_.size() > kMany) layers_.Clear();
  if (chunks_.size() > kMany) chunks_.Clear();
}

PackedKey ChunkCosts::ShapeKey(const PriceSetting& setting, const ParallelConfig& layout,
                               bool later) {
  // What makes no difference to a micro batch is left out: it would be recorded once for each.
  const bool gradients_sharded = layout.zero >= 2;
  PackedKey key;
  key.Put(setting.number, 10)
      .Put(layout.tp, 20)
      .Put(layout.sequence_parallel ? 1 : 0, 1)
      .Put(layout.cp, 20)
      .Put(layout.cp_comm_type)
      .Put(layout.ep, 20)
      .Put(layout.etp, 20)
      .Put(layout.dispatch)
      .Put(layout.tp_overlap_chunks, 7)
      .Put(layout.micro_batch, 24)
      .Put(layout.numerics.gradients)
      .Put(PassesOf(layout))
      .Put(later ? 1 : 0, 1)
      // Passes talk to the data-parallel ranks from stage 2 on.
      .Put(gradients_sharded ? layout.zero : 0, 2)
      .Put(gradients_sharded && !layout.overlap_grad_reduce ? 1 : 0, 1)
      .Put(layout.reshard_after_forward ? 1 : 0, 1)
      // fp8 copies of what is gathered then are made in the forward pass.
      .Put(TypesOf(layout.numerics).fp8 && layout.overlap_param_gather ? 1 : 0, 1)
      // Gathered weights that stay: in a pipeline from step to step.
      .Put(layout.zero == 3 && layout.pp > 1 ? 1 : 0, 1);
  if (gradients_sharded) {
    PutShards(layout, GroupKind::kData, GroupKind::kShard, GroupKind::kReplica, key);
    if (setting.moe.used()) {
      PutShards(layout, GroupKind::kExpertData, GroupKind::kExpertShard, GroupKind::kExpertReplica,
                key);
    }
  }
  return key;
}

PackedKey ChunkCosts::ShapeKey(const PriceSetting& setting, const ParallelConfig& layout,
                               bool later, const RecomputeConfig& plan) {
  return ShapeKey(setting, layout, later)
      .Put(plan.kind)
      .Put(plan.method)
      .Put(plan.modules.bits, kRecomputeModuleCount)
      .Put(plan.num_layers + 1, 20);
}

const ChunkCosts::Layers& ChunkCosts::LayersOf(const PriceSetting& setting, const RunConfig& run,
                                               const ModelChunk& chunk,
                                               const RecordedLayers& layers, bool later) {
  later = later && HasLaterPasses(run.layout, run.num_micro_batches());
  ModelChunk cut = chunk;
  cut.first_layer += layers.first;
  cut.num_layers = layers.count;
  cut.embedding = layers.embedding;
  cut.head = layers.head;
  const ShortChunk shown = Shorten(cut, layers.recompute, setting.first_alike);
  const RecomputeConfig& plan = shown.plan;
  const ParallelConfig layout = LayoutThatMatters(run, cut);
  const PackedKey key = ShapeKey(setting, layout, later, plan)
                            .Put(cut.embedding ? 1 : 0, 1)
                            .Put(cut.head ? 1 : 0, 1)
                            .Put(shown.chunk.num_layers, 16)
                            .Put(FirstLayersAlike(setting.first_alike, shown.chunk), 16);
  Layers& remembered = layers_.Get(key, [&] {
    RunConfig alone = run;
    alone.layout = layout;
    alone.layout.recompute = plan;
    auto recorded = std::make_unique<LayersRecording>();
    recorded->layout = layout;
    recorded->first_layer = cut.first_layer;
    recorded->groups = GroupsOf(shown.chunk, plan, setting.first_alike);
    recorded->amid = layers.amid;
    recorded->recording = RecordMicroBatch(alone, shown.chunk, setting.executor, later);
    Layers made;
    Remember(setting, std::move(recorded), made);
    return made;
  });
  if (remembered.prices != prices_) {
    Remember(setting, std::move(remembered.recording), remembered);
  }
  return remembered;
}

void ChunkCosts::SetPrices(const Cluster& cluster) {
  TRIMTAB_ASSERT(remembered_ == Remembered::kRecordings, "only recordings can be priced again");
  cluster_ = cluster;
  const MutexLock lock(settings_mutex_);
  for (PriceSetting& setting : settings_) {
    setting.pricer = PricerOf(cluster_, setting.mode, setting.precision, setting.moe);
  }
  ++prices_;
}

template <typename Ways>
Ways ChunkCosts::Compose(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk,
                         PricedLayers<Ways> Layers::*part, bool later) {
  /// Neighbouring groups that cost alike.
  struct Groups {
    const PricedGroup<Ways>* priced = nullptr;
    int64_t layers = 1;  // of each
    int64_t count = 0;
  };
  std::vector<Groups> groups;
  const PricedLayers<Ways>* first_costs = nullptr;
  const PricedLayers<Ways>* costs = nullptr;
  RecordedLayers before;
  for (int64_t i = 0; i < chunk.num_layers;) {
    const RecomputeGroup group = RecomputeGroupOf(run.layout.recompute[0], i, chunk.num_layers);
    i += group.count;
    const RecordedLayers layers = LayersToRecord(run, chunk, group);
    const bool same = costs != nullptr && layers.ShowsAlike(before) &&
                      AreAlike(setting, chunk.first_layer + layers.first,
                               chunk.first_layer + before.first, layers.count);
    if (!same) costs = &(LayersOf(setting, run, chunk, layers, later).*part);
    if (first_costs == nullptr) first_costs = costs;
    before = layers;
    size_t within = 0;  // of the groups that the recording shows
    for (int64_t first = layers.first; first < group.first && !layers.amid; ++within) {
      first += RecomputeGroupOf(layers.recompute, first - layers.first, layers.count).count;
    }
    const PricedGroup<Ways>* priced = &costs->groups[within];
    const bool like_last =
        !groups.empty() && groups.back().priced == priced && groups.back().layers == group.count;
    if (!like_last) groups.push_back({priced, group.count, 0});
    ++groups.back().count;
  }
  const bool apart = !MovesForNext(run.layout) || chunk.num_layers == 0;
  if (apart && (chunk.embedding || chunk.head)) {
    costs = &(LayersOf(setting, run, chunk, EndsToRecord(run, chunk), later).*part);
    first_costs = costs;
  }
  const std::vector<Ways> none;
  const std::vector<Ways>& embedding = chunk.embedding ? first_costs->embedding : none;
  const std::vector<Ways>& head = chunk.head ? costs->head : none;
  Ways ways;
  for (const bool forward : {true, false}) {
    const std::vector<Ways>& first = forward ? embedding : head;
    const std::vector<Ways>& last = forward ? head : embedding;
    for (const Ways& each : first) Append(each, forward, 1, ways);
    for (const Groups& each : groups) {
      const std::vector<Ways>& parts = each.priced->parts;
      const int64_t further = each.layers - each.priced->layers;
      if (parts.size() == 1) Append(parts.front(), forward, each.count, ways);
      for (int64_t i = 0; i < each.count && parts.size() > 1; ++i) {
        for (size_t j = 0; j < parts.size(); ++j) {
          Append(parts[j], forward, j % 2 == 0 ? 1 : 1 + further, ways);
        }
      }
    }
    for (const Ways& each : last) Append(each, forward, 1, ways);
    std::reverse(groups.begin(), groups.end());
  }
  return ways;
}

const WayCosts& ChunkCosts::Of(const PriceSetting& setting, const RunConfig& run,
                               const ModelChunk& chunk) {
  const PackedKey key =
      ShapeKey(setting, run.layout, HasLaterPasses(run.layout, run.num_micro_batches()),
               run.layout.recompute[0])
          .Put(chunk.embedding ? 1 : 0, 1)
          .Put(chunk.head ? 1 : 0, 1)
          .Put(chunk.num_layers, 20)
          .Put(FirstLayersAlike(setting.first_alike, chunk), 20);
  const auto compose = [&] {
    return PricedChunk{.ways = Compose(setting, run, chunk, &Layers::costs), .prices = prices_};
  };
  PricedChunk& priced = chunks_.Get(key, compose);
  if (priced.prices != prices_) priced = compose();
  return priced.ways;
}

WaySpans ChunkCosts::SpansOf(const PriceSetting& setting, const RunConfig& run,
                             const ModelChunk& chunk, bool later) {
  return Compose(setting, run, chunk, &Layers::spans, later);
}

InnerSpans ChunkCosts::SpansOfLayer(const PriceSetting& setting, const RunConfig& run, bool later) {
  const RecomputeConfig& plan = run.layout.recompute[0];
  const int64_t together = RecomputeGroupOf(plan, 0, setting.stretch.count).count;
  const ModelChunk three = {setting.stretch.first, 3 * together, /*embedding=*/false,
                            /*head=*/false};
  TRIMTAB_ASSERT(three.num_layers <= setting.stretch.count, "{} like layers",
                 setting.stretch.count);
  const RecomputeGroup middle = RecomputeGroupOf(plan, together, three.num_layers);
  const RecordedLayers layers = LayersToRecord(run, three, middle);
  const Layers& recorded = LayersOf(setting, run, three, layers, later);
  const PricedGroup<WaySpans>& group = recorded.spans.groups.front();
  if (together == 1) return {group.parts.front(), recorded.begins};
  TRIMTAB_ASSERT(group.parts.size() > 1, "no layer stands within a group of {}", together);
  InnerSpans within;
  for (size_t part = 1; part < group.parts.size(); part += 2) {
    for (size_t way = 0; way < kWayCount; ++way) within.ways[way].Append(group.parts[part][way]);
  }
  return within;
}

int64_t ChunkCosts::IdBytes(const PriceSetting& setting, const RunConfig& run,
                            const ModelChunk& chunk, int64_t in_flight) {
  const PackedKey key = ShapeKey(setting, run.layout, /*later=*/true)
                            .Put(run.layout.recompute[0].modules.bits, kRecomputeModuleCount)
                            .Put(chunk.embedding ? 1 : 0, 1)
                            .Put(chunk.head ? 1 : 0, 1)
                            .Put(in_flight, 40);
  return id_bytes_.Get(key, [&] { return RecordIds(run, chunk, in_flight, setting.executor); });
}

const MessageRecording& ChunkCosts::Messages(const PriceSetting& setting, const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  const PackedKey key = PackedKey()
                            .Put(setting.number, 10)
                            .Put(layout.tp, 20)
                            .Put(layout.sequence_parallel ? 1 : 0, 1)
                            .Put(layout.cp, 20)
                            .Put(layout.micro_batch, 24)
                            .Put(layout.pp, 20);
  return messages_.Get(key, [&] { return RecordMessages(run, setting.executor); });
}

}  // namespace trimtab
