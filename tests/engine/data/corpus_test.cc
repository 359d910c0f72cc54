#include "engine/data/corpus.h"

#include "engine/base/error.h"
#include "engine/data/indexed_dataset.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

/// The documents of the dataset as text, without their end-of-document ids.
std::vector<std::string> Texts(const std::string& prefix) {
  const IndexedDataset dataset(prefix);
  const auto tokenizer = MakeByteTokenizer();
  std::vector<std::string> texts;
  int64_t begin = 0;
  for (int64_t i = 0; i < dataset.sequences(); ++i) {
    std::vector<int32_t> tokens(static_cast<size_t>(dataset.sequence_length(i)));
    dataset.Read(begin, tokens);
    EXPECT_EQ(tokens.back(), tokenizer->eod_id());
    texts.push_back(tokenizer->Decode(tokens));
    begin += static_cast<int64_t>(tokens.size());
  }
  return texts;
}

class Corpus : public testing::Test {
 protected:
  /// Writes the files, builds, and returns the documents.
  std::vector<std::string> Build(const std::vector<std::string>& files) {
    options_.inputs.clear();
    for (size_t i = 0; i < files.size(); ++i) {
      options_.inputs.push_back(folder_ + "/in" + std::to_string(i));
      WriteBytes(options_.inputs.back(), files[i]);
    }
    options_.prefix = folder_ + "/data";
    summary_ = BuildCorpus(options_, *MakeByteTokenizer());
    return Texts(options_.prefix);
  }

  std::string folder_ = ScratchFolder();
  CorpusOptions options_;
  CorpusSummary summary_;
};

using Strings = std::vector<std::string>;

TEST_F(Corpus, ATextFileIsADocument) {
  EXPECT_EQ(Build({"one\ntwo\n\nthree", "", "four\n"}), (Strings{"one\ntwo\n\nthree", "four\n"}));
  EXPECT_EQ(summary_.documents, 2);
  EXPECT_EQ(summary_.tokens, 14 + 1 + 5 + 1);
  EXPECT_EQ(summary_.input_bytes, 19);
}

TEST_F(Corpus, BlankLinesEndDocumentsWhenAsked) {
  options_.split = DocumentSplit::kBlankLine;
  EXPECT_EQ(Build({"\n\none\ntwo\n \t\r\nthree\n\n\n", "four"}),
            (Strings{"one\ntwo\n", "three\n", "four"}));
}

TEST_F(Corpus, EveryJsonLineIsADocument) {
  options_.format = CorpusFormat::kJsonl;
  options_.json_key = "body";
  EXPECT_EQ(Build({"{\"body\": \"a\\u00e9\\n\", \"x\": 1}\n\n{\"body\": \"\"}\n{\"body\":\"b\"}"}),
            (Strings{"a\xC3\xA9\n", "b"}));
}

TEST_F(Corpus, NamesTheLineThatIsNotADocument) {
  options_.format = CorpusFormat::kJsonl;
  for (const char* bad : {"{\"text\": ", "[1]", "\"text\"", "{\"txt\": \"a\"}", "{\"text\": 3}",
                          "{\"text\": \"\xff\"}"}) {
    const std::string message =
        MessageOf<InputError>([&] { Build({std::string("{\"text\": \"ok\"}\n") + bad}); });
    EXPECT_NE(message.find("/in0:2: "), std::string::npos) << message;
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/data.idx"));
    EXPECT_FALSE(std::filesystem::exists(folder_ + "/data.bin.tmp"));
  }
}

TEST_F(Corpus, RefusesInputsItCannotRead) {
  options_.prefix = folder_ + "/data";
  options_.inputs = {folder_ + "/nothing"};
  EXPECT_THROW(BuildCorpus(options_, *MakeByteTokenizer()), InputError);
  options_.inputs = {folder_};
  EXPECT_NE(MessageOf<InputError>([&] {
              BuildCorpus(options_, *MakeByteTokenizer());
            }).find("is a folder"),
            std::string::npos);
}

TEST_F(Corpus, RefusesInputsWithoutText) { EXPECT_THROW(Build({"", ""}), InputError); }

}  // namespace
}  // namespace trimtab
