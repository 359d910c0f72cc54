#include "engine/comm/library_versions.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <array>
#include <chrono>
#include <list>

#include "engine/base/io/backend_file.h"
#include "engine/base/io/isolated_call.h"

namespace trimtab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kPatienceS = 5;

/// "NAME: cannot open shared object file" when `name` itself is missing, not one that it needs.
bool SaysMissing(const std::string& error, const std::string& name) {
  return error.starts_with(name + ": cannot open shared object file: No such file");
}

std::string PathOf(void* function) {
  Dl_info info = {};
  return ::dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : "";
}

/// The folders in which `backend` looks for what it loads by name, in its order.
std::vector<std::string> FoldersOf(void* backend) {
  Dl_serinfo size = {};
  if (::dlinfo(backend, RTLD_DI_SERINFOSIZE, &size) != 0) return {};
  std::vector<std::max_align_t> memory(size.dls_size / sizeof(std::max_align_t) + 1);
  auto* const info = reinterpret_cast<Dl_serinfo*>(memory.data());
  *info = size;
  if (::dlinfo(backend, RTLD_DI_SERINFO, info) != 0) return {};
  std::vector<std::string> folders;
  for (unsigned i = 0; i < info->dls_cnt; ++i) folders.emplace_back(info->dls_serpath[i].dls_name);
  return folders;
}

/// The function, from the library that the backend would use; null when there is no such library.
void* Find(const LibraryQuestion& question, FoundLibrary& found) {
  const BackendFile file =
      question.backend.empty() ? BackendFile() : FindBackendFile(question.backend);
  void* const backend =
      file.path.empty() ? nullptr : ::dlopen(file.path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  std::vector<std::string> paths;
  if (backend != nullptr) {
    if (void* const function = ::dlsym(backend, question.symbol.c_str())) return function;
    for (const std::string& folder : FoldersOf(backend)) {
      for (const std::string& name : question.names) paths.push_back(folder + "/" + name);
    }
  }
  paths.insert(paths.end(), question.names.begin(), question.names.end());
  for (const std::string& path : paths) {
    if (void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL)) {
      void* const function = ::dlsym(library, question.symbol.c_str());
      if (function == nullptr) found.problem = fmt::format("{} has no {}", path, question.symbol);
      return function;
    }
    const char* error = ::dlerror();
    const std::string reason = error == nullptr ? path + " cannot be loaded" : error;
    if (!SaysMissing(reason, path)) found.problem = reason;
  }
  return nullptr;
}

// Between the processes a FoundLibrary is its fields, each ended by a NUL.
std::string Pack(const FoundLibrary& found) {
  std::string text;
  for (const std::string& field :
       {found.version, std::to_string(found.number), found.path, found.problem}) {
    text += field;
    text += '\0';
  }
  return text;
}

FoundLibrary Unpack(const std::string& text) {
  std::array<std::string, 4> fields;
  size_t begin = 0;
  for (std::string& field : fields) {
    const size_t end = text.find('\0', begin);
    if (end == std::string::npos) return {.problem = "it ended the process"};
    field = text.substr(begin, end - begin);
    begin = end + 1;
  }
  return {fields[0], std::stoll(fields[1]), fields[2], fields[3]};
}

std::string Answer(const LibraryQuestion& question) {
  FoundLibrary found;
  if (void* const function = Find(question, found)) {
    found.problem.clear();
    found.path = PathOf(function);
    question.ask(function, found);
  }
  return Pack(found);
}

/// Of a function that stores its version in an int and returns 0.
void AskNumber(void* function, FoundLibrary& found) {
  int number = 0;
  const int status = reinterpret_cast<int (*)(int*)>(function)(&number);
  found.number = number;
  if (status != 0 || number <= 0) found.problem = fmt::format("it gave error {}", status);
}

/// 13000 is 13.0 (CUDA Runtime API, "Version Management").
void AskCuda(void* function, FoundLibrary& found) {
  AskNumber(function, found);
  if (!found.problem.empty()) return;
  found.version = fmt::format("{}.{}", found.number / 1000, found.number % 1000 / 10);
}

/// 22703 is 2.27.3: the coding of NCCL since 2.9 and of cuDNN since 9.
void SetVersion(FoundLibrary& found) {
  const int64_t number = found.number;
  found.version = fmt::format("{}.{}.{}", number / 10000, number / 100 % 100, number % 100);
}

void AskNccl(void* function, FoundLibrary& found) {
  AskNumber(function, found);
  if (found.problem.empty()) SetVersion(found);
}

void AskCudnn(void* function, FoundLibrary& found) {
  found.number = static_cast<int64_t>(reinterpret_cast<size_t (*)()>(function)());
  SetVersion(found);
}

/// MPI may be asked before it is started (MPI 3.1, section 8.1.1).
void AskMpi(void* function, FoundLibrary& found) {
  // MPICH's longest, the longest there is.
  std::array<char, 8192> text = {};
  int length = 0;
  const int status = reinterpret_cast<int (*)(char*, int*)>(function)(text.data(), &length);
  const std::string all = text.data();
  if (status == 0) found.version = all.substr(0, all.find_first_of(",\n"));
  if (found.version.empty()) found.problem = fmt::format("it gave error {}", status);
}

}  // namespace

std::vector<FoundLibrary> AskLibraries(const std::vector<LibraryQuestion>& questions,
                                       double patience_s) {
  const auto deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                           std::chrono::duration<double>(patience_s));
  std::list<IsolatedCall> calls;
  for (const LibraryQuestion& question : questions) {
    calls.emplace_back([&question] { return Answer(question); });
  }
  std::vector<FoundLibrary> answers;
  for (IsolatedCall& call : calls) {
    const IsolatedCall::Result result = call.Wait(deadline);
    answers.push_back(result.failure.empty() ? Unpack(result.text)
                                             : FoundLibrary{.problem = result.failure});
  }
  return answers;
}

LibraryVersions FindLibraryVersions() {
  const std::vector<FoundLibrary> found = AskLibraries(
      {{"", {"libcuda.so.1"}, "cuDriverGetVersion", AskCuda},
       {"cuda", {"libcudart.so.13", "libcudart.so.12"}, "cudaRuntimeGetVersion", AskCuda},
       {"cuda", {"libcudnn.so.9"}, "cudnnGetVersion", AskCudnn},
       {"cuda", {"libnccl.so.2"}, "ncclGetVersion", AskNccl},
       {"mpi", {"libmpi.so.40", "libmpi.so"}, "MPI_Get_library_version", AskMpi}},
      kPatienceS);
  return {found[0], found[1], found[2], found[3], found[4]};
}

}  // namespace trimtab
