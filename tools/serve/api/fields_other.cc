// Fields of hosted services, and of how other servers are run: most change nothing here.
#include <array>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

using enum FieldKind;

constexpr unsigned kAny = kAnswers | kEmbeddings;

constexpr std::array kFields = {
    Field{"user", kAny, kNothing, R"("type":"string")", "", "whose request it is"},
    Field{"store", kAnswers, kNothing, R"("type":"boolean")", "", "nothing is kept"},
    Field{"metadata", kAnswers, kNothing, R"("type":"object")", "", "nothing is kept"},
    Field{"service_tier", kAnswers, kNothing, R"("type":"string")", "", "there is one tier"},
    Field{"safety_identifier", kAnswers, kNothing, R"("type":"string")", "", "whose request it is"},
    Field{"prompt_cache_key", kAnswers, kNothing, R"("type":"string")", "",
          "equal beginnings of prompts are found without it"},
    Field{"prompt_cache_retention", kAnswers, kNothing, R"("type":"string")", "",
          "the cache keeps what it has room for"},
    Field{"priority", kAny, kNeutral, R"("type":"integer")", "[0]",
          "requests are served in the order in which they come"},
    Field{"session_id", kText, kNothing, R"("type":"string")", "",
          "every request brings its whole conversation"},
    Field{"cache_salt", kText, kNeutral, R"("type":"string")", "[]",
          "one cache serves all clients; start a server of your own"},
    Field{"cache_prompt", kText, kNothing, R"("type":"boolean")", "",
          "the cache changes no answer"},
    Field{"stream_interval", kText, kNothing, R"("type":"integer")", "",
          "events come as tokens do"},
    Field{"kv_transfer_params", kText, kNeutral, R"("type":"object")", "[{}]",
          "prefill and decode are placed by --layout"},
    Field{"ec_transfer_params", kText, kNeutral, R"("type":"object")", "[{}]", "prompts are text"},
    Field{"vllm_xargs", kText, kNeutral, R"("type":"object")", "[{}]",
          "extensions of clients are not run"},
    Field{"id_slot", kText, kNothing, R"("type":"integer")", "",
          "the scheduler finds a place for each request"},
    Field{"lora", kText, kNeutral, R"("type":"array")", "[[]]",
          "one model is served; start a server of the adapted one"},
    Field{"n_keep", kText, kNeutral, R"("type":"integer")", "[0, -1]",
          "a text that is too long is refused, not shifted"},
    Field{"n_discard", kText, kNeutral, R"("type":"integer")", "[0]",
          "a text that is too long is refused, not shifted"},
    Field{"n_indent", kText, kNeutral, R"("type":"integer")", "[0]", "use a grammar"},
    Field{"n_cache_reuse", kText, kNothing, R"("type":"integer")", "",
          "the cache changes no answer"},
    Field{"t_max_predict_ms", kText, kNeutral, R"("type":"integer")", "[0, -1]",
          "use max_tokens, or the server's --request-timeout"},
    Field{"t_max_prompt_ms", kText, kNeutral, R"("type":"integer")", "[0, -1]",
          "use the server's --request-timeout"},
    Field{"speculative.n_max", kText, kNothing, R"("type":"integer")", "",
          "speculation changes no answer"},
    Field{"speculative.n_min", kText, kNothing, R"("type":"integer")", "",
          "speculation changes no answer"},
    Field{"speculative.p_min", kText, kNothing, R"("type":"number")", "",
          "speculation changes no answer"},
    Field{"return_token_strs", kTokenize, kTaken, R"("type":"boolean")", "",
          "the text of each token too",
          [](Asked& a, const FieldValue& v) { a.token_texts = v.Boolean(); }},
    Field{"with_pieces", kTokenize, kTaken, R"("type":"boolean")", "",
          "llama.cpp's: each token with its text",
          [](Asked& a, const FieldValue& v) { a.token_pieces = v.Boolean(); }},
    Field{"parse_special", kTokenize, kTaken, R"("type":"boolean")", "",
          "false: names of special tokens are text",
          [](Asked& a, const FieldValue& v) { a.special_names = v.Boolean(); }},
    Field{"mm_processor_kwargs", kTokenize, kNeutral, R"("type":"object")", "[{}]",
          "prompts are text"},
    Field{"dimensions", kEmbeddings, kTaken, R"("type":"integer")", "",
          "must be what the model has",
          [](Asked& a, const FieldValue& v) {
            const int64_t size = a.model.embedding_size;
            if (v.Integer(1, 1 << 20) == size) return;
            v.Refuse(fmt::format("{}, which is what embeddings of this model have", size));
          }},
};

}  // namespace

std::span<const Field> OtherFields() { return kFields; }

}  // namespace trimtab
