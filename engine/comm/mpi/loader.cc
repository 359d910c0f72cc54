#include <dlfcn.h>

#include "engine/base/error.h"
#include "engine/base/io/backend_file.h"
#include "engine/comm/mpi/transport.h"

namespace trimtab {

std::unique_ptr<MpiTransport> StartMpi() {
  const BackendFile file = FindBackendFile("mpi");
  if (file.path.empty()) {
    throw EnvironmentError(
        file.chosen.empty()
            ? "mpirun started this process, but this build has no MPI (made where there was none)"
            : fmt::format("no MPI backend at {}", file.chosen));
  }
  // Open MPI's own plugins look for its symbols, so they must be visible to all.
  void* library = dlopen(file.path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw EnvironmentError(fmt::format("cannot load the MPI backend: {}", dlerror()));
  }
  const auto entry = reinterpret_cast<MpiEntryPoint>(dlsym(library, kMpiEntryPoint));
  if (entry == nullptr) throw EnvironmentError(fmt::format("not an MPI backend: {}", file.path));
  return entry();
}

}  // namespace trimtab
