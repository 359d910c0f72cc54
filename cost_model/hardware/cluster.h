// Cluster: the machines a run may use, and the profile that prices them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "cost_model/hardware/software_stack.h"
#include "engine/config/run/run_config.h"
#include "engine/device/device.h"

namespace trimtab {

/// How often machines fail, and what a run that saves its state loses by it.
struct Reliability {
  /// Hours between failures that interrupt a run, of one GPU and its share of a machine and
  /// network: 419 of them in 54 days of 16,384 H100 (Llama 3, arXiv:2407.21783, section 3.3.4).
  double gpu_mtbf_hours = 50'000;
  /// To notice, to replace the machine and to load the state again (MegaScale, arXiv:2402.15627).
  double restart_s = 900;
  /// That one machine writes of a checkpoint: what two usual solid-state drives take. Modelled.
  double checkpoint_bytes_per_s = 2e9;

  bool operator==(const Reliability&) const = default;
};

struct Cluster {
  std::string name;
  DeviceKind device = DeviceKind::kCpu;  // cpu | cuda
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;     // GPUs of a node; on cpu, the most ranks of the machine
  int64_t max_ranks = 1;          // nodes * ranks_per_node
  int64_t cores = 1;              // of one node; 0 = unknown
  int64_t memory_bytes = 0;       // of the machine on cpu, of one GPU on cuda
  double price_per_gpu_hour = 0;  // 0 = unknown
  double power_per_gpu_w = 0;     // with its share of what is around it; 0 = the profile's of a GPU
  Reliability reliability;
  HardwareProfile profile;
  bool own_link = false;  // the profile's link, or network, is what the cluster's file gives
  bool own_network = false;
  SoftwareStack stack;      // what predictions assume to run there; our own engine
  bool calibrated = false;  // the profile holds measurements of this machine
  std::string caveat;       // why predictions are rough, for people to read; empty = they are not
};

/// A cluster by name or file:
///   "local"      this machine's cores as ranks (at most two per core); its profile is
///                `profile_path`, or the generic cpu one when that is empty
///   "8xh200"     8 GPUs of one node; "16x8xh100": 16 nodes of 8
///   FILE.json    strict JSON: {"name", "kind", "nodes", "gpus_per_node", "price_per_gpu_hour",
///                "power_per_gpu_w", "reliability": {"gpu_mtbf_hours", "restart_s",
///                "checkpoint_bytes_per_s"},
///                "link": {"bandwidth", "latency_s"}, "network": {"bandwidth", "latency_s"}}
/// `profile_path` replaces the profile of any of them, but for what a file says of its links.
/// Throws UsageError or InputError.
Cluster LoadCluster(const std::string& name_or_path, const std::string& profile_path = "");

/// Memory that each of `ranks` ranks has: its GPU's, or an equal share of the machine.
int64_t MemoryOfRank(const Cluster& cluster, int64_t ranks);

/// `cluster` priced by `profile`, which comes from `where`, and by its own links. Throws InputError
/// where it is one of another device.
Cluster PricedBy(Cluster cluster, HardwareProfile profile, const std::string& where);

/// This machine as a cluster, priced by `profile`.
Cluster LocalMachine(HardwareProfile profile);

/// Cores this process may run on.
int64_t CoresOfThisMachine();
/// This machine in a few words, the beginning of HardwareProfile::measured_on: processor and cores.
std::string DescribeThisMachine();

/// Names `trimtab clusters` lists, each with a line about it.
struct ClusterListing {
  std::string name;
  std::string description;
};
std::vector<ClusterListing> ListClusters();

/// Watts of one GPU under load, from the cluster or else its profile; 0 = unknown.
double PowerPerGpu(const Cluster& cluster);

/// How the ranks of `run` share a machine of `cluster`: on cpu all ranks with
/// threads_per_rank threads (0 = cores / ranks, at least 1), on cuda {1, 1}.
Mode ModeOf(const RunConfig& run, const Cluster& cluster);

/// Who runs the ops of a rank in `mode` on `cluster`: what decides an op's scratch.
Executor ExecutorOf(const Mode& mode, const Cluster& cluster);

}  // namespace trimtab
