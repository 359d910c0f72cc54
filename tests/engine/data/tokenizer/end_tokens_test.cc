#include "engine/data/tokenizer/end_tokens.h"

#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

using Ids = std::vector<int32_t>;

TEST(EndTokens, AreThoseOfTheGenerationOrElseOfTheModel) {
  const std::string folder = ScratchFolder();
  EXPECT_EQ(ReadEndTokens(folder, 10), Ids());
  WriteBytes(folder + "/source_config.json", R"({"eos_token_id": 3})");
  EXPECT_EQ(ReadEndTokens(folder, 10), Ids({3}));
  WriteBytes(folder + "/config.json", R"({"model_type": "llama", "eos_token_id": 2})");
  EXPECT_EQ(ReadEndTokens(folder, 10), Ids({2}));
  WriteBytes(folder + "/generation_config.json", R"({"eos_token_id": null, "top_p": 0.9})");
  EXPECT_EQ(ReadEndTokens(folder, 10), Ids({2}));
  WriteBytes(folder + "/generation_config.json", R"({"eos_token_id": [9, 0]})");
  EXPECT_EQ(ReadEndTokens(folder, 10), Ids({9, 0}));
  EXPECT_EQ(ReadGenerationFiles(folder),
            (std::map<std::string, std::string>{
                {"generation_config.json", R"({"eos_token_id": [9, 0]})"},
                {"source_config.json", R"({"model_type": "llama", "eos_token_id": 2})"}}));
}

TEST(EndTokens, RefusesWhatIsNoId) {
  const std::string folder = ScratchFolder();
  const std::string file = folder + "/generation_config.json";
  const auto message = [&](const std::string& value) {
    WriteBytes(file, R"({"eos_token_id": )" + value + "}");
    return MessageOf<InputError>([&] { ReadEndTokens(folder, 10); });
  };
  const std::string at = file + ": $.eos_token_id";
  for (const char* bad : {"-1", "10", "18446744073709551615", "1.5", "\"2\"", "true"}) {
    EXPECT_EQ(message(bad), at + ": expected an id from 0 to 9, got " + bad);
    EXPECT_EQ(message(std::string("[3, ") + bad + "]"),
              at + "[1]: expected an id from 0 to 9, got " + bad);
  }
  EXPECT_EQ(message("{}"), at + ": expected an id from 0 to 9, got an object");
}

}  // namespace
}  // namespace trimtab
