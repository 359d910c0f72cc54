// A published row as a load on an instance of our engine, recorded; and what it costs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cost_model/serving/serving_load.h"
#include "cost_model/serving/serving_price.h"
#include "cost_model/serving/validation/published_serving.h"

namespace trimtab {

/// Recorders of models in layouts that were met before.
class ServingRecorders {
 public:
  ServingRecorder& Get(const PublishedServing& row, const ServingLayout& layout);

 private:
  std::vector<std::pair<std::string, std::unique_ptr<ServingRecorder>>> recorders_;
};

/// A row whose steps are recorded.
struct ServingCase {
  PublishedServing row;
  ServingLayout layout;
  const HardwareProfile* profile = nullptr;
  const ServingEngine* engine = nullptr;
  ServingFootprint footprint;
  ServingPlan plan;
  std::vector<std::pair<ServingWork, double>> work;  // of the plan's steps, and their counts
  ServingWork prompt;                                // of a step with one prompt and nothing else
  std::vector<std::string> assumptions;

  /// Seconds that were measured, of the plan's tokens: between two tokens where it is served.
  double measured_s = 0;
  /// That the caches held at once, as far as the rows of this very instance show; 0 = none does.
  double shown_tokens = 0;
};

/// Seconds of the plan, and where they go.
ServingBreakdown PriceCase(const ServingCase& of, const ServingGpu& gpu,
                           const ServingEngine& engine);

/// Whether the requests of a served row waited for room in the cache, judged by when the first
/// token came: seconds late, a part of the request's time, and later than prompts alone explain.
/// Not where the instance held as many tokens at once in another row: there was room.
bool WaitedForRoom(const ServingCase& of, const ServingGpu& gpu, const ServingEngine& engine);

/// Throws InfeasibleError or UsageError where the row cannot be predicted.
ServingCase CaseOf(const PublishedServing& row, ServingRecorders& recorders);

struct ServingCases {
  std::vector<ServingCase> cases;
  std::vector<std::pair<std::string, std::string>> skipped;  // ids, and why
};
ServingCases TakeServing(const std::vector<PublishedServing>& rows);

}  // namespace trimtab
