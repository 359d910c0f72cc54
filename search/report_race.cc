// The parts of a report about its race and its machine.
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "search/report_json.h"

namespace trimtab {
namespace {

nlohmann::json LayoutsJson(const SearchResult& result, Standing standing) {
  nlohmann::json layouts = nlohmann::json::array();
  for (const size_t index : result.race.With(standing)) {
    layouts.push_back(result.candidates[index].key);
  }
  return layouts;
}

/// Whose slow ranks make visits count little.
nlohmann::json StragglersJson(const SearchResult& result) {
  nlohmann::json list = nlohmann::json::array();
  for (const CandidateRecord& candidate : result.candidates) {
    for (const VisitRecord& visit : candidate.visits) {
      if (visit.measurement.stragglers.empty()) continue;
      list.push_back({{"round", visit.round},
                      {"layout", candidate.key},
                      {"ranks", ToJson(visit.measurement)["stragglers"]}});
    }
  }
  return {{"visits", std::move(list)}, {"note", StragglerNote(result)}};
}

}  // namespace

nlohmann::json RaceJson(const SearchResult& result) {
  const Race& race = result.race;
  int64_t visits = 0;
  for (const CandidateRecord& candidate : result.candidates) {
    visits += static_cast<int64_t>(candidate.visits.size());
  }
  nlohmann::json tied = LayoutsJson(result, Standing::kTied);
  if (!tied.empty()) tied.insert(tied.begin(), result.candidates[*race.best].key);
  nlohmann::json throttled = nlohmann::json::array();
  if (race.fit) {
    for (const Mode& mode : race.fit->throttled()) throttled.push_back(InWords(mode));
  }
  return {
      {"ended", Name(race.end)},
      {"indifference", result.rules.indifference},
      {"confidence", result.rules.confidence},
      {"expected_loss", OrNull(race.expected_loss)},
      {"rounds", result.rounds.size()},
      {"visits", visits},
      {"tied", std::move(tied)},
      {"unseparated", LayoutsJson(result, Standing::kRacing)},
      {"probe",
       {{"exponent", race.fit ? race.fit->exponent() : 1},
        {"stands_for_steps", !race.fit || race.fit->stands_for_steps()},
        {"note", ProbeNote(result)}}},
      {"throttled_modes", std::move(throttled)},
      {"stragglers", StragglersJson(result)},
  };
}

nlohmann::json MachineJson(const SearchResult& result) {
  if (!result.race.fit || !result.race.fit->probed()) return nullptr;
  const RaceFit& fit = *result.race.fit;
  nlohmann::json rounds = nlohmann::json::array();
  for (const RoundRecord& round : result.rounds) {
    const auto speed = fit.speed_of_round().find(round.id);
    if (speed == fit.speed_of_round().end()) continue;
    rounds.push_back({{"round", round.id},
                      {"at_s", round.at_s},
                      {"seconds", round.seconds},
                      {"speed", speed->second.median},
                      {"speed_low", speed->second.low},
                      {"speed_high", speed->second.high}});
  }
  nlohmann::json visits = nlohmann::json::array();
  size_t next = 0;  // the fit has them in this order
  for (const CandidateRecord& candidate : result.candidates) {
    for (const VisitRecord& visit : candidate.visits) {
      const double speed = fit.speed_of_visit()[next++];
      visits.push_back({{"round", visit.round},
                        {"layout", candidate.key},
                        {"at_s", visit.at_s},
                        {"speed", speed},
                        {"tokens_per_s", visit.measurement.tokens_per_s},
                        {"tokens_per_s_even", visit.measurement.tokens_per_s / speed}});
    }
  }
  return {{"relative_to", fit.calibrated() ? "calibration" : "search"},
          {"speed_low", fit.speed().low},
          {"speed_median", fit.speed().median},
          {"speed_high", fit.speed().high},
          {"text", MachineSpeedText(result)},
          {"rounds", std::move(rounds)},
          {"visits", std::move(visits)}};
}

}  // namespace trimtab
