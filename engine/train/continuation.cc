#include "engine/train/continuation.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/strict_json.h"
#include "engine/optim/lr_schedule.h"

namespace trimtab {
namespace {

using Settings = std::map<std::string, nlohmann::json>;

/// Keys of RUN.json that change results by rounding alone, or not at all; objects with all their
/// members.
constexpr const char* kSilent[] = {
    "schema_version",
    "layout",
    "deterministic",
    "device",
    "model",
    "data",
    "stack",
    "memory_per_rank_bytes",
    "threads_per_rank",
    "routing.imbalance_factor",
    "packing.lengths",
};

/// Members of the silent objects that do change results.
constexpr const char* kTold[] = {
    "layout.precision",
    "layout.master",
    "layout.moments",
    "layout.grads",
    "model.moe.aux_loss_coeff",
    "model.moe.z_loss_coeff",
    "model.moe.bias_update_rate",
    "model.moe.capacity_factor",
    "model.moe.drop_policy",
    "model.moe.pad_to_capacity",
};

/// What makes the schedule of learning rates; the last one is of the run or of the optimizer.
constexpr const char* kScheduleKeys[] = {
    "optimizer.learning_rate",
    "optimizer.min_learning_rate",
    "optimizer.warmup_steps",
    "optimizer.decay_steps",
    "steps",
};

bool Within(const std::string& path, const std::string& object) {
  return path == object || path.starts_with(object + ".");
}

bool ChangesResults(const std::string& path) {
  const auto within = [&path](const char* object) { return Within(path, object); };
  return std::ranges::any_of(kTold, within) || std::ranges::none_of(kSilent, within);
}

/// Adds the values of `json` that change results, by path; an array is a value.
void AddSettings(const nlohmann::json& json, const std::string& path, Settings& settings) {
  if (!json.is_object()) {
    if (ChangesResults(path)) settings[path] = json;
    return;
  }
  for (const auto& [key, value] : json.items()) {
    AddSettings(value, path.empty() ? key : path + "." + key, settings);
  }
}

Settings SettingsOf(const RunConfig& run) {
  Settings settings;
  AddSettings(ToJson(run), "", settings);
  return settings;
}

std::string Shown(const Settings& settings, const std::string& key) {
  const auto found = settings.find(key);
  return found == settings.end() ? "nothing" : DescribeJson(found->second);
}

/// Takes out what nothing reads in `run`, or what the state in the checkpoint stands for.
void DropUnread(const CheckpointHeader& from, const RunConfig& run, Settings& settings) {
  const TrainingTypes types = TypesOf(run.layout.numerics);
  std::erase_if(settings, [&](const auto& setting) {
    const std::string& key = setting.first;
    if (Within(key, "fp8")) return !types.fp8;
    if (Within(key, "routing") || Within(key, "model.moe")) return !run.model.moe.used();
    if (key == "layout.master") return !types.has_master;
    const bool of_adam =
        key == "optimizer.beta1" || key == "optimizer.beta2" || key == "optimizer.epsilon";
    if (of_adam && run.optimizer.kind == OptimizerKind::kSgd) return true;
    if (key == "loss_scale.initial" && from.loss_scale.scale > 0) return true;
    return Within(key, "loss_scale") && !types.loss_scaling;
  });
}

/// The key of the schedule's length in `run`, and the step of which its minimum is reached.
std::pair<const char*, int64_t> ScheduleEnd(const RunConfig& run) {
  if (run.optimizer.decay_steps > 0) return {"optimizer.decay_steps", run.optimizer.decay_steps};
  return {"steps", run.steps};
}

std::vector<ResultChange> ScheduleChanges(const RunConfig& before, const RunConfig& now,
                                          int64_t step) {
  if (SameLearningRates(before.optimizer, before.steps, now.optimizer, now.steps, step)) return {};
  std::vector<ResultChange> changes;
  const auto compare = [&](const char* key, const auto& old_value, const auto& new_value) {
    if (old_value == new_value) return;
    changes.push_back({key, fmt::format("{}", old_value), fmt::format("{}", new_value)});
  };
  const OptimizerConfig& old = before.optimizer;
  compare("optimizer.learning_rate", old.learning_rate, now.optimizer.learning_rate);
  compare("optimizer.min_learning_rate", old.min_learning_rate, now.optimizer.min_learning_rate);
  compare("optimizer.warmup_steps", old.warmup_steps, now.optimizer.warmup_steps);
  compare(ScheduleEnd(now).first, ScheduleEnd(before).second, ScheduleEnd(now).second);
  return changes;
}

std::string LastPart(const std::string& key) { return key.substr(key.rfind('.') + 1); }

bool Names(const std::string& name, const std::string& key) {
  if (name == key || name == LastPart(key)) return true;
  const auto length = [](const std::string& each) {
    return each == "steps" || LastPart(each) == "decay_steps";
  };
  return length(name) && length(key);
}

/// Throws UsageError for a name that no setting has.
void CheckNames(std::span<const std::string> overrides, const CheckpointHeader& from,
                const RunConfig& run) {
  Settings settings = SettingsOf(run);
  settings.merge(SettingsOf(from.run));
  std::set<std::string> names = {"data"};
  for (const auto& [key, ignored] : settings) names.insert(LastPart(key));
  for (const std::string& name : overrides) {
    const bool known = name == "data" || std::ranges::any_of(settings, [&](const auto& setting) {
                         return Names(name, setting.first);
                       });
    if (known) continue;
    const std::vector<std::string> valid(names.begin(), names.end());
    throw UsageError(fmt::format("--override {}: no setting that changes results{}", name,
                                 SuggestName(name, valid)));
  }
}

/// How the length of a schedule stays what it was, for a message.
std::string HowToKeepSchedule(const std::vector<ResultChange>& changes) {
  for (const ResultChange& change : changes) {
    if (!Names("steps", change.key)) continue;
    return fmt::format(" (--schedule-steps {} keeps the schedule)", change.before);
  }
  return "";
}

}  // namespace

std::vector<ResultChange> ChangesSince(const CheckpointHeader& from, const RunConfig& run,
                                       const std::string& tokens) {
  if (from.step >= run.steps) return {};  // no step is left to compute
  std::vector<ResultChange> changes = ScheduleChanges(from.run, run, from.step);
  if (!from.tokens.empty() && from.tokens != tokens) {
    // One place whose content is another one differs in what it holds, not in its name.
    const auto place = [](const std::string& data, const std::string& content) {
      return data.empty() ? content : fmt::format("{} ({})", data, content);
    };
    changes.push_back({"data", place(from.run.data, from.tokens), place(run.data, tokens)});
  }
  Settings before = SettingsOf(from.run);
  Settings now = SettingsOf(run);
  for (Settings* settings : {&before, &now}) {
    DropUnread(from, run, *settings);
    for (const char* key : kScheduleKeys) settings->erase(key);
  }
  Settings both = now;
  both.insert(before.begin(), before.end());
  for (const auto& [key, ignored] : both) {
    if (before.contains(key) && now.contains(key) && before[key] == now[key]) continue;
    changes.push_back({key, Shown(before, key), Shown(now, key)});
  }
  return changes;
}

void Tell(std::span<const ResultChange> changes, const std::string& path) {
  for (const ResultChange& change : changes) {
    LogWarning("{}: {} is {} in the checkpoint, {} in this run", path, LastPart(change.key),
               change.before, change.now);
  }
}

std::vector<ResultChange> RequireContinuation(const CheckpointHeader& from, const std::string& path,
                                              const RunConfig& run, const std::string& tokens,
                                              std::span<const std::string> overrides) {
  CheckNames(overrides, from, run);
  if (from.tokens.empty() && from.step < run.steps) {
    LogWarning("{}: its data are unknown, and not compared with this run's", path);
  }
  std::vector<ResultChange> changes = ChangesSince(from, run, tokens);
  std::vector<std::string> refused;
  for (const ResultChange& change : changes) {
    const auto names = [&](const std::string& name) { return Names(name, change.key); };
    if (std::ranges::none_of(overrides, names)) refused.push_back(LastPart(change.key));
  }
  if (refused.empty()) return changes;
  Tell(changes, path);
  throw UsageError(fmt::format(
      "{}: this run would not continue the one that saved it: {} changed{}; expected the same, or "
      "--override {}",
      path, fmt::join(refused, ", "), HowToKeepSchedule(changes), fmt::join(refused, ",")));
}

}  // namespace trimtab
