// What the chunks of a model cost: one micro batch through each, composed of recordings. Made once
// for each shape and remembered.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <vector>

#include "cost_model/cluster.h"
#include "cost_model/packed_key.h"
#include "cost_model/piece_cost.h"
#include "cost_model/price.h"
#include "cost_model/recording.h"
#include "engine/config/run_config.h"

namespace trimtab {

/// What runs of one mode, precision and fp8 configuration share.
struct PriceSetting {
  int64_t number = 0;
  Mode mode;
  Precision precision = Precision::kFp32;
  Fp8Config fp8;
  RoutingConfig routing;
  Pricer pricer;
  Executor executor;
  std::vector<int64_t> first_alike;  // by layer: FirstAlike
};

/// The first layer from which on the model is like the layers of `chunk`, but for recomputation;
/// `first_alike` as FirstAlike says.
int64_t FirstLayersAlike(const std::vector<int64_t>& first_alike, const ModelChunk& chunk);

/// A chunk, or a part of one, by the way through it.
using WayCosts = std::array<PieceCost, kWayCount>;

/// Not thread-safe: one per thread. What it returns lives as long as it does. The runs it is asked
/// about have one recompute plan, that of the chunk's stage.
class ChunkCosts {
 public:
  /// Of runs of one model at one sequence length.
  explicit ChunkCosts(const Cluster& cluster) : cluster_(cluster) {}

  /// Throws UsageError where the profile cannot price the run's precision.
  const PriceSetting& SettingOf(const RunConfig& run);
  /// The key of all that is recorded of a micro batch, but for recomputation.
  static PackedKey ShapeKey(const PriceSetting& setting, const ParallelConfig& layout);

  const WayCosts& Of(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk);
  /// See RecordIds and RecordMessages.
  int64_t IdBytes(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk,
                  int64_t in_flight);
  const MessageRecording& Messages(const PriceSetting& setting, const RunConfig& run);

 private:
  /// A micro batch through a group of layers of a chunk, and through the chunk's ends; what it has
  /// no end of costs nothing.
  struct KindCosts {
    WayCosts embedding;
    WayCosts group;
    WayCosts head;
  };

  /// A group of layers of a chunk, counted from the chunk's first.
  const KindCosts& KindOf(const PriceSetting& setting, const RunConfig& run,
                          const ModelChunk& chunk, const RecomputeGroup& group);
  WayCosts Compose(const PriceSetting& setting, const RunConfig& run, const ModelChunk& chunk);

  Cluster cluster_;
  std::deque<PriceSetting> settings_;  // its elements stay where they are
  std::unordered_map<PackedKey, KindCosts, PackedKey::Hash> kinds_;
  std::unordered_map<PackedKey, WayCosts, PackedKey::Hash> chunks_;
  std::unordered_map<PackedKey, int64_t, PackedKey::Hash> id_bytes_;
  std::unordered_map<PackedKey, MessageRecording, PackedKey::Hash> messages_;
};

}  // namespace trimtab
