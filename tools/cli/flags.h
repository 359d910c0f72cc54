// FlagSet: the flags of one subcommand. The only user of CLI11, so that no other file pays for it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/name_table.h"
#include "tools/text/help_text.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trimtab {

/// The most that counts of things that fit in memory are allowed to be.
inline constexpr int64_t kMax32 = std::numeric_limits<int32_t>::max();

enum class FlagNeed { kOptional, kRequired };

/// A flag's help: {"stop measuring after this many seconds", "Exit code 5 if undecided."}.
struct FlagHelp {
  FlagHelp(const char* clause) : brief(clause) {}             // NOLINT: flags.Text(name, value, "")
  FlagHelp(std::string clause) : brief(std::move(clause)) {}  // NOLINT
  FlagHelp(std::string clause, std::string sentences)
      : brief(std::move(clause)), more(std::move(sentences)) {}

  std::string brief;  // one clause: -h prints it, if the flag is one of the ten, and --help
  std::string more;   // sentences that only --help prints
};

/// Declares flags that write to variables, which must outlive the parse; what a variable holds when
/// declared is the flag's default. A value that makes no sense is a UsageError naming the flag and
/// what was expected.
///
/// A flag is spelled "--name" or "--name VALUE", where VALUE is the word by which help calls its
/// value; each kind of flag has a usual one.
class FlagSet {
 public:
  explicit FlagSet(CLI::App& app) : app_(app) {}

  /// Begins a group: --help prints the flags that follow under this heading. A group that was begun
  /// before goes on.
  void Group(const std::string& heading) { group_ = heading; }

  void Text(const std::string& flag, std::string& value, const FlagHelp& help,
            FlagNeed need = FlagNeed::kOptional);
  /// One or more values: --input A B, or --input A --input B.
  void Texts(const std::string& flag, std::vector<std::string>& values, const FlagHelp& help,
             FlagNeed need = FlagNeed::kOptional);
  /// Names separated by commas: --precision bf16,fp8.
  void List(const std::string& flag, std::vector<std::string>& values, const FlagHelp& help);
  void Integer(const std::string& flag, int64_t& value, int64_t min, int64_t max,
               const FlagHelp& help, FlagNeed need = FlagNeed::kOptional);
  void Number(const std::string& flag, double& value, double min, double max, const FlagHelp& help);
  /// A number above 0; `value` may hold 0 for a flag that is left out.
  void Positive(const std::string& flag, double& value, double max, const FlagHelp& help);
  /// "15T", "300B", "1000".
  void Count(const std::string& flag, double& value, const FlagHelp& help);
  /// "8GiB", "512MiB", plain bytes.
  void Bytes(const std::string& flag, int64_t& value, const FlagHelp& help);
  void Choice(const std::string& flag, std::string& value, const std::vector<std::string>& valid,
              const FlagHelp& help);
  /// A name of the table.
  template <typename Enum, size_t kCount>
  void Choice(const std::string& flag, Enum& value, const std::array<Named<Enum>, kCount>& table,
              const FlagHelp& help) {
    const auto set = [&value, &table](const std::string& name) { value = *FindNamed(table, name); };
    AddChoice(flag, set, NamesIn(table), help, std::string(NameIn(table, value)));
  }
  /// `flag` may be "-v,--verbose".
  void Switch(const std::string& flag, bool& value, const FlagHelp& help);
  /// An argument without a flag.
  void Positional(const std::string& name, std::string& value, const FlagHelp& help,
                  FlagNeed need = FlagNeed::kOptional);

  /// Names the flags that -h lists, at most ten, in this order. Without a call they are those that
  /// were declared before ShortHelpEnds.
  void ShortList(std::vector<std::string> flags) { short_list_ = std::move(flags); }
  /// Keeps the flags that follow, which every command has, out of -h.
  void ShortHelpEnds();

  /// Text that --help prints after the flags, and after what was given before; made when it is
  /// asked for.
  void AfterHelp(std::string (*text)()) { after_help_.push_back(text); }

  /// Describes the command and its flags, for ShortHelp and LongHelp.
  CommandText Describe() const;

  /// Whether the flag was on the command line.
  bool Given(const std::string& flag) const;
  /// The first of `flags` that was on the command line; empty if none was.
  std::string FirstGiven(const std::vector<std::string>& flags) const;

  /// Throws UsageError for the first required flag that is missing.
  void CheckRequired() const;
  /// Every flag, for suggestions.
  std::vector<std::string> Names() const;

 private:
  struct Declared {
    std::string name;  // "--seq"
    CLI::Option* option = nullptr;
    FlagText text;
  };

  void AddNumber(const std::string& flag, double& value, const FlagHelp& help,
                 const std::string& expected, const std::function<bool(double)>& is_valid);
  /// Declares a flag whose text is handed to `set`. Help shows `shown` as its default.
  Declared& AddText(const std::string& flag, std::function<void(const std::string&)> set,
                    const FlagHelp& help, std::string_view value_word,
                    const std::string& shown = "");
  /// Declares a flag whose text, one of `valid`, is handed to `set`. Help shows `shown` as its
  /// default.
  void AddChoice(const std::string& flag, std::function<void(const std::string&)> set,
                 const std::vector<std::string>& valid, const FlagHelp& help,
                 const std::string& shown);
  Declared& Remember(const std::string& flag, CLI::Option* option, const FlagHelp& help,
                     std::string_view value_word, const std::string& shown = "");
  const Declared* Find(const std::string& name) const;

  CLI::App& app_;
  std::string group_ = "Options";
  std::vector<Declared> declared_;
  std::vector<std::string> short_list_;
  std::vector<std::string (*)()> after_help_;
};

}  // namespace trimtab
