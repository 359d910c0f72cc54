// What clients have begun to send when a server ends.
#pragma once

#include <atomic>

namespace trimtab {

/// Until `finished`, every connection to `port` of this process reads the end of what its client
/// sends, whatever the client still sends: also one that was accepted just now. What is written to
/// it is not touched.
void EndReading(int port, const std::atomic<bool>& finished);

}  // namespace trimtab
