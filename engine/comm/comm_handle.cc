#include "engine/comm/comm_handle.h"

#include <exception>

namespace trimtab {
namespace {

/// Reports the wait for as long as it lives, also when it throws.
class ReportWait {
 public:
  ReportWait(Recorder* recorder, const CommRecord& message) : recorder_(recorder) {
    if (recorder_ != nullptr) recorder_->BeginWait(message);
  }
  ~ReportWait() {
    if (recorder_ != nullptr) recorder_->End();
  }
  ReportWait(const ReportWait&) = delete;
  ReportWait& operator=(const ReportWait&) = delete;

 private:
  Recorder* recorder_;
};

}  // namespace

CommHandle::~CommHandle() { CheckDropped(); }

CommHandle& CommHandle::operator=(CommHandle&& other) noexcept {
  CheckDropped();
  state_ = std::move(other.state_);
  return *this;
}

void CommHandle::CheckDropped() const {
  TRIMTAB_ASSERT(state_ == nullptr || state_->failed->load() || std::uncaught_exceptions() > 0,
                 "nobody waited for {} in the {} group", Name(state_->message.kind),
                 Name(state_->message.group));
}

void CommHandle::Wait() {
  // Whatever comes of it, there will be nothing left to wait for.
  const std::unique_ptr<State> state = std::move(state_);
  if (state == nullptr) return;
  const ReportWait report(state->in.device().recorder(), state->message);
  if (state->pending == nullptr) return;
  try {
    state->pending->Wait();
  } catch (...) {
    state->failed->store(true);
    throw;
  }
}

}  // namespace trimtab
