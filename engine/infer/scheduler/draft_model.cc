#include "engine/infer/scheduler/draft_model.h"

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/infer/api/sampler.h"
#include "engine/infer/scheduler/sequence_grammar.h"

namespace trimtab {

int64_t DraftLimits::blocks_per_sequence() const { return CeilDiv(sequence_length, block_size); }

DraftModel::DraftModel(const DraftLimits& limits, int64_t vocab_size, ModelExecutor& runner)
    : limits_(limits),
      vocab_(static_cast<size_t>(vocab_size)),
      runner_(runner),
      slots_(static_cast<size_t>(limits.sequences)) {
  TRIMTAB_ASSERT(runner.vocab_size() >= vocab_size, "a vocabulary of {} for one of {}",
                 runner.vocab_size(), vocab_size);
}

std::vector<size_t> DraftModel::SlotsOf(std::span<const ProposalRequest> requests) {
  TRIMTAB_ASSERT(requests.size() <= slots_.size(), "{} sequences, room for {}", requests.size(),
                 slots_.size());
  const auto asked = [&](RequestId id) {
    return std::ranges::any_of(requests, [id](const auto& each) { return each.id == id; });
  };
  std::vector<size_t> found;
  for (const ProposalRequest& request : requests) {
    auto slot = std::ranges::find(slots_, request.id, &Slot::id);
    if (slot == slots_.end()) {
      slot = std::ranges::find_if(slots_, [&](const Slot& each) { return !asked(each.id); });
      *slot = {.id = request.id};
    }
    // What it was fed beyond what stood is forgotten; the last token is fed for its logits.
    const auto same = std::ranges::mismatch(slot->tokens, request.history).in1;
    const auto known = std::min(same - slot->tokens.begin(), std::ssize(request.history) - 1);
    slot->tokens.resize(static_cast<size_t>(known));
    found.push_back(static_cast<size_t>(slot - slots_.begin()));
  }
  return found;
}

PlannedSequence DraftModel::Next(size_t slot, std::span<const int32_t> text, int64_t budget) const {
  const auto known = std::ssize(slots_[slot].tokens);
  const int64_t count = std::min(budget, std::ssize(text) - known);
  const auto first = text.begin() + known;
  std::vector<int32_t> blocks(static_cast<size_t>(limits_.blocks_per_sequence()));
  std::iota(blocks.begin(), blocks.end(),
            static_cast<int32_t>(static_cast<int64_t>(slot) * limits_.blocks_per_sequence()));
  return {.tokens = {first, first + count},
          .first_position = known,
          .blocks = std::move(blocks),
          .logits = known + count == std::ssize(text) ? 1 : 0};
}

std::vector<std::vector<int32_t>> DraftModel::Propose(std::span<const ProposalRequest> requests) {
  const std::vector<size_t> slots = SlotsOf(requests);
  std::vector<std::vector<int32_t>> texts;
  std::vector<int64_t> most;
  std::vector<std::optional<GrammarState>> grammars;
  for (const ProposalRequest& each : requests) {
    texts.emplace_back(each.history.begin(), each.history.end());
    most.push_back(each.most);
    grammars.emplace_back(each.grammar != nullptr ? std::optional(*each.grammar) : std::nullopt);
  }
  const auto proposed = [&](size_t i) {
    return std::ssize(texts[i]) - std::ssize(requests[i].history);
  };
  while (true) {
    StepPlan plan;
    std::vector<size_t> planned;
    int64_t budget = limits_.tokens_per_step;
    for (size_t i = 0; i < requests.size() && budget > 0; ++i) {
      if (proposed(i) >= most[i]) continue;
      plan.sequences.push_back(Next(slots[i], texts[i], budget));
      planned.push_back(i);
      budget -= std::ssize(plan.sequences.back().tokens);
    }
    if (planned.empty()) break;
    const std::vector<float> logits = runner_.Run(plan);
    const auto width = static_cast<size_t>(runner_.vocab_size());
    size_t row = 0;
    for (size_t p = 0; p < planned.size(); ++p) {
      const PlannedSequence& sequence = plan.sequences[p];
      const size_t i = planned[p];
      std::vector<int32_t>& known = slots_[slots[i]].tokens;
      known.insert(known.end(), sequence.tokens.begin(), sequence.tokens.end());
      if (sequence.logits == 0) continue;
      const auto own = std::span(logits).subspan(row++ * width, vocab_);
      try {
        std::vector<uint64_t> mask;
        if (grammars[i]) {
          mask = GrammarMask(*grammars[i], requests[i].request->stop_tokens, std::ssize(own));
        }
        const TokenRules rules = {.request = requests[i].request,
                                  .prompt_tokens = requests[i].prompt_tokens,
                                  .mask = mask};
        texts[i].push_back(SampleToken(own, texts[i], requests[i].request->sampling, rules).id);
        // Behind the end of a text nothing is proposed.
        if (grammars[i] && !grammars[i]->Accept(texts[i].back())) most[i] = proposed(i);
      } catch (const InputError&) {
        // No numbers, or no token that may follow: no proposal. What follows is the model's to say:
        // only speed is lost.
        most[i] = proposed(i);
      }
    }
  }
  std::vector<std::vector<int32_t>> proposals;
  for (size_t i = 0; i < requests.size(); ++i) {
    proposals.emplace_back(texts[i].end() - proposed(i), texts[i].end());
  }
  return proposals;
}

}  // namespace trimtab
