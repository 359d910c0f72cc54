#include "cost_model/stage_costs.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "cost_model/price.h"
#include "cost_model/recording.h"
#include "engine/base/error.h"
#include "engine/schedule/pipeline.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

/// Small numbers packed into a few words; one too large for its field is refused.
class Key {
 public:
  Key& Put(int64_t value, int bits) {
    TRIMTAB_ASSERT(value >= 0 && value < (int64_t{1} << bits), "{} does not fit {} bits", value,
                   bits);
    if (used_ + bits > kWordBits) {
      ++word_;
      used_ = 0;
    }
    words_[word_] = (words_[word_] << bits) | static_cast<uint64_t>(value);
    used_ += bits;
    return *this;
  }
  template <typename Enum>
  Key& Put(Enum value) {
    return Put(static_cast<int64_t>(value), 3);
  }
  bool operator==(const Key& other) const { return words_ == other.words_; }

  struct Hash {
    size_t operator()(const Key& key) const {
      uint64_t hash = 0;
      for (const uint64_t word : key.words_) {
        hash = (hash ^ word) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 32;
      }
      return hash;
    }
  };

 private:
  static constexpr int kWordBits = 62;

  std::array<uint64_t, 4> words_{};
  size_t word_ = 0;
  int used_ = 0;
};

using Ways = std::array<PieceCost, kWayCount>;

void Append(const Ways& next, bool forward, int64_t times, Ways& ways) {
  if (forward) return ways[kForwardWay].Append(next[kForwardWay], times);
  for (size_t way = kForwardWay + 1; way < kWayCount; ++way) ways[way].Append(next[way], times);
}

/// A micro batch of a chunk whose groups of layers are alike; what it has no end of costs nothing.
struct KindCosts {
  Ways embedding;
  std::vector<Ways> groups;
  Ways head;

  /// Of layers from `first` on, up to `end`, of `num_layers`: the first and the last group of a
  /// chunk stand for theirs.
  const Ways& Group(int64_t first, int64_t end, int64_t num_layers) const {
    const size_t last = groups.size() - 1;
    if (first == 0) return groups.front();
    return end == num_layers ? groups[last] : groups[std::min<size_t>(1, last)];
  }
};

/// The first layer from which on the model is like the layers of `chunk`, but for recomputation;
/// `first_alike` as FirstAlike says.
int64_t FirstLayersAlike(const std::vector<int64_t>& first_alike, const ModelChunk& chunk) {
  const auto layers = first_alike.begin() + chunk.first_layer;
  const auto end = layers + chunk.num_layers;
  return std::search(first_alike.begin(), end, layers, end) - first_alike.begin();
}

/// The pieces of `kind` (and of layers [first, first + count)) among those of a recording, priced.
Ways PriceOf(PieceKind kind, int64_t first, int64_t count, const MicroBatchRecording& recording,
             const ParallelConfig& layout, const Pricer& pricer) {
  const auto is_kind = [=](const Recording& each) {
    return each.piece.kind == kind && each.piece.layer >= first && each.piece.layer < first + count;
  };
  Ways ways;
  for (size_t way = 0; way < kWayCount; ++way) {
    const std::vector<Recording>& pieces = recording.ways[way];
    const auto begin = std::find_if(pieces.begin(), pieces.end(), is_kind);
    const auto end = std::find_if_not(begin, pieces.end(), is_kind);
    ways[way] = trimtab::PriceOf(std::span(begin, end), layout, pricer);
  }
  return ways;
}

/// Memory in use on the way through a program.
struct MemoryWalk {
  int64_t now = 0;
  int64_t peak = 0;

  void Pass(const MemorySpan& span) {
    peak = std::max(peak, now + span.peak);
    now += span.change;
  }
  void Take(int64_t bytes) { Pass({bytes, bytes}); }
  void Give(int64_t bytes) { now -= bytes; }
};

/// Which way an action of a program goes through its chunk.
Way WayOf(const Action& action) {
  const bool sets = action.micro_batch == 0;
  switch (action.kind) {
    case ActionKind::kForward:
      return kForwardWay;
    case ActionKind::kBackwardInput:
      return sets ? kInputSetting : kInputAdding;
    case ActionKind::kBackwardWeight:
      return sets ? kWeightSetting : kWeightAdding;
    default:
      return sets ? kBackwardSetting : kBackwardAdding;
  }
}

/// Follows the memory of a stage: what its passes take and keep, received messages from when they
/// are asked for, and sent ones until they have been waited for (see Action).
void FollowMemory(const StageProgram& program, const std::vector<Ways>& chunks,
                  const MessageRecording& messages, MemoryWalk& total, MemoryWalk& activations) {
  int64_t sent_total = 0;
  int64_t sent_activations = 0;
  for (const Action& action : program) {
    switch (action.kind) {
      case ActionKind::kRecvActivation:
        total.Take(messages.activation.bytes);
        activations.Take(messages.activation.bytes);
        break;
      case ActionKind::kRecvGradient:
        total.Take(messages.gradient.bytes);
        break;
      case ActionKind::kSendActivation:
        sent_total += messages.activation.bytes;
        sent_activations += messages.activation.bytes;
        break;
      case ActionKind::kSendGradient:
        sent_total += messages.gradient.bytes;
        break;
      default: {
        const PieceCost& pass = chunks[static_cast<size_t>(action.chunk)][WayOf(action)];
        total.Pass(pass.total);
        activations.Pass(pass.activations);
        total.Give(std::exchange(sent_total, 0));
        activations.Give(std::exchange(sent_activations, 0));
      }
    }
  }
}

std::vector<MessageCount> CountMessages(const StageProgram& program,
                                        const MessageRecording& messages) {
  std::vector<MessageCount> counts = {{CollectiveKind::kSend, GroupKind::kPipeline},
                                      {CollectiveKind::kRecv, GroupKind::kPipeline}};
  for (const Action& action : program) {
    if (IsCompute(action.kind)) continue;
    const bool activation =
        action.kind == ActionKind::kSendActivation || action.kind == ActionKind::kRecvActivation;
    MessageCount& count = counts[IsSend(action.kind) ? 0 : 1];
    ++count.count;
    count.bytes += (activation ? messages.activation : messages.gradient).bytes;
  }
  return counts;
}

bool SequenceParallel(const ParallelConfig& layout) {
  return layout.sequence_parallel && layout.tp > 1;
}

}  // namespace

class StepCosts::Impl {
 public:
  Impl(const ModelConfig& model, int64_t sequence_length, const Cluster& cluster)
      : model_(model), sequence_(sequence_length), cluster_(cluster) {}

  StepView Of(const RunConfig& run);

 private:
  /// What runs of one mode, precision and fp8 configuration share.
  struct Setting {
    Mode mode;
    Precision precision = Precision::kFp32;
    Fp8Config fp8;
    Pricer pricer;
    Executor executor;
    std::vector<int64_t> first_alike;
  };

  size_t SettingOf(const RunConfig& run);
  /// A list of layers per chunk as a number; 0 stands for none.
  int64_t NumberOf(const StageLayers& stages);
  /// The key of what a micro batch costs, but for recomputation.
  Key ShapeKey(size_t setting, const ParallelConfig& layout) const;
  Key PipelineKey(size_t setting, const RunConfig& run);

  /// A group of layers of a chunk, counted from the chunk's first, among others that are like it,
  /// with the chunk's ends.
  const KindCosts& KindOf(size_t setting, const RunConfig& run, const ModelChunk& chunk,
                          const RecomputeGroup& group);
  Ways ChunkOf(size_t setting, const RunConfig& run, const ModelChunk& chunk);
  const std::vector<StageCosts>& StagesOf(size_t setting, const RunConfig& run);
  const std::vector<EndCosts>& EndsOf(size_t setting, const RunConfig& run);

  ModelConfig model_;
  int64_t sequence_;
  Cluster cluster_;
  std::vector<Setting> settings_;
  std::vector<StageLayers> stage_layers_;
  std::unordered_map<Key, KindCosts, Key::Hash> kinds_;
  std::unordered_map<Key, std::vector<StageCosts>, Key::Hash> stages_;
  std::unordered_map<Key, std::vector<EndCosts>, Key::Hash> ends_;
};

size_t StepCosts::Impl::SettingOf(const RunConfig& run) {
  const Mode mode = ModeOf(run, cluster_);
  const Precision precision = run.layout.precision;
  for (size_t i = 0; i < settings_.size(); ++i) {
    const Setting& each = settings_[i];
    if (each.mode == mode && each.precision == precision && each.fp8 == run.fp8) return i;
  }
  settings_.push_back(
      {.mode = mode,
       .precision = precision,
       .fp8 = run.fp8,
       .pricer = Pricer(cluster_.profile, mode, cluster_.ranks_per_node, cluster_.cores, precision),
       .executor = ExecutorOf(mode, cluster_),
       .first_alike = FirstAlike(run)});
  return settings_.size() - 1;
}

int64_t StepCosts::Impl::NumberOf(const StageLayers& stages) {
  if (stages.empty()) return 0;
  auto found = std::find(stage_layers_.begin(), stage_layers_.end(), stages);
  if (found == stage_layers_.end()) found = stage_layers_.insert(stage_layers_.end(), stages);
  return found - stage_layers_.begin() + 1;
}

Key StepCosts::Impl::ShapeKey(size_t setting, const ParallelConfig& layout) const {
  return Key()
      .Put(static_cast<int64_t>(setting), 10)
      .Put(layout.tp, 20)
      .Put(SequenceParallel(layout) ? 1 : 0, 1)
      .Put(layout.micro_batch, 24)
      .Put(layout.gradients)
      .Put(layout.schedule)
      // Passes talk to the data-parallel ranks from stage 2 on.
      .Put(layout.zero >= 2 ? layout.zero : 0, 2)
      .Put(layout.zero >= 2 ? layout.dp : 0, 20)
      .Put(layout.reshard_after_forward ? 1 : 0, 1);
}

Key StepCosts::Impl::PipelineKey(size_t setting, const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  const RecomputeConfig& recompute = layout.recompute;
  // Without a pipeline all micro batches but the first are alike.
  const int64_t micro_batches = run.num_micro_batches();
  return ShapeKey(setting, layout)
      .Put(recompute.kind)
      .Put(recompute.method)
      .Put(recompute.modules.bits, kRecomputeModuleCount)
      .Put(recompute.num_layers + 1, 20)
      .Put(micro_batches, 40)
      .Put(layout.pp, 20)
      .Put(layout.vp, 20)
      .Put(NumberOf(layout.stages), 20);
}

const KindCosts& StepCosts::Impl::KindOf(size_t setting, const RunConfig& run,
                                         const ModelChunk& chunk, const RecomputeGroup& group) {
  const Setting& shared = settings_[setting];
  const int64_t groups = RecordedGroups(run, chunk, group);
  ModelChunk cut = chunk;
  cut.first_layer += group.first;
  cut.num_layers = group.count;
  const Key key = ShapeKey(setting, run.layout)
                      .Put(chunk.embedding ? 1 : 0, 1)
                      .Put(chunk.head ? 1 : 0, 1)
                      .Put(run.layout.recompute.modules.bits, kRecomputeModuleCount)
                      .Put(group.recomputed ? 1 : 0, 1)
                      .Put(groups, 2)
                      .Put(group.count, 20)
                      .Put(FirstLayersAlike(shared.first_alike, cut), 20);
  const auto found = kinds_.find(key);
  if (found != kinds_.end()) return found->second;
  const MicroBatchRecording recording = RecordMicroBatch(
      Repeated(run, cut, group, groups),
      {.num_layers = groups * group.count, .embedding = chunk.embedding, .head = chunk.head},
      shared.executor);
  const auto price = [&](PieceKind kind, int64_t first, int64_t count) {
    return PriceOf(kind, first, count, recording, run.layout, shared.pricer);
  };
  KindCosts costs = {.embedding = price(PieceKind::kEmbedding, 0, 1),
                     .groups = {},
                     .head = price(PieceKind::kHead, 0, 1)};
  for (int64_t i = 0; i < groups; ++i) {
    costs.groups.push_back(price(PieceKind::kLayer, i * group.count, group.count));
  }
  return kinds_.emplace(key, std::move(costs)).first->second;
}

Ways StepCosts::Impl::ChunkOf(size_t setting, const RunConfig& run, const ModelChunk& chunk) {
  /// Neighbouring groups that cost alike.
  struct Groups {
    const Ways* ways = nullptr;
    int64_t count = 0;
  };
  std::vector<Groups> groups;
  const KindCosts* any = nullptr;
  for (int64_t i = 0; i < chunk.num_layers;) {
    const RecomputeGroup group = RecomputeGroupOf(run.layout.recompute, i, chunk.num_layers);
    i += group.count;
    any = &KindOf(setting, run, chunk, group);
    const Ways& like = any->Group(group.first, i, chunk.num_layers);
    if (groups.empty() || groups.back().ways != &like) groups.push_back({&like, 0});
    ++groups.back().count;
  }
  const KindCosts& ends = any != nullptr ? *any : KindOf(setting, run, chunk, {.count = 0});
  Ways ways;
  for (const bool forward : {true, false}) {
    const bool first = forward ? chunk.embedding : chunk.head;
    const bool last = forward ? chunk.head : chunk.embedding;
    if (first) Append(forward ? ends.embedding : ends.head, forward, 1, ways);
    for (const Groups& each : groups) Append(*each.ways, forward, each.count, ways);
    if (last) Append(forward ? ends.head : ends.embedding, forward, 1, ways);
    std::reverse(groups.begin(), groups.end());
  }
  return ways;
}

const std::vector<StageCosts>& StepCosts::Impl::StagesOf(size_t setting, const RunConfig& run) {
  const Key key = PipelineKey(setting, run);
  const auto found = stages_.find(key);
  if (found != stages_.end()) return found->second;
  const ParallelConfig& layout = run.layout;
  const Setting& shared = settings_[setting];
  const int64_t micro_batches = run.num_micro_batches();
  const bool pipeline = layout.pp > 1;
  const PipelineShape shape = {layout.pp, layout.vp,
                               pipeline ? micro_batches : std::min<int64_t>(micro_batches, 2)};
  const std::vector<StageProgram> programs = PlanPipeline(layout.schedule, shape);
  const MessageRecording messages =
      pipeline ? RecordMessages(run, shared.executor) : MessageRecording{};

  std::vector<StageCosts> stages;
  for (int64_t pp_rank = 0; pp_rank < layout.pp; ++pp_rank) {
    const StageProgram& program = programs[static_cast<size_t>(pp_rank)];
    StageCosts& stage = stages.emplace_back();
    std::vector<Ways> chunks;
    MemoryWalk total;
    MemoryWalk activations;
    for (const ModelChunk& chunk : ChunksOf(run, pp_rank)) {
      const auto number = static_cast<int64_t>(chunks.size());
      const Ways& ways = chunks.emplace_back(ChunkOf(setting, run, chunk));
      for (size_t way = 0; way < kWayCount; ++way) {
        const bool once = way == kBackwardSetting || way == kInputSetting || way == kWeightSetting;
        int64_t times = once ? 1 : micro_batches - 1;
        if (way == kForwardWay) times = micro_batches;
        if (times > 0) stage.passes.Append(ways[way], times);
      }
      stage.times.forward += ways[kForwardWay].seconds();
      stage.times.backward_input += ways[kBackwardAdding].seconds() + ways[kInputAdding].seconds();
      stage.times.backward_weight += ways[kWeightAdding].seconds();
      const int64_t ids =
          RecordIds(run, chunk, MicroBatchesInFlight(program, number), shared.executor);
      total.Take(ids);
      activations.Take(ids);
    }
    stage.messages = CountMessages(program, messages);
    if (pipeline) {
      for (const CommRecord& message : {messages.activation, messages.gradient}) {
        stage.message_s = std::max(stage.message_s,
                                   shared.pricer.Seconds(message, StrideOf(message.group, layout)));
      }
    }
    FollowMemory(program, chunks, messages, total, activations);
    stage.total_peak = total.peak;
    stage.activations_peak = activations.peak;
  }
  return stages_.emplace(key, std::move(stages)).first->second;
}

const std::vector<EndCosts>& StepCosts::Impl::EndsOf(size_t setting, const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  const Setting& shared = settings_[setting];
  const bool fp8 = TypesOf(layout).fp8;
  Key key = Key()
                .Put(static_cast<int64_t>(setting), 10)
                .Put(layout.tp, 20)
                .Put(layout.dp, 20)
                .Put(SequenceParallel(layout) ? 1 : 0, 1)
                .Put(layout.zero, 2)
                .Put(layout.master)
                .Put(layout.moments)
                .Put(layout.gradients)
                .Put(layout.pp, 20)
                .Put(layout.vp, 20)
                .Put(NumberOf(layout.stages), 20);
  // fp8 has scales for each micro batch in flight.
  if (fp8) key.Put(layout.schedule).Put(run.num_micro_batches(), 40);
  const auto found = ends_.find(key);
  if (found != ends_.end()) return found->second;
  RunConfig shorter = run;
  if (!fp8) shorter.global_batch = layout.micro_batch * layout.dp * layout.pp;

  std::vector<EndCosts> ends;
  std::vector<std::vector<ModelChunk>> seen;
  for (int64_t stage = 0; stage < layout.pp; ++stage) {
    // Stages with like chunks end alike.
    std::vector<ModelChunk> chunks = ChunksOf(run, stage);
    if (run.fp8.bf16_layers.empty()) {
      for (ModelChunk& chunk : chunks) chunk.first_layer = 0;
    }
    const auto same = fp8 ? seen.end() : std::find(seen.begin(), seen.end(), chunks);
    if (same != seen.end()) {
      ends.push_back(ends[static_cast<size_t>(same - seen.begin())]);
    } else {
      const UpdateRecording recording = RecordUpdate(shorter, stage, shared.executor);
      ends.push_back(
          {.update = trimtab::PriceOf(std::span(&recording.update, 1), layout, shared.pricer),
           .held = recording.held});
    }
    seen.push_back(std::move(chunks));
  }
  return ends_.emplace(key, std::move(ends)).first->second;
}

StepView StepCosts::Impl::Of(const RunConfig& run) {
  TRIMTAB_ASSERT(run.sequence_length == sequence_ && run.model.num_layers == model_.num_layers &&
                     run.model.hidden_size == model_.hidden_size,
                 "these are the costs of {} at sequence length {}", model_.name, sequence_);
  const size_t setting = SettingOf(run);
  const std::vector<StageCosts>& stages = StagesOf(setting, run);
  return {.stages = stages, .ends = EndsOf(setting, run), .pricer = settings_[setting].pricer};
}

StepCosts::StepCosts(const ModelConfig& model, int64_t sequence_length, const Cluster& cluster)
    : impl_(std::make_unique<Impl>(model, sequence_length, cluster)) {}
StepCosts::~StepCosts() = default;
StepCosts::StepCosts(StepCosts&&) noexcept = default;

StepView StepCosts::Of(const RunConfig& run) { return impl_->Of(run); }

}  // namespace trimtab
