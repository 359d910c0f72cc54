// ScratchFolder: a folder among the temporary files that goes away with its owner.
#pragma once

#include <string>

namespace trimtab {

class ScratchFolder {
 public:
  /// Throws StorageError where none can be made.
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace trimtab
