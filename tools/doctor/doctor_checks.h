// The checks of `trimtab doctor`. A further one is a function here, in a file of its own.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/comm/library_versions.h"

namespace trimtab {

/// kNote: something works less well than it could. kBad: Trimtab cannot work here.
enum class Health { kOk, kNote, kBad };

/// "ok", "note", "bad".
std::string Name(Health health);

/// One row of the table.
struct Check {
  std::string what;
  Health health = Health::kOk;
  std::string finding;       // what there is and, unless all is well, what that means
  std::string version = {};  // of a library that works
};

/// Processor, vector units and memory.
std::vector<Check> CheckMachine();

/// A folder as whoever wants to write to it finds it.
struct FolderState {
  std::string path;
  bool exists = false;
  bool writable = false;
  bool over_network = false;  // on another machine, by a protocol whose locks may fail
  int64_t free_bytes = 0;
};
FolderState StateOfFolder(const std::string& path);
/// Of the folder where studies and checkpoints are written by default, the home folder, that of
/// temporary files, and the one that stands for memory that processes share.
Check CheckWorkingFolder(const FolderState& folder);
Check CheckHome(const FolderState& folder);
Check CheckTemporary(const FolderState& folder);
Check CheckSharedMemory(const FolderState& folder);
/// All four, of this process.
std::vector<Check> CheckStorage();

/// How many GPUs can be used, or why none can. Looks for them in a process of its own, so that a
/// broken driver does no harm; takes a minute at most.
Check CheckGpus();

/// A row for each library: its version and file, or what its absence means.
std::vector<Check> CheckLibraries(const LibraryVersions& found);

}  // namespace trimtab
