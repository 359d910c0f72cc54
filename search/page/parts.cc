#include "search/page/parts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "cost_model/estimate.h"

namespace trimtab {
namespace {

// Parts of measurements, in the order of the bars, behind those of predictions.
constexpr std::array<std::string_view, 5> kMeasuredParts = {"matrix products", "attention",
                                                            "messages", "other ops", "between ops"};

constexpr std::array<std::string_view, 7> kMemoryParts = {
    "weights", "gradients", "optimizer", "activations", "workspace", "communication", "all of it"};

/// The part that an entry of a breakdown counts under. A measured one has an entry per op, and
/// messages carry their group behind a colon.
std::string_view StepPartOf(std::string_view entry) {
  for (const BreakdownPart& part : kBreakdownParts) {
    if (entry == part.key) return part.label;
  }
  if (entry.find(':') != std::string_view::npos) return "messages";
  if (entry.starts_with("gemm")) return "matrix products";
  if (entry.starts_with("attention")) return "attention";
  if (entry == "adamw" || entry == "clip" || entry == "sum_squares") return "optimizer";
  return entry == "other" ? "between ops" : "other ops";
}

template <size_t kCount>
int OrderOf(const std::array<std::string_view, kCount>& names, std::string_view name) {
  return static_cast<int>(std::find(names.begin(), names.end(), name) - names.begin());
}

int OrderOfStepPart(std::string_view name) {
  int order = 0;
  for (const BreakdownPart& part : kBreakdownParts) {
    if (name == part.label) return order;
    ++order;
  }
  return order + OrderOf(kMeasuredParts, name);
}

std::vector<Part> InOrder(std::vector<Part> parts) {
  std::erase_if(parts, [](const Part& part) { return part.amount <= 0; });
  std::sort(parts.begin(), parts.end(),
            [](const Part& a, const Part& b) { return a.order < b.order; });
  return parts;
}

}  // namespace

std::vector<Part> StepParts(const nlohmann::json& breakdown_s) {
  std::map<std::string_view, double> seconds;
  for (const auto& [entry, value] : breakdown_s.items()) {
    seconds[StepPartOf(entry)] += value.get<double>();
  }
  std::vector<Part> parts;
  for (const auto& [name, amount] : seconds) {
    parts.push_back({std::string(name), OrderOfStepPart(name), amount});
  }
  return InOrder(parts);
}

std::vector<Part> MemoryParts(const nlohmann::json& memory_bytes) {
  std::vector<Part> parts;
  for (const auto& [name, bytes] : memory_bytes.items()) {
    parts.push_back({name, OrderOf(kMemoryParts, name), bytes.get<double>()});
  }
  return InOrder(parts);
}

std::string Capitalised(std::string text) {
  if (!text.empty()) text[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(text[0])));
  return text;
}

}  // namespace trimtab
