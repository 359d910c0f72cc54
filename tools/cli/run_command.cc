#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <new>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/nearest_name.h"
#include "engine/comm/mpi_launch.h"
#include "tools/cli/command.h"
#include "tools/cli/signals.h"
#include "tools/cli/version.h"

namespace trimtab {
namespace {

/// Whether the words say --for serving: then search and estimate have flags of their own.
bool IsForServing(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--for=serving") return true;
    if (word == "--for" && i + 1 < argc) return argv[i + 1] == std::string_view("serving");
  }
  return false;
}

std::vector<std::unique_ptr<Command>> MakeCommands(bool for_serving) {
  std::vector<std::unique_ptr<Command>> commands;
  commands.push_back(for_serving ? MakeSearchServingCommand() : MakeSearchCommand());
  commands.push_back(for_serving ? MakeEstimateServingCommand() : MakeEstimateCommand());
  commands.push_back(MakeValidateCommand());
  commands.push_back(MakeProfileCommand());
  commands.push_back(MakeCalibrateCommand());
  commands.push_back(MakeTrainCommand());
  commands.push_back(MakeChatCommand());
  commands.push_back(MakeServeCommand());
  commands.push_back(MakeBenchCommand());
  commands.push_back(MakeExportCommand());
  commands.push_back(MakeGenerateCommand());
  commands.push_back(MakeQuantizeCommand());
  commands.push_back(MakeDataBuildCommand());
  commands.push_back(MakeDataInfoCommand());
  commands.push_back(MakeReportCommand());
  commands.push_back(MakeDashboardCommand());
  commands.push_back(MakeModelsCommand());
  commands.push_back(MakeClustersCommand());
  commands.push_back(MakeDoctorCommand());
  commands.push_back(MakeManualCommand());
  return commands;
}

void DeclareOutputFlags(FlagSet& flags, OutputOptions& output) {
  flags.ShortHelpEnds();
  flags.Group("Output");
  flags.Switch("--json", output.json, "print JSON instead of tables");
  flags.Switch("-v,--verbose", output.verbose, "log more");
  flags.Switch("-q,--quiet", output.quiet, "log only warnings and errors, show no progress");
  flags.Text("--log-file FILE", output.log_file, "also write the log to this file");
  flags.Choice("--color WHEN", output.color, {"auto", "always", "never"},
               {"when to use colours", "auto: on a terminal, unless NO_COLOR is set."});
}

/// The command line as a tree of CLI11 apps. Unknown words are let through and refused by Resolve,
/// which can name what was meant.
class CommandTree {
 public:
  explicit CommandTree(bool for_serving)
      : commands_(MakeCommands(for_serving)),
        root_("find the fastest way to train or serve a language model, and do it") {
    root_.name("trimtab");
    root_.allow_extras();
    root_.set_help_flag("-h");
    root_.set_help_all_flag("--help");
    // Later words that name commands are files, prompts, or wrong.
    root_.require_subcommand(0, 1);
    root_.set_version_flag("--version", kVersion);
    root_flags_ = std::make_unique<FlagSet>(root_);
    DeclareOutputFlags(*root_flags_, output_);
    for (std::unique_ptr<Command>& command : commands_) AddLeaf(*command);
  }

  /// The command that was asked for, its flags set. Throws UsageError.
  Command& Resolve(int argc, const char* const* argv) {
    root_.parse(argc, argv);
    const CLI::App* app = &Asked();
    const auto leaf = leaves_.find(app);
    const std::vector<std::string> extras = root_.remaining(/*recurse=*/true);
    if (!extras.empty()) RefuseExtra(*app, extras.front());
    if (leaf == leaves_.end()) {
      throw UsageError(fmt::format("expected a command; see '{}{} --help'",
                                   app == &root_ ? "" : "trimtab ", app->get_name()));
    }
    leaf->second.flags->CheckRequired();
    return *leaf->second.command;
  }

  const OutputOptions& output() const { return output_; }

  /// Describes the program, then each command below it, groups before their members.
  std::vector<CommandText> DescribeAll() const {
    std::vector<CommandText> texts;
    DescribeBelow(root_, texts);
    return texts;
  }

  /// Returns the text that -h, --help or --version asked for. Throws UsageError for any other parse
  /// failure.
  std::string TextFor(const CLI::ParseError& error) const {
    if (error.get_exit_code() != 0) throw UsageError(InOurWords(error.what()));
    if (dynamic_cast<const CLI::CallForVersion*>(&error) != nullptr) {
      return VersionText();
    }
    const CommandText text = Describe(Asked());
    const bool all = dynamic_cast<const CLI::CallForAllHelp*>(&error) != nullptr;
    return all ? LongHelp(text) : ShortHelp(text);
  }

 private:
  /// The innermost command on the command line.
  const CLI::App& Asked() const {
    const CLI::App* app = &root_;
    while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
    return *app;
  }

  CommandText Describe(const CLI::App& app) const {
    if (const auto leaf = leaves_.find(&app); leaf != leaves_.end()) {
      return leaf->second.flags->Describe();
    }
    const auto group = group_flags_.find(&app);
    CommandText text =
        group == group_flags_.end() ? root_flags_->Describe() : group->second->Describe();
    text.usage = "COMMAND [FLAGS]";
    if (&app == &root_) {
      text.flags.push_back(
          {.name = "--version", .group = "Output", .brief = "print version, commit and backends"});
    }
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
      text.commands.push_back({.name = each->get_name(), .summary = each->get_description()});
    }
    return text;
  }

  void DescribeBelow(const CLI::App& app, std::vector<CommandText>& texts) const {
    texts.push_back(Describe(app));
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
      DescribeBelow(*each, texts);
    }
  }

  /// What the library says of a flag.
  static std::string InOurWords(const std::string& text) {
    const std::string flag = text.substr(0, text.find(':'));
    if (text.find(": At Most 1 required") != std::string::npos) {
      return fmt::format("{} is given more than once; expected one value", flag);
    }
    if (text.find(" required ") != std::string::npos && text.ends_with(" missing")) {
      return fmt::format("{} has no value; expected one", flag);
    }
    // Values are texts to the library, so that only a switch can have one that it does not take.
    constexpr std::string_view kConvert = "Could not convert: ";
    if (text.starts_with(kConvert)) {
      return fmt::format("{} takes no value",
                         text.substr(kConvert.size(), text.find(" = ") - kConvert.size()));
    }
    return OneLine(text);
  }

  struct Leaf {
    Command* command = nullptr;
    std::unique_ptr<FlagSet> flags;
  };

  void AddLeaf(Command& command) {
    const std::string name = command.name();
    const size_t blank = name.find(' ');
    CLI::App* parent = &root_;
    if (blank != std::string::npos) {
      const std::string group = name.substr(0, blank);
      CLI::App*& app = groups_[group];
      if (app == nullptr) {
        app = root_.add_subcommand(group, "build and inspect datasets");
        app->allow_extras();
        app->require_subcommand(0, 1);
        auto& flags = group_flags_.emplace(app, std::make_unique<FlagSet>(*app)).first->second;
        DeclareOutputFlags(*flags, output_);
      }
      parent = app;
    }
    CLI::App* app = parent->add_subcommand(name.substr(blank + 1), command.summary());
    app->allow_extras();
    Leaf leaf = {&command, std::make_unique<FlagSet>(*app)};
    command.Declare(*leaf.flags);
    DeclareOutputFlags(*leaf.flags, output_);
    leaves_.emplace(app, std::move(leaf));
  }

  [[noreturn]] void RefuseExtra(const CLI::App& app, const std::string& word) {
    const auto leaf = leaves_.find(&app);
    if (word.starts_with("-")) {
      const std::string flag = word.substr(0, word.find('='));
      const FlagSet& flags = leaf == leaves_.end() ? *root_flags_ : *leaf->second.flags;
      throw UsageError(fmt::format("unknown flag '{}'{}", flag, SuggestName(flag, flags.Names())));
    }
    if (leaf != leaves_.end()) throw UsageError(fmt::format("unexpected argument '{}'", word));
    std::vector<std::string> names;
    for (const CLI::App* each : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(each->get_name());
    }
    const std::string meant = word == "help" ? "; see 'trimtab --help'" : SuggestName(word, names);
    throw UsageError(fmt::format("unknown command '{}'{}", word, meant));
  }

  std::vector<std::unique_ptr<Command>> commands_;
  OutputOptions output_;
  CLI::App root_;
  std::unique_ptr<FlagSet> root_flags_;
  std::map<std::string, CLI::App*> groups_;  // first words of two-word commands
  std::map<const CLI::App*, std::unique_ptr<FlagSet>> group_flags_;
  std::map<const CLI::App*, Leaf> leaves_;
};

/// Whether nobody else says the same: of the processes that mpirun starts, the first speaks.
bool Speaks() {
  try {
    return LaunchedRank() == 0;
  } catch (const EnvironmentError&) {
    return true;  // and it will say that its environment is broken
  }
}

/// The words that main gets: "trimtab" before `words`.
std::vector<const char*> ArgumentsOf(const std::vector<std::string>& words) {
  std::vector<const char*> arguments = {"trimtab"};
  for (const std::string& word : words) arguments.push_back(word.c_str());
  return arguments;
}

int RunChecked(int argc, const char* const* argv) {
  CommandTree tree(IsForServing(argc, argv));
  Command* command = nullptr;
  try {
    command = &tree.Resolve(argc, argv);
  } catch (const CLI::ParseError& error) {
    Print(tree.TextFor(error));
    return 0;
  }
  OutputOptions output = tree.output();
  if (output.verbose && output.quiet)
    throw UsageError("--verbose and --quiet contradict each other");
  if (!Speaks()) {
    // What every rank would say, rank 0 says.
    output = {};
    output.quiet = true;
    SilenceStdout();
    ConfigureLog(LogLevel::kError, "");
    return command->Run(output);
  }
  ConfigureLog(output.quiet     ? LogLevel::kWarning
               : output.verbose ? LogLevel::kDebug
                                : LogLevel::kInfo,
               output.log_file);
  return command->Run(output);
}

int Report(ExitCode code, const std::string& message) {
  // Ranks that are processes fail together and for the same reason, so one line is enough. The
  // launcher ends all with the first that leaves: so the others let the first one speak.
  constexpr std::chrono::seconds kTimeToSpeak{2};
  if (Speaks()) {
    // The exit code tells even where stderr takes nothing, on which fmt::print would throw.
    const std::string line = fmt::format("trimtab: {}\n", OneLine(message));
    std::fputs(line.c_str(), stderr);
  } else {
    std::this_thread::sleep_for(kTimeToSpeak);
  }
  return static_cast<int>(code);
}

}  // namespace

std::vector<CommandText> DescribeCommands() {
  std::vector<CommandText> texts;
  const std::vector<CommandText> serving = CommandTree(/*for_serving=*/true).DescribeAll();
  for (CommandText& text : CommandTree(/*for_serving=*/false).DescribeAll()) {
    const auto other = std::ranges::find(serving, text.name, &CommandText::name);
    texts.push_back(std::move(text));
    const bool differs = other != serving.end() && LongHelp(*other) != LongHelp(texts.back());
    if (!differs || !other->commands.empty()) continue;
    texts.push_back(*other);
    texts.back().name += " --for serving";
  }
  return texts;
}

void CheckCommandLine(const std::vector<std::string>& words) {
  const std::vector<const char*> arguments = ArgumentsOf(words);
  const int count = static_cast<int>(arguments.size());
  CommandTree tree(IsForServing(count, arguments.data()));
  try {
    tree.Resolve(count, arguments.data());
  } catch (const CLI::ParseError& error) {
    tree.TextFor(error);  // throws unless help was asked for
  }
}

int RunCommand(int argc, const char* const* argv) {
  IgnoreFileSizeSignal();
  try {
    return RunChecked(argc, argv);
  } catch (const Error& error) {
    return Report(error.code(), error.what());
  } catch (const std::bad_alloc&) {
    return Report(ExitCode::kEnvironment, "this machine is out of memory");
  } catch (const std::exception& error) {
    return Report(ExitCode::kInternal, fmt::format("internal error: {}", error.what()));
  }
}

}  // namespace trimtab
