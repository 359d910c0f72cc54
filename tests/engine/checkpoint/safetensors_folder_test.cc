#include "engine/checkpoint/safetensors_folder.h"

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

void WriteTensors(const std::string& path, const std::vector<std::string>& names) {
  std::vector<SafetensorsEntry> entries;
  for (const std::string& name : names) entries.push_back({.name = name, .shape = {2}});
  SafetensorsWriter(path, entries, {}).Finish();
}

/// Two shards: a and b, c.
class SafetensorsFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    WriteTensors(folder_ + "/one.safetensors", {"a", "b"});
    WriteTensors(folder_ + "/two.safetensors", {"c"});
    WriteIndex(R"({"weight_map": {"a": "one.safetensors", "b": "one.safetensors",)"
               R"( "c": "two.safetensors"}})");
  }
  void WriteIndex(const std::string& text) {
    WriteBytes(folder_ + "/model.safetensors.index.json", text);
  }
  void ExpectRefused(const std::string& text) {
    const std::string message = MessageOf<InputError>([&] { SafetensorsFolder{folder_}; });
    EXPECT_NE(message.find(text), std::string::npos) << message;
    EXPECT_TRUE(message.starts_with(folder_)) << message;
  }

  std::string folder_ = ScratchFolder();
};

TEST_F(SafetensorsFolderTest, FindsTensorsInTheirShards) {
  const SafetensorsFolder folder(folder_);
  ASSERT_EQ(folder.tensors().size(), 3u);
  EXPECT_EQ(folder.tensors().at("b").file->path(), folder_ + "/one.safetensors");
  EXPECT_EQ(folder.tensors().at("c").file->path(), folder_ + "/two.safetensors");
}

TEST_F(SafetensorsFolderTest, TakesASingleFileFirst) {
  WriteTensors(folder_ + "/model.safetensors", {"d"});
  const SafetensorsFolder folder(folder_);
  ASSERT_EQ(folder.tensors().size(), 1u);
  EXPECT_TRUE(folder.tensors().contains("d"));
}

TEST_F(SafetensorsFolderTest, RefusesAFolderWithoutFiles) {
  std::filesystem::remove(folder_ + "/model.safetensors.index.json");
  ExpectRefused(": holds neither model.safetensors nor model.safetensors.index.json");
}

TEST_F(SafetensorsFolderTest, RefusesAMissingShard) {
  std::filesystem::remove(folder_ + "/two.safetensors");
  ExpectRefused("/two.safetensors: cannot open it");
}

TEST_F(SafetensorsFolderTest, RefusesATensorInAnotherShard) {
  WriteTensors(folder_ + "/one.safetensors", {"a"});
  WriteTensors(folder_ + "/two.safetensors", {"b", "c"});
  ExpectRefused("/one.safetensors: has no tensor 'b', which");
}

TEST_F(SafetensorsFolderTest, RefusesATensorThatTheIndexDoesNotName) {
  WriteTensors(folder_ + "/two.safetensors", {"c", "d"});
  ExpectRefused("/two.safetensors: tensor 'd' is not one that");
}

TEST_F(SafetensorsFolderTest, RefusesATensorInTwoShards) {
  WriteTensors(folder_ + "/two.safetensors", {"b", "c"});
  ExpectRefused("/two.safetensors: tensor 'b' is in");
}

TEST_F(SafetensorsFolderTest, RefusesNamesThatLeadOutOfTheFolder) {
  for (const char* name :
       {"../one.safetensors", "/etc/one.safetensors", "a/../one.safetensors", "..", "", "one"}) {
    WriteIndex(std::string(R"({"weight_map": {"a": ")") + name + R"("}})");
    ExpectRefused("$.weight_map: tensor 'a' is in");
  }
  WriteIndex(R"({"weight_map": {"a": 3}})");
  ExpectRefused("$.weight_map: tensor 'a' is in 3; expected the name of a .safetensors file");
}

TEST_F(SafetensorsFolderTest, RefusesABrokenIndex) {
  for (const char* text : {"", "[]", "{", "{}", R"({"weight_map": []})",
                           R"({"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}})"}) {
    WriteIndex(text);
    ExpectRefused("model.safetensors.index.json");
  }
}

}  // namespace
}  // namespace trimtab
