// The head of a request: what is wrong with it, before its body is read.
#pragma once

#include <httplib.h>

#include <cstdint>
#include <string>

namespace trimtab {

/// The paths of a server.
class PathTable {
 public:
  virtual ~PathTable() = default;
  /// Returns what a path answers to, for the header Allow ("POST"); empty for a path that is not
  /// served.
  virtual std::string MethodsOf(const std::string& path) const = 0;
  /// Returns why a path is not served, as the end of a line for people.
  virtual std::string WhyNot(const std::string& path) const = 0;
};

/// What a request is answered with in the place of what it asks for.
struct HeadFault {
  int status = 0;  // 0: nothing is wrong
  std::string message{};
};

/// Where the body is when the head is judged.
enum class BodyState {
  kComing,   // it is being sent, whatever the answer is
  kAwaited,  // the client waits for leave to send it (Expect: 100-continue)
};

/// Refuses lengths of the body that are no length, that contradict each other, or that are above
/// `max_body_bytes`: the library would wait for as many bytes first. Of a body that is coming it
/// may wait for somewhat more: a client that is sending sees no answer of a server that hangs up.
HeadFault FaultOfLength(const httplib::Request& request, int64_t max_body_bytes, BodyState body,
                        const PathTable& paths);

/// Refuses bodies that nothing here can read: of several parts, or encoded in an unknown way.
HeadFault FaultOfBody(const httplib::Request& request);

/// Returns true if a value of the header Authorization shows `key`. The scheme's name may be
/// written in any case (RFC 9110, 11.1). Takes as long wherever the keys differ.
bool ShowsKey(const std::string& authorization, const std::string& key);

/// What the library said with a status alone, as a line for people.
std::string MessageOf(const httplib::Request& request, int status, int64_t max_body_bytes,
                      const PathTable& paths);

}  // namespace trimtab
