#include "engine/data/vocabulary/unigram_model.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "engine/data/tokenizer/tokenizer_config.h"
#include "engine/data/vocabulary/characters.h"
#include "engine/data/vocabulary/hugging_face_json.h"

namespace trimtab {
namespace {

using nlohmann::json;

/// How much worse an unknown character is than the worst token, as SentencePiece has it.
constexpr double kUnknownPenalty = 10;

}  // namespace

UnigramModel::UnigramModel(const json& model, const std::string& where, bool byte_level) {
  if (byte_level) RefuseJson(where + ".type", "BPE, as words are bytes", model["type"]);
  StrictObject object(model, where);
  object.Find("type");
  const json* vocab = object.Find("vocab", Need::kRequired);
  if (!vocab->is_array() || vocab->empty()) object.Refuse("vocab", "a list of [token, score]");
  int64_t unknown = 0;
  object.Integer("unk_id", unknown, 0, std::ssize(*vocab) - 1, Need::kRequired);
  object.Boolean("byte_fallback", byte_fallback_);
  object.Finish();
  unknown_ = static_cast<int32_t>(unknown);
  double worst = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < vocab->size(); ++i) {
    const json& entry = (*vocab)[i];
    const std::string here = fmt::format("{}[{}]", object.Where("vocab"), i);
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      RefuseJson(here, "[token, score]", entry);
    }
    const auto& token = entry[0].get_ref<const std::string&>();
    if (!ids_.emplace(token, static_cast<int32_t>(i)).second) {
      RefuseJson(here, "a token that was not there before", entry);
    }
    scores_.push_back(entry[1].get<double>());
    worst = std::min(worst, scores_.back());
    Add(token, static_cast<int32_t>(i));
  }
  unknown_score_ = worst - kUnknownPenalty;
  fallback_ = ByteTokens(ids_);
  // "<0x0A>" in a text is six characters.
  for (int byte = 0; byte < 256 && byte_fallback_; ++byte) Exclude({ByteToken(byte)});
}

void UnigramModel::Add(std::string_view token, int32_t id) {
  size_t node = 0;
  for (const char c : token) {
    const auto [next, added] = nodes_[node].next.try_emplace(static_cast<unsigned char>(c),
                                                             static_cast<int32_t>(nodes_.size()));
    node = static_cast<size_t>(next->second);
    if (added) nodes_.emplace_back();
  }
  if (node > 0) nodes_[node].id = id;
}

void UnigramModel::Exclude(const std::vector<std::string>& tokens) {
  for (const std::string& token : tokens) {
    if (ids_.contains(token)) Add(token, -1);
  }
}

std::vector<UnigramModel::Way> UnigramModel::BestWays(std::string_view word) const {
  std::vector<Way> ways(word.size() + 1);
  const auto offer = [&ways](size_t begin, size_t end, int32_t id, double score) {
    Way& way = ways[end];
    score += ways[begin].score;
    if (way.id < 0 || score > way.score) way = {score, begin, id};
  };
  for (size_t begin = 0; begin < word.size();) {
    const size_t character = CharacterAt(word, begin).bytes;
    bool is_token = false;
    size_t node = 0;
    for (size_t at = begin; at < word.size(); ++at) {
      const auto next = nodes_[node].next.find(static_cast<unsigned char>(word[at]));
      if (next == nodes_[node].next.end()) break;
      node = static_cast<size_t>(next->second);
      const int32_t id = nodes_[node].id;
      if (id < 0) continue;
      offer(begin, at + 1, id, scores_[static_cast<size_t>(id)]);
      is_token = is_token || at + 1 - begin == character;
    }
    if (!is_token) offer(begin, begin + character, unknown_, unknown_score_);
    begin += character;
  }
  return ways;
}

void UnigramModel::AppendUnknown(std::string_view text, std::vector<int32_t>& tokens) const {
  const auto id = [&](char c) { return fallback_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::ranges::none_of(text, [&](char c) { return id(c) < 0; })) {
    for (const char c : text) tokens.push_back(id(c));
  } else {
    tokens.push_back(unknown_);
  }
}

void UnigramModel::Encode(std::string_view word, std::vector<int32_t>& tokens) const {
  const std::vector<Way> ways = BestWays(word);
  std::vector<size_t> ends;  // of the tokens, the last first
  for (size_t end = word.size(); end > 0; end = ways[end].begin) ends.push_back(end);
  for (size_t i = ends.size(); i-- > 0;) {
    const Way& way = ways[ends[i]];
    if (way.id != unknown_) {
      tokens.push_back(way.id);
      continue;
    }
    while (i > 0 && ways[ends[i - 1]].id == unknown_) --i;  // one for all that follow each other
    AppendUnknown(word.substr(way.begin, ends[i] - way.begin), tokens);
  }
}

}  // namespace trimtab
