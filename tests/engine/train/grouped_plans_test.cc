// Plans of matrix products that training with experts asks for on a cuda device: as many as there
// are buckets of rows, however many different numbers of rows experts get.
#include <gtest/gtest.h>

#include <set>

#include "engine/comm/parallel_context.h"
#include "engine/device/cuda/emulation/emulated_device.h"
#include "engine/ops/cuda/elementwise/fill.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "engine/ops/cuda/gemm/gemm_key.h"
#include "engine/ops/cuda/gemm/gemm_plan_cache.h"
#include "engine/train/trainer.h"
#include "tests/engine/train/moe_runs.h"

namespace trimtab {
namespace {

struct Counts {
  PlanCache<GemmKey, int> plans{1000};
  int64_t made = 0;            // plans
  std::set<GemmKey> products;  // of experts, with their sizes
  std::set<GemmKey> kinds;     // of experts, whatever their rows
};
Counts* counts = nullptr;
decltype(CudaOps::gemm) emulated_gemm = nullptr;

void CountingGemm(const Tensor& a, Transpose trans_a, const Tensor& b, Transpose trans_b, Tensor& c,
                  const GemmOptions& options) {
  const GemmKey key = KeyOf(a, trans_a, b, trans_b, c, options);
  if (key.varying != VaryingSize::kNone) {
    const GemmKey plan = PlanKey(key);
    if (counts->plans.Find(plan) == nullptr) {
      counts->plans.Add(plan, 0);
      ++counts->made;
    }
    counts->products.insert(key);
    GemmKey kind = key;
    (key.varying == VaryingSize::kM ? kind.m : kind.k) = 0;
    counts->kinds.insert(kind);
  }
  emulated_gemm(a, trans_a, b, trans_b, c, options);
}

TEST(GroupedPlans, AreAsManyAsThereAreBucketsOfRows) {
  Counts counted;
  counts = &counted;
  CudaOps ops;
  FillCudaOps(ops);
  emulated_gemm = ops.gemm;
  ops.gemm = CountingGemm;
  RunConfig run = SmallMoeRuns().front().run;
  run.routing.force_balance = false;
  run.layout = ParseLayout("mbs=4", 0);
  const auto source = MakeSyntheticSource(run.model.vocab_size, /*seed=*/7);
  RunInprocRanks(run.layout, [&](ParallelContext& context) {
    EmulatedDevice device(&ops);
    Trainer trainer(run, context, device);
    for (int64_t step = 0; step < 8; ++step) trainer.Step(*source, step);
  });
  ASSERT_FALSE(counted.kinds.empty());
  // Rows of an expert: at most all tokens of the micro batch.
  std::set<int64_t> buckets;
  for (int64_t rows = 1; rows <= 4 * run.sequence_length; ++rows) buckets.insert(RowBucket(rows));
  EXPECT_LE(counted.plans.size(), counted.kinds.size() * buckets.size());
  EXPECT_EQ(counted.made, static_cast<int64_t>(counted.plans.size()));
  // Far more numbers of rows than that came.
  EXPECT_GT(counted.products.size(), 2 * counted.plans.size());
}

}  // namespace
}  // namespace trimtab
