#include "engine/config/rules/rule_parts.h"

namespace trimtab {
namespace {

/// An empty string, or what is wrong with the layers listed for each chunk.
std::string StagesFault(const RunConfig& run) {
  const StageLayers& stages = run.layout.stages;
  const int64_t chunks = run.layout.pp * run.layout.vp;
  if (stages.empty()) return "";
  if (stages.size() != chunks || stages.sum() != run.model.num_layers) {
    return fmt::format("stages={} lists {} chunk{} and {} layers; expected pp {} x vp {} and {}",
                       ToString(stages), stages.size(), stages.size() == 1 ? "" : "s", stages.sum(),
                       run.layout.pp, run.layout.vp, run.model.num_layers);
  }
  for (int64_t i = 1; i + 1 < chunks; ++i) {
    if (stages[i] > 0) continue;
    return fmt::format(
        "stages={} leaves chunk {} empty; expected a layer in every chunk but the "
        "first and the last",
        ToString(stages), i);
  }
  return "";
}

constexpr Rule kPipelineRules[] = {
    {"schedule-requires-pp", "Schedules other than 1f1b order the micro batches of a pipeline.",
     [](const RunConfig& run) {
       return run.layout.schedule == Schedule::k1F1B || run.layout.pp > 1;
     },
     [](const RunConfig& run) {
       return fmt::format("schedule={} needs pp of at least 2, and pp is {}",
                          Name(run.layout.schedule), run.layout.pp);
     }},
    {"vp-with-interleaved-schedule",
     "The interleaved schedule, and no other, runs several model chunks per pipeline rank.",
     [](const RunConfig& run) {
       return (run.layout.vp > 1) == (run.layout.schedule == Schedule::kInterleaved1F1B);
     },
     [](const RunConfig& run) {
       return fmt::format("vp is {} and schedule {}; vp above 1 needs schedule=interleaved-1f1b",
                          run.layout.vp, Name(run.layout.schedule));
     }},
    {"chunks-not-empty",
     "Every model chunk of a pipeline holds a layer, or the embedding, or the loss.",
     [](const RunConfig& run) { return run.layout.pp * run.layout.vp <= run.model.num_layers + 2; },
     [](const RunConfig& run) {
       return fmt::format(
           "pp {} x vp {} makes more chunks than {} layers, the embedding and the "
           "loss can fill",
           run.layout.pp, run.layout.vp, run.model.num_layers);
     }},
    {"stages-cover-model", "A list of layers per chunk has one entry for each and all layers.",
     [](const RunConfig& run) { return StagesFault(run).empty(); },
     [](const RunConfig& run) { return StagesFault(run); }},
};

}  // namespace

std::span<const Rule> PipelineRules() { return kPipelineRules; }

}  // namespace trimtab
