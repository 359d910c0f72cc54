// Fields that say how tokens are chosen.
#include <array>
#include <charconv>
#include <limits>

#include "tools/serve/api/field.h"

namespace trimtab {
namespace {

using enum FieldKind;

constexpr int64_t kMany = std::numeric_limits<int32_t>::max();
constexpr double kMostBias = 100;

/// Nothing could be drawn of no probability at all.
double ReadTopP(const FieldValue& value) {
  if (!value.json().is_number() || value.json() <= 0 || value.json() > 1) {
    value.Refuse("a number above 0, up to 1");
  }
  return value.json().get<double>();
}

/// All tokens where nothing, 0 or, as in vLLM, -1 is asked for.
int64_t ReadTopK(const FieldValue& value) { return std::max<int64_t>(0, value.Integer(-1, kMany)); }

uint64_t ReadSeed(const FieldValue& value) {
  return static_cast<uint64_t>(
      value.Integer(std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()));
}

/// {"token id": bias}, or llama.cpp's list of [id, bias], where false stands for "never".
void ReadLogitBias(Asked& asked, const FieldValue& value) {
  const auto add = [&](int64_t id, const FieldValue& bias) {
    if (id < 0 || id >= asked.model.vocab_size) {
      throw InputError(fmt::format("{}: expected a token id from 0 to {}, got {}", bias.path(),
                                   asked.model.vocab_size - 1, id));
    }
    const bool never = bias.json().is_boolean() && !bias.Boolean();
    asked.out.generation.logit_bias.emplace_back(
        static_cast<int32_t>(id),
        never ? -kMostBias : static_cast<float>(bias.Number(-kMostBias, kMostBias)));
  };
  if (value.json().is_array()) {
    for (const FieldValue& pair : value.List("")) {
      const std::vector<FieldValue> both = pair.List("a token id and a bias");
      if (both.size() != 2) pair.Refuse("a token id and a bias");
      add(both[0].Integer(0, kMany), both[1]);
    }
    return;
  }
  value.RequireObject();
  for (const auto& [key, bias] : value.json().items()) {
    int64_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size()) {
      value.Refuse("token ids, as \"123\", and their biases");
    }
    add(id, value.At(key));
  }
}

constexpr std::array kFields = {
    Field{"temperature", kAnswers, kTaken, R"("type":"number","minimum":0)", "",
          "0: the likeliest token; 1 if left out",
          [](Asked& a, const FieldValue& v) {
            a.out.generation.sampling.temperature = v.Number(0, 100);
          }},
    Field{"top_p", kAnswers, kTaken, R"("type":"number")", "",
          "chooses among the likeliest tokens of this probability",
          [](Asked& a, const FieldValue& v) { a.out.generation.sampling.top_p = ReadTopP(v); }},
    Field{"top_k", kText, kTaken, R"("type":"integer")", "",
          "chooses among so many likeliest tokens; 0 or -1: all",
          [](Asked& a, const FieldValue& v) { a.out.generation.sampling.top_k = ReadTopK(v); }},
    Field{"min_p", kText, kTaken, R"("type":"number")", "",
          "leaves out tokens below this part of the likeliest one's probability",
          [](Asked& a, const FieldValue& v) { a.out.generation.sampling.min_p = v.Number(0, 1); }},
    Field{"repetition_penalty", kText, kTaken, R"("type":"number")", "",
          "divides logits of tokens of prompt and answer; 1: none",
          [](Asked& a, const FieldValue& v) {
            a.out.generation.sampling.repetition_penalty = v.Number(0.01, 100);
          }},
    Field{"presence_penalty", kText, kTaken, R"("type":"number")", "",
          "subtracted from logits of tokens that the answer has",
          [](Asked& a, const FieldValue& v) {
            a.out.generation.sampling.presence_penalty = v.Number(-2, 2);
          }},
    Field{"frequency_penalty", kText, kTaken, R"("type":"number")", "",
          "subtracted from logits for each time that the answer has a token",
          [](Asked& a, const FieldValue& v) {
            a.out.generation.sampling.frequency_penalty = v.Number(-2, 2);
          }},
    Field{"logit_bias", kText, kTaken, R"("type":["object","array"])", "", "added to logits",
          ReadLogitBias},
    Field{"allowed_token_ids", kText, kTaken, R"("type":"array")", "", "no others are chosen",
          [](Asked& a, const FieldValue& v) {
            a.out.generation.allowed_tokens = v.Tokens(a.model.vocab_size);
            if (a.out.generation.allowed_tokens.empty()) v.Refuse("at least one token id");
          }},
    Field{"bad_words", kText, kTaken, R"("type":"array")", "", "texts that are not written",
          [](Asked& a, const FieldValue& v) { a.bad_words = v; }},
    Field{"seed", kAnswers, kTaken, R"("type":"integer")", "",
          "of what is drawn; answer i of several draws with seed + i",
          [](Asked& a, const FieldValue& v) { a.seed = ReadSeed(v); }},
    Field{"min_tokens", kText, kTaken, R"("type":"integer")", "", "no token ends the answer before",
          [](Asked& a, const FieldValue& v) { a.out.generation.min_tokens = v.Integer(0, kMany); }},
    Field{"ignore_eos", kText, kTaken, R"("type":"boolean")", "",
          "tokens that end an answer do not end it",
          [](Asked& a, const FieldValue& v) { a.ignore_end = v.Boolean(); }},
    Field{"stop_token_ids", kText, kTaken, R"("type":"array")", "", "these end the answer too",
          [](Asked& a, const FieldValue& v) { a.stop_tokens = v.Tokens(a.model.vocab_size); }},
    Field{"use_beam_search", kText, kNeutral, R"("type":"boolean")", "[false]",
          "answers are drawn; best_of chooses among several"},
    Field{"early_stopping", kText, kNeutral, R"("type":"boolean")", "[false]",
          "belongs to beam search"},
    Field{"length_penalty", kText, kNeutral, R"("type":"number")", "[1]", "belongs to beam search"},
    Field{"typical_p", kText, kNeutral, R"("type":"number")", "[1]",
          "tokens are chosen by top_k, top_p and min_p"},
    Field{"tfs_z", kText, kNeutral, R"("type":"number")", "[1]",
          "tokens are chosen by top_k, top_p and min_p"},
    Field{"top_n_sigma", kText, kNeutral, R"("type":"number")", "[-1, 0]",
          "tokens are chosen by top_k, top_p and min_p"},
    Field{"mirostat", kText, kNeutral, R"("type":"integer")", "[0]",
          "tokens are chosen by top_k, top_p and min_p"},
    Field{"mirostat_tau", kText, kNothing, R"("type":"number")", "", "mirostat is off"},
    Field{"mirostat_eta", kText, kNothing, R"("type":"number")", "", "mirostat is off"},
    Field{"dynatemp_range", kText, kNeutral, R"("type":"number")", "[0]",
          "the temperature is fixed"},
    Field{"dynatemp_exponent", kText, kNothing, R"("type":"number")", "",
          "the temperature is fixed"},
    Field{"xtc_probability", kText, kNeutral, R"("type":"number")", "[0]",
          "likely tokens are not left out"},
    Field{"xtc_threshold", kText, kNothing, R"("type":"number")", "",
          "likely tokens are not left out"},
    Field{"repeat_penalty", kText, kNeutral, R"("type":"number")", "[1]",
          "use repetition_penalty, which counts the whole text"},
    Field{"repeat_last_n", kText, kNothing, R"("type":"integer")", "", "repeat_penalty is off"},
    Field{"penalize_nl", kText, kNothing, R"("type":"boolean")", "", "repeat_penalty is off"},
    Field{"dry_multiplier", kText, kNeutral, R"("type":"number")", "[0]",
          "use repetition_penalty or frequency_penalty"},
    Field{"dry_base", kText, kNothing, R"("type":"number")", "", "dry_multiplier is off"},
    Field{"dry_allowed_length", kText, kNothing, R"("type":"integer")", "",
          "dry_multiplier is off"},
    Field{"dry_penalty_last_n", kText, kNothing, R"("type":"integer")", "",
          "dry_multiplier is off"},
    Field{"dry_sequence_breakers", kText, kNothing, R"("type":"array")", "",
          "dry_multiplier is off"},
    Field{"samplers", kText, kNeutral, R"("type":"array")", "[[]]",
          "the order of filters is fixed: top_k, top_p, min_p"},
    Field{"min_keep", kText, kNeutral, R"("type":"integer")", "[0, 1]",
          "filters keep at least one token"},
    Field{"logits_processors", kText, kNeutral, R"("type":"array")", "[[]]",
          "programs of clients are not run"},
    Field{"repetition_detection", kText, kNeutral, R"("type":"object")", "[]",
          "use stop or frequency_penalty"},
    Field{"watermarking", kText, kNeutral, R"("type":"boolean")", "[false]",
          "answers are not marked"},
};

}  // namespace

std::span<const Field> SamplingFields() { return kFields; }

}  // namespace trimtab
