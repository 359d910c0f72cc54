// EmbeddedJson: a JSON file that the program carries with it.
#pragma once

#include <span>

namespace trimtab {

struct EmbeddedJson {
  const char* name;  // of the file, without ".json"
  const char* json;  // its text
};

}  // namespace trimtab
