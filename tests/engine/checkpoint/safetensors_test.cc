#include "engine/checkpoint/safetensors.h"

#include <cstring>
#include <numeric>
#include <random>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

std::vector<SafetensorsEntry> SomeEntries() {
  return {{.name = "a", .shape = {2, 3}},
          {.name = "b.weight", .shape = {4}},
          {.name = "empty", .shape = {0, 7}}};
}

std::vector<float> Counting(size_t count, float first) {
  std::vector<float> values(count);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::string WriteSome(const std::string& path) {
  SafetensorsWriter writer(path, SomeEntries(), {{"format", "pt"}});
  writer.Write(writer.Find("b.weight"), 0, Counting(4, 100));
  writer.Write(writer.Find("a"), 3, Counting(3, 3));
  writer.Write(writer.Find("a"), 0, Counting(3, 0));
  writer.Finish();
  return ReadBytes(path);
}

TEST(Safetensors, RoundTripsTensorsWrittenInAnyOrder) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  WriteSome(path);
  const SafetensorsReader reader(path);
  ASSERT_EQ(reader.entries().size(), 3u);
  const SafetensorsEntry& a = reader.Find("a");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(a.dtype, DType::kF32);
  std::vector<float> values(6);
  reader.Read(a, 0, values);
  EXPECT_EQ(values, Counting(6, 0));
  values.resize(2);
  reader.Read(reader.Find("b.weight"), 1, values);
  EXPECT_EQ(values, Counting(2, 101));
  EXPECT_EQ(reader.Find("empty").numel(), 0);
  EXPECT_THROW(reader.Find("c"), InputError);
}

TEST(Safetensors, AlignsTheData) {
  const std::string bytes = WriteSome(ScratchFolder() + "/x.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  EXPECT_EQ(header_bytes % 8, 0u);
  EXPECT_EQ(bytes.size(), 8 + header_bytes + 10 * sizeof(float));
  EXPECT_EQ(bytes[8], '{');
}

// What Hugging Face's own writer makes of {"x": float32 [2]}.
TEST(Safetensors, ReadsTheReferencesFile) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  const std::string header = R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}   )";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  const std::vector<float> data = {1.5f, -2.0f};
  bytes += header + std::string(reinterpret_cast<const char*>(data.data()), 8);
  WriteBytes(path, bytes);
  const SafetensorsReader reader(path);
  std::vector<float> values(2);
  reader.Read(reader.Find("x"), 0, values);
  EXPECT_EQ(values, data);
}

/// A file with this header and these bytes of data.
std::string FileOf(const std::string& header, const std::string& data) {
  const uint64_t size = header.size();
  std::string bytes(sizeof(size), '\0');
  std::memcpy(bytes.data(), &size, sizeof(size));
  return bytes + header + data;
}

TEST(Safetensors, ReadsEveryFloatingPointTypeAsFp32) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  // -2.5 in each type, then 1.
  const std::string data(
      "\x20\xC0\x80\x3F"
      "\x00\xC1\x00\x3C"
      "\xC2\x38"
      "\xC1\x3C"
      "\x01",
      13);
  WriteBytes(path, FileOf(R"({"bf16":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                          R"("f16":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},)"
                          R"("e4m3":{"dtype":"F8_E4M3","shape":[2],"data_offsets":[8,10]},)"
                          R"("e5m2":{"dtype":"F8_E5M2","shape":[2],"data_offsets":[10,12]},)"
                          R"("mask":{"dtype":"BOOL","shape":[1],"data_offsets":[12,13]}})",
                          data));
  const SafetensorsReader reader(path);
  for (const char* name : {"bf16", "f16", "e4m3", "e5m2"}) {
    std::vector<float> values(2);
    reader.Read(reader.Find(name), 0, values);
    EXPECT_EQ(values, (std::vector<float>{-2.5f, 1.0f})) << name;
  }
  EXPECT_EQ(reader.Find("mask").dtype, std::nullopt);
  EXPECT_EQ(reader.Find("mask").numel(), 1);
}

TEST(Safetensors, ReadsWithAStride) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  WriteSome(path);
  const SafetensorsReader reader(path);
  std::vector<float> column(2);
  reader.Read(reader.Find("a"), 1, column, /*stride=*/3);
  EXPECT_EQ(column, (std::vector<float>{1, 4}));
}

TEST(Safetensors, RoundsToTheTypeOfTheTensor) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  const std::vector<float> values = {1.0f, 1.00390625f, -3.14159265f, 65504.0f};
  SafetensorsWriter writer(path,
                           {{.name = "bf16", .dtype = DType::kBf16, .shape = {4}},
                            {.name = "f16", .dtype = DType::kF16, .shape = {4}}},
                           {});
  for (const char* name : {"bf16", "f16"}) writer.Write(writer.Find(name), 0, values);
  writer.Finish();
  const SafetensorsReader reader(path);
  std::vector<float> read(4);
  reader.Read(reader.Find("bf16"), 0, read);
  EXPECT_EQ(read, (std::vector<float>{1.0f, 1.0f, -3.140625f, 65536.0f}));
  reader.Read(reader.Find("f16"), 0, read);
  EXPECT_EQ(read, (std::vector<float>{1.0f, 1.00390625f, -3.140625f, 65504.0f}));
}

struct BadHeader {
  const char* name;
  const char* header;
  const char* expects;
};
class BadSafetensors : public testing::TestWithParam<BadHeader> {};

TEST_P(BadSafetensors, IsRefusedWithTheReason) {
  const std::string message = MessageOf<InputError>(
      [] { ParseSafetensorsHeader(GetParam().header, /*data_bytes=*/16, "file"); });
  EXPECT_TRUE(message.starts_with("file: ")) << message;
  EXPECT_NE(message.find(GetParam().expects), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
}

#define ENTRY(offsets) R"("dtype":"F32","shape":[2],"data_offsets":)" offsets
INSTANTIATE_TEST_SUITE_P(
    All, BadSafetensors,
    testing::Values(
        BadHeader{"Empty", "", "not a JSON object"},
        BadHeader{"Truncated", R"({"x":{"dtype":"F32")", "not a JSON object"},
        BadHeader{"List", "[]", "not a JSON object"},
        BadHeader{"BlankFirst", " {}", "not a JSON object"},
        BadHeader{"NotUtf8", "{\"\xff\xfe\":{}}", "not a JSON object"},
        BadHeader{"DeepNesting", "{\"x\":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[", "not a JSON object"},
        BadHeader{"NoTensorObject", R"({"x":3})", "expected an object of dtype"},
        BadHeader{"MissingShape", R"({"x":{"dtype":"F32","data_offsets":[0,16]}})",
                  "expected an object"},
        BadHeader{"ExtraKey", "{\"x\":{\"more\":1," ENTRY("[0,8]") "}}", "expected an object"},
        BadHeader{"UnknownType", R"({"x":{"dtype":"F99","shape":[4],"data_offsets":[0,16]}})",
                  "dtype"},
        BadHeader{"TypeNotText", R"({"x":{"dtype":32,"shape":[4],"data_offsets":[0,16]}})",
                  "dtype"},
        BadHeader{"ShapeNotList", R"({"x":{"dtype":"F32","shape":4,"data_offsets":[0,16]}})",
                  "shape"},
        BadHeader{"NegativeDim", R"({"x":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})",
                  "not a size"},
        BadHeader{"FractionalDim", R"({"x":{"dtype":"F32","shape":[4.0],"data_offsets":[0,16]}})",
                  "not a size"},
        BadHeader{"HugeDim",
                  R"({"x":{"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,16]}})",
                  "not a size"},
        BadHeader{"OverflowingShape",
                  R"({"x":{"dtype":"F32","shape":[4294967296,4294967296,4],)"
                  R"("data_offsets":[0,16]}})",
                  "its shape does not"},
        BadHeader{"HugeBesideNothing",
                  R"({"x":{"dtype":"F32","shape":[4611686018427387903,4611686018427387903,0],)"
                  R"("data_offsets":[0,16]}})",
                  "its shape does not"},
        BadHeader{"WrappingShape",
                  R"({"x":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,16]}})",
                  "not a size"},
        BadHeader{"ShapeTooSmall", R"({"x":{"dtype":"F32","shape":[3],"data_offsets":[0,16]}})",
                  "its shape does not"},
        BadHeader{"OneOffset", "{\"x\":{" ENTRY("[0]") "}}", "data_offsets"},
        BadHeader{"OffsetsDescend", "{\"x\":{" ENTRY("[8,0]") "}}", "data_offsets"},
        BadHeader{"OffsetsBeyondTheFile", "{\"x\":{" ENTRY("[16,24]") "}}", "data_offsets"},
        BadHeader{"NegativeOffset", "{\"x\":{" ENTRY("[-8,0]") "}}", "data_offsets"},
        BadHeader{"Overlap", "{\"x\":{" ENTRY("[0,8]") "},\"y\":{" ENTRY("[4,12]") "}}",
                  "begins at 4; expected 8"},
        BadHeader{"SameBytesTwice", "{\"x\":{" ENTRY("[0,8]") "},\"y\":{" ENTRY("[0,8]") "}}",
                  "expected 8"},
        BadHeader{"Hole", "{\"x\":{" ENTRY("[0,8]") "},\"y\":{" ENTRY("[12,20]") "}}",
                  "data_offsets"},
        BadHeader{"HoleAtTheStart", "{\"x\":{" ENTRY("[8,16]") "}}", "begins at 8; expected 0"},
        BadHeader{"DataLeftOver", "{\"x\":{" ENTRY("[0,8]") "}}", "16 bytes of data; expected 8"},
        BadHeader{"SameNameTwice", "{\"x\":{" ENTRY("[0,8]") "},\"x\":{" ENTRY("[8,16]") "}}",
                  "a key twice"},
        BadHeader{"BadMetadata", R"({"__metadata__":{"a":1}})", "__metadata__"}),
    [](const auto& param) { return param.param.name; });
#undef ENTRY

TEST(Safetensors, RefusesAHeaderSizeBeyondTheFile) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  std::string bytes = WriteSome(path);
  for (const uint64_t size : {uint64_t{1} << 20, ~uint64_t{0}, uint64_t{1} << 63}) {
    std::memcpy(bytes.data(), &size, 8);
    WriteBytes(path, bytes);
    EXPECT_THROW(SafetensorsReader{path}, InputError);
  }
  WriteBytes(path, "1234567");
  EXPECT_THROW(SafetensorsReader{path}, InputError);
}

TEST(Safetensors, RefusesAHeaderOfMoreThanAHundredMegabytes) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  const uint64_t size = 100'000'001;
  WriteBytes(path, std::string(reinterpret_cast<const char*>(&size), sizeof(size)));
  std::filesystem::resize_file(path, 2 * size);
  EXPECT_EQ(MessageOf<InputError>([&] { SafetensorsReader{path}; }),
            path + ": header of 100000001 bytes; expected at most 100000000");
}

// Whatever is done to the header, a reader refuses the file or reads tensors that lie within it.
TEST(Safetensors, SurvivesMutatedHeaders) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  const std::string bytes = WriteSome(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  std::mt19937 random(1);
  const std::string alphabet = "0123456789[]{},:\"F32ab-.e\\ \xff";
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string header = bytes.substr(8, header_bytes);
    for (uint32_t edits = 1 + random() % 3; edits > 0 && !header.empty(); --edits) {
      const size_t at = random() % header.size();
      const char letter = alphabet[random() % alphabet.size()];
      switch (random() % 3) {
        case 0:
          header[at] = letter;
          break;
        case 1:
          header.erase(at, 1 + random() % 4);
          break;
        default:
          header.insert(at, 1, letter);
          break;
      }
    }
    const int64_t data_bytes = static_cast<int64_t>(random() % 3 == 0 ? random() % 64 : 40);
    try {
      for (const SafetensorsEntry& entry : ParseSafetensorsHeader(header, data_bytes, "fuzz")) {
        ASSERT_GE(entry.begin, 0);
        ASSERT_LE(entry.begin, entry.end);
        ASSERT_LE(entry.end, data_bytes);
      }
      ++accepted;
    } catch (const InputError&) {
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 15000);
}

// The same of whole files: sizes, headers and data cut, grown and changed.
TEST(Safetensors, SurvivesMutatedFiles) {
  const std::string path = ScratchFolder() + "/x.safetensors";
  const std::string valid = WriteSome(path);
  std::mt19937 random(2);
  int accepted = 0;
  constexpr int kRounds = 10000;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = valid;
    for (uint32_t edits = 1 + random() % 3; edits > 0 && !bytes.empty(); --edits) {
      // Anywhere; in the header's size; in the data.
      const size_t size = bytes.size();
      const size_t places[] = {random() % size, random() % std::min<size_t>(8, size),
                               size - 1 - random() % std::min<size_t>(40, size)};
      const size_t at = places[random() % 3];
      switch (random() % 4) {
        case 0:
          bytes[at] = static_cast<char>(random());
          break;
        case 1:
          bytes[at] ^= static_cast<char>(1 << random() % 8);
          break;
        case 2:
          bytes.resize(random() % (2 * bytes.size()), '\0');
          break;
        default:
          bytes.erase(at, 1 + random() % 16);
          break;
      }
    }
    std::filesystem::remove(path);  // some file systems are slow to write over a file
    WriteBytes(path, bytes);
    try {
      const SafetensorsReader reader(path);
      for (const auto& [name, entry] : reader.entries()) {
        if (entry.dtype != DType::kF32) continue;
        std::vector<float> values(static_cast<size_t>(entry.numel()));
        reader.Read(entry, 0, values);
      }
      ++accepted;
    } catch (const InputError& error) {
      ASSERT_TRUE(std::string(error.what()).starts_with(path + ": ")) << error.what();
    }
  }
  EXPECT_GT(accepted, kRounds / 50);  // data may hold anything
  EXPECT_LT(accepted, kRounds / 2);
}

TEST(Safetensors, AFullDiskIsAStorageError) {
  EXPECT_THROW(SafetensorsWriter("/dev/full", SomeEntries(), {}), StorageError);
  EXPECT_THROW(SafetensorsWriter("/nonexistent/x", SomeEntries(), {}), StorageError);
}

}  // namespace
}  // namespace trimtab
