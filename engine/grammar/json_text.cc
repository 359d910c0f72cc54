#include "engine/grammar/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

namespace trimtab {
namespace {

using Expr = Grammar::Expr;

constexpr uint32_t kFirstPlain = 0x20;
constexpr int64_t kMostIndent = 64;

/// How a character that may not stand in a string as it is is written there.
std::string EscapeOf(uint32_t point) {
  switch (point) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default:
      return fmt::format("\\u{:04x}", point);
  }
}

CodePoints Escaped() { return CodePoints({{0, kFirstPlain - 1}, {'"', '"'}, {'\\', '\\'}}); }

ByteSet BytesIn(std::string_view bytes) {
  ByteSet set;
  for (const char c : bytes) set.set(static_cast<unsigned char>(c));
  return set;
}

}  // namespace

std::string EscapedContent(std::string_view text) {
  std::string content;
  for (const uint32_t point : CodePointsOf(text)) {
    const bool plain = point >= kFirstPlain && point != '"' && point != '\\';
    content += plain ? Utf8Of(point) : EscapeOf(point);
  }
  return content;
}

Expr JsonText::Space() {
  return grammar_.Named("JSON space", [this] {
    const Expr line =
        grammar_.Sequence({grammar_.Optional(grammar_.Bytes("\r")), grammar_.Bytes("\n")});
    const Expr lines =
        grammar_.Sequence({grammar_.Repeat(line, 1, 2),
                           grammar_.Repeat(grammar_.Set(BytesIn(" \t")), 0, kMostIndent)});
    return grammar_.Choice({grammar_.Sequence({}), grammar_.Bytes(" "), lines});
  });
}

Expr JsonText::Value() {
  return grammar_.Named("JSON value", [this] {
    return grammar_.Choice(
        {Object(), Array(), String(0, Grammar::kUnbounded), Number(), Boolean(), Null()});
  });
}

Expr JsonText::Object() {
  return grammar_.Named("JSON object", [this] {
    const Expr member = Member(String(0, Grammar::kUnbounded), Value());
    return Enclosed('{', List(member, 0, Grammar::kUnbounded), '}');
  });
}

Expr JsonText::Array() {
  return grammar_.Named(
      "JSON array", [this] { return Enclosed('[', List(Value(), 0, Grammar::kUnbounded), ']'); });
}

Expr JsonText::Integer() {
  return grammar_.Named("JSON integer", [this] {
    const Expr digits = grammar_.Repeat(grammar_.Set(ByteRange('0', '9')), 0, Grammar::kUnbounded);
    const Expr whole = grammar_.Choice(
        {grammar_.Bytes("0"), grammar_.Sequence({grammar_.Set(ByteRange('1', '9')), digits})});
    return grammar_.Sequence({grammar_.Optional(grammar_.Bytes("-")), whole});
  });
}

/// Exponents are those whose numbers a double can hold.
Expr JsonText::Number() {
  return grammar_.Named("JSON number", [this] {
    const Expr digit = grammar_.Set(ByteRange('0', '9'));
    const Expr fraction =
        grammar_.Sequence({grammar_.Bytes("."), grammar_.Repeat(digit, 1, Grammar::kUnbounded)});
    const Expr small = grammar_.Sequence({grammar_.Bytes("-"), grammar_.Repeat(digit, 1, 3)});
    const Expr hundreds =
        grammar_.Sequence({grammar_.Set(ByteRange('0', '2')), grammar_.Repeat(digit, 2, 2)});
    const Expr large =
        grammar_.Sequence({grammar_.Optional(grammar_.Bytes("+")),
                           grammar_.Choice({grammar_.Repeat(digit, 1, 2), hundreds})});
    const Expr exponent =
        grammar_.Sequence({grammar_.Set(BytesIn("eE")), grammar_.Choice({small, large})});
    return grammar_.Sequence({Integer(), grammar_.Optional(fraction), grammar_.Optional(exponent)});
  });
}

Expr JsonText::AnyCharacter() {
  return grammar_.Named("JSON character", [this] {
    const auto hex = [this](std::string_view digits) { return grammar_.Set(BytesIn(digits)); };
    const Expr any = hex("0123456789abcdefABCDEF");
    const Expr d = hex("dD");
    // A surrogate stands in a pair: alone it is no character.
    const Expr low = grammar_.Sequence({grammar_.Bytes("\\u"), d, hex("cdefCDEF"), any, any});
    const Expr unit =
        grammar_.Choice({grammar_.Sequence({hex("0123456789abcefABCEF"), any, any, any}),
                         grammar_.Sequence({d, hex("01234567"), any, any}),
                         grammar_.Sequence({d, hex("89abAB"), any, any, low})});
    const Expr escape = grammar_.Sequence(
        {grammar_.Bytes("\\"), grammar_.Choice({grammar_.Set(BytesIn("\"\\/bfnrt")),
                                                grammar_.Sequence({grammar_.Bytes("u"), unit})})});
    return grammar_.Choice({Utf8Expr(Escaped().Not(), grammar_), escape});
  });
}

Expr JsonText::String(int64_t min, int64_t max) {
  const auto make = [&] { return Quoted(grammar_.Repeat(AnyCharacter(), min, max)); };
  if (min == 0 && max == Grammar::kUnbounded) return grammar_.Named("JSON string", make);
  return make();
}

Expr JsonText::Quoted(Expr content) {
  return grammar_.Sequence({grammar_.Bytes("\""), content, grammar_.Bytes("\"")});
}

Expr JsonText::Character(const CodePoints& points) {
  std::vector<Expr> branches;
  const CodePoints plain = points.And(Escaped().Not());
  const CodePoints escaped = points.And(Escaped());
  if (!plain.empty()) branches.push_back(Utf8Expr(plain, grammar_));
  std::vector<std::string> escapes;
  for (const CodePoints::Range& range : escaped.ranges()) {
    for (uint32_t point = range.first; point <= range.last; ++point) {
      escapes.push_back(EscapeOf(point));
    }
  }
  if (!escapes.empty()) branches.push_back(grammar_.Strings(std::move(escapes)));
  return grammar_.Choice(std::move(branches));
}

Expr JsonText::TextOtherThan(std::vector<std::string> texts) {
  std::vector<std::vector<uint32_t>> sorted;
  for (const std::string& text : texts) sorted.push_back(CodePointsOf(text));
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return OtherFrom(sorted, 0, sorted.size(), 0);
}

/// What may follow the first `at` characters, which those from `begin` to `end` share.
Expr JsonText::OtherFrom(const std::vector<std::vector<uint32_t>>& sorted, size_t begin, size_t end,
                         size_t at) {
  std::vector<Expr> branches;
  if (begin < end && sorted[begin].size() == at) {
    ++begin;
  } else {
    branches.push_back(grammar_.Sequence({}));
  }
  CodePoints others = CodePoints::All();
  while (begin < end) {
    const uint32_t point = sorted[begin][at];
    size_t next = begin;
    while (next < end && sorted[next][at] == point) ++next;
    branches.push_back(grammar_.Sequence(
        {Character(CodePoints::One(point)), OtherFrom(sorted, begin, next, at + 1)}));
    others = others.And(CodePoints::One(point).Not());
    begin = next;
  }
  const Expr rest = grammar_.Named("JSON text", [this] {
    return grammar_.Repeat(Character(CodePoints::All()), 0, Grammar::kUnbounded);
  });
  branches.push_back(grammar_.Sequence({Character(others), rest}));
  return grammar_.Choice(std::move(branches));
}

Expr JsonText::Literal(const nlohmann::ordered_json& value) {
  if (value.is_string()) {
    return grammar_.Bytes("\"" + EscapedContent(value.get_ref<const std::string&>()) + "\"");
  }
  if (!value.is_structured()) return grammar_.Bytes(value.dump());
  std::vector<Expr> parts;
  for (const auto& [key, member] : value.items()) {
    Expr part = Literal(member);
    if (value.is_object()) part = Member(grammar_.Bytes("\"" + EscapedContent(key) + "\""), part);
    parts.push_back(parts.empty() ? part : Next(part));
  }
  return value.is_object() ? Enclosed('{', grammar_.Sequence(std::move(parts)), '}')
                           : Enclosed('[', grammar_.Sequence(std::move(parts)), ']');
}

Expr JsonText::Enclosed(char open, Expr inner, char close) {
  return grammar_.Sequence(
      {grammar_.Bytes({&open, 1}), Space(), inner, Space(), grammar_.Bytes({&close, 1})});
}

Expr JsonText::Member(Expr key, Expr value) {
  return grammar_.Sequence({key, Space(), grammar_.Bytes(":"), Space(), value});
}

Expr JsonText::Next(Expr next) {
  return grammar_.Sequence({Space(), grammar_.Bytes(","), Space(), next});
}

Expr JsonText::List(Expr item, int64_t min, int64_t max) {
  if (max == 0) return grammar_.Sequence({});
  item = grammar_.Shared(item);
  const int64_t more = max == Grammar::kUnbounded ? max : max - 1;
  const Expr some =
      grammar_.Sequence({item, grammar_.Repeat(Next(item), min > 0 ? min - 1 : 0, more)});
  return min > 0 ? some : grammar_.Optional(some);
}

}  // namespace trimtab
