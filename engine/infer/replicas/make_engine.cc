#include "engine/infer/replicas/make_engine.h"

#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/mpi/mpi_context.h"
#include "engine/comm/mpi_launch.h"
#include "engine/infer/executor/distributed_executor.h"
#include "engine/infer/replicas/remote_replica.h"
#include "engine/infer/replicas/replicas.h"
#include "engine/infer/scheduler/draft_model.h"
#include "engine/infer/scheduler/scheduler.h"

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
  DistributedExecutor runner_;
  DraftModel model_;
};

/// A scheduler with what it works with.
class OwningEngine final : public DisaggregatedEngine {
 public:
  /// `one` of the replicas, on the ranks of `runner`. Without a draft where prompts are all that it
  /// computes.
  OwningEngine(const ServingConfig& one, std::shared_ptr<DistributedExecutor> runner,
               const WeightSource* draft, std::optional<double> acceptance, bool hands_over,
               std::shared_ptr<GrammarCompiler> grammars)
      : runner_(std::move(runner)),
        draft_(draft != nullptr && !hands_over ? std::make_unique<Draft>(one, *draft) : nullptr),
        scheduler_({.limits = one.limits,
                    .block_size = one.block_size,
                    .blocks = one.cache_blocks,
                    .prefix_cache = one.prefix_cache,
                    .lookup_tokens = one.lookup_tokens,
                    .draft = draft_ != nullptr ? &draft_->proposer() : nullptr,
                    .draft_tokens = one.draft.tokens,
                    .acceptance = acceptance,
                    .hands_over = hands_over,
                    .grammars = std::move(grammars)},
                   *runner_, clock_) {}

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override {
    return scheduler_.AddRequest(std::move(request));
  }
  std::vector<RequestUpdate> Step() override { return scheduler_.Step(); }
  bool Abort(RequestId id) override { return scheduler_.Abort(id); }
  bool HasWork() const override { return scheduler_.HasWork(); }
  std::vector<TransferredSequence> TakePrefilled() override { return scheduler_.TakePrefilled(); }
  void ReleaseBlocksOf(RequestId id) override { scheduler_.ReleaseBlocksOf(id); }
  RequestId AddPrefilled(TransferredSequence sequence) override {
    return scheduler_.AddPrefilled(std::move(sequence));
  }
  std::vector<PinnedBlocks> TakeReleasable() override { return scheduler_.TakeReleasable(); }
  EngineMetrics metrics() const override { return scheduler_.metrics(); }
  const EngineLimits& limits() const override { return scheduler_.limits(); }
  int64_t vocab_size() const override { return scheduler_.vocab_size(); }

 private:
  std::shared_ptr<DistributedExecutor> runner_;
  std::unique_ptr<Draft> draft_;
  SteadyClock clock_;
  Scheduler scheduler_;
};

void RequireDraft(const ServingConfig& config, const WeightSource* draft) {
  TRIMTAB_ASSERT((draft != nullptr) == (config.draft.tokens > 0),
                 "{} tokens of a draft model, and {} weights of it", config.draft.tokens,
                 draft != nullptr ? "the" : "no");
}

}  // namespace

ServingConfig PrepareServing(const ServingConfig& config) {
  const std::optional<MpiLaunch> launch = FindMpiLaunch();
  ServingConfig resolved = ResolveServing(config);
  if (launch) CheckMpiWorldSize(launch->size, resolved.layout, launch->launcher);
  return resolved;
}

std::unique_ptr<Engine> MakeEngine(const ServingConfig& config, const WeightSource& source,
                                   const WeightSource* draft, std::optional<double> acceptance,
                                   std::shared_ptr<GrammarCompiler> grammars) {
  RequireDraft(config, draft);
  const ServingConfig all = PrepareServing(config);
  const ServingConfig one = ReplicaOf(all);
  const auto make = [&](std::shared_ptr<DistributedExecutor> runner, bool hands_over) {
    return std::make_unique<OwningEngine>(one, std::move(runner), draft, acceptance, hands_over,
                                          grammars);
  };
  std::vector<std::unique_ptr<DisaggregatedEngine>> engines;
  if (FindMpiLaunch()) {
    const auto runner = std::make_shared<DistributedExecutor>(all, source);
    std::vector<Socket> links = runner->TakeLinks();
    engines.push_back(make(runner, /*hands_over=*/all.prefill > 0));
    for (Socket& link : links) {
      engines.push_back(
          std::make_unique<RemoteReplica>(std::move(link), runner, engines.front()->limits()));
    }
  } else {
    for (int64_t i = 0; i < all.layout.dp; ++i) {
      engines.push_back(
          make(std::make_shared<DistributedExecutor>(one, source), /*hands_over=*/i < all.prefill));
    }
  }
  if (engines.size() == 1) return std::move(engines.front());
  return std::make_unique<Replicas>(std::move(engines), all.prefill);
}

void FollowEngine(const ServingConfig& config, const WeightSource& source,
                  const WeightSource* draft, std::optional<double> acceptance,
                  std::shared_ptr<GrammarCompiler> grammars) {
  RequireDraft(config, draft);
  const ServingConfig all = PrepareServing(config);
  const ServingConfig one = ReplicaOf(all);
  if (LaunchedRank() % one.layout.world_size() != 0) return FollowPlans(all, source);
  const auto runner = std::make_shared<DistributedExecutor>(all, source);
  ReplicaLink link(std::move(runner->TakeLinks().front()), [&] { runner->ThrowIfFailed(); });
  try {
    const int64_t replica = LaunchedRank() / one.layout.world_size();
    OwningEngine engine(one, runner, draft, acceptance, /*hands_over=*/replica < all.prefill,
                        std::move(grammars));
    AnswerOrders(link, engine);
  } catch (const std::exception& failure) {
    // What its ranks throw, all processes hear of from them.
    if (!runner->failed()) TellFailure(link, failure);
    throw;
  }
}

}  // namespace trimtab
