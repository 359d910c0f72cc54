#include "engine/data/vocabulary/word_model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "engine/data/vocabulary/byte_pair_model.h"
#include "engine/data/vocabulary/hugging_face_json.h"
#include "engine/data/vocabulary/unigram_model.h"

namespace trimtab {

std::unique_ptr<WordModel> ReadWordModel(const nlohmann::json& model, const std::string& where,
                                         bool byte_level) {
  std::string type;
  if (model.is_object() && !model.contains("type") && model.contains("vocab")) {
    type = model.contains("merges") ? "BPE" : "Unigram";  // what older files leave out
  } else {
    type = TypeOf(model, where);
  }
  if (type == "BPE") return std::make_unique<BytePairModel>(model, where, byte_level);
  if (type == "Unigram") return std::make_unique<UnigramModel>(model, where, byte_level);
  RefuseJson(where + ".type",
             "BPE or Unigram; or a tokenizer.model beside the file, which is read instead",
             model["type"]);
}

std::string ByteToken(int byte) { return fmt::format("<0x{:02X}>", byte); }

std::vector<int32_t> ByteTokens(const TokenIds& ids) {
  std::vector<int32_t> tokens;
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(ByteToken(byte));
    tokens.push_back(found == ids.end() ? -1 : found->second);
  }
  return tokens;
}

}  // namespace trimtab
