// Thoughts of a model before its answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/jinja/text.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace trimtab {

/// What a piece of an answer adds to its two parts.
struct ReasonedDelta {
  std::string reasoning{};
  std::string content{};
};

/// Splits one answer at <think> and </think>. White space at the ends of the thought, and before
/// the content behind it, is left out.
class ReasoningParser {
 public:
  /// With `begins_inside` the prompt has opened the thought. Otherwise an answer that does not
  /// begin with <think> has none.
  explicit ReasoningParser(bool begins_inside);

  /// The next piece of the text; nothing follows if `ended`.
  ReasonedDelta Add(std::string_view text, bool ended);

 private:
  enum class At { kStart, kThought, kBehind, kContent };

  bool ReadThought(bool ended, ReasonedDelta& out);

  At at_;
  bool thought_begun_ = false;  // something of it was passed on
  std::string text_;            // waits until it is known what it is
};

/// True if the prompt ends in a thought that the answer goes on with.
bool EndsInThought(const jinja::Text& prompt);

/// See ToolMarkers, for ReasoningParser.
std::vector<std::pair<int32_t, std::string>> ReasoningMarkers(const Tokenizer& tokenizer);

}  // namespace trimtab
