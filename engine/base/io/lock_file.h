// LockFile: what one process at a time may do.
#pragma once

#include <memory>
#include <string>

namespace trimtab {

/// A file that is there and locked for as long as this lives; it names its holder. However its
/// process ends, the lock is free again; only a killed one leaves the file, which the next takes
/// over.
class LockFile {
 public:
  /// Makes `path`, with the folders on the way, and locks it; nullptr where another holds it, in
  /// this process or another. Where the file system knows no locks, nobody is kept out. Throws
  /// StorageError where the file cannot be made.
  static std::unique_ptr<LockFile> Take(const std::string& path);
  /// Returns the process that took the lock last, as "process 18774 on node7"; empty where the file
  /// does not tell.
  static std::string HolderOf(const std::string& path);
  /// Returns true if that process still runs: a killed one leaves the file. A process of another
  /// machine is believed to run.
  static bool HolderRuns(const std::string& path);
  ~LockFile();
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

 private:
  LockFile(int fd, std::string path);
  void NameHolder();

  int fd_;
  std::string path_;
};

}  // namespace trimtab
