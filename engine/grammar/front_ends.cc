#include "engine/grammar/front_ends.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "engine/grammar/code_points.h"
#include "engine/grammar/json_text.h"
#include "engine/grammar/regex.h"

namespace trimtab {

std::string_view Name(GrammarSource::Kind kind) {
  switch (kind) {
    case GrammarSource::Kind::kJsonObject:
      return "JSON object";
    case GrammarSource::Kind::kJsonSchema:
      return "JSON schema";
    case GrammarSource::Kind::kRegex:
      return "regex";
    case GrammarSource::Kind::kChoice:
      return "choice";
    case GrammarSource::Kind::kGrammar:
      return "grammar";
  }
  return "";
}

Grammar::Expr ChoiceExpr(std::string_view text, Grammar& grammar) {
  constexpr size_t kMostChoices = 10'000;
  const nlohmann::json list = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array() || list.empty()) throw InputError("expected a list of at least one string");
  if (list.size() > kMostChoices) {
    throw InputError(fmt::format("{} strings; expected at most {}", list.size(), kMostChoices));
  }
  std::vector<std::string> strings;
  for (const nlohmann::json& each : list) {
    if (!each.is_string()) throw InputError("expected a list of strings");
    strings.push_back(each.get<std::string>());
  }
  return grammar.Strings(std::move(strings));
}

Grammar::Rule RootOf(const GrammarSource& source, Grammar& grammar) {
  const auto body = [&]() -> Grammar::Expr {
    switch (source.kind) {
      case GrammarSource::Kind::kJsonObject: {
        JsonText json(grammar);
        return grammar.Sequence({json.Space(), json.Object()});
      }
      case GrammarSource::Kind::kJsonSchema:
        return JsonSchemaExpr(source.text, grammar);
      case GrammarSource::Kind::kRegex: {
        const RegexOptions options = {
            .encode = [&](const CodePoints& points) { return Utf8Expr(points, grammar); }};
        return RegexExpr(source.text, options, grammar);
      }
      case GrammarSource::Kind::kChoice:
        return ChoiceExpr(source.text, grammar);
      case GrammarSource::Kind::kGrammar:
        return GbnfExpr(source.text, grammar);
    }
    return grammar.Never();
  };
  const Grammar::Rule root = grammar.AddRule();
  grammar.SetBody(root, body());
  return root;
}

}  // namespace trimtab
