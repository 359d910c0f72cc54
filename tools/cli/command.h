// Command: one subcommand of `trimtab`. Each has a file of its own, commands/NAME.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/cli/flags.h"
#include "tools/cli/output.h"

namespace trimtab {

/// Thrown through the work of a command that the user has stopped.
struct Stopped {};

class Command {
 public:
  virtual ~Command() = default;

  /// Words after `trimtab`: "train", "data build".
  virtual std::string name() const = 0;
  /// One line for the list of commands.
  virtual std::string summary() const = 0;
  /// Declares the flags, which write to members. `flags` outlives the command's run.
  virtual void Declare(FlagSet& flags) = 0;
  /// Does the work; returns the process's exit code. Failures are thrown as Errors.
  virtual int Run(const OutputOptions& output) = 0;
};

std::unique_ptr<Command> MakeSearchCommand();
std::unique_ptr<Command> MakeSearchServingCommand();
std::unique_ptr<Command> MakeEstimateCommand();
std::unique_ptr<Command> MakeEstimateServingCommand();
std::unique_ptr<Command> MakeValidateCommand();
std::unique_ptr<Command> MakeProfileCommand();
std::unique_ptr<Command> MakeCalibrateCommand();
std::unique_ptr<Command> MakeTrainCommand();
std::unique_ptr<Command> MakeChatCommand();
std::unique_ptr<Command> MakeServeCommand();
std::unique_ptr<Command> MakeBenchCommand();
std::unique_ptr<Command> MakeExportCommand();
std::unique_ptr<Command> MakeGenerateCommand();
std::unique_ptr<Command> MakeQuantizeCommand();
std::unique_ptr<Command> MakeDataBuildCommand();
std::unique_ptr<Command> MakeDataInfoCommand();
std::unique_ptr<Command> MakeReportCommand();
std::unique_ptr<Command> MakeDashboardCommand();
std::unique_ptr<Command> MakeModelsCommand();
std::unique_ptr<Command> MakeClustersCommand();
std::unique_ptr<Command> MakeDoctorCommand();
std::unique_ptr<Command> MakeManualCommand();

/// Describes the program and all its commands; "trimtab search --for serving" is one of them.
std::vector<CommandText> DescribeCommands();

/// Parses the words that follow "trimtab" and runs nothing. Throws UsageError as a run would.
void CheckCommandLine(const std::vector<std::string>& words);

/// The whole program: parses, runs one command, reports its failure as one line on stderr, and
/// returns the exit code. Never throws.
int RunCommand(int argc, const char* const* argv);

}  // namespace trimtab
