// What processes are doing right now, for whoever has to say why they did not end.
#pragma once

#include <sys/types.h>

#include <string>

namespace trimtab {

/// Process `root` and all that it started, as far as they started nothing themselves, with what
/// each one does: "1234 (trimtab) is stopped; 1235 (trimtab) waits in futex_wait_queue". Empty
/// where it is gone.
std::string DescribeProcesses(pid_t root);

}  // namespace trimtab
