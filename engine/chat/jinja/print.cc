#include "engine/chat/jinja/print.h"

#include <fmt/core.h>

#include <charconv>
#include <cmath>

#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

/// A string as Python quotes it: in ' unless it has one and no ".
Text Quoted(const Text& text) {
  const std::string& bytes = text.bytes();
  const bool has_single = bytes.find('\'') != std::string::npos;
  const char quote = has_single && bytes.find('"') == std::string::npos ? '"' : '\'';
  Text quoted(std::string(1, quote));
  quoted.Append(MapCharacters(text, [quote](size_t, uint32_t code) -> std::string {
    if (code == '\\') return "\\\\";
    if (code == '\n') return "\\n";
    if (code == '\r') return "\\r";
    if (code == '\t') return "\\t";
    if (code == static_cast<uint32_t>(quote)) return std::string("\\") + quote;
    if (!IsPrintable(code)) {
      if (code < 0x100) return fmt::format("\\x{:02x}", code);
      return code < 0x10000 ? fmt::format("\\u{:04x}", code) : fmt::format("\\U{:08x}", code);
    }
    std::string plain;
    AppendCharacter(code, plain);
    return plain;
  }));
  return quoted.Append(std::string(1, quote));
}

Text SequenceRepr(const Sequence& sequence) {
  if (sequence.form == Sequence::Form::kRange) return Text(sequence.label);
  if (sequence.form == Sequence::Form::kIterator) {
    return Text(fmt::format("<{} object>", sequence.label));
  }
  const bool tuple = sequence.form == Sequence::Form::kTuple;
  Text text(tuple ? "(" : sequence.label.empty() ? "[" : sequence.label + "([");
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i > 0) text.Append(", ");
    text.Append(Repr(sequence.items[i]));
  }
  if (tuple && sequence.items.size() == 1) text.Append(",");
  return text.Append(tuple ? ")" : sequence.label.empty() ? "]" : "])");
}

Text DictRepr(const Dict& dict) {
  Text text("{");
  for (const auto& [key, value] : dict.entries()) {
    if (text.size() > 1) text.Append(", ");
    text.Append(Repr(key)).Append(": ").Append(Repr(value));
  }
  return text.Append("}");
}

}  // namespace

std::string FloatRepr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[64];
  const auto shortest =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string scientific(buffer, shortest.ptr);
  const size_t mark = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(mark + 1));
  if (exponent < -4 || exponent >= 16) {
    return fmt::format("{}e{}{:02}", scientific.substr(0, mark), exponent < 0 ? '-' : '+',
                       std::abs(exponent));
  }
  const auto fixed = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::fixed);
  std::string text(buffer, fixed.ptr);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

Text Str(const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return Text();
  return Repr(value);
}

Text Repr(const Value& value) {
  SpendStep();
  if (value.is_undefined()) return Text("Undefined");
  if (value.is_none()) return Text("None");
  if (value.is_boolean()) return Text(value.integer() != 0 ? "True" : "False");
  if (value.is_integer()) return Text(std::to_string(value.integer()));
  if (value.is_float()) return Text(FloatRepr(value.number()));
  if (value.is_string()) {
    Text text = Quoted(value.text());
    SpendBytes(text.size());
    return value.markup() ? Text("Markup(").Append(text).Append(")") : text;
  }
  if (const Sequence* sequence = value.sequence()) return SequenceRepr(*sequence);
  if (const Dict* dict = value.dict()) return DictRepr(*dict);
  return value.object()->Print();
}

bool Truth(const Value& value) {
  if (value.is_undefined() || value.is_none()) return false;
  if (value.is_float()) return value.number() != 0;
  if (value.is_boolean() || value.is_integer()) return value.integer() != 0;
  if (value.is_string()) return !value.text().empty();
  if (const Sequence* sequence = value.sequence()) {
    return sequence->form == Sequence::Form::kIterator || !sequence->items.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->entries().empty();
  return true;
}

std::vector<Value> Items(const Value& value) {
  std::vector<Value> items;
  if (value.is_undefined()) return items;
  if (value.is_string()) {
    const Text& text = value.text();
    for (size_t at = 0; at < text.size();) {
      const size_t next = at + CharacterAt(text.bytes(), at).bytes;
      items.emplace_back(text.Slice(at, next));
      at = next;
    }
    SpendBytes(items.size() * sizeof(Value));
    return items;
  }
  if (const Sequence* sequence = value.sequence()) {
    SpendBytes(sequence->items.size() * sizeof(Value));
    if (sequence->form != Sequence::Form::kIterator) return sequence->items;
    items.assign(sequence->items.begin() + static_cast<std::ptrdiff_t>(sequence->consumed),
                 sequence->items.end());
    sequence->consumed = sequence->items.size();
    return items;
  }
  if (const Dict* dict = value.dict()) {
    SpendBytes(dict->entries().size() * sizeof(Value));
    for (const auto& [key, unused] : dict->entries()) items.push_back(key);
    return items;
  }
  throw Failure(fmt::format("'{}' object is not iterable", value.type()));
}

int64_t Length(const Value& value) {
  if (value.is_undefined()) return 0;
  if (value.is_string()) return static_cast<int64_t>(CharacterCount(value.bytes()));
  if (const Sequence* sequence = value.sequence()) {
    if (sequence->form != Sequence::Form::kIterator) return std::ssize(sequence->items);
  }
  if (const Dict* dict = value.dict()) return std::ssize(dict->entries());
  if (value.object() != nullptr) {
    if (const auto length = value.object()->Attribute("length"); length && length->is_integer()) {
      return length->integer();
    }
  }
  throw Failure(fmt::format("object of type '{}' has no len()", value.type()));
}

}  // namespace trimtab::jinja
