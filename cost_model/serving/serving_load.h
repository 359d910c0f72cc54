// The steps that an engine takes under a load, in closed form: the steady state of continuous
// batching, and whether model and cache have room.
#pragma once

#include <cstdint>
#include <vector>

#include "cost_model/serving/serving_stack.h"
#include "cost_model/serving/serving_work.h"

namespace trimtab {

struct ServingLoad {
  enum class Kind {
    kServed,     // `sequences` requests are in flight all the time
    kSaturated,  // all `requests` at once, and the engine works on as many as it can
    kStatic,     // one batch of `sequences`: its prompts, then a token of each at a time
  };
  Kind kind = Kind::kServed;
  int64_t input = 1;      // tokens of a prompt
  int64_t output = 1;     // of an answer
  int64_t sequences = 0;  // of the whole instance
  int64_t requests = 0;   // kSaturated; 0 = without end
};

/// A step of a data-parallel rank, and how often it is taken.
struct CountedStep {
  ServingStep step;
  double count = 0;
};

struct ServingPlan {
  bool fits = false;             // weights, and a request with its answer
  double room_tokens = 0;        // of the cache of the instance
  double running = 0;            // sequences at once, of the instance
  bool waits_for_room = false;   // more requests are there than the cache has room for
  bool waits_for_steps = false;  // prompts come faster than steps have room for them
  /// Served: of the time between two tokens of a sequence. Else of the whole load, or with requests
  /// without end of one token of each running sequence.
  std::vector<CountedStep> steps{};
  double tokens = 0;  // of answers that these steps make, of the instance
};

/// Share of an answer that a running sequence holds room for: half of it is done on average, but an
/// engine that never takes a sequence back counts all of it.
double HeldOfOutput(const ServingEngine& engine);

/// Tokens that the caches of an instance have room for, 0 where the weights have none.
double RoomTokens(const ServingEngine& engine, const ServingLayout& layout,
                  const ServingFootprint& footprint, double memory_bytes);

/// `memory_bytes` of one GPU, as its driver shows it.
ServingPlan PlanServing(const ServingLoad& load, const ServingEngine& engine,
                        const ServingLayout& layout, const ServingFootprint& footprint,
                        double memory_bytes);

}  // namespace trimtab
