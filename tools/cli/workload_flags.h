// The flags that describe a load, shared by bench, estimate and search.
#pragma once

#include <string>

#include "engine/infer/load/workload.h"
#include "tools/cli/flags.h"

namespace trimtab {

class WorkloadFlags {
 public:
  void Declare(FlagSet& flags);

  /// The load that the flags ask for. Throws UsageError, InputError.
  ServiceLoad Load() const;
  uint64_t seed() const { return static_cast<uint64_t>(seed_); }
  /// In a few words: "1000/500, 256 requests, 64 clients".
  std::string Describe() const;

 private:
  const FlagSet* flags_ = nullptr;
  std::string workload_ = "128/64";
  std::string trace_;
  int64_t requests_ = 64;
  int64_t concurrency_ = 0;
  int64_t seed_ = 1;
  int64_t shared_ = 0;
  double rate_ = 0;
};

}  // namespace trimtab
