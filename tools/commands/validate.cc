#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "cost_model/closed_form/closed_form.h"
#include "cost_model/dry_run/dry_run.h"
#include "cost_model/hardware/numerics.h"
#include "cost_model/validation/accuracy.h"
#include "cost_model/validation/fitted_files.h"
#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "engine/base/units.h"
#include "engine/config/json/strict_json.h"
#include "engine/families/load_config.h"
#include "search/page/page.h"
#include "tools/cli/command.h"
#include "tools/cli/common_flags.h"
#include "tools/cli/table.h"
#include "tools/validation/fit_report.h"
#include "tools/validation/peers.h"
#include "tools/validation/published_validation.h"
#include "tools/validation/serving_validation.h"

namespace trimtab {
namespace {

/// A measured run and its prediction. Errors are (predicted - measured) / measured.
struct ValidatedRun {
  std::string name;
  std::string cluster;  // where it ran; empty = where --cluster says
  RunConfig run;
  double step_time_s = 0;
  int64_t peak_mem_bytes = 0;  // 0 = not measured
  Estimate estimate;

  double step_time_error() const { return estimate.step_time_s / step_time_s - 1; }
  double peak_mem_error() const {
    return static_cast<double>(estimate.memory.peak_total) / static_cast<double>(peak_mem_bytes) -
           1;
  }
};

/// README.md describes the file.
std::vector<ValidatedRun> ReadRuns(const std::string& path) {
  const nlohmann::json json = ReadJsonFile(path);
  StrictObject root(json, path + ": $");
  int64_t version = 1;
  root.Integer("schema_version", version, 1, 1, Need::kRequired);
  std::vector<ValidatedRun> runs;
  root.Array("runs", Need::kRequired, 1, [&](const nlohmann::json& value, const auto& where) {
    ValidatedRun row;
    StrictObject object(value, where);
    object.Text("name", row.name);
    object.Text("cluster", row.cluster);
    std::string source;  // for people
    object.Text("source", source);
    object.Number("step_time_s", row.step_time_s, 1e-9, 1e9, Need::kRequired);
    object.Integer("peak_mem_bytes", row.peak_mem_bytes, 1, int64_t{1} << 60);
    row.run = RunConfigFromJson(*object.Find("run", Need::kRequired), object.Where("run"));
    object.Finish();
    if (row.name.empty()) {
      row.name = fmt::format("{} {}", row.run.model.name, ToString(row.run.layout));
    }
    runs.push_back(std::move(row));
  });
  root.Finish();
  return runs;
}

std::string SummaryText(const char* what, const ErrorSummary& summary) {
  if (summary.rows == 0) return "";
  return fmt::format("{} error over {}: median {:.1f} %, mean {:.1f} %, largest {:.1f} %\n", what,
                     Counted(summary.rows, "run"), 100 * summary.median, 100 * summary.mean,
                     100 * summary.max);
}

class ValidateCommand : public Command {
 public:
  std::string name() const override { return "validate"; }
  std::string summary() const override { return "compare predictions with measured runs"; }

  void Declare(FlagSet& flags) override {
    flags_ = &flags;
    flags.Text("--runs FILE", runs_,
               {"measured runs to compare with, as JSON",
                "Your own runs, or a list of published runs of training or of serving."},
               FlagNeed::kRequired);
    flags.Choice("--tier", tier_, {"auto", "closed-form", "dry-run"},
                 {"how to predict", "auto: closed-form for published runs, dry-run for your own."});
    cluster_flags_.Declare(flags);
    flags.Group("Comparing");
    flags.Text("--peers FILE", peers_,
               {"what other tools predict of the same runs, as JSON",
                "Compares with them. Published runs only."});
    flags.Switch("--fit", fit_,
                 {"fit constants of profiles and stacks to the runs",
                  "To published ones. Reports the errors on runs held out."});
    flags.Switch("--worths", worths_, "with --fit, also fit without each kind of constant");
    flags.Group("Output");
    flags.Text("--out FOLDER", out_, "with --fit, write the fitted profiles and stacks here");
    flags.Text("--html FILE", html_, "write a page that charts published and predicted speeds");
  }

  int Run(const OutputOptions& output) override {
    if (!fit_ && (worths_ || !out_.empty())) {
      throw UsageError(fmt::format("{} needs --fit", worths_ ? "--worths" : "--out"));
    }
    if (fit_ && tier_ == "dry-run") throw UsageError("--tier: --fit predicts by the closed form");
    if (fit_ && !peers_.empty())
      throw UsageError("--peers: contradicts --fit, which compares with nobody");
    if (!html_.empty()) {
      RequireNotInput(html_, runs_);
      RequireWritable(html_);
    }
    const nlohmann::json rows = ReadJsonFile(runs_);
    if (!peers_.empty() && !rows.is_array()) {
      throw UsageError(
          fmt::format("--peers: needs published runs; those of {} are your own", runs_));
    }
    if (const std::string given = flags_->FirstGiven({"--cluster", "--profile"});
        rows.is_array() && !given.empty()) {
      throw UsageError(fmt::format("{}: each published run names its cluster", given));
    }
    if (IsPublishedServing(rows)) return RunServing(rows, output);
    return rows.is_array() ? RunPublished(output) : RunMeasured(output);
  }

 private:
  int RunServing(const nlohmann::json& rows, const OutputOptions& output) const {
    const std::string given =
        flags_->FirstGiven({"--html", "--peers", "--tier", "--worths", "--out"});
    if (!given.empty()) {
      throw UsageError(
          fmt::format("{}: is for runs of training; those of {} are of serving", given, runs_));
    }
    const ServingCases taken = TakeServing(ReadPublishedServing(rows, runs_));
    const bool bold = UseColor(output, STDOUT_FILENO);
    if (fit_) {
      const ServingFitReport report = ReportServingFit(taken, bold);
      if (output.json) {
        PrintJson({{"schema_version", 1}, {"fit", report.json}});
      } else {
        PrintText(report.text);
      }
      return 0;
    }
    const ServingNumbers numbers = BuiltinNumbers(taken.cases);
    if (output.json) {
      nlohmann::json json = ServingValidationJson(taken, numbers);
      json["schema_version"] = 1;
      PrintJson(json);
    } else {
      PrintText(ServingValidationText(taken, numbers, bold));
    }
    return 0;
  }

  int RunPublished(const OutputOptions& output) const {
    const std::vector<Peer> peers = peers_.empty() ? std::vector<Peer>() : ReadPeers(peers_);
    const PublishedRuns published = ReadPublishedRuns(runs_);
    for (const std::string& field : published.unknown_fields) {
      LogWarning("{}: the field {} is not known, and was not used", runs_, field);
    }
    TakenRuns taken = TakeRuns(published.runs);
    if (fit_) return Fit(taken, output);
    const Tier tier = tier_ == "dry-run" ? Tier::kDryRun : Tier::kClosedForm;
    RunPredictor predictor;
    std::vector<PredictedRun> runs;
    for (const ValidationRow& row : taken.rows) {
      try {
        runs.push_back({&row, predictor.Predict(row, tier)});
      } catch (const Error& error) {
        // That a run cannot be predicted says nothing about the others; that we cannot, does.
        const bool of_row = error.code() == ExitCode::kUsage ||
                            error.code() == ExitCode::kBadInput ||
                            error.code() == ExitCode::kInfeasible;
        if (!of_row) throw;
        taken.skipped.emplace_back(row.published.id, error.what());
      }
    }
    nlohmann::json json = ValidationJson(runs, taken);
    if (!peers.empty()) json["peers"] = PeersJson(peers, runs);
    if (!html_.empty()) {
      AtomicFile page(html_);
      page.Append(AccuracyHtml(json));
      page.Commit();
    }
    if (output.json) {
      json["schema_version"] = 1;
      json["tier"] = tier == Tier::kDryRun ? "dry-run" : "closed-form";
      PrintJson(json);
    } else {
      const bool bold = UseColor(output, STDOUT_FILENO);
      PrintText(ValidationText(runs, taken, bold));
      if (!peers.empty()) PrintText("\n" + PeersText(peers, runs, bold));
    }
    return 0;
  }

  int Fit(const TakenRuns& taken, const OutputOptions& output) const {
    if (!out_.empty()) MakeFolder(out_);
    RunPredictor predictor;
    std::vector<FitResult> fits;
    nlohmann::json json = {{"schema_version", 1}};
    for (const Outcome outcome : {Outcome::kStepTime, Outcome::kPeakMemory}) {
      const bool time = outcome == Outcome::kStepTime;
      std::vector<ValidationRow> rows;
      for (const ValidationRow& row : taken.rows) {
        const double told = time ? row.tokens_per_s_per_gpu : row.published.measured.peak_mem_bytes;
        if (told > 0) rows.push_back(row);
      }
      if (rows.empty()) continue;
      fits.push_back(FitPublishedRuns(rows, predictor, outcome, worths_));
      if (output.json) {
        json[time ? "fit" : "memory_fit"] = FitJson(fits.back(), rows, outcome);
      } else {
        PrintText(FitText(fits.back(), rows, outcome, UseColor(output, STDOUT_FILENO)) + "\n");
      }
    }
    if (fits.empty()) {
      throw InputError(
          fmt::format("{}: --fit: no run that can be predicted has a time or a peak of "
                      "memory",
                      runs_));
    }
    if (output.json) PrintJson(json);
    if (!out_.empty()) WriteFitted(fits);
    return 0;
  }

  static void MakeFolder(const std::filesystem::path& path) {
    std::error_code failed;
    std::filesystem::create_directories(path, failed);
    if (failed) throw StorageError(fmt::format("{}: {}", path.string(), failed.message()));
  }

  void WriteFitted(const std::vector<FitResult>& fits) const {
    for (const FittedFile& file : FittedFiles(fits)) {
      const std::filesystem::path path = std::filesystem::path(out_) / file.path;
      MakeFolder(path.parent_path());
      AtomicFile written(path.string());
      written.Append(file.text);
      written.Commit();
    }
    LogInfo("wrote profiles and stacks to {}", out_);
  }

  int RunMeasured(const OutputOptions& output) const {
    const bool closed = tier_ == "closed-form";
    std::vector<ValidatedRun> runs = ReadRuns(runs_);
    std::map<std::string, Cluster> clusters;
    std::vector<double> time_errors;
    std::vector<double> memory_errors;
    for (ValidatedRun& row : runs) {
      const auto [found, is_new] = clusters.try_emplace(row.cluster);
      if (is_new) {
        found->second =
            row.cluster.empty() ? cluster_flags_.Resolve() : LoadCluster(row.cluster, "");
        const std::string& caveat = found->second.caveat;
        if (!caveat.empty()) LogWarning("{}", caveat);
      }
      const Cluster& cluster = found->second;
      row.estimate = closed ? ClosedForm(row.run, cluster) : DryRun(row.run, cluster);
      time_errors.push_back(row.step_time_error());
      if (row.peak_mem_bytes > 0) memory_errors.push_back(row.peak_mem_error());
    }
    const ErrorSummary time = SummarizeErrors(time_errors);
    const ErrorSummary memory = SummarizeErrors(memory_errors);
    if (output.json) {
      PrintAll(runs, time, memory);
    } else {
      PrintText(RowsText(runs, UseColor(output, STDOUT_FILENO)) + "\n" +
                SummaryText("step time", time) + SummaryText("peak memory", memory));
    }
    return 0;
  }

  void PrintAll(const std::vector<ValidatedRun>& runs, const ErrorSummary& time,
                const ErrorSummary& memory) const {
    nlohmann::json rows = nlohmann::json::array();
    for (const ValidatedRun& row : runs) {
      nlohmann::json json = {{"name", row.name},
                             {"precision", Name(row.run.layout.numerics.precision)},
                             {"optimizer_state", OptimizerStateName(row.run.layout.numerics)},
                             {"step_time_s", row.step_time_s},
                             {"predicted_step_time_s", row.estimate.step_time_s},
                             {"step_time_error", row.step_time_error()}};
      if (row.peak_mem_bytes > 0) {
        json["peak_mem_bytes"] = row.peak_mem_bytes;
        json["predicted_peak_mem_bytes"] = row.estimate.memory.peak_total;
        json["peak_mem_error"] = row.peak_mem_error();
      }
      rows.push_back(std::move(json));
    }
    PrintJson({{"schema_version", 1},
               {"tier", tier_ == "auto" ? "dry-run" : tier_},
               {"runs", std::move(rows)},
               {"step_time_error", ToJson(time)},
               {"peak_mem_error", ToJson(memory)}});
  }

  static std::string RowsText(const std::vector<ValidatedRun>& runs, bool bold) {
    Table table({{"run"},
                 {"precision"},
                 {"optimizer state"},
                 {"step time", Align::kRight},
                 {"predicted", Align::kRight},
                 {"error", Align::kRight},
                 {"peak memory", Align::kRight},
                 {"predicted", Align::kRight},
                 {"error", Align::kRight}});
    for (const ValidatedRun& row : runs) {
      const bool has_memory = row.peak_mem_bytes > 0;
      table.AddRow({row.name, std::string(Name(row.run.layout.numerics.precision)),
                    OptimizerStateName(row.run.layout.numerics), FormatSeconds(row.step_time_s),
                    FormatSeconds(row.estimate.step_time_s),
                    fmt::format("{:+.1f} %", 100 * row.step_time_error()),
                    has_memory ? FormatBytes(row.peak_mem_bytes) : "-",
                    FormatBytes(row.estimate.memory.peak_total),
                    has_memory ? fmt::format("{:+.1f} %", 100 * row.peak_mem_error()) : "-"});
    }
    return table.ToText(bold);
  }

  const FlagSet* flags_ = nullptr;
  std::string runs_;
  std::string html_;
  std::string peers_;
  bool fit_ = false;
  bool worths_ = false;
  std::string out_;
  ClusterFlags cluster_flags_;
  std::string tier_ = "auto";
};

}  // namespace

std::unique_ptr<Command> MakeValidateCommand() { return std::make_unique<ValidateCommand>(); }

}  // namespace trimtab
