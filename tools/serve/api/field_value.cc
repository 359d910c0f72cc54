#include "tools/serve/api/field_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/base/error.h"
#include "engine/base/nearest_name.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

constexpr size_t kShownName = 60;

const Json& Nothing() {
  static const Json kNothing;
  return kNothing;
}

}  // namespace

double FieldValue::Number(double min, double max) const {
  const double value = json_->is_number() ? json_->get<double>() : min - 1;
  if (!(value >= min && value <= max)) {
    Refuse(fmt::format("a number from {} to {}", min, max));
  }
  return value;
}

int64_t FieldValue::Integer(int64_t min, int64_t max) const {
  // An unsigned number beyond int64 would wrap around.
  const bool fits =
      json_->is_number_integer() &&
      (!json_->is_number_unsigned() ||
       json_->get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
  if (!fits || json_->get<int64_t>() < min || json_->get<int64_t>() > max) {
    Refuse(fmt::format("an integer from {} to {}", min, max));
  }
  return json_->get<int64_t>();
}

bool FieldValue::Boolean() const {
  if (!json_->is_boolean()) Refuse("true or false");
  return json_->get<bool>();
}

const std::string& FieldValue::Text() const {
  if (!json_->is_string()) Refuse("a text");
  return json_->get_ref<const std::string&>();
}

std::vector<std::string> FieldValue::Texts() const {
  std::vector<std::string> texts;
  for (const FieldValue& each : List("a list of texts")) {
    if (!each.json().is_string() || each.json() == "") each.Refuse("a text that is not empty");
    texts.push_back(each.Text());
  }
  return texts;
}

std::vector<int32_t> FieldValue::Tokens(int64_t vocab_size) const {
  std::vector<int32_t> tokens;
  if (!json_->is_array()) Refuse("a list of token ids");
  for (size_t i = 0; i < json_->size(); ++i) {
    const Json& id = (*json_)[i];
    if (!id.is_number_integer() || id < 0 || id >= vocab_size) {
      throw InputError(fmt::format("{}[{}]: expected a token id from 0 to {}, got {}", path_, i,
                                   vocab_size - 1, DescribeValue(id)));
    }
    tokens.push_back(id.get<int32_t>());
  }
  return tokens;
}

std::vector<FieldValue> FieldValue::List(std::string_view expected) const {
  if (!json_->is_array()) Refuse(expected);
  std::vector<FieldValue> list;
  for (size_t i = 0; i < json_->size(); ++i) {
    list.emplace_back((*json_)[i], fmt::format("{}[{}]", path_, i));
  }
  return list;
}

void FieldValue::RequireObject() const {
  if (!json_->is_object()) Refuse("an object");
}

FieldValue FieldValue::At(const std::string& key) const {
  const auto found = json_->find(key);
  return {found == json_->end() ? Nothing() : *found, path_ + "." + key};
}

void FieldValue::RequireKeys(const std::vector<std::string_view>& known) const {
  RequireObject();
  for (const auto& [key, value] : json_->items()) {
    if (std::ranges::find(known, key) != known.end()) continue;
    const std::vector<std::string> names(known.begin(), known.end());
    throw InputError(fmt::format("{}.{}: unknown key{}", path_, Printable(key, kShownName),
                                 SuggestName(key, names)));
  }
}

void FieldValue::Refuse(std::string_view expected) const {
  throw InputError(fmt::format("{}: expected {}, got {}", path_, expected, DescribeValue(*json_)));
}

std::string DescribeValue(const Json& value) {
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  return value.is_object() ? "an object" : DescribeJson(nlohmann::json(value));
}

Json ParseBody(const std::string& body) {
  const nlohmann::json checked = ParseJsonText(body, "body");
  if (!checked.is_object()) {
    throw InputError(fmt::format("$: expected an object, got {}", DescribeJson(checked)));
  }
  return Json::parse(body);
}

std::string Printable(std::string_view text, size_t limit) {
  std::string line;
  for (const char c : text.substr(0, limit)) line += c < 0x20 || c >= 0x7f ? '?' : c;
  return text.size() > limit ? line + "..." : line;
}

}  // namespace trimtab
