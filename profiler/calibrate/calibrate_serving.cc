#include "profiler/calibrate/calibrate_serving.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <memory>
#include <thread>

#include "cost_model/serving/serving_prediction.h"
#include "engine/base/mutex.h"
#include "engine/base/units.h"
#include "engine/infer/api/sampler.h"
#include "engine/infer/executor/distributed_executor.h"
#include "engine/runtime/weights/random_weights.h"

namespace trimtab {
namespace {

/// Single tokens follow single tokens, and the longer they do the more of the weights is in the
/// caches: so many in a row, as between the prompts of a busy engine.
constexpr int64_t kTokensInARow = 5;

/// A step: single tokens of so many sequences behind so many others, and one prompt's piece.
struct StepShape {
  int64_t decodes = 0;
  int64_t context = 0;
  int64_t prompt = 0;
  int64_t prompt_position = 0;
};

/// For sequences of up to `length` tokens.
std::vector<StepShape> Shapes(int64_t length) {
  const int64_t far = length - 1;
  const int64_t half = length / 2;
  const int64_t near = length / 16;
  const int64_t piece = std::min<int64_t>(256, half);
  return {{1, 1, 0, 0},
          {1, far, 0, 0},
          {2, half, 0, 0},
          {3, half, 0, 0},
          {4, 1, 0, 0},
          {8, half, 0, 0},
          {16, 1, 0, 0},
          {16, far, 0, 0},
          {0, 0, piece, 0},
          {0, 0, piece / 4, 0},
          {0, 0, piece / 2, half},
          {8, half, piece / 2, 0},
          {3, half, piece / 8, 0},
          {15, near, piece / 4, 0},
          {12, near, piece / 2, 0},
          {5, near, piece / 4, 0},
          {8, near, 0, 0}};
}

StepPlan PlanOf(const StepShape& shape, const ServingConfig& config) {
  const int64_t each = CeilDiv(config.limits.sequence_length, config.block_size);
  StepPlan plan;
  const auto add = [&](int64_t rows, int64_t position) {
    PlannedSequence sequence = {.tokens = std::vector<int32_t>(static_cast<size_t>(rows), 1),
                                .first_position = position,
                                .blocks = {},
                                .logits = 1};
    for (int64_t i = 0; i < each; ++i) {
      sequence.blocks.push_back(static_cast<int32_t>(std::ssize(plan.sequences) * each + i));
    }
    plan.sequences.push_back(std::move(sequence));
  };
  for (int64_t i = 0; i < shape.decodes; ++i) add(1, shape.context);
  if (shape.prompt > 0) add(shape.prompt, shape.prompt_position);
  return plan;
}

/// A step as the engine takes it: the model's pass, and a choice of each next token.
double Seconds(ModelExecutor& runner, const StepPlan& plan) {
  const auto start = std::chrono::steady_clock::now();
  const std::vector<float> logits = runner.Run(plan);
  const auto vocab = static_cast<size_t>(runner.vocab_size());
  for (size_t row = 0; row < logits.size(); row += vocab) {
    SampleToken(std::span(logits).subspan(row, vocab), {}, {});
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Replicas beside the one that is measured, at work all the time: they share its machine.
class Neighbours {
 public:
  Neighbours(const ServingConfig& config, int64_t count, const std::vector<StepPlan>& plans)
      : plans_(plans) {
    for (int64_t i = 0; i < count; ++i) {
      runners_.push_back(
          std::make_unique<DistributedExecutor>(config, RandomWeights(config.model)));
    }
    for (const auto& each : runners_) {
      threads_.emplace_back([this, runner = each.get()] { Work(*runner); });
    }
  }
  ~Neighbours() { Join(); }
  Neighbours(const Neighbours&) = delete;
  Neighbours& operator=(const Neighbours&) = delete;

  /// Ends them; throws what one has thrown.
  void Finish() {
    Join();
    const MutexLock lock(mutex_);
    if (failure_ != nullptr) std::rethrow_exception(failure_);
  }

 private:
  void Work(ModelExecutor& runner) {
    try {
      for (size_t next = 0; !ends_; next = (next + 1) % plans_.size()) runner.Run(plans_[next]);
    } catch (...) {
      const MutexLock lock(mutex_);
      failure_ = std::current_exception();
    }
  }
  void Join() {
    ends_ = true;
    for (std::thread& each : threads_) each.join();
    threads_.clear();
  }

  const std::vector<StepPlan>& plans_;
  std::atomic<bool> ends_ = false;
  std::vector<std::unique_ptr<DistributedExecutor>> runners_;
  std::vector<std::thread> threads_;
  Mutex mutex_;
  std::exception_ptr failure_ TRIMTAB_GUARDED_BY(mutex_);
};

/// Where a fit begins: a core of some years ago.
ServingRates Start(const ServingLayout& layout, bool experts) {
  ServingRates rates = {.weight_bytes = BytesPerWeight(layout.weights),
                        .kv_bytes = layout.kv_bytes,
                        .weight_rate = 1e10,
                        .low_rate = 1e10,
                        .kv_rate = 1e10,
                        .other_rate = 1e10,
                        .rate_16 = 5e10,
                        .rate_low = 5e10,
                        .unpack_rate = 1e10,
                        .by_rows = std::vector<double>(kRowKnots.size(), 1),
                        .attention_flops = 1e10,
                        .link_rate = layout.gpus() > 1 ? 5e9 : 0,
                        .message_s = layout.gpus() > 1 ? 1e-5 : 0,
                        .gap_s = 1e-6,
                        .launches_each_op = true,
                        .host_s = 2e-5,
                        .sequence_s = 2e-5};
  if (experts) {
    rates.expert_rate = 1e10;
    rates.expert_flops = 5e10;
    rates.expert_layer_s = 1e-5;
  }
  return rates;
}

}  // namespace

ServingCalibration CalibrateServing(ServingConfig config, double seconds) {
  constexpr int64_t kSequences = 17;
  constexpr int64_t kLength = 1024;
  config.limits.sequences = kSequences;
  config.limits.sequence_length = std::min(config.model.max_sequence_length, kLength);
  config.limits.tokens_per_step = config.limits.sequence_length + kSequences;
  config.cache_blocks = 0;
  const int64_t replicas = config.layout.dp;
  config = ReplicaOf(ResolveServing(config));
  const ServingLayout layout = ServingLayoutOf(config);
  ServingRecorder recorder(config.model, layout);
  const ServingSteps steps(config.model, layout, recorder);
  DistributedExecutor runner(config, RandomWeights(config.model));

  const std::vector<StepShape> shapes = Shapes(config.limits.sequence_length);
  std::vector<StepPlan> plans;
  for (const StepShape& each : shapes) plans.push_back(PlanOf(each, config));
  Neighbours neighbours(config, replicas - 1, plans);
  // In turns, so that a change of the machine's speed is everybody's; the median of each is taken.
  std::vector<std::vector<double>> times(plans.size());
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  for (int64_t round = 0; round < 3 || spent() < seconds; ++round) {
    for (size_t i = 0; i < plans.size(); ++i) {
      for (int64_t run = shapes[i].prompt == 0 ? kTokensInARow : 1; run > 0; --run) {
        const double taken = Seconds(runner, plans[i]);
        if (round > 0) times[i].push_back(taken);  // the first is a warm-up
      }
    }
  }
  neighbours.Finish();
  std::vector<MeasuredStep> measured;
  ServingCalibration result;
  for (size_t i = 0; i < plans.size(); ++i) {
    result.steps += std::ssize(times[i]);
    std::nth_element(times[i].begin(), times[i].begin() + std::ssize(times[i]) / 2, times[i].end());
    measured.push_back({steps.RowsOf(plans[i]), times[i][times[i].size() / 2]});
  }
  const ServingRatesFit fit =
      FitServingRates(steps, measured, Start(layout, config.model.moe.used()));
  result.rates = fit.rates;
  result.error = fit.error;
  return result;
}

}  // namespace trimtab
