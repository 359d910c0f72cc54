// Dashboard: the live page of a study, for browsers of this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace trimtab {

/// Serves "/", the page; "/state?since=VERSION", which the page polls; and "/report.json". Reads
/// the study as any reader does, and only when it has changed.
class Dashboard {
 public:
  /// Listens on 127.0.0.1 from now on, on a free port where `port` is 0. There need not be a study
  /// at `study_path` yet. Throws EnvironmentError when it cannot listen there.
  Dashboard(std::string study_path, int64_t port);
  /// Stops.
  ~Dashboard();
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;

  int port() const;
  /// The address for a browser: "http://127.0.0.1:8080/".
  std::string url() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trimtab
