// What the pre-tokenizer "Metaspace" and the decoder of that name say alike.
#pragma once

#include <string>

#include "engine/data/vocabulary/hugging_face_json.h"
#include "engine/data/vocabulary/pre_tokenizer.h"

namespace trimtab {

struct Metaspace {
  std::string replacement = "\u2581";  // of a space
  PrefixUse prefix = PrefixUse::kAlways;
};

/// Reads `replacement`, `prepend_scheme`, and `add_prefix_space` of older files.
inline Metaspace ReadMetaspaceKeys(StrictObject& object) {
  Metaspace rules;
  object.Text("replacement", rules.replacement);
  if (rules.replacement.empty()) object.Refuse("replacement", "a character");
  bool add_prefix_space = true;
  object.Boolean("add_prefix_space", add_prefix_space);
  std::string scheme = add_prefix_space ? "always" : "never";
  const std::string schemes[] = {"always", "first", "never"};
  object.Choice("prepend_scheme", scheme, schemes);
  if (!add_prefix_space && scheme != "never") {
    object.Refuse("prepend_scheme", "\"never\", as add_prefix_space is false");
  }
  if (scheme == "first") rules.prefix = PrefixUse::kFirst;
  if (scheme == "never") rules.prefix = PrefixUse::kNever;
  return rules;
}

}  // namespace trimtab
