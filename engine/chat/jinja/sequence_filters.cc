#include <fmt/core.h>

#include <algorithm>
#include <unordered_set>

#include "engine/chat/jinja/arguments.h"
#include "engine/chat/jinja/filters.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"
#include "engine/chat/jinja/text_operations.h"

namespace trimtab::jinja {
namespace {

using Args = const Arguments&;

/// What sorting and grouping compare: strings without their case, unless it counts.
Value Comparable(const Value& value, bool case_sensitive) {
  return !case_sensitive && value.is_string() ? Value(Lower(value.text())) : value;
}

Value FilterJoin(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("join", arguments, {"d", "attribute"});
  const Value path = matched.GetOr(1, Value());
  std::vector<Text> parts;
  for (const Value& item : Items(value)) {
    parts.push_back(Str(path.is_none() ? item : FollowPath(item, path)));
  }
  return Value(Join(Str(matched.GetOr(0, "")), parts));
}

Value FilterDefault(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("default", arguments, {"default_value", "boolean"});
  const bool missing = value.is_undefined() || (matched.Boolean(1, false) && !Truth(value));
  return missing ? matched.GetOr(0, "") : value;
}

Value FilterFirst(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && sequence->form == Sequence::Form::kIterator) {
    if (sequence->consumed < sequence->items.size()) return sequence->items[sequence->consumed++];
  } else if (const std::vector<Value> items = Items(value); !items.empty()) {
    return items.front();
  }
  return Value::Missing("No first item, sequence was empty.");
}

Value FilterLast(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  const Sequence* sequence = value.sequence();
  if (sequence != nullptr && sequence->form == Sequence::Form::kIterator) {
    throw Failure(fmt::format("'{}' object is not reversible", value.type()));
  }
  const std::vector<Value> items = Items(value);
  return items.empty() ? Value::Missing("No last item, sequence was empty.") : items.back();
}

Value FilterReverse(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  if (value.is_string()) {
    return GetSlice(value, Value(), Value(), Value(int64_t{-1}));
  }
  std::vector<Value> items = Items(value);
  std::ranges::reverse(items);
  return Value::Iterator(std::move(items), "list_reverseiterator");
}

Value FilterItems(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  std::vector<Value> pairs;
  if (!value.is_undefined() && !value.is_dict()) {
    throw Failure("Can only get item pairs from a mapping.");
  }
  if (value.is_dict()) {
    for (const auto& [key, each] : value.dict()->entries()) {
      pairs.push_back(Value::Tuple({key, each}));
    }
  }
  return Value::Iterator(std::move(pairs));
}

/// Sorts as Python does: stable, and reversed without changing the order of equals.
template <typename Key>
void SortBy(std::vector<Value>& items, const Key& key, bool reverse) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : items) keyed.emplace_back(key(item), item);
  SpendStep(keyed.size());
  std::ranges::stable_sort(keyed, [reverse](const auto& a, const auto& b) {
    return reverse ? Less(b.first, a.first) : Less(a.first, b.first);
  });
  items.clear();
  for (auto& [unused, item] : keyed) items.push_back(std::move(item));
}

Value FilterSort(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = matched.Boolean(1, false);
  const Value attribute = matched.GetOr(2, Value());
  std::vector<Value> paths;
  if (attribute.is_string()) {
    for (Text& path : Split(attribute.text(), Text(","), -1)) paths.emplace_back(std::move(path));
  } else if (!attribute.is_none()) {
    paths.push_back(attribute);
  }
  std::vector<Value> items = Items(value);
  SortBy(
      items,
      [&](const Value& item) {
        if (paths.empty()) return Comparable(item, case_sensitive);
        std::vector<Value> keys;
        for (const Value& path : paths) {
          keys.push_back(Comparable(FollowPath(item, path), case_sensitive));
        }
        return Value::List(std::move(keys));
      },
      matched.Boolean(0, false));
  return Value::List(std::move(items));
}

Value FilterDictSort(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  RequireDefined(value);
  if (!value.is_dict()) throw Failure("dictsort() expects a dict");
  const std::string by = matched.TextOf(1).value_or(Text("key")).bytes();
  if (by != "key" && by != "value") throw Failure("dictsort() sorts by 'key' or 'value'");
  std::vector<Value> pairs;
  for (const auto& [key, each] : value.dict()->entries()) {
    pairs.push_back(Value::Tuple({key, each}));
  }
  SortBy(
      pairs,
      [&](const Value& pair) {
        return Comparable(pair.sequence()->items[by == "key" ? 0 : 1], matched.Boolean(0, false));
      },
      matched.Boolean(2, false));
  return Value::List(std::move(pairs));
}

Value FilterUnique(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("unique", arguments, {"case_sensitive", "attribute"});
  const Value path = matched.GetOr(1, Value());
  std::unordered_set<std::string> seen;
  std::vector<Value> kept;
  for (const Value& item : Items(value)) {
    const Value key = path.is_none() ? item : FollowPath(item, path);
    if (seen.insert(KeyOf(Comparable(key, matched.Boolean(0, false)))).second) {
      kept.push_back(item);
    }
  }
  return Value::Iterator(std::move(kept));
}

template <bool Greatest>
Value FilterExtreme(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched(Greatest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const Value path = matched.GetOr(1, Value());
  const std::vector<Value> items = Items(value);
  if (items.empty()) return Value::Missing("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) {
    return Comparable(path.is_none() ? item : FollowPath(item, path), matched.Boolean(0, false));
  };
  const Value* best = &items[0];
  Value best_key = key_of(*best);
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = key_of(items[i]);
    if (!(Greatest ? Less(best_key, key) : Less(key, best_key))) continue;
    best = &items[i];
    best_key = std::move(key);
  }
  return *best;
}

Value FilterSum(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("sum", arguments, {"attribute", "start"});
  const Value path = matched.GetOr(0, Value());
  Value sum = matched.GetOr(1, int64_t{0});
  if (sum.is_string()) throw Failure("sum() can't sum strings");
  for (const Value& item : Items(value)) {
    sum = Apply(Arithmetic::kAdd, sum, path.is_none() ? item : FollowPath(item, path));
  }
  return sum;
}

Value FilterBatch(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("batch", arguments, {"linecount", "fill_with"});
  matched.Get(0);
  const int64_t count = matched.Integer(0, 1);
  const Value fill = matched.GetOr(1, Value());
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (Value& item : Items(value)) {
    if (std::ssize(batch) == count) batches.push_back(Value::List(std::exchange(batch, {})));
    batch.push_back(std::move(item));
  }
  if (!batch.empty()) {
    while (!fill.is_none() && std::ssize(batch) < count) {
      SpendBytes(sizeof(Value));
      batch.push_back(fill);
    }
    batches.push_back(Value::List(std::move(batch)));
  }
  return Value::Iterator(std::move(batches));
}

Value FilterSlice(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("slice", arguments, {"slices", "fill_with"});
  matched.Get(0);
  const int64_t count = matched.Integer(0, 1);
  if (count == 0) throw Failure("division by zero");
  const Value fill = matched.GetOr(1, Value());
  const std::vector<Value> items = Items(value);
  std::vector<Value> slices;
  size_t begin = 0;
  for (int64_t i = 0; i < count; ++i) {
    SpendStep();
    const bool extra = i < std::ssize(items) % count;
    const size_t end = begin + static_cast<size_t>(std::ssize(items) / count) + (extra ? 1 : 0);
    std::vector<Value> slice(items.begin() + static_cast<std::ptrdiff_t>(begin),
                             items.begin() + static_cast<std::ptrdiff_t>(end));
    if (!fill.is_none() && !extra) slice.push_back(fill);
    slices.push_back(Value::List(std::move(slice)));
    begin = end;
  }
  return Value::Iterator(std::move(slices));
}

Value FilterGroupBy(Interpreter& /*interpreter*/, const Value& value, Args arguments) {
  const Matched matched("groupby", arguments, {"attribute", "default", "case_sensitive"});
  const Value path = matched.Get(0);
  const bool case_sensitive = matched.Boolean(2, false);
  const auto raw_key = [&](const Value& item) {
    Value key = FollowPath(item, path);
    return key.is_undefined() && matched.Has(1) ? matched.Get(1) : key;
  };
  const auto key_of = [&](const Value& item) { return Comparable(raw_key(item), case_sensitive); };
  std::vector<Value> items = Items(value);
  SortBy(items, key_of, false);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < items.size();) {
    size_t end = begin + 1;
    const Value key = key_of(items[begin]);
    while (end < items.size() && Equal(key_of(items[end]), key)) ++end;
    std::vector<Value> group(items.begin() + static_cast<std::ptrdiff_t>(begin),
                             items.begin() + static_cast<std::ptrdiff_t>(end));
    groups.push_back(Value::Tuple({raw_key(items[begin]), Value::List(std::move(group))}));
    begin = end;
  }
  return Value::List(std::move(groups));
}

Value FilterList(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  return Value::List(Items(value));
}

Value FilterLength(Interpreter& /*interpreter*/, const Value& value, Args /*arguments*/) {
  return Length(value);
}

}  // namespace

Value FollowPath(const Value& item, const Value& path) {
  if (!path.is_string()) return GetItem(item, path);
  Value value = item;
  for (const Text& part : Split(path.text(), Text("."), -1)) {
    const std::string& name = part.bytes();
    const bool number = !name.empty() && name.size() < 10 &&
                        name.find_first_not_of("0123456789") == std::string::npos;
    value = GetItem(value, number ? Value(int64_t{std::stoi(name)}) : Value(part));
  }
  return value;
}

const std::vector<FilterRow>& SequenceFilters() {
  static const std::vector<FilterRow> kFilters = {
      {"join", FilterJoin},       {"default", FilterDefault},    {"d", FilterDefault},
      {"first", FilterFirst},     {"last", FilterLast},          {"reverse", FilterReverse},
      {"items", FilterItems},     {"sort", FilterSort},          {"dictsort", FilterDictSort},
      {"unique", FilterUnique},   {"min", FilterExtreme<false>}, {"max", FilterExtreme<true>},
      {"sum", FilterSum},         {"batch", FilterBatch},        {"slice", FilterSlice},
      {"groupby", FilterGroupBy}, {"list", FilterList},          {"length", FilterLength},
      {"count", FilterLength},
  };
  return kFilters;
}

}  // namespace trimtab::jinja
