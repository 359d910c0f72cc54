// What clients of a configuration will see: its replicas simulated under a load.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "cost_model/serving/serving_simulator.h"

namespace trimtab {

/// What a configuration's recordings and prices depend on.
ServingLayout ServingLayoutOf(const ServingConfig& config);

/// Rates of a configuration on GPUs of `profile`, as `engine` reaches them. Throws UsageError.
ServingRates ServingRatesOf(const ServingConfig& config, const HardwareProfile& profile,
                            const ServingEngine& engine);

/// Seconds of copying blocks from the cache of one of its replicas to another's: all ranks copy
/// their shares at once, and the fullest has most. It does not need `config` later.
CopySeconds CopySecondsOf(const ServingConfig& config, const CopyRates& rates);

/// The replica that gets a request, by its place in the load: they take turns; of a closed loop,
/// the clients do, and so do the replicas that these belong to.
int64_t ReplicaOf(const ServiceLoad& load, int64_t replicas, size_t request);

/// Requests that replica `index` of `replicas` gets, and its share of the clients.
ServiceLoad ShareOf(const ServiceLoad& load, int64_t replicas, int64_t index);

struct ServingPrediction {
  LoadReport report{};       // of all requests
  ServingBreakdown spent{};  // of the steps of all replicas, but those of draft models
  double draft_s = 0;        // of these
  double copy_s = 0;         // in which caches were copied between replicas
  int64_t moved = 0;         // requests
  int64_t proposed = 0;      // tokens
  int64_t accepted = 0;      // of these
  double busy_share = 0;     // of the time from the first request to the last token
  int64_t preemptions = 0;
  int64_t most_running = 0;  // sequences at once in one replica
  int64_t most_waiting = 0;
  int64_t most_rows = 0;
  int64_t most_blocks = 0;
  bool waits_for_places = false;  // as in SimulatedServing
  bool waits_for_room = false;
};

/// How far the simulation of a configuration is: its replicas are simulated one after the other, or
/// all at once where they share the work on a request.
struct ServingProgress {
  const std::vector<std::vector<LoadOutcome>>& replicas;  // those that are done
  const std::vector<LoadOutcome>& outcomes;               // of the next one's requests, or of all
  double now_s;                                           // there
};
/// Whether to go on.
using ServingWatch = std::function<bool(const ServingProgress& progress)>;

class ServingPredictor;

/// Who proposes tokens, and how often they stand.
struct ServingSpeculation {
  double acceptance = 0;                            // of a proposed token, in its turn
  std::shared_ptr<const ServingPredictor> draft{};  // null: look-up, which takes no time
};

/// One model in one layout with its prices. Predictions of it may run in several threads.
class ServingPredictor {
 public:
  /// Throws InfeasibleError where the model cannot be cut so.
  ServingPredictor(const ModelConfig& model, const ServingLayout& layout, const ServingRates& rates,
                   ServingSpeculation speculation = {});

  /// `config` is resolved and of this model and layout. `copy` is of its replicas, and counts where
  /// some of them compute prompts alone.
  ServingPrediction Predict(const ServingConfig& config, const ServiceLoad& load,
                            const CopyRates& copy = {}) const;
  /// The same, as long as `watch` wants to go on; nullopt when it ended that.
  std::optional<ServingPrediction> PredictWhile(const ServingConfig& config,
                                                const ServiceLoad& load, const CopyRates& copy,
                                                const ServingWatch& watch) const;
  const ServingSteps& steps() const { return steps_; }
  const ServingPricer& pricer() const { return pricer_; }
  const ServingSpeculation& speculation() const { return speculation_; }

 private:
  using GoesOn = std::function<bool(double now_s, const std::vector<LoadOutcome>& outcomes)>;
  /// Replicas that share the load, and where the time goes.
  std::pair<SimulatedServing, ServingBreakdown> Simulate(const SchedulerOptions& options,
                                                         const SimulatedEngines& engines,
                                                         const CopySeconds& copy,
                                                         const ServiceLoad& load,
                                                         const GoesOn& goes_on) const;

  ServingRecorder recorder_;
  ServingSteps steps_;
  ServingPricer pricer_;
  ServingSpeculation speculation_;
};

}  // namespace trimtab
