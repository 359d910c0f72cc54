#include "profiler/launch/slurm_plan.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "engine/base/error.h"

namespace trimtab {
namespace {

// Of the job, unless listed below. Every key is also the long name of Slurm's option.
constexpr std::array kOptions = {
    OptionRow{"account", OptionKind::kWord, "account to charge"},
    OptionRow{"partition", OptionKind::kWord, "partition, or several to choose among: a,b"},
    OptionRow{"qos", OptionKind::kWord, "quality of service"},
    OptionRow{"reservation", OptionKind::kWord, "reserved nodes to use"},
    OptionRow{"constraint", OptionKind::kWord, "features of the nodes: h200&ib"},
    OptionRow{"nodelist", OptionKind::kWord, "nodes that must be among them"},
    OptionRow{"exclude", OptionKind::kWord, "nodes to leave out"},
    OptionRow{"nodes", OptionKind::kNumber, "number of nodes [as many as the layout needs]"},
    OptionRow{"time", OptionKind::kDuration, "time limit of the job"},
    OptionRow{"mem", OptionKind::kWord, "memory of each node"},
    OptionRow{"gres", OptionKind::kWord, "instead of --gpus-per-node: gpu:h200:8"},
    OptionRow{"cpus-per-task", OptionKind::kNumber, "cores of each rank"},
    OptionRow{"network", OptionKind::kWord, "type of network, as the site names it"},
    OptionRow{"nice", OptionKind::kNumber, "lower the job's priority by this much"},
    OptionRow{"share", OptionKind::kSwitch, "do not reserve whole nodes"},
    OptionRow{"pending-limit", OptionKind::kNumber, "give up after this many seconds in the queue"},
    OptionRow{"mpi", OptionKind::kWord, "how ranks find each other [pmix]"},
    OptionRow{"container-image", OptionKind::kWord, "Pyxis: image or squashfs file"},
    OptionRow{"container-name", OptionKind::kWord, "Pyxis: keep the container by this name"},
    OptionRow{"container-mounts", OptionKind::kWord, "Pyxis: /data:/data,/home:/home"},
    OptionRow{"container-workdir", OptionKind::kWord, "Pyxis: working folder"},
    OptionRow{"container-env", OptionKind::kWord, "Pyxis: variables kept from outside"},
    OptionRow{"container-writable", OptionKind::kSwitch, "Pyxis: make the container writable"},
    OptionRow{"no-container-mount-home", OptionKind::kSwitch, "Pyxis: without the home folder"},
};

// Ours, which Slurm is told in another way.
constexpr std::string_view kOwn[] = {"nodes", "share", "pending-limit", "mpi"};
bool OfContainer(std::string_view key) { return key.find("container") != std::string_view::npos; }
/// Steps do not inherit it.
bool OfStep(std::string_view key) {
  return OfContainer(key) || key == "cpus-per-task" || key == "network";
}
bool OfJob(std::string_view key) { return !OfContainer(key); }
bool OfBoth(std::string_view /*key*/) { return true; }

void Append(std::vector<std::string>& argv, const LaunchOptions& options,
            bool (*wanted)(std::string_view)) {
  for (const OptionRow& row : kOptions) {
    const auto at = options.find(row.key);
    const bool own = std::find(std::begin(kOwn), std::end(kOwn), row.key) != std::end(kOwn);
    if (at == options.end() || own || !wanted(row.key)) continue;
    argv.push_back(row.kind == OptionKind::kSwitch ? fmt::format("--{}", row.key)
                                                   : fmt::format("--{}={}", row.key, at->second));
  }
}

int64_t RanksPerNode(const LaunchRequest& request, const LaunchOptions& options) {
  const int64_t nodes = NodesAskedFor(request, options);
  return std::min(request.ranks_per_node, (request.ranks + nodes - 1) / nodes);
}

/// What a job asks of its nodes.
void AppendNodes(std::vector<std::string>& argv, const LaunchRequest& request,
                 const LaunchOptions& options) {
  // Timings of shared nodes say little.
  if (!options.contains("share")) argv.emplace_back("--exclusive");
  if (request.gpus && !options.contains("gres")) {
    argv.push_back(fmt::format("--gpus-per-node={}", RanksPerNode(request, options)));
  }
}

/// The whole of a job that srun's steps come to later.
void AppendJob(std::vector<std::string>& argv, const LaunchRequest& request,
               const LaunchOptions& options) {
  argv.push_back(fmt::format("--nodes={}", NodesAskedFor(request, options)));
  argv.push_back(fmt::format("--ntasks-per-node={}", RanksPerNode(request, options)));
  AppendNodes(argv, request, options);
  Append(argv, options, OfJob);
}

/// What srun is told of the ranks.
void AppendRanks(std::vector<std::string>& argv, const LaunchRequest& request,
                 const LaunchOptions& options) {
  const int64_t nodes = std::min(NodesAskedFor(request, options), request.ranks);
  argv.push_back(fmt::format("--nodes={}", nodes));
  argv.push_back(fmt::format("--ntasks={}", request.ranks));
  argv.push_back(fmt::format("--ntasks-per-node={}", (request.ranks + nodes - 1) / nodes));
  const auto mpi = options.find("mpi");
  const std::string several = mpi == options.end() ? "pmix" : mpi->second;
  argv.push_back("--mpi=" + (request.ranks > 1 ? several : "none"));
  // A rank shares its cores among threads of its own, so nobody is bound to one.
  argv.emplace_back("--cpu-bind=none");
  // A node may have fewer cores than ranks; GPUs are never shared.
  if (!request.gpus) argv.emplace_back("--overcommit");
  argv.emplace_back("--kill-on-bad-exit=1");
}

void AppendProgram(std::vector<std::string>& argv, const LaunchRequest& request) {
  argv.push_back(request.program);
  argv.insert(argv.end(), request.arguments.begin(), request.arguments.end());
}

}  // namespace

std::span<const OptionRow> SlurmOptions() { return kOptions; }

std::string HolderName(const std::string& study) { return "trimtab-" + study; }

int64_t NodesAskedFor(const LaunchRequest& request, const LaunchOptions& options) {
  const int64_t filled = NodesOf(request);
  const auto at = options.find("nodes");
  if (at == options.end()) return filled;
  const int64_t nodes = std::stoll(at->second);
  // Ranks may share cores, and never GPUs; and what is spread otherwise is priced otherwise.
  if (request.gpus && nodes != filled) {
    throw UsageError(fmt::format("--launcher-options: nodes={}; {} GPUs at {} a node need {}",
                                 nodes, request.ranks, request.ranks_per_node, filled));
  }
  return nodes;
}

std::vector<std::string> HolderCommand(const LaunchRequest& request, const LaunchOptions& options,
                                       const std::string& script_path) {
  std::vector<std::string> argv = {"sbatch", "--parsable",
                                   "--job-name=" + HolderName(request.study)};
  AppendJob(argv, request, options);
  argv.insert(argv.end(), {"--requeue", "--output=/dev/null", script_path});
  return argv;
}

std::string HolderScript() {
  return "#!/bin/sh\n"
         "# Holds nodes, on which a search starts its steps.\n"
         "exec sleep infinity\n";
}

std::vector<std::string> StepCommand(const LaunchRequest& request, const LaunchOptions& options,
                                     const std::string& job) {
  std::vector<std::string> argv = {"srun", "--job-name=" + request.name};
  // Parked workers hold their share of the nodes too.
  if (!job.empty()) argv.insert(argv.end(), {"--jobid=" + job, "--overlap"});
  AppendRanks(argv, request, options);
  Append(argv, options, OfStep);
  argv.emplace_back("--input=0");
  AppendProgram(argv, request);
  return argv;
}

std::vector<std::string> OnceCommand(const LaunchRequest& request, const LaunchOptions& options) {
  std::vector<std::string> argv = {"srun", "--job-name=" + request.name};
  AppendNodes(argv, request, options);
  Append(argv, options, OfBoth);
  AppendRanks(argv, request, options);
  AppendProgram(argv, request);
  return argv;
}

std::vector<std::string> BatchCommand(const LaunchRequest& request, const LaunchOptions& options,
                                      const BatchJob& job) {
  std::vector<std::string> argv = {"sbatch", "--parsable", "--job-name=" + request.name};
  AppendJob(argv, request, options);
  argv.insert(argv.end(), {"--requeue", "--open-mode=append", "--output=" + job.output_path});
  if (job.margin_s > 0) argv.push_back(fmt::format("--signal=USR2@{}", job.margin_s));
  argv.push_back(job.script_path);
  AppendRanks(argv, request, options);
  Append(argv, options, OfStep);
  AppendProgram(argv, request);
  return argv;
}

std::string BatchScript() {
  // The shell has a handler, so that a signal to the whole job does not end it before its step.
  return "#!/bin/sh\n"
         "# Runs one step with the arguments it got; exit code 85 asks for another go.\n"
         "trap : TERM USR2 INT\n"
         "srun \"$@\" &\n"
         "step=$!\n"
         "wait \"$step\"\n"
         "code=$?\n"
         "while kill -0 \"$step\" 2>/dev/null; do\n"
         "  wait \"$step\"\n"
         "  code=$?\n"
         "done\n"
         "[ \"$code\" -eq 85 ] || exit \"$code\"\n"
         "for try in 1 2 3 4 5; do\n"
         "  job=\"$(scontrol --oneliner show job \"$SLURM_JOB_ID\")\" && break\n"
         "  sleep 2\n"
         "done\n"
         "field() { printf '%s\\n' \"$job\" | tr ' ' '\\n' | sed -n \"s/^$1=//p\" | head -n 1; }\n"
         "# A job whose nodes are promised to another, or whose time is over, goes on later. One\n"
         "# that ends for no such reason was cancelled, and stays so.\n"
         "preempted=\"$(field PreemptTime)\"\n"
         "if [ \"$(field JobState)\" != RUNNING ] && [ \"$(field Reason)\" != TimeLimit ] &&\n"
         "  [ \"$(field Restarts)\" = \"${SLURM_RESTART_COUNT:-0}\" ] &&\n"
         "  { [ \"$preempted\" = None ] || expr \"$preempted\" '<' \"$(field StartTime)\" "
         ">/dev/null; "
         "}; then\n"
         "  echo \"trimtab: the job was cancelled: it is not requeued\" >&2\n"
         "  exit \"$code\"\n"
         "fi\n"
         "scontrol requeue \"$SLURM_JOB_ID\"\n"
         "exit \"$code\"\n";
}

}  // namespace trimtab
