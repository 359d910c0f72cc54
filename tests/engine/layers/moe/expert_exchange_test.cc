// Rows go to the ranks of their experts and come back, for any numbers of rows.
#include "engine/layers/moe/expert_exchange.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/config/model/model_config.h"
#include "engine/ops/elementwise/elementwise.h"

namespace trimtab {
namespace {

constexpr int64_t kColumns = 3;

/// Rows of each rank of a group for each expert; some have none.
std::vector<int64_t> RandomCounts(int ranks, int64_t experts, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> counts;
  for (int64_t i = 0; i < ranks * experts; ++i) counts.push_back(random() % 4);
  return counts;
}

/// Tells a row of `rank` apart, number `row` of those for `expert`.
float Mark(int rank, int64_t expert, int64_t row) {
  return static_cast<float>(rank * 10000 + expert * 100 + row);
}

Tensor RowsOf(Device& device, const std::vector<float>& marks) {
  std::vector<float> values;
  for (const float mark : marks) {
    for (int64_t column = 0; column < kColumns; ++column) {
      values.push_back(mark + 0.25f * static_cast<float>(column));
    }
  }
  Tensor rows = Tensor::Empty(device, {static_cast<int64_t>(marks.size()), kColumns}, DType::kF32,
                              MemoryTag::kActivations);
  CopyFromHost(rows, values);
  return rows;
}

std::vector<float> Values(const Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.numel()));
  CopyToHost(tensor, values);
  return values;
}

class Exchange : public testing::TestWithParam<const char*> {
 protected:
  using Body = std::function<void(const LayerContext& context, const ExpertExchange& exchange,
                                  const std::vector<int64_t>& counts)>;
  static constexpr int64_t kExperts = 8;

  static void OnEveryRank(const Body& body) {
    const ModelConfig model;
    RunInprocRanks(ParseLayout(GetParam(), 0), [&](ParallelContext& parallel) {
      const std::unique_ptr<Device> device = MakeCpuDevice(1);
      const LayerContext context = {
          .device = *device, .parallel = parallel, .model = model, .types = TypesOf({})};
      for (uint32_t seed = 0; seed < 20; ++seed) {
        const std::vector<int64_t> counts = RandomCounts(parallel.etp_ep->size(), kExperts, seed);
        const std::vector<float> values(counts.begin(), counts.end());
        Tensor counted = context.NewF32({parallel.etp_ep->size(), kExperts}, MemoryTag::kWorkspace);
        CopyFromHost(counted, values);
        body(context, ExpertExchange(context, ExpertCounts(kExperts, counts), counted), counts);
      }
    });
  }
  /// What rank `rank` of the group sends, expert by expert.
  static std::vector<float> Sent(const std::vector<int64_t>& counts, int rank) {
    std::vector<float> marks;
    for (int64_t e = 0; e < kExperts; ++e) {
      for (int64_t i = 0; i < counts[static_cast<size_t>(rank * kExperts + e)]; ++i) {
        marks.push_back(Mark(rank, e, i));
      }
    }
    return marks;
  }
};

TEST_P(Exchange, BringsEveryExpertItsRowsInTheOrderOfTheRanks) {
  OnEveryRank([](const LayerContext& context, const ExpertExchange& exchange,
                 const std::vector<int64_t>& counts) {
    const Communicator& ep = *context.parallel.ep;
    const int etp = context.parallel.etp->size();
    const int64_t local = kExperts / ep.size();
    std::vector<float> expected;
    for (int64_t e = 0; e < local; ++e) {
      const int64_t expert = ep.rank() * local + e;
      const size_t before = expected.size();
      for (int sharer = 0; sharer < etp; ++sharer) {
        for (int peer = 0; peer < ep.size(); ++peer) {
          const int rank = sharer + etp * peer;
          for (int64_t i = 0; i < counts[static_cast<size_t>(rank * kExperts + expert)]; ++i) {
            expected.push_back(Mark(rank, expert, i));
          }
        }
      }
      EXPECT_EQ(exchange.expert_rows()[static_cast<size_t>(e)],
                static_cast<int64_t>(expected.size() - before));
    }
    EXPECT_EQ(exchange.rows(), static_cast<int64_t>(expected.size()));
    const Tensor sent = RowsOf(context.device, Sent(counts, context.parallel.etp_ep->rank()));
    const Tensor came = exchange.Send(context, sent, MemoryTag::kActivations);
    EXPECT_EQ(Values(came), Values(RowsOf(context.device, expected)));
  });
}

TEST_P(Exchange, BringsThemBackAddedUpOverTheRanksOfAnExpert) {
  OnEveryRank([](const LayerContext& context, const ExpertExchange& exchange,
                 const std::vector<int64_t>& counts) {
    std::vector<float> marks = Sent(counts, context.parallel.etp_ep->rank());
    const Tensor sent = RowsOf(context.device, marks);
    const Tensor back = exchange.Return(
        context, exchange.Send(context, sent, MemoryTag::kActivations), MemoryTag::kActivations);
    std::vector<float> expected = Values(sent);
    for (float& value : expected) value *= static_cast<float>(context.parallel.etp->size());
    EXPECT_EQ(Values(back), expected);
    EXPECT_EQ(back.shape(), sent.shape());
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, Exchange,
                         testing::Values("dp=1", "dp=2,ep=2", "dp=4,ep=4", "dp=4,ep=2",
                                         "tp=2,sp=1,etp=2", "dp=4,ep=2,etp=2", "dp=8,ep=2,etp=4",
                                         "tp=2,sp=1,pp=2,dp=2,ep=4"),
                         [](const auto& param) {
                           std::string name = param.param;
                           for (char& c : name) c = std::isalnum(c) ? c : '_';
                           return name;
                         });

}  // namespace
}  // namespace trimtab
