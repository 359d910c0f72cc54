// An estimator never takes what it remembers of one run for another's: every value of a layout and
// a run is changed alone, and an estimator that knows the run without the change says of the
// changed one what an estimator says that knows nothing, bit for bit. A value that a key of the
// caches leaves out and that makes a difference fails here.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "engine/base/error.h"
#include "engine/config/layout/layout_keys.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "tests/cost_model/closed_form/spaces.h"
#include "tests/engine/config/json_changes.h"
#include "tests/engine/train/layouts.h"

namespace trimtab {
namespace {

constexpr LayoutPart kAllChosen[] = {LayoutPart::kSharding, LayoutPart::kFirstWaits,
                                     LayoutPart::kWaits, LayoutPart::kWhole};

/// Returns the values that a key is given: those that it lists, or some.
std::vector<std::string> ValuesOf(const LayoutKey& key) {
  static const std::map<std::string, std::vector<std::string>> kLists = {
      {"stages", {"auto", "1+5", "2+4", "1+2+3", "3+2+1", "1+3", "3+1"}},
      {"recompute",
       {"none", "full", "full:block:1", "full:block:2", "full:uniform:2", "selective:core_attn",
        "selective:layernorm+mlp_act", "selective:mlp+logits", "none/full", "full:block:1/none"}}};
  if (const auto list = kLists.find(key.name); list != kLists.end()) return list->second;
  const std::string listed = key.values();
  return listed == "N" ? std::vector<std::string>{"0", "1", "2", "3", "4", "6"} : ListedValues(key);
}

/// Returns `run` with each other value of `key` that is legal.
std::vector<RunConfig> ChangesOf(const RunConfig& run, const LayoutKey& key) {
  std::vector<RunConfig> changes;
  for (const std::string& value : ValuesOf(key)) {
    RunConfig changed = run;
    try {
      key.parse(value, key.name, changed.layout);
    } catch (const UsageError&) {
      EXPECT_EQ(value, "0") << key.name;  // of sizes that begin at 1
      continue;
    }
    if (changed == run || FirstBrokenRule(changed) != nullptr) continue;
    changes.push_back(std::move(changed));
  }
  return changes;
}

/// Returns true for values that an estimator is made for, and for those of a layout.
bool IsFixed(const std::string& path) {
  return path == "/schema_version" || path == "/sequence_length" || path == "/device" ||
         path.starts_with("/model/") || path.starts_with("/layout/");
}

/// Returns `run` with each of its own values changed that may be changed alone, by its path.
std::vector<std::pair<std::string, RunConfig>> ChangesOf(const RunConfig& run) {
  static const std::map<std::string, nlohmann::json> kOthers = {
      {"/optimizer/kind", "sgd"},
      {"/optimizer/clip_grad", 0.0},
      {"/optimizer/groups",
       {{{"match", {"*.bias", "*norm*"}}, {"learning_rate_factor", 0.5}, {"weight_decay", true}}}},
      {"/fp8/scaling", "current"},
      {"/fp8/bf16_layers", {"decoder.layers.1.mlp"}},
      {"/packing/mask", "documents"},
      {"/packing/lengths", {{{"tokens", 3}, {"weight", 1.0}}}},
      {"/frozen", {"decoder.layers.[0-1].*"}},
      {"/loss_scale/minimum", 2.0},
      {"/routing/imbalance_factor", 1.5},
      {"/memory_per_rank_bytes", int64_t{1} << 40},
  };
  nlohmann::json json = ToJson(run);
  json["frozen"] = nlohmann::json::array();
  std::vector<std::pair<std::string, RunConfig>> changes;
  for (const JsonChange& change : JsonChanges(json, kOthers)) {
    if (IsFixed(change.path)) continue;
    RunConfig changed = RunConfigFromJson(change.json, change.path);
    EXPECT_FALSE(changed == run) << change.path;
    if (FirstBrokenRule(changed) == nullptr) changes.emplace_back(change.path, std::move(changed));
  }
  return changes;
}

/// Returns all that an estimate says.
std::string TextOf(const Estimate& estimate) {
  std::string text = ToJson(estimate).dump();
  for (const auto& groups : estimate.comm.totals) {
    for (const CommTotal& total : groups) text += fmt::format(" {}:{}", total.count, total.bytes);
  }
  return text;
}

class OneChange {
 public:
  explicit OneChange(const Cluster& cluster) : cluster_(cluster) {}

  void Of(const RunConfig& run) {
    ClosedFormEstimator known(run.model, run.sequence_length, cluster_);
    const std::string before = Says(known, run);
    ASSERT_EQ(before, Fresh(run)) << Describe(run);
    const auto expect = [&](const std::string& what, const RunConfig& changed) {
      changed_.insert(what);
      EXPECT_EQ(Says(known, changed), Fresh(changed))
          << what << " changed from " << Describe(run) << " to " << Describe(changed);
      EXPECT_EQ(Says(known, run), before) << what << " changed from " << Describe(run);
    };
    for (const LayoutKey& key : LayoutKeys()) {
      for (const RunConfig& changed : ChangesOf(run, key)) expect(key.name, changed);
    }
    for (const auto& [path, changed] : ChangesOf(run)) expect(path, changed);
  }

  /// Keys and paths that were changed.
  const std::set<std::string>& changed() const { return changed_; }

 private:
  std::string Fresh(const RunConfig& run) const {
    ClosedFormEstimator fresh(run.model, run.sequence_length, cluster_);
    return Says(fresh, run);
  }

  static std::string Says(ClosedFormEstimator& estimator, const RunConfig& run) {
    std::string text = TextOf(estimator.Run(run));
    if (run.layout.recompute.size() > 0) return text;
    const RecomputeConfig plan = run.layout.recompute[0];
    for (const LayoutPart part : kAllChosen) {
      const StepBound bound = estimator.Bound(run, part, {plan, plan});
      text += fmt::format(" {}: {} s", static_cast<int>(part), bound.step_time_s);
      // For bytes, this part takes the better bound of the next one where that is known.
      if (part != LayoutPart::kFirstWaits) text += fmt::format(" {} bytes", bound.peak_mem_bytes);
    }
    return text;
  }

  Cluster cluster_;
  std::set<std::string> changed_;
};

/// Returns layouts of `space`, far apart, each in one of the numerics.
std::vector<RunConfig> Bases(const LayoutSpace& space, const std::vector<std::string>& numerics) {
  constexpr size_t kBases = 8;
  const std::vector<size_t> sample = space.Sample(/*count=*/100, /*seed=*/5);
  std::vector<RunConfig> bases;
  for (size_t i = 0; i < kBases; ++i) {
    RunConfig run = space[sample[i * sample.size() / kBases]];
    run.layout.numerics = ParseLayout(numerics[i % numerics.size()], 0).numerics;
    run.routing.force_balance = run.model.moe.used();
    if (FirstBrokenRule(run) == nullptr) bases.push_back(std::move(run));
  }
  return bases;
}

TEST(OneChange, IsSeenByWhateverIsRemembered) {
  const std::vector<std::string> sixteen = {"precision=bf16",
                                            "precision=bf16,master=remainder,moments=bf16"};
  OneChange on_gpus(LoadCluster("2x8xh200"));
  for (const SmallModel model : {SmallModel::kGpt2, SmallModel::kDeepSeek}) {
    for (const RunConfig& run : Bases(SpaceToLayOut(model), sixteen)) on_gpus.Of(run);
  }
  const LayoutSpace fp8(RunToLayOutInFp8(/*llama=*/true));
  for (const RunConfig& run : Bases(fp8, {"precision=fp8,grads=bf16"})) on_gpus.Of(run);
  OneChange on_cpus(GenericCpu());
  for (const RunConfig& run : Bases(SpaceToLayOut(SmallModel::kLlama), {"precision=fp32"})) {
    on_cpus.Of(run);
  }
  // Every key and every value of a run was changed somewhere.
  std::set<std::string> missing;
  for (const LayoutKey& key : LayoutKeys()) missing.insert(key.name);
  nlohmann::json json = ToJson(SpaceToLayOut(SmallModel::kGpt2)[0]);
  json["frozen"] = nlohmann::json::array();
  const nlohmann::json leaves = json.flatten();
  for (const auto& [path, leaf] : leaves.items()) {
    if (!IsFixed(path)) missing.insert(path);
  }
  for (const OneChange* each : {&on_gpus, &on_cpus}) {
    for (const std::string& name : each->changed()) missing.erase(name);
  }
  EXPECT_EQ(missing, std::set<std::string>());
}

}  // namespace
}  // namespace trimtab
