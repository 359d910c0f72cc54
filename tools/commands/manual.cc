#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/io/file.h"
#include "tools/cli/command.h"
#include "tools/cli/version.h"
#include "tools/text/completion.h"
#include "tools/text/manual.h"

namespace trimtab {
namespace {

class ManualCommand : public Command {
 public:
  std::string name() const override { return "manual"; }
  std::string summary() const override {
    return "write man pages, shell completion, or a reference of all commands";
  }

  void Declare(FlagSet& flags) override {
    flags.Choice("--format", format_, {"man", "bash", "zsh", "markdown"},
                 {"what to write",
                  "bash, zsh: completion, for 'source <(trimtab manual --format bash)'; markdown: "
                  "the help of every command on one page."});
    flags.Text("--out FOLDER", out_, "man: folder for a page of each command");
  }

  int Run(const OutputOptions&) override {
    const std::vector<CommandText> commands = DescribeCommands();
    if (format_ == "man") {
      WritePages(commands);
      return 0;
    }
    if (!out_.empty()) {
      throw UsageError(fmt::format("--format {}: prints to stdout; --out is for man", format_));
    }
    Print(format_ == "bash"  ? BashCompletion(commands)
          : format_ == "zsh" ? ZshCompletion(commands)
                             : CommandReference(commands));
    return 0;
  }

 private:
  void WritePages(const std::vector<CommandText>& commands) const {
    if (out_.empty()) throw UsageError("--format man: --out is required");
    std::filesystem::create_directories(out_);
    for (const CommandText& command : commands) {
      AtomicFile file(fmt::format("{}/{}.1", out_, ManPageName(command)));
      file.Append(ManPage(command, std::string("trimtab ") + kVersion));
      file.Commit();
    }
  }

  std::string format_ = "man";
  std::string out_;
};

}  // namespace

std::unique_ptr<Command> MakeManualCommand() { return std::make_unique<ManualCommand>(); }

}  // namespace trimtab
