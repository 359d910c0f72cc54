// A recorder that adds up the seconds of each kind of op and message. On a GPU it waits before and
// after each, so that an op's time is its own; the step as a whole then takes longer than usual.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "engine/device/device.h"

namespace trimtab {

class TimingRecorder : public Recorder {
 public:
  /// For the ops of `device`, which must outlive it.
  explicit TimingRecorder(Device& device) : device_(device) {}

  void BeginOp(const OpRecord& op) override;
  void BeginComm(const CommRecord& message) override;
  void BeginWait(const CommRecord& message) override;
  void End() override;

  /// By op name, or "collective:group" for messages. Waiting for an asynchronous message adds to
  /// its time.
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  void Begin(std::string name);

  Device& device_;
  std::map<std::string, double> seconds_;
  std::string name_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace trimtab
