// Calls of tools in an answer, while it grows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/chat/tool_format.h"
#include "engine/data/tokenizer/tokenizer.h"

namespace trimtab {

/// What a piece of an answer adds to one call.
struct ToolCallDelta {
  int64_t index = 0;        // of the call in the answer
  std::string id{};         // in the first delta of a call
  std::string name{};       // in the first delta of a call
  std::string arguments{};  // JSON text to append
};

/// What a piece of an answer adds to it.
struct ParsedDelta {
  std::string content{};
  std::vector<ToolCallDelta> calls{};
};

/// Takes calls out of one answer's text. What only looks like a call is content.
class ToolCallParser {
 public:
  /// `seed` makes the ids of calls, which are to differ between answers.
  ToolCallParser(ToolFormat format, uint64_t seed);
  ~ToolCallParser();

  /// The next piece of the text; nothing follows if `ended`.
  ParsedDelta Add(std::string_view text, bool ended);
  /// True once a call has begun: the answer ends for "tool_calls".
  bool called() const;

  /// The reader of one format's calls.
  class Reader;

 private:
  std::unique_ptr<Reader> reader_;
};

/// Special tokens, and the texts that ToolCallParser knows them by: they must stand in the text
/// that it is given, where Tokenizer::BytesOf gives none.
std::vector<std::pair<int32_t, std::string>> ToolMarkers(ToolFormat format,
                                                         const Tokenizer& tokenizer);

}  // namespace trimtab
