// EngineLoop: one thread steps an engine; others hand it requests and wait for their tokens.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "engine/infer/engine.h"

namespace trimtab {

/// A request that an EngineLoop took. One thread may wait for it. A ticket that goes away before
/// its request has ended aborts it.
class Ticket {
 public:
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  struct News {
    std::vector<SampledToken> tokens;  // since the last call
    FinishReason finish = FinishReason::kNone;
    std::string failure;  // why nothing more will come; empty while all is well
    bool ended() const { return finish != FinishReason::kNone || !failure.empty(); }
  };
  /// What came since the last call; waits for something until `deadline`.
  News Wait(std::chrono::steady_clock::time_point deadline);

 private:
  friend class EngineLoop;
  struct Mailbox;
  struct Shared;
  Ticket(std::shared_ptr<Shared> loop, std::shared_ptr<Mailbox> mailbox);

  std::shared_ptr<Shared> loop_;
  std::shared_ptr<Mailbox> mailbox_;
};

/// Safe to use from several threads.
class EngineLoop {
 public:
  /// `engine` must outlive this, and nobody else may use it meanwhile.
  explicit EngineLoop(Engine& engine);
  /// Ends what still runs, as Cancel does.
  ~EngineLoop();
  EngineLoop(const EngineLoop&) = delete;
  EngineLoop& operator=(const EngineLoop&) = delete;

  /// Waits until the engine has taken or refused the request: at most a step.
  std::variant<std::unique_ptr<Ticket>, Refusal> Submit(GenerationRequest request);
  /// Aborts everything and refuses what comes: `why` is what tickets then say.
  void Cancel(const std::string& why);

  /// As of the last step.
  EngineMetrics metrics() const;
  /// Why the engine no longer works; empty while it does.
  std::string failure() const;

 private:
  void Run();

  Engine& engine_;
  std::shared_ptr<Ticket::Shared> shared_;
  std::thread thread_;
};

}  // namespace trimtab
