// What every op reports and allocates, the same on the device that computes and the one that
// does not.
#include "engine/device/record.h"

#include <algorithm>
#include <set>

#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/attention_block.h"
#include "engine/ops/elementwise/elementwise.h"
#include "engine/ops/fp8/quantize.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/norm.h"
#include "engine/ops/optimizer/adamw.h"
#include "engine/ops/vocabulary/cross_entropy.h"
#include "tests/engine/ops/op_list.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

class RecordingDevice : public Recorder {
 public:
  explicit RecordingDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {
    device_->set_recorder(this);
  }

  void BeginOp(const OpRecord& op) override {
    EXPECT_EQ(open_, 0) << "an op inside an op would be counted twice";
    ++open_;
    ops_.push_back(op);
  }
  void BeginComm(const CommRecord&) override { ADD_FAILURE() << "an op sent a message"; }
  void BeginWait(const CommRecord&) override { ADD_FAILURE() << "an op waited for a message"; }
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

void ExpectItsRecord(const OpCase& op, std::unique_ptr<Device> device) {
  SCOPED_TRACE(op.name);
  RecordingDevice recording(std::move(device));
  op.run(recording.device());
  EXPECT_EQ(recording.ops(), std::vector<OpRecord>{op.record});
  EXPECT_EQ(recording.open(), 0);
  EXPECT_EQ(recording.workspace_peak(), op.workspace_bytes(recording.device().executor()));
  EXPECT_EQ(recording.workspace_left(), 0);
}

TEST(RecordTest, EveryOpReportsItsCostAndScratchAlikeOnCpuAndMeta) {
  for (const OpCase& op : EveryOp()) {
    for (const int threads : {1, 3}) {
      ExpectItsRecord(op, MakeCpuDevice(threads));
      ExpectItsRecord(op, MakeMetaDevice(threads));
    }
    ExpectItsRecord(op, MakeMetaDevice(1, DeviceKind::kCuda));
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
  EXPECT_EQ(GemmRecord(2, 3, 5, true, {DType::kF8E4M3, DType::kF8E5M2, DType::kBf16}).bytes,
            10 + 15 + 2 * 12);
  EXPECT_EQ(AdamWRecord(10).bytes, 280);
  // What a product does beside its own work moves one more matrix: instead of 3 to add a residual,
  // of 2 to make an activation and of 3 to go back through it.
  constexpr GemmTypes kBf16 = {DType::kBf16, DType::kBf16, DType::kBf16};
  const auto expect = [&](GemmExtra extra, const FusedOp& fused) {
    const OpRecord record = GemmRecord(2, 3, 5, extra, kBf16);
    EXPECT_EQ(record.bytes - fused.beside, GemmRecord(2, 3, 5, false, kBf16).bytes);
    EXPECT_EQ(record.fused, fused);
  };
  expect(GemmExtra::kNone, {});
  expect(GemmExtra::kAddend, {OpKind::kAdd, 3 * 2 * 6, 2 * 6});
  expect(GemmExtra::kGelu, {OpKind::kActivationForward, 2 * 2 * 6, 2 * 6});
  expect(GemmExtra::kGeluOf, {OpKind::kActivationBackward, 3 * 2 * 6, 2 * 6});
  expect(GemmExtra::kRowSums, {OpKind::kBiasBackward, 2 * (5 * 2 + 2), 2 * 2});
  // A loss of its own moves the logits four times: for the largest, the sum, and twice for the
  // gradient.
  EXPECT_EQ(CrossEntropyRecord(3, 5, DType::kBf16).bytes, 2 * 15 * 2 + 4 * 3 * 2);
  EXPECT_EQ(CrossEntropyRecord(3, 5, DType::kBf16).fused.bytes, 2 * 15 * 2);
  const int64_t shard_bytes = CrossEntropyPartsRecord(3, 5, DType::kBf16).bytes +
                              CrossEntropyGradRecord(3, 5, 2, DType::kBf16).bytes;
  EXPECT_EQ(shard_bytes, 2 * 15 * 3 + 4 * 3 * (1 + 3 + 2 + 2 * 3));
  // Gradient 4, weight and master 2 + 2 and moments 4, all but the first both ways; 2 scales of
  // each moment too.
  EXPECT_EQ(
      AdamWRecord(129, {.weight = DType::kBf16, .master = DType::kU16, .moments = DType::kF16})
          .bytes,
      129 * (4 + 2 * 8) + 2 * 4 * 4);
  EXPECT_EQ(RmsNormBackwardRecord(3, 5, DType::kBf16, DType::kF32).bytes,
            4 * 15 * 2 + 5 * 2 + 5 * 4 + 3 * 4);
  EXPECT_EQ(QuantizeRecord(3, 5, DType::kBf16, true, false).bytes, 15 * 3);
  EXPECT_EQ(QuantizeRecord(3, 5, DType::kF32, true, true).bytes, 15 * 6);
  EXPECT_EQ(CopyRecord(7, DType::kF32, DType::kBf16).bytes, 42);
  const AttentionShape s = {.rows = {2, 3}, .heads = 4, .kv_heads = 2, .head_size = 5};
  // 6 visible scores of 9 per head and sequence, 8 of those, 2 FLOPs times 5 per score and product.
  EXPECT_EQ(AttentionForwardRecord(s).flops, 2 * 8 * 6 * 10);
  EXPECT_EQ(AttentionBackwardRecord(s).flops, 5 * 8 * 6 * 10);
  EXPECT_EQ(AttentionForwardRecord(s).bytes, 4 * (6 * 40 + 6 * 20 + 24));
  EXPECT_EQ(AttentionForwardRecord(s, DType::kF16).bytes, 2 * (6 * 40 + 6 * 20) + 4 * 24);
  // Blocks of two tokens: 3 visible scores of 4, or all. 4 tokens, of each the values of 4 + 2 * 2
  // heads; sums of 20 values and a log-sum-exp for each of 4 heads, both ways.
  EXPECT_EQ(AttentionBlockForwardRecord(s, s.rows, {.size = 2}).flops, 2 * 8 * 3 * 10);
  EXPECT_EQ(AttentionBlockBackwardRecord(s, s.rows, {.query = 1, .size = 2}).flops, 5 * 8 * 4 * 10);
  EXPECT_EQ(AttentionBlockForwardRecord(s, s.rows, {.size = 2}, DType::kF16).bytes,
            4 * (2 * 40 + 4 * 2 * (20 + 4)));
  EXPECT_EQ(AttentionBlockBackwardRecord(s, s.rows, {.size = 2}, DType::kF16).bytes,
            4 * (2 * (40 + 2 * 20 + 2 * 20) + 4 * (2 * 20 + 4)));
  EXPECT_EQ(AttentionBlockBackwardWorkspaceBytes(s, {.size = 2}, {DeviceKind::kCuda, 1}), 4 * 24);
  EXPECT_EQ(AttentionForwardWorkspaceBytes(s, {DeviceKind::kCuda, 1}), 0);
  EXPECT_EQ(AttentionBackwardWorkspaceBytes(s, {DeviceKind::kCuda, 1}), 4 * (6 * 20 + 24));
}

}  // namespace
}  // namespace trimtab
