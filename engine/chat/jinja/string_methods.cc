#include <fmt/core.h>

#include <algorithm>

#include "engine/chat/jinja/arguments.h"
#include "engine/chat/jinja/format.h"
#include "engine/chat/jinja/methods.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/text_operations.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

using Args = const Arguments&;

template <Side Sides>
Value StripMethod(const Value& self, Args arguments) {
  const Matched matched("strip", arguments, {"chars"});
  return Value(Strip(self.text(), Sides, matched.TextOf(0)), self.markup());
}

Value ListOf(std::vector<Text> parts) {
  std::vector<Value> items;
  for (Text& part : parts) items.emplace_back(std::move(part));
  return Value::List(std::move(items));
}

template <bool FromRight>
Value SplitMethod(const Value& self, Args arguments) {
  const Matched matched("split", arguments, {"sep", "maxsplit"});
  const auto split = FromRight ? SplitFromRight : Split;
  return ListOf(split(self.text(), matched.TextOf(0), matched.Integer(1, -1)));
}

/// The part of `self` that the arguments `start` and `end` of `matched`, from `place` on, choose;
/// with the number of characters before it.
std::pair<std::string, int64_t> Range(const Value& self, const Matched& matched, size_t place) {
  const Value begin = matched.GetOr(place, Value());
  const Value part = GetSlice(self, begin, matched.GetOr(place + 1, Value()), Value());
  int64_t before = matched.Integer(place, 0);
  if (before < 0) before = std::max<int64_t>(before + Length(self), 0);
  return {part.bytes(), before};
}

template <bool AtEnd>
Value StartsMethod(const Value& self, Args arguments) {
  const Matched matched(AtEnd ? "endswith" : "startswith", arguments, {"prefix", "start", "end"});
  const Value& prefix = matched.Get(0);
  const std::string part = Range(self, matched, 1).first;
  const auto has = [&part](const Value& each) {
    if (!each.is_string()) {
      throw Failure(
          fmt::format("startswith and endswith expect str or a tuple of str, not {}", each.type()));
    }
    return AtEnd ? part.ends_with(each.bytes()) : part.starts_with(each.bytes());
  };
  if (prefix.is_sequence() && prefix.sequence()->form == Sequence::Form::kTuple) {
    return Value(std::ranges::any_of(prefix.sequence()->items, has));
  }
  return Value(has(prefix));
}

enum class Missing { kMinusOne, kFailure };

template <bool FromRight, Missing IfMissing>
Value FindMethod(const Value& self, Args arguments) {
  const Matched matched("find", arguments, {"sub", "start", "end"});
  const std::string sub = matched.RequiredText(0).bytes();
  const auto [part, before] = Range(self, matched, 1);
  const size_t found = FromRight ? part.rfind(sub) : part.find(sub);
  if (found == std::string::npos || before > Length(self)) {
    if (IfMissing == Missing::kFailure) throw Failure("substring not found");
    return int64_t{-1};
  }
  return before + static_cast<int64_t>(CharacterCount(std::string_view(part).substr(0, found)));
}

Value CountMethod(const Value& self, Args arguments) {
  const Matched matched("count", arguments, {"sub", "start", "end"});
  const std::string sub = matched.RequiredText(0).bytes();
  const std::string part = Range(self, matched, 1).first;
  if (sub.empty()) return static_cast<int64_t>(CharacterCount(part)) + 1;
  int64_t count = 0;
  for (size_t at = part.find(sub); at != std::string::npos; at = part.find(sub, at + sub.size())) {
    ++count;
  }
  return count;
}

template <bool AtEnd>
Value RemoveMethod(const Value& self, Args arguments) {
  const std::string affix = Matched("remove", arguments, {"affix"}).RequiredText(0).bytes();
  const Text& text = self.text();
  if (AtEnd && text.bytes().ends_with(affix)) {
    return Value(text.Slice(0, text.size() - affix.size()), self.markup());
  }
  if (!AtEnd && text.bytes().starts_with(affix)) {
    return Value(text.Slice(affix.size(), text.size()), self.markup());
  }
  return self;
}

template <bool FromRight>
Value PartitionMethod(const Value& self, Args arguments) {
  const Text separator = Matched("partition", arguments, {"sep"}).RequiredText(0);
  if (separator.empty()) throw Failure("empty separator");
  const Text& text = self.text();
  const size_t found =
      FromRight ? text.bytes().rfind(separator.bytes()) : text.bytes().find(separator.bytes());
  if (found == std::string::npos) {
    return FromRight ? Value::Tuple({Value(""), Value(""), self})
                     : Value::Tuple({self, Value(""), Value("")});
  }
  const size_t after = found + separator.size();
  return Value::Tuple({Value(text.Slice(0, found)), Value(text.Slice(found, after)),
                       Value(text.Slice(after, text.size()))});
}

Value ReplaceMethod(const Value& self, Args arguments) {
  const Matched matched("replace", arguments, {"old", "new", "count"});
  const Text by = self.markup() && !matched.Get(1).markup() ? Escaped(matched.RequiredText(1))
                                                            : matched.RequiredText(1);
  return Value(Replace(self.text(), matched.RequiredText(0), by, matched.Integer(2, -1)),
               self.markup());
}

Value JoinMethod(const Value& self, Args arguments) {
  std::vector<Text> parts;
  for (const Value& item : Items(Matched("join", arguments, {"iterable"}).Get(0))) {
    if (!item.is_string()) {
      throw Failure(fmt::format("sequence item {}: expected str instance, {} found", parts.size(),
                                item.type()));
    }
    parts.push_back(item.text());
  }
  return Value(Join(self.text(), parts), self.markup());
}

/// True if there is a character and `is` holds for all.
template <bool (*Is)(uint32_t)>
Value AllMethod(const Value& self, Args arguments) {
  const Matched matched("is", arguments, {});
  bool all = !self.text().empty();
  ForEachCharacter(self.bytes(), [&all](uint32_t code, size_t) { all &= Is(code); });
  return Value(all);
}

template <bool Upper>
Value CaseMethod(const Value& self, Args arguments) {
  const Matched matched("is", arguments, {});
  bool some = false;
  bool other = false;
  ForEachCharacter(self.bytes(), [&](uint32_t code, size_t) {
    some |= Upper ? IsUpper(code) : IsLower(code);
    other |= Upper ? IsLower(code) : IsUpper(code);
  });
  return Value(some && !other);
}

bool IsLetterOrDigit(uint32_t code) { return code != '_' && IsWordCharacter(code); }

template <Text (*Change)(const Text&)>
Value ChangeMethod(const Value& self, Args arguments) {
  const Matched matched("change", arguments, {});
  return Value(Change(self.text()), self.markup());
}

/// ljust, rjust and center.
template <char Align>
Value AlignMethod(const Value& self, Args arguments) {
  const Matched matched("just", arguments, {"width", "fillchar"});
  matched.Get(0);
  const int64_t width = matched.Integer(0, 0);
  const Text fill = matched.TextOf(1).value_or(Text(" "));
  if (CharacterCount(fill.bytes()) != 1) throw Failure("expected one character to fill with");
  if (width > 100000) throw Failure("more than 100000 characters asked for");
  const int64_t missing = std::max<int64_t>(width - Length(self), 0);
  const int64_t before = Align == '<'   ? 0
                         : Align == '>' ? missing
                                        : missing / 2 + (missing & width & 1);
  Text text;
  for (int64_t i = 0; i < before; ++i) text.Append(fill);
  text.Append(self.text());
  for (int64_t i = before; i < missing; ++i) text.Append(fill);
  return Value(std::move(text), self.markup());
}

Value ZeroFillMethod(const Value& self, Args arguments) {
  const Matched matched("zfill", arguments, {"width"});
  matched.Get(0);
  const int64_t width = matched.Integer(0, 0);
  if (width > 100000) throw Failure("more than 100000 characters asked for");
  const auto missing = static_cast<size_t>(std::max<int64_t>(width - Length(self), 0));
  const size_t sign = self.bytes().starts_with('-') || self.bytes().starts_with('+') ? 1 : 0;
  Text text = self.text().Slice(0, sign);
  text.Append(std::string(missing, '0'));
  return Value(text.Append(self.text(), sign, self.text().size()));
}

Value SplitLinesMethod(const Value& self, Args arguments) {
  const Matched matched("splitlines", arguments, {"keepends"});
  return ListOf(SplitLines(self.text(), matched.Boolean(0, false)));
}

Text SwapCase(const Text& text) {
  return MapCharacters(
      text, [](size_t, uint32_t code) { return IsUpper(code) ? LowerOf(code) : UpperOf(code); });
}

}  // namespace

const std::vector<MethodRow>& StringMethods() {
  static const std::vector<MethodRow> kMethods = {
      {"strip", StripMethod<Side::kBoth>},
      {"lstrip", StripMethod<Side::kLeft>},
      {"rstrip", StripMethod<Side::kRight>},
      {"split", SplitMethod<false>},
      {"rsplit", SplitMethod<true>},
      {"splitlines", SplitLinesMethod},
      {"partition", PartitionMethod<false>},
      {"rpartition", PartitionMethod<true>},
      {"startswith", StartsMethod<false>},
      {"endswith", StartsMethod<true>},
      {"removeprefix", RemoveMethod<false>},
      {"removesuffix", RemoveMethod<true>},
      {"find", FindMethod<false, Missing::kMinusOne>},
      {"rfind", FindMethod<true, Missing::kMinusOne>},
      {"index", FindMethod<false, Missing::kFailure>},
      {"rindex", FindMethod<true, Missing::kFailure>},
      {"count", CountMethod},
      {"replace", ReplaceMethod},
      {"join", JoinMethod},
      {"format", [](const Value& self,
                    Args all) { return Value(BraceFormat(self.text(), all), self.markup()); }},
      {"upper", ChangeMethod<Upper>},
      {"lower", ChangeMethod<Lower>},
      {"casefold", ChangeMethod<Lower>},
      {"title", ChangeMethod<Title>},
      {"capitalize", ChangeMethod<Capitalize>},
      {"swapcase", ChangeMethod<SwapCase>},
      {"isalpha", AllMethod<IsLetter>},
      {"isdigit", AllMethod<IsDigit>},
      {"isdecimal", AllMethod<IsDigit>},
      {"isnumeric", AllMethod<IsDigit>},
      {"isalnum", AllMethod<IsLetterOrDigit>},
      {"isspace", AllMethod<IsSpace>},
      {"isupper", CaseMethod<true>},
      {"islower", CaseMethod<false>},
      {"ljust", AlignMethod<'<'>},
      {"rjust", AlignMethod<'>'>},
      {"center", AlignMethod<'^'>},
      {"zfill", ZeroFillMethod},
  };
  return kMethods;
}

}  // namespace trimtab::jinja
