#include "export/megatron/options.h"

#include <fmt/format.h>

#include "engine/base/error.h"

namespace trimtab {
namespace {

bool IsPlain(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+.,/:";
  return !text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos;
}

void AddTraining(const RunConfig& run, MegatronOptions& options) {
  const OptimizerConfig& optimizer = run.optimizer;
  options.Require(optimizer.kind == OptimizerKind::kAdamW, "this optimizer");
  options.Require(optimizer.groups.empty(), "optimizer.groups");
  options.Require(run.frozen.empty(), "frozen parameters");
  options.Add("--micro-batch-size", run.layout.micro_batch);
  options.Add("--global-batch-size", run.global_batch);
  options.Add("--optimizer", "adam");
  options.Add("--lr", optimizer.learning_rate);
  options.Add("--min-lr", optimizer.min_learning_rate);
  options.Add("--lr-decay-style", "cosine");
  options.Add("--lr-warmup-iters", optimizer.warmup_steps);
  options.Add("--adam-beta1", optimizer.beta1);
  options.Add("--adam-beta2", optimizer.beta2);
  options.Add("--adam-eps", optimizer.epsilon);
  options.Add("--weight-decay", optimizer.weight_decay);
  options.Add("--clip-grad", optimizer.clip_grad);
  options.Add("--seed", static_cast<int64_t>(run.seed));
  if (run.steps == 0) return;
  options.Add("--train-iters", run.steps);
  options.Add("--lr-decay-iters", optimizer.decay_steps > 0 ? optimizer.decay_steps : run.steps);
}

}  // namespace

void MegatronOptions::Add(std::string_view name, int64_t value) {
  options_.push_back({std::string(name), {fmt::format("{}", value)}});
}

void MegatronOptions::Add(std::string_view name, double value) {
  options_.push_back({std::string(name), {fmt::format("{}", value)}});
}

void MegatronOptions::Add(std::string_view name, std::string_view value) {
  options_.push_back({std::string(name), {std::string(value)}});
}

void MegatronOptions::Require(bool expressible, std::string_view what) {
  if (!expressible) throw UsageError(fmt::format("Megatron-LM has no option for {}", what));
}

std::vector<MegatronOption> ToMegatron(const RunConfig& run) {
  MegatronOptions options;
  AddMegatronModel(run, options);
  AddMegatronExperts(run, options);
  AddMegatronLayout(run, options);
  AddTraining(run, options);
  return options.Take();
}

std::string ToText(const std::vector<MegatronOption>& options) {
  std::string text;
  for (const MegatronOption& option : options) {
    text += option.name;
    for (const std::string& value : option.values) {
      text += IsPlain(value) ? fmt::format(" {}", value) : fmt::format(" '{}'", value);
    }
    text += '\n';
  }
  return text;
}

}  // namespace trimtab
