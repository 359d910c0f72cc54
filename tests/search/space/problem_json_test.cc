// Problems as JSON: whatever a problem holds comes back, and what is wrong in a file is named.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/config/json/text_values.h"
#include "engine/families/load_config.h"
#include "search/space/space.h"
#include "tests/search/search_fakes.h"

namespace trimtab {
namespace {

constexpr int kProblems = 2000;

/// Problems of every kind, drawn from a seed.
class RandomProblems {
 private:
  template <typename List>
  auto OneOf(const List& list) {
    return list[generator_() % list.size()];
  }

 public:
  Problem Next() {
    Problem problem;
    problem.model = LoadModelConfig(OneOf(ModelPresetNames()));
    problem.cluster = RandomCluster();
    problem.global_batch = Count(1 << 14);
    if (Maybe()) problem.global_batches = Counts(1 << 14);
    if (Maybe()) problem.gpus = Counts(1 << 14);
    problem.sequence_length = Count(1 << 17);
    problem.precisions = {OneOf(Precisions())};
    if (Maybe()) problem.precisions.push_back(OneOf(Precisions()));
    problem.optimizer_states = {Maybe() ? "auto" : OneOf(EveryOptimizerState(Precision::kBf16))};
    if (Maybe()) problem.memory_per_rank_bytes = Count(int64_t{1} << 40);
    if (Maybe()) problem.max_ranks = Count(1 << 14);
    problem.max_micro_batch = Count(64);
    problem.narrowings = RandomNarrowings();
    problem.requirements = RandomRequirements();
    for (double* number : {&problem.optimizer.beta1, &problem.optimizer.beta2}) {
      *number = Number(0.999);
    }
    problem.optimizer.ScaleTo(Number(1e-2));
    problem.optimizer.warmup_steps = Count(1000);
    if (Maybe()) problem.packing.mask = AttentionMask::kDocuments;
    for (int64_t i = Count(3); i > 1; --i) {
      problem.packing.lengths.push_back({.tokens = Count(4096), .weight = Number(8) + 0.1});
    }
    problem.seed = generator_();
    if (Maybe()) problem.data = "/data/\"tokens\" \xc3\xa9";
    problem.steps = Count(1 << 20) - 1;
    if (Maybe()) problem.tokens = Number(1e13);
    return problem;
  }

 private:
  bool Maybe() { return generator_() % 2 == 0; }
  int64_t Count(int64_t most) {
    return static_cast<int64_t>(generator_() % static_cast<uint64_t>(most)) + 1;
  }
  double Number(double most) { return std::uniform_real_distribution<double>(0, most)(generator_); }
  std::vector<int64_t> Counts(int64_t most) { return {Count(most), Count(most)}; }

  Cluster RandomCluster() {
    static const std::vector<std::string> kNames = {"1xh100", "8xh200", "16x8xh100",
                                                    "4x8xa100-80gb"};
    Cluster cluster = Maybe() ? TinyProblem().cluster : LoadCluster(OneOf(kNames));
    if (Maybe()) cluster.name = "a cluster of ours";
    if (Maybe()) cluster.price_per_gpu_hour = Number(10);
    if (Maybe()) cluster.power_per_gpu_w = Number(1000);
    if (Maybe()) cluster.reliability.gpu_mtbf_hours = Number(1e6);
    if (Maybe()) cluster.reliability.restart_s = Number(1e4);
    if (Maybe()) cluster.reliability.checkpoint_bytes_per_s = Number(1e10);
    if (Maybe()) cluster.stack = OneOf(BuiltinStacks());
    return cluster;
  }

  std::vector<Narrowing> RandomNarrowings() {
    static const std::vector<std::string> kWords = {
        "tp=1,2,8", "dp=4", "mbs=1", "recompute=none,full", "zero=0,3", "master=fp32", "pp=2,4"};
    std::vector<Narrowing> narrowings;
    while (Maybe()) {
      for (const Narrowing& each : ParseNarrowings(Split(OneOf(kWords), ','), "--flag", Maybe())) {
        narrowings.push_back(each);
      }
    }
    return narrowings;
  }

  std::vector<TrainingRequirement> RandomRequirements() {
    static const std::vector<std::string> kTexts = {"headroom>=8GiB", "gpus<=512",  "gpus<100",
                                                    "nodes<=64",      "days<=30.5", "price<=2M"};
    std::vector<TrainingRequirement> requirements;
    while (Maybe()) requirements.push_back(ParseTrainingRequirements(OneOf(kTexts))[0]);
    return requirements;
  }

  std::mt19937_64 generator_{20260129};
};

TEST(ProblemJson, AProblemComesBack) {
  RandomProblems problems;
  for (int i = 0; i < kProblems && !HasFailure(); ++i) {
    const Problem problem = problems.Next();
    const std::string text = ToJson(problem).dump();
    EXPECT_TRUE(ProblemFromJson(nlohmann::json::parse(text), "x: $") == problem) << text;
  }
  for (const std::string& name : ModelPresetNames()) {
    Problem problem = TinyProblem();
    problem.model = LoadModelConfig(name);
    EXPECT_TRUE(ProblemFromJson(ToJson(problem), "x: $") == problem) << name;
  }
}

// Equal are problems whose JSON is, and no others.
TEST(ProblemJson, TheJsonIsTheIdentity) {
  RandomProblems problems;
  Problem last = problems.Next();
  for (int i = 0; i < kProblems && !HasFailure(); ++i) {
    // One member after the other becomes another problem's.
    Problem next = problems.Next();
    Problem mixed = last;
    const auto swaps = {
        +[](Problem& to, const Problem& from) { to.model = from.model; },
        +[](Problem& to, const Problem& from) { to.cluster = from.cluster; },
        +[](Problem& to, const Problem& from) { to.narrowings = from.narrowings; },
        +[](Problem& to, const Problem& from) { to.requirements = from.requirements; },
        +[](Problem& to, const Problem& from) { to.optimizer_states = from.optimizer_states; },
        +[](Problem& to, const Problem& from) { to.precisions = from.precisions; },
        +[](Problem& to, const Problem& from) { to.max_ranks = from.max_ranks; },
        +[](Problem& to, const Problem& from) { to.gpus = from.gpus; },
        +[](Problem& to, const Problem& from) { to.packing = from.packing; },
        +[](Problem& to, const Problem& from) { to.optimizer = from.optimizer; }};
    for (const auto swap : swaps) {
      const Problem before = mixed;
      swap(mixed, next);
      EXPECT_EQ(mixed == before, ToJson(mixed) == ToJson(before)) << ToJson(mixed).dump();
    }
    last = std::move(next);
  }
}

// The prices are stored beside the problem.
TEST(ProblemJson, PricesAreNoPartOfAProblem) {
  Problem problem = TinyProblem();
  const Problem before = problem;
  problem.cluster.profile.name = "another";
  problem.cluster.caveat = "rough";
  EXPECT_TRUE(problem == before);
  EXPECT_EQ(ProblemFromJson(ToJson(problem), "x: $").cluster.profile, HardwareProfile());
  problem.cluster.cores += 1;
  EXPECT_FALSE(problem == before);
}

TEST(ProblemJson, WhatIsWrongIsNamed) {
  Problem problem = TinyProblem();
  problem.narrowings = ParseNarrowings({"tp=2"}, "--flag", false);
  problem.requirements = ParseTrainingRequirements("headroom>=1GiB");
  const nlohmann::json good = ToJson(problem);
  const std::pair<const char*, std::pair<nlohmann::json, const char*>> wrongs[] = {
      {"/model/num_layers", {"x", "x: $.model.num_layers: expected"}},
      {"/cluster/device", {"tpu", "x: $.cluster.device: expected"}},
      {"/cluster/nodes", {0, "x: $.cluster.nodes: expected"}},
      {"/cluster/colour", {"red", "x: $.cluster.colour"}},
      {"/sequence_length", {0, "x: $.sequence_length: expected"}},
      {"/global_batches", {{0}, "x: $.global_batches[0]: expected an integer from 1"}},
      {"/gpus", {nlohmann::json::array(), "x: $.gpus: expected an array that is not empty"}},
      {"/precisions", {{"fp32", "fp7"}, "x: $.precisions[1]: "}},
      {"/optimizer_states", {{"lean"}, "x: $.optimizer_states[0]: "}},
      {"/optimizer/beta1", {2, "x: $.optimizer.beta1: expected"}},
      {"/requirements", {{"speed>3"}, "x: $.requirements[0]: "}},
      {"/requirements", {{"gpus<=8,nodes<=2"}, "x: $.requirements[0]: "}},
      {"/narrowings/0/key", {"tq", "x: $.narrowings[0].key: "}},
      {"/narrowings/0/allow", {{"many"}, "x: $.narrowings[0].allow: "}},
      {"/narrowings/0/forbid", {{"2"}, "x: $.narrowings[0]: expected either"}},
      {"/tokens", {-1, "x: $.tokens: expected"}},
      {"/epochs", {1, "x: $.epochs"}},
  };
  for (const auto& [place, wrong] : wrongs) {
    nlohmann::json json = good;
    json[nlohmann::json::json_pointer(place)] = wrong.first;
    try {
      ProblemFromJson(json, "x: $");
      ADD_FAILURE() << place << " " << wrong.first << " is accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(wrong.second), std::string::npos) << error.what();
    }
  }
  for (const char* key : {"model", "cluster", "global_batch", "sequence_length", "precisions",
                          "optimizer_states", "memory_per_rank_bytes", "max_ranks",
                          "max_micro_batch", "optimizer", "packing", "seed", "data", "steps"}) {
    nlohmann::json json = good;
    json.erase(key);
    EXPECT_THROW(ProblemFromJson(json, "x: $"), InputError) << key;
  }
}

}  // namespace
}  // namespace trimtab
