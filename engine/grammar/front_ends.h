// The languages in which grammars are written. Each throws InputError that says where and why.
#pragma once

#include <string_view>

#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_source.h"

namespace trimtab {

/// The rule of the texts that `source` describes, added to `grammar`.
Grammar::Rule RootOf(const GrammarSource& source, Grammar& grammar);

/// A JSON schema (json_schema.cc).
Grammar::Expr JsonSchemaExpr(std::string_view text, Grammar& grammar);
/// A JSON array of strings.
Grammar::Expr ChoiceExpr(std::string_view text, Grammar& grammar);
/// GBNF (gbnf.cc).
Grammar::Expr GbnfExpr(std::string_view text, Grammar& grammar);

}  // namespace trimtab
