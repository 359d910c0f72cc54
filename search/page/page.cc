#include "search/page/page.h"

#include <map>
#include <string_view>

#include "engine/base/error.h"
#include "search/page/chart.h"
#include "search/page/page_assets.h"
#include "search/page/sections.h"

namespace trimtab {
namespace {

/// The template with every {{name}} replaced. One pass: what is put in is not looked at again.
std::string Fill(std::string_view text,
                 const std::map<std::string_view, std::string_view>& values) {
  std::string filled;
  while (true) {
    const size_t begin = text.find("{{");
    filled += text.substr(0, begin);
    if (begin == std::string_view::npos) return filled;
    const size_t end = text.find("}}", begin);
    filled += values.at(text.substr(begin + 2, end - begin - 2));
    text.remove_prefix(end + 2);
  }
}

constexpr char kPolicy[] =
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'";

std::string Framed(const std::string& title, const std::string& body, const std::string& policy,
                   const std::string& more) {
  return Fill(PageAsset("page.html"), {{"title", title},
                                       {"style", PageAsset("page.css")},
                                       {"body", body},
                                       {"policy", policy},
                                       {"more", more},
                                       {"vega", PageAsset("vega.js")},
                                       {"script", PageAsset("page.js")}});
}

}  // namespace

std::string PageHtml(const std::string& title, const std::string& body) {
  return Framed("Trimtab report: " + title, body, kPolicy, /*more=*/"");
}

std::string LivePolicy() { return std::string(kPolicy) + "; connect-src 'self'"; }

std::string LiveFrame(const std::string& body) {
  const std::string script = fmt::format("<script>\n{}</script>\n", PageAsset("live.js"));
  return Framed("Trimtab: a search", body, LivePolicy(), script);
}

std::string ReportBody(const nlohmann::json& report, const Findings& findings) {
  if (report["for"] == "serving") return ServingHtml(report, findings);
  std::string charts;
  for (const Chart& chart : Charts(report)) charts += ChartHtml(chart);
  return VerdictHtml(report, findings) + RaceHtml(report, findings) + "<div class=\"charts\">\n" +
         charts + "</div>\n" + RankingHtml(report) + DetailsHtml(report);
}

std::string ReportHtml(const nlohmann::json& report, const Findings& findings) {
  const nlohmann::json& problem = report["problem"];
  const std::string title =
      EscapedText(problem["model"]["name"]) + " on " + EscapedText(problem["cluster"]["name"]);
  const bool serves = report["for"] == "serving";
  return PageHtml(serves ? "Serving " + title : title, ReportBody(report, findings));
}

}  // namespace trimtab
