#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/page/html.h"
#include "search/page/sections.h"

namespace trimtab {
namespace {

using nlohmann::json;

std::string Folded(const std::string& title, const std::string& html) {
  return fmt::format("<details class=\"more\"><summary>{}</summary>\n{}</details>\n", title, html);
}

/// The best of each precision and optimizer state, and what these mean.
std::string NumericsHtml(const json& report) {
  json rows = json::array();
  for (const json& each : report["numerics"]) {
    rows.push_back({{"precision", each["precision"]},
                    {"state", each["optimizer_state"]},
                    {"means", each["precision_means"].get<std::string>() + "; " +
                                  each["optimizer_state_means"].get<std::string>()},
                    {"layout", each["best"]["layout"]},
                    {"outcome", each["best"]["state"]},
                    {"extra_cost", each["extra_cost"]}});
  }
  return "<section>\n<h2>Precision and optimizer state</h2>\n<p>Results differ slightly between "
         "these; only what was asked for was in the running.</p>\n" +
         Table({{"precision", "Precision"},
                {"state", "Optimizer state"},
                {"means", "What it means"},
                {"layout", "Best layout", Shown::kLayout},
                {"outcome", "Figure"},
                {"extra_cost", "Extra cost", Shown::kSignedPercent}},
               rows) +
         "</section>\n";
}

/// What each choice of the recommended layout is worth.
std::string Explanation(const json& report) {
  if (report["explanation"].empty()) return "";
  return "<section>\n<h2>What its choices are worth</h2>\n<p>Each dimension with its best other "
         "value, everything else free, as the closed form predicts.</p>\n" +
         Table({{"dimension", "Dimension"},
                {"chosen", "Chosen"},
                {"value", "Next best"},
                {"extra_cost", "Costs", Shown::kSignedPercent},
                {"layout", "Layout", Shown::kLayout}},
               report["explanation"]) +
         "</section>\n";
}

/// What frameworks publish for the model.
std::string Recipes(const json& report) {
  if (report["recipes"].empty()) return "";
  return "<section>\n<h2>What frameworks publish</h2>\n<p>Layouts published for this model on this "
         "GPU, as the closed form predicts them for this problem.</p>\n" +
         Table({{"source", "Published by"},
                {"tokens_per_s", "Tokens/s", Shown::kFigure},
                {"extra_cost", "Against the recommended", Shown::kSignedPercent},
                {"refused", "Does not run here"},
                {"layout", "Layout", Shown::kLayout}},
               report["recipes"]) +
         "</section>\n";
}

std::string Breakdown(const std::string& title, const json& breakdown_s) {
  json rows = json::array();
  for (const auto& [name, seconds] : breakdown_s.items()) {
    rows.push_back({{"part", name}, {"seconds", seconds}});
  }
  std::sort(rows.begin(), rows.end(),
            [](const json& a, const json& b) { return a["seconds"] > b["seconds"]; });
  return Folded(title, Table({{"part", "Part"}, {"seconds", "A step", Shown::kSeconds}}, rows));
}

std::string Power(const json& measured) {
  if (measured.is_null() || measured["power"].is_null()) return "";
  return Folded("Power of the recommended run, measured",
                Table({{"watts", "Watts", Shown::kFigure},
                       {"joules_per_token", "Joules a token", Shown::kFigure},
                       {"clock_mhz", "Clock, MHz", Shown::kFigure},
                       {"temperature_c", "Hottest, \u00b0C", Shown::kFigure}},
                      json::array({measured["power"]})));
}

std::string Pretty(const json& value) {
  return "<pre tabindex=\"0\">" +
         Escape(value.dump(2, ' ', false, json::error_handler_t::replace)) + "</pre>\n";
}

std::string Origins(const json& report) {
  const json& profile = report["profile"];
  std::string html = fmt::format(
      "<p class=\"quiet\">Prices: profile {}{}{}.", EscapedText(profile["name"]),
      profile["measured_on"] == "" ? " (not measured on this machine)" : ", measured on ",
      EscapedText(profile["measured_on"]));
  html += fmt::format(" Study: {}. Made by", EscapedText(report["study"]));
  for (const auto& [component, version] : report["versions"].items()) {
    html += fmt::format(" {} {}", Escape(component), EscapedText(version));
  }
  return html + ". Charts: Vega (BSD-3-Clause; its licence stands in this file).</p>\n";
}

}  // namespace

std::string DetailsHtml(const json& report) {
  const json& recommended = report["recommended"];
  const json& measured = recommended["measured"];
  std::string html = Explanation(report) + Recipes(report) + NumericsHtml(report) +
                     "<section>\n<h2>The recommended run</h2>\n";
  html += "<p><code>trimtab train --config report.json</code> trains with it.</p>\n";
  html += Breakdown("Where its step goes, as predicted", recommended["predicted"]["breakdown_s"]);
  if (!measured.is_null()) {
    html += Breakdown("Where its step goes on rank 0, as measured", measured["breakdown_s"]);
  }
  html += Power(measured);
  html += Folded("The whole run", Pretty(recommended["run"]));
  html += Folded("What was asked", Pretty(report["problem"]));
  return html + "</section>\n<footer>" + Origins(report) + "</footer>\n";
}

}  // namespace trimtab
