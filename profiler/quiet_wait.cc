#include "profiler/quiet_wait.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "profiler/other_work.h"

namespace trimtab {

QuietWait QuietWait::OnThisMachine(int64_t cores) {
  const auto other_work = std::make_shared<OtherWork>();
  return QuietWait([other_work, cores](double window_s) {
    other_work->ShareBeside(cores);  // of what was before
    std::this_thread::sleep_for(std::chrono::duration<double>(window_s));
    return other_work->ShareBeside(cores);
  });
}

void QuietWait::Wait(const std::function<bool()>& stop) {
  for (double waited_s = 0; waited_s < patience_s_; waited_s += kWindowSeconds) {
    if (stop()) return;
    if (sample_(kWindowSeconds) > kDisturbedShare) continue;
    patience_s_ = std::min(2 * patience_s_, kMostPatienceSeconds);
    return;
  }
  patience_s_ = std::max(patience_s_ / 2, kLeastPatienceSeconds);
}

}  // namespace trimtab
