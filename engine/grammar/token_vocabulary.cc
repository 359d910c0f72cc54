#include "engine/grammar/token_vocabulary.h"

#include <algorithm>
#include <utility>

namespace trimtab {
namespace {

constexpr size_t kLongestToken = 60'000;  // a node's depth has 16 bits

std::vector<std::string> AllBytes(const Tokenizer& tokenizer, int64_t size) {
  std::vector<std::string> bytes;
  for (int64_t id = 0; id < size; ++id)
    bytes.push_back(tokenizer.BytesOf(static_cast<int32_t>(id)));
  return bytes;
}

}  // namespace

TokenVocabulary::TokenVocabulary(const Tokenizer& tokenizer, int64_t size)
    : TokenVocabulary(AllBytes(tokenizer, size)) {}

TokenVocabulary::TokenVocabulary(std::vector<std::string> bytes) : bytes_(std::move(bytes)) {
  for (size_t id = 0; id < bytes_.size(); ++id) {
    if (bytes_[id].empty() || bytes_[id].size() > kLongestToken) continue;
    tokens_.push_back(static_cast<int32_t>(id));
    longest_ = std::max(longest_, std::ssize(bytes_[id]));
  }
  std::sort(tokens_.begin(), tokens_.end(), [this](int32_t a, int32_t b) {
    const int order = this->bytes(a).compare(this->bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<size_t> path;  // nodes of the last token's beginnings
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      nodes_[path.back()].end = static_cast<int32_t>(nodes_.size());
      path.pop_back();
    }
  };
  std::string_view last;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view token = this->bytes(tokens_[i]);
    const size_t same = static_cast<size_t>(
        std::mismatch(token.begin(), token.end(), last.begin(), last.end()).first - token.begin());
    close(same);
    for (size_t depth = same; depth < token.size(); ++depth) {
      path.push_back(nodes_.size());
      nodes_.push_back({.byte = static_cast<uint8_t>(token[depth]),
                        .depth = static_cast<uint16_t>(depth + 1),
                        .first_token = static_cast<int32_t>(i)});
    }
    last = token;
  }
  close(0);
}

}  // namespace trimtab
