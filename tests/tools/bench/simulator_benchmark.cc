// The simulator against the real engine on this machine: six loads, each predicted from rates that
// were calibrated right before, and then served, in an order of the round's own. What fixed
// requests take before and after a load against what they took at the calibration corrects for the
// machine's wandering.
//
//   simulator_benchmark [MODEL [ROUNDS]]
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <random>

#include "cost_model/serving/serving_prediction.h"
#include "engine/families/load_config.h"
#include "engine/infer/replicas/make_engine.h"
#include "engine/runtime/weights/random_weights.h"
#include "profiler/calibrate/calibrate_serving.h"
#include "profiler/serving/load_generator.h"

namespace trimtab {
namespace {

constexpr double kCalibrationSeconds = 6;

struct Load {
  const char* name;
  const char* lengths;
  int64_t requests;
  int64_t concurrency;
  double load;  // of an open loop: share of the closed loop's rate
};
constexpr Load kLoads[] = {{"one client", "64/32", 12, 1, 0},
                           {"4 clients", "64/32", 24, 4, 0},
                           {"16 clients", "uniform:16-128/32", 48, 16, 0},
                           {"long prompts", "400/16", 24, 4, 0},
                           {"long answers", "16/128", 16, 8, 0},
                           {"open, half load", "uniform:16-128/uniform:8-48", 60, 0, 0.5}};

ServingConfig ConfigOf(const ModelConfig& model) {
  ServingConfig config;
  config.model = model;
  config.limits = {.sequences = 16, .tokens_per_step = 128, .sequence_length = 512};
  return ResolveServing(config);
}

/// How long fixed requests take that are answered alone.
class Reference {
 public:
  explicit Reference(LoadTarget& target) : target_(target) {}

  /// Of a request whose tokens read memory, and of one whose prompt computes, the middle of a few:
  /// a load takes the machine as it is, slow moments and all. The two wander apart, and a load is
  /// something of both, so it is their geometric mean.
  double Seconds() {
    return std::sqrt(MiddleSeconds({.prompt_tokens = 16, .output_tokens = 12}) *
                     MiddleSeconds({.prompt_tokens = 384, .output_tokens = 1}));
  }

 private:
  double MiddleSeconds(const LoadRequest& request) {
    std::array<double, 9> seconds;
    for (double& each : seconds) {
      // Prompts differ, or the prefix cache would know them.
      const std::vector<int32_t> prompt(static_cast<size_t>(request.prompt_tokens), ++token_);
      const LoadOutcome outcome = target_.Run(request, prompt);
      each = outcome.arrivals_s.back() - outcome.sent_s;
    }
    std::nth_element(seconds.begin(), seconds.begin() + seconds.size() / 2, seconds.end());
    return seconds[seconds.size() / 2];
  }

  LoadTarget& target_;
  int32_t token_ = 0;
};

struct Errors {
  std::vector<double> tpot, rate, ttft;
};

/// Of a machine on which all takes `slower` times as long as it was calibrated: by its own clock
/// requests come so much sooner.
LoadReport PredictSlower(const ServingPredictor& predictor, const ServingConfig& config,
                         ServiceLoad load, double slower) {
  for (LoadRequest& each : load.requests) each.at_s /= slower;
  return predictor.Predict(config, load).report;
}

ServiceLoad LoadOf(const Load& of, double rate) {
  return {.requests = DrawRequests(of.lengths, of.requests, rate, 3),
          .concurrency = of.concurrency};
}

/// Requests a second of the busiest closed loop.
double BusiestRate(const ServingPredictor& predictor, const ServingConfig& config) {
  double rate = 0;
  for (const Load& each : kLoads) {
    if (each.concurrency < config.limits.sequences) continue;
    rate = predictor.Predict(config, LoadOf(each, 0)).report.requests_per_s();
  }
  return rate;
}

/// Returns what the machine was calibrated to.
ServingRates RunRound(const ModelConfig& model, int round, Errors& errors) {
  const ServingConfig config = ConfigOf(model);
  const ServingCalibration calibration = CalibrateServing(config, kCalibrationSeconds);
  const ServingPredictor predictor(model, ServingLayoutOf(config), calibration.rates);
  const std::unique_ptr<Engine> engine = MakeEngine(config, RandomWeights(model));
  const std::unique_ptr<LoadTarget> target = MakeEngineTarget(*engine);
  Reference reference(*target);
  const double calibrated_s = reference.Seconds();
  fmt::print("calibrated: {} steps, explained to {:.1f} %\n", calibration.steps,
             100 * calibration.error);
  const double rate = BusiestRate(predictor, config);
  std::vector<Load> loads(std::begin(kLoads), std::end(kLoads));
  std::shuffle(loads.begin(), loads.end(), std::mt19937_64(static_cast<uint64_t>(round)));
  for (const Load& each : loads) {
    const ServiceLoad load = LoadOf(each, each.load * rate);
    const double before = reference.Seconds();
    const LoadReport real =
        MakeLoadReport(PutLoad(*target, load.requests,
                               {.concurrency = load.concurrency, .vocab_size = model.vocab_size}),
                       {});
    const double slower = (before + reference.Seconds()) / (2 * calibrated_s);
    const LoadReport predicted = PredictSlower(predictor, config, load, slower);
    const auto error = [](double guess, double value) { return guess / value - 1; };
    const double tpot = error(predicted.tpot.mean * slower, real.tpot.mean);
    const double tokens =
        error(predicted.output_tokens_per_s() / slower, real.output_tokens_per_s());
    const double ttft = error(predicted.ttft.p99 * slower, real.ttft.p99);
    fmt::print(
        "{:<16} TPOT {:7.2f} ms, predicted {:+6.1f} %   {:8.1f} tokens/s, {:+6.1f} %   "
        "TTFT p99 {:8.1f} ms, {:+6.1f} %   machine {:.2f}\n",
        each.name, real.tpot.mean, 100 * tpot, real.output_tokens_per_s(), 100 * tokens,
        real.ttft.p99, 100 * ttft, slower);
    errors.tpot.push_back(std::abs(tpot));
    errors.rate.push_back(std::abs(tokens));
    errors.ttft.push_back(std::abs(ttft));
  }
  return calibration.rates;
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double each : values) sum += each;
  return sum / static_cast<double>(values.size());
}

}  // namespace
}  // namespace trimtab

int main(int argc, char** argv) {
  using namespace trimtab;
  const ModelConfig model = LoadModelConfig(argc > 1 ? argv[1] : "gpt2-124m");
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 1;
  Errors errors;
  ServingRates rates;
  for (int i = 0; i < rounds; ++i) rates = RunRound(model, i, errors);
  fmt::print("mean error: TPOT {:.1f} %, tokens/s {:.1f} %, TTFT p99 {:.1f} %\n",
             100 * Mean(errors.tpot), 100 * Mean(errors.rate), 100 * Mean(errors.ttft));

  // How fast the simulator itself is.
  const ServingConfig config = ConfigOf(model);
  ServiceLoad load = {.requests = DrawRequests("200/200", 5000, 0, 1), .concurrency = 16};
  const ServingPredictor predictor(model, ServingLayoutOf(config), rates);
  const auto start = std::chrono::steady_clock::now();
  const LoadReport report = predictor.Predict(config, load).report;
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  const auto tokens = static_cast<double>(report.prompt_tokens + report.output_tokens);
  fmt::print("simulator: {:.0f} tokens of traffic in {:.2f} s: {:.2f} s a million\n", tokens,
             spent.count(), 1e6 * spent.count() / tokens);
  return 0;
}
