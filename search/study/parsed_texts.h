// ParsedTexts: values that were read from JSON texts, so that each text is parsed once.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <unordered_map>

namespace trimtab {

/// Not thread-safe.
template <typename T>
class ParsedTexts {
 public:
  /// What `read` makes of the JSON in `text`. Throws what parsing and `read` throw, each time.
  template <typename Read>
  const T& Of(const std::string& text, const Read& read) {
    auto found = values_.find(text);
    if (found == values_.end()) {
      found = values_.emplace(text, read(nlohmann::json::parse(text))).first;
    }
    return found->second;
  }

 private:
  std::unordered_map<std::string, T> values_;
};

}  // namespace trimtab
