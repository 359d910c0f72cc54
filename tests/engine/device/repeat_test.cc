#include "engine/device/repeat.h"

#include <gtest/gtest.h>

#include <vector>

namespace trimtab {
namespace {

class Counter final : public RepeatRecorder {
 public:
  void BeginOp(const OpRecord&) override {}
  void BeginComm(const CommRecord&) override {}
  void BeginWait(const CommRecord&) override {}
  void End() override {}
  void BeginRepeated(int64_t times) override { repeated.push_back(times); }
  void EndRepeated() override { ++ended; }

  std::vector<int64_t> repeated;
  int ended = 0;
};

int64_t Runs(Device& device, int64_t times) {
  int64_t runs = 0;
  Repeat(device, times, [&](int64_t i) { EXPECT_EQ(i, runs++); });
  return runs;
}

TEST(Repeat, ShowsAnUnderstandingListenerOnce) {
  const std::unique_ptr<Device> meta = MakeMetaDevice(1);
  Counter counter;
  meta->set_recorder(&counter);
  EXPECT_EQ(Runs(*meta, 7), 1);
  EXPECT_EQ(Runs(*meta, 1), 1);
  EXPECT_EQ(Runs(*meta, 0), 0);
  EXPECT_EQ(counter.repeated, (std::vector<int64_t>{7, 1}));
  EXPECT_EQ(counter.ended, 2);
}

TEST(Repeat, DoesAllOfItWhereSomethingComesOfIt) {
  const std::unique_ptr<Device> cpu = MakeCpuDevice(1);
  Counter counter;
  cpu->set_recorder(&counter);
  EXPECT_EQ(Runs(*cpu, 7), 7);
  EXPECT_TRUE(counter.repeated.empty());
  EXPECT_EQ(Runs(*MakeMetaDevice(1), 3), 3) << "nobody listens";
}

}  // namespace
}  // namespace trimtab
