// Kubernetes: an MPIJob of Kubeflow's MPI operator (kubeflow.org/v2beta1), which is only written.

#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "engine/base/error.h"
#include "profiler/launch/kinds.h"

namespace trimtab {
namespace {

constexpr std::array kOptions = {
    OptionRow{"image", OptionKind::kWord, "image with trimtab at the same path (required)"},
    OptionRow{"namespace", OptionKind::kWord, "namespace of the job"},
    OptionRow{"claim", OptionKind::kWord, "persistent volume claim that all pods share"},
    OptionRow{"mount", OptionKind::kWord, "where pods mount the claim [/work]"},
    OptionRow{"gpu-resource", OptionKind::kWord, "resource name of a GPU [nvidia.com/gpu]"},
};

/// YAML takes a JSON string for what it says.
std::string Text(const std::string& value) { return nlohmann::json(value).dump(); }

class KubernetesLauncher : public Launcher {
 public:
  explicit KubernetesLauncher(LaunchOptions options) : options_(std::move(options)) {
    if (!options_.contains("image")) {
      throw UsageError("--launcher-options: kubernetes needs image=...");
    }
  }

  LaunchPlan Plan(const LaunchRequest& request) const override {
    const int64_t nodes = NodesOf(request);
    const int64_t slots = (request.ranks + nodes - 1) / nodes;
    std::vector<std::string> command = {"mpirun",    "-n",   std::to_string(request.ranks),
                                        "--bind-to", "none", request.program};
    command.insert(command.end(), request.arguments.begin(), request.arguments.end());
    std::string manifest = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata:\n";
    manifest += fmt::format("  name: {}\n", Text(request.name));
    if (options_.contains("namespace")) {
      manifest += fmt::format("  namespace: {}\n", Text(options_.at("namespace")));
    }
    manifest += fmt::format(
        "spec:\n  slotsPerWorker: {}\n  runPolicy:\n    cleanPodPolicy: Running\n"
        "    backoffLimit: 0\n  mpiReplicaSpecs:\n",
        slots);
    manifest += Replica("Launcher", 1, command, 0);
    manifest += Replica("Worker", nodes, {}, request.gpus ? slots : 0);
    return {.files = {{.path = request.name + ".mpijob.yaml", .text = std::move(manifest)}}};
  }

  std::unique_ptr<LaunchedRun> Submit(const LaunchRequest& /*request*/) override {
    throw EnvironmentError(
        "nothing is sent to Kubernetes from here; --plan prints the job, for kubectl apply");
  }

  bool elsewhere() const override { return true; }

 private:
  std::string Option(const char* key, const char* otherwise) const {
    const auto at = options_.find(key);
    return at == options_.end() ? otherwise : at->second;
  }

  std::string Replica(const char* role, int64_t count, const std::vector<std::string>& command,
                      int64_t gpus) const {
    std::string text = fmt::format(
        "    {}:\n      replicas: {}\n      template:\n        spec:\n          containers:\n"
        "            - name: trimtab\n              image: {}\n",
        role, count, Text(options_.at("image")));
    if (!command.empty()) {
      text += "              command:\n";
      for (const std::string& word : command) {
        text += fmt::format("                - {}\n", Text(word));
      }
    }
    if (gpus > 0) {
      text += fmt::format(
          "              resources:\n                limits:\n"
          "                  {}: {}\n",
          Text(Option("gpu-resource", "nvidia.com/gpu")), gpus);
    }
    if (options_.contains("claim")) {
      text += fmt::format(
          "              volumeMounts:\n                - name: shared\n"
          "                  mountPath: {}\n          volumes:\n            - name: shared\n"
          "              persistentVolumeClaim:\n                claimName: {}\n",
          Text(Option("mount", "/work")), Text(options_.at("claim")));
    }
    return text;
  }

  const LaunchOptions options_;
};

}  // namespace

std::span<const OptionRow> KubernetesOptions() { return kOptions; }

std::unique_ptr<Launcher> MakeKubernetesLauncher(LaunchOptions options) {
  return std::make_unique<KubernetesLauncher>(std::move(options));
}

}  // namespace trimtab
