// UnigramModel: the most probable tokens of a word (Kudo, ACL 2018).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/data/vocabulary/word_model.h"

namespace trimtab {

class UnigramModel : public WordModel {
 public:
  /// See ReadWordModel.
  UnigramModel(const nlohmann::json& model, const std::string& where, bool byte_level);

  void Encode(std::string_view word, std::vector<int32_t>& tokens) const override;
  void Exclude(const std::vector<std::string>& tokens) override;

 private:
  struct Node {
    std::unordered_map<uint8_t, int32_t> next{};
    int32_t id = -1;  // of the token that ends here
  };
  /// The best way to a place of a word, by its last token.
  struct Way {
    double score = 0;
    size_t begin = 0;
    int32_t id = -1;  // -1: none yet
  };
  void Add(std::string_view token, int32_t id);
  std::vector<Way> BestWays(std::string_view word) const;
  void AppendUnknown(std::string_view text, std::vector<int32_t>& tokens) const;

  std::vector<Node> nodes_{1};  // a tree of bytes
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  int32_t unknown_ = 0;
  bool byte_fallback_ = false;
  std::vector<int32_t> fallback_;
};

}  // namespace trimtab
