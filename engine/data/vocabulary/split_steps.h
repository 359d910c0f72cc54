// How a tokenizer.json cuts a text into words: its `pre_tokenizer`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/data/vocabulary/pattern.h"

namespace trimtab {

/// One way to cut a text into smaller parts, each of which the next step cuts on.
struct SplitStep {
  Pattern pattern;
  bool keep_matches = true;
  bool keep_gaps = true;     // what lies between the matches
  bool space_first = false;  // put one before a part that does not begin with one
  bool over_bytes = false;   // the pattern sees a character for each byte (byte_alphabet.h)
};

/// Reads a `pre_tokenizer` that has a "ByteLevel" in it. Throws InputError with the JSON path of
/// what is not understood.
std::vector<SplitStep> ReadSplitSteps(const nlohmann::json& pre_tokenizer,
                                      const std::string& where);

}  // namespace trimtab
