#include "engine/data/tokenizer.h"

#include "engine/base/error.h"

namespace trimtab {
namespace {

constexpr int32_t kByteCount = 256;

class ByteTokenizer : public Tokenizer {
 public:
  void Encode(std::string_view text, std::vector<int32_t>& tokens) const override {
    tokens.reserve(tokens.size() + text.size());
    for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  }

  std::string Decode(std::span<const int32_t> tokens) const override {
    std::string text;
    text.reserve(tokens.size());
    for (const int32_t token : tokens) {
      if (token < 0 || token > eod_id()) {
        throw InputError(fmt::format("token id {} is outside the byte tokenizer's vocabulary of {}",
                                     token, vocab_size()));
      }
      if (token != eod_id()) text.push_back(static_cast<char>(token));
    }
    return text;
  }

  int64_t vocab_size() const override { return kByteCount + 1; }
  int32_t eod_id() const override { return kByteCount; }
  std::string name() const override { return "byte"; }
};

}  // namespace

std::unique_ptr<Tokenizer> MakeByteTokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace trimtab
