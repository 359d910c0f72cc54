#include <iterator>
#include <nlohmann/json.hpp>

#include "cost_model/hardware/cluster.h"
#include "engine/base/count_text.h"
#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "engine/base/log.h"
#include "profiler/calibrate/calibrate.h"
#include "profiler/calibrate/calibrate_plan.h"
#include "tools/cli/command.h"
#include "tools/cli/machine_profile.h"
#include "tools/cli/progress.h"

namespace trimtab {
namespace {

class CalibrateCommand : public Command {
 public:
  std::string name() const override { return "calibrate"; }
  std::string summary() const override {
    return "measure this machine and write its hardware profile";
  }

  void Declare(FlagSet& flags) override {
    flags.Choice("--device", options_.device, kDeviceNames, "device to measure");
    flags.Text("--out FILE", out_,
               {"hardware profile to write [this machine's own]",
                "For --profile of other commands, which use this machine's own without it."});
    flags.Switch("--quick", options_.quick,
                 {"coarser grid, fewer passes", "Takes a minute instead of up to ten."});
    flags.Number("--seconds", seconds_, 1, 1e6,
                 {"measure for at most this long [600, with --quick 90]",
                  "Two passes are made in any case."});
    flags.Texts("--modes RxT ...", modes_,
                {"modes to measure, as RANKSxTHREADS: 1x1 2x1",
                 "The default is 1, 2, 4, ... ranks, up to two per core."});
  }

  int Run(const OutputOptions& output) override {
    for (const std::string& mode : modes_) {
      options_.modes.push_back(ParseMode(mode, "--modes"));
      RequireFewThreads(options_.modes.back(), mode);
    }
    // What cannot be written shows now, not after minutes.
    if (out_.empty()) out_ = PrepareMachineProfilePath();
    RequireWritable(out_);
    options_.plan = MakeCalibrationPlan(options_.quick);
    if (seconds_ > 0) options_.plan->most_seconds = seconds_;
    Progress progress(output);
    options_.progress = [&](std::string_view part, int done, int total) {
      if (!progress.shows_bar()) progress.Event(fmt::format("{}/{} {}", done + 1, total, part));
      progress.Update({.label = "measuring", .done = done, .total = total, .best = ""});
    };
    const HardwareProfile profile = Calibrate(options_);
    SaveHardwareProfile(profile, out_);
    progress.Clear();
    if (const std::string caveat = SpreadCaveat(profile); !caveat.empty()) {
      LogWarning("{}", caveat);
    }
    if (output.json) {
      nlohmann::json json = ToJson(profile);
      PrintJson(json);
    } else {
      Print(fmt::format("{}: {}, {} measured on {}\n", out_, profile.name,
                        Counted(std::ssize(profile.modes), "mode"), profile.measured_on));
    }
    return 0;
  }

 private:
  /// More than share a core in any sensible way would only wait for each other, or not start.
  static void RequireFewThreads(const Mode& mode, const std::string& text) {
    constexpr int64_t kMostOfCore = 8;
    const auto cores = std::max<int64_t>(1, static_cast<int64_t>(CoresOfThisMachine()));
    const int64_t threads = int64_t{mode.ranks} * mode.threads;
    if (threads <= kMostOfCore * cores) return;
    throw UsageError(fmt::format("--modes {}: {} threads; expected at most {} on this machine's {}",
                                 text, threads, kMostOfCore * cores, Counted(cores, "core")));
  }

  CalibrateOptions options_;
  double seconds_ = 0;  // 0 = the plan's own
  std::string out_;
  std::vector<std::string> modes_;
};

}  // namespace

std::unique_ptr<Command> MakeCalibrateCommand() { return std::make_unique<CalibrateCommand>(); }

}  // namespace trimtab
