#include "engine/chat/jinja/methods.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/chat/jinja/arguments.h"
#include "engine/chat/jinja/objects.h"
#include "engine/chat/jinja/operators.h"

namespace trimtab::jinja {
namespace {

using Args = const Arguments&;

Value View(std::vector<Value> items, const char* label) {
  SpendBytes(items.size() * sizeof(Value));
  auto view = std::make_shared<Sequence>();
  for (const Value& item : items) view->depth = std::max(view->depth, item.depth() + 1);
  view->items = std::move(items);
  view->form = Sequence::Form::kView;
  view->label = label;
  return Value(std::shared_ptr<const Sequence>(std::move(view)));
}

Value DictItems(const Value& self, Args arguments) {
  const Matched matched("items", arguments, {});
  std::vector<Value> pairs;
  for (const auto& [key, value] : self.dict()->entries()) {
    pairs.push_back(Value::Tuple({key, value}));
  }
  return View(std::move(pairs), "dict_items");
}

Value DictKeys(const Value& self, Args arguments) {
  const Matched matched("keys", arguments, {});
  std::vector<Value> keys;
  for (const auto& [key, value] : self.dict()->entries()) keys.push_back(key);
  return View(std::move(keys), "dict_keys");
}

Value DictValues(const Value& self, Args arguments) {
  const Matched matched("values", arguments, {});
  std::vector<Value> values;
  for (const auto& [key, value] : self.dict()->entries()) values.push_back(value);
  return View(std::move(values), "dict_values");
}

Value DictGet(const Value& self, Args arguments) {
  const Matched matched("get", arguments, {"key", "default"});
  const Value* found = self.dict()->Find(matched.Get(0));
  return found == nullptr ? matched.GetOr(1, Value()) : *found;
}

/// `copy` of what does not change.
Value Copy(const Value& self, Args arguments) {
  const Matched matched("copy", arguments, {});
  return self;
}

Value ListIndex(const Value& self, Args arguments) {
  const Matched matched("index", arguments, {"value", "start", "stop"});
  const Value part = GetSlice(self, matched.GetOr(1, Value()), matched.GetOr(2, Value()), Value());
  const std::vector<Value>& items = part.sequence()->items;
  const auto found =
      std::ranges::find_if(items, [&](const Value& item) { return Equal(item, matched.Get(0)); });
  if (found == items.end()) throw Failure("the value is not in the list");
  int64_t start = matched.Integer(1, 0);
  if (start < 0) start = std::max<int64_t>(start + std::ssize(self.sequence()->items), 0);
  return start + (found - items.begin());
}

Value ListCount(const Value& self, Args arguments) {
  const Matched matched("count", arguments, {"value"});
  return static_cast<int64_t>(std::ranges::count_if(
      self.sequence()->items, [&](const Value& item) { return Equal(item, matched.Get(0)); }));
}

/// Jinja's sandbox refuses what changes a list or a dict, and so does this.
template <typename... Names>
void RefuseChange(const Value& object, const std::string& name, Names... names) {
  if (((name == names) || ...)) {
    throw Failure(fmt::format("'{}' changes a {}, which a template may not", name, object.type()));
  }
}

std::optional<MethodFunction> FindMethod(const Value& object, const std::string& name) {
  const auto in = [&name](const auto& rows) -> std::optional<MethodFunction> {
    for (const auto& [each, function] : rows) {
      if (name == each) return function;
    }
    return std::nullopt;
  };
  if (object.is_string()) return in(StringMethods());
  if (object.is_dict()) {
    RefuseChange(object, name, "clear", "pop", "popitem", "setdefault", "update");
    constexpr MethodRow kDict[] = {{"items", DictItems},
                                   {"keys", DictKeys},
                                   {"values", DictValues},
                                   {"get", DictGet},
                                   {"copy", Copy}};
    return in(kDict);
  }
  const Sequence* sequence = object.sequence();
  if (sequence == nullptr || sequence->form == Sequence::Form::kView ||
      sequence->form == Sequence::Form::kIterator) {
    return std::nullopt;
  }
  if (sequence->form == Sequence::Form::kList) {
    RefuseChange(object, name, "append", "clear", "extend", "insert", "pop", "remove", "reverse",
                 "sort");
    if (name == "copy") return Copy;
  }
  constexpr MethodRow kSequence[] = {{"index", ListIndex}, {"count", ListCount}};
  return in(kSequence);
}

}  // namespace

std::optional<Value> Method(const Value& object, const std::string& name) {
  const auto found = FindMethod(object, name);
  if (!found) return std::nullopt;
  const MethodFunction function = *found;
  return Value(std::shared_ptr<Object>(std::make_shared<Function>(
      name, object, [object, function](Interpreter&, Arguments& arguments) {
        return function(object, arguments);
      })));
}

}  // namespace trimtab::jinja
