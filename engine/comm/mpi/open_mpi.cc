// The transport over MPI. Compiled into libtrimtab_mpi.so, which the program loads under mpirun.
#define OMPI_SKIP_MPICXX 1  // the C interface only
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <list>
#include <map>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/comm/mpi/transport.h"

namespace trimtab {
namespace {

constexpr int kNoticeTag = 1;
// MPI counts bytes in an int.
constexpr int64_t kLargestPiece = int64_t{1} << 30;

void Check(int status, const char* call) {
  if (status == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(status, text, &length);
  throw Error(ExitCode::kInternal,
              fmt::format("{}: {}", call, std::string_view(text, static_cast<size_t>(length))));
}

#define TRIMTAB_MPI_CHECK(function, ...) Check(function(__VA_ARGS__), #function)

class OpenMpiTransport final : public MpiTransport {
 public:
  OpenMpiTransport() {
    int provided = 0;
    if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
      throw EnvironmentError("MPI_Init_thread failed");
    }
    // Two communicators, so that notices never mix with the transfers.
    TRIMTAB_MPI_CHECK(MPI_Comm_dup, MPI_COMM_WORLD, &transfers_);
    TRIMTAB_MPI_CHECK(MPI_Comm_dup, MPI_COMM_WORLD, &notices_);
    TRIMTAB_MPI_CHECK(MPI_Comm_set_errhandler, transfers_, MPI_ERRORS_RETURN);
    TRIMTAB_MPI_CHECK(MPI_Comm_set_errhandler, notices_, MPI_ERRORS_RETURN);
    TRIMTAB_MPI_CHECK(MPI_Comm_rank, transfers_, &rank_);
    TRIMTAB_MPI_CHECK(MPI_Comm_size, transfers_, &size_);
  }

  ~OpenMpiTransport() override { MPI_Finalize(); }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  int NewBatch() override { return ++last_batch_; }

  void BeginSend(int batch, int peer, int tag, const void* data, int64_t bytes) override {
    ForEachPiece(bytes, [&](int64_t offset, int count) {
      TRIMTAB_MPI_CHECK(MPI_Isend, static_cast<const char*>(data) + offset, count, MPI_BYTE, peer,
                        tag, transfers_, NewRequest(batch));
    });
  }

  void BeginReceive(int batch, int peer, int tag, void* data, int64_t bytes) override {
    ForEachPiece(bytes, [&](int64_t offset, int count) {
      TRIMTAB_MPI_CHECK(MPI_Irecv, static_cast<char*>(data) + offset, count, MPI_BYTE, peer, tag,
                        transfers_, NewRequest(batch));
    });
  }

  void BeginMatchedSend(int batch, int peer, int tag, const void* data, int64_t bytes) override {
    ForEachPiece(bytes, [&](int64_t offset, int count) {
      TRIMTAB_MPI_CHECK(MPI_Issend, static_cast<const char*>(data) + offset, count, MPI_BYTE, peer,
                        tag, transfers_, NewRequest(batch));
    });
  }

  bool Poll(int batch) override {
    const auto found = batches_.find(batch);
    if (found == batches_.end()) return true;
    std::vector<MPI_Request>& requests = found->second;
    int done = 0;
    TRIMTAB_MPI_CHECK(MPI_Testall, static_cast<int>(requests.size()), requests.data(), &done,
                      MPI_STATUSES_IGNORE);
    if (done != 0) batches_.erase(found);
    return done != 0;
  }

  void Cancel(int batch) override {
    const auto found = batches_.find(batch);
    if (found == batches_.end()) return;
    for (MPI_Request& request : found->second) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);  // of no effect on what is under way
      MPI_Request_free(&request);
    }
    batches_.erase(found);
  }

  void SendNotice(int peer, const std::string& text) override {
    // Kept until the end: the peer may be busy for long.
    const std::string& kept = sent_notices_.emplace_back(text);
    MPI_Request request = MPI_REQUEST_NULL;
    TRIMTAB_MPI_CHECK(MPI_Isend, kept.data(), static_cast<int>(kept.size()), MPI_BYTE, peer,
                      kNoticeTag, notices_, &request);
    TRIMTAB_MPI_CHECK(MPI_Request_free, &request);
  }

  std::optional<std::string> TakeNotice() override {
    int found = 0;
    MPI_Status status;
    TRIMTAB_MPI_CHECK(MPI_Iprobe, MPI_ANY_SOURCE, kNoticeTag, notices_, &found, &status);
    if (found == 0) return std::nullopt;
    int bytes = 0;
    TRIMTAB_MPI_CHECK(MPI_Get_count, &status, MPI_BYTE, &bytes);
    std::string text(static_cast<size_t>(bytes), '\0');
    TRIMTAB_MPI_CHECK(MPI_Recv, text.data(), bytes, MPI_BYTE, status.MPI_SOURCE, kNoticeTag,
                      notices_, MPI_STATUS_IGNORE);
    return text;
  }

  [[noreturn]] void AbortAll(int exit_code) override {
    MPI_Abort(MPI_COMM_WORLD, exit_code);
    _exit(exit_code);
  }

 private:
  MPI_Request* NewRequest(int batch) { return &batches_[batch].emplace_back(MPI_REQUEST_NULL); }

  template <typename Begin>
  static void ForEachPiece(int64_t bytes, const Begin& begin) {
    int64_t offset = 0;
    do {
      const int64_t count = std::min(bytes - offset, kLargestPiece);
      begin(offset, static_cast<int>(count));
      offset += count;
    } while (offset < bytes);
  }

  MPI_Comm transfers_ = MPI_COMM_NULL;
  MPI_Comm notices_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int last_batch_ = 0;
  std::map<int, std::vector<MPI_Request>> batches_;  // that are not known to be complete
  std::list<std::string> sent_notices_;
};

}  // namespace
}  // namespace trimtab

extern "C" std::unique_ptr<trimtab::MpiTransport> trimtab_mpi_transport() {
  return std::make_unique<trimtab::OpenMpiTransport>();
}
