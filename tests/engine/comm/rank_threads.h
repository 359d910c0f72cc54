// Runs the ranks of one group, for tests of communicators.
#pragma once

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "engine/comm/communicator.h"
#include "tests/engine/comm/watchdog.h"

namespace trimtab {

/// How the body of one rank ended.
struct RankEnd {
  bool threw = false;
  bool comm_error = false;  // it was a CommError
  std::string what;
};

/// What the ranks of a group are.
enum class RankKind {
  kCpuThreads,
  kEmulatedCudaThreads,
  kCudaThreads,    // all on the first GPU
  kCpuProcesses,   // of which this is one, under mpirun
  kCudaProcesses,  // the same, with NCCL; they may share a GPU
};
std::string Name(RankKind kind);
/// Why such ranks cannot be had here; empty when they can.
std::string WhyNot(RankKind kind, int size);

using RankBody = std::function<void(Communicator& comm, Device& device)>;

/// Runs `body` on `size` ranks, each with its communicator and its own device, and returns how each
/// ended. A rank's communicator goes away when its body returns. Of ranks that are processes, this
/// one's body is run here, if it is among the first `size`.
std::vector<RankEnd> RunRanks(RankKind kind, int size, const RankBody& body);
inline std::vector<RankEnd> RunRanks(int size, const RankBody& body) {
  return RunRanks(RankKind::kCpuThreads, size, body);
}

/// As RunRanks, and fails the test if a rank threw.
void RunRanksCleanly(RankKind kind, int size, const RankBody& body);
inline void RunRanksCleanly(int size, const RankBody& body) {
  RunRanksCleanly(RankKind::kCpuThreads, size, body);
}

/// A tensor of [count] with elements of guard bytes on both sides, in one allocation.
class GuardedTensor {
 public:
  GuardedTensor(Device& device, int64_t count, DType dtype);

  Tensor& tensor() { return tensor_; }
  /// True while nothing was written before or behind the tensor.
  bool Intact() const;

 private:
  Tensor whole_;
  Tensor tensor_;
};

/// All elements as doubles, and back; exact for every dtype except large int64. On any device.
std::vector<double> Load(const Tensor& tensor);
void Store(Tensor& tensor, const std::vector<double>& values);
/// Element i becomes value(i).
void Fill(Tensor& tensor, const std::function<double(int64_t i)>& value);

/// One element of a tensor in host memory.
double Get(const Tensor& tensor, int64_t i);
void Set(Tensor& tensor, int64_t i, double value);

}  // namespace trimtab
