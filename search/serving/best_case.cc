#include "search/serving/best_case.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/units.h"
#include "engine/infer/scheduler/acceptance.h"

namespace trimtab {
BestCases::BestCases(const ServingPredictor& predictor, const ServiceLoad& load,
                     const ServingConfig& config)
    : predictor_(predictor),
      load_(load),
      bounds_(predictor, config.model),
      block_size_(config.block_size),
      prefix_cache_(config.prefix_cache),
      proposed_(config.proposed_tokens()) {
  if (const auto& draft = predictor.speculation().draft) {
    draft_bounds_.emplace(*draft, config.draft.model);
  }
  const ServingSteps& steps = predictor.steps();
  // A step reads what a sequence has in the cache for all of its rows together.
  const double rows_together = static_cast<double>(1 + proposed_);
  int64_t shortest = load.requests.front().prompt_tokens;
  for (const LoadRequest& each : load.requests) {
    prompt_total_ += RowsOf(each);
    shortest = std::min(shortest, each.prompt_tokens);
    const int64_t more = each.output_tokens - 1;
    if (proposed_ > 0) left_.push_back(LeftOf(each));
    if (more == 0) continue;
    StepRows decoding = steps.RowsOfDecoding(more, each.prompt_tokens);
    decoding.keys /= rows_together;
    answer_total_ += decoding;
    sequence_steps_ += static_cast<double>(proposed_ > 0 ? left_.back().front().steps : more);
    if (draft_bounds_) {
      AddDraft(each, left_.back()[0], draft_total_[0]);
      AddDraft(each, left_.back()[1], draft_total_[1]);
    }
    const int64_t others = Found(each) / block_size_;  // blocks that are perhaps another's
    for (int64_t token = 0; token < more; ++token) {
      const int64_t blocks = CeilDiv(each.prompt_tokens + token + 1, block_size_);
      block_steps_ += static_cast<double>(blocks - others) / rows_together;
    }
  }
  decode_s_ = bounds_.Seconds(steps.RowsOf(1, shortest, 1));
  if (draft_bounds_) {
    draft_s_ =
        draft_bounds_->Seconds(predictor.speculation().draft->steps().RowsOf(1, shortest, 1));
  }
  const std::vector<double> at_once(load.requests.size());
  for (const bool apart : {false, true}) {
    for (const bool may_preempt : {false, true}) {
      const BestCaseOf of = {.prefill = apart ? 1 : 0, .may_preempt = may_preempt};
      rough_[apart][may_preempt] = ReportOf(at_once, of);
    }
  }
}

std::vector<BestCases::Left> BestCases::LeftOf(const LoadRequest& request) const {
  const double acceptance = predictor_.speculation().acceptance;
  const int64_t all = request.output_tokens;
  std::vector<Left> left(static_cast<size_t>(all));  // by the tokens that have come, less one
  int64_t stand = 0;  // of the tokens that follow, were they proposed
  for (int64_t got = all - 1; got > 0; --got) {
    const bool stands = IsAccepted(acceptance, request.seed, request.prompt_tokens + got);
    stand = stands ? stand + 1 : 0;
    // What is proposed stands up to the first token that does not; another comes in any case.
    const int64_t proposed = std::min(proposed_, all - got - 1);
    const Left& after = left[static_cast<size_t>(got + std::min(stand, proposed))];
    left[static_cast<size_t>(got - 1)] = {
        .steps = after.steps + 1, .proposed = after.proposed + static_cast<int32_t>(proposed)};
  }
  return left;
}

void BestCases::AddDraft(const LoadRequest& request, const Left& left, StepRows& total) const {
  if (left.proposed == 0) return;
  // It is given the prompt, and then each token that it proposes but the last.
  const ServingSteps& steps = predictor_.speculation().draft->steps();
  total += steps.RowsOf(request.prompt_tokens, 0, 0);
  StepRows rows = steps.RowsOf(1, request.prompt_tokens, 1);
  for (double StepRows::*each : {&StepRows::decodes, &StepRows::outputs, &StepRows::keys,
                                 &StepRows::scores, &StepRows::decode_scores}) {
    rows.*each *= static_cast<double>(left.proposed);
  }
  total += rows;
}

double BestCases::SecondsLeft(size_t index, int64_t got, const BestCaseOf& of) const {
  const int64_t tokens = load_.requests[index].output_tokens - got;
  if (proposed_ == 0 || tokens == 0) return decode_s_ * static_cast<double>(tokens);
  // Who takes a sequence over goes on with it once before anything is proposed.
  if (of.prefill > 0 && got == 1) return decode_s_ + SecondsLeft(index, 2, of);
  const Left& left = left_[index][static_cast<size_t>(got - 1)];
  return decode_s_ * left.steps + (of.may_preempt ? 0 : draft_s_ * left.proposed);
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

double BestCases::StepBounds::Seconds(StepRows rows) const {
  // Scores of decoding rows are computed beside reading their keys, but in steps with other rows.
  if (!latent_) rows.scores -= rows.decode_scores;
  ServingWork work = predictor_.steps().WorkOf(rows);
  // Experts that tokens share are read once, so their part is no convex function of the tokens: it
  // is bounded by that of one.
  work.all_tokens = 1;
  const ServingBreakdown parts = predictor_.pricer().Price(work);
  return parts.seconds() - parts.prompt_floor_s;
}

BestCases::PromptSeconds BestCases::SecondsOf(const LoadRequest& request,
                                              int64_t tokens_per_step) const {
  StepRows prompt = RowsOf(request);
  const auto rows = static_cast<int64_t>(prompt.rows());
  const auto pieces = static_cast<double>(CeilDiv(rows, tokens_per_step));
  PromptSeconds seconds = {.alone = pieces * bounds_.Seconds(prompt / pieces)};
  const double steps = prompt.rows() / static_cast<double>(tokens_per_step);
  prompt.outputs = 0;
  seconds.amid_others = steps * bounds_.Seconds(prompt / steps);
  return seconds;
}

std::vector<double> BestCases::FirstTokens(const BestCaseOf& of) const {
  const int64_t replicas = of.shares();
  std::vector<double> seconds;
  std::vector<double> free_s(static_cast<size_t>(replicas));  // of prompts that came before
  // Many prompts of a load are as long as others, and prices are powers.
  std::map<std::pair<int64_t, int64_t>, PromptSeconds> known;  // by tokens, and those found
  for (size_t i = 0; i < load_.requests.size(); ++i) {
    const LoadRequest& each = load_.requests[i];
    const auto [place, is_new] = known.try_emplace({each.prompt_tokens, Found(each)});
    if (is_new) place->second = SecondsOf(each, of.limits.tokens_per_step);
    const PromptSeconds& prompt = place->second;
    seconds.push_back(prompt.alone);
    // Prompts are computed in the order in which they come, in steps that are full at best. When a
    // client's second request comes, nobody knows; nor which of several that compute prompts alone
    // gets a request.
    if (of.prefill > 1) continue;
    const bool open = load_.concurrency == 0;
    if (!open && std::cmp_greater_equal(i, load_.concurrency)) continue;
    const int64_t replica = ReplicaOf(load_, replicas, i);
    const double sent_s = open ? each.at_s : 0;
    double& free = free_s[static_cast<size_t>(replica)];
    free = std::max(free, sent_s) + prompt.amid_others;
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

LoadReport BestCases::ReportOf(const std::vector<double>& first_s, const BestCaseOf& of) const {
  std::vector<double> last_s = first_s;
  for (size_t i = 0; i < last_s.size(); ++i) last_s[i] += SecondsLeft(i, 1, of);
  return ReportOf(first_s, last_s);
}

double BestCases::BusySeconds(const BestCaseOf& of, const StepRows& total, int64_t engines,
                              double least_steps) const {
  if (total.rows() == 0) return 0;
  const double rows = static_cast<double>(engines * of.limits.tokens_per_step);
  const double steps = std::max(least_steps, total.rows() / rows);
  return steps * bounds_.Seconds(total / (static_cast<double>(engines) * steps));
}

BestCase BestCases::WithRate(LoadReport report, const BestCaseOf& of) const {
  const bool apart = of.prefill > 0;
  const int64_t answering = of.replicas - of.prefill;
  const auto count = static_cast<double>(answering);
  double sequences = static_cast<double>(of.limits.sequences);
  if (load_.concurrency > 0) {
    sequences = std::min(sequences, static_cast<double>(CeilDiv(load_.concurrency, answering)));
  }
  // Steps of an average replica that brings answers on: each has rows for so many tokens, brings
  // each sequence on by one and what is proposed, and finds its sequences' blocks in the cache. All
  // have a step but where requests are not shared out in turn.
  const double steps = std::max({apart ? 1 / count : 1, sequence_steps_ / count / sequences,
                                 block_steps_ / count / static_cast<double>(of.blocks)});
  StepRows total = answer_total_;
  if (!apart) total += prompt_total_;
  double busy_s = BusySeconds(of, total, answering, steps);
  const StepRows& drafted = draft_total_[apart];
  if (!of.may_preempt && drafted.decodes > 0) {
    const auto rows = static_cast<double>(of.limits.tokens_per_step);
    const double drafts =
        std::max(drafted.rows() / count / rows, drafted.decodes / count / sequences);
    busy_s += drafts * draft_bounds_->Seconds(drafted / (count * drafts));
  }
  if (apart) {
    const double first = BusySeconds(of, prompt_total_, of.prefill, 1.0 / of.prefill);
    busy_s = std::max(busy_s, first);
  }
  report.duration_s = busy_s;
  if (load_.concurrency == 0) {
    const double sent_s = load_.requests.back().at_s - load_.requests.front().at_s;
    report.duration_s = std::max(report.duration_s, sent_s);
  }
  return {.report = std::move(report), .busy_s = busy_s};
}

BestCase BestCases::Rough(const BestCaseOf& of) const {
  return WithRate(rough_[of.prefill > 0][of.may_preempt], of);
}

BestCase BestCases::Of(const BestCaseOf& of) {
  const std::tuple key(of.limits.tokens_per_step, of.replicas, of.prefill);
  const auto [first, no_first] = first_tokens_.try_emplace(key);
  if (no_first) first->second = FirstTokens(of);
  const auto [place, is_new] =
      reports_.try_emplace(std::tuple_cat(key, std::tuple(of.may_preempt)));
  if (is_new) place->second = ReportOf(first->second, of);
  return WithRate(place->second, of);
}

LoadReport BestCases::Outlook(const LoadReport& best, const BestCaseOf& of,
                              const ServingProgress& progress) const {
  std::vector<double> first_s =
      first_tokens_.at({of.limits.tokens_per_step, of.replicas, of.prefill});
  std::vector<size_t> turns(static_cast<size_t>(of.shares()));  // of each replica's requests
  std::vector<double> last_s(first_s.size());
  const double begun_s = load_.requests.front().at_s;
  double duration_s = best.duration_s;
  for (size_t i = 0; i < first_s.size(); ++i) {
    const auto replica = static_cast<size_t>(ReplicaOf(load_, of.shares(), i));
    const size_t turn = turns[replica]++;
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
      // One of several engines may be amid a step: what is left has begun behind the last token.
      if (got > 0 && of.prefill > 0) last = known->arrivals_s.back() - known->sent_s;
      if (got == load_.requests[i].output_tokens) last = known->arrivals_s.back() - known->sent_s;
    }
    last += SecondsLeft(i, std::max<int64_t>(1, got), of);
    if (known != nullptr && known->sent_s >= 0) {
      duration_s = std::max(duration_s, known->sent_s + last - begun_s);
    }
  }
  LoadReport report = ReportOf(first_s, last_s);
  report.duration_s = duration_s;
  return report;
}

}  // namespace trimtab
