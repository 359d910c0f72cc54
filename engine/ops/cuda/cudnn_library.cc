#include "engine/ops/cuda/cudnn_library.h"

#include <dlfcn.h>

#include <array>

namespace trimtab {
namespace {

// Older ones want other graphs: their masks are no infinities.
constexpr size_t kOldestCudnn = 91000;

struct Loaded {
  CudnnLibrary functions;
  std::string problem;
};

template <typename Function>
void Look(void* library, const char* name, Function& function, std::string& problem) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr) problem = fmt::format("libcudnn.so.9 has no {}", name);
}

Loaded Load() {
  Loaded result;
  // Never closed: plans and handles live as long as the process.
  void* library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = dlerror();
    result.problem = reason == nullptr ? "libcudnn.so.9 cannot be loaded" : reason;
    return result;
  }
  CudnnLibrary& f = result.functions;
  std::string& problem = result.problem;
  Look(library, "cudnnGetVersion", f.get_version, problem);
  Look(library, "cudnnGetErrorString", f.get_error_string, problem);
  Look(library, "cudnnGetLastErrorString", f.get_last_error_string, problem);
  Look(library, "cudnnCreate", f.create, problem);
  Look(library, "cudnnDestroy", f.destroy, problem);
  Look(library, "cudnnSetStream", f.set_stream, problem);
  Look(library, "cudnnBackendCreateDescriptor", f.create_descriptor, problem);
  Look(library, "cudnnBackendDestroyDescriptor", f.destroy_descriptor, problem);
  Look(library, "cudnnBackendSetAttribute", f.set_attribute, problem);
  Look(library, "cudnnBackendGetAttribute", f.get_attribute, problem);
  Look(library, "cudnnBackendFinalize", f.finalize, problem);
  Look(library, "cudnnBackendExecute", f.execute, problem);
  if (problem.empty() && f.get_version() < kOldestCudnn) {
    problem = fmt::format("cuDNN is version {}, needs {} or newer", f.get_version(), kOldestCudnn);
  }
  return result;
}

const Loaded& LoadOnce() {
  static const Loaded loaded = Load();
  return loaded;
}

}  // namespace

const std::string& CudnnUnavailable() { return LoadOnce().problem; }

const CudnnLibrary& Cudnn() {
  const Loaded& loaded = LoadOnce();
  if (!loaded.problem.empty()) throw EnvironmentError("cuDNN: " + loaded.problem);
  return loaded.functions;
}

void ThrowCudnnError(cudnnStatus_t status, const std::string& purpose, const char* call,
                     const char* file, int line) {
  std::array<char, 512> detail = {};
  Cudnn().get_last_error_string(detail.data(), detail.size());
  throw CudnnError(status, fmt::format("{}:{}: {} ({}): {}: {}", file, line, call, purpose,
                                       Cudnn().get_error_string(status), detail.data()));
}

}  // namespace trimtab
