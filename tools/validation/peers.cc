#include "tools/validation/peers.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cost_model/validation/accuracy.h"
#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"
#include "tools/cli/table.h"

namespace trimtab {
namespace {

constexpr double kLargestError = 100;

std::optional<double> ErrorFrom(StrictObject& object, const char* key, double least) {
  if (object.Find(key) == nullptr) return std::nullopt;
  double error = 0;
  object.Number(key, error, least, kLargestError);
  return error;
}

Peer PeerFrom(const nlohmann::json& json, const std::string& where) {
  Peer peer;
  StrictObject object(json, where);
  object.Text("peer", peer.name, Need::kRequired);
  object.Text("source", peer.source, Need::kRequired);
  object.Text("rows", peer.rows, Need::kRequired);
  peer.mean = ErrorFrom(object, "mean", 0);
  peer.max = ErrorFrom(object, "max", 0);
  object.Array("cases", Need::kOptional, 0, [&](const nlohmann::json& value, const auto& at) {
    StrictObject row(value, at);
    PeerCase& each = peer.cases.emplace_back();
    row.Text("id", each.id, Need::kRequired);
    each.step_time_error = ErrorFrom(row, "step_time_error", -1);
    each.memory_error = ErrorFrom(row, "memory_error", -1);
    row.Finish();
  });
  object.Finish();
  return peer;
}

const PredictedRun* RunOf(const std::string& id, std::span<const PredictedRun> runs) {
  const auto found = std::ranges::find_if(
      runs, [&](const PredictedRun& run) { return run.row->published.id == id; });
  return found == runs.end() ? nullptr : &*found;
}

/// Both sides on the same rows, of one of what is compared.
struct Comparison {
  ErrorSummary theirs;
  ErrorSummary ours;
};

/// Of step time; of a peer that tells no cases, on all rows that its name for them fits.
Comparison CompareTimes(const Peer& peer, std::span<const PredictedRun> runs) {
  std::vector<double> theirs;
  std::vector<double> ours;
  for (const PredictedRun& run : runs) {
    if (run.has_time() && peer.cases.empty() && run.row->published.id.starts_with(peer.rows)) {
      ours.push_back(run.StepTimeError());
    }
  }
  for (const PeerCase& each : peer.cases) {
    const PredictedRun* run = RunOf(each.id, runs);
    if (run == nullptr || !run->has_time() || !each.step_time_error.has_value()) continue;
    theirs.push_back(*each.step_time_error);
    ours.push_back(run->StepTimeError());
  }
  Comparison comparison = {SummarizeErrors(theirs), SummarizeErrors(ours)};
  if (theirs.empty()) {
    comparison.theirs.mean = peer.mean.value_or(0);
    comparison.theirs.max = peer.max.value_or(0);
  }
  return comparison;
}

std::string Signed(std::optional<double> error) {
  return error.has_value() ? fmt::format("{:+.1f}", 100 * *error) : "-";
}

std::string Known(double error) { return error > 0 ? fmt::format("{:.1f}", 100 * error) : "-"; }

std::optional<double> TimeErrorOf(const PredictedRun& run) {
  return run.has_time() ? std::optional(run.StepTimeError()) : std::nullopt;
}

std::optional<double> MemoryErrorOf(const PredictedRun& run) {
  return run.has_memory() ? std::optional(run.MemoryError()) : std::nullopt;
}

}  // namespace

std::vector<Peer> ReadPeers(const std::string& path) {
  const nlohmann::json json = ReadJsonFile(path);
  StrictObject root(json, path + ": $");
  int64_t version = 1;
  root.Integer("schema_version", version, 1, 1, Need::kRequired);
  std::vector<Peer> peers;
  root.Array("peers", Need::kRequired, 1, [&](const nlohmann::json& value, const auto& where) {
    peers.push_back(PeerFrom(value, where));
  });
  root.Finish();
  return peers;
}

nlohmann::json PeersJson(std::span<const Peer> peers, std::span<const PredictedRun> runs) {
  const auto known = [](std::optional<double> error) {
    return error.has_value() ? nlohmann::json(*error) : nlohmann::json(nullptr);
  };
  nlohmann::json list = nlohmann::json::array();
  for (const Peer& peer : peers) {
    const Comparison times = CompareTimes(peer, runs);
    nlohmann::json cases = nlohmann::json::array();
    for (const PeerCase& each : peer.cases) {
      const PredictedRun* run = RunOf(each.id, runs);
      if (run == nullptr) continue;
      cases.push_back({{"id", each.id},
                       {"their_step_time_error", known(each.step_time_error)},
                       {"step_time_error", known(TimeErrorOf(*run))},
                       {"their_memory_error", known(each.memory_error)},
                       {"memory_error", known(MemoryErrorOf(*run))}});
    }
    list.push_back({{"peer", peer.name},
                    {"source", peer.source},
                    {"rows", times.ours.rows},
                    {"their_mean", times.theirs.mean},
                    {"mean", times.ours.mean},
                    {"their_max", times.theirs.max},
                    {"max", times.ours.max},
                    {"cases", std::move(cases)}});
  }
  return list;
}

std::string PeersText(std::span<const Peer> peers, std::span<const PredictedRun> runs, bool bold) {
  Table summary({{"peer"},
                 {"rows", Align::kRight},
                 {"step time error %, mean", Align::kRight},
                 {"ours", Align::kRight},
                 {"largest", Align::kRight},
                 {"ours", Align::kRight},
                 {"source"}});
  Table cases({{"run"},
               {"peer"},
               {"step time error %", Align::kRight},
               {"ours", Align::kRight},
               {"memory error %", Align::kRight},
               {"ours", Align::kRight}});
  for (const Peer& peer : peers) {
    const Comparison times = CompareTimes(peer, runs);
    summary.AddRow({peer.name, fmt::format("{}", times.ours.rows), Known(times.theirs.mean),
                    Known(times.ours.mean), Known(times.theirs.max), Known(times.ours.max),
                    peer.source});
    for (const PeerCase& each : peer.cases) {
      const PredictedRun* run = RunOf(each.id, runs);
      if (run == nullptr) continue;
      cases.AddRow({each.id, peer.name, Signed(each.step_time_error), Signed(TimeErrorOf(*run)),
                    Signed(each.memory_error), Signed(MemoryErrorOf(*run))});
    }
  }
  return summary.ToText(bold) + "\n" + cases.ToText(bold);
}

}  // namespace trimtab
