#include "profiler/timing_recorder.h"

#include <utility>

namespace trimtab {

void TimingRecorder::BeginOp(const OpRecord& op) { Begin(std::string(Name(op.kind))); }

void TimingRecorder::BeginComm(const CommRecord& message) {
  Begin(std::string(Name(message.kind)) + ":" + std::string(Name(message.group)));
}

void TimingRecorder::BeginWait(const CommRecord& message) { BeginComm(message); }

void TimingRecorder::Begin(std::string name) {
  name_ = std::move(name);
  device_.Synchronize();
  start_ = std::chrono::steady_clock::now();
}

void TimingRecorder::End() {
  device_.Synchronize();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start_;
  seconds_[name_] += elapsed.count();
}

}  // namespace trimtab
