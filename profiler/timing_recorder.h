// A recorder that adds up the seconds of each kind of op and message.
#pragma once

#include <chrono>
#include <map>
#include <string>

#include "engine/device/record.h"

namespace trimtab {

class TimingRecorder : public Recorder {
 public:
  void BeginOp(const OpRecord& op) override;
  void BeginComm(const CommRecord& message) override;
  void End() override;

  /// By op name, or "collective:group" for messages.
  const std::map<std::string, double>& seconds() const { return seconds_; }

 private:
  void Begin(std::string name);

  std::map<std::string, double> seconds_;
  std::string name_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace trimtab
