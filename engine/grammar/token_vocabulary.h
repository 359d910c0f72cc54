// TokenVocabulary: the bytes of every token, as a tree.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/data/tokenizer/tokenizer.h"

namespace trimtab {

/// Immutable: safe to use from several threads.
class TokenVocabulary {
 public:
  /// A beginning of tokens. Nodes are listed as a walk from the root meets them, those below a node
  /// behind it; the root, which has no byte, is not listed.
  struct Node {
    uint8_t byte = 0;         // the last of the beginning
    uint16_t depth = 0;       // bytes of the beginning
    int32_t end = 0;          // the first node that is not below this one
    int32_t first_token = 0;  // of tokens(): those that end here stop where the next node's begin
  };

  /// `size` ids, as many as the model has, of which `tokenizer` may name fewer. Special tokens and
  /// ids without a name have no bytes: no grammar takes them.
  TokenVocabulary(const Tokenizer& tokenizer, int64_t size);
  explicit TokenVocabulary(std::vector<std::string> bytes);

  int64_t size() const { return std::ssize(bytes_); }
  const std::string& bytes(int32_t token) const { return bytes_[static_cast<size_t>(token)]; }
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Tokens with bytes, in the order of these.
  const std::vector<int32_t>& tokens() const { return tokens_; }
  /// Bytes of the longest token.
  int64_t longest() const { return longest_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;
  std::vector<int32_t> tokens_;
  int64_t longest_ = 0;
};

}  // namespace trimtab
