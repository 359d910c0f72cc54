// Groups of layers that run again together: few of their layers show what all do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "engine/config/rules/rules.h"
#include "engine/families/load_config.h"
#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"

namespace trimtab {
namespace {

struct Place {
  const char* model;
  const char* cluster;
  int64_t global_batch;
  const char* layout;
};

/// Large models in layouts of which groups may be recomputed: with shards that move beside them,
/// and without; all layers alike, and not.
constexpr Place kPlaces[] = {
    {"llama3-8b", "2x8xh100", 32, "tp=2,sp=1,dp=8"},
    {"llama3-8b", "2x8xh100", 32, "tp=1,dp=16,zero=2"},
    {"llama3-8b", "2x8xh100", 32, "tp=1,dp=16,zero=3"},
    {"llama3-8b", "2x8xh100", 32, "tp=1,dp=16,zero=3,reshard_after_forward=0"},
    {"llama3-8b", "2x8xh100", 32, "tp=1,pp=2,dp=8,zero=3,schedule=zero-bubble"},
    {"llama3-8b", "2x8xh100", 32, "tp=2,sp=1,tp_overlap_chunks=2,dp=8,zero=2,mbs=2"},
    {"deepseek-v2-lite", "4x8xh100", 64, "tp=1,ep=8,dp=32"},
    {"deepseek-v2-lite", "4x8xh100", 64, "tp=1,ep=8,dp=32,zero=3"},
    {"deepseek-v2-lite", "4x8xh100", 64, "tp=1,ep=8,pp=2,dp=16,zero=2"},
};

class GroupsOf : public testing::TestWithParam<int> {};

TEST_P(GroupsOf, LayersCostWhatTheDryRunSays) {
  for (const Place& place : kPlaces) {
    RunConfig run;
    run.model = LoadModelConfig(place.model);
    run.device = DeviceKind::kCuda;
    run.global_batch = place.global_batch;
    run.sequence_length = 4096;
    run.routing.force_balance = run.model.moe.used();
    const Cluster cluster = LoadCluster(place.cluster);
    run.layout = ParseLayout(
        fmt::format("{},recompute=full:uniform:{},precision=bf16", place.layout, GetParam()), 0);
    SCOPED_TRACE(fmt::format("{} {}", place.model, ToString(run.layout)));
    ASSERT_EQ(FirstBrokenRule(run), nullptr) << FirstBrokenRule(run)->message(run);
    ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
    ExpectSameStages(estimator, run, cluster);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, GroupsOf, testing::Values(2, 3, 4, 5, 7, 12, 15, 27));

}  // namespace
}  // namespace trimtab
