// Names that people write in several ways: "H100-SXM" and "h100 sxm", "Megatron-LM" and "megatron
// lm" are the same.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trimtab {

/// The letters and digits of `text` alone, in lower case (ASCII).
std::string PlainName(std::string_view text);

/// The same word by word: what stands between others is none.
std::vector<std::string> PlainWords(std::string_view text);

/// Where `words` spell `plain_name`, whose words may be written together or apart: the index of the
/// first of them; words.size() if nowhere.
size_t FindPlainName(const std::vector<std::string>& words, std::string_view plain_name);

}  // namespace trimtab
