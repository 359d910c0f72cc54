// What a scheduler does for sequences whose answers must fit a grammar.
#include <algorithm>
#include <exception>
#include <thread>

#include "engine/base/signals_blocked.h"
#include "engine/infer/api/sampler.h"
#include "engine/infer/scheduler/scheduler.h"
#include "engine/infer/scheduler/scheduler_sequence.h"

namespace trimtab {

void Scheduler::StartGrammar(Sequence& sequence) const {
  if (sequence.request.grammar == nullptr) return;
  const auto answer =
      std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.prompt_tokens));
  sequence.grammar.emplace(*sequence.request.grammar, options_.grammars.get(), answer);
}

std::vector<float> Scheduler::RunPlan(const std::vector<Due>& due) {
  const auto has_grammar = [](const Due& each) { return each.sequence->grammar.has_value(); };
  if (std::ranges::none_of(due, has_grammar)) return runner_.Run(plan_);
  const auto prepare = [&due] {
    for (const Due& each : due) {
      if (each.sequence->grammar) each.sequence->grammar->Prepare(each.proposed);
    }
  };
  std::jthread masks;
  {
    const SignalsBlocked blocked;
    masks = std::jthread(prepare);
  }
  return runner_.Run(plan_);
}

std::optional<SampledToken> Scheduler::Choose(const Sequence& sequence,
                                              std::span<const float> logits) const {
  TokenRules rules = {.request = &sequence.request, .prompt_tokens = sequence.prompt_tokens};
  std::vector<uint64_t> mask;
  if (sequence.grammar) {
    sequence.grammar->ThrowIfFaulty();
    mask = GrammarMask(*sequence.grammar->state(), sequence.request.stop_tokens, vocab_size());
    if (std::ranges::all_of(mask, [](uint64_t word) { return word == 0; })) return std::nullopt;
    rules.mask = mask;
  }
  return SampleToken(logits, sequence.tokens, sequence.request.sampling, rules);
}

}  // namespace trimtab
