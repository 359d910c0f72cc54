// RowObject: one object of a published row, read field by field.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cost_model/validation/published_words.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {

/// What is met in a row that does not go into the run.
struct RowFindings {
  std::set<std::string>& unknown_fields;  // "layout.foo", of all rows
  std::vector<std::string>& unusable;     // values that cannot be simulated, of this row
  std::vector<std::string>& assumed;      // in the place of what this row does not tell
};

/// A null value is as good as none, and leaves its target alone. A wrong type is refused
/// (InputError); a value of the right type that no run can have is noted among the row's findings.
class RowObject {
 public:
  /// `section`: what fields of this object are called before their name, "layout." for instance.
  RowObject(const nlohmann::json& json, const std::string& where, const std::string& section,
            RowFindings& findings);

  /// A whole number, 8 or 8.0.
  void Integer(const char* key, int64_t& value, int64_t min, int64_t max);
  /// The same, or its digits as text.
  void Year(const char* key, int64_t& value);
  void Number(const char* key, double& value, double max);
  /// true, false, 1 or 0.
  void Boolean(const char* key, bool& value);
  void Text(const char* key, std::string& value, Need need = Need::kOptional);
  void Texts(const char* key, std::vector<std::string>& values);
  /// What the text means by `meanings`; also true or false, where these say what they mean.
  void Word(const char* key, std::string& value, std::span<const Meaning> meanings);
  /// The value itself, or nullptr.
  const nlohmann::json* Find(const char* key, Need need = Need::kOptional);
  /// Whether the field is there and not null.
  bool Tells(const char* key) const { return told_.contains(key); }
  /// Fields that say more to people than to a simulation.
  void ForPeople(std::initializer_list<const char*> keys);
  std::string Where(const char* key) const { return object_.Where(key); }

  /// Notes unknown fields; refuses one that is nearly a known field which is not there.
  void Finish() const;

 private:
  void Unusable(const char* key, const std::string& why) const;

  const nlohmann::json& json_;
  nlohmann::json told_;
  StrictObject object_;
  std::string section_;
  RowFindings& findings_;
  std::vector<std::string> known_;
};

}  // namespace trimtab
