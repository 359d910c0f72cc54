#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "search/report.h"
#include "tools/cli/command.h"

namespace trimtab {
namespace {

class ReportCommand : public Command {
 public:
  std::string name() const override { return "report"; }
  std::string summary() const override { return "write the report of a study, as JSON and HTML"; }

  void Declare(FlagSet& flags) override {
    flags.Text("--study FILE", study_, "study of a search", FlagNeed::kRequired);
    flags.Text("--out FOLDER", out_, "folder for report.json and REPORT.html", FlagNeed::kRequired);
  }

  int Run(const OutputOptions& output) override {
    WriteReportFromStudy(study_, out_);
    if (output.json) {
      PrintJson({{"schema_version", 1}, {"study", study_}, {"directory", out_}});
    } else {
      Print(fmt::format("wrote the report of {} to {}\n", study_, out_));
    }
    return 0;
  }

 private:
  std::string study_;
  std::string out_;
};

}  // namespace

std::unique_ptr<Command> MakeReportCommand() { return std::make_unique<ReportCommand>(); }

}  // namespace trimtab
