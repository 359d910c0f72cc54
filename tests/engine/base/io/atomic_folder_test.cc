#include "engine/base/io/atomic_folder.h"

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

namespace fs = std::filesystem;

TEST(AtomicFolder, AppearsWholeOnCommit) {
  const std::string path = ScratchFolder() + "/deep/er/folder";
  AtomicFolder folder(path + "//");
  EXPECT_EQ(folder.temporary(), path + ".tmp");
  WriteBytes(folder.temporary() + "/file", "content");
  EXPECT_FALSE(fs::exists(path));
  folder.Commit();
  EXPECT_EQ(ReadBytes(path + "/file"), "content");
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(AtomicFolder, LeavesNothingWithoutCommit) {
  const std::string path = ScratchFolder() + "/folder";
  {
    const AtomicFolder folder(path);
    WriteBytes(folder.temporary() + "/file", "content");
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_FALSE(fs::exists(path + ".tmp"));
}

TEST(AtomicFolder, TakesAnEmptyFolderAndARelativePath) {
  fs::current_path(ScratchFolder());
  fs::create_directory("folder");
  AtomicFolder folder("folder");
  folder.Commit();
  AtomicFolder("other").Commit();
  EXPECT_TRUE(fs::is_directory("other"));
}

TEST(AtomicFolder, RefusesWhatIsThere) {
  const std::string path = ScratchFolder() + "/there";
  const auto message = [](const std::string& at) {
    return MessageOf<StorageError>([&] { AtomicFolder{at}; });
  };
  WriteBytes(path, "a file");
  EXPECT_EQ(message(path), path + ": already exists; expected a new or an empty folder");
  EXPECT_NE(message(path + "/below").find("cannot create it"), std::string::npos);
  fs::remove(path);
  fs::create_directory_symlink("/nonexistent", path);
  EXPECT_NE(message(path).find("already exists"), std::string::npos);
  fs::remove(path);
  fs::create_directory(path);
  WriteBytes(path + "/file", "");
  EXPECT_NE(message(path).find("already exists"), std::string::npos);
  fs::remove(path + "/file");
  fs::create_directory(path + ".tmp");
  EXPECT_NE(message(path).find(".tmp: already exists"), std::string::npos);
  EXPECT_TRUE(fs::exists(path + ".tmp"));
}

}  // namespace
}  // namespace trimtab
