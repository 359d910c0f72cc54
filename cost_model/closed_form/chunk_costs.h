// What the chunks of a model cost: one micro batch through each, composed of recordings. Made once
// for each shape and remembered.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "cost_model/closed_form/packed_key.h"
#include "cost_model/closed_form/shared_memo.h"
#include "cost_model/closed_form/short_groups.h"
#include "cost_model/hardware/cluster.h"
#include "cost_model/prices/price.h"
#include "cost_model/recordings/piece_cost.h"
#include "cost_model/recordings/recording.h"
#include "engine/base/mutex.h"
#include "engine/config/run/run_config.h"
#include "engine/schedule/chunks.h"

namespace trimtab {

/// What runs share that have one mode, precision and fp8 configuration, and train and group the
/// same parameters.
struct PriceSetting {
  int64_t number = 0;
  Mode mode;
  Precision precision = Precision::kFp32;
  Fp8Config fp8;
  RoutingConfig routing;
  PackingConfig packing;
  MoeConfig moe;
  std::vector<std::string> frozen;
  std::vector<ParameterGroup> groups;
  Pricer pricer;
  Executor executor;
  std::vector<int64_t> first_alike;  // by layer: FirstAlike
  bool alike = false;                // all layers are like the first
  LayerRange stretch{};              // the longest of neighbouring layers that are alike
};

/// A chunk, or a part of one, by the way through it.
using WayCosts = std::array<PieceCost, kWayCount>;

/// What bounds ask of pieces that run one after the other: all of their seconds, of these the waits
/// for tensor-parallel messages but for those of recomputation, and their memory.
struct WaySpan {
  double seconds = 0;
  double tensor_wait_s = 0;
  MemorySpan total;

  /// Goes on with `next`, so many times (>= 1).
  void Append(const WaySpan& next, int64_t times = 1);
};
using WaySpans = std::array<WaySpan, kWayCount>;
/// Of a layer amid others, by the way through it.
struct InnerSpans {
  WaySpans ways;
  /// What is in use when it begins its backward pass, or its part, above what there was before the
  /// forward pass of the layer before it; unknown within a group.
  std::array<int64_t, kWayCount> begins{};
};

/// What is remembered of what was recorded, each with what stands above it. Spans take a tenth of
/// the memory of costs.
enum class Remembered : uint8_t { kSpans, kCosts, kRecordings };

/// Thread-safe, but for SetPrices. What it returns lives as long as it does, and holds until prices
/// are set. The runs it is asked about have one recompute plan, that of the chunk's stage.
class ChunkCosts {
 public:
  /// Of runs of one model at one sequence length.
  ChunkCosts(const Cluster& cluster, Remembered remembered)
      : cluster_(cluster), remembered_(remembered) {}

  Remembered remembered() const { return remembered_; }
  /// From now on by the profile and the stack of `cluster`, which is the same otherwise. Recordings
  /// are remembered.
  void SetPrices(const Cluster& cluster);

  /// Throws UsageError where the profile cannot price the run's precision. Most runs have that of
  /// the one before: `last`, if not null, is looked at first, without waiting for other threads.
  const PriceSetting& SettingOf(const RunConfig& run, const PriceSetting* last = nullptr);
  /// The key of all that is recorded of a micro batch, but for recomputation. `later`: of later
  /// ones than the first, too.
  static PackedKey ShapeKey(const PriceSetting& setting, const ParallelConfig& layout, bool later);
  /// The same with a plan of recomputation.
  static PackedKey ShapeKey(const PriceSetting& setting, const ParallelConfig& layout, bool later,
                            const RecomputeConfig& plan);

  /// Costs are remembered.
  const WayCosts& Of(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk);
  /// Composed anew with each call. Not `later`: see RecordMicroBatch.
  WaySpans SpansOf(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk,
                   bool later = true);
  /// Of a layer of the longest stretch of like ones (at least 3) that others stand around,
  /// recomputed like it; of a plan with groups (of at least kShownOfGroup layers, and the stretch
  /// of at least three groups) one within a group. Not `later`: see RecordMicroBatch.
  InnerSpans SpansOfLayer(const PriceSetting& setting, const RunConfig& run, bool later);
  /// See RecordIds and RecordMessages.
  int64_t IdBytes(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk,
                  int64_t in_flight);
  const MessageRecording& Messages(const PriceSetting& setting, const RunConfig& run);
  /// Forgets what was recorded and composed where that is so much that it takes tens of megabytes.
  /// Only while no other thread asks, and where nobody has what was returned, but for settings.
  void ForgetIfMany();

 private:
  /// A micro batch through a group of layers.
  template <typename Ways>
  struct PricedGroup {
    int64_t layers = 1;  // that were recorded
    /// In turns what happens once, and what every further layer adds once more.
    std::vector<Ways> parts;
  };
  /// The same through neighbouring groups of a chunk, of those that stand amid others through these
  /// alone, and through the chunk's ends.
  template <typename Ways>
  struct PricedLayers {
    std::vector<PricedGroup<Ways>> groups;
    std::vector<Ways> embedding;  // one, or none where the chunk has no such end
    std::vector<Ways> head;
  };
  /// The same as it was recorded.
  struct LayersRecording {
    ParallelConfig layout;
    int64_t first_layer = 0;  // in the model
    std::vector<ShortGroup> groups;
    bool amid = false;
    MicroBatchRecording recording;
  };
  /// What is remembered of it.
  struct Layers {
    std::unique_ptr<LayersRecording> recording;
    PricedLayers<WayCosts> costs;
    PricedLayers<WaySpans> spans;
    std::array<int64_t, kWayCount> begins{};  // of the group amid others: see InnerSpans
    int64_t prices = 0;                       // that both are by
  };
  struct PricedChunk {
    WayCosts ways;
    int64_t prices = 0;
  };

  /// Layers of a chunk, counted from the chunk's first.
  const Layers& LayersOf(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk,
                         const RecordedLayers& layers, bool later);
  static std::array<int64_t, kWayCount> BeginsOf(const LayersRecording& layers);
  static PricedLayers<WayCosts> PriceLayers(const PriceSetting& setting,
                                            const LayersRecording& layers);
  /// Prices `recording`, and remembers what is to be.
  void Remember(const PriceSetting& setting, std::unique_ptr<LayersRecording> recording,
                Layers& layers) const;
  /// What the recorded `part` of its layers makes of a chunk.
  template <typename Ways>
  Ways Compose(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk,
               PricedLayers<Ways> Layers::*part, bool later = true);

  Cluster cluster_;
  Remembered remembered_;
  int64_t prices_ = 0;  // how often they were set
  Mutex settings_mutex_;
  // Its elements stay where they are.
  std::deque<PriceSetting> settings_ TRIMTAB_GUARDED_BY(settings_mutex_);
  SharedMemo<Layers> layers_;
  SharedMemo<PricedChunk> chunks_;
  SharedMemo<int64_t> id_bytes_;
  SharedMemo<MessageRecording> messages_;
};

}  // namespace trimtab
