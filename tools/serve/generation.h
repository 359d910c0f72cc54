// Generation: the answers to one HTTP request, from the engine's tokens to the client's bytes.
#pragma once

#include <httplib.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/infer/api/engine_loop.h"
#include "tools/serve/counted.h"
#include "tools/serve/reply/reply.h"
#include "tools/serve/server_stats.h"

namespace trimtab {

class Generation {
 public:
  /// `stats` and `tokenizer` must outlive this. Counts as one as long as it is there.
  Generation(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head,
             std::unique_ptr<Counted> counted, ServerStats& stats);

  /// Hands its requests to the engine. Returns why that refuses them, or an empty reason.
  Refusal Submit(EngineLoop& loop);
  bool stream() const { return stream_; }
  /// Writes the answer while it grows. Returns false where the connection is to end without a
  /// proper end of the answer: after `timeout_s`, a failure, or when the client has left.
  bool Write(httplib::DataSink& sink, double timeout_s);

 private:
  using Clock = std::chrono::steady_clock;

  bool WriteAnswer(httplib::DataSink& sink, Clock::time_point limit);
  /// Takes a request's news: returns the events that tell of them.
  std::string Take(const Ticket::News& news);
  bool Fail(httplib::DataSink& sink, const std::string& message);
  bool Abort();
  void CountTokens(size_t count);
  bool ended() const;

  std::unique_ptr<Counted> counted_;
  ServerStats& stats_;
  std::vector<GenerationRequest> requests_;  // until they are submitted
  std::vector<Choice> choices_;
  std::unique_ptr<Reply> reply_;
  bool stream_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point last_token_{};
  std::unique_ptr<Ticket> ticket_;
};

}  // namespace trimtab
