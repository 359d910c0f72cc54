#include "engine/chat/jinja/format.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

constexpr size_t kMostWidth = 100000;

bool IsDecimal(char c) { return c >= '0' && c <= '9'; }

/// Reads digits at `at`. Throws Failure for more than kMostWidth.
size_t ReadWidth(std::string_view text, size_t& at) {
  size_t width = 0;
  for (; at < text.size() && IsDecimal(text[at]); ++at) {
    width = width * 10 + static_cast<size_t>(text[at] - '0');
    if (width > kMostWidth) throw Failure("a format asks for too many characters");
  }
  return width;
}

std::string Grouped(const std::string& digits, char separator) {
  std::string grouped;
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t i = 0; i < whole; ++i) {
    if (i > 0 && (whole - i) % 3 == 0) grouped += separator;
    grouped += digits[i];
  }
  return grouped + digits.substr(whole);
}

std::string IntegerDigits(uint64_t value, char type) {
  switch (type) {
    case 'x':
      return fmt::format("{:x}", value);
    case 'X':
      return fmt::format("{:X}", value);
    case 'o':
      return fmt::format("{:o}", value);
    case 'b':
      return fmt::format("{:b}", value);
    default:
      return std::to_string(value);
  }
}

std::string FloatDigits(double value, const FormatSpec& spec) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return "inf";
  const int precision = spec.precision < 0 ? 6 : spec.precision;
  switch (spec.type) {
    case 'f':
    case 'F':
      return fmt::format("{:.{}f}", value, precision);
    case '%':
      return fmt::format("{:.{}f}%", value * 100, precision);
    case 'e':
      return fmt::format("{:.{}e}", value, precision);
    case 'E':
      return fmt::format("{:.{}E}", value, precision);
    case 'G':
      return fmt::format("{:.{}G}", value, std::max(precision, 1));
    case 'g':
      return fmt::format("{:.{}g}", value, std::max(precision, 1));
    default:
      break;
  }
  if (spec.precision < 0) return FloatRepr(value);
  std::string text = fmt::format("{:.{}g}", value, std::max(precision, 1));
  if (text.find_first_not_of("0123456789") == std::string::npos) text += ".0";
  return text;
}

Text Padded(const Text& text, const FormatSpec& spec, char default_align, size_t sign_bytes) {
  const size_t length = CharacterCount(text.bytes());
  if (length >= spec.width) return text;
  const size_t missing = spec.width - length;
  const char align = spec.align == 0 ? default_align : spec.align;
  const size_t before = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto fill = [&spec](size_t count) {
    std::string all;
    for (; count > 0; --count) all += spec.fill;
    return all;
  };
  Text padded;
  if (align == '=') padded.Append(text, 0, sign_bytes);
  padded.Append(fill(before));
  padded.Append(text, align == '=' ? sign_bytes : 0, text.size());
  padded.Append(fill(missing - before));
  return padded;
}

Text FormatNumber(const Value& value, const FormatSpec& spec) {
  constexpr std::string_view kFloatTypes = "eEfFgG%";
  const bool as_float =
      value.is_float() || (spec.type != 0 && kFloatTypes.find(spec.type) != std::string::npos);
  bool negative = false;
  std::string digits;
  if (as_float) {
    negative = std::signbit(value.number());
    digits = FloatDigits(std::abs(value.number()), spec);
  } else {
    negative = value.integer() < 0;
    const auto bits = static_cast<uint64_t>(value.integer());
    digits = IntegerDigits(negative ? -bits : bits, spec.type);
    if (spec.alternate && spec.type != 0 && spec.type != 'd') {
      digits = std::string("0") + static_cast<char>(spec.type) + digits;
    }
  }
  if (spec.grouping != 0) digits = Grouped(digits, spec.grouping);
  std::string sign = negative ? "-" : "";
  if (!negative && spec.sign != '-') sign = spec.sign;
  return Padded(Text(sign + digits), spec, '>', sign.size());
}

/// The value that a replacement field of BraceFormat names: "0", "name", "0.attribute[key]".
class FieldReader {
 public:
  FieldReader(std::string_view name, const Arguments& arguments, size_t& next)
      : name_(name), arguments_(arguments), next_(next) {}

  Value Read() {
    const size_t end = std::min(name_.find_first_of(".["), name_.size());
    Value value = First(name_.substr(0, end));
    for (size_t at = end; at < name_.size();) {
      const bool attribute = name_[at] == '.';
      const size_t stop = attribute ? std::min(name_.find_first_of(".[", at + 1), name_.size())
                                    : name_.find(']', at);
      if (stop == std::string_view::npos) throw Failure("expected ']' in a format");
      const std::string part(name_.substr(at + 1, stop - at - 1));
      if (attribute) {
        value = GetAttribute(value, part);
      } else {
        const bool number =
            !part.empty() && part.size() < 10 && std::ranges::all_of(part, IsDecimal);
        value = GetItem(value, number ? Value(int64_t{std::stoi(part)}) : Value(part));
      }
      RequireDefined(value);
      at = attribute ? stop : stop + 1;
    }
    return value;
  }

 private:
  Value First(std::string_view part) {
    if (part.empty() || (part.size() < 6 && std::ranges::all_of(part, IsDecimal))) {
      const size_t index =
          part.empty() ? next_++ : static_cast<size_t>(std::stoi(std::string(part)));
      if (index >= arguments_.positional.size()) {
        throw Failure(fmt::format("a format has no argument {}", index));
      }
      return arguments_.positional[index];
    }
    for (const auto& [name, value] : arguments_.keywords) {
      if (name == part) return value;
    }
    throw Failure(fmt::format("a format has no argument '{}'", part));
  }

  std::string_view name_;
  const Arguments& arguments_;
  size_t& next_;
};

Text FormatField(std::string_view field, const Arguments& arguments, size_t& next, int depth) {
  const size_t colon = std::min(field.find(':'), field.size());
  const size_t bang = std::min(field.find('!'), colon);
  Value value = FieldReader(field.substr(0, bang), arguments, next).Read();
  if (bang < colon) {
    const std::string_view conversion = field.substr(bang + 1, colon - bang - 1);
    if (conversion != "r" && conversion != "s") throw Failure("expected !r or !s in a format");
    value = conversion == "r" ? Value(Repr(value)) : Value(Str(value));
  }
  std::string spec(colon < field.size() ? field.substr(colon + 1) : "");
  if (spec.find('{') != std::string::npos) {
    if (depth > 0) throw Failure("a format is nested too deeply");
    const size_t open = spec.find('{');
    const size_t close = spec.find('}', open);
    if (close == std::string::npos) throw Failure("expected '}' in a format");
    const std::string inner =
        FormatField(spec.substr(open + 1, close - open - 1), arguments, next, depth + 1).bytes();
    spec = spec.substr(0, open) + inner + spec.substr(close + 1);
  }
  return FormatValue(value, ParseFormatSpec(spec));
}

/// The `values` of a % format, one after the other.
class PercentValues {
 public:
  explicit PercentValues(const Value& values) : values_(values) {
    const Sequence* sequence = values.sequence();
    if (sequence != nullptr && sequence->form == Sequence::Form::kTuple) {
      tuple_ = &sequence->items;
    }
  }

  Value Next() {
    if (tuple_ == nullptr ? taken_ > 0 : taken_ >= tuple_->size()) {
      throw Failure("not enough arguments for format string");
    }
    return tuple_ == nullptr ? (++taken_, values_) : (*tuple_)[taken_++];
  }

  Value Named(const std::string& name) {
    named_ = true;
    const Dict* dict = values_.dict();
    const Value* found = dict == nullptr ? nullptr : dict->Find(std::string_view(name));
    if (found == nullptr) throw Failure(fmt::format("a format has no argument '{}'", name));
    return *found;
  }

  void Finish() const {
    const bool all =
        tuple_ != nullptr ? taken_ == tuple_->size() : named_ || taken_ == 1 || values_.is_dict();
    if (!all) throw Failure("not all arguments converted during string formatting");
  }

 private:
  const Value& values_;
  const std::vector<Value>* tuple_ = nullptr;
  size_t taken_ = 0;
  bool named_ = false;
};

Text PercentField(std::string_view bytes, size_t& at, PercentValues& values) {
  std::optional<Value> value;
  if (at < bytes.size() && bytes[at] == '(') {
    const size_t close = bytes.find(')', at);
    if (close == std::string_view::npos) throw Failure("incomplete format key");
    value = values.Named(std::string(bytes.substr(at + 1, close - at - 1)));
    at = close + 1;
  }
  FormatSpec spec;
  spec.align = '>';
  for (; at < bytes.size() && std::string_view("-+ 0#").find(bytes[at]) != std::string::npos;
       ++at) {
    if (bytes[at] == '-') spec.align = '<';
    if (bytes[at] == '+' || bytes[at] == ' ') spec.sign = bytes[at];
    if (bytes[at] == '#') spec.alternate = true;
    if (bytes[at] == '0' && spec.align != '<') {
      spec.fill = "0";
      spec.align = '=';
    }
  }
  spec.width = ReadWidth(bytes, at);
  if (at < bytes.size() && bytes[at] == '.')
    spec.precision = static_cast<int>(ReadWidth(bytes, ++at));
  if (at == bytes.size()) throw Failure("incomplete format");
  const char type = bytes[at++];
  if (type == '%') return Text("%");
  if (!value) value = values.Next();
  if (type == 's' || type == 'r') {
    if (spec.align == '=') spec.align = '>';
    spec.fill = " ";
    return FormatValue(type == 's' ? Value(Str(*value)) : Value(Repr(*value)), spec);
  }
  if (std::string_view("dixXoeEfFgG").find(type) == std::string::npos) {
    throw Failure(fmt::format("unsupported format character '{}'", type));
  }
  if (!value->is_number()) {
    throw Failure(
        fmt::format("%{} format: a real number is required, not {}", type, value->type()));
  }
  const bool whole = std::string_view("dixXo").find(type) != std::string::npos;
  spec.type = type == 'i' ? 'd' : type;
  if (!whole) return FormatValue(*value, spec);
  spec.precision = -1;
  if (value->is_float() && !(std::abs(value->number()) < 9e18)) {
    throw Failure("cannot convert float to integer");
  }
  return FormatValue(
      value->is_float() ? Value(static_cast<int64_t>(value->number())) : Value(value->integer()),
      spec);
}

}  // namespace

FormatSpec ParseFormatSpec(std::string_view text) {
  constexpr std::string_view kAligns = "<>^=";
  FormatSpec spec;
  size_t at = 0;
  if (!text.empty()) {
    const size_t first = CharacterAt(text, 0).bytes;
    if (first < text.size() && kAligns.find(text[first]) != std::string::npos) {
      spec.fill = text.substr(0, first);
      spec.align = text[first];
      at = first + 1;
    } else if (kAligns.find(text[0]) != std::string::npos) {
      spec.align = text[0];
      at = 1;
    }
  }
  const auto next_is = [&](std::string_view any) {
    return at < text.size() && any.find(text[at]) != std::string::npos;
  };
  if (next_is("+- ")) spec.sign = text[at++];
  if (next_is("#")) spec.alternate = ++at > 0;
  if (next_is("0")) {
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    ++at;
  }
  spec.width = ReadWidth(text, at);
  if (next_is(",_")) spec.grouping = text[at++];
  if (next_is(".")) {
    ++at;
    if (!next_is("0123456789")) throw Failure("format specifier missing precision");
    spec.precision = static_cast<int>(ReadWidth(text, at));
  }
  if (next_is("sdxXobeEfFgG%")) spec.type = text[at++];
  if (at != text.size()) throw Failure(fmt::format("invalid format specifier '{}'", text));
  return spec;
}

Text FormatValue(const Value& value, const FormatSpec& spec) {
  SpendBytes(spec.width);
  if (value.is_number() && !(value.is_boolean() && spec.type == 0 && spec.width == 0)) {
    if (spec.type == 's') throw Failure("format code 's' is for texts, got a number");
    const bool integer_type =
        spec.type != 0 && std::string_view("dxXob").find(spec.type) != std::string::npos;
    if (value.is_float() && integer_type) {
      throw Failure(fmt::format("format code '{}' is for integers, got a float", spec.type));
    }
    return FormatNumber(value, spec);
  }
  if (spec.type != 0 && spec.type != 's') {
    throw Failure(
        fmt::format("format code '{}' is for numbers, got '{}'", spec.type, value.type()));
  }
  if (spec.align == '=') throw Failure("'=' alignment not allowed in string format specifier");
  Text text = Str(value);
  if (spec.precision >= 0) {
    text = text.Slice(0, ByteOffset(text.bytes(), static_cast<size_t>(spec.precision)));
  }
  return Padded(text, spec, '<', 0);
}

Text PercentFormat(const Text& format, const Value& all) {
  const std::string& bytes = format.bytes();
  PercentValues values(all);
  Text text;
  for (size_t at = 0; at < bytes.size();) {
    const size_t percent = std::min(bytes.find('%', at), bytes.size());
    text.Append(format, at, percent);
    if (percent == bytes.size()) break;
    at = percent + 1;
    text.Append(PercentField(bytes, at, values));
    SpendBytes(text.size() / 16);
  }
  values.Finish();
  return text;
}

Text BraceFormat(const Text& format, const Arguments& arguments) {
  const std::string& bytes = format.bytes();
  Text text;
  size_t next = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    text.Append(format, at, brace);
    if (brace == bytes.size()) break;
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      text.Append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    if (bytes[brace] == '}') throw Failure("single '}' encountered in format string");
    size_t close = brace + 1;
    for (int open = 1; close < bytes.size(); ++close) {
      if (bytes[close] == '{') ++open;
      if (bytes[close] == '}' && --open == 0) break;
    }
    if (close >= bytes.size()) throw Failure("expected '}' before end of string");
    text.Append(FormatField(std::string_view(bytes).substr(brace + 1, close - brace - 1), arguments,
                            next, 0));
    at = close + 1;
  }
  return text;
}

}  // namespace trimtab::jinja
