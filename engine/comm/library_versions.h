// The libraries that the backends load, and their versions, without starting any of them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace trimtab {

/// A library of this machine. One that is absent has neither path nor problem.
struct FoundLibrary {
  std::string version = {};  // "2.27.3"; empty when it cannot be used
  int64_t number = 0;        // the version in the library's own coding; 0 where it has none
  std::string path = {};     // the file
  std::string problem = {};  // why it is there and yet of no use, in one line

  bool usable() const { return !version.empty(); }
};

/// Where to look for a library, and how to ask it.
struct LibraryQuestion {
  /// "cuda" or "mpi": the backend that is linked against it or loads it, asked first if there is
  /// one, so that the library found is the one that it would use.
  std::string backend;
  std::vector<std::string> names;  // sonames or paths, best first
  std::string symbol;              // the function to call
  /// Calls the function and fills in `version` and `number`, or `problem`.
  std::function<void(void* function, FoundLibrary& found)> ask;
};

/// Loads and asks each library in a process of its own, all at once: one that is broken, hangs or
/// prints is found out and does no harm. Waits `patience_s` at most. Never throws.
std::vector<FoundLibrary> AskLibraries(const std::vector<LibraryQuestion>& questions,
                                       double patience_s);

struct LibraryVersions {
  FoundLibrary cuda_driver;   // number: 13000 is CUDA 13.0, the newest that the driver supports
  FoundLibrary cuda_runtime;  // number: 13000 is 13.0
  FoundLibrary cudnn;         // number: 91301 is 9.13.1
  FoundLibrary nccl;          // number: 22703 is 2.27.3
  FoundLibrary mpi;           // version: "Open MPI v4.1.4"
};

/// Starts no MPI and makes no CUDA context. Takes as long as the slowest library to load, a few
/// tenths of a second, and 5 s at most. Never throws.
LibraryVersions FindLibraryVersions();

}  // namespace trimtab
