// PassSpans: how long the passes of a micro batch are and what they hold, as bounds ask for it
// again and again: remembered by shape, in little memory.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "cost_model/closed_form/chunk_costs.h"
#include "cost_model/closed_form/packed_key.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// A run as it is priced: in another layout.
struct PricedRun {
  const RunConfig& run;
  ParallelConfig layout;

  RunConfig Made() const;
};

/// What neighbouring stages send each other.
struct StageMessages {
  int64_t activation_bytes = 0;
  double longer_s = 0;  // of an activation and a gradient
};

/// A micro batch in a layer alone. Layers of several kinds differ.
struct LayerBytes {
  int64_t least_kept = 0;  // for the backward pass
  int64_t most_kept = 0;
  int64_t least_backward_peak = 0;  // above what was kept
};

/// What is remembered of a shape.
struct KnownSpans {
  struct Chunk {
    ModelChunk chunk;  // its first layer: the first that is like it
    WaySpans ways;
  };
  struct Messages {
    int64_t pp = 1;
    int64_t dp = 1;
    StageMessages messages;
  };
  std::vector<Chunk> chunks;
  std::vector<Messages> messages;
  std::optional<InnerSpans> layer;
  std::optional<InnerSpans> first_of_layer;
  std::optional<LayerBytes> layer_bytes;
  bool checked = false;  // whether it is legal
  bool legal = false;
};

/// Not thread-safe: one per thread.
class PassSpans {
 public:
  /// `chunks` must outlive it.
  explicit PassSpans(ChunkCosts& chunks) : chunks_(&chunks) {}

  /// Throws as ChunkCosts::SettingOf does.
  const PriceSetting& SettingOf(const RunConfig& run);

  /// The passes of one run, and of all that differ from it only in what is no matter to passes.
  class Shape {
   public:
    Shape(const PricedRun& priced, const PriceSetting& setting, ChunkCosts& chunks,
          KnownSpans& known)
        : priced_(priced), setting_(setting), chunks_(chunks), known_(known) {}

    /// Of a micro batch through `chunk` of the model. Holds until the next call.
    const WaySpans& Of(const ModelChunk& chunk);
    /// The first chunk of the model that is like `chunk`.
    ModelChunk Like(const ModelChunk& chunk) const;
    /// Of the first micro batch of a step alone, which is sooner known: the ways of later ones are
    /// empty. Composed anew with each call.
    WaySpans OfFirst(const ModelChunk& chunk);
    /// See ChunkCosts::SpansOfLayer.
    const InnerSpans& OfLayer(bool later = true);
    /// Of passes that move no shards.
    LayerBytes BytesOfLayers();
    /// Calls `each(chunk)` with one layer of each kind, alone.
    template <typename Each>
    void ForEachKind(const Each& each) const;
    /// With a pipeline.
    StageMessages Messages();
    /// Whether a step of one micro batch on each rank breaks no rule. Without a pipeline.
    bool legal();
    const PriceSetting& setting() const { return setting_; }
    const ParallelConfig& layout() const { return priced_.layout; }

   private:
    const PricedRun& priced_;
    const PriceSetting& setting_;
    ChunkCosts& chunks_;
    KnownSpans& known_;
  };
  /// Forgets shapes where they are so many that they take some megabytes: composing one again
  /// takes microseconds. Only where nobody has one.
  void ForgetIfMany();
  /// `priced` must outlive it.
  Shape Of(const PricedRun& priced);

 private:
  ChunkCosts* chunks_;
  std::unordered_map<PackedKey, KnownSpans, PackedKey::Hash> shapes_;
};

template <typename Each>
void PassSpans::Shape::ForEachKind(const Each& each) const {
  const std::vector<int64_t>& first_alike = setting_.first_alike;
  for (int64_t layer = 0; layer < std::ssize(first_alike); ++layer) {
    if (first_alike[static_cast<size_t>(layer)] != layer) continue;
    each(ModelChunk{layer, 1, /*embedding=*/false, /*head=*/false});
  }
}

}  // namespace trimtab
