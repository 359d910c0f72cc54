#include "tools/serve/generation.h"

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "engine/base/log.h"
#include "tools/serve/reply/json_text.h"

namespace trimtab {
namespace {

/// How soon a client that left is noticed while nothing is written to it.
constexpr auto kPoll = std::chrono::milliseconds(100);

bool Send(httplib::DataSink& sink, const std::string& text) {
  return text.empty() || sink.write(text.data(), text.size());
}

}  // namespace

Generation::Generation(const ApiRequest& request, const Tokenizer& tokenizer, ReplyHead head,
                       std::unique_ptr<Counted> counted, ServerStats& stats)
    : counted_(std::move(counted)),
      stats_(stats),
      reply_(MakeReply(request, tokenizer, std::move(head))),
      stream_(request.stream) {
  std::random_device call_ids;
  for (size_t prompt = 0; prompt < request.prompts.size(); ++prompt) {
    for (int64_t i = 0; i < request.drawn; ++i) {
      GenerationRequest& each = requests_.emplace_back(request.generation);
      each.prompt = request.prompts[prompt];
      each.sampling.seed += static_cast<uint64_t>(i);
      choices_.push_back(
          {.prompt = prompt, .answer = Answer(tokenizer, request.answer, call_ids())});
    }
  }
}

Refusal Generation::Submit(EngineLoop& loop) {
  auto outcome = loop.Submit(std::move(requests_));
  if (const auto* refusal = std::get_if<Refusal>(&outcome)) return *refusal;
  ticket_ = std::get<std::unique_ptr<Ticket>>(std::move(outcome));
  return {};
}

bool Generation::ended() const {
  return std::ranges::all_of(choices_, [](const Choice& each) { return each.answer.ended(); });
}

bool Generation::Write(httplib::DataSink& sink, double timeout_s) {
  // The library calls this where nothing catches what is thrown: that would end the process.
  try {
    return WriteAnswer(sink, start_ + std::chrono::duration_cast<Clock::duration>(
                                          std::chrono::duration<double>(timeout_s)));
  } catch (const std::exception& error) {
    LogWarning("a request failed: {}", error.what());
    return Fail(sink, "internal error");
  }
}

bool Generation::WriteAnswer(httplib::DataSink& sink, Clock::time_point limit) {
  if (stream_ && !Send(sink, reply_->Begin(choices_))) return Abort();
  Clock::time_point looked = Clock::now();
  while (!ended()) {
    const std::vector<Ticket::News> all = ticket_->Wait(std::min(limit, Clock::now() + kPoll));
    if (Clock::now() - looked >= kPoll) {
      if (!sink.is_writable()) return Abort();
      looked = Clock::now();
    }
    for (const Ticket::News& news : all) {
      const std::string events = Take(news);
      if (!Send(sink, events)) return Abort();
      const bool lost = !news.failure.empty() && !choices_[news.request].answer.ended();
      if (lost) return Fail(sink, news.failure);
    }
    if (!ended() && Clock::now() >= limit) return Fail(sink, "the request took too long");
  }
  ticket_.reset();
  stats_.AddRequest(std::chrono::duration<double>(Clock::now() - start_).count());
  if (!Send(sink, stream_ ? reply_->End(choices_) : reply_->Body(choices_))) return false;
  sink.done();
  return true;
}

std::string Generation::Take(const Ticket::News& news) {
  Choice& choice = choices_[news.request];
  if (choice.answer.ended()) return "";
  CountTokens(news.tokens.size());
  if (!news.prompt.empty()) {
    choice.prompt_tokens = news.prompt;
    SampledToken& first = choice.prompt_tokens[0];  // nothing comes before it
    first.log_probability = std::numeric_limits<float>::quiet_NaN();
  }
  if (!news.embedding.empty()) choice.embedding = news.embedding;
  const Piece piece = choice.answer.Add(news.tokens, news.finish);
  if (choice.answer.ended() && !news.ended()) ticket_->Abort(news.request);
  return stream_ ? reply_->Event(choices_, news.request, piece) : "";
}

bool Generation::Fail(httplib::DataSink& sink, const std::string& message) {
  // The status has been sent: the client reads what went wrong in the place of an answer.
  const std::string error = ErrorBody(message, "server_error");
  Send(sink, stream_ ? "data: " + error + "\n" : error);
  return Abort();
}

bool Generation::Abort() {
  ticket_.reset();
  stats_.CountAbort();
  return false;
}

void Generation::CountTokens(size_t count) {
  if (count == 0) return;
  const auto now = Clock::now();
  const bool first = last_token_ == Clock::time_point{};
  if (first) {
    stats_.AddFirstToken(std::chrono::duration<double>(now - start_).count());
    last_token_ = now;
  }
  stats_.AddBetweenTokens(std::chrono::duration<double>(now - last_token_).count(), count - first);
  last_token_ = now;
}

}  // namespace trimtab
