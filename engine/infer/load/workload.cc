#include "engine/infer/load/workload.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "engine/data/dataset/line_reader.h"

namespace trimtab {
namespace {

/// A positive number at the front of `text`, which is cut off it; 0 if there is none.
double TakeNumber(std::string_view& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value) || value <= 0) return 0;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

LengthDistribution::LengthDistribution(const std::string& text, const std::string& what) {
  std::string_view rest = text;
  std::string_view separator;
  if (TakePrefix(rest, "uniform:")) {
    kind_ = Kind::kUniform;
    separator = "-";
  } else if (TakePrefix(rest, "exponential:")) {
    kind_ = Kind::kExponential;
  } else if (TakePrefix(rest, "lognormal:")) {
    kind_ = Kind::kLogNormal;
    separator = ":";
  }
  first_ = TakeNumber(rest);
  second_ = separator.empty() ? first_ : TakePrefix(rest, separator) ? TakeNumber(rest) : 0;
  const bool ordered = kind_ != Kind::kUniform || first_ <= second_;
  const bool whole = kind_ != Kind::kFixed || first_ == std::floor(first_);
  if (first_ >= 1 && first_ <= kMaxLength && second_ > 0 && rest.empty() && ordered && whole)
    return;
  throw UsageError(
      fmt::format("{}: '{}'; expected a number of tokens, uniform:A-B, "
                  "exponential:MEAN or lognormal:MEDIAN:SIGMA",
                  what, text));
}

int64_t LengthDistribution::Draw(std::mt19937_64& random) const {
  double length = first_;
  if (kind_ == Kind::kUniform) {
    length = std::floor(std::uniform_real_distribution<double>(first_, second_ + 1)(random));
  } else if (kind_ == Kind::kExponential) {
    length = std::exponential_distribution<double>(1 / first_)(random);
  } else if (kind_ == Kind::kLogNormal) {
    length = std::lognormal_distribution<double>(std::log(first_), second_)(random);
  }
  return static_cast<int64_t>(std::clamp(std::round(length), 1.0, static_cast<double>(kMaxLength)));
}

int64_t ServiceLoad::longest() const {
  int64_t longest = 0;
  for (const LoadRequest& each : requests) {
    longest = std::max(longest, each.prompt_tokens + each.output_tokens);
  }
  return longest;
}

bool ServiceLoad::shares() const {
  return std::ranges::any_of(requests, [](const auto& each) { return each.shared_tokens > 0; });
}

double ServiceLoad::offered_tokens_per_s() const {
  if (concurrency > 0 || requests.empty()) return 0;
  const double seconds = requests.back().at_s - requests.front().at_s;
  if (seconds == 0) return 0;
  int64_t tokens = 0;
  for (const LoadRequest& each : requests) tokens += each.output_tokens;
  const auto count = static_cast<double>(requests.size());  // one more than gaps between them
  return static_cast<double>(tokens) / count * (count - 1) / seconds;
}

nlohmann::json ToJson(const ServiceLoad& load) {
  nlohmann::json requests = nlohmann::json::array();
  for (const LoadRequest& each : load.requests) {
    requests.push_back({each.at_s, each.prompt_tokens, each.output_tokens, each.shared_tokens});
  }
  return {{"concurrency", load.concurrency}, {"requests", std::move(requests)}};
}

ServiceLoad ServiceLoadFromJson(const nlohmann::json& json, const std::string& where) {
  StrictObject object(json, where);
  ServiceLoad load;
  object.Integer("concurrency", load.concurrency, 0, 1 << 20, Need::kRequired);
  const nlohmann::json& requests = *object.Find("requests", Need::kRequired);
  object.Finish();
  const auto fail = [&](size_t index) {
    throw InputError(
        fmt::format("{}.requests[{}]: expected [at_s, input tokens, output tokens, shared tokens]",
                    where, index));
  };
  if (!requests.is_array() || requests.empty()) fail(0);
  for (size_t i = 0; i < requests.size(); ++i) {
    const nlohmann::json& each = requests[i];
    const bool numbers = each.is_array() && each.size() == 4 && each[0].is_number() &&
                         each[1].is_number_integer() && each[2].is_number_integer() &&
                         each[3].is_number_integer();
    if (!numbers) fail(i);
    load.requests.push_back({.at_s = each[0],
                             .prompt_tokens = each[1],
                             .output_tokens = each[2],
                             .shared_tokens = each[3],
                             .seed = i});
    const LoadRequest& request = load.requests.back();
    const bool ordered = i == 0 || request.at_s >= load.requests[i - 1].at_s;
    const bool whole = request.prompt_tokens > 0 && request.output_tokens > 0 &&
                       request.shared_tokens >= 0 &&
                       request.shared_tokens <= request.prompt_tokens &&
                       request.prompt_tokens <= LengthDistribution::kMaxLength &&
                       request.output_tokens <= LengthDistribution::kMaxLength;
    if (!ordered || !whole) fail(i);
  }
  return load;
}

void ShareBeginnings(int64_t tokens, std::vector<LoadRequest>& requests) {
  for (LoadRequest& each : requests) each.shared_tokens = std::min(tokens, each.prompt_tokens);
}

std::vector<LoadRequest> DrawRequests(const std::string& workload, int64_t count, double rate,
                                      uint64_t seed) {
  const size_t slash = workload.find('/');
  if (slash == std::string::npos) {
    throw UsageError(fmt::format("--workload: '{}'; expected INPUT/OUTPUT, as 1000/500", workload));
  }
  const LengthDistribution input(workload.substr(0, slash), "--workload, input");
  const LengthDistribution output(workload.substr(slash + 1), "--workload, output");
  std::mt19937_64 random(seed);
  std::vector<LoadRequest> requests(static_cast<size_t>(count));
  double at = 0;
  uint64_t number = 0;
  for (LoadRequest& request : requests) {
    request = {.at_s = at,
               .prompt_tokens = input.Draw(random),
               .output_tokens = output.Draw(random),
               .seed = number++};
    if (rate > 0) at += std::exponential_distribution<double>(rate)(random);
  }
  return requests;
}

std::vector<LoadRequest> ReadTrace(const std::string& path) {
  LineReader reader(path, LineCheck::kUtf8, "JSON lines", /*name_line=*/true);
  std::vector<LoadRequest> requests;
  std::string line;
  bool ended = false;
  while (reader.Next(line, ended)) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const nlohmann::json json = ParseJsonText(line, reader.where());
    StrictObject object(json, reader.where() + ": $");
    LoadRequest& request = requests.emplace_back();
    request.seed = requests.size() - 1;
    object.Number("at_s", request.at_s, requests.size() > 1 ? requests.end()[-2].at_s : 0, 1e9);
    object.Integer("input_tokens", request.prompt_tokens, 1, LengthDistribution::kMaxLength,
                   Need::kRequired);
    object.Integer("output_tokens", request.output_tokens, 1, LengthDistribution::kMaxLength,
                   Need::kRequired);
    object.Integer("shared_tokens", request.shared_tokens, 0, request.prompt_tokens);
    object.Finish();
  }
  if (requests.empty()) throw InputError(fmt::format("{}: no request in it", path));
  return requests;
}

}  // namespace trimtab
