#include "engine/data/dataset/open_token_source.h"

#include <filesystem>

#include "engine/base/error.h"
#include "engine/data/dataset/indexed_dataset.h"
#include "engine/families/load_config.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

RunConfig RunOn(const std::string& data) {
  RunConfig run;
  run.model = LoadModelConfig("llama-tiny");
  run.global_batch = 4;
  run.sequence_length = 8;
  run.data = data;
  return run;
}

/// A dataset of `documents` documents of 100 ids each, all `id`.
std::string Build(const std::string& prefix, int documents, int32_t id, int64_t vocab_size) {
  IndexedDatasetBuilder builder(prefix, {"byte", vocab_size, 0});
  for (int i = 0; i < documents; ++i) builder.AddDocument(std::vector<int32_t>(100, id));
  builder.Finish();
  return prefix;
}

TEST(OpenTokenSource, RefusesDataOfALargerVocabulary) {
  const int64_t vocab = RunOn("").model.vocab_size;
  const std::string data = Build(ScratchFolder() + "/data", 1, 1, vocab + 1);
  EXPECT_EQ(MessageOf<InputError>([&] { OpenTokenSource(RunOn(data)); }),
            fmt::format("{}: a vocabulary of {}; expected at most the model's {}", data, vocab + 1,
                        vocab));
}

TEST(OpenTokenSource, TokensAreKnownByTheirContent) {
  const std::string folder = ScratchFolder();
  EXPECT_EQ(IdentityOfTokens(RunOn("")), "synthetic tokens");
  const std::string first = Build(folder + "/first", 30, 1, 100);
  const std::string same = Build(folder + "/same", 30, 1, 100);
  EXPECT_EQ(IdentityOfTokens(RunOn(first)), IdentityOfTokens(RunOn(same)));
  EXPECT_NE(IdentityOfTokens(RunOn(first)),
            IdentityOfTokens(RunOn(Build(folder + "/other", 30, 2, 100))));
  EXPECT_NE(IdentityOfTokens(RunOn(first)),
            IdentityOfTokens(RunOn(Build(folder + "/more", 31, 1, 100))));
  EXPECT_THROW(IdentityOfTokens(RunOn(folder + "/nothing")), InputError);
}

TEST(OpenTokenSource, LargeDataDifferInTheirLastTokensToo) {
  const std::string folder = ScratchFolder();
  const std::string first = Build(folder + "/first", 6000, 1, 100);
  const std::string before = IdentityOfTokens(RunOn(first));
  std::string bytes = ReadBytes(first + ".bin");
  bytes.back() = 7;
  WriteBytes(first + ".bin", bytes);
  EXPECT_NE(IdentityOfTokens(RunOn(first)), before);
}

}  // namespace
}  // namespace trimtab
