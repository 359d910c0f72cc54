// The flags that describe a problem of serving, shared by 'search --for serving' and 'estimate
// --for serving'.
#pragma once

#include <string>
#include <vector>

#include "search/seed_study.h"
#include "search/serving/serving_search.h"
#include "tools/cli/common_flags.h"
#include "tools/cli/flags.h"
#include "tools/cli/workload_flags.h"

namespace trimtab {

/// The flag that leads to them: 'trimtab search --for serving'.
inline constexpr char kForFlag[] = "--for";
void DeclareFor(FlagSet& flags, std::string& value);

class ServingProblemFlags {
 public:
  void Declare(FlagSet& flags);

  /// Refuses what flags alone can refuse. Throws UsageError, InputError.
  void Check() const;
  /// All but what only a search has, priced by `seed` if that is given. Throws UsageError,
  /// InputError.
  ServingProblem Resolve(const SeedStudy* seed = nullptr) const;

 private:
  /// Who may propose tokens.
  void ResolveSpeculation(ServingProblem& problem) const;

  std::string for_ = "serving";
  std::string model_;
  ClusterFlags cluster_;
  WorkloadFlags workload_;
  std::vector<std::string> weights_;
  std::vector<std::string> caches_;
  std::string stack_ = "trimtab";
  int64_t memory_per_rank_bytes_ = 0;
  const FlagSet* flags_ = nullptr;
  std::string draft_;
  double draft_acceptance_ = 0;
  double lookup_acceptance_ = 0;
};

/// What a service shows its clients: a table of latencies and a line of rates.
std::string LoadReportText(const LoadReport& report);

}  // namespace trimtab
