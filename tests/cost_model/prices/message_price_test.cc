#include "cost_model/prices/message_price.h"

#include <gtest/gtest.h>

#include "cost_model/prices/price.h"

namespace trimtab {
namespace {

TEST(MessagePrice, MessagesBetweenNodesUseTheNetwork) {
  const Pricer pricer(BuiltinProfile("h100-sxm"), {1, 1}, 8, 0);
  const CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kData, 8, 1 << 28};
  EXPECT_GT(pricer.Seconds(message, /*stride=*/8), 4 * pricer.Seconds(message, /*stride=*/1));
}

// Of two nodes of 8, a group of stride 2 has four members in each, and another group has ports
// there as well: their rings have one port, and a share of three.
TEST(MessagePrice, GroupsThatHaveANodeInCommonGetAShareOfItsPorts) {
  HardwareProfile profile = BuiltinProfile("h100-sxm");
  profile.link_latency_s.value = profile.network_latency_s.value = 0;
  const double port = profile.network_bandwidth.value * profile.network_efficiency.value;
  for (const double share : {1.0, 0.5}) {
    profile.shared_ports.value = share;
    const Pricer pricer(profile, {1, 1}, 8, 0);
    const auto bus = [&](int ranks, int64_t stride) {
      const CommRecord message = {CollectiveKind::kAllGather, GroupKind::kData, ranks, 1 << 30};
      return (ranks - 1.0) / ranks * (1 << 30) / pricer.Seconds(message, stride);
    };
    EXPECT_NEAR(bus(8, 2), (1 + 3 * share) * port, 1);
    EXPECT_NEAR(bus(4, 4), (1 + share) * port, 1);
    EXPECT_NEAR(bus(2, 8), port, 1) << "each group has a port of its own";
    EXPECT_NEAR(bus(16, 1), 8 * port, 1) << "one group has all ports";
  }
}

// Until the last of them has come, which takes longer the more there are; what hides the message
// hides that too.
TEST(MessagePrice, TensorParallelRanksWaitForEachOther) {
  const HardwareProfile profile = BuiltinProfile("a100-80gb");
  const Pricer prompt(profile, {1, 1}, 8, 0);
  SoftwareStack stack = {.tp_wait_s = {.value = 20e-6}};
  const auto wait_s = [&](const CommRecord& message) {
    const Pricer pricer(profile, {1, 1}, 8, 0, Precision::kFp32, stack);
    return pricer.Seconds(message, 1) - prompt.Seconds(message, 1);
  };
  const CommRecord pair = {CollectiveKind::kAllReduce, GroupKind::kTensor, 2, 1 << 26};
  CommRecord node = {CollectiveKind::kAllReduce, GroupKind::kTensor, 8, 1 << 26};
  EXPECT_NEAR(wait_s(pair), 20e-6, 1e-9);
  EXPECT_NEAR(wait_s(node), 7 * 20e-6, 1e-9);
  node.group = GroupKind::kData;
  EXPECT_EQ(wait_s(node), 0);
  node.group = GroupKind::kTensor;
  stack.tp_exposed.value = 0.5;
  EXPECT_NEAR(wait_s(node) + prompt.Seconds(node, 1), 0.5 * (7 * 20e-6 + prompt.Seconds(node, 1)),
              1e-9);
}

// NCCL's performance notes: an all-reduce of S bytes takes 2 (n - 1) / n S / bus bandwidth.
TEST(MessagePrice, AnAllReduceMovesTwiceItsShare) {
  HardwareProfile profile = BuiltinProfile("h100-sxm");
  profile.link_latency_s.value = 0;
  profile.link_reduces = false;
  const Pricer pricer(profile, {1, 1}, 8, 0);
  const CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kData, 8, 1 << 30};
  const double bus = profile.link_bandwidth.value * profile.link_efficiency.value;
  EXPECT_DOUBLE_EQ(pricer.Seconds(message, 1), 2 * 7.0 / 8 * (1 << 30) / bus);
}

// NCCL's tests show 480 GB/s of bus bandwidth on the 8 GPUs of a DGX H100 whose switches add up,
// and 370 without: 1.3 times as much. Few bytes do not wait for the switch.
TEST(MessagePrice, SwitchesAddUpLargeMessages) {
  HardwareProfile profile = BuiltinProfile("h100-sxm");
  profile.link_latency_s.value = 1e-6;
  const SoftwareStack rings = {.switch_reduction = false};
  const Pricer with(profile, {1, 1}, 8, 0);
  const Pricer without(profile, {1, 1}, 8, 0, Precision::kFp32, rings);
  CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kTensor, 8, 1 << 30};
  EXPECT_NEAR(without.Seconds(message, 1) / with.Seconds(message, 1), 480.0 / 370, 0.05);
  message.bytes = 1 << 10;
  EXPECT_EQ(with.Seconds(message, 1), without.Seconds(message, 1));
  message.kind = CollectiveKind::kAllGather;
  message.bytes = 1 << 30;
  EXPECT_EQ(with.Seconds(message, 1), without.Seconds(message, 1)) << "there is nothing to add up";
}

// 64 nodes with one member each: a ring goes through 63 neighbours twice, a tree through 6.
TEST(MessagePrice, SmallMessagesBetweenManyNodesGoThroughATree) {
  const HardwareProfile profile = BuiltinProfile("a100-80gb");
  const Pricer pricer(profile, {1, 1}, 8, 0);
  CommRecord message = {CollectiveKind::kAllReduce, GroupKind::kData, 64, 8};
  const double hop_s = profile.network_latency_s.value;
  EXPECT_NEAR(pricer.Seconds(message, 8), 2 * 6 * hop_s, 1e-8);
  message.bytes = int64_t{1} << 34;
  const double bus = profile.network_bandwidth.value * profile.network_efficiency.value;
  EXPECT_NEAR(pricer.Seconds(message, 8),
              2 * 63.0 / 64 * static_cast<double>(message.bytes) / bus + 2 * 63 * hop_s, 1e-6);
}

TEST(MessagePrice, MessagesTakeLongerWithMoreBytesAndRanks) {
  for (const char* name : {"a100-80gb", "h100-sxm", "gb200"}) {
    const Pricer pricer(BuiltinProfile(name), {1, 1}, 8, 0);
    for (const CollectiveKind kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kAllGather, CollectiveKind::kReduceScatter,
          CollectiveKind::kAllToAll, CollectiveKind::kBroadcast}) {
      for (const int ranks : {2, 4, 8, 16, 64, 512}) {
        double before_s = 0;
        for (int64_t bytes = 1 << 10; bytes <= int64_t{1} << 34; bytes *= 4) {
          const double seconds = pricer.Seconds({kind, GroupKind::kData, ranks, bytes}, 1);
          EXPECT_GT(seconds, before_s) << name << " " << ranks << " " << bytes;
          if (kind == CollectiveKind::kAllGather || kind == CollectiveKind::kReduceScatter) {
            EXPECT_GT(pricer.Seconds({kind, GroupKind::kData, 2 * ranks, bytes}, 1), seconds);
          }
          before_s = seconds;
        }
      }
    }
  }
}

// NVIDIA's GB200 NVL72 joins 72 GPUs of 18 trays by NVLink.
TEST(MessagePrice, ALinkMayJoinSeveralNodes) {
  HardwareProfile rack = BuiltinProfile("gb200");
  HardwareProfile trays = rack;
  trays.link_domain = 0;
  const CommRecord message = {CollectiveKind::kAllGather, GroupKind::kData, 16, 1 << 30};
  const double rack_s = Pricer(rack, {1, 1}, 4, 0).Seconds(message, 4);
  EXPECT_GT(Pricer(trays, {1, 1}, 4, 0).Seconds(message, 4), 10 * rack_s);
  rack.shared_ports.value = trays.shared_ports.value = 1;
  // 18 members of a group of stride 4 have as many ports, where it leaves the rack.
  const CommRecord wide = {CollectiveKind::kAllGather, GroupKind::kData, 64, 1 << 30};
  EXPECT_LT(Pricer(rack, {1, 1}, 4, 0).Seconds(wide, 4),
            Pricer(trays, {1, 1}, 4, 0).Seconds(wide, 4) / 10);
}

// 16 ranks in two nodes: half of what a rank sends leaves through its own port of 400 Gb/s. Of 8
// copies of a token, 255 / 256 x 2 go there when a node gets it once.
TEST(MessagePrice, TokensLeaveThroughThePortOfTheirRank) {
  HardwareProfile profile = BuiltinProfile("h100-sxm");
  profile.network_efficiency.value = 1;
  profile.network_latency_s.value = profile.link_latency_s.value = 0;
  const CommRecord tokens = {CollectiveKind::kAllToAll, GroupKind::kExpert, 16, 1 << 30};
  const double port_s = 0.5 * (1 << 30) / 50e9;
  SoftwareStack stack;
  const auto seconds = [&] {
    return Pricer(profile, {1, 1}, 8, 0, Precision::kBf16, stack, {.router_topk = 8})
        .Seconds(tokens, 1);
  };
  EXPECT_NEAR(seconds(), port_s, 1e-9);
  stack.ep_exposed.value = 0.5;
  EXPECT_NEAR(seconds(), 0.5 * port_s, 1e-9);
  stack.ep_exposed.value = 1;
  stack.tokens_once_per_node = true;
  EXPECT_NEAR(seconds(), 255.0 / 256 * 2 / 8 * port_s, 1e-9);
  CommRecord within = tokens;
  within.ranks = 8;
  const double link = profile.link_bandwidth.value * profile.link_efficiency.value;
  EXPECT_NEAR(Pricer(profile, {1, 1}, 8, 0).Seconds(within, 1), 0.875 * (1 << 30) / link, 1e-9);
}

// Narayanan et al., arXiv:2104.04473, section 4.1: tensor-parallel ranks hold the same activations,
// so each sends 1 / t of them to the next stage, whose ranks gather the rest over NVLink.
TEST(MessagePrice, StagesMayScatterWhatTensorParallelRanksHaveAlike) {
  HardwareProfile profile = BuiltinProfile("a100-80gb");
  profile.network_latency_s.value = profile.link_latency_s.value = 0;
  const SoftwareStack scatters = {.scatters_between_stages = true};
  const Pricer ours(profile, {1, 1}, 8, 0);
  const Pricer theirs(profile, {1, 1}, 8, 0, Precision::kFp32, scatters);
  const CommRecord message = {CollectiveKind::kSend, GroupKind::kPipeline, 2, 1 << 28};
  ParallelConfig layout = {.tp = 8, .pp = 2};
  const double port = profile.network_bandwidth.value * profile.network_efficiency.value;
  const double link = profile.link_bandwidth.value * profile.link_efficiency.value;
  EXPECT_NEAR(ours.BetweenStages(message, layout), (1 << 28) / port, 1e-9);
  EXPECT_NEAR(theirs.BetweenStages(message, layout),
              (1 << 28) / 8 / port + 7.0 / 8 * (1 << 28) / link, 1e-9);
  layout.sequence_parallel = true;  // each has a part of its own
  EXPECT_EQ(theirs.BetweenStages(message, layout), ours.BetweenStages(message, layout));
}

}  // namespace
}  // namespace trimtab
