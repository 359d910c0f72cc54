// Workload: how long the requests of a load are, and when they come.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <random>
#include <string>
#include <vector>

namespace trimtab {

/// How many tokens a text has.
class LengthDistribution {
 public:
  /// "128", "uniform:64-256", "exponential:128" (its mean), "lognormal:128:0.8" (its median, and
  /// the standard deviation of its logarithm). Throws UsageError naming `what`.
  LengthDistribution(const std::string& text, const std::string& what);

  /// At least 1, at most kMaxLength.
  int64_t Draw(std::mt19937_64& random) const;

  static constexpr int64_t kMaxLength = int64_t{1} << 20;

 private:
  enum class Kind { kFixed, kUniform, kExponential, kLogNormal };
  Kind kind_ = Kind::kFixed;
  double first_ = 0;
  double second_ = 0;
};

struct LoadRequest {
  double at_s = 0;  // when it is sent, from the start; of open loops
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t shared_tokens = 0;  // of the prompt, the first ones: those of all prompts are alike
  uint64_t seed = 0;          // of its choices: its number in the load

  bool operator==(const LoadRequest&) const = default;
};

/// A load on a service: requests in the order in which they come, by an open loop or a closed one.
struct ServiceLoad {
  std::vector<LoadRequest> requests{};
  int64_t concurrency = 0;  // clients of a closed loop; 0 = open

  /// Tokens of the longest prompt and its answer.
  int64_t longest() const;
  /// Whether prompts begin alike.
  bool shares() const;
  /// Output tokens that an open loop asks for per second; 0 of a closed one, which asks for as many
  /// as come.
  double offered_tokens_per_s() const;

  bool operator==(const ServiceLoad&) const = default;
};

/// {"concurrency": 8, "requests": [[at_s, input, output, shared], ...]}
nlohmann::json ToJson(const ServiceLoad& load);
/// Inverse of ToJson; requests get the seeds of their places. Throws InputError.
ServiceLoad ServiceLoadFromJson(const nlohmann::json& json, const std::string& where);

/// `count` requests of a workload "INPUT/OUTPUT", each side a LengthDistribution. With a `rate`, in
/// requests per second, they come as a Poisson process. The same seed draws the same.
std::vector<LoadRequest> DrawRequests(const std::string& workload, int64_t count, double rate,
                                      uint64_t seed);

/// Lets prompts begin with the same `tokens`, or as many of them as they have.
void ShareBeginnings(int64_t tokens, std::vector<LoadRequest>& requests);

/// The requests of a JSONL file: {"at_s": 0.25, "input_tokens": 100, "output_tokens": 20} a line;
/// "at_s" must not fall, and may be missing in all lines; "shared_tokens" may be there. Throws
/// InputError.
std::vector<LoadRequest> ReadTrace(const std::string& path);

}  // namespace trimtab
