// From one moment of a step to another.
#pragma once

namespace trimtab {

/// In seconds since the step, or what is looked at of it, began.
struct TimeSpan {
  double start_s = 0;
  double end_s = 0;

  double seconds() const { return end_s - start_s; }
};

}  // namespace trimtab
