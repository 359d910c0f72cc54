#include "search/space/requirements.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <string_view>

#include "cost_model/goodput.h"
#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/config/json/text_values.h"
#include "search/space/space.h"

namespace trimtab {
namespace {

using Figure = TrainingRequirement::Figure;

struct FigureRow {
  const char* name;
  Figure figure;
  bool at_least = false;  // the limit is what it must not fall below
};
constexpr FigureRow kFigures[] = {{"headroom", Figure::kHeadroom, true},
                                  {"gpus", Figure::kGpus},
                                  {"nodes", Figure::kNodes},
                                  {"days", Figure::kDays},
                                  {"price", Figure::kPrice}};

constexpr double kMostGpus = 1e9;

/// "30", "0.5"; with `scaled` also "2M": K, M and B are 10^3 to 10^9.
std::optional<double> ParseAmount(std::string_view text, bool scaled) {
  constexpr std::string_view kScales = "KMB";
  double amount = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, amount);
  if (error != std::errc() || !std::isfinite(amount) || amount <= 0) return std::nullopt;
  if (end == last) return amount;
  const size_t scale = kScales.find(*end);
  if (!scaled || end + 1 != last || scale == kScales.npos) return std::nullopt;
  return amount * std::pow(1e3, static_cast<double>(scale) + 1);
}

TrainingRequirement Parse(const std::string& text) {
  const size_t sign = text.find_first_of("<>");
  const std::string_view all = text;
  for (const FigureRow& row : kFigures) {
    if (sign == std::string::npos || all.substr(0, sign) != row.name) continue;
    if ((text[sign] == '>') != row.at_least) break;
    std::string_view value = all.substr(sign + 1);
    const bool allows_equal = value.starts_with('=');
    if (allows_equal) value.remove_prefix(1);
    TrainingRequirement parsed = {row.figure, 0, text};
    if (row.figure == Figure::kHeadroom) {
      parsed.limit = static_cast<double>(ParseBytes(value, "--require " + text));
      return parsed;
    }
    const std::optional<double> amount = ParseAmount(value, row.figure == Figure::kPrice);
    if (!amount) break;
    parsed.limit = *amount;
    if (row.figure == Figure::kGpus || row.figure == Figure::kNodes) {
      parsed.limit -= allows_equal ? 0 : 1;
      if (*amount != std::floor(*amount) || parsed.limit < 1 || parsed.limit > kMostGpus) break;
    }
    return parsed;
  }
  throw UsageError(fmt::format(
      "--require: '{}'; expected headroom>=8GiB (free memory of each rank), gpus<=512, nodes<=64, "
      "days<=30 or price<=2M (a number, or one with K, M or B behind it)",
      text));
}

const char* NameOf(Figure figure) {
  const auto row = std::find_if(std::begin(kFigures), std::end(kFigures),
                                [&](const FigureRow& each) { return each.figure == figure; });
  return row->name;
}

/// The least limit on ranks, or `most` where there is none.
int64_t MostGpus(const Problem& problem, int64_t most) {
  for (const TrainingRequirement& each : problem.requirements) {
    const auto limit = static_cast<int64_t>(each.limit);
    if (each.figure == Figure::kGpus) most = std::min(most, limit);
    if (each.figure == Figure::kNodes) {
      most = std::min(most, limit * problem.cluster.ranks_per_node);
    }
  }
  return most;
}

}  // namespace

std::string TrainingRequirement::id() const { return fmt::format("require-{}", NameOf(figure)); }

std::vector<TrainingRequirement> ParseTrainingRequirements(const std::string& text) {
  std::vector<TrainingRequirement> requirements;
  if (text.empty()) return requirements;
  for (const std::string& each : Split(text, ',')) requirements.push_back(Parse(each));
  return requirements;
}

void RequireMeasurable(const Problem& problem) {
  for (const TrainingRequirement& each : problem.requirements) {
    std::string missing;
    const bool of_speed = each.figure == Figure::kDays || each.figure == Figure::kPrice;
    const bool of_gpus = each.figure == Figure::kGpus || each.figure == Figure::kNodes;
    if (of_speed && problem.tokens <= 0) {
      missing = "needs --tokens, the length of the run";
    } else if (each.figure == Figure::kPrice && problem.cluster.price_per_gpu_hour <= 0) {
      missing = fmt::format("the cluster {} has no price per GPU hour", problem.cluster.name);
    } else if (of_gpus && problem.cluster.device == DeviceKind::kCpu) {
      missing = fmt::format("the cluster {} has none", problem.cluster.name);
    }
    const auto all = static_cast<double>(MemoryOfRank(problem.cluster, /*ranks=*/1));
    if (each.figure == Figure::kHeadroom && all > 0 && each.limit >= all) {
      missing = fmt::format("a rank has only {}", FormatBytes(static_cast<int64_t>(all)));
    }
    if (!missing.empty()) throw UsageError(fmt::format("--require {}: {}", each.text, missing));
  }
}

std::vector<std::string> UnmetByTraining(const std::vector<TrainingRequirement>& requirements,
                                         double hours, std::optional<double> price) {
  constexpr double kHoursOfDay = 24;
  std::vector<std::string> unmet;
  for (const TrainingRequirement& each : requirements) {
    const double days = hours / kHoursOfDay;
    if (each.figure == Figure::kDays && !(days <= each.limit)) {
      unmet.push_back(fmt::format("{}: {:.3g} days", each.text, days));
    } else if (each.figure == Figure::kPrice && price && !(*price <= each.limit)) {
      unmet.push_back(fmt::format("{}: {:.3g}", each.text, *price));
    }
  }
  return unmet;
}

std::vector<int64_t> AllowedGpus(const Problem& problem) {
  int64_t all = problem.cluster.max_ranks;
  if (problem.max_ranks > 0) all = std::min(all, problem.max_ranks);
  const int64_t most = MostGpus(problem, all);
  const int64_t node = problem.cluster.ranks_per_node;
  if (problem.gpus.empty()) {
    return {most < problem.cluster.max_ranks && most > node ? most / node * node : most};
  }
  std::vector<int64_t> allowed = problem.gpus;
  std::erase_if(allowed, [&](int64_t gpus) { return gpus > most; });
  if (allowed.empty()) {
    const char* limit = most < all ? "--require" : "--max-ranks";
    throw UsageError(fmt::format("{} allows {} GPUs, and --gpus names none so few", limit, most));
  }
  return allowed;
}

int64_t HeadroomBytes(const Problem& problem) {
  double bytes = 0;
  for (const TrainingRequirement& each : problem.requirements) {
    if (each.figure == Figure::kHeadroom) bytes = std::max(bytes, each.limit);
  }
  return static_cast<int64_t>(bytes);
}

SpeedRequirements::SpeedRequirements(const Problem& problem) : problem_(problem) {
  for (const TrainingRequirement& each : problem.requirements) {
    const bool of_speed = each.figure == Figure::kDays || each.figure == Figure::kPrice;
    if (of_speed) requirements_.push_back(&each);
  }
  if (!requirements_.empty())
    checkpoint_bytes_ = CheckpointBytes(problem.model, problem.optimizer.kind);
}

const TrainingRequirement* SpeedRequirements::FirstUnmet(int64_t ranks, double tokens_per_s) const {
  // A bound of 0 seconds says nothing.
  if (requirements_.empty() || !std::isfinite(tokens_per_s)) return nullptr;
  const TrainingCost cost = CostOfTraining(
      {.ranks = ranks, .tokens_per_s = tokens_per_s, .checkpoint_bytes = checkpoint_bytes_},
      problem_.cluster, problem_.tokens);
  for (const TrainingRequirement* each : requirements_) {
    const double figure = each->figure == Figure::kDays ? cost.days() : cost.price;
    if (!(figure <= each->limit)) return each;
  }
  return nullptr;
}

}  // namespace trimtab
