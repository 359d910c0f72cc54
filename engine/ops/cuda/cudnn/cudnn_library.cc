#include "engine/ops/cuda/cudnn/cudnn_library.h"

#include <array>

#include "engine/base/io/loaded_library.h"
#include "engine/ops/cuda/cudnn/cudnn_limits.h"

namespace trimtab {
namespace {

struct Loaded {
  CudnnLibrary functions;
  std::string problem;
};

Loaded Load() {
  Loaded result;
  LoadedLibrary library("libcudnn.so.9");
  CudnnLibrary& f = result.functions;
  library.Find("cudnnGetVersion", f.get_version);
  library.Find("cudnnGetErrorString", f.get_error_string);
  library.Find("cudnnGetLastErrorString", f.get_last_error_string);
  library.Find("cudnnCreate", f.create);
  library.Find("cudnnDestroy", f.destroy);
  library.Find("cudnnSetStream", f.set_stream);
  library.Find("cudnnBackendCreateDescriptor", f.create_descriptor);
  library.Find("cudnnBackendDestroyDescriptor", f.destroy_descriptor);
  library.Find("cudnnBackendSetAttribute", f.set_attribute);
  library.Find("cudnnBackendGetAttribute", f.get_attribute);
  library.Find("cudnnBackendFinalize", f.finalize);
  library.Find("cudnnBackendExecute", f.execute);
  result.problem = library.problem();
  if (result.problem.empty()) {
    result.problem = CudnnVersionRefusal(static_cast<int64_t>(f.get_version()));
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
