// The command `search` as far as it is the same for every workload: its flags and its course.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "search/driver.h"
#include "search/seed_study.h"
#include "search/space/narrowing.h"
#include "search/space/space_description.h"
#include "tools/cli/command.h"
#include "tools/cli/launcher_flag.h"

namespace trimtab {

class SearchCommand : public Command {
 public:
  std::string name() const override { return "search"; }
  void Declare(FlagSet& flags) final;
  int Run(const OutputOptions& output) final;

 protected:
  /// What the flags of one workload are, and how its help describes those of all.
  struct Words {
    std::string workload;    // "training"
    std::string study_path;  // where --study is left out
    /// True if a search that measures nothing keeps a study all the same.
    bool keeps_every_study = true;
    std::vector<std::string> objectives;
    FlagHelp objective;
    FlagHelp require;
    std::string fix, allow, forbid;  // examples
    std::vector<std::string> short_list;
  };
  virtual Words words() const = 0;
  /// Declares --for and flags of the problem, of the space and of measuring that no other workload
  /// has.
  virtual void DeclareProblem(FlagSet& flags) = 0;
  virtual void DeclareSpace(FlagSet& flags) = 0;
  virtual void DeclareMeasuring(FlagSet& /*flags*/) {}
  virtual const NarrowingKeys& keys() const = 0;

  /// Refuses what can be refused before this machine is measured.
  virtual void CheckFlags() = 0;
  /// The workload that the flags describe; `seed` prices it where it is given.
  virtual std::unique_ptr<Workload> MakeWorkload(const OutputOptions& output,
                                                 const SeedStudy* seed) = 0;
  /// What --space prints.
  virtual SpaceDescription DescribeSpace() = 0;

  const FlagSet& flags() const { return *flags_; }
  /// Throws UsageError.
  std::vector<Narrowing> Narrowings() const;
  std::vector<int64_t> Gpus(const Cluster& cluster) const;

  SearchOptions options_;
  std::string require_;
  int64_t max_ranks_ = 0;

 private:
  void DeclareSpaceOfAll(FlagSet& flags, const Words& words);
  void DeclareMeasuringOfAll(FlagSet& flags);
  int PrintSpace(const OutputOptions& output);
  /// What the best candidates' trials would be started with, by prediction alone.
  int PrintPlan(Workload& workload, const OutputOptions& output);
  int Search(Workload& workload, const OutputOptions& output);
  int Show(const SearchResult& result, const OutputOptions& output) const;

  const FlagSet* flags_ = nullptr;
  std::string gpus_;
  std::string objective_ = "throughput";
  std::string indifference_ = "1%";
  LauncherFlag launcher_;
  std::string report_;
  std::string seed_study_;
  std::vector<std::string> fixed_;
  std::vector<std::string> allowed_;
  std::vector<std::string> forbidden_;
  bool only_space_ = false;
  bool dashboard_ = false;
  int64_t top_ = 10;
};

}  // namespace trimtab
