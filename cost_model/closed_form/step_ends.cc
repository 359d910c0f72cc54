#include "cost_model/closed_form/step_ends.h"

#include <algorithm>
#include <utility>

#include "cost_model/closed_form/stage_plan.h"
#include "engine/schedule/chunks.h"

namespace trimtab {
namespace {

/// Pipelines whose ends are remembered: some megabytes.
constexpr size_t kMostEnds = size_t{1} << 9;

}  // namespace

const std::vector<EndCosts>& StepEnds::Of(const PriceSetting& setting, const RunConfig& run) {
  const ParallelConfig& layout = run.layout;
  const bool fp8 = TypesOf(layout.numerics).fp8;
  PackedKey key = PackedKey()
                      .Put(setting.number, 10)
                      .Put(layout.tp, 20)
                      .Put(layout.cp, 20)
                      .Put(layout.dp, 20)
                      .Put(layout.ep, 20)
                      .Put(layout.etp, 20)
                      .Put(layout.sequence_parallel ? 1 : 0, 1)
                      .Put(layout.zero, 2)
                      .Put(layout.shard, 20)
                      .Put(layout.overlap_grad_reduce ? 1 : 0, 1)
                      .Put(layout.overlap_param_gather ? 1 : 0, 1)
                      .Put(run.optimizer.kind)
                      .Put(layout.numerics)
                      .Put(layout.pp, 20)
                      .Put(layout.vp, 20)
                      .Put(NumberOf(layout.stages, stage_layers_), 20);
  // Interleaved schedules go in rounds; fp8 has scales for each micro batch in flight.
  int64_t micro_batches = layout.vp > 1 ? layout.pp : 1;
  if (fp8) {
    const PipelineShape shape = {layout.pp, layout.vp, run.num_micro_batches()};
    micro_batches = MicroBatchesThatFill(layout.schedule, shape);
    key.Put(layout.schedule).Put(micro_batches, 40);
  }
  if (ends_.size() > kMostEnds) ends_.clear();
  const auto [found, is_new] = ends_.try_emplace(key);
  Ends& ends = found->second;
  if (is_new) Record(setting, run, micro_batches, ends);
  if (is_new || ends.prices != prices_) {
    std::vector<EndCosts> costs;
    for (const UpdateRecording& recording : ends.recordings) {
      costs.push_back(EndOf(recording, layout, setting.pricer));
    }
    ends.costs.clear();
    for (const size_t recording : ends.recording_of) ends.costs.push_back(costs[recording]);
    ends.prices = prices_;
    if (!keeps_) ends.recordings.clear();
  }
  return ends.costs;
}

void StepEnds::Record(const PriceSetting& setting, const RunConfig& run, int64_t micro_batches,
                      Ends& ends) {
  const ParallelConfig& layout = run.layout;
  const bool fp8 = TypesOf(layout.numerics).fp8;
  RunConfig shorter = run;
  shorter.global_batch = layout.micro_batch * layout.dp * micro_batches;
  if (!fp8 && layout.vp == 1) shorter.layout.schedule = Schedule::k1F1B;
  const PipelineShape shape = {layout.pp, layout.vp, micro_batches};
  const std::vector<StageProgram>& programs = programs_.Of(shorter.layout.schedule, shape);
  std::vector<std::vector<ModelChunk>> seen;  // by stage
  for (int64_t stage = 0; stage < layout.pp; ++stage) {
    // Stages with like chunks end alike.
    std::vector<ModelChunk> chunks = ChunksOf(run, stage);
    for (ModelChunk& chunk : chunks) {
      chunk.first_layer = FirstLayersAlike(setting.first_alike, chunk);
    }
    const auto same = fp8 ? seen.end() : std::find(seen.begin(), seen.end(), chunks);
    if (same != seen.end()) {
      ends.recording_of.push_back(ends.recording_of[static_cast<size_t>(same - seen.begin())]);
    } else {
      ends.recording_of.push_back(ends.recordings.size());
      ends.recordings.push_back(
          RecordUpdate(shorter, stage, programs[static_cast<size_t>(stage)], setting.executor));
    }
    seen.push_back(std::move(chunks));
  }
}

}  // namespace trimtab
