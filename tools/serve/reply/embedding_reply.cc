// Embeddings as OpenAI's API writes them.
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "tools/serve/reply/json_text.h"
#include "tools/serve/reply/reply.h"

namespace trimtab {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "base64 carries little-endian floats");

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) {
      group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[group >> (18 - 6 * j) & 63U] : '=';
    }
  }
  return text;
}

/// Scales to length 1.
std::vector<float> Normalised(std::vector<float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  if (sum == 0) return values;
  const double scale = 1 / std::sqrt(sum);
  for (float& value : values) value = static_cast<float>(value * scale);
  return values;
}

class EmbeddingReply : public Reply {
 public:
  using Reply::Reply;

  std::string Body(const std::vector<Choice>& choices) const override {
    json data = json::array();
    for (const Choice& choice : choices) {
      const std::vector<float> values = Normalised(choice.embedding);
      json embedding = values;
      if (request_.base64) {
        embedding =
            Base64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
      }
      data.push_back(
          {{"object", "embedding"}, {"index", choice.prompt}, {"embedding", std::move(embedding)}});
    }
    json usage = Usage(choices);
    usage.erase("completion_tokens");
    return JsonText({{"object", "list"},
                     {"model", head_.model},
                     {"data", std::move(data)},
                     {"usage", std::move(usage)}}) +
           "\n";
  }
};

}  // namespace

std::unique_ptr<Reply> MakeEmbeddingReply(const ApiRequest& request, const Tokenizer& tokenizer,
                                          ReplyHead head) {
  return std::make_unique<EmbeddingReply>(request, tokenizer, std::move(head));
}

}  // namespace trimtab
