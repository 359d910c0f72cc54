#include "cost_model/hardware/cluster.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/base/units.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr int64_t kRanksPerCore = 2;  // of in-process ranks; beyond that they only wait
constexpr int64_t kMostNodes = 1 << 16;
constexpr int64_t kMostGpusPerNode = 1024;

/// Short names of the built-in GPUs: the first alias of each.
std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const HardwareProfile& profile : BuiltinProfiles()) {
    if (profile.device == DeviceKind::kCuda) names.push_back(profile.aliases.front());
  }
  return names;
}

/// The profile of a GPU by its name or an alias, or nullptr.
const HardwareProfile* GpuOf(const std::string& kind) {
  const HardwareProfile* profile = FindBuiltinProfile(kind);
  return profile != nullptr && profile->device == DeviceKind::kCuda ? profile : nullptr;
}

/// The value of the first line "key : value" of a file of the kernel; empty if there is none.
std::string KernelField(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t begin = line.find_first_not_of(" \t", line.find(':') + 1);
    if (begin != std::string::npos) return line.substr(begin);
  }
  return "";
}

int64_t MemoryOfThisMachine() {
  const std::string text = KernelField("/proc/meminfo", "MemTotal");
  int64_t kib = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), kib);
  if (result.ec != std::errc() || kib <= 0) {
    throw EnvironmentError("/proc/meminfo: expected a line MemTotal with the machine's memory");
  }
  return kib * kKiB;
}

Cluster GpuCluster(const std::string& name, int64_t nodes, int64_t gpus_per_node,
                   const HardwareProfile& profile) {
  Cluster cluster;
  cluster.name = name;
  cluster.device = DeviceKind::kCuda;
  cluster.nodes = nodes;
  cluster.ranks_per_node = gpus_per_node;
  cluster.max_ranks = nodes * gpus_per_node;
  cluster.cores = 0;
  cluster.profile = profile;
  cluster.memory_bytes = static_cast<int64_t>(cluster.profile.memory_bytes.value);
  return cluster;
}

/// False where the file says nothing of it.
bool ReadLink(StrictObject& parent, const std::string& key, Quantity& bandwidth,
              Quantity& latency_s, const std::string& path) {
  const nlohmann::json* json = parent.Find(key);
  if (json == nullptr) return false;
  StrictObject object(*json, parent.Where(key));
  object.Number("bandwidth", bandwidth.value, 1, 1e15);
  object.Number("latency_s", latency_s.value, 0, 1);
  object.Finish();
  for (Quantity* quantity : {&bandwidth, &latency_s}) {
    quantity->origin = Origin::kModelled;
    quantity->source = "given in " + path;
  }
  return true;
}

void ReadReliability(StrictObject& parent, Reliability& reliability) {
  const nlohmann::json* json = parent.Find("reliability");
  if (json == nullptr) return;
  StrictObject object(*json, parent.Where("reliability"));
  object.Number("gpu_mtbf_hours", reliability.gpu_mtbf_hours, 1, 1e9);
  object.Number("restart_s", reliability.restart_s, 0, 1e6);
  object.Number("checkpoint_bytes_per_s", reliability.checkpoint_bytes_per_s, 1e3, 1e15);
  object.Finish();
}

Cluster ClusterFromFile(const std::string& path) {
  const nlohmann::json json = ReadJsonFile(path);
  StrictObject object(json, path + ": $");
  std::string name;
  std::string kind;
  int64_t nodes = 1;
  int64_t gpus_per_node = 0;
  object.Line("name", name, Need::kRequired);
  object.Text("kind", kind, Need::kRequired);
  object.Integer("nodes", nodes, 1, kMostNodes);
  object.Integer("gpus_per_node", gpus_per_node, 1, kMostGpusPerNode, Need::kRequired);
  const HardwareProfile* profile = GpuOf(kind);
  if (profile == nullptr) object.Choice("kind", kind, KindNames());
  Cluster cluster = GpuCluster(name, nodes, gpus_per_node, *profile);
  object.Number("price_per_gpu_hour", cluster.price_per_gpu_hour, 0, 1e6);
  object.Number("power_per_gpu_w", cluster.power_per_gpu_w, 0, 1e6);
  ReadReliability(object, cluster.reliability);
  HardwareProfile& hardware = cluster.profile;
  cluster.own_link =
      ReadLink(object, "link", hardware.link_bandwidth, hardware.link_latency_s, path);
  cluster.own_network =
      ReadLink(object, "network", hardware.network_bandwidth, hardware.network_latency_s, path);
  object.Finish();
  return cluster;
}

/// "8xh200" or "16x8xh100" taken apart; false if `text` is not of that form.
bool ParseClusterName(const std::string& text, int64_t& nodes, int64_t& gpus, std::string& kind) {
  // Counts first: the name of a kind may have an x of its own.
  std::vector<int64_t> counts;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (counts.size() < 2) {
    int64_t count = 0;
    const auto result = std::from_chars(at, end, count);
    if (result.ec != std::errc() || result.ptr == end || *result.ptr != 'x') break;
    counts.push_back(count);
    at = result.ptr + 1;
  }
  if (counts.empty()) return false;
  kind.assign(at, end);
  nodes = counts.size() == 2 ? counts[0] : 1;
  gpus = counts.back();
  return true;
}

Cluster NamedCluster(const std::string& name) {
  int64_t nodes = 0;
  int64_t gpus = 0;
  std::string kind;
  if (!ParseClusterName(name, nodes, gpus, kind)) {
    throw UsageError(fmt::format(
        "no cluster is called '{}'; expected local, GPUs x kind (8xh200), nodes x GPUs x kind "
        "(16x8xh100), or a cluster JSON file",
        name));
  }
  const HardwareProfile* profile = GpuOf(kind);
  if (profile == nullptr) {
    throw UsageError(fmt::format("cluster '{}': no GPU is called '{}'{}", name, kind,
                                 SuggestName(kind, KindNames())));
  }
  if (nodes < 1 || nodes > kMostNodes || gpus < 1 || gpus > kMostGpusPerNode) {
    throw UsageError(fmt::format("cluster '{}': expected 1 to {} nodes of 1 to {} GPUs", name,
                                 kMostNodes, kMostGpusPerNode));
  }
  return GpuCluster(name, nodes, gpus, *profile);
}

}  // namespace

int64_t CoresOfThisMachine() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

Cluster LocalMachine(HardwareProfile profile) {
  Cluster cluster;
  cluster.name = "local";
  cluster.device = DeviceKind::kCpu;
  cluster.cores = CoresOfThisMachine();
  cluster.ranks_per_node = kRanksPerCore * cluster.cores;
  cluster.max_ranks = cluster.ranks_per_node;
  cluster.memory_bytes = MemoryOfThisMachine();
  cluster.calibrated = profile.measured_on.starts_with(DescribeThisMachine());
  cluster.profile = std::move(profile);
  return cluster;
}

std::string DescribeThisMachine() {
  std::string processor = KernelField("/proc/cpuinfo", "model name");
  if (processor.empty()) processor = "unknown processor";
  return fmt::format("{}, {} cores", processor, CoresOfThisMachine());
}

Cluster LoadCluster(const std::string& name_or_path, const std::string& profile_path) {
  Cluster cluster;
  if (name_or_path == "local") {
    cluster = LocalMachine(BuiltinProfile("cpu"));
    cluster.caveat =
        "local: no profile of this machine is given, so predictions use a generic one and are "
        "rough; `trimtab calibrate --out PROFILE.json` makes one for --profile";
  } else if (name_or_path.ends_with(".json") || std::filesystem::is_regular_file(name_or_path)) {
    cluster = ClusterFromFile(name_or_path);
  } else {
    cluster = NamedCluster(name_or_path);
  }
  if (profile_path.empty()) return cluster;
  return PricedBy(std::move(cluster), LoadHardwareProfile(profile_path), profile_path);
}

int64_t MemoryOfRank(const Cluster& cluster, int64_t ranks) {
  return cluster.device == DeviceKind::kCpu ? cluster.memory_bytes / ranks : cluster.memory_bytes;
}

Cluster PricedBy(Cluster cluster, HardwareProfile profile, const std::string& where) {
  if (profile.device != cluster.device) {
    throw InputError(fmt::format("{}: $.device: expected \"{}\" for the cluster '{}', got \"{}\"",
                                 where, Name(cluster.device), cluster.name, Name(profile.device)));
  }
  if (cluster.device != DeviceKind::kCpu) {
    if (cluster.own_link) {
      profile.link_bandwidth = cluster.profile.link_bandwidth;
      profile.link_latency_s = cluster.profile.link_latency_s;
    }
    if (cluster.own_network) {
      profile.network_bandwidth = cluster.profile.network_bandwidth;
      profile.network_latency_s = cluster.profile.network_latency_s;
    }
    cluster.memory_bytes = static_cast<int64_t>(profile.memory_bytes.value);
    cluster.profile = std::move(profile);
    return cluster;
  }
  cluster = LocalMachine(std::move(profile));
  if (!cluster.calibrated) {
    cluster.caveat =
        fmt::format("{}: was measured on \"{}\" and this machine is \"{}\": predictions are rough",
                    where, cluster.profile.measured_on, DescribeThisMachine());
  }
  return cluster;
}

std::vector<ClusterListing> ListClusters() {
  std::vector<ClusterListing> list = {
      {"local", fmt::format("this machine's {} cores as ranks", CoresOfThisMachine())}};
  for (const std::string& kind : KindNames()) {
    const HardwareProfile& profile = *GpuOf(kind);
    list.push_back(
        {fmt::format("8x{}", kind), fmt::format("one node of 8 {} GPUs, {:.0f} GB each",
                                                profile.name, profile.memory_bytes.value / 1e9)});
  }
  list.push_back({"16x8xh100", "nodes x GPUs per node x kind, in any numbers"});
  return list;
}

Executor ExecutorOf(const Mode& mode, const Cluster& cluster) {
  return {.kind = cluster.device, .threads = mode.threads};
}

double PowerPerGpu(const Cluster& cluster) {
  return cluster.power_per_gpu_w > 0 ? cluster.power_per_gpu_w : cluster.profile.power_w.value;
}

Mode ModeOf(const RunConfig& run, const Cluster& cluster) {
  if (cluster.device != DeviceKind::kCpu) return {1, 1};
  const int64_t ranks = run.layout.world_size();
  const int64_t threads =
      run.threads_per_rank > 0 ? run.threads_per_rank : std::max<int64_t>(1, cluster.cores / ranks);
  return {static_cast<int>(ranks), static_cast<int>(threads)};
}

}  // namespace trimtab
