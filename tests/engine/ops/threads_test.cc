// Results do not depend on how many workers a rank has, nor on how they were scheduled.
#include "tests/engine/ops/op_list.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

std::vector<std::vector<char>> Results(const OpCase& op, int threads) {
  const auto device = MakeCpuDevice(threads);
  std::vector<std::vector<char>> results;
  for (const Tensor& output : op.run(*device)) {
    results.emplace_back(static_cast<size_t>(output.bytes()));
    device->CopyToHost(results.back().data(), output.raw(), output.bytes());
  }
  return results;
}

bool IsProduct(const OpCase& op) {
  return op.record.kind == OpKind::kGemm || op.record.kind == OpKind::kGroupedGemm;
}

TEST(ThreadsTest, EveryOpGivesTheSameBitsOnAnyNumberOfThreads) {
  for (const OpCase& op : EveryOp()) {
    // oneDNN may split a product's inner dimension over its workers.
    if (IsProduct(op)) continue;
    SCOPED_TRACE(op.name);
    const auto expected = Results(op, 1);
    for (const int threads : {1, 2, 3, 8}) {
      EXPECT_EQ(Results(op, threads), expected) << threads << " threads";
    }
  }
}

TEST(ThreadsTest, AProductGivesTheSameBitsEveryTime) {
  for (const OpCase& op : EveryOp()) {
    if (!IsProduct(op)) continue;
    for (const int threads : {1, 2, 3}) {
      const auto expected = Results(op, threads);
      for (int repeat = 0; repeat < 5; ++repeat) EXPECT_EQ(Results(op, threads), expected);
    }
  }
}

}  // namespace
}  // namespace trimtab
