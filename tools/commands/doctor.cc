#include <unistd.h>

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/rules/rules.h"
#include "tools/cli/command.h"
#include "tools/cli/table.h"
#include "tools/cli/version.h"
#include "tools/doctor/doctor_checks.h"
#include "tools/doctor/doctor_speed.h"

namespace trimtab {
namespace {

constexpr double kSpeedSeconds = 10;

class DoctorCommand : public Command {
 public:
  std::string name() const override { return "doctor"; }
  std::string summary() const override {
    return "check whether this machine is fit, or list the legality rules";
  }

  void Declare(FlagSet& flags) override {
    flags.Switch("--rules", rules_, "list the rules a configuration must satisfy");
    flags.Switch("--no-speed", no_speed_, "skip the ten seconds of speed checks");
  }

  int Run(const OutputOptions& output) override {
    if (rules_) {
      PrintRules(output);
      return 0;
    }
    std::vector<Check> checks = CheckMachine();
    for (Check& check : CheckStorage()) checks.push_back(std::move(check));
    checks.push_back(CheckGpus());
    for (Check& check : CheckLibraries(FindLibraryVersions())) checks.push_back(std::move(check));
    if (!no_speed_) {
      const SpeedFinding speed = CheckSpeed(kSpeedSeconds);
      checks.push_back({"speed", speed.steady ? Health::kOk : Health::kNote, speed.text});
    }
    if (output.json) {
      nlohmann::json list = nlohmann::json::array();
      for (const Check& check : checks) {
        nlohmann::json row = {
            {"check", check.what}, {"health", Name(check.health)}, {"finding", check.finding}};
        if (!check.version.empty()) row["version"] = check.version;
        list.push_back(std::move(row));
      }
      PrintJson({{"schema_version", 1}, {"version", kVersion}, {"checks", std::move(list)}});
    } else {
      Table table({{"check"}, {"health"}, {"finding"}});
      for (const Check& check : checks) {
        table.AddRow({check.what, Name(check.health), check.finding});
      }
      PrintText(table.ToText(UseColor(output, STDOUT_FILENO)));
    }
    for (const Check& check : checks) {
      if (check.health == Health::kBad) throw EnvironmentError(check.what + ": " + check.finding);
    }
    return 0;
  }

 private:
  static void PrintRules(const OutputOptions& output) {
    if (output.json) {
      nlohmann::json rules = nlohmann::json::array();
      for (const Rule& rule : LegalityRules()) {
        rules.push_back({{"id", rule.id}, {"description", rule.description}});
      }
      PrintJson({{"schema_version", 1}, {"rules", std::move(rules)}});
      return;
    }
    Table table({{"rule"}, {"what must hold"}});
    for (const Rule& rule : LegalityRules()) table.AddRow({rule.id, rule.description});
    PrintText(table.ToText(UseColor(output, STDOUT_FILENO)));
  }

  bool rules_ = false;
  bool no_speed_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDoctorCommand() { return std::make_unique<DoctorCommand>(); }

}  // namespace trimtab
