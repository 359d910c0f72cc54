// Files: POSIX calls whose failures become errors that name the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trimtab {

/// An open file; closed when it goes away. Reading throws InputError, writing StorageError.
class File {
 public:
  /// Opens an existing file for reading.
  static File OpenForReading(const std::string& path);
  /// Creates `path`, or empties it, for reading and writing. Errors call it `name`, or by its path.
  static File Create(const std::string& path, const std::string& name = "");
  /// Opens an existing file for reading and writing.
  static File OpenForWriting(const std::string& path);

  File() = default;
  ~File();
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;

  const std::string& path() const { return path_; }
  int64_t size() const;

  /// Makes the file `bytes` long and reserves the space, so that a full disk shows now.
  void Preallocate(int64_t bytes);
  /// Writes everything at the current position.
  void Append(std::span<const std::byte> data);
  /// Writes or reads everything at `offset`; several threads may, at once.
  void WriteAt(int64_t offset, std::span<const std::byte> data);
  void ReadAt(int64_t offset, std::span<std::byte> data) const;
  /// Waits until everything written is on the disk.
  void Sync();
  /// Closes early, to see the errors that some file systems only tell then.
  void Close();

 private:
  File(int fd, std::string path);

  int fd_ = -1;
  std::string path_;
};

/// The whole of a file, mapped read-only.
class MappedFile {
 public:
  /// Throws InputError. An empty file maps to an empty span.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

/// Which processes may write a file at the same time.
enum class Writers {
  kOne,
  kSeveral,  // each beside its place under a name of its own
};

/// A file that appears whole or not at all: written beside its place as PATH.tmp, and put there by
/// Commit. Without Commit, or when it throws, PATH is as it was and PATH.tmp is gone.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path, Writers writers = Writers::kOne);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void Append(std::span<const std::byte> data);
  void Append(std::string_view text);
  /// Flushes to the disk and closes; Commit does it when the caller did not.
  void Sync();
  /// Renames into place and makes the name durable.
  void Commit();

 private:
  void Flush();

  std::string path_;
  std::string temporary_;
  File file_;  // which errors call by what it becomes
  std::string buffer_;
  bool synced_ = false;
  bool committed_ = false;
};

/// What else than a plain file stands at `path`, behind links: "a folder", "no plain file"; empty
/// if one does, or nothing.
std::string OtherThanAFile(const std::string& path);

/// Throws UsageError where writing `output` would replace `input`.
void RequireNotInput(const std::string& output, const std::string& input);

/// Throws StorageError where an AtomicFile at `path` would fail: for whoever works for minutes
/// before there is something to write. What stands at `path` stays.
void RequireWritable(const std::string& path);

/// The whole of a text file of at most `max_bytes`. Throws InputError.
std::string ReadTextFile(const std::string& path, int64_t max_bytes);

/// Makes new, renamed and removed names in the folder of `path` durable. Throws StorageError.
void SyncParentDirectory(const std::string& path);
/// The same for the names inside the folder `path`.
void SyncDirectory(const std::string& path);

}  // namespace trimtab
