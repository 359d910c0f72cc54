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

BestCases::BestCases(const ServingPredictor& predictor, const ServiceLoad& load, int64_t block_size)
    : predictor_(predictor), load_(load) {
  const ServingSteps& steps = predictor.steps();
  int64_t shortest = load.requests.front().prompt_tokens;
  for (const LoadRequest& each : load.requests) {
    total_ += steps.RowsOf(each.prompt_tokens, 0, 1);
    for (int64_t token = 1; token < each.output_tokens; ++token) {
      const int64_t position = each.prompt_tokens + token - 1;
      total_ += steps.RowsOf(1, position, 1);
      block_steps_ += static_cast<double>(CeilDiv(position + 1, block_size));
    }
    output_tokens_ += each.output_tokens;
    shortest = std::min(shortest, each.prompt_tokens);
  }
  decode_s_ = Seconds(steps.RowsOf(1, shortest, 1));
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
    StepRows prompt = predictor_.steps().RowsOf(each.prompt_tokens, 0, 1);
    const auto pieces = static_cast<double>(CeilDiv(each.prompt_tokens, tokens_per_step));
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

const LoadReport& BestCases::Latencies(int64_t tokens_per_step, int64_t replicas) {
  const auto [place, is_new] = latencies_.try_emplace({tokens_per_step, replicas});
  if (!is_new) return place->second;
  std::vector<double> ttft, tpot, e2e;
  for (const double each : FirstTokens(tokens_per_step, replicas)) ttft.push_back(1e3 * each);
  for (size_t i = 0; i < ttft.size(); ++i) {
    const int64_t tokens = load_.requests[i].output_tokens;
    e2e.push_back(ttft[i] + 1e3 * decode_s_ * static_cast<double>(tokens - 1));
    if (tokens > 1) tpot.push_back(1e3 * decode_s_);
  }
  LoadReport& report = place->second;
  report.requests = std::ssize(load_.requests);
  report.output_tokens = output_tokens_;
  report.ttft = Summarise(std::move(ttft));
  report.tpot = Summarise(tpot);
  report.itl = Summarise(std::move(tpot));
  report.e2e = Summarise(std::move(e2e));
  return report;
}

LoadReport BestCases::Of(const EngineLimits& limits, int64_t blocks, int64_t replicas) {
  LoadReport report = Latencies(limits.tokens_per_step, replicas);
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
  report.duration_s = steps * Seconds(total_ / (count * steps));
  if (load_.concurrency == 0) {
    const double sent_s = load_.requests.back().at_s - load_.requests.front().at_s;
    report.duration_s = std::max(report.duration_s, sent_s);
  }
  return report;
}

}  // namespace trimtab
