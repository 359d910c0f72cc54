// Scheduler: continuous batching over a paged cache (Yu et al., Orca, OSDI 2022; Kwon et al.,
// PagedAttention, arXiv:2309.06180). It decides what each step works on; a ModelExecutor does the
// work.
//
// Requests are served in the order in which they came. Every step first brings on each running
// sequence whose prompt is done by one token, then fills up with prompts, in chunks where they do
// not fit. A waiting request is admitted when the cache has blocks for all the tokens it has so
// far. When blocks run out, the sequence that came last gives up its own and waits again, at the
// front; it computes them anew later, from the tokens that it has, so its text stays the same.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <span>

#include "engine/grammar/token_grammar.h"
#include "engine/infer/scheduler/block_pool.h"
#include "engine/infer/scheduler/clock.h"
#include "engine/infer/scheduler/handover.h"
#include "engine/infer/scheduler/proposer.h"
#include "engine/infer/scheduler/step_plan.h"

namespace trimtab {

struct SchedulerOptions {
  EngineLimits limits{};    // sequence_length above 0
  int64_t block_size = 16;  // tokens
  int64_t blocks = 0;       // of the cache
  bool prefix_cache = true;
  int64_t lookup_tokens = 0;  // proposed by n-gram look-up (lookup.h), per step; 0 = none
  Proposer* draft = nullptr;  // who proposes instead, or nobody. Not owned.
  int64_t draft_tokens = 0;   // proposed by it, per step
  /// Where texts are simulated, IsAccepted (acceptance.h) decides on each proposed token with this
  /// probability, and not what the model chooses. Look-up proposes always then.
  std::optional<double> acceptance{};
  /// Only computes prompts and the first tokens of their answers: others go on with them.
  bool hands_over = false;
  /// Compiles the grammars of requests; null: they end with an error.
  std::shared_ptr<GrammarCompiler> grammars{};
};

/// Steps that bring each sequence whose prompt is done on by one token, and are otherwise filled
/// with rows of one prompt, which they do not end.
struct SteadySteps {
  struct Sequence {
    RequestId id = 0;
    int64_t position = 0;  // of its row in the first of these steps; one more in each that follows
  };
  int64_t steps = 0;
  std::vector<Sequence> sequences{};
  int64_t prompt_rows = 0;      // of the one prompt, in each step; 0 = there is none
  int64_t prompt_position = 0;  // of the first of them in the first step
};

class Scheduler final : public DisaggregatedEngine {
 public:
  /// `runner` and `clock` must outlive it.
  Scheduler(const SchedulerOptions& options, ModelExecutor& runner, const Clock& clock);
  ~Scheduler() override;

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override;
  std::vector<RequestUpdate> Step() override;
  bool Abort(RequestId id) override;
  bool HasWork() const override;
  EngineMetrics metrics() const override;
  const EngineLimits& limits() const override { return options_.limits; }
  /// Blocks looked up in the prefix cache so far.
  int64_t prefix_lookups() const { return pool_.lookups(); }
  int64_t vocab_size() const override { return runner_.vocab_size(); }

  std::vector<TransferredSequence> TakePrefilled() override;
  void ReleaseBlocksOf(RequestId id) override;
  RequestId AddPrefilled(TransferredSequence moved) override;
  std::vector<PinnedBlocks> TakeReleasable() override;

  /// The steps that come now, up to one in which somebody may be admitted, preempted or done;
  /// requests that come or are aborted on the way change them. So a simulation need not plan each.
  SteadySteps NextSteadySteps() const;
  /// Takes the first `steps` of them as Step would with a runner that always brings `token`.
  void SkipSteadySteps(int64_t steps, int32_t token);

 private:
  struct Sequence;
  using SequencePtr = std::unique_ptr<Sequence>;

  /// What a step does with one running sequence.
  struct Due {
    Sequence* sequence;
    int64_t tokens = 0;               // of its own, from `computed` on
    std::vector<int32_t> proposed{};  // beyond its own
  };

  std::vector<Due> PlanStep();
  /// What the next step brings: texts and embeddings take turns where both have work.
  StepOutput NextOutput() const;
  /// Tokens of a prompt for a step, of at most `budget`; few enough rows of logits are asked.
  int64_t PromptTokens(const Sequence& sequence, int64_t budget, int64_t& logit_rows) const;
  /// Tokens that may follow each running sequence, in their order; none for those that do not
  /// decode. Empty where nobody proposes.
  std::vector<std::vector<int32_t>> Proposals() const;
  /// Makes sure that the sequence has blocks for its first `tokens` tokens; takes them from those
  /// that came later if need be. False when it has lost its own instead.
  bool Reserve(Sequence& sequence, int64_t tokens);
  void Admit(int64_t& budget, int64_t& logit_rows, std::vector<Due>& due);
  /// Adds what prompts have due, of those that run and then of those that wait.
  void PlanPrompts(int64_t& budget, int64_t& logit_rows, std::vector<Due>& due);
  /// Whether nobody is admitted as long as all that run go on by one token a step.
  bool AdmitsNobody() const;
  /// Blocks that those who decode need beyond their own to go on by so many tokens.
  int64_t BlocksToGoOn(int64_t tokens) const;
  /// The first of those that run whose prompt is not done; nobody if all are.
  Sequence* NextPrompt() const;
  /// Returns the cached blocks that a sequence may begin with, in order. Looks up only blocks that
  /// were not found before, and those only where blocks were registered since.
  const std::vector<BlockPool::Found>& KnownPrefix(Sequence& sequence) const;
  /// Takes what the prefix cache has of the sequence's tokens.
  void TakePrefix(Sequence& sequence);
  void RegisterFullBlocks(Sequence& sequence);
  void Preempt();
  /// Puts those whose prompts are done where they wait to be taken.
  void SetReadyAside();
  /// Copies what another engine has computed of a sequence that has its blocks now.
  void CopyMoved(Sequence& sequence);
  /// Whether the sequence would be admitted, were there a place for it.
  bool HasRoomFor(Sequence& sequence) const;
  void ReleaseBlocks(Sequence& sequence);
  int64_t BlocksFor(int64_t tokens) const;
  /// Whether a proposed token is what follows; `next` becomes it where that is imitated.
  bool IsAccepted(const Sequence& sequence, int32_t proposed, SampledToken& next) const;
  /// The tokens that follow from the logits of what was due [rows, V]; an error where those are no
  /// numbers.
  RequestUpdate Advance(const Due& due, std::span<const float> logits);
  /// Makes the sequence's grammar, if it has one, and takes it to where the answer is.
  void StartGrammar(Sequence& sequence) const;
  /// Runs the model over plan_. Masks of the grammars of `due` are made at the same time.
  std::vector<float> RunPlan(const std::vector<Due>& due);
  /// The token that follows the sequence; nothing where its grammar lets none follow.
  std::optional<SampledToken> Choose(const Sequence& sequence, std::span<const float> logits) const;
  /// Takes the log probabilities of prompt tokens from the first of `logits` [rows, V], and returns
  /// the rest.
  std::span<const float> Score(Sequence& sequence, int64_t first_row,
                               std::span<const float> logits) const;
  /// Advance for an embedding, from the states of what was due [rows, C].
  RequestUpdate AddStates(const Due& due, std::span<const float> states, int64_t rows);
  /// Whether the sequence ends, now that `token` follows it.
  FinishReason Ends(const Sequence& sequence, int32_t token) const;

  SchedulerOptions options_;
  ModelExecutor& runner_;
  const Clock& clock_;
  BlockPool pool_;
  std::vector<SequencePtr> running_;  // in the order of their ids
  std::deque<SequencePtr> waiting_;   // likewise
  std::vector<SequencePtr> ready_;    // to be gone on with by another engine,
  std::vector<SequencePtr> held_;     // and those that it has taken, but for their blocks
  std::vector<PinnedBlocks> copied_;  // of other engines
  RequestId last_id_ = 0;
  EngineMetrics metrics_;
  StepPlan plan_;                // of the last step; its memory serves the next one
  int64_t most_logit_rows_ = 0;  // of a step: what memory is planned for
};

}  // namespace trimtab
