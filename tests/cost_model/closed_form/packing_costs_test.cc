// The closed form and the dry run agree on packed documents, whose lengths a distribution states.
#include <gtest/gtest.h>

#include "engine/config/rules/rules.h"
#include "tests/cost_model/closed_form/same_estimate.h"
#include "tests/cost_model/closed_form/spaces.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

RunConfig PackedRun(bool llama) {
  RunConfig run = SmallRun(llama);
  run.model.num_layers = 4;
  run.model.max_sequence_length = 24;
  run.model.sliding_window = llama ? 7 : 0;
  run.sequence_length = 24;
  run.packing = {.mask = AttentionMask::kDocuments,
                 .lengths = {{.tokens = 3, .weight = 2}, {.tokens = 50}}};
  return run;
}

TEST(PackingCostsTest, ClosedFormIsTheDryRun) {
  const Cluster cluster = GenericCpu();
  for (const bool llama : {false, true}) {
    RunConfig run = PackedRun(llama);
    ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
    for (const char* layout :
         {"mbs=2", "mbs=1,recompute=full", "tp=2,sp=1,pp=2,mbs=1", "cp=2,mbs=2,cp_comm_type=p2p",
          "cp=4,mbs=1,cp_comm_type=all_gather", "cp=2,pp=2,mbs=2,cp_comm_type=p2p",
          "pp=2,vp=2,mbs=2,schedule=interleaved-1f1b", "pp=2,mbs=2,schedule=zero-bubble",
          "dp=2,zero=3,mbs=2"}) {
      run.layout = ParseLayout(layout, 0);
      ASSERT_EQ(FirstBrokenRule(run), nullptr) << layout;
      SCOPED_TRACE(layout);
      ExpectSameStages(estimator, run, cluster);
    }
  }
}

TEST(PackingCostsTest, TellsMasksApart) {
  // Packing is no part of a layout: one estimator is asked about both.
  RunConfig run = PackedRun(/*llama=*/false);
  const Cluster cluster = GenericCpu();
  ClosedFormEstimator estimator(run.model, run.sequence_length, cluster);
  for (const AttentionMask mask : {AttentionMask::kCausal, AttentionMask::kDocuments}) {
    run.packing.mask = mask;
    ExpectSameStages(estimator, run, cluster);
  }
}

}  // namespace
}  // namespace trimtab
