// MpiTransport: bytes between the processes that mpirun started. Implemented over MPI in a shared
// object that is loaded when mpirun started this process, so that nobody else pays for libmpi.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

namespace trimtab {

/// Used by one thread. Errors of MPI are Errors that name the call.
class MpiTransport {
 public:
  /// Ends MPI: every process must do so.
  virtual ~MpiTransport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Names a set of transfers that are waited for together.
  virtual int NewBatch() = 0;
  /// Transfers that begin here; the memory stays in use until Poll of their batch returns true.
  /// Between two ranks, those of one tag match in order, with equal sizes at both ends.
  virtual void BeginSend(int batch, int peer, int tag, const void* data, int64_t bytes) = 0;
  virtual void BeginReceive(int batch, int peer, int tag, void* data, int64_t bytes) = 0;
  /// As BeginSend, and complete only once the peer has begun to receive.
  virtual void BeginMatchedSend(int batch, int peer, int tag, const void* data, int64_t bytes) = 0;
  /// Makes progress with all transfers; whether those of the batch are complete.
  virtual bool Poll(int batch) = 0;
  /// Forgets the transfers of the batch that are not complete: the run has failed.
  virtual void Cancel(int batch) = 0;

  /// A message outside of all order, which a peer finds whatever else it does.
  virtual void SendNotice(int peer, const std::string& text) = 0;
  virtual std::optional<std::string> TakeNotice() = 0;

  /// Ends all processes at once.
  [[noreturn]] virtual void AbortAll(int exit_code) = 0;
};

/// The one symbol that the shared object is asked for. Starts MPI; throws EnvironmentError.
inline constexpr char kMpiEntryPoint[] = "trimtab_mpi_transport";
using MpiEntryPoint = std::unique_ptr<MpiTransport> (*)();

/// Loads libtrimtab_mpi.so and starts MPI: once per process. The file is $TRIMTAB_MPI_BACKEND if
/// set, else beside the program or among the files that Bazel places for it.
/// Throws EnvironmentError, saying what is missing.
std::unique_ptr<MpiTransport> StartMpi();

}  // namespace trimtab
