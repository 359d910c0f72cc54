#include "cost_model/hardware/hardware_profile.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace trimtab {
namespace {

std::string ScratchPath(const std::string& name) {
  const char* directory = std::getenv("TEST_TMPDIR");
  return std::string(directory == nullptr ? "/tmp" : directory) + "/" + name;
}

HardwareProfile MeasuredProfile() {
  HardwareProfile profile = BuiltinProfile("cpu");
  profile.name = "this one";
  profile.measured_on = "a processor, 2 cores, 2024-01-01";
  ModeTables tables;
  tables.mode = {2, 1};
  tables.source = "a test";
  tables.step_factor = 1.1;
  tables.probe_s = 2e-3;
  tables.probe_spread = 0.01;
  tables.spread = {{"gemm", 0.02}, {"step", 0.03}};
  tables.precisions["bf16"] = {.gemm = 1.2, .attention = 1.1, .ops = 0.9};
  tables.gemm = {{16, 32, 64, false, 1e-6}, {16, 32, 64, true, 2e-6}};
  tables.attention = {{8, 64, 32, 1e-5, 3e-5}};
  tables.ops[OpKind::kAdamW] = {{1000, 1e-6}, {100000, 1.25e-4}};
  tables.collectives[{CollectiveKind::kAllGather, 2}] = {{256, 2e-6}, {1 << 20, 1e-4}};
  profile.modes.push_back(tables);
  return profile;
}

/// The message of the InputError that reading `json` throws.
std::string RefusalOf(const nlohmann::json& json) {
  try {
    HardwareProfileFromJson(json, "p.json: $");
  } catch (const InputError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(HardwareProfile, EveryBuiltinProfileLoadsAndSaysWhereItsNumbersComeFrom) {
  EXPECT_EQ(BuiltinProfileNames().size(), 31u);
  for (const std::string& name : BuiltinProfileNames()) {
    SCOPED_TRACE(name);
    const HardwareProfile profile = BuiltinProfile(name);
    EXPECT_EQ(profile.name, name);
    EXPECT_EQ(profile.device, name == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda);
    for (const auto& [dtype, rate] : profile.peak_flops) {
      EXPECT_GT(rate.value, 0) << dtype;
      EXPECT_FALSE(rate.source.empty()) << dtype;
    }
    EXPECT_GT(profile.memory_bandwidth.value, 0);
    EXPECT_FALSE(profile.memory_bandwidth.source.empty());
    EXPECT_FALSE(profile.gemm_efficiency.source.empty());
    EXPECT_FALSE(profile.attention_forward.source.empty());
    EXPECT_FALSE(profile.attention_backward.source.empty());
    for (const auto& [precision, curve] : profile.gemm_efficiency_of) {
      EXPECT_TRUE(profile.peak_flops.contains(precision)) << precision;
      EXPECT_FALSE(curve.source.empty()) << precision;
    }
  }
}

// Outside tensor cores, what these reach says nothing: else a faster GPU could be slower in fp32.
TEST(HardwareProfile, ProductsOutsideTensorCoresReachTheSameOnEveryGpu) {
  for (const std::string& name : BuiltinProfileNames()) {
    const HardwareProfile profile = BuiltinProfile(name);
    if (profile.device == DeviceKind::kCpu) continue;
    ASSERT_TRUE(profile.gemm_efficiency_of.contains("fp32")) << name;
    EXPECT_EQ(profile.gemm_efficiency_of.at("fp32"),
              BuiltinProfile("a100-80gb").gemm_efficiency_of.at("fp32"))
        << name;
  }
}

// What a network reaches is the network's: else a faster GPU could be slower on the same one.
TEST(HardwareProfile, NetworksReachTheSameWhateverTheyConnect) {
  double reached = 0;
  double shared = 0;
  for (const std::string& name : BuiltinProfileNames()) {
    const HardwareProfile profile = BuiltinProfile(name);
    if (profile.device == DeviceKind::kCpu) continue;
    if (reached == 0) reached = profile.network_efficiency.value;
    if (shared == 0) shared = profile.shared_ports.value;
    EXPECT_EQ(profile.shared_ports.value, shared) << name;
    EXPECT_EQ(profile.network_efficiency.value, reached) << name;
  }
  EXPECT_GT(reached, 0);
}

TEST(HardwareProfile, AnUnknownNameIsRefusedWithTheNearest) {
  try {
    BuiltinProfile("h200-sxn");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("h200-sxm"), std::string::npos) << error.what();
  }
}

TEST(HardwareProfile, SurvivesAFile) {
  const HardwareProfile profile = MeasuredProfile();
  const std::string path = ScratchPath("profile.json");
  SaveHardwareProfile(profile, path);
  EXPECT_EQ(LoadHardwareProfile(path), profile);
}

TEST(HardwareProfile, CurvesOfAPrecisionSurviveAFile) {
  const HardwareProfile profile = BuiltinProfile("h200-sxm");
  ASSERT_TRUE(profile.gemm_efficiency_of.contains("fp8"));
  const std::string path = ScratchPath("h200.json");
  SaveHardwareProfile(profile, path);
  EXPECT_EQ(LoadHardwareProfile(path), profile);
}

// Profiles of older versions do not know how far off they may be.
TEST(HardwareProfile, SpreadMayBeUnknown) {
  nlohmann::json json = ToJson(MeasuredProfile());
  for (const char* key : {"probe_s", "probe_spread", "spread"}) json["modes"][0].erase(key);
  const HardwareProfile profile = HardwareProfileFromJson(json, "p.json: $");
  EXPECT_EQ(profile.modes[0].probe_s, 0);
  EXPECT_TRUE(profile.modes[0].spread.empty());
  EXPECT_EQ(SpreadOf(profile.modes[0]), 0);
}

TEST(HardwareProfile, SpreadsAddUpAsIndependentErrorsDo) {
  ModeTables tables;
  tables.spread = {{"gemm", 0.02}, {"ops", 0.06}, {"step", 0.03}};
  tables.probe_spread = 0.02;
  EXPECT_NEAR(SpreadOf(tables), 0.07, 1e-12) << "0.06, 0.03 and 0.02";
}

// Profiles of older versions have one number for attention.
TEST(HardwareProfile, OneAttentionEfficiencyStandsForBothDirections) {
  nlohmann::json json = ToJson(MeasuredProfile());
  json.erase("attention_forward_efficiency");
  json.erase("attention_backward_efficiency");
  EXPECT_NE(RefusalOf(json), "accepted");
  json["attention_efficiency"] = {{"value", 0.45}, {"origin", "modelled"}, {"source", "a test"}};
  const HardwareProfile profile = HardwareProfileFromJson(json, "p.json: $");
  EXPECT_EQ(profile.attention_forward, profile.attention_backward);
  ASSERT_EQ(profile.attention_forward.points.size(), 1u);
  EXPECT_EQ(profile.attention_forward.points[0].efficiency, 0.45);
}

TEST(HardwareProfile, ReadingIsStrict) {
  const nlohmann::json good = ToJson(MeasuredProfile());
  EXPECT_EQ(RefusalOf(good), "accepted");

  nlohmann::json bad = good;
  bad["memroy_bytes"] = bad["memory_bytes"];
  EXPECT_NE(RefusalOf(bad).find("$.memroy_bytes"), std::string::npos);
  bad = good;
  bad["memory_bandwidth"]["value"] = 0;
  EXPECT_NE(RefusalOf(bad).find("$.memory_bandwidth"), std::string::npos);
  bad = good;
  bad["memory_bandwidth"]["origin"] = "guessed";
  EXPECT_NE(RefusalOf(bad).find("$.memory_bandwidth.origin"), std::string::npos);
  bad = good;
  bad["shared_ports"] = {{"value", 1.5}, {"origin", "modelled"}, {"source", "a guess"}};
  EXPECT_NE(RefusalOf(bad).find("$.shared_ports: "), std::string::npos) << RefusalOf(bad);
  bad = good;
  bad["modes"][0]["mode"] = "2";
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].mode"), std::string::npos);
  bad = good;
  bad["modes"][0]["gemm"][0][4] = -1;
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].gemm"), std::string::npos);
  bad = good;
  bad["modes"][0]["gemm"][0] = {1, 2};
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].gemm"), std::string::npos);
  bad = good;
  bad["modes"][0]["gemm"][0][0] = 0;
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].gemm"), std::string::npos);
  bad = good;
  bad["modes"][0]["ops"]["adam"] = bad["modes"][0]["ops"]["adamw"];
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].ops.adam"), std::string::npos);
  bad = good;
  bad["modes"][0]["ops"]["adamw"] = {{100000, 1e-6}, {1000, 1e-6}};
  EXPECT_NE(RefusalOf(bad).find("ascending"), std::string::npos);
  bad = good;
  bad["peak_flops"]["bf17"] = bad["peak_flops"]["bf16"];
  EXPECT_NE(RefusalOf(bad).find("$.peak_flops.bf17"), std::string::npos);
  bad = good;
  bad["modes"][0]["precisions"]["bf16"]["gemm"] = 0;
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].precisions.bf16.gemm"), std::string::npos);
  bad = good;
  bad["modes"][0]["precisions"]["int8"] = bad["modes"][0]["precisions"]["bf16"];
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].precisions.int8"), std::string::npos);
  bad = good;
  bad["modes"][0]["spread"]["gem"] = 0.1;
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].spread.gem"), std::string::npos);
  bad = good;
  bad["modes"][0]["spread"]["gemm"] = -0.1;
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].spread.gemm"), std::string::npos);
  bad = good;
  bad["modes"][0]["probe_s"] = "fast";
  EXPECT_NE(RefusalOf(bad).find("$.modes[0].probe_s"), std::string::npos);
  bad = good;
  bad["peak_flops"].erase("fp32");
  EXPECT_NE(RefusalOf(bad).find("$.peak_flops.fp32"), std::string::npos);
  bad = good;
  bad["schema_version"] = 2;
  EXPECT_NE(RefusalOf(bad).find("$.schema_version"), std::string::npos);
  bad = good;
  bad.erase("link_bandwidth");
  EXPECT_NE(RefusalOf(bad).find("$.link_bandwidth"), std::string::npos);
}

TEST(HardwareProfile, AnUnwritablePlaceIsAStorageError) {
  EXPECT_THROW(SaveHardwareProfile(MeasuredProfile(), ScratchPath("no/such/folder/p.json")),
               StorageError);
  EXPECT_THROW(SaveHardwareProfile(MeasuredProfile(), "/dev/full/p.json"), StorageError);
}

TEST(Mode, PrintsAndParses) {
  EXPECT_EQ(ToString(Mode{4, 2}), "4x2");
  EXPECT_EQ(ParseMode("4x2", "mode"), (Mode{4, 2}));
  for (const char* bad : {"", "4", "4x", "x2", "0x1", "1x0", "4x2 ", "4x2x1", "-1x2"}) {
    EXPECT_THROW(ParseMode(bad, "mode"), UsageError) << bad;
  }
}

TEST(HardwareProfile, IsFoundHoweverTheGpuIsSpelt) {
  const auto name = [](const char* gpu) {
    const HardwareProfile* profile = FindBuiltinProfile(gpu);
    return profile == nullptr ? std::string("none") : profile->name;
  };
  EXPECT_EQ(name("H100-SXM5"), "h100-sxm");
  EXPECT_EQ(name("NVIDIA H100 SXM"), "h100-sxm");
  EXPECT_EQ(name("A100-SXM4-80GB"), "a100-80gb");
  EXPECT_EQ(name("A100-SXM4-40GB"), "a100-40gb");
  EXPECT_EQ(name("GB200-NVL72"), "gb200");
  EXPECT_EQ(name("H100-PCIe"), "h100-pcie");
  EXPECT_EQ(name("A100-80G"), "a100-80gb");
  EXPECT_EQ(name("A100 40G"), "a100-40gb");
  EXPECT_EQ(name("A100 80GB SXM4"), "a100-80gb");
  EXPECT_EQ(name("NVIDIA A100 80GB PCIe"), "a100-pcie");
  EXPECT_EQ(name("DGX H100"), "h100-sxm");
  EXPECT_EQ(name("HGX-H100 80GB"), "h100-sxm");
  EXPECT_EQ(name("NVIDIA H100 80GB HBM3"), "h100-sxm");
  EXPECT_EQ(name("H100 SXM5 96GB HBM2e"), "h100-96gb");
  EXPECT_EQ(name("H100 SXM, 80 GB HBM3"), "h100-sxm");
  EXPECT_EQ(name("B200 192GB"), "b200");
  EXPECT_EQ(name("H100 NVL"), "h100-nvl");
  EXPECT_EQ(name("NVIDIA H100 NVL 94GB"), "h100-nvl");
  EXPECT_EQ(name("H20-SXM"), "h20");
  EXPECT_EQ(name("HGX H20 96GB HBM3"), "h20");
  EXPECT_EQ(name("NVIDIA GH200 96GB"), "gh200");
  EXPECT_EQ(name("NVIDIA GH200 480GB"), "gh200") << "which tells the memory of its cpu";
  EXPECT_EQ(name("NVIDIA GH200 144G HBM3e"), "gh200-144gb");
  EXPECT_EQ(name("GH200 Grace Hopper Superchip"), "gh200");
  EXPECT_EQ(name("NVIDIA A10"), "a10");
  EXPECT_EQ(name("NVIDIA A10G"), "a10g");
  EXPECT_EQ(name("NVIDIA A40"), "a40");
  EXPECT_EQ(name("NVIDIA L4"), "l4");
  EXPECT_EQ(name("NVIDIA L40"), "l40");
  EXPECT_EQ(name("NVIDIA GeForce RTX 4090"), "rtx-4090");
  EXPECT_EQ(name("RTX3090 24GB"), "rtx-3090");
  EXPECT_EQ(name("NVIDIA RTX 6000 Ada Generation"), "rtx-6000-ada");
  EXPECT_EQ(name("Tesla V100-SXM2-32GB"), "v100-32gb");
  EXPECT_EQ(name("V100 SXM3 32GB"), "v100-32gb");
  EXPECT_EQ(name("Tesla V100-SXM2-16GB"), "v100-16gb");
  EXPECT_EQ(name("V100"), "v100-32gb");
  EXPECT_EQ(name("Tesla T4"), "t4");
  EXPECT_EQ(name("V100-PCIe"), "none");
  EXPECT_EQ(name("RTX 6000"), "none") << "of another generation";
  EXPECT_EQ(name("A100X"), "none");
}

TEST(HardwareProfile, EveryNameIsOfOneProfile) {
  for (const HardwareProfile& profile : BuiltinProfiles()) {
    std::vector<std::string> names = profile.aliases;
    names.push_back(profile.name);
    for (const std::string& name : names) EXPECT_EQ(FindBuiltinProfile(name), &profile) << name;
  }
}

// NVIDIA, Ada GPU architecture, appendix A: "Peak BF16 Tensor TFLOPS with FP32 Accumulate" of a
// GeForce RTX 4090 is 165.2, half of what it does with fp16 sums; so is the 71 of an RTX 3090 in
// the whitepaper of GA102. Tensor cores of a Volta or Turing take no bf16.
TEST(HardwareProfile, PeaksAreOfSumsInFp32) {
  const auto peak = [](const char* name) { return PeakOf16Bits(BuiltinProfile(name)) / 1e12; };
  EXPECT_DOUBLE_EQ(peak("rtx-4090"), 165.2);
  EXPECT_DOUBLE_EQ(peak("rtx-3090"), 71);
  EXPECT_DOUBLE_EQ(peak("a10g"), 70);
  EXPECT_DOUBLE_EQ(peak("h20"), 148);
  EXPECT_DOUBLE_EQ(peak("v100-32gb"), 125);
  EXPECT_FALSE(BuiltinProfile("v100-16gb").peak_flops.contains("bf16"));
  EXPECT_FALSE(BuiltinProfile("t4").peak_flops.contains("bf16"));
}

TEST(VisibleMemory, IsWhatDriversShow) {
  EXPECT_NEAR(VisibleMemory(BuiltinProfile("h100-sxm")), 85.0e9, 0.1e9);  // nvidia-smi, "80 GB"
}

}  // namespace
}  // namespace trimtab
