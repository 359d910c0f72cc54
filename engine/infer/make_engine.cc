#include "engine/infer/make_engine.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/comm/mpi_launch.h"
#include "engine/infer/batcher.h"
#include "engine/infer/draft_model.h"
#include "engine/infer/rank_runner.h"
#include "engine/infer/replicas.h"

namespace trimtab {
namespace {

/// A small model that proposes, with the rank it runs on: in this process, of several the first
/// one, which alone plans.
class Draft {
 public:
  /// `config` is that of the model that serves, resolved.
  Draft(const ServingConfig& config, const WeightSource& source)
      : limits_({.sequences = config.limits.sequences,
                 .sequence_length = config.limits.sequence_length,
                 .block_size = config.block_size,
                 .tokens_per_step = config.limits.tokens_per_step}),
        runner_(DraftServing(config), source, RankHome::kProcess),
        model_(limits_, config.model.vocab_size, runner_) {}

  Proposer& proposer() { return model_; }

 private:
  DraftLimits limits_;
  RankRunner runner_;
  DraftModel model_;
};

/// A batcher with what it works with.
class OwningEngine final : public SharingEngine {
 public:
  /// Without a draft where prompts are all that it computes.
  OwningEngine(const ServingConfig& config, const WeightSource& source, const WeightSource* draft,
               std::optional<double> acceptance, bool hands_over)
      : runner_(config, source),
        draft_(draft != nullptr && !hands_over ? std::make_unique<Draft>(config, *draft) : nullptr),
        batcher_({.limits = config.limits,
                  .block_size = config.block_size,
                  .blocks = config.cache_blocks,
                  .prefix_cache = config.prefix_cache,
                  .lookup_tokens = config.lookup_tokens,
                  .draft = draft_ != nullptr ? &draft_->proposer() : nullptr,
                  .draft_tokens = config.draft.tokens,
                  .acceptance = acceptance,
                  .hands_over = hands_over},
                 runner_, clock_) {}

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override {
    return batcher_.AddRequest(std::move(request));
  }
  std::vector<RequestUpdate> Step() override { return batcher_.Step(); }
  bool Abort(RequestId id) override { return batcher_.Abort(id); }
  bool HasWork() const override { return batcher_.HasWork(); }
  std::vector<MovedSequence> TakeReady() override { return batcher_.TakeReady(); }
  void ReleaseBlocksOf(RequestId id) override { batcher_.ReleaseBlocksOf(id); }
  RequestId AddMoved(MovedSequence sequence) override {
    return batcher_.AddMoved(std::move(sequence));
  }
  std::vector<HeldBlocks> TakeCopied() override { return batcher_.TakeCopied(); }
  EngineMetrics metrics() const override { return batcher_.metrics(); }
  const EngineLimits& limits() const override { return batcher_.limits(); }
  int64_t vocab_size() const override { return batcher_.vocab_size(); }

 private:
  RankRunner runner_;
  std::unique_ptr<Draft> draft_;
  SteadyClock clock_;
  Batcher batcher_;
};

}  // namespace

std::unique_ptr<Engine> MakeEngine(const ServingConfig& config, const WeightSource& source,
                                   const WeightSource* draft, std::optional<double> acceptance) {
  TRIMTAB_ASSERT((draft != nullptr) == (config.draft.tokens > 0),
                 "{} tokens of a draft model, and {} weights of it", config.draft.tokens,
                 draft != nullptr ? "the" : "no");
  const int64_t replicas = config.layout.dp;
  if (replicas > 1 && FindMpiLaunch()) {
    throw UsageError(
        "ranks that are processes serve together, not as replicas: expected no dp in the layout");
  }
  if (config.prefill > 0 && config.device != "cpu") {
    throw UsageError(
        fmt::format("prefill={} on {}: caches move between cpu ranks alone; expected none of it",
                    config.prefill, config.device));
  }
  const ServingConfig one = ReplicaOf(ResolveServing(config));
  const auto make = [&](bool hands_over) {
    return std::make_unique<OwningEngine>(one, source, draft, acceptance, hands_over);
  };
  if (replicas == 1) return make(/*hands_over=*/false);
  std::vector<std::unique_ptr<SharingEngine>> engines;
  for (int64_t i = 0; i < replicas; ++i) engines.push_back(make(/*hands_over=*/i < config.prefill));
  return std::make_unique<Replicas>(std::move(engines), config.prefill);
}

}  // namespace trimtab
