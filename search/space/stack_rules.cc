#include "search/space/stack_rules.h"

#include <algorithm>
#include <map>
#include <string>

#include "engine/base/error.h"
#include "engine/base/mutex.h"
#include "engine/config/json/text_values.h"
#include "search/space/in_file.h"
#include "search/space/narrowing.h"

namespace trimtab {
namespace {

/// Returns the rule of one option of one stack: the same for each tree, so that trees of several
/// threads count under one.
const Rule& RuleOf(const std::string& stack, const std::string& key) {
  static Mutex mutex;
  static std::map<std::string, Rule> rules TRIMTAB_GUARDED_BY(mutex);
  const MutexLock lock(mutex);
  const auto [found, is_new] =
      rules.try_emplace(fmt::format("{}-has-no-such-{}", stack, key), Rule{});
  if (is_new) found->second.id = found->first.c_str();
  return found->second;
}

/// Returns true if `value` is `listed`, or begins so: "selective" of "selective:layernorm".
bool Begins(const std::string& value, const std::string& listed) {
  return value == listed || value.starts_with(listed + ":");
}

bool Has(const StackOption& option, const std::string& value) {
  const auto listed = [&](const std::string& part) {
    return std::ranges::any_of(option.values,
                               [&](const std::string& each) { return Begins(part, each); });
  };
  // Plans of several pipeline stages.
  return std::ranges::all_of(Split(value, '/'), listed);
}

}  // namespace

StackRules::StackRules(const SoftwareStack& stack) {
  for (const StackOption& option : stack.options) {
    const std::string where = fmt::format("software stack {}: options", stack.name);
    const std::string pair = fmt::format("{}={}", option.key, option.values.at(0));
    InFile("", [&] { ParseNarrowings({pair}, where, /*forbidden=*/false); });
    rows_.push_back({RowThatBinds(option.key), &LayoutKeyCalled(option.key), &option,
                     &RuleOf(stack.name, option.key)});
  }
}

const Rule* StackRules::Broken(size_t depth, const ParallelConfig& layout) const {
  for (const Row& row : rows_) {
    if (row.depth == depth && !Has(*row.option, row.key->print(layout))) return row.rule;
  }
  return nullptr;
}

}  // namespace trimtab
