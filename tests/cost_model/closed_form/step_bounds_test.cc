// No bound is above what it bounds: the closed form of random layouts, against the bounds of their
// parts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "cost_model/closed_form/closed_form.h"
#include "engine/base/units.h"
#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "tests/cost_model/closed_form/spaces.h"

namespace trimtab {
namespace {

/// A model on a cluster, and the estimator of its layouts.
struct Place {
  Place(ModelConfig its_model, const Cluster& its_cluster, int64_t batch, int64_t sequence)
      : cluster(its_cluster), estimator(its_model, sequence, its_cluster) {
    run.model = std::move(its_model);
    run.device = cluster.device;
    run.global_batch = batch;
    run.sequence_length = sequence;
    run.threads_per_rank = 1;
  }

  RunConfig run;
  Cluster cluster;
  ClosedFormEstimator estimator;
};

/// A cpu of four ranks and no measured tables.
Cluster GenericCpu() {
  Cluster cluster;
  cluster.name = "cpu";
  cluster.device = DeviceKind::kCpu;
  cluster.max_ranks = cluster.ranks_per_node = cluster.cores = 8;
  cluster.profile = BuiltinProfile("cpu");
  return cluster;
}

constexpr const char* kRecomputeFamilies[] = {"none", "selective", "full"};

class RandomLayouts {
 public:
  template <typename List>
  auto OneOf(const List& list) {
    return list[random_() % std::size(list)];
  }

  /// A layout of all ranks of `place`, legal or not.
  ParallelConfig Next(const Place& place) {
    ParallelConfig layout;
    layout.dp = place.cluster.max_ranks;
    const ModelConfig& model = place.run.model;
    layout.numerics.precision = place.cluster.device == DeviceKind::kCpu ? Precision::kFp32
                                : place.cluster.profile.name.starts_with("h") && Chance(4)
                                    ? Precision::kFp8
                                    : Precision::kBf16;
    const auto take = [&](int64_t& size, int64_t most) {
      while (size < most && layout.dp % 2 == 0 && Chance(2)) {
        size *= 2;
        layout.dp /= 2;
      }
    };
    take(layout.tp, 16);
    take(layout.cp, 64);
    take(layout.pp, model.num_layers);
    layout.sequence_parallel = layout.tp > 1 && (model.moe.used() || Chance(2));
    if (layout.tp > 1) layout.tp_overlap_chunks = int64_t{1} << (random_() % 3);
    if (layout.cp > 1 && Chance(2)) layout.cp_comm_type = CpCommType::kAllGather;
    if (layout.pp > 1) {
      layout.schedule = static_cast<Schedule>(random_() % 4);
      if (layout.schedule == Schedule::kInterleaved1F1B) layout.vp = 2 + random_() % 3;
    }
    while (model.moe.used() && layout.ep < model.moe.num_experts && Chance(2)) layout.ep *= 2;
    while (model.moe.used() && layout.etp < layout.tp && Chance(2)) layout.etp *= 2;
    if (layout.ep * layout.etp > 1 && Chance(2)) layout.dispatch = Dispatch::kAllGather;
    layout.micro_batch = int64_t{1} << (random_() % 4);
    layout.recompute = OneOf(PlansLike(OneOf(kRecomputeFamilies), model, layout));
    if (layout.dp * layout.cp > 1) layout.zero = random_() % 4;
    if (layout.zero > 0 && Chance(2)) layout.shard = layout.dp * layout.cp / 2;
    if (layout.zero == 3) layout.reshard_after_forward = Chance(2);
    if (layout.zero == 1 || layout.zero == 2) layout.overlap_param_gather = Chance(2);
    layout.overlap_grad_reduce = !Chance(4);
    return layout;
  }

  /// Plans of which one is that of `layout`, and others, for any pipeline of those that it may be.
  PlanRange Around(const ModelConfig& model, const ParallelConfig& layout) {
    const RecomputeConfig& plan = layout.recompute[0];
    if (Chance(4)) return RangeOf({{plan}});
    const std::vector<RecomputeConfig> plans = PlansLike(ToString(plan), model, layout);
    const auto place =
        static_cast<size_t>(std::find(plans.begin(), plans.end(), plan) - plans.begin());
    const size_t first = random_() % (place + 1);
    const size_t end = place + 1 + random_() % (plans.size() - place);
    return RangeOf(std::span(plans).subspan(first, end - first));
  }

  int64_t OneOf(int64_t one, int64_t other) { return Chance(2) ? one : other; }

 private:
  /// Of the same kind as `text`, for the chunks of `layout`; of modules, some sets.
  static std::vector<RecomputeConfig> PlansLike(const std::string& text, const ModelConfig& model,
                                                const ParallelConfig& layout) {
    const RecomputeConfig one = ParseRecompute(text, "plan");
    std::vector<RecomputeConfig> plans;
    if (one.kind == RecomputeKind::kNone) return {one};
    if (one.kind == RecomputeKind::kSelective) {
      for (const char* set : {"layernorm", "mlp_act", "layernorm+mlp_act", "core_attn",
                              "core_attn+layernorm+mlp_act", "logits", "core_attn+mlp_act+logits",
                              "mlp", "mlp+layernorm+logits", "core_attn+layernorm+mlp+logits"}) {
        plans.push_back(ParseRecompute(fmt::format("selective:{}", set), "plan"));
      }
      return plans;
    }
    const int64_t layers = CeilDiv(model.num_layers, layout.pp * layout.vp);
    for (int64_t count = 1; count <= layers; ++count) plans.push_back(FullOf(count, layers));
    for (int64_t count = 2; count <= layers; ++count) plans.push_back(UniformOf(count));
    return plans;
  }
  bool Chance(uint32_t in) { return random_() % in == 0; }

  std::mt19937 random_{7};
};

/// `run` with only `part` of its layout chosen.
RunConfig PartOf(RunConfig run, LayoutPart part) {
  ParallelConfig& layout = run.layout;
  const ParallelConfig none;
  if (part < LayoutPart::kSharding) {
    layout.zero = none.zero;
    layout.shard = none.shard;
    layout.reshard_after_forward = none.reshard_after_forward;
    layout.overlap_param_gather = none.overlap_param_gather;
  }
  if (part <= LayoutPart::kShape) layout.recompute = none.recompute;
  if (part == LayoutPart::kNumerics) {
    layout.dp = layout.world_size() / layout.pp;
    layout.tp = layout.cp = layout.ep = layout.etp = 1;
    layout.sequence_parallel = false;
    layout.tp_overlap_chunks = none.tp_overlap_chunks;
  }
  if (part <= LayoutPart::kParts) layout.micro_batch = none.micro_batch;
  if (part <= LayoutPart::kPlans) {
    layout.dp *= layout.pp;
    layout.pp = none.pp;
    layout.vp = none.vp;
    layout.schedule = none.schedule;
  }
  return run;
}

struct NamedPart {
  LayoutPart part;
  const char* name;
};
constexpr NamedPart kParts[] = {
    {LayoutPart::kNumerics, "Numerics"}, {LayoutPart::kParts, "Parts"},
    {LayoutPart::kShape, "Shape"},       {LayoutPart::kPlans, "Plans"},
    {LayoutPart::kPipeline, "Pipeline"}, {LayoutPart::kSplitPasses, "SplitPasses"},
    {LayoutPart::kSharding, "Sharding"}, {LayoutPart::kFirstWaits, "FirstWaits"},
    {LayoutPart::kWaits, "Waits"},       {LayoutPart::kWhole, "Whole"}};

#ifdef TRIMTAB_EXHAUSTIVE
constexpr int kTimes = 30;
#else
constexpr int kTimes = 2;
#endif

/// Checks the bounds of `parts` against `run`, if any of `plans` is recomputed; adds to each part
/// how near it comes.
void ExpectNoBoundAbove(const RunConfig& run, const Estimate& estimate, const PlanRange& plans,
                        std::span<const NamedPart> parts, Place& place,
                        std::map<LayoutPart, double>& tightness) {
  for (const auto& [part, name] : parts) {
    const StepBound bound = place.estimator.Bound(PartOf(run, part), part, plans);
    const std::string what =
        fmt::format("{} {} part {} plans {} to {}", run.model.name, ToString(run.layout), name,
                    ToString(plans.first), ToString(plans.leanest));
    EXPECT_LE(bound.step_time_s, estimate.step_time_s) << what;
    EXPECT_LE(bound.peak_mem_bytes, estimate.memory.peak_total) << what;
    tightness[part] += bound.step_time_s / estimate.step_time_s;
  }
}

/// `least_tightness`: what each of `parts` comes to on average, at least.
void ExpectNothingIsBelowItsBounds(Place& place, int layouts,
                                   std::span<const NamedPart> parts = kParts,
                                   double least_tightness = 0) {
  layouts *= kTimes;
  RandomLayouts random;
  int legal = 0;
  std::map<LayoutPart, double> tightness;
  for (int i = 0; i < 100 * layouts && legal < layouts; ++i) {
    RunConfig run = place.run;
    run.layout = random.Next(place);
    if (FirstBrokenRule(run) != nullptr) continue;
    ++legal;
    const Estimate estimate = place.estimator.Run(run);
    // It fits, if only just.
    run.memory_per_rank_bytes = random.OneOf(estimate.memory.peak_total, 0);
    const PlanRange plans = random.Around(run.model, run.layout);
    ExpectNoBoundAbove(run, estimate, plans, parts, place, tightness);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_EQ(legal, layouts) << place.run.model.name;
  // What is bound by nothing cuts nothing.
  for (const auto& [part, name] : parts) {
    const double least = part == LayoutPart::kWhole ? 0.5 : least_tightness;
    EXPECT_GE(tightness[part] / layouts, least) << place.run.model.name << " " << name;
  }
}

class EachBound : public testing::TestWithParam<NamedPart> {};

TEST_P(EachBound, IsBelowTheLayoutsOfItsPartAndNearThem) {
  Place llama(LoadModelConfig("llama3-8b"), LoadCluster("2x8xh100"), 64, 8192);
  ExpectNothingIsBelowItsBounds(llama, 60, std::span(&GetParam(), 1), /*least_tightness=*/0.1);
}

INSTANTIATE_TEST_SUITE_P(StepBounds, EachBound, testing::ValuesIn(kParts),
                         [](const auto& part) { return std::string(part.param.name); });

TEST(StepBounds, OfLargeModelsOnGpus) {
  Place gpt3(LoadModelConfig("gpt3-175b"), LoadCluster("16x8xa100"), 256, 2048);
  ExpectNothingIsBelowItsBounds(gpt3, 400);
  Place llama(LoadModelConfig("llama3-8b"), LoadCluster("2x8xh100"), 64, 8192);
  ExpectNothingIsBelowItsBounds(llama, 600);
}

TEST(StepBounds, OfModelsWithExperts) {
  Place mixtral(LoadModelConfig("mixtral-8x7b"), LoadCluster("4x8xh100"), 128, 4096);
  ExpectNothingIsBelowItsBounds(mixtral, 600);
  // Its first layer is a dense one.
  Place deepseek(LoadModelConfig("deepseek-v2-lite"), LoadCluster("4x8xh100"), 128, 4096);
  ExpectNothingIsBelowItsBounds(deepseek, 600);
}

RunConfig RunOf(const Place& place, const std::string& text) {
  RunConfig run = place.run;
  run.layout = ParseLayout(text, place.cluster.max_ranks);
  EXPECT_EQ(FirstBrokenRule(run), nullptr) << text;
  return run;
}

/// Of its plan alone.
void ExpectNoBoundAbove(Place& place, const std::string& text) {
  const RunConfig run = RunOf(place, text);
  const RecomputeConfig& plan = run.layout.recompute[0];
  std::map<LayoutPart, double> tightness;
  ExpectNoBoundAbove(run, place.estimator.Run(run), {plan, plan}, kParts, place, tightness);
}

// Gradients that are sharded are not added to: a pass that would add takes longer. And what moves
// beside the weights' part of a backward pass leaves less of a pipeline idle.
TEST(StepBounds, WhereGradientsAreSharded) {
  Place gpt3(LoadModelConfig("gpt3-175b"), LoadCluster("16x8xa100"), 256, 2048);
  ExpectNoBoundAbove(gpt3,
                     "tp=1,cp=16,cp_comm_type=all_gather,dp=8,zero=3,reshard_after_forward=0,mbs=8,"
                     "recompute=selective:core_attn,precision=bf16");
  Place deepseek(LoadModelConfig("deepseek-v2-lite"), LoadCluster("4x8xh100"), 128, 4096);
  ExpectNoBoundAbove(
      deepseek,
      "tp=1,cp=2,pp=16,ep=2,dispatch=allgather,dp=1,zero=2,schedule=zero-bubble,mbs=8,"
      "recompute=selective:core_attn+layernorm+mlp_act,precision=bf16");
}

// Ops that the messages of context-parallel ranks slow down already are not slowed by shards as
// well: what runs again beside these, and is, takes longer by more than a pass without.
TEST(StepBounds, WhereShardsMoveBesideOtherMessages) {
  Cluster cluster = LoadCluster("2x8xh100");
  cluster.stack = LoadSoftwareStack("torchtitan");
  Place llama(LoadModelConfig("llama3-8b"), cluster, 64, 8192);
  for (const char* text :
       {"tp=1,cp=8,dp=2,zero=2,shard=8,overlap_param_gather=1,mbs=8,recompute=full:uniform:21,"
        "precision=bf16",
        "tp=1,cp=8,dp=2,zero=3,shard=8,reshard_after_forward=0,mbs=8,recompute=full:uniform:16,"
        "precision=fp8",
        "tp=1,cp=8,pp=2,dp=1,zero=2,overlap_param_gather=1,schedule=gpipe,mbs=8,precision=bf16"}) {
    ExpectNoBoundAbove(llama, text);
  }
}

// 56 layers over 32 stages: one on the first, which has the embedding, and two on those amid.
TEST(StepBounds, AStageAmidMayBeTheFullest) {
  Place mixtral(LoadModelConfig("mixtral-8x22b"), LoadCluster("8x8xh100"), 128, 4096);
  const RunConfig run = RunOf(mixtral, "tp=2,sp=1,pp=32,dp=1,zero=0,mbs=1,precision=bf16");
  const RecomputeConfig& plan = run.layout.recompute[0];
  const StepBound bound = mixtral.estimator.Bound(run, LayoutPart::kWhole, {plan, plan});
  const auto peak = static_cast<double>(mixtral.estimator.Run(run).memory.peak_total);
  EXPECT_LE(static_cast<double>(bound.peak_mem_bytes), peak);
  EXPECT_GT(static_cast<double>(bound.peak_mem_bytes), 0.95 * peak);
}

TEST(StepBounds, OfStacksThatKeepMore) {
  Cluster cluster = LoadCluster("2x8xh100");
  cluster.stack = LoadSoftwareStack("torchtitan");  // a copy of the logits
  cluster.stack.kept_bytes.value = 9000;            // of a token in a layer that runs again
  Place llama(LoadModelConfig("llama3-8b"), cluster, 64, 8192);
  ExpectNothingIsBelowItsBounds(llama, 300);
}

// Then a step is as long as what its passes cannot hide.
TEST(StepBounds, WhereMessagesTakeLongest) {
  Cluster slow = LoadCluster("16x8xa100");
  slow.profile.network_bandwidth.value /= 60;
  Place gpt3(LoadModelConfig("gpt3-175b"), slow, 256, 2048);
  ExpectNothingIsBelowItsBounds(gpt3, 400);
  Cluster one_by_one = LoadCluster("16x1xh100");
  one_by_one.profile.network_bandwidth.value /= 15;
  Place llama(LoadModelConfig("llama3.2-1b"), one_by_one, 64, 2048);
  ExpectNothingIsBelowItsBounds(llama, 400);
}

// What they need not recompute to fit, no bound may ask for.
TEST(StepBounds, OfStacksThatKeepLess) {
  Cluster cluster = LoadCluster("2x8xh100");
  cluster.stack.activations.value = 0.4;
  Place llama(LoadModelConfig("llama3-8b"), cluster, 64, 8192);
  ExpectNothingIsBelowItsBounds(llama, 300);
}

TEST(StepBounds, OfSmallModelsOnGpusAndCpus) {
  for (const ModelConfig& model : {TinyGpt2(), TinyLlama(), TinyFp8Llama()}) {
    for (const Cluster& cluster : {GenericCpu(), LoadCluster("8xh100")}) {
      Place place(model, cluster, 64, 16);
      ExpectNothingIsBelowItsBounds(place, 500);
    }
  }
}

}  // namespace
}  // namespace trimtab
