#include "engine/chat/jinja/json_value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

std::string EscapedCharacter(uint32_t code, bool ensure_ascii) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    case '\f':
      return "\\f";
    case '\b':
      return "\\b";
    default:
      break;
  }
  if (code < 0x20 || (ensure_ascii && code > 0x7E && code < 0x10000)) {
    return fmt::format("\\u{:04x}", code);
  }
  if (ensure_ascii && code >= 0x10000) {
    const uint32_t rest = code - 0x10000;
    return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }
  std::string plain;
  AppendCharacter(code, plain);
  return plain;
}

class JsonWriter {
 public:
  explicit JsonWriter(const JsonStyle& style) : style_(style) {}

  void Write(const Value& value) {
    SpendStep();
    if (value.is_none()) {
      out_.Append("null");
    } else if (value.is_boolean()) {
      out_.Append(value.integer() != 0 ? "true" : "false");
    } else if (value.is_integer()) {
      out_.Append(std::to_string(value.integer()));
    } else if (value.is_float()) {
      out_.Append(FloatText(value.number()));
    } else if (value.is_string()) {
      WriteString(value.text());
    } else if (const Dict* dict = value.dict()) {
      WriteDict(*dict);
    } else if (IsArray(value)) {
      WriteArray(value.sequence()->items);
    } else {
      throw Failure(fmt::format("Object of type {} is not JSON serializable", value.type()));
    }
  }

  Text Take() { return std::move(out_); }

 private:
  static bool IsArray(const Value& value) {
    const Sequence* sequence = value.sequence();
    return sequence != nullptr &&
           (sequence->form == Sequence::Form::kList || sequence->form == Sequence::Form::kTuple);
  }

  static std::string FloatText(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return FloatRepr(value);
  }

  void WriteString(const Text& text) {
    out_.Append("\"");
    out_.Append(MapCharacters(text, [this](size_t, uint32_t code) {
      return EscapedCharacter(code, style_.ensure_ascii);
    }));
    out_.Append("\"");
    SpendBytes(text.size());
  }

  void WriteKey(const Value& key) {
    if (key.is_string()) return WriteString(key.text());
    if (key.is_none()) return WriteString(Text("null"));
    if (key.is_boolean()) return WriteString(Text(key.integer() != 0 ? "true" : "false"));
    if (key.is_number()) {
      return WriteString(Text(key.is_float() ? FloatText(key.number()) : Str(key).bytes()));
    }
    throw Failure(fmt::format("keys must be str, int, float, bool or None, not {}", key.type()));
  }

  void NewLine() {
    if (!style_.indent) return;
    out_.Append("\n");
    for (int i = 0; i < level_; ++i) out_.Append(*style_.indent);
    SpendBytes(style_.indent->size() * static_cast<size_t>(level_));
  }

  void WriteDict(const Dict& dict) {
    if (dict.entries().empty()) {
      out_.Append("{}");
      return;
    }
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::ranges::stable_sort(
          entries, [](const auto* a, const auto* b) { return Less(a->first, b->first); });
    }
    out_.Append("{");
    ++level_;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine();
      WriteKey(entries[i]->first);
      out_.Append(style_.key_separator);
      Write(entries[i]->second);
    }
    --level_;
    NewLine();
    out_.Append("}");
  }

  void WriteArray(const std::vector<Value>& items) {
    if (items.empty()) {
      out_.Append("[]");
      return;
    }
    out_.Append("[");
    ++level_;
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_.Append(style_.item_separator);
      NewLine();
      Write(items[i]);
    }
    --level_;
    NewLine();
    out_.Append("]");
  }

  const JsonStyle& style_;
  Text out_;
  int level_ = 0;
};

}  // namespace

Value FromJson(const nlohmann::ordered_json& json, Marks marks) {
  using Type = nlohmann::ordered_json::value_t;
  switch (json.type()) {
    case Type::boolean:
      return json.get<bool>();
    case Type::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        throw Failure(fmt::format("the integer {} has more than 64 bits", json.get<uint64_t>()));
      }
      return json.get<int64_t>();
    case Type::number_integer:
      return json.get<int64_t>();
    case Type::number_float:
      return json.get<double>();
    case Type::string:
      return Value(Text(json.get<std::string>(), marks));
    case Type::array: {
      std::vector<Value> items;
      for (const auto& item : json) items.push_back(FromJson(item, marks));
      return Value::List(std::move(items));
    }
    case Type::object: {
      Entries entries;
      for (const auto& [key, value] : json.items()) {
        entries.emplace_back(Value(Text(key, marks)), FromJson(value, marks));
      }
      return MakeDict(entries);
    }
    default:
      return Value();
  }
}

Text ToJson(const Value& value, const JsonStyle& style) {
  JsonWriter writer(style);
  writer.Write(value);
  return writer.Take();
}

}  // namespace trimtab::jinja
