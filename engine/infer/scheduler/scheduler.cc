#include "engine/infer/scheduler/scheduler.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/infer/api/sampler.h"
#include "engine/infer/scheduler/acceptance.h"
#include "engine/infer/scheduler/scheduler_sequence.h"

namespace trimtab {

Scheduler::Scheduler(const SchedulerOptions& options, ModelExecutor& runner, const Clock& clock)
    : options_(options), runner_(runner), clock_(clock), pool_(options.blocks) {
  const EngineLimits& limits = options_.limits;
  TRIMTAB_ASSERT(limits.sequences > 0 && limits.tokens_per_step > 0 && limits.sequence_length > 0,
                 "limits of {} sequences, {} tokens per step, {} tokens", limits.sequences,
                 limits.tokens_per_step, limits.sequence_length);
  TRIMTAB_ASSERT(limits.tokens_per_step >= limits.sequences, "{} tokens per step for {} sequences",
                 limits.tokens_per_step, limits.sequences);
  TRIMTAB_ASSERT(BlocksFor(limits.sequence_length) <= options_.blocks,
                 "{} blocks of {} tokens for sequences of {}", options_.blocks, options_.block_size,
                 limits.sequence_length);
  metrics_.total_blocks = options_.blocks;
  const int64_t proposed = std::max(options_.lookup_tokens, options_.draft_tokens);
  most_logit_rows_ = std::min(limits.tokens_per_step, limits.sequences * (1 + proposed));
}

Scheduler::~Scheduler() = default;

int64_t Scheduler::BlocksFor(int64_t tokens) const { return CeilDiv(tokens, options_.block_size); }

std::variant<RequestId, Refusal> Scheduler::AddRequest(GenerationRequest request) {
  const auto refuse = [this](std::string reason, bool busy = false) {
    ++metrics_.refused_requests;
    return Refusal{std::move(reason), busy};
  };
  std::string fault = FaultOf(request, options_.limits, vocab_size());
  if (!fault.empty()) return refuse(std::move(fault));
  if (std::ssize(waiting_) >= options_.limits.waiting) {
    return refuse(fmt::format("{} requests wait already", waiting_.size()), /*busy=*/true);
  }
  auto sequence = std::make_unique<Sequence>();
  sequence->id = ++last_id_;
  sequence->prompt_tokens = std::ssize(request.prompt);
  sequence->tokens = std::move(request.prompt);
  sequence->request = std::move(request);
  StartGrammar(*sequence);
  sequence->arrived_s = clock_.Now();
  waiting_.push_back(std::move(sequence));
  return last_id_;
}

bool Scheduler::Abort(RequestId id) {
  const auto has_id = [id](const SequencePtr& each) { return each->id == id; };
  const auto running = std::find_if(running_.begin(), running_.end(), has_id);
  const auto waiting = std::find_if(waiting_.begin(), waiting_.end(), has_id);
  const auto ready = std::find_if(ready_.begin(), ready_.end(), has_id);
  if (running != running_.end()) {
    ReleaseBlocks(**running);
    running_.erase(running);
  } else if (waiting != waiting_.end()) {
    if ((*waiting)->moved) copied_.push_back((*waiting)->moved->held);
    waiting_.erase(waiting);
  } else if (ready != ready_.end()) {
    ReleaseBlocks(**ready);
    ready_.erase(ready);
  } else {
    return false;
  }
  ++metrics_.aborted_requests;
  return true;
}

EngineMetrics Scheduler::metrics() const {
  EngineMetrics now = metrics_;
  now.running = std::ssize(running_);
  now.waiting = std::ssize(waiting_);
  now.used_blocks = pool_.used();
  now.peak_mem_bytes = runner_.peak_mem_bytes();
  return now;
}

void Scheduler::ReleaseBlocks(Sequence& sequence) {
  // The last ones first: what others are likelier to share stays longer.
  while (!sequence.blocks.empty()) {
    pool_.Release(sequence.blocks.back());
    sequence.blocks.pop_back();
  }
  sequence.chains.clear();
  sequence.computed = 0;
}

void Scheduler::Preempt() {
  SequencePtr last = std::move(running_.back());
  running_.pop_back();
  ReleaseBlocks(*last);
  last->states.clear();            // of an embedding, which begins again
  last->known_registrations = -1;  // its new tokens may be in the cache as well
  ++metrics_.preemptions;
  // All that wait came later: sequences are admitted in order.
  waiting_.push_front(std::move(last));
}

bool Scheduler::Reserve(Sequence& sequence, int64_t tokens) {
  while (std::ssize(sequence.blocks) < BlocksFor(tokens)) {
    if (const auto block = pool_.Allocate()) {
      sequence.blocks.push_back(*block);
      continue;
    }
    const bool own = running_.back().get() == &sequence;
    Preempt();
    if (own) return false;
  }
  return true;
}

const std::vector<BlockPool::Found>& Scheduler::KnownPrefix(Sequence& sequence) const {
  std::vector<BlockPool::Found>& known = sequence.known;
  // States and logits that are asked of the prompt are in no cache.
  if (!options_.prefix_cache || sequence.scores() || sequence.embeds()) {
    known.clear();
    sequence.known_registrations = -1;
    return known;
  }
  // A found block holds a prefix of the tokens until it is allocated again.
  const auto lost = std::ranges::find_if_not(
      known, [this](const BlockPool::Found& each) { return pool_.Holds(each); });
  const bool all = lost == known.end();
  known.erase(lost, known.end());
  if (all && sequence.known_registrations == pool_.registrations()) return known;
  const int64_t size = options_.block_size;
  // The last token is computed in any case: its logits are wanted.
  for (int64_t begin = std::ssize(known) * size; begin + size < sequence.length(); begin += size) {
    const auto first = sequence.tokens.begin() + begin;
    const auto found = pool_.Find(known.empty() ? 0 : known.back().chain, {first, first + size});
    if (!found) break;
    known.push_back(*found);
  }
  sequence.known_registrations = pool_.registrations();
  return known;
}

void Scheduler::TakePrefix(Sequence& sequence) {
  for (const BlockPool::Found& each : KnownPrefix(sequence)) {
    pool_.Take(each.block);
    sequence.blocks.push_back(each.block);
    sequence.chains.push_back(each.chain);
    sequence.computed += options_.block_size;
  }
}

void Scheduler::RegisterFullBlocks(Sequence& sequence) {
  if (!options_.prefix_cache) return;
  const int64_t size = options_.block_size;
  while ((std::ssize(sequence.chains) + 1) * size <= sequence.computed) {
    const size_t index = sequence.chains.size();
    const BlockPool::ChainId before = index == 0 ? 0 : sequence.chains.back();
    const auto first = sequence.tokens.begin() + static_cast<int64_t>(index) * size;
    sequence.chains.push_back(
        pool_.Register(sequence.blocks[index], before, {first, first + size}));
  }
}

void Scheduler::Admit(int64_t& budget, int64_t& logit_rows, std::vector<Due>& due) {
  const bool embeds = plan_.output == StepOutput::kStates;
  while (!waiting_.empty() && budget > 0 && std::ssize(running_) < options_.limits.sequences) {
    Sequence& sequence = *waiting_.front();
    if (sequence.embeds() != embeds) return;
    TakePrefix(sequence);
    // With room for the token that follows, or it would soon be preempted.
    if (BlocksFor(sequence.length() + 1) - std::ssize(sequence.blocks) > pool_.available()) {
      ReleaseBlocks(sequence);
      return;
    }
    if (!sequence.moved) metrics_.cached_tokens += sequence.computed;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    // There are enough, so that nobody is preempted.
    Reserve(sequence, sequence.length());
    CopyMoved(sequence);
    const int64_t tokens = PromptTokens(sequence, budget, logit_rows);
    if (tokens == 0) return;
    budget -= tokens;
    due.push_back({&sequence, tokens});
  }
}

int64_t Scheduler::PromptTokens(const Sequence& sequence, int64_t budget,
                                int64_t& logit_rows) const {
  int64_t tokens = std::min(budget, sequence.due());
  if (sequence.embeds()) return tokens;
  // Rows go from the end: what is left out of a step comes in the next one.
  const int64_t too_many = std::max<int64_t>(0, sequence.rows_asked(tokens) - logit_rows);
  tokens = std::max<int64_t>(0, tokens - too_many);
  if (tokens > 0) logit_rows -= sequence.rows_asked(tokens);
  return tokens;
}

StepOutput Scheduler::NextOutput() const {
  bool texts = false;
  bool embeddings = false;
  for (const SequencePtr& each : running_) (each->embeds() ? embeddings : texts) = true;
  if (!waiting_.empty()) (waiting_.front()->embeds() ? embeddings : texts) = true;
  if (texts && embeddings) {
    return plan_.output == StepOutput::kLogits ? StepOutput::kStates : StepOutput::kLogits;
  }
  return embeddings ? StepOutput::kStates : StepOutput::kLogits;
}

std::vector<std::vector<int32_t>> Scheduler::Proposals() const {
  if (options_.draft == nullptr && options_.lookup_tokens == 0) return {};
  std::vector<std::vector<int32_t>> proposals(running_.size());
  std::vector<ProposalRequest> requests;
  std::vector<size_t> places;
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.decodes()) continue;
    const int64_t most =
        std::min({options_.draft != nullptr ? options_.draft_tokens : options_.lookup_tokens,
                  options_.limits.sequence_length - sequence.length() - 1,
                  sequence.request.max_tokens - sequence.new_tokens() - 1});
    if (most <= 0) continue;
    if (options_.draft == nullptr) {
      proposals[i] = options_.acceptance ? std::vector<int32_t>(static_cast<size_t>(most))
                                         : sequence.continuations.Find(sequence.tokens, most);
      continue;
    }
    requests.push_back({.id = sequence.id,
                        .history = sequence.tokens,
                        .most = most,
                        .request = &sequence.request,
                        .prompt_tokens = sequence.prompt_tokens,
                        .grammar = sequence.grammar ? sequence.grammar->state() : nullptr});
    places.push_back(i);
  }
  if (requests.empty()) return proposals;
  std::vector<std::vector<int32_t>> drafts = options_.draft->Propose(requests);
  for (size_t i = 0; i < places.size(); ++i) proposals[places[i]] = std::move(drafts[i]);
  return proposals;
}

std::vector<Scheduler::Due> Scheduler::PlanStep() {
  int64_t budget = options_.limits.tokens_per_step;
  int64_t logit_rows = most_logit_rows_;
  std::vector<Due> due;
  plan_.output = NextOutput();
  if (plan_.output == StepOutput::kStates) {
    PlanPrompts(budget, logit_rows, due);
    return due;
  }
  std::vector<std::vector<int32_t>> proposals = Proposals();
  // Preemption takes from the end, which is where those are that have not been planned yet.
  for (size_t i = 0; i < running_.size(); ++i) {
    Sequence& sequence = *running_[i];
    if (!sequence.decodes()) continue;
    Due next = {&sequence, 1};
    if (!proposals.empty()) next.proposed = std::move(proposals[i]);
    if (sequence.grammar) next.proposed.resize(sequence.grammar->Fitting(next.proposed));
    const auto others = std::ssize(running_) - static_cast<int64_t>(i) - 1;
    const auto room = static_cast<size_t>(std::max<int64_t>(0, budget - 1 - others));
    next.proposed.resize(std::min(next.proposed.size(), room));
    const auto wanted = sequence.length() + std::ssize(next.proposed);
    if (BlocksFor(wanted) - std::ssize(sequence.blocks) > pool_.available()) {
      next.proposed.clear();  // nobody is preempted for a guess
    }
    if (!Reserve(sequence, sequence.length() + std::ssize(next.proposed))) break;
    budget -= 1 + std::ssize(next.proposed);
    logit_rows -= 1 + std::ssize(next.proposed);
    due.push_back(std::move(next));
  }
  PlanPrompts(budget, logit_rows, due);
  return due;
}

void Scheduler::PlanPrompts(int64_t& budget, int64_t& logit_rows, std::vector<Due>& due) {
  const bool embeds = plan_.output == StepOutput::kStates;
  for (const SequencePtr& sequence : running_) {
    if (sequence->decodes() || sequence->embeds() != embeds || budget == 0) continue;
    const int64_t tokens = PromptTokens(*sequence, budget, logit_rows);
    if (tokens == 0) continue;
    budget -= tokens;
    due.push_back({sequence.get(), tokens});
  }
  Admit(budget, logit_rows, due);
}

FinishReason Scheduler::Ends(const Sequence& sequence, int32_t token) const {
  const std::vector<int32_t>& stops = sequence.request.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return FinishReason::kStop;
  const bool full = sequence.new_tokens() + 1 >= sequence.request.max_tokens ||
                    sequence.length() + 1 >= options_.limits.sequence_length;
  return full ? FinishReason::kLength : FinishReason::kNone;
}

bool Scheduler::IsAccepted(const Sequence& sequence, int32_t proposed, SampledToken& next) const {
  if (!options_.acceptance) return proposed == next.id;
  const uint64_t seed = sequence.request.sampling.seed;
  const bool stands = trimtab::IsAccepted(*options_.acceptance, seed, sequence.length());
  if (stands) next.id = proposed;
  return stands;
}

RequestUpdate Scheduler::Advance(const Due& due, std::span<const float> logits) {
  Sequence& sequence = *due.sequence;
  RequestUpdate update = {.id = sequence.id};
  if (!sequence.decodes()) metrics_.prompt_tokens += due.tokens;
  const bool scored_before = !sequence.scores();
  sequence.computed += due.tokens;
  metrics_.proposed_tokens += std::ssize(due.proposed);
  const auto vocab = static_cast<size_t>(vocab_size());
  if (!scored_before) {
    const auto rows = static_cast<int64_t>(logits.size() / vocab);
    try {
      logits = Score(sequence, sequence.computed - rows, logits);
    } catch (const InputError& error) {
      update.finish = FinishReason::kError;
      update.failure = error.what();
      return update;
    }
    if (!sequence.scores()) update.prompt = sequence.scored;
    if (!sequence.scores() && sequence.request.max_tokens == 0) {
      update.finish = FinishReason::kLength;
      return update;
    }
  }
  // Each proposed token stands as long as it is the one that is chosen.
  for (size_t row = 0; (row + 1) * vocab <= logits.size(); ++row) {
    std::optional<SampledToken> chosen;
    try {
      chosen = Choose(sequence, logits.subspan(row * vocab, vocab));
    } catch (const InputError& error) {
      // The others' logits are their own. What the cache holds of this text nobody shares.
      update.finish = FinishReason::kError;
      update.failure = error.what();
      return update;
    }
    if (!chosen) {
      update.finish = FinishReason::kStop;
      break;
    }
    SampledToken& next = *chosen;
    const bool checked = row < due.proposed.size();
    const bool foreseen = checked && IsAccepted(sequence, due.proposed[row], next);
    update.finish = Ends(sequence, next.id);
    if (update.finish == FinishReason::kStop) break;
    metrics_.checked_tokens += checked ? 1 : 0;
    sequence.tokens.push_back(next.id);
    if (sequence.grammar && sequence.grammar->Take(next.id)) update.finish = FinishReason::kStop;
    ++metrics_.generated_tokens;
    update.tokens.push_back(std::move(next));
    if (update.finish != FinishReason::kNone || !foreseen) break;
    ++sequence.computed;
    ++metrics_.accepted_tokens;
  }
  RegisterFullBlocks(sequence);
  return update;
}

std::span<const float> Scheduler::Score(Sequence& sequence, int64_t first_row,
                                        std::span<const float> logits) const {
  const auto vocab = static_cast<size_t>(vocab_size());
  std::vector<SampledToken>& scored = sequence.scored;
  if (scored.empty()) scored.push_back({.id = sequence.tokens.front()});
  for (int64_t row = first_row; !logits.empty() && sequence.scores(); ++row) {
    TRIMTAB_ASSERT(row + 1 == std::ssize(scored), "row {} scores token {}", row, scored.size());
    scored.push_back(ScoreToken(logits.first(vocab), sequence.tokens[scored.size()],
                                *sequence.request.prompt_log_probabilities, row + 1));
    logits = logits.subspan(vocab);
  }
  return logits;
}

RequestUpdate Scheduler::AddStates(const Due& due, std::span<const float> states, int64_t rows) {
  Sequence& sequence = *due.sequence;
  RequestUpdate update = {.id = sequence.id};
  metrics_.prompt_tokens += due.tokens;
  sequence.computed += due.tokens;
  const size_t width = rows > 0 ? states.size() / static_cast<size_t>(rows) : 0;
  if (sequence.states.empty()) sequence.states.assign(width, 0.0f);
  for (size_t i = 0; i < states.size(); ++i) sequence.states[i % width] += states[i];
  if (sequence.due() > 0) return update;
  const bool mean = sequence.request.pooling == Pooling::kMean;
  update.embedding = std::move(sequence.states);
  for (float& value : update.embedding) {
    if (mean) value /= static_cast<float>(sequence.prompt_tokens);
  }
  const bool numbers =
      std::ranges::all_of(update.embedding, [](float value) { return std::isfinite(value); });
  update.finish = numbers ? FinishReason::kLength : FinishReason::kError;
  if (!numbers) update.failure = "the model's states of the prompt are not finite numbers";
  return update;
}

std::vector<RequestUpdate> Scheduler::Step() {
  std::vector<Due> all_due = PlanStep();
  // Where nothing of its kind can go on, the others' turn comes at once.
  if (all_due.empty() && HasWork()) all_due = PlanStep();
  if (all_due.empty()) return {};
  plan_.sequences.resize(all_due.size());
  for (size_t i = 0; i < all_due.size(); ++i) {
    const Due& due = all_due[i];
    const Sequence& sequence = *due.sequence;
    const auto first = sequence.tokens.begin() + sequence.computed;
    PlannedSequence& planned = plan_.sequences[i];
    planned.tokens.assign(first, first + due.tokens);
    planned.tokens.insert(planned.tokens.end(), due.proposed.begin(), due.proposed.end());
    planned.first_position = sequence.computed;
    planned.blocks = sequence.blocks;
    planned.logits = sequence.rows_asked(due.tokens) + std::ssize(due.proposed);
  }
  const std::vector<float> logits = RunPlan(all_due);
  ++metrics_.steps;
  std::vector<RequestUpdate> updates;
  updates.reserve(all_due.size());
  std::span<const float> rest = logits;
  const int64_t asked = plan_.logit_rows();
  const size_t width = asked > 0 ? logits.size() / static_cast<size_t>(asked) : 0;
  for (size_t i = 0; i < all_due.size(); ++i) {
    const int64_t rows = plan_.sequences[i].logits;
    const auto count = static_cast<size_t>(rows) * width;
    RequestUpdate update = all_due[i].sequence->embeds()
                               ? AddStates(all_due[i], rest.first(count), rows)
                               : Advance(all_due[i], rest.first(count));
    rest = rest.subspan(count);
    if (update.has_news()) updates.push_back(std::move(update));
  }
  std::sort(updates.begin(), updates.end(),
            [](const RequestUpdate& a, const RequestUpdate& b) { return a.id < b.id; });
  for (const RequestUpdate& update : updates) {
    if (update.finish == FinishReason::kNone) continue;
    const auto done = std::find_if(running_.begin(), running_.end(),
                                   [&](const SequencePtr& each) { return each->id == update.id; });
    ReleaseBlocks(**done);
    running_.erase(done);
    ++(update.finish == FinishReason::kError ? metrics_.aborted_requests
                                             : metrics_.finished_requests);
  }
  if (options_.hands_over) SetReadyAside();
  return updates;
}

}  // namespace trimtab
