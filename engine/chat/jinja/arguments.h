// Reading what a call passed, by position or by name.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "engine/chat/jinja/value.h"

namespace trimtab::jinja {

/// The arguments of one call of `function`, matched to the parameters `names`. Throws Failure for
/// one too many and for a name that is none of them.
class Matched {
 public:
  Matched(std::string function, const Arguments& arguments,
          std::initializer_list<const char*> names);

  bool Has(size_t place) const { return values_[place].has_value(); }
  /// Throws Failure if it was left out.
  const Value& Get(size_t place) const;
  Value GetOr(size_t place, Value if_missing) const;
  int64_t Integer(size_t place, int64_t if_missing) const;
  bool Boolean(size_t place, bool if_missing) const;
  /// Its text; none where it was left out or is none. Throws Failure for what is no text.
  std::optional<Text> TextOf(size_t place) const;
  /// See TextOf; it must be there.
  Text RequiredText(size_t place) const;

 private:
  std::string function_;
  std::vector<const char*> names_;
  std::vector<std::optional<Value>> values_;
};

}  // namespace trimtab::jinja
