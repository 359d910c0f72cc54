#include "cost_model/closed_form/pass_spans.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"

namespace trimtab {

RunConfig PricedRun::Made() const {
  RunConfig made = run;
  made.layout = layout;
  return made;
}

const PriceSetting& PassSpans::SettingOf(const RunConfig& run) { return chunks_->SettingOf(run); }

void PassSpans::ForgetIfMany() {
  constexpr size_t kMany = size_t{1} << 12;
  if (shapes_.size() > kMany) shapes_.clear();
}

PassSpans::Shape PassSpans::Of(const PricedRun& priced) {
  const PriceSetting& setting = chunks_->SettingOf(priced.run);
  const bool later = HasLaterPasses(priced.layout, priced.run.num_micro_batches());
  const PackedKey key =
      ChunkCosts::ShapeKey(setting, priced.layout, later, priced.layout.recompute[0]);
  return {priced, setting, *chunks_, shapes_[key]};
}

ModelChunk PassSpans::Shape::Like(const ModelChunk& chunk) const {
  ModelChunk like = chunk;
  like.first_layer = setting_.alike ? 0 : FirstLayersAlike(setting_.first_alike, chunk);
  return like;
}

const WaySpans& PassSpans::Shape::Of(const ModelChunk& chunk) {
  const ModelChunk like = Like(chunk);
  const auto found =
      std::find_if(known_.chunks.begin(), known_.chunks.end(),
                   [&](const KnownSpans::Chunk& each) { return each.chunk == like; });
  if (found != known_.chunks.end()) return found->ways;
  known_.chunks.push_back({like, chunks_.SpansOf(setting_, priced_.Made(), chunk)});
  return known_.chunks.back().ways;
}

WaySpans PassSpans::Shape::OfFirst(const ModelChunk& chunk) {
  return chunks_.SpansOf(setting_, priced_.Made(), chunk, /*later=*/false);
}

const InnerSpans& PassSpans::Shape::OfLayer(bool later) {
  std::optional<InnerSpans>& known = later || known_.layer ? known_.layer : known_.first_of_layer;
  if (!known) known = chunks_.SpansOfLayer(setting_, priced_.Made(), later);
  return *known;
}

LayerBytes PassSpans::Shape::BytesOfLayers() {
  std::optional<LayerBytes>& known = known_.layer_bytes;
  if (known) return *known;
  TRIMTAB_ASSERT(!MovesForNext(layout()), "a layer alone moves no shards for others");
  LayerBytes bytes = {.least_kept = INT64_MAX, .most_kept = 0, .least_backward_peak = INT64_MAX};
  ForEachKind([&](const ModelChunk& layer) {
    const WaySpans& ways = Of(layer);
    const int64_t kept = ways[kForwardLater].total.change;
    bytes.least_kept = std::min(bytes.least_kept, kept);
    bytes.most_kept = std::max(bytes.most_kept, kept);
    bytes.least_backward_peak =
        std::min(bytes.least_backward_peak, ways[kBackwardAdding].total.peak);
  });
  known = bytes;
  return bytes;
}

StageMessages PassSpans::Shape::Messages() {
  const ParallelConfig& layout = priced_.layout;
  for (const KnownSpans::Messages& each : known_.messages) {
    if (each.pp == layout.pp && each.dp == layout.dp) return each.messages;
  }
  const MessageRecording& recording = chunks_.Messages(setting_, priced_.Made());
  const StageMessages messages = {.activation_bytes = recording.activation.bytes,
                                  .longer_s = LongerMessage(recording, setting_.pricer, layout)};
  known_.messages.push_back({layout.pp, layout.dp, messages});
  return messages;
}

bool PassSpans::Shape::legal() {
  if (!known_.checked) {
    RunConfig one_batch = priced_.Made();
    one_batch.global_batch = one_batch.layout.micro_batch * one_batch.layout.dp;
    known_.legal = FirstBrokenRule(one_batch) == nullptr;
    known_.checked = true;
  }
  return known_.legal;
}

}  // namespace trimtab
