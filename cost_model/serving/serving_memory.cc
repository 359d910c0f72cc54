#include "cost_model/serving/serving_memory.h"

#include <algorithm>
#include <set>

#include "engine/base/units.h"
#include "engine/comm/parallel_context.h"
#include "engine/infer/executor/serving_model.h"

namespace trimtab {
namespace {

/// Every sequence at its longest, and as many rows as a step has: all but the first of the
/// sequences go on, by a token and as many as can be proposed, while what is left are prompts.
StepPlan LargestStep(const EngineLimits& limits, int64_t block_size, int64_t proposed) {
  const int64_t length = limits.sequence_length;
  const int64_t sequences = std::min(limits.sequences, limits.tokens_per_step);
  int64_t rows = std::min(limits.tokens_per_step, sequences * length);
  const int64_t run = std::min({1 + proposed, length, rows / sequences});
  StepPlan plan;
  for (int64_t left = sequences; left > 0; --left) {
    // The first ones get what is beyond a run of each.
    const int64_t own = std::min(length, rows - (left - 1) * run);
    rows -= own;
    // Where not all can have a run of the full length, any row may be one that goes on.
    const int64_t outputs = run < 1 + proposed ? own : std::min(own, run);
    plan.sequences.push_back(
        {.tokens = std::vector<int32_t>(static_cast<size_t>(own)),
         .first_position = length - own,
         .blocks = std::vector<int32_t>(static_cast<size_t>(CeilDiv(length, block_size))),
         .logits = outputs});
  }
  return plan;
}

}  // namespace

/// A rank of a pipeline stage.
struct ServingMemoryModel::Stage {
  std::unique_ptr<Device> device;
  ParallelContext parallel;
  std::unique_ptr<ServingModel> model;
  int64_t weights = 0;
  int64_t spare_cache = 0;  // beyond the blocks of the configuration
  int64_t block_bytes = 0;
  std::map<std::tuple<int64_t, int64_t, int64_t>, int64_t> steps;  // bytes, by limits
};

ServingMemoryModel::ServingMemoryModel(const ServingConfig& config, DeviceKind kind, int threads,
                                       int draft_threads)
    : block_size_(config.block_size), proposed_(config.proposed_tokens()) {
  ServingConfig one = config;
  one.cache_blocks = 1;
  const RunConfig run = RunOf(config);
  // Of the stages between the first and the last, the second has most layers.
  const int64_t pp = config.layout.pp;
  for (const int64_t stage : std::set<int64_t>{0, std::min<int64_t>(1, pp - 1), pp - 1}) {
    Stage& added = *stages_.emplace_back(std::make_unique<Stage>());
    added.device = MakeMetaDevice(threads, kind);
    added.parallel = MakeMetaContext(run.layout, static_cast<int>(stage * config.layout.tp));
    added.model = std::make_unique<ServingModel>(one, added.parallel, *added.device, nullptr);
    const BytesByTag& held = added.device->memory().current_by_tag();
    const int64_t cache = held[static_cast<size_t>(MemoryTag::kKvCache)];
    added.weights = added.device->memory().current_total() - cache;
    const int64_t spare = config.layout.sequence_parallel ? config.layout.tp - 1 : 0;
    added.block_bytes = cache / (1 + spare);
    added.spare_cache = spare * added.block_bytes;
  }
  if (config.draft.tokens == 0) return;
  draft_ = std::make_unique<ServingMemoryModel>(DraftServing(config), kind, draft_threads, 0);
}

ServingMemoryModel::~ServingMemoryModel() = default;

int64_t ServingMemoryModel::StepBytes(Stage& stage, const EngineLimits& limits) const {
  const auto [place, is_new] =
      stage.steps.try_emplace({limits.sequences, limits.tokens_per_step, limits.sequence_length});
  if (!is_new) return place->second;
  MemoryTracker& memory = stage.device->memory();
  memory.ResetPeaks();
  stage.model->Run(LargestStep(limits, block_size_, proposed_));
  place->second = memory.peak_total() - memory.current_total();
  return place->second;
}

int64_t ServingMemoryModel::DraftBytes(const EngineLimits& limits, const EngineLimits& step) {
  if (!draft_) return 0;
  const int64_t blocks = limits.sequences * CeilDiv(limits.sequence_length, block_size_);
  return draft_->Of(step, blocks).total();
}

int64_t ServingMemoryModel::BlocksWithin(int64_t limit_bytes, const EngineLimits& limits,
                                         const EngineLimits& step) {
  const int64_t room = limit_bytes - DraftBytes(limits, step);
  int64_t blocks = std::numeric_limits<int64_t>::max();
  for (const auto& stage : stages_) {
    const int64_t other = stage->weights + stage->spare_cache;
    if (other >= room) return 0;
    const int64_t left = room - other - StepBytes(*stage, step);
    if (left <= 0) return 0;
    // A stage without layers has no cache.
    if (stage->block_bytes > 0) blocks = std::min(blocks, left / stage->block_bytes);
  }
  return blocks;
}

ServingMemory ServingMemoryModel::Of(const EngineLimits& limits, int64_t blocks) {
  ServingMemory fullest;
  for (const auto& stage : stages_) {
    const ServingMemory here = {.weights = stage->weights,
                                .cache = stage->spare_cache + blocks * stage->block_bytes,
                                .step = StepBytes(*stage, limits)};
    if (here.total() > fullest.total()) fullest = here;
  }
  fullest.draft = DraftBytes(limits, limits);
  return fullest;
}

int64_t ServingMemoryModel::weight_bytes() const {
  int64_t most = 0;
  for (const auto& stage : stages_) most = std::max(most, stage->weights);
  return most + (draft_ ? draft_->weight_bytes() : 0);
}

int64_t ServingMemoryModel::block_bytes() const {
  int64_t most = 0;
  for (const auto& stage : stages_) most = std::max(most, stage->block_bytes);
  return most;
}

}  // namespace trimtab
