// Value: what an expression of a template evaluates to. Values do not change once they are made;
// only namespaces and iterators do.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat/jinja/budget.h"
#include "engine/chat/jinja/text.h"

namespace trimtab::jinja {

class Dict;
class Interpreter;
class Object;
struct Sequence;
class Value;

/// A name or member that is not there; `why` says which.
struct Undefined {
  std::shared_ptr<const std::string> why{};
};

struct String {
  Text text;
  bool markup = false;  // `safe` was asked for: what is added to it is escaped
};

class Value {
 public:
  Value() : data_(nullptr) {}  // None
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(double value) : data_(value) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(Text text, bool markup = false);
  Value(std::string text) : Value(Text(std::move(text))) {}
  Value(const char* text) : Value(std::string(text)) {}
  Value(std::shared_ptr<const Sequence> sequence) : data_(std::move(sequence)) {}
  Value(std::shared_ptr<const Dict> dict) : data_(std::move(dict)) {}
  Value(std::shared_ptr<Object> object) : data_(std::move(object)) {}

  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  /// An iterator: its items can be taken once.
  static Value Iterator(std::vector<Value> items, std::string type = "generator");
  static Value Missing(std::string why);

  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_none() const { return std::holds_alternative<std::nullptr_t>(data_); }
  bool is_boolean() const { return std::holds_alternative<bool>(data_); }
  /// A boolean is not an integer here, though it is a number to operators.
  bool is_integer() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_boolean() || is_integer() || is_float(); }
  bool is_string() const { return String_() != nullptr; }
  bool is_sequence() const { return sequence() != nullptr; }
  bool is_dict() const { return dict() != nullptr; }

  const std::string* undefined_why() const;
  /// The integer that a boolean or an integer is.
  int64_t integer() const;
  /// The number that a boolean, an integer or a float is.
  double number() const;
  const Text& text() const { return String_()->text; }
  const std::string& bytes() const { return text().bytes(); }
  bool markup() const { return is_string() && String_()->markup; }
  const Sequence* sequence() const;
  const Dict* dict() const;
  Object* object() const;
  /// True for the same object, or equal values of one type that has no identity.
  bool IsSame(const Value& other) const;

  /// How deeply lists and dicts are nested in it.
  int depth() const;
  /// The name of its type in Python: "str", "list".
  std::string type() const;

 private:
  const String* String_() const {
    const auto* string = std::get_if<std::shared_ptr<const String>>(&data_);
    return string == nullptr ? nullptr : string->get();
  }

  std::variant<std::nullptr_t, Undefined, bool, int64_t, double, std::shared_ptr<const String>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<Object>>
      data_;
};

/// Lists, tuples, ranges, views of dicts, and iterators.
struct Sequence {
  enum class Form { kList, kTuple, kRange, kView, kIterator };

  Form form = Form::kList;
  std::vector<Value> items{};
  std::string label{};  // of a range, a view or an iterator: how Python prints it
  int depth = 1;
  mutable size_t consumed = 0;  // of an iterator
};

/// A dict in the order of insertion.
class Dict {
 public:
  /// Adds or replaces. Throws Failure for a key that has no hash.
  void Set(Value key, Value value);
  /// The value of `key`, or null.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  const std::vector<std::pair<Value, Value>>& entries() const { return entries_; }
  int depth() const { return depth_; }

 private:
  std::vector<std::pair<Value, Value>> entries_;
  std::unordered_map<std::string, size_t> places_;
  int depth_ = 1;
};

/// A text that is the same for equal keys and only for them. Throws Failure for lists and dicts.
std::string KeyOf(const Value& value);

/// What a call passes.
struct Arguments {
  std::vector<Value> positional{};
  std::vector<std::pair<std::string, Value>> keywords{};
};

/// Everything else: functions, macros, namespaces, the loop variable.
class Object {
 public:
  virtual ~Object() = default;
  virtual std::string type() const = 0;
  virtual bool callable() const { return false; }
  /// The attribute of this name, if there is one.
  virtual std::optional<Value> Attribute(const std::string& name);
  /// Throws Failure for an object that cannot be called.
  virtual Value Call(Interpreter& interpreter, Arguments& arguments);
  /// What printing shows.
  virtual Text Print() const;
  int depth() const { return depth_; }

 protected:
  /// Counts how deeply values are nested in `value`, which this keeps. Throws Failure.
  void Keeps(const Value& value);

 private:
  int depth_ = 0;
};

using Entries = std::vector<std::pair<Value, Value>>;
Value MakeDict(const Entries& entries);

}  // namespace trimtab::jinja
