// Strict reading of JSON: every key is known, every value has its type and range, and every
// complaint names the file, the JSON path and what was expected.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "engine/base/name_table.h"

namespace trimtab {

/// Largest file that is read as JSON, and deepest nesting inside it.
inline constexpr int64_t kMaxJsonBytes = int64_t{64} << 20;
inline constexpr int kMaxJsonDepth = 64;

/// The content of a JSON file. Throws InputError "path:line:column: what" when it cannot be read,
/// is larger or deeper than the limits, is not UTF-8 JSON, or has a key twice in one object.
nlohmann::json ReadJsonFile(const std::string& path);

/// The same for text; `name` stands in the place of the path.
nlohmann::json ParseJsonText(const std::string& text, const std::string& name);

enum class Need { kRequired, kOptional };

/// Reads one value of an array; `where` is its path ("run.json: $.runs[2]").
using ArrayReader = std::function<void(const nlohmann::json& value, const std::string& where)>;

/// One JSON object, read key by key. Every reading function leaves its target alone when an
/// optional key is missing, and throws InputError naming the path and what was expected otherwise.
///
///   StrictObject object(json, "run.json: $.layout");
///   object.Integer("tp", layout.tp, 1, 1024);
///   object.Boolean("sp", layout.sequence_parallel);
///   object.Finish();  // throws if there was any other key
class StrictObject {
 public:
  /// `where` is the file and path of the object ("run.json: $.layout"). Throws if it is no object.
  /// The JSON must outlive this.
  StrictObject(const nlohmann::json& object, std::string where);

  void Integer(const std::string& key, int64_t& value, int64_t min, int64_t max,
               Need need = Need::kOptional);
  void Unsigned(const std::string& key, uint64_t& value, Need need = Need::kOptional);
  void Number(const std::string& key, double& value, double min, double max,
              Need need = Need::kOptional);
  void Boolean(const std::string& key, bool& value, Need need = Need::kOptional);
  void Text(const std::string& key, std::string& value, Need need = Need::kOptional);
  /// A string of one line, without control characters.
  void Line(const std::string& key, std::string& value, Need need = Need::kOptional);
  /// An array of strings, each of which is `element` ("the name of a layer") to messages.
  void Texts(const std::string& key, std::vector<std::string>& values, const std::string& element,
             Need need = Need::kOptional);
  /// A string that must be one of `valid`.
  void Choice(const std::string& key, std::string& value, std::span<const std::string> valid,
              Need need = Need::kOptional);
  /// A string that must be a name of the table.
  template <typename Enum, size_t kCount>
  void Choice(const std::string& key, Enum& value, const std::array<Named<Enum>, kCount>& table,
              Need need = Need::kOptional) {
    std::string name;
    Choice(key, name, NamesIn(table), need);
    if (!name.empty()) value = *FindNamed(table, name);
  }
  /// Calls `read(value, where)` for each value of an array that has at least `least`; never where
  /// an optional key is missing.
  void Array(const std::string& key, Need need, size_t least, const ArrayReader& read);
  /// The value itself, for whoever reads it next; nullptr when an optional key is missing.
  const nlohmann::json* Find(const std::string& key, Need need = Need::kOptional);

  /// "run.json: $.layout.tp".
  std::string Where(const std::string& key) const;
  /// Throws InputError "run.json: $.layout.tp: expected <expected>, got <value>".
  [[noreturn]] void Refuse(const std::string& key, const std::string& expected) const;

  /// Returns the keys that were not asked for, in the order of their names.
  std::vector<std::string> Unread() const;
  /// Throws InputError for a key that was not asked for, with the nearest one that was.
  void Finish() const;

 private:
  const nlohmann::json& object_;
  std::string where_;
  std::vector<std::string> known_;
};

/// Throws InputError naming `where`, the key and its value unless each of `keys` is there with a
/// number of at least 0: what a program wrote may have been edited since.
void RequireNoNegative(const nlohmann::json& object, std::initializer_list<const char*> keys,
                       const std::string& where);

/// A value as a message shows it: JSON on one line, cut after some 60 characters.
std::string DescribeJson(const nlohmann::json& value);

}  // namespace trimtab
