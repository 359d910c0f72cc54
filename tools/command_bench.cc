#include <limits>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/infer/engine.h"
#include "tools/bench/load_generator.h"
#include "tools/bench/load_report.h"
#include "tools/command.h"
#include "tools/serving_flags.h"
#include "tools/signals.h"
#include "tools/table.h"

namespace trimtab {
namespace {

constexpr int64_t kMaxKeyBytes = 4096;

class BenchCommand : public Command {
 public:
  std::string name() const override { return "bench"; }
  std::string summary() const override {
    return "put a load on a server, or on an engine, and measure its answers";
  }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    flags.Text("--url", target_.url,
               "server to load, as http://127.0.0.1:8000; without it, an "
               "engine in this process");
    flags.Text("--name", target_.model, "model to ask the server for; if left out, its first");
    flags.Text("--api-key-file", key_file_, "file with the key that the server wants");
    flags.Text("--workload", workload_,
               "INPUT/OUTPUT tokens of a request; each a number, uniform:A-B, exponential:MEAN or "
               "lognormal:MEDIAN:SIGMA");
    flags.Text("--trace", trace_,
               "JSONL of requests instead: {\"at_s\", \"input_tokens\", \"output_tokens\"}");
    flags.Integer("--requests", requests_, 1, 10'000'000, "how many requests of the workload");
    flags.Integer("--concurrency", load_.concurrency, 0, 4096,
                  "closed loop: so many clients, each waiting for its answer");
    flags.Number("--rate", rate_, 0, 1e6, "open loop: requests a second, as a Poisson process");
    flags.Integer("--vocab", load_.vocab_size, 1, int64_t{1} << 22,
                  "prompts are random token ids below this");
    flags.Text("--limits", limits_,
               "what a request must keep to count as good: ttft<500ms,tpot<30ms,e2e<5s");
    flags.Integer("--seed", seed_, 0, std::numeric_limits<int64_t>::max(), "of what is drawn");
    serving_.Declare(flags);
  }

  int Run(const OutputOptions& output) override {
    const LatencyLimits limits = ParseLimits(limits_);
    const std::vector<LoadRequest> requests = Requests();
    load_.seed = static_cast<uint64_t>(seed_);
    load_.stop = [] { return RequestedStop() != StopLevel::kNone; };
    std::unique_ptr<Engine> engine;
    const std::unique_ptr<LoadTarget> target = Target(engine);
    CatchStopSignals();
    LogInfo("{} in {}", Counted(std::ssize(requests), "request"),
            load_.concurrency > 0
                ? fmt::format("a closed loop of {}", Counted(load_.concurrency, "client"))
                : "an open loop");
    const LoadReport report = MakeLoadReport(PutLoad(*target, requests, load_), limits);
    if (report.failed > 0) {
      LogWarning("{} of {} failed; the first: {}", report.failed,
                 Counted(report.requests, "request"), report.first_failure);
    }
    if (output.json) {
      PrintJson(ToJson(report));
    } else {
      Show(report);
    }
    if (report.requests > 0 && report.failed == report.requests) {
      throw EnvironmentError(fmt::format("every request failed: {}", report.first_failure));
    }
    return StopExitCode();
  }

 private:
  std::vector<LoadRequest> Requests() {
    if (!trace_.empty()) {
      if (flags_->Given("--workload")) {
        throw UsageError("--trace contradicts --workload: the trace says how long requests are");
      }
      if (rate_ > 0) throw UsageError("--trace contradicts --rate: the trace says when they come");
      return ReadTrace(trace_);
    }
    if ((load_.concurrency > 0) == (rate_ > 0)) {
      throw UsageError("expected either --concurrency, for a closed loop, or --rate, for an open");
    }
    return DrawRequests(workload_, requests_, rate_, static_cast<uint64_t>(seed_));
  }

  std::unique_ptr<LoadTarget> Target(std::unique_ptr<Engine>& engine) {
    if (!target_.url.empty()) {
      const std::string local = flags_->FirstGiven({"--load", "--load-hf"});
      if (!local.empty()) {
        throw UsageError(fmt::format("{} contradicts --url: the server has its model", local));
      }
      if (!key_file_.empty()) {
        target_.api_key = ReadTextFile(key_file_, kMaxKeyBytes);
        while (target_.api_key.ends_with('\n')) target_.api_key.pop_back();
      }
      return MakeHttpTarget(target_);
    }
    const std::unique_ptr<WeightSource> weights = serving_.OpenWeights();
    engine = serving_.OpenEngine(*weights);
    return MakeEngineTarget(*engine);
  }

  static void Show(const LoadReport& report) {
    Table table({{"milliseconds"},
                 {"mean", Align::kRight},
                 {"p50", Align::kRight},
                 {"p90", Align::kRight},
                 {"p95", Align::kRight},
                 {"p99", Align::kRight}});
    const auto row = [&table](const char* name, const LatencySummary& summary) {
      table.AddRow({name, fmt::format("{:.2f}", summary.mean), fmt::format("{:.2f}", summary.p50),
                    fmt::format("{:.2f}", summary.p90), fmt::format("{:.2f}", summary.p95),
                    fmt::format("{:.2f}", summary.p99)});
    };
    row("time to first token", report.ttft);
    row("time per token after it", report.tpot);
    row("between two texts", report.itl);
    row("end to end", report.e2e);
    Print(table.ToText(/*bold=*/false) +
          fmt::format("\n{} in {:.2f} s, {} failed: {:.2f} requests/s, {:.1f} output tokens/s, "
                      "goodput {:.2f} requests/s\n",
                      Counted(report.requests, "request"), report.duration_s, report.failed,
                      report.requests_per_s(), report.output_tokens_per_s(), report.goodput()));
  }

  const FlagSet* flags_ = nullptr;
  ServingFlags serving_;
  HttpTargetOptions target_;
  LoadOptions load_;
  std::string key_file_;
  std::string workload_ = "128/64";
  std::string trace_;
  std::string limits_;
  int64_t requests_ = 64;
  int64_t seed_ = 1;
  double rate_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace trimtab
