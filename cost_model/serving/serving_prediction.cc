#include "cost_model/serving/serving_prediction.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/layers/attention/layer_cache.h"

namespace trimtab {
namespace {

/// In the order of WeightFormat.
constexpr std::array<ServingPrecision, 6> kServed = {
    ServingPrecision::k32Bit, ServingPrecision::k16Bit, ServingPrecision::k16Bit,
    ServingPrecision::kFp8,   ServingPrecision::kInt8,  ServingPrecision::kInt4};

}  // namespace

ServingLayout ServingLayoutOf(const ServingConfig& config) {
  const MixerSpec mixer = config.model.layer(0).mixer;  // all layers cache as much
  const int64_t values = LayerCacheValues(mixer, config.layout.tp);
  return {.tp = config.layout.tp,
          .pp = config.layout.pp,
          .sequence_parallel = config.layout.sequence_parallel,
          .ep = config.layout.ep,
          .etp = config.layout.etp,
          .weights = kServed[static_cast<size_t>(config.weights)],
          .packs_head = true,
          .kv_bytes = static_cast<double>(LayerCacheBytes(mixer, config.layout.tp, config.cache)) /
                      static_cast<double>(values)};
}

ServingRates ServingRatesOf(const ServingConfig& config, const HardwareProfile& profile,
                            const ServingEngine& engine) {
  if (config.weights == WeightFormat::kBf16 || config.cache == DType::kBf16) {
    const std::string why = Unpriceable(profile, Precision::kBf16);
    if (!why.empty()) throw UsageError("serving in bf16: " + why);
  }
  const ServingLayout layout = ServingLayoutOf(config);
  ServingRates rates = ServingRatesOf(profile, ServingGpuOf(profile.generation), engine,
                                      layout.weights, layout.kv_bytes);
  // Our int4 has fp32 scales, others' 16 bits.
  if (config.weights == WeightFormat::kInt4) {
    rates.weight_bytes = 0.5 + static_cast<double>(SizeOf(DType::kF32)) / kInt4Group;
  }
  return rates;
}

CopySeconds CopySecondsOf(const ServingConfig& config, const CopyRates& rates) {
  const int64_t layers = CeilDiv(config.model.num_layers, config.layout.pp);
  const int64_t bytes =
      layers * config.block_size *
      LayerCacheBytes(config.model.layer(0).mixer, config.layout.tp, config.cache);
  const double block_s = static_cast<double>(bytes) / rates.bytes_per_s;
  return [block_s, latency_s = rates.latency_s](int64_t blocks) {
    return latency_s + block_s * static_cast<double>(blocks);
  };
}

int64_t ReplicaOf(const ServiceLoad& load, int64_t replicas, size_t request) {
  auto turn = static_cast<int64_t>(request);
  if (load.concurrency > 0) turn %= load.concurrency;
  return turn % replicas;
}

ServiceLoad ShareOf(const ServiceLoad& load, int64_t replicas, int64_t index) {
  ServiceLoad share;
  if (load.concurrency > 0) {
    share.concurrency = load.concurrency / replicas + (index < load.concurrency % replicas);
  }
  // Turn after turn of all clients, or all at once, without a look at what others get.
  const int64_t count = std::ssize(load.requests);
  const int64_t turn = load.concurrency > 0 ? load.concurrency : count;
  if (index >= turn) return share;
  for (int64_t first = 0; first < count; first += turn) {
    for (int64_t i = first + index; i < std::min(first + turn, count); i += replicas) {
      share.requests.push_back(load.requests[static_cast<size_t>(i)]);
    }
  }
  return share;
}

ServingPredictor::ServingPredictor(const ModelConfig& model, const ServingLayout& layout,
                                   const ServingRates& rates, ServingSpeculation speculation)
    : recorder_(model, layout),
      steps_(model, layout, recorder_),
      pricer_(rates),
      speculation_(std::move(speculation)) {}

ServingPrediction ServingPredictor::Predict(const ServingConfig& config, const ServiceLoad& load,
                                            const CopyRates& copy) const {
  return *PredictWhile(config, load, copy, [](const ServingProgress&) { return true; });
}

std::pair<SimulatedServing, ServingBreakdown> ServingPredictor::Simulate(
    const SchedulerOptions& options, const SimulatedEngines& engines, const CopySeconds& copy,
    const ServiceLoad& load, const GoesOn& goes_on) const {
  const auto run = [&](const SchedulerOptions& each, const SimulationWatch& watch) {
    PricedSteps priced(steps_, pricer_);
    std::optional<PricedSteps> drafted;
    SimulatedPrices prices = {.step = [&priced](const StepPlan& plan) { return priced(plan); },
                              .copy = copy};
    if (const ServingPredictor* draft = speculation_.draft.get()) {
      drafted.emplace(draft->steps_, draft->pricer_, /*going_on=*/2);
      prices.draft = [&drafted](const StepPlan& plan) { return (*drafted)(plan); };
    }
    SimulatedServing served =
        SimulateServing(each, load.requests, load.concurrency, prices, watch, engines);
    return std::pair(std::move(served), priced.spent());
  };
  if (options.prefix_cache && !load.shares()) {
    // Nobody but a sequence that was preempted will find anything in the cache: its own blocks. To
    // note all blocks for that takes most of the time.
    SchedulerOptions plain = options;
    plain.prefix_cache = false;
    auto result = run(plain, [&](double now_s, const auto& outcomes, const EngineMetrics& metrics) {
      return metrics.preemptions == 0 && goes_on(now_s, outcomes);
    });
    if (result.first.metrics.preemptions == 0) return result;
  }
  return run(options, [&](double now_s, const auto& outcomes, const EngineMetrics& /*metrics*/) {
    return goes_on(now_s, outcomes);
  });
}

std::optional<ServingPrediction> ServingPredictor::PredictWhile(const ServingConfig& config,
                                                                const ServiceLoad& load,
                                                                const CopyRates& copy,
                                                                const ServingWatch& watch) const {
  ServingPrediction prediction;
  std::vector<std::vector<LoadOutcome>> outcomes;
  double busy_s = 0;
  const int64_t replicas = config.layout.dp;
  SimulatedEngines engines;
  CopySeconds copy_seconds;
  if (config.prefill > 0) {
    engines = {.prefill = config.prefill, .decode = replicas - config.prefill};
    copy_seconds = CopySecondsOf(config, copy);
  }
  // Replicas that have nothing to do with each other are simulated one after the other.
  const int64_t shares = config.prefill > 0 ? 1 : replicas;
  // To look at all of a load takes long: many replicas are looked at as often as one would be.
  constexpr double kBetweenLooks = 1.0 / kLooks;
  const auto all_requests = static_cast<double>(load.requests.size());
  double done = 0;    // of the load
  double looked = 0;  // at so much of it
  for (int64_t i = 0; i < shares; ++i) {
    const ServiceLoad share = ShareOf(load, shares, i);
    if (share.requests.empty()) {  // fewer clients than replicas
      outcomes.emplace_back();
      continue;
    }
    const double size = static_cast<double>(share.requests.size()) / all_requests;
    double part = 0;  // of the share
    const auto goes_on = [&](double now_s, const std::vector<LoadOutcome>& so_far) {
      part += kBetweenLooks;
      if (done + part * size < looked + kBetweenLooks) return true;
      looked = done + part * size;
      return watch({outcomes, so_far, now_s});
    };
    SchedulerOptions options = SchedulerOptionsOf(config);
    options.acceptance = speculation_.acceptance;
    auto [served, spent] = Simulate(options, engines, copy_seconds, share, goes_on);
    if (!served.ended) return std::nullopt;
    done += size;
    outcomes.push_back(std::move(served.outcomes));
    prediction.spent += spent;
    prediction.draft_s += served.draft_s;
    prediction.copy_s += served.copy_s;
    prediction.moved += served.metrics.moved_requests;
    prediction.proposed += served.metrics.proposed_tokens;
    prediction.accepted += served.metrics.accepted_tokens;
    prediction.preemptions += served.metrics.preemptions;
    prediction.most_running = std::max(prediction.most_running, served.most_running);
    prediction.most_waiting = std::max(prediction.most_waiting, served.most_waiting);
    prediction.most_rows = std::max(prediction.most_rows, served.most_rows);
    prediction.most_blocks = std::max(prediction.most_blocks, served.most_blocks);
    prediction.waits_for_places = prediction.waits_for_places || served.waits_for_places;
    prediction.waits_for_room = prediction.waits_for_room || served.waits_for_room;
    busy_s += served.busy_s;
  }
  std::vector<LoadOutcome> all;
  for (std::vector<LoadOutcome>& each : outcomes) std::ranges::move(each, std::back_inserter(all));
  prediction.report = MakeLoadReport(all, {});
  if (prediction.report.duration_s > 0) {
    prediction.busy_share = busy_s / (static_cast<double>(replicas) * prediction.report.duration_s);
  }
  return prediction;
}

}  // namespace trimtab
