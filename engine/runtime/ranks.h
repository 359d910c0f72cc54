// Ranks: where the ranks of a run come from. One by one in this process, as threads; or, when
// mpirun started it, this process is one of them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/comm/parallel_context.h"
#include "engine/config/run/run_config.h"
#include "engine/device/device.h"

namespace trimtab {

/// One rank of a run, on its own thread, with its device.
class Rank {
 public:
  /// Takes the memory limit of `run` to `device`. All must outlive the rank.
  Rank(const RunConfig& run, ParallelContext& parallel, Device& device, bool in_process);

  ParallelContext& parallel() { return parallel_; }
  Device& device() { return device_; }
  int index() const { return parallel_.rank; }
  /// Whether the ranks are threads of one process.
  bool in_process() const { return in_process_; }
  /// Whether it speaks for its process: rank 0 among threads, every rank that is a process.
  bool speaks() const { return !in_process_ || parallel_.rank == 0; }

  // Between all ranks, through host memory; every rank calls the same.

  void Barrier() { parallel_.host->Barrier(); }
  /// What rank 0 passed.
  int64_t FromFirst(int64_t value);
  /// What `value` returns on rank 0, which alone calls it. That may take any time: no limit on
  /// waits holds meanwhile.
  int64_t AwaitFirst(const std::function<int64_t()>& value);
  /// For a rank that waits for something else than the others, now and then: throws CommError where
  /// one of them has failed, of whatever replica; where one is lost, this process ends. Ranks that
  /// are threads need it not.
  void CheckOthers();
  /// Replaces each value by the largest that any rank passed. All pass the same number of values.
  void Max(std::span<int64_t> values);
  /// What every rank passed, one after the other. All pass the same number of values.
  std::vector<int64_t> Gather(std::span<const int64_t> values);

 private:
  ParallelContext& parallel_;
  Device& device_;
  bool in_process_;
  std::unique_ptr<Device> host_;
};

/// Runs `body` once for each rank of `run` that lives in this process: all of them on threads of
/// their own, or under mpirun the one that this process is, on this thread. A rank on device "cuda"
/// gets GPU rank % GPUs of the machine.
/// When a rank throws, the others throw out of whatever they wait in; threads are joined and the
/// first rank's own exception is rethrown. Under mpirun every process throws an Error with that
/// exception's message and exit code.
/// With `replicas`, only under mpirun: the world is so many times the ranks of `run`, each time
/// neighbours, who exchange nothing with the others but that one has failed. A Rank is one among
/// those of its replica.
/// Throws EnvironmentError: no such device, no GPU, MPI missing; UsageError: mpirun started another
/// number of processes than there are ranks.
void RunRanks(const RunConfig& run, const std::function<void(Rank& rank)>& body,
              int64_t replicas = 1);

/// The same with all ranks on threads of this process, also where a launcher started it: for what
/// one of its processes does by itself.
void RunRanksHere(const RunConfig& run, const std::function<void(Rank& rank)>& body);

}  // namespace trimtab
