// A new folder that appears whole or not at all.
#pragma once

#include <string>

namespace trimtab {

/// Made beside its place as PATH.tmp, and put there by Commit. Without Commit, PATH.tmp is deleted
/// with all that is in it, and PATH is as it was.
class AtomicFolder {
 public:
  /// `path` must not be there yet, or be an empty folder; PATH.tmp must not be there. Throws
  /// StorageError.
  explicit AtomicFolder(std::string path);
  ~AtomicFolder();
  AtomicFolder(const AtomicFolder&) = delete;
  AtomicFolder& operator=(const AtomicFolder&) = delete;

  /// Where to write until then: PATH.tmp.
  const std::string& temporary() const { return temporary_; }
  /// Renames into place and makes the names durable. Files must have been flushed.
  void Commit();

 private:
  std::string path_;
  std::string temporary_;
  bool committed_ = false;
};

}  // namespace trimtab
