#include "cost_model/hardware/cluster.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "engine/base/error.h"

namespace trimtab {
namespace {

std::string ScratchFile(const std::string& name, const std::string& text) {
  const char* directory = std::getenv("TEST_TMPDIR");
  const std::string path = std::string(directory == nullptr ? "/tmp" : directory) + "/" + name;
  std::ofstream(path) << text;
  return path;
}

TEST(Cluster, LocalIsThisMachine) {
  const Cluster cluster = LoadCluster("local");
  EXPECT_EQ(cluster.device, DeviceKind::kCpu);
  EXPECT_GE(cluster.cores, 1);
  EXPECT_EQ(cluster.max_ranks, 2 * cluster.cores);
  EXPECT_GT(cluster.memory_bytes, int64_t{1} << 28);
  EXPECT_FALSE(cluster.calibrated) << "the generic profile is not of this machine";
}

TEST(Cluster, AProfileOfThisMachineCalibratesItAndAnotherDoesNot) {
  HardwareProfile profile = BuiltinProfile("cpu");
  profile.measured_on = DescribeThisMachine() + ", 2024-01-01";
  const std::string path = ScratchFile("mine.json", "");
  SaveHardwareProfile(profile, path);
  EXPECT_TRUE(LoadCluster("local", path).calibrated);
  profile.measured_on = "another processor, 96 cores, 2024-01-01";
  SaveHardwareProfile(profile, path);
  EXPECT_FALSE(LoadCluster("local", path).calibrated);
  SaveHardwareProfile(BuiltinProfile("h100-sxm"), path);
  EXPECT_THROW(LoadCluster("local", path), InputError);
}

TEST(Cluster, NamesOfGpuClusters) {
  const Cluster one = LoadCluster("8xh200");
  EXPECT_EQ(one.device, DeviceKind::kCuda);
  EXPECT_EQ(one.nodes, 1);
  EXPECT_EQ(one.max_ranks, 8);
  EXPECT_EQ(one.memory_bytes, int64_t{141'000'000'000});
  EXPECT_EQ(one.profile.name, "h200-sxm");
  const Cluster many = LoadCluster("16x8xh100");
  EXPECT_EQ(many.nodes, 16);
  EXPECT_EQ(many.ranks_per_node, 8);
  EXPECT_EQ(many.max_ranks, 128);
  EXPECT_EQ(LoadCluster("2x8xh20").profile.name, "h20");
  EXPECT_EQ(LoadCluster("4xGH200").profile.name, "gh200");
  EXPECT_EQ(LoadCluster("8xA10G").profile.name, "a10g");
  EXPECT_EQ(LoadCluster("2x4xrtx-4090").profile.name, "rtx-4090");
  EXPECT_EQ(LoadCluster("2x4090").max_ranks, 2);
  for (const char* bad : {"h200", "8xh21", "0xh200", "8x8x8xh200", "axh200", "8x", "locale", ""}) {
    EXPECT_THROW(LoadCluster(bad), UsageError) << bad;
  }
  for (const ClusterListing& each : ListClusters()) EXPECT_NO_THROW(LoadCluster(each.name));
}

TEST(Cluster, AFileGivesKindSizePriceAndLinks) {
  const Cluster cluster = LoadCluster(ScratchFile("c.json", R"({
    "name": "lab", "kind": "h100", "nodes": 4, "gpus_per_node": 8, "price_per_gpu_hour": 2.5,
    "network": {"bandwidth": 25e9, "latency_s": 1e-5}})"));
  EXPECT_EQ(cluster.name, "lab");
  EXPECT_EQ(cluster.max_ranks, 32);
  EXPECT_DOUBLE_EQ(cluster.price_per_gpu_hour, 2.5);
  EXPECT_DOUBLE_EQ(cluster.profile.network_bandwidth.value, 25e9);
  EXPECT_EQ(cluster.profile.link_bandwidth, BuiltinProfile("h100-sxm").link_bandwidth);
}

TEST(Cluster, AFileSaysWhatMachinesDrawAndHowOftenTheyFail) {
  const Cluster silent = LoadCluster("4x8xh100");
  EXPECT_DOUBLE_EQ(PowerPerGpu(silent), 700);  // of the profile
  EXPECT_DOUBLE_EQ(silent.reliability.gpu_mtbf_hours, Reliability().gpu_mtbf_hours);
  const Cluster cluster = LoadCluster(ScratchFile("c.json", R"({
    "name": "lab", "kind": "h100", "gpus_per_node": 8, "power_per_gpu_w": 1275,
    "reliability": {"gpu_mtbf_hours": 20000, "checkpoint_bytes_per_s": 1e9}})"));
  EXPECT_DOUBLE_EQ(PowerPerGpu(cluster), 1275);
  EXPECT_DOUBLE_EQ(cluster.reliability.gpu_mtbf_hours, 20000);
  EXPECT_DOUBLE_EQ(cluster.reliability.restart_s, Reliability().restart_s);
  EXPECT_DOUBLE_EQ(cluster.reliability.checkpoint_bytes_per_s, 1e9);
}

TEST(Cluster, AFileIsReadStrictly) {
  const auto refuse = [](const std::string& text) {
    EXPECT_THROW(LoadCluster(ScratchFile("bad.json", text)), InputError) << text;
  };
  refuse(R"({"name": "lab", "kind": "h100")");
  refuse(R"({"name": "lab", "kind": "h900", "gpus_per_node": 8})");
  refuse(R"({"name": "lab", "kind": "h100"})");
  refuse(R"({"name": "lab", "kind": "h100", "gpus_per_node": 0})");
  refuse(R"({"name": "lab", "kind": "h100", "gpus_per_node": 8, "gpu": 1})");
  refuse(R"({"name": "lab", "kind": "h100", "gpus_per_node": 8, "power_per_gpu_w": -1})");
  refuse(R"({"name": "lab", "kind": "h100", "gpus_per_node": 8, "reliability": {"mtbf": 1}})");
  refuse(R"({"name": "lab", "kind": "h100", "gpus_per_node": 8, "link": {"bandwidth": -1}})");
}

TEST(ModeOf, SharesTheCoresUnlessTheRunSaysOtherwise) {
  Cluster cluster = LoadCluster("local");
  cluster.cores = 8;
  RunConfig run;
  run.layout.dp = 2;
  EXPECT_EQ(ModeOf(run, cluster), (Mode{2, 4}));
  run.threads_per_rank = 3;
  EXPECT_EQ(ModeOf(run, cluster), (Mode{2, 3}));
  run.threads_per_rank = 0;
  run.layout.tp = 8;
  EXPECT_EQ(ModeOf(run, cluster), (Mode{16, 1}));
  EXPECT_EQ(ModeOf(run, LoadCluster("8xh200")), (Mode{1, 1}));
}

// A profile prices the GPUs; how they are joined stays what the file says.
TEST(Cluster, OfAFileKeepsItsLinksUnderAnotherProfile) {
  const std::string path = ScratchFile("c.json", R"({
    "name": "slow", "kind": "h100", "nodes": 4, "gpus_per_node": 8,
    "network": {"bandwidth": 1e9, "latency_s": 1e-4}})");
  HardwareProfile other = LoadCluster("8xh200").profile;
  other.link_bandwidth.value = 3e11;
  const Cluster priced = PricedBy(LoadCluster(path), other, "other.json");
  EXPECT_EQ(priced.profile.name, other.name);
  EXPECT_EQ(priced.profile.network_bandwidth.value, 1e9);
  EXPECT_EQ(priced.profile.network_latency_s.value, 1e-4);
  EXPECT_EQ(priced.profile.link_bandwidth.value, 3e11) << "of which the file says nothing";
}

}  // namespace
}  // namespace trimtab
