// Predictions of published runs beside those that other tools published of the same runs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tools/validation/published_validation.h"

namespace trimtab {

/// What a peer says that it is off by, relative.
struct PeerCase {
  std::string id;
  std::optional<double> step_time_error;
  std::optional<double> memory_error;
};

/// A tool that published predictions, of runs whose id begins with `rows`.
struct Peer {
  std::string name;
  std::string source;
  std::string rows;
  std::optional<double> mean;  // of absolute errors of step time, where no case is told
  std::optional<double> max;
  std::vector<PeerCase> cases;
};

/// {"schema_version", "peers": [{"peer", "source", "rows", "mean", "max", "cases"}]}, strictly.
/// Throws InputError.
std::vector<Peer> ReadPeers(const std::string& path);

/// For each peer how far off it is, and ours on the same rows; and each of its cases that is among
/// `runs`.
nlohmann::json PeersJson(std::span<const Peer> peers, std::span<const PredictedRun> runs);
std::string PeersText(std::span<const Peer> peers, std::span<const PredictedRun> runs, bool bold);

}  // namespace trimtab
