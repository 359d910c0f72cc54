#include "cost_model/validation/row_object.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/text_values.h"

namespace trimtab {
namespace {

nlohmann::json WithoutNulls(const nlohmann::json& json) {
  if (!json.is_object()) return {};
  nlohmann::json told = nlohmann::json::object();
  for (const auto& [key, value] : json.items()) {
    if (!value.is_null()) told[key] = value;
  }
  return told;
}

}  // namespace

RowObject::RowObject(const nlohmann::json& json, const std::string& where,
                     const std::string& section, RowFindings& findings)
    : json_(json),
      told_(WithoutNulls(json)),
      object_(told_.is_object() ? told_ : json, where),
      section_(section),
      findings_(findings) {}

void RowObject::Unusable(const char* key, const std::string& why) const {
  findings_.unusable.push_back(
      fmt::format("{}{}: {} {}", section_, key, DescribeJson(told_.at(key)), why));
}

const nlohmann::json* RowObject::Find(const char* key, Need need) {
  known_.emplace_back(key);
  return object_.Find(key, need);
}

void RowObject::Integer(const char* key, int64_t& value, int64_t min, int64_t max) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_number()) object_.Refuse(key, "a whole number");
  const auto number = found->get<double>();
  if (number == std::floor(number) && number >= static_cast<double>(min) &&
      number <= static_cast<double>(max)) {
    value = static_cast<int64_t>(number);
  } else {
    Unusable(key, fmt::format("is not a whole number from {} to {}", min, max));
  }
}

void RowObject::Year(const char* key, int64_t& value) {
  constexpr int64_t kFirst = 1990;
  constexpr int64_t kLast = 2100;
  const nlohmann::json* found = Find(key);
  if (found == nullptr || !found->is_string()) return Integer(key, value, kFirst, kLast);
  int64_t year = 0;
  if (ParseInteger(found->get<std::string>(), year) && year >= kFirst && year <= kLast) {
    value = year;
  } else {
    Unusable(key, "is not a year");
  }
}

void RowObject::Number(const char* key, double& value, double max) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (!found->is_number()) object_.Refuse(key, "a number");
  const auto number = found->get<double>();
  constexpr double kLeast = 1e-12;  // of what is not 0: smaller than anything that is measured
  if (number == 0 || (number >= kLeast && number <= max)) {
    value = number;
  } else {
    Unusable(key, fmt::format("is not a number from {} to {}", kLeast, max));
  }
}

void RowObject::Boolean(const char* key, bool& value) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  if (*found == 0 || *found == 1) {
    value = *found == 1;
  } else {
    object_.Boolean(key, value);
  }
}

void RowObject::Text(const char* key, std::string& value, Need need) {
  known_.emplace_back(key);
  object_.Text(key, value, need);
}

void RowObject::Texts(const char* key, std::vector<std::string>& values) {
  const nlohmann::json* list = Find(key);
  if (list == nullptr) return;
  if (!list->is_array()) object_.Refuse(key, "a list of strings");
  for (const nlohmann::json& each : *list) {
    if (!each.is_string()) object_.Refuse(key, "a list of strings");
    values.push_back(each.get<std::string>());
  }
}

void RowObject::Word(const char* key, std::string& value, std::span<const Meaning> meanings) {
  const nlohmann::json* found = Find(key);
  if (found == nullptr) return;
  const std::string said = found->is_string() ? found->get<std::string>() : found->dump();
  if (said.empty()) return;
  const std::optional<std::string> meaning = MeaningOf(said, meanings);
  if (!found->is_string() && !(found->is_boolean() && meaning)) object_.Refuse(key, "a string");
  if (meaning) {
    value = *meaning;
  } else {
    Unusable(key, "is not a known value");
  }
}

void RowObject::ForPeople(std::initializer_list<const char*> keys) {
  for (const char* key : keys) known_.emplace_back(key);
}

void RowObject::Finish() const {
  for (const auto& [key, value] : told_.items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string nearest = NearestName(key, known_);
    if (!nearest.empty() && !json_.contains(nearest) && EditDistance(key, nearest) <= 2) {
      object_.Refuse(key, fmt::format("a known field, such as \"{}\"", nearest));
    }
    findings_.unknown_fields.insert(section_ + key);
  }
}

}  // namespace trimtab
