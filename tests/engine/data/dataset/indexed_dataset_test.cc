#include "engine/data/dataset/indexed_dataset.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <random>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

using Documents = std::vector<std::vector<int32_t>>;

void Build(const std::string& prefix, const Documents& documents, int64_t vocab_size) {
  IndexedDatasetBuilder builder(prefix, {"byte", vocab_size, 0});
  for (const auto& document : documents) builder.AddDocument(document);
  builder.Finish();
}

Documents RandomDocuments(int64_t count, int64_t vocab_size, uint32_t seed) {
  std::mt19937 random(seed);
  Documents documents;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<int32_t> document(random() % 50);
    for (int32_t& token : document) {
      token = static_cast<int32_t>(random() % static_cast<uint32_t>(vocab_size));
    }
    documents.push_back(std::move(document));
  }
  return documents;
}

std::vector<int32_t> Concatenate(const Documents& documents) {
  std::vector<int32_t> all;
  for (const auto& document : documents) all.insert(all.end(), document.begin(), document.end());
  return all;
}

TEST(IndexedDataset, RoundTripsDocumentsOfBothTypes) {
  for (const int64_t vocab_size : {257, 65499, 65500, 128256}) {
    const std::string prefix = ScratchFolder() + "/data";
    const Documents documents = RandomDocuments(40, vocab_size, 7);
    Build(prefix, documents, vocab_size);

    const IndexedDataset dataset(prefix);
    const std::vector<int32_t> expected = Concatenate(documents);
    EXPECT_EQ(dataset.token_type(), vocab_size < 65500 ? TokenType::kUint16 : TokenType::kInt32);
    EXPECT_EQ(dataset.documents(), 40);
    EXPECT_EQ(dataset.sequences(), 40);
    ASSERT_EQ(dataset.tokens(), static_cast<int64_t>(expected.size()));
    for (size_t i = 0; i < documents.size(); ++i) {
      EXPECT_EQ(dataset.sequence_length(static_cast<int64_t>(i)),
                static_cast<int32_t>(documents[i].size()));
    }
    std::vector<int32_t> read(expected.size());
    dataset.Read(0, read);
    EXPECT_EQ(read, expected);
    EXPECT_EQ(dataset.MaxToken(), *std::max_element(expected.begin(), expected.end()));
    EXPECT_EQ(dataset.info(), (DatasetInfo{"byte", vocab_size, 0}));
  }
}

// The bytes that Megatron-Core's own builder writes for these two documents.
TEST(IndexedDataset, FindsWhereDocumentsBegin) {
  const std::string prefix = ScratchFolder() + "/data";
  Documents documents = RandomDocuments(200, 257, 9);
  documents[0].clear();
  documents[7].clear();
  documents[8].clear();
  documents.back().clear();
  Build(prefix, documents, 257);
  const IndexedDataset dataset(prefix);
  std::vector<int64_t> all;
  int64_t at = 0;
  for (const auto& document : documents) {
    if (!document.empty()) all.push_back(at);
    at += std::ssize(document);
  }
  for (const auto& [first, end] : std::vector<std::pair<int64_t, int64_t>>{
           {0, at}, {1, at}, {40, 41}, {100, 900}, {at - 3, at}, {30, 30}}) {
    std::vector<int64_t> expected;
    for (const int64_t begin : all) {
      if (begin >= first && begin < end) expected.push_back(begin);
    }
    std::vector<int64_t> begins;
    dataset.DocumentBegins(first, end, begins);
    EXPECT_EQ(begins, expected) << first << " to " << end;
  }
}

TEST(IndexedDataset, WritesTheFormatToTheByte) {
  const std::string prefix = ScratchFolder() + "/data";
  Build(prefix, {{1, 2, 258}, {5}}, 300);
  EXPECT_EQ(ReadBytes(prefix + ".bin"), std::string("\1\0\2\0\2\1\5\0", 8));
  std::string expected("MMIDIDX\0\0", 9);
  expected += std::string("\1\0\0\0\0\0\0\0", 8);                   // version
  expected += std::string("\x08", 1);                               // uint16
  expected += std::string("\2\0\0\0\0\0\0\0", 8);                   // sequences
  expected += std::string("\3\0\0\0\0\0\0\0", 8);                   // document indices
  expected += std::string("\3\0\0\0\1\0\0\0", 8);                   // lengths
  expected += std::string("\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0", 16);  // pointers in bytes
  expected += std::string("\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0", 24);
  EXPECT_EQ(ReadBytes(prefix + ".idx"), expected);
}

TEST(IndexedDataset, ReadsMegatronsOwnWithoutADescription) {
  const std::string prefix = ScratchFolder() + "/data";
  Build(prefix, {{1, 2, 258}, {5}}, 300);
  std::filesystem::remove(prefix + ".json");
  const IndexedDataset dataset(prefix);
  EXPECT_FALSE(dataset.info().has_value());
  EXPECT_EQ(dataset.MaxToken(), 258);
}

struct Damage {
  const char* name;
  std::function<void(std::string& idx, std::string& bin)> apply;
  const char* file;     // the file the message must name
  const char* expects;  // and a part of what it must say
};

template <typename T>
void Put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

class DamagedDataset : public testing::TestWithParam<Damage> {};

// Two documents of 3 and 1 tokens: lengths at 34, pointers at 42, document indices at 58.
TEST_P(DamagedDataset, IsRefusedWithTheReason) {
  const std::string prefix = ScratchFolder() + "/data";
  Build(prefix, {{1, 2, 258}, {5}}, 300);
  std::string idx = ReadBytes(prefix + ".idx");
  std::string bin = ReadBytes(prefix + ".bin");
  GetParam().apply(idx, bin);
  WriteBytes(prefix + ".idx", idx);
  WriteBytes(prefix + ".bin", bin);
  const std::string message = MessageOf<InputError>([&] { IndexedDataset dataset(prefix); });
  EXPECT_NE(message.find(prefix + GetParam().file), std::string::npos) << message;
  EXPECT_NE(message.find(GetParam().expects), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(
    All, DamagedDataset,
    testing::Values(
        Damage{"EmptyIndex", [](auto& idx, auto&) { idx.clear(); }, ".idx", "expected a header"},
        Damage{"ShortHeader", [](auto& idx, auto&) { idx.resize(20); }, ".idx", "20 bytes"},
        Damage{"WrongMagic", [](auto& idx, auto&) { idx[3] = 'x'; }, ".idx", "MMIDIDX"},
        Damage{"WrongVersion", [](auto& idx, auto&) { Put<uint64_t>(idx, 9, 2); }, ".idx",
               "version 2; expected 1"},
        Damage{"FloatTokens", [](auto& idx, auto&) { Put<uint8_t>(idx, 17, 7); }, ".idx",
               "type code 7"},
        Damage{"HugeSequenceCount", [](auto& idx, auto&) { Put<uint64_t>(idx, 18, ~0ull); }, ".idx",
               "do not fit"},
        Damage{"HugeDocumentCount", [](auto& idx, auto&) { Put<uint64_t>(idx, 26, 1ull << 60); },
               ".idx", "do not fit"},
        Damage{"NoDocumentIndex", [](auto& idx, auto&) { Put<uint64_t>(idx, 26, 0); }, ".idx",
               "do not fit"},
        Damage{"TruncatedIndex", [](auto& idx, auto&) { idx.pop_back(); }, ".idx",
               "81 bytes; expected 82"},
        Damage{"LongerIndex", [](auto& idx, auto&) { idx += "abc"; }, ".idx", "expected 82"},
        Damage{"NegativeLength", [](auto& idx, auto&) { Put<int32_t>(idx, 34, -3); }, ".idx",
               "length -3"},
        Damage{"PointerOutOfRange", [](auto& idx, auto&) { Put<int64_t>(idx, 50, 1 << 20); },
               ".idx", "points to byte 1048576; expected 6"},
        Damage{"NegativePointer", [](auto& idx, auto&) { Put<int64_t>(idx, 42, -8); }, ".idx",
               "points to byte -8"},
        Damage{"DocumentsDescend", [](auto& idx, auto&) { Put<int64_t>(idx, 66, -1); }, ".idx",
               "document index 1 is -1"},
        Damage{"LastDocumentShort", [](auto& idx, auto&) { Put<int64_t>(idx, 74, 1); }, ".idx",
               "document index 2 is 1"},
        Damage{"TruncatedTokens", [](auto&, auto& bin) { bin.pop_back(); }, ".bin",
               "7 bytes; expected 8"},
        Damage{"MoreTokens", [](auto&, auto& bin) { bin += "xx"; }, ".bin", "10 bytes; expected 8"},
        Damage{"NoTokens", [](auto&, auto& bin) { bin.clear(); }, ".bin", "0 bytes; expected 8"}),
    [](const auto& param) { return param.param.name; });

TEST(IndexedDataset, NamesAMissingFile) {
  const std::string prefix = ScratchFolder() + "/nothing";
  EXPECT_NE(MessageOf<InputError>([&] { IndexedDataset dataset(prefix); }).find(prefix + ".idx"),
            std::string::npos);
}

TEST(IndexedDataset, RefusesADamagedDescription) {
  const std::string prefix = ScratchFolder() + "/data";
  Build(prefix, {{1}}, 300);
  for (const char* text : {"", "[]", "{}", R"({"schema_version":1})",
                           R"({"schema_version":1,"tokenizer":"x","vocab_size":0,"eod_id":0})"}) {
    WriteBytes(prefix + ".json", text);
    const std::string message = MessageOf<InputError>([&] { IndexedDataset dataset(prefix); });
    EXPECT_NE(message.find(prefix + ".json"), std::string::npos) << message;
  }
}

TEST(IndexedDatasetBuilder, LeavesNothingWithoutFinish) {
  const std::string folder = ScratchFolder();
  { IndexedDatasetBuilder(folder + "/data", {"byte", 257, 256}).AddDocument(std::vector{1, 2, 3}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
}

TEST(IndexedDatasetBuilder, ReplacesAnOldDataset) {
  const std::string prefix = ScratchFolder() + "/data";
  Build(prefix, RandomDocuments(10, 257, 1), 257);
  Build(prefix, {{9, 8}}, 257);
  EXPECT_EQ(IndexedDataset(prefix).tokens(), 2);
}

TEST(IndexedDatasetBuilder, RefusesAMissingFolder) {
  EXPECT_THROW(IndexedDatasetBuilder("/nonexistent/data", {"byte", 257, 256}), StorageError);
}

/// Stands for a full disk: no file of this process may grow past `bytes` while it lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit = {bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit old_{};
};

TEST(IndexedDatasetBuilder, KeepsTheOldDatasetWhenTheDiskIsFull) {
  const std::string folder = ScratchFolder();
  const std::string prefix = folder + "/data";
  Build(prefix, {{9, 8}}, 257);
  const Documents large(100, std::vector<int32_t>(1000, 5));
  {
    const FileSizeLimit full(64 * 1024);
    EXPECT_THROW(Build(prefix, large, 257), StorageError);
  }
  EXPECT_EQ(IndexedDataset(prefix).tokens(), 2);
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_NE(entry.path().extension(), ".tmp");
    ++files;
  }
  EXPECT_EQ(files, 3);
}

}  // namespace
}  // namespace trimtab
