#include "engine/chat/jinja/filters.h"

#include <fmt/core.h>

#include <unordered_map>

#include "engine/chat/jinja/interpreter.h"

namespace trimtab::jinja {

FilterFunction FindFilter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kAll = [] {
    std::unordered_map<std::string_view, FilterFunction> all;
    for (const auto* table :
         {&TextFilters(), &NumberFilters(), &SequenceFilters(), &SelectingFilters()}) {
      all.insert(table->begin(), table->end());
    }
    return all;
  }();
  const auto found = kAll.find(name);
  return found == kAll.end() ? nullptr : found->second;
}

TestFunction FindTest(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kAll(AllTests().begin(),
                                                                       AllTests().end());
  const auto found = kAll.find(name);
  return found == kAll.end() ? nullptr : found->second;
}

Value Interpreter::Filter(const std::string& name, const Value& value, Arguments& arguments) {
  const DepthGuard guard;
  SpendStep();
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) throw Failure(fmt::format("no filter named '{}'", name));
  return filter(*this, value, arguments);
}

bool Interpreter::Test(const std::string& name, const Value& value, Arguments& arguments) {
  SpendStep();
  const TestFunction test = FindTest(name);
  if (test == nullptr) throw Failure(fmt::format("no test named '{}'", name));
  return test(*this, value, arguments);
}

}  // namespace trimtab::jinja
