#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>

#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/config/json/strict_json.h"
#include "engine/infer/api/engine.h"
#include "engine/infer/load/load_report.h"
#include "engine/runtime/weights/random_weights.h"
#include "profiler/serving/load_generator.h"
#include "profiler/serving/serving_trial.h"
#include "tools/bench/http_target.h"
#include "tools/cli/command.h"
#include "tools/cli/serving_flags.h"
#include "tools/cli/serving_problem.h"
#include "tools/cli/signals.h"
#include "tools/cli/workload_flags.h"
#include "tools/serve/api_key.h"

namespace trimtab {
namespace {

/// Throws UsageError where the engine would refuse every request.
void RequireOneThatFits(const std::vector<LoadRequest>& requests, const EngineLimits& limits) {
  const auto shortest = std::ranges::min_element(requests, {}, &LoadRequest::prompt_tokens);
  if (shortest == requests.end() || shortest->prompt_tokens < limits.sequence_length) return;
  throw UsageError(
      fmt::format("the shortest prompt of the load has {}; expected fewer than {}, all that a "
                  "sequence may have",
                  Counted(shortest->prompt_tokens, "token"), limits.sequence_length));
}

class BenchCommand : public Command {
 public:
  std::string name() const override { return "bench"; }
  std::string summary() const override {
    return "put a load on a server, or on an engine, and measure its answers";
  }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    flags.Group("Server");
    flags.Text("--url URL", target_.url,
               {"server to load [an engine in this process]", "As http://127.0.0.1:8000."});
    flags.Text("--name NAME", target_.model, "model to ask the server for [its first]");
    flags.Text("--api-key-file FILE", key_file_, "file with the key that the server expects");
    workload_.Declare(flags);
    flags.Integer("--vocab", load_.vocab_size, 1, int64_t{1} << 22,
                  "prompts are random token ids below this");
    flags.Text("--limits LIMIT,...", limits_, "what counts as good: ttft<500ms,tpot<30ms,e2e<5s");
    serving_.Declare(flags);
    flags.Group("Model");
    flags.Switch("--random-weights", random_weights_,
                 "load an engine of --config with random weights");
    flags.Number("--acceptance", acceptance_, 0, 1,
                 {"acceptance rate of proposed tokens, with --random-weights",
                  "Of each token, given that those before it were accepted: random weights predict "
                  "nothing themselves."});
    flags.Group("Output");
    flags.Text("--result FILE", result_,
               {"serve as a search's worker does, and append results here",
                "Serves the load of --config whenever stdin says \"visit ID\"."});
    flags.Text("--out FILE", out_, "also write the JSON to this file, atomically");
    flags.ShortList({"--url", "--load", "--load-hf", "--config", "--random-weights", "--workload",
                     "--concurrency", "--rate", "--limits", "--out"});
  }

  int Run(const OutputOptions& output) override {
    if (!result_.empty()) return RunTrial();
    if (flags_->Given("--acceptance") && !random_weights_) {
      throw UsageError(
          "--acceptance needs --random-weights: other weights show which tokens are accepted");
    }
    if (!out_.empty()) RequireWritable(out_);
    const LatencyLimits limits = ParseLimits(limits_);
    const ServiceLoad asked = workload_.Load();
    const std::vector<LoadRequest>& requests = asked.requests;
    load_.concurrency = asked.concurrency;
    load_.seed = workload_.seed();
    std::unique_ptr<Engine> engine;
    if (target_.url.empty()) {
      const std::unique_ptr<WeightSource> weights = OpenWeights();
      const std::unique_ptr<WeightSource> draft = RandomDraft();
      const auto acceptance =
          flags_->Given("--acceptance") ? std::optional(acceptance_) : std::nullopt;
      if (serving_.Follows(*weights, draft.get(), acceptance)) return 0;
      engine = serving_.OpenEngine(*weights, draft.get(), acceptance);
      RequireOneThatFits(requests, engine->limits());
    }
    const std::unique_ptr<LoadTarget> target =
        engine != nullptr ? MakeEngineTarget(*engine) : ServerTarget();
    load_.stop = [&target] {
      return RequestedStop() != StopLevel::kNone || !target->failure().empty();
    };
    CatchStopSignals();
    LogInfo("{} in {}", Counted(std::ssize(requests), "request"),
            load_.concurrency > 0
                ? fmt::format("a closed loop of {}", Counted(load_.concurrency, "client"))
                : "an open loop");
    const LoadReport report = MakeLoadReport(PutLoad(*target, requests, load_), limits);
    if (const std::string failure = target->failure(); !failure.empty()) {
      throw Error(ExitCode::kInternal, failure);
    }
    if (report.failed > 0) {
      LogWarning("{} of {} failed; the first: {}", report.failed,
                 Counted(report.requests, "request"), report.first_failure);
    }
    if (engine != nullptr) LogAcceptance(engine->metrics());
    if (!out_.empty()) {
      AtomicFile file(out_);
      file.Append(ToJson(report).dump(2) + "\n");
      file.Commit();
    }
    if (output.json) {
      PrintJson(ToJson(report));
    } else if (report.failed < report.requests) {
      PrintText(LoadReportText(report));
    }
    if (report.requests > 0 && report.failed == report.requests) {
      throw EnvironmentError(fmt::format("every request failed: {}", report.first_failure));
    }
    if (report.failed > 0 && RequestedStop() == StopLevel::kNone) {
      return static_cast<int>(ExitCode::kPartial);
    }
    return StopExitCode();
  }

 private:
  /// The worker of a search: its driver checked the configuration.
  int RunTrial() {
    const std::string path = serving_.config_file();
    if (path.empty()) throw UsageError("--result needs --config, which says what to serve");
    const ServingTrial trial = ServingTrialFromJson(ReadJsonFile(path), path + ": $");
    return WorkerExitCode(RunWorker(result_, std::cin, ServingVisits(trial)));
  }

  std::unique_ptr<LoadTarget> ServerTarget() {
    const std::string local = flags_->FirstGiven({"--load", "--load-hf"});
    if (!local.empty()) {
      throw UsageError(fmt::format("{} contradicts --url: the server has its model", local));
    }
    if (!key_file_.empty()) target_.api_key = ReadApiKey(key_file_);
    return MakeHttpTarget(target_);
  }

  std::unique_ptr<WeightSource> OpenWeights() const {
    if (!random_weights_) return serving_.OpenWeights();
    const std::string other = flags_->FirstGiven({"--load", "--load-hf"});
    if (!other.empty()) throw UsageError(fmt::format("{} contradicts --random-weights", other));
    const std::optional<ServingConfig> config = serving_.ConfigOfFile();
    if (!config) {
      throw UsageError(
          "--random-weights needs the --config of an engine, which says of what model");
    }
    return std::make_unique<RandomWeights>(config->model);
  }

  /// The draft model of --config, with --random-weights; null otherwise.
  std::unique_ptr<WeightSource> RandomDraft() const {
    if (!random_weights_) return nullptr;
    const DraftConfig of = serving_.ConfigOfFile()->draft;
    return of.tokens > 0 ? std::make_unique<RandomWeights>(of.model) : nullptr;
  }

  const FlagSet* flags_ = nullptr;
  ServingFlags serving_;
  WorkloadFlags workload_;
  HttpTargetOptions target_;
  LoadOptions load_;
  std::string key_file_;
  std::string out_;
  std::string result_;
  bool random_weights_ = false;
  double acceptance_ = 0;
  std::string limits_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace trimtab
