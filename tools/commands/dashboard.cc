#include "tools/dashboard/dashboard.h"

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "engine/base/error.h"
#include "search/live_report.h"
#include "tools/cli/command.h"
#include "tools/cli/signals.h"

namespace trimtab {
namespace {

constexpr std::chrono::milliseconds kLook{50};

class DashboardCommand : public Command {
 public:
  std::string name() const override { return "dashboard"; }
  std::string summary() const override { return "show a search, running or not, as a live page"; }

  void Declare(FlagSet& flags) override {
    flags.Text("--study FILE", study_,
               {"study of a search", "The search may still run, here or on another machine."},
               FlagNeed::kRequired);
    flags.Integer("--port", port_, 0, 65535,
                  {"port of 127.0.0.1 to listen on [a free one]", "Ctrl-C ends the command."});
  }

  int Run(const OutputOptions& output) override {
    std::error_code ignored;
    if (!std::filesystem::exists(study_, ignored)) {
      throw InputError(fmt::format("{}: no such file; expected the study of a search", study_));
    }
    ReadLiveReport(study_);  // refuses what is no study
    CatchStopSignals(StopNotice::kNone);
    const Dashboard dashboard(study_, port_);
    if (output.json) {
      PrintJson({{"schema_version", 1}, {"url", dashboard.url()}, {"port", dashboard.port()}},
                /*one_line=*/true);
    } else {
      Print(dashboard.url() + "\n");
    }
    while (RequestedStop() == StopLevel::kNone) std::this_thread::sleep_for(kLook);
    return StopExitCode();
  }

 private:
  std::string study_;
  int64_t port_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeDashboardCommand() { return std::make_unique<DashboardCommand>(); }

}  // namespace trimtab
