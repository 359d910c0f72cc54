// Fields that say which texts an answer may be.
#include <array>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

using enum FieldKind;
using Kind = GrammarSource::Kind;

void Add(Asked& asked, const FieldValue& value, Kind kind, std::string text) {
  asked.grammars.emplace_back(value.path(), GrammarSource{kind, std::move(text)});
}

/// A schema is an object, or the text of one.
void AddSchema(Asked& asked, const FieldValue& value) {
  if (value.json().is_string()) return Add(asked, value, Kind::kJsonSchema, value.Text());
  value.RequireObject();
  Add(asked, value, Kind::kJsonSchema, value.json().dump());
}

void AddRegex(Asked& asked, const FieldValue& value) {
  Add(asked, value, Kind::kRegex, value.Text());
}

void AddChoice(Asked& asked, const FieldValue& value) {
  if (value.Texts().empty()) value.Refuse("at least one text");
  Add(asked, value, Kind::kChoice, value.json().dump());
}

void AddGrammar(Asked& asked, const FieldValue& value) {
  if (value.Text().empty()) return;
  Add(asked, value, Kind::kGrammar, value.Text());
}

void AddJsonObject(Asked& asked, const FieldValue& value) {
  if (value.Boolean()) Add(asked, value, Kind::kJsonObject, "");
}

void AddFormat(Asked& asked, const FieldValue& value) {
  if (std::optional<GrammarSource> source = ReadFormat(value)) {
    asked.grammars.emplace_back(value.path(), *std::move(source));
  }
}

/// vLLM's: one of several ways.
void AddStructured(Asked& asked, const FieldValue& value) {
  value.RequireKeys({"json", "regex", "choice", "grammar", "json_object", "structural_tag",
                     "disable_any_whitespace", "disable_additional_properties", "disable_fallback",
                     "whitespace_pattern"});
  const auto with = [&](const char* key, void (*add)(Asked&, const FieldValue&)) {
    const FieldValue each = value.At(key);
    if (!each.null()) add(asked, each);
  };
  with("json", AddSchema);
  with("regex", AddRegex);
  with("choice", AddChoice);
  with("grammar", AddGrammar);
  with("json_object", AddJsonObject);
  for (const char* key : {"structural_tag", "whitespace_pattern"}) {
    if (!value.At(key).null()) value.At(key).Refuse("null: use json, regex, choice or grammar");
  }
}

/// A response's: {"format": ...}.
void AddTextFormat(Asked& asked, const FieldValue& value) {
  value.RequireKeys({"format", "verbosity"});
  const FieldValue format = value.At("format");
  if (!format.null()) AddFormat(asked, format);
  const FieldValue verbosity = value.At("verbosity");
  if (!verbosity.null()) asked.template_kwargs["verbosity"] = verbosity.Text();
}

constexpr std::array kFields = {
    Field{"response_format", kText, kTaken, R"("type":"object")", "",
          "text, json_object or json_schema", AddFormat},
    Field{"text", kResponses, kTaken, R"("type":"object")", "",
          "format: text, json_object or json_schema", AddTextFormat},
    Field{"structured_outputs", kText, kTaken, R"("type":"object")", "",
          "json, regex, choice, grammar or json_object", AddStructured},
    Field{"guided_json", kText, kTaken, R"("type":["object","string"])", "",
          "the answer is JSON of this schema", AddSchema},
    Field{"guided_regex", kText, kTaken, R"("type":"string")", "",
          "the answer matches this regular expression", AddRegex},
    Field{"guided_choice", kText, kTaken, R"("type":"array")", "",
          "the answer is one of these texts", AddChoice},
    Field{"guided_grammar", kText, kTaken, R"("type":"string")", "",
          "the answer is of this grammar (GBNF)", AddGrammar},
    Field{"guided_json_object", kText, kTaken, R"("type":"boolean")", "",
          "the answer is a JSON object", AddJsonObject},
    Field{"guided_decoding_backend", kText, kNothing, R"("type":"string")", "",
          "there is one way to keep to a grammar"},
    Field{"guided_whitespace_pattern", kText, kNeutral, R"("type":"string")", "[]",
          "use guided_regex or guided_grammar"},
    Field{"structural_tag", kText, kNeutral, R"("type":["object","string"])", "[]",
          "use tools, or a grammar"},
    Field{"json_schema", kText, kTaken, R"("type":"object")", "", "llama.cpp's name of guided_json",
          AddSchema},
    Field{"grammar", kText, kTaken, R"("type":"string")", "", "llama.cpp's name of guided_grammar",
          AddGrammar},
    Field{"grammar_lazy", kText, kNeutral, R"("type":"boolean")", "[false]",
          "a grammar holds from the first token"},
    Field{"grammar_triggers", kText, kNeutral, R"("type":"array")", "[[]]",
          "a grammar holds from the first token"},
    Field{"preserved_tokens", kText, kNothing, R"("type":"array")", "",
          "skip_special_tokens says what is shown"},
};

}  // namespace

std::span<const Field> GrammarFields() { return kFields; }

}  // namespace trimtab
