#include <optional>

#include "cost_model/hardware/numerics.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/config/model/model_limits.h"
#include "engine/families/load_config.h"
#include "search/space/gpu_counts.h"
#include "search/training_workload.h"
#include "tools/cli/common_flags.h"
#include "tools/cli/packing_flags.h"
#include "tools/cli/proposal_flags.h"
#include "tools/cli/serving_problem.h"
#include "tools/commands/search_command.h"

namespace trimtab {
namespace {

class TrainingSearchCommand final : public SearchCommand {
 public:
  std::string summary() const override {
    return "find the fastest configuration: rank, prove, recommend";
  }

 private:
  Words words() const override {
    return {.workload = "training",
            .study_path = "trimtab-study.db",
            .objectives = {"throughput", "memory", "cost"},
            .objective = {"what to optimise",
                          "Most tokens per second, least memory, or least GPU time per token."},
            .require = {"constraints, e.g. headroom>=8GiB,gpus<=512",
                        "headroom>=8GiB (free memory of each rank), gpus<=512, nodes<=64; with "
                        "--tokens also days<=30 and price<=2M, which are checked as predicted."},
            .fix = "tp=8,schedule=1f1b",
            .allow = "tp=4,8,recompute=none,full",
            .forbid = "zero=3,cp_comm_type=p2p",
            .short_list = {"--for", "--model", "--cluster", "--gbs", "--seq", "--require",
                           "--prove", "--budget", "--launcher", "--report"}};
  }

  void DeclareProblem(FlagSet& flags) override {
    DeclareFor(flags, for_);
    flags.Text("--model MODEL", model_,
               {"preset, model JSON or Hugging Face folder",
                "'trimtab models' lists the presets. A config.json will do."});
    cluster_flags_.Declare(flags);
    flags.List("--gbs N,...", global_batches_,
               {"global batch, in sequences", "Or several to choose among, e.g. 512,1024."});
    flags.Integer("--seq", problem_.sequence_length, 1, kMax32, "sequence length, in tokens");
    flags.Text(
        "--data PREFIX", problem_.data,
        {"dataset of trials and winner [synthetic tokens]", "'trimtab data build' writes one."});
    flags.Integer("--steps", problem_.steps, 1, kMax32,
                  "steps of the recommended run, for 'trimtab train'");
    flags.Count("--tokens", problem_.tokens,
                {"tokens to train on, e.g. 300B",
                 "Reports the time and price of training for each number of GPUs."});
    packing_.Declare(flags);
    proposal_.Declare(flags);
    flags.Text("--stack NAME", stack_,
               {"software that will train, e.g. torchtitan",
                "A name or a JSON file. Layouts that need options which it does not have are left "
                "out. Trials run trimtab alone, so that others are only predicted."});
  }

  void DeclareSpace(FlagSet& flags) override {
    flags.Bytes("--memory-per-rank", problem_.memory_per_rank_bytes,
                "memory limit of each rank, e.g. 8GiB");
    flags.List("--precision NAME,...", precisions_,
               {"precisions to consider",
                "Of fp32, tf32, bf16, fp16, fp8, auto (the device's best: bf16,fp8 on "
                "GPUs), which is the default on GPUs."});
    flags.Text("--optimizer NAME", optimizer_, fmt::format("{} [adamw]", OptimizerKindNames()));
    flags.List("--optimizer-state NAME,...", problem_.optimizer_states,
               {"optimizer states to consider",
                "full: fp32 master weights, moments and gradients; reduced: 16-bit remainders as "
                "master weights, bf16 moments, fp32 gradients; minimal: as reduced, with bf16 "
                "gradients; MASTER/MOMENTS/GRADS; auto: all of these."});
    flags.Integer("--max-micro-batch", problem_.max_micro_batch, 1, kMax32, "largest micro batch");
  }

  void DeclareMeasuring(FlagSet& flags) override {
    flags.Integer("--dry-runs", options_.dry_run_count, 0, kMax32,
                  "candidates that get a dry run after the closed form");
    flags.Integer("--visit-steps", options_.visit.steps, 1, kMax32, "least steps of a visit");
    flags.Number("--visit-seconds", options_.visit.min_seconds, 0, 1e9, "least seconds of a visit");
  }

  const NarrowingKeys& keys() const override { return TrainingKeys(); }

  void CheckFlags() override {
    SetGlobalBatches();
    ChooseModel();
    SetStack();
    problem_.max_ranks = max_ranks_;
    packing_.Apply(problem_.packing);
    problem_.optimizer_states = ResolveOptimizerStates(problem_.optimizer_states);
    problem_.narrowings = Narrowings();
    problem_.requirements = ParseTrainingRequirements(require_);
    options_.visit.max_steps = std::max(options_.visit.max_steps, options_.visit.steps);
  }

  std::unique_ptr<Workload> MakeWorkload(const OutputOptions& output,
                                         const SeedStudy* seed) override {
    SetCluster(seed != nullptr ? cluster_flags_.ResolvePricedBy(seed->profile, seed->path)
                               : cluster_flags_.ResolveMeasuring(output));
    return std::make_unique<TrainingWorkload>(problem_);
  }

  SpaceDescription DescribeSpace() override {
    SetCluster(cluster_flags_.Resolve());
    return trimtab::DescribeSpace(problem_);
  }

  /// The model that is named, or a proposed one with its batch, steps and learning rate where no
  /// flag says otherwise.
  void ChooseModel() {
    if (!proposal_.given()) {
      for (const char* flag : {"--model", "--gbs", "--seq"}) {
        if (flags().Given(flag)) continue;
        throw UsageError(fmt::format(
            "{} is missing; expected --model, --gbs and --seq, or --params or --days", flag));
      }
      problem_.model = LoadModelConfig(model_);
      return;
    }
    if (!model_.empty()) {
      throw UsageError("--model contradicts --params or --days, which propose a model");
    }
    const ModelProposal proposal =
        proposal_.Propose(cluster_flags_.Resolve(), problem_.tokens, problem_.sequence_length);
    problem_.model = proposal.model;
    problem_.optimizer = proposal.optimizer;
    problem_.tokens = proposal.tokens;
    problem_.sequence_length = proposal.model.max_sequence_length;
    if (problem_.global_batch == 0) problem_.global_batch = proposal.global_batch;
    if (problem_.steps == 0) problem_.steps = proposal.steps;
    for (const std::string& line : ProposalLines(proposal)) LogInfo("{}", line);
  }

  void SetGlobalBatches() {
    if (global_batches_.empty()) return;
    const std::vector<int64_t> batches = ParseGlobalBatches(global_batches_);
    problem_.global_batch = batches.front();
    if (batches.size() > 1) problem_.global_batches = batches;
  }

  /// Trials run our own engine: what another stack would do is predicted, never measured.
  void SetStack() {
    software_ = LoadSoftwareStack(stack_);
    if (software_.name == kOwnStack) return;
    if (flags().Given("--prove") && options_.race.prove_count > 0) {
      throw UsageError(
          fmt::format("--stack {}: trials run {} alone; expected --prove 0", stack_, kOwnStack));
    }
    options_.race.prove_count = 0;
  }

  void SetCluster(Cluster cluster) {
    problem_.cluster = std::move(cluster);
    problem_.cluster.stack = software_;
    const bool gpus = problem_.cluster.device == DeviceKind::kCuda;
    if (gpus && !flags().Given("--precision")) precisions_ = {"auto"};
    problem_.precisions = ResolvePrecisions(precisions_, problem_.cluster.profile);
    RequireMemoryOfGpu(problem_.memory_per_rank_bytes, problem_.cluster);
    if (flags().Given("--optimizer")) problem_.optimizer.kind = ParseOptimizerKind(optimizer_);
    problem_.gpus = Gpus(problem_.cluster);
    RequireSensible(problem_);
  }

  std::string for_ = "training";
  Problem problem_;
  ClusterFlags cluster_flags_;
  std::string model_;
  std::string stack_ = kOwnStack;
  SoftwareStack software_;
  ProposalFlags proposal_;
  std::vector<std::string> precisions_ = {"fp32"};
  std::string optimizer_;
  PackingFlags packing_;
  std::vector<std::string> global_batches_;
};

}  // namespace

std::unique_ptr<Command> MakeSearchCommand() { return std::make_unique<TrainingSearchCommand>(); }

}  // namespace trimtab
