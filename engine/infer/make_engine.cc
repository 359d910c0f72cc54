#include "engine/infer/make_engine.h"

#include "engine/infer/batcher.h"
#include "engine/infer/rank_runner.h"

namespace trimtab {
namespace {

/// A batcher with what it works with.
class OwningEngine final : public Engine {
 public:
  OwningEngine(const ServingConfig& config, const WeightSource& source)
      : runner_(config, source),
        batcher_({.limits = config.limits,
                  .block_size = config.block_size,
                  .blocks = config.cache_blocks,
                  .prefix_cache = config.prefix_cache,
                  .lookup_tokens = config.lookup_tokens},
                 runner_, clock_) {}

  std::variant<RequestId, Refusal> AddRequest(GenerationRequest request) override {
    return batcher_.AddRequest(std::move(request));
  }
  std::vector<RequestUpdate> Step() override { return batcher_.Step(); }
  bool Abort(RequestId id) override { return batcher_.Abort(id); }
  bool HasWork() const override { return batcher_.HasWork(); }
  EngineMetrics metrics() const override { return batcher_.metrics(); }
  const EngineLimits& limits() const override { return batcher_.limits(); }
  int64_t vocab_size() const override { return batcher_.vocab_size(); }

 private:
  RankRunner runner_;
  SteadyClock clock_;
  Batcher batcher_;
};

}  // namespace

std::unique_ptr<Engine> MakeEngine(const ServingConfig& config, const WeightSource& source) {
  return std::make_unique<OwningEngine>(ResolveServing(config), source);
}

}  // namespace trimtab
