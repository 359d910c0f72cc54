#include "engine/chat/jinja/text_operations.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

std::function<bool(uint32_t)> Stripped(const std::optional<Text>& characters) {
  if (!characters) return IsSpace;
  std::vector<uint32_t> codes;
  ForEachCharacter(characters->bytes(), [&](uint32_t code, size_t) { codes.push_back(code); });
  return [codes](uint32_t code) { return std::ranges::find(codes, code) != codes.end(); };
}

/// The runs of what is no white space: begin and end of each.
std::vector<std::pair<size_t, size_t>> Words(const Text& text) {
  std::vector<std::pair<size_t, size_t>> words;
  bool inside = false;
  ForEachCharacter(text.bytes(), [&](uint32_t code, size_t at) {
    if (IsSpace(code)) {
      if (inside) words.back().second = at;
      inside = false;
    } else if (!inside) {
      words.emplace_back(at, text.size());
      inside = true;
    }
  });
  return words;
}

size_t WithinLimit(int64_t limit) {
  return limit < 0 ? static_cast<size_t>(-1) : static_cast<size_t>(limit);
}

bool IsLineBreak(uint32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

void RequireSeparator(const Text& separator) {
  if (separator.empty()) throw Failure("empty separator");
}

}  // namespace

Text Strip(const Text& text, Side side, const std::optional<Text>& characters) {
  const auto stripped = Stripped(characters);
  size_t begin = text.size();
  size_t end = 0;
  ForEachCharacter(text.bytes(), [&](uint32_t code, size_t at) {
    if (stripped(code)) return;
    begin = std::min(begin, at);
    end = at + CharacterAt(text.bytes(), at).bytes;
  });
  SpendBytes(text.size() / 4);
  const auto has = [side](Side one) {
    return (static_cast<int>(side) & static_cast<int>(one)) != 0;
  };
  if (!has(Side::kLeft)) begin = 0;
  if (!has(Side::kRight)) end = text.size();
  return begin < end ? text.Slice(begin, end) : Text();
}

std::vector<Text> Split(const Text& text, const std::optional<Text>& separator, int64_t limit) {
  std::vector<Text> parts;
  SpendBytes(text.size());
  if (!separator) {
    for (const auto& [begin, end] : Words(text)) {
      if (parts.size() == WithinLimit(limit)) {
        parts.push_back(Strip(text.Slice(begin, text.size()), Side::kLeft, std::nullopt));
        break;
      }
      parts.push_back(text.Slice(begin, end));
    }
    return parts;
  }
  RequireSeparator(*separator);
  size_t begin = 0;
  while (parts.size() < WithinLimit(limit)) {
    const size_t found = text.bytes().find(separator->bytes(), begin);
    if (found == std::string::npos) break;
    parts.push_back(text.Slice(begin, found));
    begin = found + separator->size();
  }
  parts.push_back(text.Slice(begin, text.size()));
  return parts;
}

std::vector<Text> SplitFromRight(const Text& text, const std::optional<Text>& separator,
                                 int64_t limit) {
  std::vector<Text> parts;
  SpendBytes(text.size());
  if (!separator) {
    const auto words = Words(text);
    for (auto word = words.rbegin(); word != words.rend(); ++word) {
      if (parts.size() == WithinLimit(limit)) {
        parts.push_back(Strip(text.Slice(0, word->second), Side::kRight, std::nullopt));
        break;
      }
      parts.push_back(text.Slice(word->first, word->second));
    }
  } else {
    RequireSeparator(*separator);
    size_t end = text.size();
    while (parts.size() < WithinLimit(limit) && end >= separator->size()) {
      const size_t found = text.bytes().rfind(separator->bytes(), end - separator->size());
      if (found == std::string::npos) break;
      parts.push_back(text.Slice(found + separator->size(), end));
      end = found;
    }
    parts.push_back(text.Slice(0, end));
  }
  std::ranges::reverse(parts);
  return parts;
}

std::vector<Text> SplitLines(const Text& text, bool keep_ends) {
  std::vector<Text> lines;
  SpendBytes(text.size());
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text.bytes(), at);
    size_t next = at + character.bytes;
    if (IsLineBreak(character.code)) {
      if (character.code == '\r' && next < text.size() && text.bytes()[next] == '\n') ++next;
      lines.push_back(text.Slice(begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(text.Slice(begin, text.size()));
  return lines;
}

Text Replace(const Text& text, const Text& old, const Text& by, int64_t count) {
  Text replaced;
  size_t left = WithinLimit(count);
  const auto write = [&] {
    SpendBytes(by.size());
    replaced.Append(by);
    --left;
  };
  SpendBytes(text.size());
  size_t at = 0;
  if (old.empty()) {
    while (left > 0) {
      write();
      if (at == text.size()) break;
      const size_t next = at + CharacterAt(text.bytes(), at).bytes;
      replaced.Append(text, at, next);
      at = next;
    }
  } else {
    while (left > 0) {
      const size_t found = text.bytes().find(old.bytes(), at);
      if (found == std::string::npos) break;
      replaced.Append(text, at, found);
      write();
      at = found + old.size();
    }
  }
  return replaced.Append(text, at, text.size());
}

Text Upper(const Text& text) {
  return MapCharacters(text, [](size_t, uint32_t code) { return UpperOf(code); });
}

Text Lower(const Text& text) {
  return MapCharacters(text, [](size_t, uint32_t code) { return LowerOf(code); });
}

Text Capitalize(const Text& text) {
  return MapCharacters(
      text, [](size_t i, uint32_t code) { return i == 0 ? UpperOf(code) : LowerOf(code); });
}

Text Title(const Text& text) {
  bool after_letter = false;
  return MapCharacters(text, [&after_letter](size_t, uint32_t code) {
    const bool first = !after_letter;
    after_letter = IsUpper(code) || IsLower(code);
    return first ? UpperOf(code) : LowerOf(code);
  });
}

Text Join(const Text& separator, const std::vector<Text>& parts) {
  Text joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    SpendBytes(separator.size() + parts[i].size());
    if (i > 0) joined.Append(separator);
    joined.Append(parts[i]);
  }
  return joined;
}

}  // namespace trimtab::jinja
