// FlagSet: the flags of one subcommand. The only user of CLI11, so that no other file pays for it.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace trimtab {

/// The most that counts of things that fit in memory are allowed to be.
inline constexpr int64_t kMax32 = std::numeric_limits<int32_t>::max();

enum class FlagNeed { kOptional, kRequired };

/// Declares flags that write to variables, which must outlive the parse; what a variable holds when
/// declared is the flag's default. A value that makes no sense is a UsageError naming the flag and
/// what was expected.
class FlagSet {
 public:
  explicit FlagSet(CLI::App& app) : app_(app) {}

  void Text(const std::string& flag, std::string& value, const std::string& help,
            FlagNeed need = FlagNeed::kOptional);
  /// One or more values: --input A B, or --input A --input B.
  void Texts(const std::string& flag, std::vector<std::string>& values, const std::string& help,
             FlagNeed need = FlagNeed::kOptional);
  /// Names separated by commas: --precision bf16,fp8.
  void List(const std::string& flag, std::vector<std::string>& values, const std::string& help);
  void Integer(const std::string& flag, int64_t& value, int64_t min, int64_t max,
               const std::string& help, FlagNeed need = FlagNeed::kOptional);
  void Number(const std::string& flag, double& value, double min, double max,
              const std::string& help);
  /// A number above 0; `value` may hold 0 for a flag that is left out.
  void Positive(const std::string& flag, double& value, double max, const std::string& help);
  /// "15T", "300B", "1000".
  void Count(const std::string& flag, double& value, const std::string& help);
  /// "8GiB", "512MiB", plain bytes.
  void Bytes(const std::string& flag, int64_t& value, const std::string& help);
  void Choice(const std::string& flag, std::string& value, const std::vector<std::string>& valid,
              const std::string& help);
  /// `flag` may be "-v,--verbose".
  void Switch(const std::string& flag, bool& value, const std::string& help);
  /// An argument without a flag.
  void Positional(const std::string& name, std::string& value, const std::string& help,
                  FlagNeed need = FlagNeed::kOptional);

  /// Text that --help prints after the flags, and after what was given before; made when it is
  /// asked for.
  void AfterHelp(std::string (*text)());

  /// Whether the flag was on the command line.
  bool Given(const std::string& flag) const;
  /// The first of `flags` that was on the command line; empty if none was.
  std::string FirstGiven(const std::vector<std::string>& flags) const;

  /// Throws UsageError for the first required flag that is missing.
  void CheckRequired() const;
  /// Every flag, for suggestions.
  std::vector<std::string> Names() const;

 private:
  void AddNumber(const std::string& flag, double& value, const std::string& help,
                 const std::string& expected, const std::function<bool(double)>& is_valid);
  void Remember(const std::string& flag, CLI::Option* option, FlagNeed need);

  struct Declared {
    std::string name;
    CLI::Option* option = nullptr;
    FlagNeed need = FlagNeed::kOptional;
  };
  CLI::App& app_;
  std::vector<Declared> declared_;
  std::vector<std::string (*)()> after_help_;
};

}  // namespace trimtab
