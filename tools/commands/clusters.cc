#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cost_model/hardware/cluster.h"
#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tools/cli/command.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

class ClustersCommand : public Command {
 public:
  std::string name() const override { return "clusters"; }
  std::string summary() const override { return "list the built-in clusters, or show one in full"; }

  void Declare(FlagSet& flags) override {
    flags.Positional("CLUSTER", cluster_, "show this cluster and its hardware profile");
    flags.Text("--profile FILE", profile_,
               "show the cluster with this hardware profile, or 'generic'");
  }

  int Run(const OutputOptions& output) override {
    if (!cluster_.empty()) {
      PrintOne(output);
    } else {
      PrintAll(output);
    }
    return 0;
  }

 private:
  static void PrintAll(const OutputOptions& output) {
    if (output.json) {
      nlohmann::json clusters = nlohmann::json::array();
      for (const ClusterListing& each : ListClusters()) {
        clusters.push_back({{"name", each.name}, {"description", each.description}});
      }
      PrintJson({{"schema_version", 1}, {"clusters", std::move(clusters)}});
      return;
    }
    Table table({{"cluster"}, {"what it is"}});
    for (const ClusterListing& each : ListClusters()) table.AddRow({each.name, each.description});
    PrintText(table.ToText(UseColor(output, STDOUT_FILENO)));
  }

  void PrintOne(const OutputOptions& output) const {
    const Cluster cluster = LoadCluster(cluster_, profile_ == "generic" ? "" : profile_);
    if (output.json) {
      PrintJson({{"schema_version", 1},
                 {"name", cluster.name},
                 {"device", Name(cluster.device)},
                 {"nodes", cluster.nodes},
                 {"ranks_per_node", cluster.ranks_per_node},
                 {"max_ranks", cluster.max_ranks},
                 {"cores", cluster.cores},
                 {"memory_bytes", cluster.memory_bytes},
                 {"price_per_gpu_hour", cluster.price_per_gpu_hour},
                 {"calibrated", cluster.calibrated},
                 {"profile", ToJson(cluster.profile)}});
      return;
    }
    const HardwareProfile& profile = cluster.profile;
    PrintText(KeyValueText(
        {{"cluster", cluster.name},
         {"device", std::string(Name(cluster.device))},
         {"ranks", fmt::format("{} on {}, {} per node", cluster.max_ranks,
                               Counted(cluster.nodes, "node"), cluster.ranks_per_node)},
         {"memory",
          FormatBytes(cluster.memory_bytes) +
              (cluster.device == DeviceKind::kCpu ? ", shared by all ranks" : " per GPU")},
         {"profile", profile.name},
         {"measured on",
          profile.measured_on.empty() ? "nothing; it is modelled" : profile.measured_on},
         {"modes measured", fmt::format("{}", profile.modes.size())}}));
  }

  std::string cluster_;
  std::string profile_;
};

}  // namespace

std::unique_ptr<Command> MakeClustersCommand() { return std::make_unique<ClustersCommand>(); }

}  // namespace trimtab
