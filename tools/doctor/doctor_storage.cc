// Where runs write: folders that must take files, and memory that processes share.
#include <sys/statfs.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "tools/doctor/doctor_checks.h"

namespace trimtab {
namespace {

/// Below that, what shares memory or unpacks itself there is likely to fail.
constexpr int64_t kLeastScratch = 64 * kMiB;

/// File systems of other machines whose locks come and go with the network (Linux's magic.h).
constexpr std::array<int64_t, 5> kNetworkTypes = {0x6969 /* NFS */, 0x517B /* SMB */,
                                                  0xFE534D42 /* SMB2 */, 0xFF534D42 /* CIFS */,
                                                  0x5346414F /* AFS */};

std::string Free(const FolderState& folder) {
  return fmt::format("{}: {} free", folder.path, FormatBytes(folder.free_bytes));
}

/// Why nothing can be written to it; empty where it can.
std::string WhyClosed(const FolderState& folder) {
  if (!folder.exists) return folder.path + " is not there";
  return folder.writable ? "" : folder.path + " cannot be written to";
}

}  // namespace

FolderState StateOfFolder(const std::string& path) {
  FolderState state = {.path = path};
  struct statfs found {};
  if (::statfs(path.c_str(), &found) != 0) return state;
  state.exists = true;
  state.writable = ::access(path.c_str(), W_OK) == 0;
  state.free_bytes = static_cast<int64_t>(found.f_bavail) * static_cast<int64_t>(found.f_bsize);
  for (const int64_t type : kNetworkTypes) state.over_network |= found.f_type == type;
  return state;
}

Check CheckWorkingFolder(const FolderState& folder) {
  const std::string closed = WhyClosed(folder);
  if (!closed.empty()) {
    return {"disk", Health::kBad, closed + ": studies, reports and checkpoints have no place"};
  }
  if (folder.over_network) {
    return {"disk", Health::kNote,
            Free(folder) + ", over a network whose locks may fail: put --study on a local disk"};
  }
  return {"disk", folder.free_bytes < kGiB ? Health::kNote : Health::kOk, Free(folder)};
}

Check CheckHome(const FolderState& folder) {
  const std::string closed = WhyClosed(folder);
  if (!closed.empty()) {
    return {"home", Health::kNote,
            closed + ": measured profiles of this machine are not kept there"};
  }
  if (!folder.over_network) return {"home", Health::kOk, Free(folder)};
  return {"home", Health::kNote,
          folder.path + " is over a network whose locks may fail: put --study on a local disk"};
}

Check CheckTemporary(const FolderState& folder) {
  const std::string closed = WhyClosed(folder);
  if (!closed.empty()) return {"temporary files", Health::kBad, closed + "; set TMPDIR"};
  if (folder.free_bytes >= kLeastScratch) return {"temporary files", Health::kOk, Free(folder)};
  return {"temporary files", Health::kNote,
          Free(folder) + ": mpirun may not start ranks; set TMPDIR"};
}

Check CheckSharedMemory(const FolderState& folder) {
  const std::string closed = WhyClosed(folder);
  const bool small = folder.free_bytes < kLeastScratch;
  if (closed.empty() && !small) return {"shared memory", Health::kOk, Free(folder)};
  return {"shared memory", Health::kNote,
          (closed.empty() ? Free(folder) : closed) +
              ": processes of one machine exchange messages slowly, or not at all"};
}

std::vector<Check> CheckStorage() {
  const char* const home = std::getenv("HOME");
  const char* const temporary = std::getenv("TMPDIR");
  return {CheckWorkingFolder(StateOfFolder(".")),
          CheckHome(StateOfFolder(home != nullptr ? home : ".")),
          CheckTemporary(StateOfFolder(temporary != nullptr ? temporary : "/tmp")),
          CheckSharedMemory(StateOfFolder("/dev/shm"))};
}

}  // namespace trimtab
