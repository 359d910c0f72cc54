// Fields of prompts that are no conversations, and how prompts are cut.
#include <array>
#include <limits>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

using enum FieldKind;

constexpr int64_t kMany = std::numeric_limits<int32_t>::max();

void ReadModel(Asked& asked, const FieldValue& value) {
  const std::string& name = value.Text();
  if (name == asked.model.name) return;
  throw UnknownModelError(fmt::format("$.model: '{}' is not served here; expected '{}'",
                                      Printable(name, 200), asked.model.name));
}

void ReadTruncation(Asked& asked, const FieldValue& value) {
  const int64_t length = value.Integer(-1, kMany);
  if (length == 0) value.Refuse("-1, or at least 1 token");
  asked.longest_prompt = length < 0 ? kMany : length;
}

void ReadPooling(Asked& asked, const FieldValue& value) {
  const std::string& pooling = value.Text();
  if (pooling != "mean" && pooling != "last") value.Refuse("\"mean\" or \"last\"");
  asked.out.generation.pooling = pooling == "mean" ? Pooling::kMean : Pooling::kLast;
}

void ReadEncoding(Asked& asked, const FieldValue& value) {
  const std::string& encoding = value.Text();
  if (encoding != "float" && encoding != "base64") value.Refuse("\"float\" or \"base64\"");
  asked.out.base64 = encoding == "base64";
}

constexpr unsigned kAll = kAnswers | kEmbeddings | kTokenize | kDetokenize;

constexpr std::array kFields = {
    Field{"model", kAll, kTaken, R"("type":"string")", "", "the one that is served, if given",
          ReadModel},
    Field{"prompt", kCompletions | kTokenize, kTaken, R"("type":["string","array"])", "",
          "a text, a list of texts, a list of token ids, or several such lists",
          [](Asked& a, const FieldValue& v) { a.prompt = v; }},
    Field{"content", kTokenize, kTaken, R"("type":"string")", "", "llama.cpp's name of prompt",
          [](Asked& a, const FieldValue& v) { a.prompt = v; }},
    Field{"tokens", kDetokenize, kTaken, R"("type":"array")", "", "token ids",
          [](Asked& a, const FieldValue& v) { a.prompt = v; }},
    Field{"input", kResponses, kTaken, R"("type":["string","array"])", "",
          "a text, or a list of messages", [](Asked& a, const FieldValue& v) { a.input = v; }},
    Field{"input", kEmbeddings, kTaken, R"("type":["string","array"])", "",
          "a text, a list of texts, a list of token ids, or several such lists",
          [](Asked& a, const FieldValue& v) { a.prompt = v; }},
    Field{"instructions", kResponses, kTaken, R"("type":"string")", "", "the system's message",
          [](Asked& a, const FieldValue& v) { a.instructions = v.Text(); }},
    Field{"previous_response_id", kResponses, kNeutral, R"("type":"string")", "[]",
          "responses are not kept; send the conversation as input"},
    Field{"conversation", kResponses, kNeutral, R"("type":["string","object"])", "[]",
          "conversations are not kept; send them as input"},
    Field{"background", kResponses, kNeutral, R"("type":"boolean")", "[false]",
          "responses are not kept; use stream"},
    Field{"prompt", kResponses, kNeutral, R"("type":"object")", "[]",
          "prompts are not kept; send them as instructions and input"},
    Field{"encoding_format", kEmbeddings, kTaken, R"("type":"string")", "", "float or base64",
          ReadEncoding},
    Field{"pooling", kEmbeddings, kTaken, R"("type":"string")", "",
          "mean of all states, or the last one; --pooling says what if left out", ReadPooling},
    Field{"normalize", kEmbeddings, kNeutral, R"("type":"boolean")", "[true]",
          "embeddings have length 1"},
    Field{"embd_normalize", kEmbeddings, kNeutral, R"("type":"integer")", "[2]",
          "embeddings have Euclidean length 1"},
    Field{"add_special_tokens", kCompletions | kTokenize | kEmbeddings, kTaken,
          R"("type":"boolean")", "", "a text begins with what every prompt begins with",
          [](Asked& a, const FieldValue& v) { a.special_tokens = v.Boolean(); }},
    Field{"add_special_tokens", kChat, kNeutral, R"("type":"boolean")", "[false]",
          "the template writes what a prompt begins with"},
    Field{"add_special", kTokenize, kTaken, R"("type":"boolean")", "",
          "llama.cpp's name of add_special_tokens",
          [](Asked& a, const FieldValue& v) { a.special_tokens = v.Boolean(); }},
    Field{"truncate_prompt_tokens", kText | kEmbeddings, kTaken, R"("type":"integer")", "",
          "cuts a longer prompt; -1: to what fits", ReadTruncation},
    Field{"truncation_side", kText | kEmbeddings, kTaken, R"("type":"string")", "",
          "left: the end of the prompt remains; right: its beginning",
          [](Asked& a, const FieldValue& v) {
            if (v.Text() != "left" && v.Text() != "right") v.Refuse("\"left\" or \"right\"");
            a.cut_end = v.Text() == "right";
          }},
    Field{"prompt_embeds", kCompletions, kNeutral, R"("type":["string","array"])", "[[]]",
          "prompts are text or token ids"},
    Field{"image_data", kText, kNeutral, R"("type":"array")", "[[]]", "prompts are text"},
};

}  // namespace

std::span<const Field> PromptFields() { return kFields; }

}  // namespace trimtab
