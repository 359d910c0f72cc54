#include <map>

#include "engine/base/error.h"
#include "search/page/html.h"
#include "search/page/sections.h"

namespace trimtab {
namespace {

using nlohmann::json;

std::string LayoutList(const json& layouts) {
  std::vector<std::string> items;
  for (const json& layout : layouts) items.push_back(LayoutHtml(layout.get<std::string>()));
  return Listed(items);
}

/// How the race ended, as the rest of "The race ...".
std::string EndWords(const std::string& ended) {
  static const std::map<std::string, std::string> kWords = {
      {"separated", "ended when first place was clear"},
      {"tie", "ended in a tie: those in first place differ by too little to matter"},
      {"small_loss", "ended when further visits were not expected to gain anything that matters"},
      {"rounds", "ended with its last round"},
      {"open", "was not finished"}};
  return kWords.at(ended);
}

std::string LossWords(const json& loss) {
  if (loss.is_null()) {
    return "How much worse the recommended layout is than the true best is unknown: too little was "
           "measured.";
  }
  return fmt::format("The recommended layout is expected to be {} worse than the true best.",
                     Percent(loss.get<double>()));
}

std::string Conduct(const json& report) {
  const json& race = report["race"];
  const json& proof = report["proof"];
  if (race["ended"] != "not_run") {
    return fmt::format(
        "The race {}, after {} and {}. {} Intervals hold at {}; layouts within {} of each other "
        "count as equal.",
        EndWords(race["ended"].get<std::string>()), Counted(race["rounds"].get<int64_t>(), "round"),
        Counted(race["visits"].get<int64_t>(), "visit"), LossWords(race["expected_loss"]),
        Percent(race["confidence"].get<double>()), Percent(race["indifference"].get<double>()));
  }
  if (proof["measured"] == 0) return "No candidate was measured, so the predictions decide.";
  return "The finalists were measured once each, without a race.";
}

std::string ProbeWords(const json& probe) {
  std::string words;
  if (!probe["stands_for_steps"].get<bool>()) {
    words =
        "The probe did not follow the steps' own speed here, so figures are less even than "
        "they could be. ";
  }
  return words + EscapedText(probe["note"]);
}

}  // namespace

std::string RaceHtml(const json& report) {
  const json& race = report["race"];
  const json& proof = report["proof"];
  const json& accuracy = report["accuracy"];
  std::vector<std::string> sentences = {Conduct(report)};
  if (!race["unseparated"].empty()) {
    sentences.push_back("Not yet told apart from the first: " + LayoutList(race["unseparated"]) +
                        ".");
  }
  if (const std::string words = ProbeWords(race["probe"]); !words.empty()) {
    sentences.push_back(words);
  }
  if (const json& note = race["stragglers"]["note"]; note != "") {
    sentences.push_back(EscapedText(note) + ".");
  }
  if (proof["failed"] != 0) {
    sentences.push_back(Counted(proof["failed"].get<int64_t>(), "trial") +
                        " failed; the ranking says why.");
  }
  if (accuracy["proved"] != 0) {
    const json& memory = accuracy["max_peak_mem_error"];
    sentences.push_back(fmt::format(
        "Predictions of {}: {} off by {} (median), {} (most){}.",
        Counted(accuracy["proved"].get<int64_t>(), "measured candidate"),
        report["for"] == "serving" ? "times" : "step time",
        Percent(accuracy["median_step_time_error"].get<double>()),
        Percent(accuracy["max_step_time_error"].get<double>()),
        memory.is_null() ? "" : "; peak memory by at most " + Percent(memory.get<double>())));
  }
  std::string html = "<section>\n<h2>How it was decided</h2>\n";
  for (const std::string& sentence : sentences) html += fmt::format("<p>{}</p>\n", sentence);
  return html + "</section>\n";
}

}  // namespace trimtab
