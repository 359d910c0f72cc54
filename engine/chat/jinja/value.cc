#include "engine/chat/jinja/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace trimtab::jinja {
namespace {

/// Deeper values would exhaust the stack where they are printed, compared or destroyed.
constexpr int kMaxValueDepth = 200;

Value MakeSequence(std::vector<Value> items, Sequence::Form form, std::string label) {
  SpendBytes(items.size() * sizeof(Value));
  auto sequence = std::make_shared<Sequence>();
  for (const Value& item : items) sequence->depth = std::max(sequence->depth, item.depth() + 1);
  if (sequence->depth > kMaxValueDepth) throw Failure("a value is nested too deeply");
  sequence->items = std::move(items);
  sequence->form = form;
  sequence->label = std::move(label);
  return Value(std::shared_ptr<const Sequence>(std::move(sequence)));
}

}  // namespace

Value::Value(Text text, bool markup) {
  SpendBytes(text.size());
  data_ = std::make_shared<const String>(String{std::move(text), markup});
}

Value Value::List(std::vector<Value> items) {
  return MakeSequence(std::move(items), Sequence::Form::kList, "");
}

Value Value::Tuple(std::vector<Value> items) {
  return MakeSequence(std::move(items), Sequence::Form::kTuple, "");
}

Value Value::Iterator(std::vector<Value> items, std::string type) {
  return MakeSequence(std::move(items), Sequence::Form::kIterator, std::move(type));
}

Value Value::Missing(std::string why) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(why))});
}

const std::string* Value::undefined_why() const {
  static const std::string kUnknown = "the value is undefined";
  const auto* undefined = std::get_if<Undefined>(&data_);
  if (undefined == nullptr) return nullptr;
  return undefined->why ? undefined->why.get() : &kUnknown;
}

int64_t Value::integer() const {
  if (const bool* boolean = std::get_if<bool>(&data_)) return *boolean ? 1 : 0;
  return std::get<int64_t>(data_);
}

double Value::number() const {
  if (const double* number = std::get_if<double>(&data_)) return *number;
  return static_cast<double>(integer());
}

const Sequence* Value::sequence() const {
  const auto* sequence = std::get_if<std::shared_ptr<const Sequence>>(&data_);
  return sequence == nullptr ? nullptr : sequence->get();
}

const Dict* Value::dict() const {
  const auto* dict = std::get_if<std::shared_ptr<const Dict>>(&data_);
  return dict == nullptr ? nullptr : dict->get();
}

Object* Value::object() const {
  const auto* object = std::get_if<std::shared_ptr<Object>>(&data_);
  return object == nullptr ? nullptr : object->get();
}

bool Value::IsSame(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  if (is_none()) return true;
  if (is_boolean() || is_integer()) return integer() == other.integer();
  if (is_float()) return number() == other.number();
  if (is_string()) return String_() == other.String_() || bytes() == other.bytes();
  return sequence() == other.sequence() && dict() == other.dict() && object() == other.object() &&
         !is_undefined();
}

int Value::depth() const {
  if (const Sequence* all = sequence()) return all->depth;
  if (const Dict* all = dict()) return all->depth();
  if (const Object* one = object()) return one->depth();
  return 0;
}

std::string Value::type() const {
  if (is_undefined()) return "Undefined";
  if (is_none()) return "NoneType";
  if (is_boolean()) return "bool";
  if (is_integer()) return "int";
  if (is_float()) return "float";
  if (is_string()) return markup() ? "Markup" : "str";
  if (is_dict()) return "dict";
  if (Object* value = object()) return value->type();
  switch (sequence()->form) {
    case Sequence::Form::kList:
      return "list";
    case Sequence::Form::kTuple:
      return "tuple";
    case Sequence::Form::kRange:
      return "range";
    case Sequence::Form::kView:
    case Sequence::Form::kIterator:
      return sequence()->label;
  }
  return "";
}

void Dict::Set(Value key, Value value) {
  SpendBytes(2 * sizeof(Value));
  depth_ = std::max({depth_, key.depth() + 1, value.depth() + 1});
  if (depth_ > kMaxValueDepth) throw Failure("a value is nested too deeply");
  const auto [place, added] = places_.emplace(KeyOf(key), entries_.size());
  if (added) {
    entries_.emplace_back(std::move(key), std::move(value));
  } else {
    entries_[place->second].second = std::move(value);
  }
}

const Value* Dict::Find(const Value& key) const {
  const auto found = places_.find(KeyOf(key));
  return found == places_.end() ? nullptr : &entries_[found->second].second;
}

const Value* Dict::Find(std::string_view key) const {
  const auto found = places_.find("s" + std::string(key));
  return found == places_.end() ? nullptr : &entries_[found->second].second;
}

std::string KeyOf(const Value& value) {
  if (value.is_string()) return "s" + value.bytes();
  if (value.is_none()) return "n";
  if (value.is_boolean() || value.is_integer()) return fmt::format("i{}", value.integer());
  if (value.is_float()) {
    const double number = value.number();
    const bool whole = std::trunc(number) == number && std::abs(number) < 9e18;
    return whole ? fmt::format("i{}", static_cast<int64_t>(number)) : fmt::format("f{}", number);
  }
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && sequence->form == Sequence::Form::kTuple) {
    std::string key = "t";
    for (const Value& item : sequence->items) {
      const std::string part = KeyOf(item);
      key += fmt::format("{}:{}", part.size(), part);
    }
    return key;
  }
  if (value.object() != nullptr) return fmt::format("o{}", static_cast<void*>(value.object()));
  if (value.is_undefined()) return "u";
  throw Failure(fmt::format("unhashable type: '{}'", value.type()));
}

std::optional<Value> Object::Attribute(const std::string& /*name*/) { return std::nullopt; }

Value Object::Call(Interpreter& /*interpreter*/, Arguments& /*arguments*/) {
  throw Failure(fmt::format("'{}' object is not callable", type()));
}

void Object::Keeps(const Value& value) {
  depth_ = std::max(depth_, value.depth() + 1);
  if (depth_ > kMaxValueDepth) throw Failure("a value is nested too deeply");
}

Text Object::Print() const { return Text(fmt::format("<{}>", type())); }

Value MakeDict(const Entries& entries) {
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : entries) dict->Set(key, value);
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

}  // namespace trimtab::jinja
