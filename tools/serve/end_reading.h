// What clients have begun to send when a server ends.
#pragma once

namespace trimtab {

/// Every connection to `port` of this process reads the end of what its client sends, whatever the
/// client still sends. What is written to it is not touched.
void EndReading(int port);

}  // namespace trimtab
