// Filters that call other filters and tests: map, select and their kin.
#include <fmt/core.h>

#include "engine/chat/jinja/filters.h"
#include "engine/chat/jinja/interpreter.h"
#include "engine/chat/jinja/operators.h"
#include "engine/chat/jinja/print.h"

namespace trimtab::jinja {
namespace {

using Args = const Arguments&;

/// Takes the first argument off.
Value TakeFirst(Arguments& arguments, const char* what) {
  if (arguments.positional.empty()) throw Failure(what);
  Value first = arguments.positional.front();
  arguments.positional.erase(arguments.positional.begin());
  return first;
}

std::string TakeName(Arguments& arguments, const char* what) {
  const Value name = TakeFirst(arguments, what);
  if (!name.is_string()) throw Failure(what);
  return name.bytes();
}

Value FilterMap(Interpreter& interpreter, const Value& value, Args all) {
  Arguments arguments = all;
  std::vector<Value> mapped;
  if (arguments.positional.empty() && !arguments.keywords.empty()) {
    Value path;
    Value if_missing;
    for (const auto& [name, each] : arguments.keywords) {
      if (name != "attribute" && name != "default") {
        throw Failure(fmt::format("map() got an unexpected keyword argument '{}'", name));
      }
      (name == "attribute" ? path : if_missing) = each;
    }
    for (const Value& item : Items(value)) {
      Value found = FollowPath(item, path);
      mapped.push_back(found.is_undefined() && !if_missing.is_none() ? if_missing : found);
    }
    return Value::Iterator(std::move(mapped));
  }
  const std::string filter = TakeName(arguments, "map() requires a filter argument");
  for (const Value& item : Items(value)) {
    mapped.push_back(interpreter.Filter(filter, item, arguments));
  }
  return Value::Iterator(std::move(mapped));
}

/// select, reject, selectattr, rejectattr.
template <bool Keeps, bool ByAttribute>
Value FilterSelect(Interpreter& interpreter, const Value& value, Args all) {
  Arguments arguments = all;
  Value path;
  if constexpr (ByAttribute) path = TakeFirst(arguments, "missing parameter for attribute name");
  std::string test;
  if (!arguments.positional.empty()) {
    test = TakeName(arguments, "expected the name of a test");
  }
  std::vector<Value> kept;
  for (Value& item : Items(value)) {
    const Value tested = ByAttribute ? FollowPath(item, path) : item;
    const bool passes = test.empty() ? Truth(tested) : interpreter.Test(test, tested, arguments);
    if (passes == Keeps) kept.push_back(std::move(item));
  }
  return Value::Iterator(std::move(kept));
}

Value FilterAttr(Interpreter& /*interpreter*/, const Value& value, Args all) {
  Arguments arguments = all;
  const std::string name = TakeName(arguments, "attr() expects a name");
  RequireDefined(value);
  if (value.is_dict()) {
    if (auto method = Method(value, name)) return *std::move(method);
    return Value::Missing(fmt::format("'dict object' has no attribute '{}'", name));
  }
  return GetAttribute(value, name);
}

}  // namespace

const std::vector<FilterRow>& SelectingFilters() {
  static const std::vector<FilterRow> kFilters = {
      {"map", FilterMap},
      {"select", FilterSelect<true, false>},
      {"reject", FilterSelect<false, false>},
      {"selectattr", FilterSelect<true, true>},
      {"rejectattr", FilterSelect<false, true>},
      {"attr", FilterAttr},
  };
  return kFilters;
}

}  // namespace trimtab::jinja
