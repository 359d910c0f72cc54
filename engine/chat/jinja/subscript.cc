#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/unicode.h"

namespace trimtab::jinja {
namespace {

/// A key as a message names it.
std::string Described(const Value& key) {
  std::string text = Repr(key).bytes();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

Value NoMember(const Value& object, const Value& key) {
  if (key.is_string()) {
    return Value::Missing(
        fmt::format("'{} object' has no attribute {}", object.type(), Described(key)));
  }
  return Value::Missing(fmt::format("{} object has no element {}", object.type(), Described(key)));
}

/// `object[index]` of a string, list, tuple, range; nothing where there is no such item.
std::optional<Value> ItemAt(const Value& object, int64_t index) {
  if (object.is_string()) {
    const Text& text = object.text();
    if (index < 0) index += static_cast<int64_t>(CharacterCount(text.bytes()));
    if (index < 0) return std::nullopt;
    SpendBytes(text.size() / 16);
    const size_t begin = ByteOffset(text.bytes(), static_cast<size_t>(index));
    if (begin >= text.size()) return std::nullopt;
    return Value(text.Slice(begin, begin + CharacterAt(text.bytes(), begin).bytes),
                 object.markup());
  }
  const Sequence* sequence = object.sequence();
  if (sequence == nullptr || sequence->form == Sequence::Form::kView ||
      sequence->form == Sequence::Form::kIterator) {
    return std::nullopt;
  }
  if (index < 0) index += std::ssize(sequence->items);
  if (index < 0 || index >= std::ssize(sequence->items)) return std::nullopt;
  return sequence->items[static_cast<size_t>(index)];
}

std::optional<Value> FindItem(const Value& object, const Value& key) {
  if (const Dict* dict = object.dict()) {
    const Value* found =
        key.is_string() ? dict->Find(std::string_view(key.bytes())) : dict->Find(key);
    return found == nullptr ? std::nullopt : std::optional<Value>(*found);
  }
  if (key.is_integer() || key.is_boolean()) return ItemAt(object, key.integer());
  return std::nullopt;
}

std::optional<Value> FindAttribute(const Value& object, const std::string& name) {
  if (Object* other = object.object()) return other->Attribute(name);
  return Method(object, name);
}

struct Bounds {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t step = 1;
};

int64_t Bound(const Value& value, int64_t if_none) {
  if (value.is_none()) return if_none;
  RequireDefined(value);
  if (value.is_integer() || value.is_boolean()) return value.integer();
  throw Failure("slice indices must be integers or None");
}

/// As Python's slice.indices.
Bounds BoundsOf(const Value& begin, const Value& end, const Value& step, int64_t size) {
  Bounds bounds;
  bounds.step = Bound(step, 1);
  if (bounds.step == 0) throw Failure("slice step cannot be zero");
  if (bounds.step == std::numeric_limits<int64_t>::min()) ++bounds.step;
  const int64_t low = bounds.step < 0 ? -1 : 0;
  const int64_t high = bounds.step < 0 ? size - 1 : size;
  const auto clamp = [&](int64_t bound) {
    if (bound < 0) return std::max(bound + size, low);
    return std::min(bound, high);
  };
  bounds.begin = begin.is_none() ? (bounds.step < 0 ? high : low) : clamp(Bound(begin, 0));
  bounds.end = end.is_none() ? (bounds.step < 0 ? low : high) : clamp(Bound(end, 0));
  return bounds;
}

template <typename Visit>
void ForEachIndex(const Bounds& bounds, const Visit& visit) {
  int64_t i = bounds.begin;
  while (bounds.step > 0 ? i < bounds.end : i > bounds.end) {
    visit(static_cast<size_t>(i));
    if (__builtin_add_overflow(i, bounds.step, &i)) return;
  }
}

}  // namespace

Value GetAttribute(const Value& object, const std::string& name) {
  RequireDefined(object);
  if (auto found = FindAttribute(object, name)) return *std::move(found);
  if (const Dict* dict = object.dict()) {
    if (const Value* value = dict->Find(std::string_view(name))) return *value;
  }
  return NoMember(object, Value(name));
}

Value GetItem(const Value& object, const Value& key) {
  RequireDefined(object);
  if (object.is_dict() && key.depth() > 0 &&
      (key.is_dict() || key.sequence()->form != Sequence::Form::kTuple)) {
    return NoMember(object, key);
  }
  if (auto found = FindItem(object, key)) return *std::move(found);
  if (key.is_string()) {
    if (auto found = FindAttribute(object, key.bytes())) return *std::move(found);
  }
  return NoMember(object, key);
}

Value GetSlice(const Value& object, const Value& begin, const Value& end, const Value& step) {
  RequireDefined(object);
  if (object.is_string()) {
    const Text& text = object.text();
    std::vector<size_t> starts;
    ForEachCharacter(text.bytes(), [&](uint32_t, size_t at) { starts.push_back(at); });
    SpendBytes(text.size());
    const Bounds bounds = BoundsOf(begin, end, step, std::ssize(starts));
    starts.push_back(text.size());
    Text slice;
    if (bounds.step == 1 && bounds.begin < bounds.end) {
      slice = text.Slice(starts[static_cast<size_t>(bounds.begin)],
                         starts[static_cast<size_t>(bounds.end)]);
    } else if (bounds.step != 1) {
      ForEachIndex(bounds, [&](size_t i) { slice.Append(text, starts[i], starts[i + 1]); });
    }
    return Value(std::move(slice), object.markup());
  }
  const Sequence* sequence = object.sequence();
  if (sequence == nullptr || sequence->form == Sequence::Form::kView ||
      sequence->form == Sequence::Form::kIterator) {
    return Value::Missing(fmt::format("'{}' object is not subscriptable", object.type()));
  }
  std::vector<Value> items;
  ForEachIndex(BoundsOf(begin, end, step, std::ssize(sequence->items)),
               [&](size_t i) { items.push_back(sequence->items[i]); });
  return sequence->form == Sequence::Form::kTuple ? Value::Tuple(std::move(items))
                                                  : Value::List(std::move(items));
}

}  // namespace trimtab::jinja
