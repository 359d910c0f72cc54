// What a serialised SentencePiece model says of its pieces that its library does not tell.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace trimtab {

/// Makes control pieces of those user-defined ones of `model` that `is_special` says are special:
/// names that stand for nothing in a text, and that the library then no longer takes for tokens
/// wherever a text has them. What is not understood stays as it is, for the library to refuse.
void MakeControlPieces(std::string& model,
                       const std::function<bool(int32_t id, std::string_view name)>& is_special);

}  // namespace trimtab
