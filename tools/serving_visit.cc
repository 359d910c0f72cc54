#include "tools/serving_visit.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/config/strict_json.h"
#include "engine/infer/serving_json.h"
#include "profiler/launch/child_process.h"
#include "profiler/launch/log_tail.h"

namespace trimtab {
namespace {

constexpr auto kPoll = std::chrono::milliseconds(20);

void Write(const std::string& path, const std::string& text) {
  AtomicFile file(path);
  file.Append(text);
  file.Commit();
}

class Visitor {
 public:
  Visitor(const ServingProblem& problem, const ServingVisitOptions& options)
      : problem_(problem), options_(options), concurrency_(problem.load.concurrency) {
    std::error_code error;
    if (options.afresh) std::filesystem::remove_all(options.folder, error);
    if (!error) std::filesystem::create_directories(options.folder, error);
    if (error) {
      throw StorageError(fmt::format("{}: cannot create: {}", options.folder, error.message()));
    }
    std::string lines;
    for (const LoadRequest& each : problem.load.requests) {
      lines += nlohmann::json{{"at_s", each.at_s},
                              {"input_tokens", each.prompt_tokens},
                              {"output_tokens", each.output_tokens},
                              {"shared_tokens", each.shared_tokens}}
                   .dump() +
               "\n";
    }
    trace_ = options.folder + "/load.jsonl";
    Write(trace_, lines);
  }

  std::optional<ServingVisit> Serve(const ServingCandidate& candidate,
                                    const std::string& name) const {
    const std::string base = options_.folder + "/" + name;
    const std::string result = base + ".json";
    ServingVisit visit;
    if (!std::filesystem::exists(result)) {
      std::optional<std::string> failure = Run(candidate, base, result);
      if (!failure) return std::nullopt;
      visit.failure = *std::move(failure);
    }
    if (visit.failure.empty()) {
      visit.report = LoadReportFromJson(ReadJsonFile(result), result + ": $");
      if (visit.report.failed > 0) {
        visit.failure = fmt::format("{} of {} requests failed: {}", visit.report.failed,
                                    visit.report.requests, visit.report.first_failure);
      }
    }
    return visit;
  }

 private:
  /// Why there is no result; empty if there is, nullopt when it was cancelled.
  std::optional<std::string> Run(const ServingCandidate& candidate, const std::string& base,
                                 const std::string& result) const {
    const std::string config = base + ".config.json";
    const std::string log = base + ".log";
    Write(config, ToJson(candidate.config).dump(1) + "\n");
    std::vector<std::string> arguments = {
        "bench",   "--config",
        config,    "--random-weights",
        "--vocab", fmt::format("{}", candidate.config.model.vocab_size),
        "--trace", trace_,
        "--json",  "--out",
        result};
    if (candidate.config.proposed_tokens() > 0) {
      const double acceptance = problem_.AcceptanceOf(candidate.config);
      arguments.insert(arguments.end(), {"--acceptance", fmt::format("{}", acceptance)});
    }
    if (concurrency_ > 0) {
      arguments.insert(arguments.end(), {"--concurrency", fmt::format("{}", concurrency_)});
    }
    const std::string program = std::filesystem::canonical("/proc/self/exe").string();
    const auto start = std::chrono::steady_clock::now();
    ChildProcess child(program, arguments, log);
    while (!child.HasEnded()) {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      if (options_.cancelled()) {
        child.Kill();
        return std::nullopt;
      }
      if (options_.time_limit_s > 0 && spent.count() > options_.time_limit_s) {
        child.Kill();
        child.Wait();
        return fmt::format("took more than {} s", options_.time_limit_s);
      }
      std::this_thread::sleep_for(kPoll);
    }
    const ChildExit exit = child.Wait();
    if (exit.exit_code == 0 && std::filesystem::exists(result)) return std::string();
    if (exit.signal != 0) return fmt::format("ended by signal {}; see {}", exit.signal, log);
    return LastLogLine(log);
  }

  ServingProblem problem_;
  ServingVisitOptions options_;
  int64_t concurrency_;
  std::string trace_;
};

}  // namespace

ServeOnce MakeServingVisitor(const ServingProblem& problem, const ServingVisitOptions& options) {
  auto visitor = std::make_shared<Visitor>(problem, options);
  return [visitor](const ServingCandidate& candidate, const std::string& name) {
    return visitor->Serve(candidate, name);
  };
}

}  // namespace trimtab
