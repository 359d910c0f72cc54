#include <fmt/core.h>

#include <algorithm>

#include "engine/chat/jinja/arguments.h"
#include "engine/chat/jinja/filters.h"
#include "engine/chat/jinja/format.h"
#include "engine/chat/jinja/json_value.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/text_operations.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

using Args = const Arguments&;

Value FilterTrim(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("trim", arguments, {"chars"});
  return Value(Strip(Str(value), Side::kBoth, matched.TextOf(0)), value.markup());
}

Value FilterReplace(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("replace", arguments, {"old", "new", "count"});
  return Value(
      Replace(Str(value), Str(matched.Get(0)), Str(matched.Get(1)), matched.Integer(2, -1)));
}

/// As Jinja's, which is not str.title: a word begins after white space and -({[<.
Value FilterTitle(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  bool begins = true;
  return Value(MapCharacters(Str(value), [&begins](size_t, uint32_t code) {
    const bool separates =
        IsSpace(code) ||
        (code < 0x80 && code != 0 &&
         std::string_view("-({[<").find(static_cast<char>(code)) != std::string_view::npos);
    const bool first = begins;
    begins = separates;
    return first ? UpperOf(code) : LowerOf(code);
  }));
}

Value FilterIndent(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("indent", arguments, {"width", "first", "blank"});
  RequireDefined(value);
  if (!value.is_string()) throw Failure("indent() expects a string");
  Text indention(std::string(4, ' '));
  if (matched.Has(0) && matched.Get(0).is_string()) {
    indention = matched.RequiredText(0);
  } else if (matched.Has(0)) {
    const int64_t width = matched.Integer(0, 4);
    if (width > 10000) throw Failure("indent() by more than 10000 characters");
    indention = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  Text text = value.text();
  text.Append("\n");
  const std::vector<Text> lines = SplitLines(text, false);
  Text indented = matched.Boolean(1, false) ? indention : Text();
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      indented.Append("\n");
      if (matched.Boolean(2, false) || !lines[i].empty()) indented.Append(indention);
      SpendBytes(indention.size());
    }
    indented.Append(lines[i]);
  }
  return Value(std::move(indented), value.markup());
}

Value FilterTruncate(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("truncate", arguments, {"length", "killwords", "end", "leeway"});
  RequireDefined(value);
  if (!value.is_string()) throw Failure("truncate() expects a string");
  const int64_t length = matched.Integer(0, 255);
  const Text end = matched.TextOf(2).value_or(Text("..."));
  const auto end_length = static_cast<int64_t>(CharacterCount(end.bytes()));
  const int64_t leeway = matched.Integer(3, 5);
  if (length < end_length || leeway < 0) {
    throw Failure(fmt::format("truncate() expects length >= {} and leeway >= 0", end_length));
  }
  const Text& text = value.text();
  if (Length(value) - leeway <= length) return value;
  Text cut = text.Slice(0, ByteOffset(text.bytes(), static_cast<size_t>(length - end_length)));
  if (!matched.Boolean(1, false)) {
    const size_t space = cut.bytes().rfind(' ');
    if (space != std::string::npos) cut = cut.Slice(0, space);
  }
  return Value(cut.Append(end));
}

Value FilterWordCount(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  int64_t count = 0;
  bool inside = false;
  const Text text = Str(value);
  ForEachCharacter(text.bytes(), [&](uint32_t code, size_t) {
    const bool word = IsWordCharacter(code);
    if (word && !inside) ++count;
    inside = word;
  });
  return count;
}

std::string UrlQuoted(const Value& value, bool in_query) {
  std::string quoted;
  const Text text = Str(value);
  for (const char c : text.bytes()) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("_.-~").find(c) != std::string_view::npos;
    if (plain || (c == '/' && !in_query)) {
      quoted += c;
    } else if (c == ' ' && in_query) {
      quoted += '+';
    } else {
      quoted += fmt::format("%{:02X}", byte);
    }
  }
  return quoted;
}

Value FilterUrlEncode(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  Entries pairs;
  if (const Dict* dict = value.dict()) {
    pairs = dict->entries();
  } else if (value.is_sequence()) {
    for (const Value& item : Items(value)) {
      const std::vector<Value> two = Items(item);
      if (two.size() != 2) throw Failure("urlencode() expects pairs");
      pairs.emplace_back(two[0], two[1]);
    }
  } else {
    return Value(Text(UrlQuoted(value, false), kInput));
  }
  std::string query;
  for (const auto& [name, each] : pairs) {
    if (!query.empty()) query += '&';
    query += UrlQuoted(name, true) + "=" + UrlQuoted(each, true);
  }
  return Value(Text(std::move(query), kInput));
}

Value FilterFormat(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  if (arguments.keywords.empty()) {
    return Value(PercentFormat(Str(value), Value::Tuple(arguments.positional)));
  }
  if (!arguments.positional.empty()) {
    throw Failure("format() takes arguments by position or by name, not both");
  }
  Entries entries;
  for (const auto& [name, each] : arguments.keywords) entries.emplace_back(Value(name), each);
  return Value(PercentFormat(Str(value), MakeDict(entries)));
}

/// tojson as chat templates have it: nothing is escaped for HTML.
Value FilterToJson(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = matched.Boolean(0, false);
  style.sort_keys = matched.Boolean(3, false);
  const Value indent = matched.GetOr(1, Value());
  if (indent.is_string()) style.indent = indent.bytes();
  if (!indent.is_string() && !indent.is_none()) {
    const int64_t width = std::clamp<int64_t>(matched.Integer(1, 0), 0, 1000);
    style.indent = std::string(static_cast<size_t>(width), ' ');
  }
  if (style.indent) style.item_separator = ",";
  if (const Value separators = matched.GetOr(2, Value()); !separators.is_none()) {
    const std::vector<Value> two = Items(separators);
    if (two.size() != 2 || !two[0].is_string() || !two[1].is_string()) {
      throw Failure("tojson() expects two strings as separators");
    }
    style.item_separator = two[0].bytes();
    style.key_separator = two[1].bytes();
  }
  return Value(ToJson(value, style));
}

Value FilterEscape(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  return value.markup() ? value : Value(Escaped(Str(value)), true);
}

Value FilterStripTags(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  const Text text = Str(value);
  Text kept;
  for (size_t at = 0; at < text.size();) {
    const size_t open = std::min(text.bytes().find('<', at), text.size());
    const size_t close = text.bytes().find('>', open);
    const bool tag = open < text.size() && close != std::string::npos;
    kept.Append(text, at, tag ? open : text.size());
    at = tag ? close + 1 : text.size();
  }
  return Value(Join(Text(" "), Split(kept, std::nullopt, -1)));
}

Value FilterCenter(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  FormatSpec spec;
  const int64_t width = Matched("center", arguments, {"width"}).Integer(0, 80);
  if (width > 100000) throw Failure("center() in more than 100000 characters");
  const Text text = Str(value);
  const auto missing = width - static_cast<int64_t>(CharacterCount(text.bytes()));
  if (missing <= 0) return Value(text);
  const int64_t left = missing / 2 + (missing & width & 1);
  Text centred(std::string(static_cast<size_t>(left), ' '));
  centred.Append(text).Append(std::string(static_cast<size_t>(missing - left), ' '));
  return Value(std::move(centred));
}

}  // namespace

const std::vector<FilterRow>& TextFilters() {
  static const std::vector<FilterRow> kFilters = {
      {"trim", FilterTrim},
      {"replace", FilterReplace},
      {"title", FilterTitle},
      {"indent", FilterIndent},
      {"truncate", FilterTruncate},
      {"wordcount", FilterWordCount},
      {"urlencode", FilterUrlEncode},
      {"format", FilterFormat},
      {"tojson", FilterToJson},
      {"escape", FilterEscape},
      {"e", FilterEscape},
      {"striptags", FilterStripTags},
      {"center", FilterCenter},
      {"upper",
       [](Interpreter&, const Value& v, Args) { return Value(Upper(Str(v)), v.markup()); }},
      {"lower",
       [](Interpreter&, const Value& v, Args) { return Value(Lower(Str(v)), v.markup()); }},
      {"capitalize", [](Interpreter&, const Value& v, Args) { return Value(Capitalize(Str(v))); }},
      {"string", [](Interpreter&, const Value& v, Args) { return Value(Str(v), v.markup()); }},
      {"safe", [](Interpreter&, const Value& v, Args) { return Value(Str(v), true); }},
      {"forceescape",
       [](Interpreter&, const Value& v, Args) { return Value(Escaped(Str(v)), true); }},
  };
  return kFilters;
}

}  // namespace trimtab::jinja
