// EngineLoop: one thread steps an engine; others hand it requests and wait for their tokens.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "engine/infer/api/engine.h"

namespace trimtab {

/// Requests that an EngineLoop took together. One thread may wait for them. A ticket that goes away
/// before its requests have ended aborts them.
class Ticket {
 public:
  ~Ticket();
  Ticket(const Ticket&) = delete;
  Ticket& operator=(const Ticket&) = delete;

  /// News of one request since the last call.
  struct News {
    size_t request = 0;                // its place among those that were submitted together
    std::vector<SampledToken> tokens;  // new ones
    std::vector<SampledToken> prompt;  // as RequestUpdate's
    std::vector<float> embedding;      // as RequestUpdate's
    FinishReason finish = FinishReason::kNone;
    std::string failure;  // why nothing more will come; empty while all is well
    bool ended() const { return finish != FinishReason::kNone || !failure.empty(); }
  };
  /// Waits for news until `deadline`. Returns at most one entry per request.
  std::vector<News> Wait(std::chrono::steady_clock::time_point deadline);
  /// Ends one of the requests, of which no more news are wanted.
  void Abort(size_t request);

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

  /// Waits until the engine has taken all of the requests or refused one of them, and thereby all:
  /// at most a step.
  std::variant<std::unique_ptr<Ticket>, Refusal> Submit(std::vector<GenerationRequest> requests);
  /// Aborts everything and refuses what comes: `why` is what tickets then say.
  void Cancel(const std::string& why);

  /// As of the last step.
  EngineMetrics metrics() const;
  /// Why the engine no longer works; empty while it does.
  std::string failure() const;

 private:
  /// Tickets whose threads are to be woken once the mutex is free, for they take it at once.
  using Mailboxes = std::vector<std::shared_ptr<Ticket::Mailbox>>;

  void Run();
  /// Gives the engine what was submitted and aborted. Returns false when the loop is to end.
  bool TakeSubmitted(Mailboxes& told);
  /// Gives the engine the requests of a ticket: all of them or none.
  void Take(Ticket::Mailbox& mailbox);
  /// Hands the updates of a step to their tickets.
  void Deliver(std::vector<RequestUpdate> updates, Mailboxes& told);
  /// Returns when something was submitted or aborted, or the loop is to end.
  void AwaitWork();

  Engine& engine_;
  std::shared_ptr<Ticket::Shared> shared_;
  std::thread thread_;
};

}  // namespace trimtab
