#include "tests/engine/data/train_vocabulary.h"

#include <map>
#include <nlohmann/json.hpp>

#include "engine/data/tokenizer/byte_alphabet.h"

namespace trimtab {
namespace {

using nlohmann::json;
using Word = std::vector<std::string>;

void Join(Word& word, const std::string& left, const std::string& right) {
  Word joined;
  for (size_t i = 0; i < word.size(); ++i) {
    if (i + 1 < word.size() && word[i] == left && word[i + 1] == right) {
      joined.push_back(left + right);
      ++i;
    } else {
      joined.push_back(word[i]);
    }
  }
  word = joined;
}

std::string Printable(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) text += ByteCharacter(static_cast<uint8_t>(c));
  return text;
}

json ByteLevel(bool use_regex) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", use_regex}};
}

json Split(const std::string& regex) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", regex}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            ByteLevel(false)}}};
}

/// The patterns as the model families publish them.
json PreTokenizer(const std::string& rules) {
  if (rules == "gpt2") return ByteLevel(true);
  const std::string digits = rules == "llama3" ? "{1,3}" : "";
  return Split(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" + digits +
               R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)");
}

}  // namespace

std::vector<std::string> ManyScripts() {
  return {
      "It's a trim tab; we'll see what they've DON'T and I'm 12345 or 3.14159 of 1,000,000.",
      "Gr\u00fc\u00dfe aus K\u00f6ln, \u00e9t\u00e9 \u00e0 No\u00ebl, e\u0301te\u0301 decomposed",
      "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0426\u0435\u043d\u0430 42",
      "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u4eca\u5929\u662f2026\u5e74",
      "\u3053\u3093\u306b\u3061\u306f\u4e16\u754c \u30ab\u30bf\u30ab\u30ca",
      "\uc548\ub155\ud558\uc138\uc694 \uc138\uacc4 \u1112\u1161\u11ab",
      "\u0645\u0631\u062d\u0628\u0627 \u0628\u0627\u0644\u0639\u0627\u0644\u0645 "
      "\u0661\u0662\u0663",
      "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd",
      "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e \u0967\u0968",
      "\u03ba\u03b1\u03bb\u03b7\u03bc\u03ad\u03c1\u03b1 \u03ba\u03cc\u03c3\u03bc\u03b5 \u2163 "
      "\u00bd",
      "emoji \U0001F600\U0001F468\u200d\U0001F469\u200d\U0001F467 and \U0001F1E9\U0001F1EA flags",
      "  leading, trailing   ",
      "tabs\tand\t\tmore\u00a0hard\u2003spaces\u3000here\u180eand",
      "lines\n\n\nwith\r\nall \n \n kinds\r of \u2028ends \u0085x\n",
      "code: for (int i = 0; i < n; ++i) { x[i] += \"a\\n\"; }  // 'quoted'",
      "HTTP://Example.COM/a_b-c?d=e&f=%20#g",
      "",
      " ",
      "\n",
      "'S 'T 'Re 'LL '\u017f \u212a",
  };
}

std::vector<std::pair<std::string, std::string>> TrainMerges(const std::vector<std::string>& words,
                                                             int count) {
  std::map<Word, int> counted;
  for (const std::string& text : words) {
    Word word;
    for (const char c : text) word.push_back({c});
    ++counted[word];
  }
  std::vector<std::pair<std::string, std::string>> merges;
  while (static_cast<int>(merges.size()) < count) {
    std::map<std::pair<std::string, std::string>, int> pairs;
    for (const auto& [word, times] : counted) {
      for (size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += times;
    }
    if (pairs.empty()) break;
    const auto best =
        std::max_element(pairs.begin(), pairs.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const std::pair<std::string, std::string> pair = best->first;
    merges.push_back(pair);
    std::map<Word, int> joined;
    for (const auto& [word, times] : counted) {
      Word next = word;
      Join(next, pair.first, pair.second);
      joined[next] += times;
    }
    counted = std::move(joined);
  }
  return merges;
}

std::string VocabularyJson(const std::vector<std::pair<std::string, std::string>>& merges,
                           const std::string& rules) {
  json vocab = json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[ByteCharacter(static_cast<uint8_t>(byte))] = byte;
  json pairs = json::array();
  for (const auto& [left, right] : merges) {
    const std::string token = Printable(left) + Printable(right);
    if (!vocab.contains(token)) vocab[token] = vocab.size();
    // The two forms that files have.
    if (rules == "llama3") {
      pairs.push_back({Printable(left), Printable(right)});
    } else {
      pairs.push_back(Printable(left) + " " + Printable(right));
    }
  }
  const auto special = [&](size_t id, const char* name) {
    return json{{"id", id},        {"content", name}, {"single_word", false},
                {"lstrip", false}, {"rstrip", false}, {"normalized", rules == "gpt2"},
                {"special", true}};
  };
  json root = {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens", {special(vocab.size(), "<|end|>"), special(vocab.size() + 1, "<|start|>")}},
      {"normalizer", nullptr},
      {"pre_tokenizer", PreTokenizer(rules)},
      {"post_processor", ByteLevel(true)},
      {"decoder", ByteLevel(true)},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", ""},
        {"end_of_word_suffix", ""},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"ignore_merges", rules == "llama3"},
        {"vocab", vocab},
        {"merges", pairs}}}};
  if (rules == "qwen2") root["normalizer"] = {{"type", "NFC"}};
  if (rules == "llama3") {
    root["post_processor"] = {{"type", "Sequence"},
                              {"processors",
                               {ByteLevel(true),
                                {{"type", "TemplateProcessing"},
                                 {"single",
                                  {{{"SpecialToken", {{"id", "<|start|>"}, {"type_id", 0}}}},
                                   {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                                 {"pair", json::array()},
                                 {"special_tokens", json::object()}}}}};
  }
  return root.dump();
}

}  // namespace trimtab
