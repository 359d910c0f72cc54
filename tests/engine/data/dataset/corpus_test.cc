#include "engine/data/dataset/corpus.h"

#include "engine/base/error.h"
#include "engine/data/dataset/indexed_dataset.h"
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
  /// Writes the files in0, in1, ..., builds, and returns the documents.
  std::vector<std::string> Build(const std::vector<std::string>& files,
                                 const std::string& extension = "") {
    options_.inputs.clear();
    for (size_t i = 0; i < files.size(); ++i) {
      options_.inputs.push_back(folder_ + "/in" + std::to_string(i) + extension);
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

TEST_F(Corpus, AByteOrderMarkIsNoText) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_EQ(Build({mark + "one\n" + mark + "two", mark, mark + "\nthree"}),
            (Strings{"one\n" + mark + "two", "\nthree"}));
  options_.split = DocumentSplit::kBlankLine;
  EXPECT_EQ(Build({mark + "\none"}), Strings{"one"});
  options_.format = CorpusFormat::kBytes;
  EXPECT_EQ(Build({mark + "one"}), Strings{mark + "one"});
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

TEST_F(Corpus, AJsonStringMayEscapeAnyCharacter) {
  options_.format = CorpusFormat::kJsonl;
  EXPECT_EQ(Build({"{\"text\": \"a\\u0000\\ud83d\\ude00\"}"}),
            Strings{std::string("a\0\xf0\x9f\x98\x80", 6)});
}

TEST_F(Corpus, TheNameOfAFileSaysItsFormat) {
  EXPECT_EQ(FormatOfName("a.jsonl"), CorpusFormat::kJsonl);
  EXPECT_EQ(FormatOfName("b.d/a.JSON"), CorpusFormat::kJsonl);
  EXPECT_EQ(FormatOfName("a.txt"), CorpusFormat::kText);
  EXPECT_EQ(FormatOfName("a"), CorpusFormat::kText);
  EXPECT_EQ(FormatOfName("a.jsonl/b"), CorpusFormat::kText);
  EXPECT_EQ(FormatOfName(".json"), CorpusFormat::kText);
  EXPECT_EQ(Build({"{\"text\": \"a\"}\n"}, ".jsonl"), Strings{"a"});
  EXPECT_EQ(Build({"{\"text\": \"a\"}\n"}, ".txt"), Strings{"{\"text\": \"a\"}\n"});
  options_.format = CorpusFormat::kText;
  EXPECT_EQ(Build({"{\"text\": \"a\"}\n"}, ".jsonl"), Strings{"{\"text\": \"a\"}\n"});
}

TEST_F(Corpus, RefusesBytesThatAreNotText) {
  const auto message = [&](const std::string& content, const std::string& extension) {
    return MessageOf<InputError>([&] { Build({"fine\n", content}, extension); });
  };
  EXPECT_NE(message("one\ntwo\xff", "")
                .find("/in1: invalid UTF-8 (0xff) at byte 7 of the file; "
                      "expected text in UTF-8 (--format bytes"),
            std::string::npos);
  EXPECT_NE(message(std::string("a\0b", 3), "").find("/in1: a NUL byte at byte 1 of"),
            std::string::npos);
  EXPECT_NE(message("ab\xe2\x82", "").find("a truncated UTF-8 character at byte 2 of"),
            std::string::npos);
  options_.format = CorpusFormat::kJsonl;
  const std::string jsonl =
      MessageOf<InputError>([&] { Build({"{\"text\": \"a\"}\n{\"text\": \"\xc0\x80\"}\n"}); });
  EXPECT_NE(jsonl.find("/in0:2: invalid UTF-8 (0xc0) at byte 24 of the file; expected JSON lines"),
            std::string::npos)
      << jsonl;
}

TEST_F(Corpus, TakesAnyBytesWhenAsked) {
  options_.format = CorpusFormat::kBytes;
  const std::string bytes("\xff\0\n\n\xc0", 5);
  EXPECT_EQ(Build({bytes}), Strings{bytes});
  options_.split = DocumentSplit::kBlankLine;
  EXPECT_EQ(Build({bytes}), (Strings{std::string("\xff\0\n", 3), "\xc0"}));
}

TEST_F(Corpus, SaysWhatJsonIsNotJsonLines) {
  const auto message = [&](const std::string& content) {
    return MessageOf<InputError>([&] { Build({content}, ".json"); });
  };
  for (const char* array :
       {"[\n  {\"text\": \"a\"}\n]\n", "[{\"text\": \"a\"}]", "[{\"text\":\n"}) {
    EXPECT_NE(message(array).find("/in0.json:1: "), std::string::npos) << message(array);
    EXPECT_NE(message(array).find("JSON array; expected JSON lines: one JSON object per line"),
              std::string::npos)
        << message(array);
  }
  EXPECT_NE(message("\n{\n  \"text\": \"a\"\n}\n")
                .find("in0.json:2: the object does not end on this "
                      "line; expected JSON lines"),
            std::string::npos);
  EXPECT_NE(message("{\"text\" \"a\"}").find("in0.json:1: not valid JSON at column 11; expected"),
            std::string::npos);
  EXPECT_NE(message("3").find("in0.json:1: a JSON number; expected"), std::string::npos);
  EXPECT_NE(message("{\"text\": 1e999}").find("in0.json:1: a number is too large"),
            std::string::npos);
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

TEST_F(Corpus, ReplacesNoneOfItsInputs) {
  for (const char* extension : {".bin", ".idx", ".json"}) {
    options_.inputs = {folder_ + "/data" + extension};
    options_.prefix = folder_ + "/data";
    options_.format = CorpusFormat::kText;
    WriteBytes(options_.inputs[0], "text");
    EXPECT_THROW(BuildCorpus(options_, *MakeByteTokenizer()), UsageError) << extension;
    EXPECT_EQ(ReadBytes(options_.inputs[0]), "text");
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
