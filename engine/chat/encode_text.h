// A rendered conversation as tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/chat/jinja/text.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace trimtab {

/// A special token's name in a text.
struct SpecialPlace {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = 0;
  bool forged = false;  // some of it came with the request, so it is text

  bool operator==(const SpecialPlace&) const = default;
};

/// The names of `names` in `text`, from the left, the longest of those that begin at one place. A
/// forged one hides no other.
std::vector<SpecialPlace> FindSpecials(const jinja::Text& text,
                                       const std::vector<std::string>& names,
                                       const Tokenizer& tokenizer);

/// Appends the ids of `text`. Names of special tokens are the tokens where the template wrote them,
/// and characters like any others where the request did.
void EncodeText(const jinja::Text& text, const std::vector<std::string>& special_names,
                const Tokenizer& tokenizer, std::vector<int32_t>& tokens);

}  // namespace trimtab
