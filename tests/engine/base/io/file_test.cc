#include "engine/base/io/file.h"

#include <sys/stat.h>

#include "engine/base/error.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

TEST(AtomicFile, AppearsWithCommitOnly) {
  const std::string path = ScratchFolder() + "/file";
  WriteBytes(path, "old");
  {
    AtomicFile file(path);
    file.Append("new");
    EXPECT_EQ(ReadBytes(path), "old");
  }
  EXPECT_EQ(ReadBytes(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  AtomicFile file(path);
  file.Append("new");
  file.Append(" text");
  file.Commit();
  EXPECT_EQ(ReadBytes(path), "new text");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

// Whoever else writes the same file has another name for it until it is in place.
TEST(AtomicFile, OfSeveralWritersEachHasAPlaceOfItsOwn) {
  const std::string path = ScratchFolder() + "/file";
  AtomicFile other(path);
  other.Append("other");
  AtomicFile file(path, Writers::kSeveral);
  file.Append("own");
  file.Commit();
  EXPECT_EQ(ReadBytes(path), "own");
  other.Commit();
  EXPECT_EQ(ReadBytes(path), "other");
}

TEST(AtomicFile, WritesMoreThanItsBuffer) {
  const std::string path = ScratchFolder() + "/file";
  AtomicFile file(path);
  std::string expected;
  for (int i = 0; i < 100; ++i) {
    const std::string part(50000, static_cast<char>('a' + i % 26));
    file.Append(part);
    expected += part;
  }
  file.Commit();
  EXPECT_EQ(ReadBytes(path), expected);
}

TEST(AtomicFile, RefusesAFolderThatIsNotThere) {
  EXPECT_NE(
      MessageOf<StorageError>([] { AtomicFile file("/nonexistent/x"); }).find("/nonexistent/x"),
      std::string::npos);
}

TEST(RequireWritable, SaysSoBeforeTheWorkAndTouchesNothing) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/file", "old");
  RequireWritable(folder + "/file");
  EXPECT_EQ(ReadBytes(folder + "/file"), "old");
  EXPECT_FALSE(std::filesystem::exists(folder + "/file.tmp"));
  EXPECT_THROW(RequireWritable(folder + "/file/below"), StorageError);
  EXPECT_THROW(RequireWritable(folder), StorageError);
}

TEST(AtomicFile, FollowsLinksAndReplacesNoDevices) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/target", "old");
  std::filesystem::create_symlink("target", folder + "/link");
  AtomicFile file(folder + "/link");
  file.Append("new");
  file.Commit();
  EXPECT_TRUE(std::filesystem::is_symlink(folder + "/link"));
  EXPECT_EQ(ReadBytes(folder + "/target"), "new");
  EXPECT_THROW(AtomicFile("/dev/null"), StorageError);
  EXPECT_THROW(RequireWritable("/dev/full"), StorageError);
}

TEST(RequireNotInput, TellsFilesByWhatTheyAre) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/in", "text");
  std::filesystem::create_symlink("in", folder + "/link");
  EXPECT_THROW(RequireNotInput(folder + "/in", folder + "/in"), UsageError);
  EXPECT_THROW(RequireNotInput(folder + "/link", folder + "/in"), UsageError);
  RequireNotInput(folder + "/new", folder + "/in");
  RequireNotInput(folder + "/in", "");
}

TEST(File, AFullDiskIsAStorageErrorThatNamesTheFile) {
  File file = File::Create("/dev/full");
  const std::string text = "text";
  const auto bytes = std::as_bytes(std::span(text));
  EXPECT_NE(MessageOf<StorageError>([&] { file.Append(bytes); }).find("/dev/full"),
            std::string::npos);
}

TEST(File, ReadsAndWritesAtOffsets) {
  const std::string path = ScratchFolder() + "/file";
  File file = File::Create(path);
  file.Preallocate(10);
  EXPECT_EQ(file.size(), 10);
  const std::string text = "text";
  file.WriteAt(6, std::as_bytes(std::span(text)));
  std::string read(4, '\0');
  file.ReadAt(6, std::as_writable_bytes(std::span(read)));
  EXPECT_EQ(read, text);
  const std::string message =
      MessageOf<InputError>([&] { file.ReadAt(8, std::as_writable_bytes(std::span(read))); });
  EXPECT_NE(message.find("ends at byte 10"), std::string::npos) << message;
}

TEST(File, RefusesWhatIsNotAFile) {
  EXPECT_THROW(File::OpenForReading("/nonexistent"), InputError);
  EXPECT_THROW(File::OpenForReading(ScratchFolder()), InputError);
  EXPECT_THROW(MappedFile{"/nonexistent"}, InputError);
  EXPECT_THROW(MappedFile{ScratchFolder()}, InputError);
  EXPECT_THROW(ReadTextFile("/dev/zero", 100), InputError);
  // Opening one waits for a writer, unless it is asked not to.
  const std::string pipe = ScratchFolder() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(File::OpenForReading(pipe), InputError);
  EXPECT_THROW(MappedFile{pipe}, InputError);
}

TEST(ReadTextFile, RefusesMoreThanItsLimit) {
  const std::string path = ScratchFolder() + "/file";
  WriteBytes(path, "12345");
  EXPECT_EQ(ReadTextFile(path, 5), "12345");
  EXPECT_THROW(ReadTextFile(path, 4), InputError);
}

TEST(MappedFile, MapsContentAndEmptiness) {
  const std::string path = ScratchFolder() + "/file";
  WriteBytes(path, "12345");
  const MappedFile file(path);
  ASSERT_EQ(file.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(file.bytes()[4]), '5');
  WriteBytes(path + "2", "");
  EXPECT_TRUE(MappedFile(path + "2").bytes().empty());
}

}  // namespace
}  // namespace trimtab
