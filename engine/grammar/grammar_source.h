// GrammarSource: the text that describes which answers a request takes.
#pragma once

#include <string>
#include <string_view>

namespace trimtab {

struct GrammarSource {
  enum class Kind {
    kJsonObject,  // any JSON object; `text` is empty
    kJsonSchema,  // JSON that `text`, a JSON schema, describes
    kRegex,       // text that matches the regular expression as a whole
    kChoice,      // one of the strings of a JSON array
    kGrammar,     // a grammar as llama.cpp writes them (GBNF)
  };

  Kind kind = Kind::kJsonObject;
  std::string text{};

  auto operator<=>(const GrammarSource&) const = default;
};

/// "JSON object", "JSON schema", "regex", "choice", "grammar": the beginning of a message.
std::string_view Name(GrammarSource::Kind kind);

}  // namespace trimtab
