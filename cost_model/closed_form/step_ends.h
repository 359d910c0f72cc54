// StepEnds: what the ends of steps cost, by stage, recorded once for all layouts that end alike.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cost_model/closed_form/chunk_costs.h"
#include "cost_model/closed_form/end_costs.h"
#include "cost_model/closed_form/packed_key.h"
#include "cost_model/closed_form/pipeline_programs.h"
#include "cost_model/recordings/recording.h"
#include "engine/config/run/run_config.h"

namespace trimtab {

/// Not thread-safe: one per thread.
class StepEnds {
 public:
  /// Of layouts of one model. `keeps`: recordings, for prices may be set.
  explicit StepEnds(bool keeps) : keeps_(keeps) {}

  /// `run` breaks no legality rule. Holds until the next call.
  const std::vector<EndCosts>& Of(const PriceSetting& setting, const RunConfig& run);
  void PricesChanged() { ++prices_; }

 private:
  struct Ends {
    std::vector<UpdateRecording> recordings;
    std::vector<size_t> recording_of;  // by stage
    std::vector<EndCosts> costs;
    int64_t prices = 0;
  };

  /// Of a step with so many micro batches.
  void Record(const PriceSetting& setting, const RunConfig& run, int64_t micro_batches, Ends& ends);

  bool keeps_;
  int64_t prices_ = 0;                     // how often they were set
  std::vector<StageLayers> stage_layers_;  // lists that were met
  PipelinePrograms programs_;
  std::unordered_map<PackedKey, Ends, PackedKey::Hash> ends_;
};

}  // namespace trimtab
