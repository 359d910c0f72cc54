#include <unistd.h>

#include <csignal>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/comm/mpi_launch.h"
#include "engine/data/dataset/open_token_source.h"
#include "engine/train/continuation.h"
#include "engine/train/run_training.h"
#include "tools/cli/command.h"
#include "tools/cli/common_flags.h"
#include "tools/cli/launcher_flag.h"
#include "tools/cli/progress.h"
#include "tools/cli/signals.h"
#include "tools/cli/table.h"
#include "tools/cli/training_job.h"

namespace trimtab {
namespace {

constexpr int64_t kDefaultSteps = 50;

StopSignal ToStopSignal(StopLevel level) {
  switch (level) {
    case StopLevel::kNone:
      return StopSignal::kNone;
    case StopLevel::kDrain:
      return StopSignal::kDrain;
    case StopLevel::kCancel:
      return StopSignal::kCancel;
  }
  return StopSignal::kNone;
}

class TrainCommand : public Command {
 public:
  std::string name() const override { return "train"; }
  std::string summary() const override {
    return "train with a configuration or with a search's winner";
  }

  void Declare(FlagSet& flags) override {
    run_flags_.Declare(flags);
    cluster_flags_.Declare(flags);
    flags.Group("Training");
    flags.Integer("--steps", steps_, 1, std::numeric_limits<int32_t>::max(),
                  "total number of steps [as in the run, or 50]");
    flags.Integer(
        "--schedule-steps", schedule_steps_, 1, std::numeric_limits<int32_t>::max(),
        {"steps until the learning rate reaches its minimum [--steps]",
         "For runs that stop earlier or later. A run's own value is the default, if it has "
         "one."});
    flags.Integer("--log-every", log_every_, 1, std::numeric_limits<int32_t>::max(),
                  {"print every N steps", "Always prints the first and the last."});
    flags.Group("Checkpoints");
    flags.Text("--checkpoint FOLDER", options_.checkpoint,
               {"save here at the end and on Ctrl-C", "The folder belongs to this run alone."});
    flags.Integer("--save-every", options_.save_every, 0, std::numeric_limits<int32_t>::max(),
                  "also save every N steps");
    flags.Switch(
        "--resume", resume_,
        {"go on from the newest checkpoint", "The newest whole one in --checkpoint, if any."});
    flags.Text("--load FOLDER", options_.load,
               {"checkpoint to continue from", "The layout that wrote it may differ."});
    flags.List("--override KEY,...", options_.overrides,
               {"settings that may differ from the checkpoint's",
                "Keys of RUN.json that change results, such as steps,learning_rate."});
    flags.Text("--load-hf FOLDER", options_.load_hf,
               {"Hugging Face folder whose weights to begin with",
                "With config.json and safetensors files. Also says which model, without --model."});
    flags.Integer("--time-limit-margin", margin_s_, 0, 24 * 3600,
                  {"seconds before Slurm's time limit at which to save",
                   "Allow for a save and a minute more."});
    launcher_.Declare(flags);
    flags.ShortList({"--config", "--model", "--gbs", "--seq", "--layout", "--data", "--steps",
                     "--checkpoint", "--resume", "--launcher"});
  }

  int Run(const OutputOptions& output) override {
    if (!options_.load.empty() && !options_.load_hf.empty()) {
      throw UsageError("--load-hf contradicts --load, which continues with weights of its own");
    }
    if (resume_ && options_.checkpoint.empty()) {
      throw UsageError("--resume needs --checkpoint, the folder to go on from");
    }
    if (!options_.overrides.empty() && options_.load.empty() && !resume_) {
      throw UsageError("--override needs --load or --resume, the checkpoint to go on from");
    }
    CatchStopSignals();  // a scheduler may speak before the first step
    if (!options_.load_hf.empty()) RequireHuggingFaceFolder(options_.load_hf);
    if (run_flags_.config.empty() && run_flags_.model.empty()) run_flags_.model = options_.load_hf;
    const Cluster cluster = cluster_flags_.ResolveForRunning();
    const RunConfig run = ResolveRun(cluster);
    RequireContinuable(run);
    if (options_.save_every > 0 && options_.checkpoint.empty()) {
      throw UsageError("--save-every needs --checkpoint, the folder to save to");
    }
    if (const auto code = RunAsJob(launcher_, run, cluster.ranks_per_node, options_.checkpoint,
                                   resume_, margin_s_, output)) {
      return *code;
    }
    RequireFreeCheckpoint();
    if (const auto code = launcher_.StartRanks(run, cluster.ranks_per_node)) return *code;
    if (!options_.checkpoint.empty() && LaunchedRank() == 0) {
      RequireCheckpointWritable(options_.checkpoint);
    }
    GoOn();
    Progress progress(output);
    // Where nobody reads stdout any more, what was trained is saved before the command says so.
    std::signal(SIGPIPE, SIG_IGN);
    std::exception_ptr unread;
    options_.stop_requested = [&unread] {
      const StopSignal asked = ToStopSignal(RequestedStop());
      return unread && asked == StopSignal::kNone ? StopSignal::kDrain : asked;
    };
    options_.on_step = [&](const TrainingStep& step) {
      try {
        if (!unread) ShowStep(run, output, progress, step);
      } catch (const StorageError&) {
        unread = std::current_exception();
      }
      trained_ = true;
    };
    options_.on_save = [&](int64_t step, double seconds) {
      progress.Event(fmt::format("saved step {} to {} in {}", step, options_.checkpoint,
                                 FormatSeconds(seconds)));
    };
    progress.Event(fmt::format("training {} ({} parameters) with {} on {}: {} on {}",
                               run.model.name, Thousands(run.model.parameter_count()),
                               ToString(run.layout), Name(run.device), Counted(run.steps, "step"),
                               run.data.empty() ? "synthetic tokens" : run.data));
    const TrainingSummary summary = RunTraining(run, options_);
    progress.Clear();
    if (unread) std::rethrow_exception(unread);
    return Finish(run, summary);
  }

 private:
  /// What another run has saved is not lost because its folder was named again.
  void RequireFreeCheckpoint() const {
    if (options_.checkpoint.empty() || resume_ || !options_.load.empty()) return;
    const int64_t step = StepOfCheckpoint(options_.checkpoint);
    if (step < 0) return;
    throw UsageError(fmt::format(
        "--checkpoint {}: holds a checkpoint at step {}; continue it with --resume or --load, or "
        "name another folder",
        options_.checkpoint, step));
  }

  /// Under --resume, what there is counts before what the run began with.
  void GoOn() {
    if (!resume_) return;
    const std::string newest = NewestCheckpoint(options_.checkpoint);
    if (newest.empty()) return;
    options_.load = newest;
    options_.load_hf.clear();
    LogInfo("going on from {}", newest);
  }

  /// Refuses what the ranks would refuse before any are started, or wait for a job.
  void RequireContinuable(const RunConfig& run) const {
    std::string from = options_.load;
    if (from.empty() && resume_ && StepOfCheckpoint(options_.checkpoint) >= 0) {
      from = options_.checkpoint;
    }
    if (from.empty() || LaunchedRank() > 0) return;
    const CheckpointHeader header = ReadCheckpointHeader(from);
    RequireContinuation(header, from, run, IdentityOfTokens(run), options_.overrides);
  }

  RunConfig ResolveRun(const Cluster& cluster) const {
    RunConfig run = run_flags_.Resolve(cluster);
    if (steps_ > 0) run.steps = steps_;
    if (schedule_steps_ > 0) run.optimizer.decay_steps = schedule_steps_;
    if (run.steps == 0) run.steps = kDefaultSteps;
    if (run.stack != kOwnStack) {
      LogWarning("the run was planned for {}; {} trains it here", run.stack, kOwnStack);
    }
    return run;
  }

  void ShowStep(const RunConfig& run, const OutputOptions& output, Progress& progress,
                const TrainingStep& step) const {
    const bool shown = !trained_ || step.step == run.steps || step.step % log_every_ == 0;
    if (output.json && shown) {
      nlohmann::json line = {{"step", step.step},
                             {"loss", step.loss},
                             {"grad_norm", step.grad_norm},
                             {"lr", step.learning_rate},
                             {"tokens_per_s", step.tokens_per_s}};
      if (TypesOf(run.layout.numerics).loss_scaling) {
        line["loss_scale"] = step.loss_scale;
        line["skipped"] = step.skipped;
      }
      if (run.model.moe.used()) {
        line["aux_loss"] = step.routing.aux_loss;
        line["z_loss"] = step.routing.z_loss;
        line["expert_imbalance"] = step.routing.imbalance;
      }
      PrintJson(line, /*one_line=*/true);
    } else if (step.skipped) {
      progress.Event(
          fmt::format("step {}: gradients overflowed at loss scale {}; step skipped, "
                      "scale halved",
                      step.step, step.loss_scale));
    } else if (shown) {
      progress.Clear();
      Print(fmt::format("step {:>5}/{}  loss {:.4f}  grad norm {:.3f}  lr {:.2e}  {:>8} tokens/s\n",
                        step.step, run.steps, step.loss, step.grad_norm, step.learning_rate,
                        Thousands(static_cast<int64_t>(step.tokens_per_s))));
    }
    progress.Update({.label = "training",
                     .done = step.step,
                     .total = run.steps,
                     .best = fmt::format("loss {:.4f}", step.loss)});
  }

  int Finish(const RunConfig& run, const TrainingSummary& summary) const {
    if (trained_) {
      LogInfo("{} of {} steps done, loss {:.4f}, peak memory {} per rank", summary.steps_done,
              run.steps, summary.last_loss, FormatBytes(summary.peak_mem_bytes));
    } else if (summary.stopped_by == StopSignal::kNone) {
      LogInfo("{} of {} steps were done before; no step is left", summary.steps_done, run.steps);
    }

    if (summary.stopped_by == StopSignal::kNone) return 0;
    const bool saved = summary.stopped_by == StopSignal::kDrain && !options_.checkpoint.empty();
    LogWarning("stopped after step {}; {}", summary.steps_done,
               saved ? "continue with --load " + options_.checkpoint : "nothing was saved");
    return StoppedByScheduler() && saved ? kRequeueExitCode : StopExitCode();
  }

  RunFlags run_flags_;
  ClusterFlags cluster_flags_;
  LauncherFlag launcher_;
  TrainingOptions options_;
  int64_t steps_ = 0;
  int64_t schedule_steps_ = 0;
  int64_t log_every_ = 1;
  bool resume_ = false;
  int64_t margin_s_ = 120;
  bool trained_ = false;  // any step, in this run of the command
};

}  // namespace

std::unique_ptr<Command> MakeTrainCommand() { return std::make_unique<TrainCommand>(); }

}  // namespace trimtab
