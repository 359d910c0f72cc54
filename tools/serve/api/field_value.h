// FieldValue: a place in a request's body, read with complaints that name it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// JSON whose objects keep the order of their keys: templates write tools as clients do.
using Json = nlohmann::ordered_json;

/// Every reading function throws InputError "$.top_p: expected <what>, got <value>".
class FieldValue {
 public:
  /// `json` must outlive this.
  FieldValue(const Json& json, std::string path) : json_(&json), path_(std::move(path)) {}

  const Json& json() const { return *json_; }
  const std::string& path() const { return path_; }
  bool null() const { return json_->is_null(); }

  double Number(double min, double max) const;
  int64_t Integer(int64_t min, int64_t max) const;
  bool Boolean() const;
  const std::string& Text() const;
  /// A list of texts, none of them empty.
  std::vector<std::string> Texts() const;
  /// A list of token ids below `vocab_size`.
  std::vector<int32_t> Tokens(int64_t vocab_size) const;
  /// The elements of a list.
  std::vector<FieldValue> List(std::string_view expected) const;
  void RequireObject() const;

  /// The value at a key of an object; a null one where there is none.
  FieldValue At(const std::string& key) const;
  /// Throws where an object has other keys than `known`: they would change what it means.
  void RequireKeys(const std::vector<std::string_view>& known) const;

  [[noreturn]] void Refuse(std::string_view expected) const;

 private:
  const Json* json_;
  std::string path_;
};

/// "true", "an array of 3": the value as messages show it.
std::string DescribeValue(const Json& value);

/// A body as JSON. Throws InputError where it is no object, or no JSON.
Json ParseBody(const std::string& body);

/// Text on one line of printable ASCII, cut after `limit` characters.
std::string Printable(std::string_view text, size_t limit);

}  // namespace trimtab
