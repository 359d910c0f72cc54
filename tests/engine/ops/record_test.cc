// What every op reports and allocates, the same on the device that computes and the one that
// does not.
#include "engine/device/record.h"

#include <algorithm>
#include <set>

#include "engine/ops/adamw.h"
#include "engine/ops/attention.h"
#include "engine/ops/gemm.h"
#include "tests/engine/ops/op_list.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

class RecordingDevice : public Recorder {
 public:
  RecordingDevice(DeviceKind kind, int threads)
      : device_(MakeDevice({.name = "", .kind = kind, .threads = threads})) {
    device_->set_recorder(this);
  }

  void BeginOp(const OpRecord& op) override {
    EXPECT_EQ(open_, 0) << "an op inside an op would be counted twice";
    ++open_;
    ops_.push_back(op);
  }
  void BeginComm(const CommRecord&) override { ADD_FAILURE() << "an op sent a message"; }
  void End() override { --open_; }

  Device& device() { return *device_; }
  int64_t workspace_peak() const {
    return device_->memory().peak_by_tag()[static_cast<size_t>(MemoryTag::kWorkspace)];
  }
  int64_t workspace_left() const {
    return device_->memory().current_by_tag()[static_cast<size_t>(MemoryTag::kWorkspace)];
  }
  const std::vector<OpRecord>& ops() const { return ops_; }
  int open() const { return open_; }

 private:
  std::unique_ptr<Device> device_;
  std::vector<OpRecord> ops_;
  int open_ = 0;
};

TEST(RecordTest, EveryOpReportsItsCostAndScratchAlikeOnCpuAndMeta) {
  for (const OpCase& op : EveryOp()) {
    for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kMeta}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(op.name);
        RecordingDevice recording(kind, threads);
        op.run(recording.device());
        EXPECT_EQ(recording.ops(), std::vector<OpRecord>{op.record});
        EXPECT_EQ(recording.open(), 0);
        EXPECT_EQ(recording.workspace_peak(), op.workspace_bytes(threads));
        EXPECT_EQ(recording.workspace_left(), 0);
      }
    }
  }
}

TEST(RecordTest, TheListHoldsEveryKind) {
  std::set<OpKind> kinds;
  for (const OpCase& op : EveryOp()) kinds.insert(op.record.kind);
  EXPECT_EQ(kinds.size(), static_cast<size_t>(kOpKindCount));
}

TEST(RecordTest, CostsAreWhatTheirHeadersSay) {
  EXPECT_EQ(GemmRecord(2, 3, 5, false).flops, 60);
  EXPECT_EQ(GemmRecord(2, 3, 5, false).bytes, 4 * (10 + 15 + 6));
  EXPECT_EQ(GemmRecord(2, 3, 5, true).bytes, 4 * (10 + 15 + 12));
  EXPECT_EQ(AdamWRecord(10).bytes, 280);
  const AttentionShape s = {.batch = 2, .sequence = 3, .heads = 4, .kv_heads = 2, .head_size = 5};
  // 6 visible scores of 9 per head and sequence, 8 of those, 2 FLOPs times 5 per score and product.
  EXPECT_EQ(AttentionForwardRecord(s).flops, 2 * 8 * 6 * 10);
  EXPECT_EQ(AttentionBackwardRecord(s).flops, 5 * 8 * 6 * 10);
  EXPECT_EQ(AttentionForwardRecord(s).bytes, 4 * (6 * 40 + 6 * 20 + 24));
}

}  // namespace
}  // namespace trimtab
