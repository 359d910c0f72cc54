// An engine that serves: requests go in at any time, and every step brings some of them on.
//
// Not thread-safe: one thread adds, steps and aborts.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "engine/infer/api/request.h"

namespace trimtab {

/// What an engine takes at most.
struct EngineLimits {
  int64_t sequences = 16;         // that are worked on at once
  int64_t tokens_per_step = 512;  // rows of one step: of prompts, and one of each running sequence
  int64_t waiting = 1024;         // requests that wait
  int64_t sequence_length = 0;    // tokens of prompt and answer; 0 = as the model and the cache say
};

/// Counted since the engine was made, but for what says "now".
struct EngineMetrics {
  int64_t steps = 0;
  int64_t prompt_tokens = 0;     // computed, again after a preemption too
  int64_t cached_tokens = 0;     // of prompts, found in the cache
  int64_t generated_tokens = 0;  // handed out
  int64_t finished_requests = 0;
  int64_t aborted_requests = 0;
  int64_t refused_requests = 0;
  int64_t preemptions = 0;
  int64_t moved_requests = 0;   // gone on with, whose prompts another engine has computed
  int64_t proposed_tokens = 0;  // by speculation
  int64_t checked_tokens = 0;   // of these: all that were proposed before them stood
  int64_t accepted_tokens = 0;  // of these, in turn
  int64_t running = 0;          // sequences, now
  int64_t waiting = 0;          // requests, now
  int64_t used_blocks = 0;      // of the cache, by sequences, now
  int64_t total_blocks = 0;
  int64_t peak_mem_bytes = 0;  // allocator peak of the fullest rank so far

  EngineMetrics& operator+=(const EngineMetrics& other);
};

/// Why an engine of these limits could never serve a request, in a line; empty where it could.
std::string FaultOf(const GenerationRequest& request, const EngineLimits& limits,
                    int64_t vocab_size);

/// Why a request was not taken: one line.
struct Refusal {
  std::string reason;
  bool busy = false;  // the same request may be taken later
};

class Engine {
 public:
  virtual ~Engine() = default;

  /// Takes a request, which then waits for its turn; or says why it never could be served, or that
  /// too many wait.
  virtual std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) = 0;
  /// One pass of the model over what is due; nothing when there is no work. Updates are in the
  /// order in which the requests came. A finished request is forgotten.
  virtual std::vector<RequestUpdate> Step() = 0;
  /// Forgets a request; false when there is none of this id, or no longer.
  virtual bool Abort(RequestId id) = 0;
  /// Whether a step would do anything.
  virtual bool HasWork() const = 0;

  virtual EngineMetrics metrics() const = 0;
  /// With the longest sequence resolved.
  virtual const EngineLimits& limits() const = 0;
  virtual int64_t vocab_size() const = 0;
};

}  // namespace trimtab
