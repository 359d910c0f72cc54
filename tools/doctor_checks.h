// The checks of `trimtab doctor`. A further one is a function here, in a file of its own.
#pragma once

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

/// Processor, vector units, memory, and the disk of the working folder.
std::vector<Check> CheckMachine();

/// How many GPUs can be used, or why none can. Looks for them in a process of its own, so that a
/// broken driver does no harm; takes a minute at most.
Check CheckGpus();

/// A row for each library: its version and file, or what its absence means.
std::vector<Check> CheckLibraries(const LibraryVersions& found);

}  // namespace trimtab
