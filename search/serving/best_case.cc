#include "search/serving/best_case.h"

#include <algorithm>
#include <cmath>

#include "engine/base/units.h"

namespace trimtab {
namespace {

/// Of a replica, in a closed loop.
int64_t ClientsOf(const ServiceLoad& load, int64_t replicas, int64_t replica) {
  return load.concurrency / replicas + (replica < load.concurrency % replicas ? 1 : 0);
}

}  // namespace

BestCases::BestCases(const ServingPredictor& predictor, const ServiceLoad& load,
                     const ServingConfig& config)
    : predictor_(predictor),
      load_(load),
      block_size_(config.block_size),
      prefix_cache_(config.prefix_cache) {
  const ServingSteps& steps = predictor.steps();
  int64_t shortest = load.requests.front().prompt_tokens;
  for (const LoadRequest& each : load.requests) {
    total_ += RowsOf(each);
    shortest = std::min(shortest, each.prompt_tokens);
    const int64_t more = each.output_tokens - 1;
    if (more == 0) continue;
    total_ += steps.RowsOfDecoding(more, each.prompt_tokens);
    const int64_t others = Found(each) / block_size_;  // blocks that are perhaps another's
    for (int64_t token = 0; token < more; ++token) {
      const int64_t blocks = CeilDiv(each.prompt_tokens + token + 1, block_size_);
      block_steps_ += static_cast<double>(blocks - others);
    }
  }
  decode_s_ = Seconds(steps.RowsOf(1, shortest, 1));
  rough_ = ReportOf(std::vector<double>(load.requests.size()));
}

int64_t BestCases::Found(const LoadRequest& request) const {
  if (!prefix_cache_) return 0;
  // Whole blocks; the last token is computed in any case.
  return std::min(request.shared_tokens, request.prompt_tokens - 1) / block_size_ * block_size_;
}

StepRows BestCases::RowsOf(const LoadRequest& request) const {
  const int64_t found = Found(request);
  return predictor_.steps().RowsOf(request.prompt_tokens - found, found, 1);
}

double BestCases::Seconds(const StepRows& rows) const {
  ServingWork work = predictor_.steps().WorkOf(rows);
  // Experts that tokens share are read once, so their part is no convex function of the tokens: it
  // is bounded by that of one.
  work.all_tokens = 1;
  const ServingBreakdown parts = predictor_.pricer().Price(work);
  return parts.seconds() - parts.prompt_floor_s;
}

std::vector<double> BestCases::FirstTokens(int64_t tokens_per_step, int64_t replicas) const {
  std::vector<double> seconds;
  std::vector<double> free_s(static_cast<size_t>(replicas));  // of prompts that came before
  for (size_t i = 0; i < load_.requests.size(); ++i) {
    const LoadRequest& each = load_.requests[i];
    StepRows prompt = RowsOf(each);
    const auto rows = static_cast<int64_t>(prompt.rows());
    const auto pieces = static_cast<double>(CeilDiv(rows, tokens_per_step));
    seconds.push_back(pieces * Seconds(prompt / pieces));
    // Prompts are computed in the order in which they come, in steps that are full at best. When a
    // client's second request comes, nobody knows.
    const int64_t turn = static_cast<int64_t>(i) / replicas;
    const int64_t replica = static_cast<int64_t>(i) % replicas;
    const bool open = load_.concurrency == 0;
    if (!open && turn >= ClientsOf(load_, replicas, replica)) continue;
    const double sent_s = open ? each.at_s : 0;
    const double steps = prompt.rows() / static_cast<double>(tokens_per_step);
    prompt.outputs = 0;
    double& free = free_s[static_cast<size_t>(replica)];
    free = std::max(free, sent_s) + steps * Seconds(prompt / steps);
    seconds.back() = std::max(seconds.back(), free - sent_s);
  }
  return seconds;
}

LoadReport BestCases::ReportOf(const std::vector<double>& first_s,
                               const std::vector<double>& last_s) const {
  LoadReport report;
  std::vector<double> ttft, tpot, itl, e2e;
  for (size_t i = 0; i < first_s.size(); ++i) {
    const int64_t tokens = load_.requests[i].output_tokens;
    report.output_tokens += tokens;
    ttft.push_back(1e3 * first_s[i]);
    e2e.push_back(1e3 * last_s[i]);
    if (tokens == 1) continue;
    tpot.push_back((e2e.back() - ttft.back()) / static_cast<double>(tokens - 1));
    itl.push_back(1e3 * decode_s_);
  }
  report.requests = std::ssize(load_.requests);
  report.ttft = Summarise(std::move(ttft));
  report.tpot = Summarise(std::move(tpot));
  report.itl = Summarise(std::move(itl));
  report.e2e = Summarise(std::move(e2e));
  return report;
}

LoadReport BestCases::ReportOf(const std::vector<double>& first_s) const {
  std::vector<double> last_s = first_s;
  for (size_t i = 0; i < last_s.size(); ++i) {
    last_s[i] += decode_s_ * static_cast<double>(load_.requests[i].output_tokens - 1);
  }
  return ReportOf(first_s, last_s);
}

BestCase BestCases::WithRate(LoadReport report, const EngineLimits& limits, int64_t blocks,
                             int64_t replicas) const {
  const auto count = static_cast<double>(replicas);
  double sequences = static_cast<double>(limits.sequences);
  if (load_.concurrency > 0) {
    const int64_t clients = CeilDiv(load_.concurrency, replicas);
    sequences = std::min(sequences, static_cast<double>(clients));
  }
  // Steps of an average replica: each has rows for so many tokens, brings each sequence on by one,
  // and finds its sequences' blocks in the cache.
  const double steps = std::max(
      {1.0, total_.rows() / count / static_cast<double>(limits.tokens_per_step),
       total_.decodes / count / sequences, block_steps_ / count / static_cast<double>(blocks)});
  const double busy_s = steps * Seconds(total_ / (count * steps));
  report.duration_s = busy_s;
  if (load_.concurrency == 0) {
    const double sent_s = load_.requests.back().at_s - load_.requests.front().at_s;
    report.duration_s = std::max(report.duration_s, sent_s);
  }
  return {.report = std::move(report), .busy_s = busy_s};
}

BestCase BestCases::Rough(const EngineLimits& limits, int64_t blocks, int64_t replicas) const {
  return WithRate(rough_, limits, blocks, replicas);
}

BestCase BestCases::Of(const EngineLimits& limits, int64_t blocks, int64_t replicas) {
  const std::pair key(limits.tokens_per_step, replicas);
  const auto [place, is_new] = reports_.try_emplace(key);
  if (is_new) {
    const std::vector<double>& first_s = first_tokens_[key] =
        FirstTokens(limits.tokens_per_step, replicas);
    place->second = ReportOf(first_s);
  }
  return WithRate(place->second, limits, blocks, replicas);
}

LoadReport BestCases::Outlook(const LoadReport& best, const EngineLimits& limits, int64_t replicas,
                              const ServingProgress& progress) const {
  std::vector<double> first_s = first_tokens_.at({limits.tokens_per_step, replicas});
  std::vector<double> last_s(first_s.size());
  const double begun_s = load_.requests.front().at_s;
  double duration_s = best.duration_s;
  for (size_t i = 0; i < first_s.size(); ++i) {
    const size_t replica = i % static_cast<size_t>(replicas);
    const size_t turn = i / static_cast<size_t>(replicas);
    const bool done = replica < progress.replicas.size();
    const LoadOutcome* known = done ? &progress.replicas[replica][turn]
                               : replica == progress.replicas.size() ? &progress.outcomes[turn]
                                                                     : nullptr;
    int64_t got = 0;
    double& last = last_s[i] = first_s[i];
    if (known != nullptr && known->sent_s >= 0) {
      got = known->tokens;
      const double waited_s = done ? 0 : progress.now_s - known->sent_s;
      if (got > 0) first_s[i] = known->arrivals_s.front() - known->sent_s;
      last = std::max(first_s[i], waited_s);
      if (got == 0) first_s[i] = last;
      if (got == load_.requests[i].output_tokens) last = known->arrivals_s.back() - known->sent_s;
    }
    last += decode_s_ *
            static_cast<double>(load_.requests[i].output_tokens - std::max<int64_t>(1, got));
    if (known != nullptr && known->sent_s >= 0) {
      duration_s = std::max(duration_s, known->sent_s + last - begun_s);
    }
  }
  LoadReport report = ReportOf(first_s, last_s);
  report.duration_s = duration_s;
  return report;
}

}  // namespace trimtab
