#include "engine/base/error.h"
#include "engine/base/units.h"
#include "search/page/html.h"
#include "search/page/layout_words.h"
#include "search/page/parts.h"
#include "search/page/sections.h"

namespace trimtab {
namespace {

using nlohmann::json;

std::string Paragraph(const std::string& html) { return fmt::format("<p>{}</p>\n", html); }

/// "3,950 to 4,020", or nothing where the figure has no interval.
std::string IntervalWords(const json& low, const json& high) {
  if (low.is_null() || high.is_null()) return "";
  return Grouped(low.get<double>()) + " to " + Grouped(high.get<double>());
}

/// " (95 % interval)"
std::string Confidence(const json& report) {
  return fmt::format(" ({} interval)", Percent(report["race"]["confidence"].get<double>()));
}

std::string SpeedTile(const json& report) {
  const json& recommended = report["recommended"];
  const json& figure = recommended["figure"];
  const json& measured = recommended["measured"];
  const json& figures = measured.is_null() ? recommended["predicted"] : measured;
  std::string words;
  if (const std::string interval = IntervalWords(figure["low"], figure["high"]);
      !interval.empty()) {
    words += Paragraph(interval + (measured.is_null() ? " (as predicted)" : Confidence(report)));
  }
  words += Paragraph(fmt::format("{:.3g} s a step", figures["step_time_s"].get<double>()));
  if (!measured.is_null()) {
    words +=
        Paragraph(fmt::format("{} tokens/s as clocked; predicted were {}",
                              Grouped(measured["tokens_per_s_as_clocked"].get<double>()),
                              Grouped(recommended["predicted"]["tokens_per_s"].get<double>())));
  }
  return Tile(
      "Speed",
      fmt::format("{} <small>tokens/s</small> {}", Grouped(figure["tokens_per_s"].get<double>()),
                  TrustLabel(figure["trust"].get<std::string>())),
      words);
}

std::string DefaultTile(const json& recommended) {
  const json& plain = recommended["default"];
  if (plain.is_null()) return "";
  const std::string title = "Against the plain default";
  const std::string layout = plain["layout"].get<std::string>();
  if (plain["layout"] == recommended["layout"]) {
    return Tile(title, "the same", Paragraph("The recommended layout is the plain default."));
  }
  return Tile(title, SignedPercent(plain["gain"].get<double>()),
              Paragraph(fmt::format("{} gives {} tokens/s {}", LayoutHtml(layout),
                                    Grouped(plain["tokens_per_s"].get<double>()),
                                    TrustLabel(plain["trust"].get<std::string>()))) +
                  Paragraph(Escape(Capitalised(LayoutWords(layout)))));
}

/// How far the figure of a layout of the ranking can be trusted, as a label.
std::string TrustIn(const json& report, const json& layout) {
  for (const json& row : report["ranking"]) {
    if (row["layout"] == layout) return TrustLabel(row["figure"]["trust"].get<std::string>());
  }
  return "";
}

std::string NextBestTile(const json& report, const std::string& worse) {
  const json& recommended = report["recommended"];
  const json& next = recommended["alternative"];
  if (next.is_null()) {
    return Tile("Next best", "none", Paragraph("No other candidate of the same kind."));
  }
  std::string words = Paragraph(LayoutHtml(next["layout"].get<std::string>()));
  if (!next["low"].is_null() && !next["high"].is_null()) {
    words += Paragraph(fmt::format("Between {} and {}", Percent(next["low"].get<double>()),
                                   Percent(next["high"].get<double>())));
  }
  return Tile("Next best",
              fmt::format("{} <small>{}</small> {}", Percent(next["extra_cost"].get<double>()),
                          worse, TrustIn(report, next["layout"])),
              words);
}

std::string MemoryTile(const json& recommended) {
  const json& measured = recommended["measured"];
  const json& figures = measured.is_null() ? recommended["predicted"] : measured;
  std::string words = Paragraph("No limit was set.");
  if (const json& limit = recommended["limit_bytes"]; !limit.is_null()) {
    const int64_t headroom = recommended["headroom_bytes"].get<int64_t>();
    words = Paragraph(fmt::format("{} ({}) left under a rank's limit of {}", FormatBytes(headroom),
                                  Percent(static_cast<double>(headroom) / limit.get<double>()),
                                  FormatBytes(limit.get<int64_t>())));
  }
  return Tile("Memory",
              fmt::format("{} <small>peak</small> {}",
                          FormatBytes(figures["peak_mem_bytes"].get<int64_t>()),
                          TrustLabel(measured.is_null() ? "modelled" : "measured")),
              words);
}

std::string BindsTile(const json& recommended) {
  const json& binds = recommended["binds"];
  return Tile(
      "What binds",
      fmt::format("{} <small>compute</small> {}", Percent(binds["compute_share"].get<double>()),
                  TrustLabel(recommended["predicted"]["trust"].get<std::string>())),
      Paragraph(EscapedText(binds["text"])));
}

/// Names the framework that will train, where that is not our own engine.
std::string StackWords(const json& cluster) {
  if (!cluster.contains("stack")) return "";
  return ", with " + EscapedText(cluster["stack"]["name"]);
}

}  // namespace

std::string VerdictHtml(const json& report, const Findings& findings) {
  const json& recommended = report["recommended"];
  const json& problem = report["problem"];
  const std::string layout = recommended["layout"].get<std::string>();
  const std::string place = PlaceWords(DeviceOf(problem), recommended["ranks"].get<int64_t>(),
                                       recommended["threads_per_rank"].get<int64_t>());
  std::string html = fmt::format(
      "<header>\n<p class=\"quiet\">Trimtab report: {} on {}, global batch {}, {} tokens a "
      "sequence{}, best {}</p>\n<h1>{}, on {}</h1>\n<p>{}</p>\n</header>\n",
      EscapedText(problem["model"]["name"]), EscapedText(problem["cluster"]["name"]),
      recommended["global_batch"].get<int64_t>(), problem["sequence_length"].get<int64_t>(),
      StackWords(problem["cluster"]), EscapedText(report["objective"]),
      Escape(Capitalised(LayoutWords(layout))), place, LayoutHtml(layout));
  for (const Finding& each : findings.limits) html += WarningHtml(SentenceHtml(each));
  html += ParagraphsHtml(findings.takes);
  html += "<div class=\"tiles\">\n" + SpeedTile(report) + DefaultTile(recommended) +
          NextBestTile(report, findings.worse) + MemoryTile(recommended) + BindsTile(recommended);
  return html + "</div>\n";
}

}  // namespace trimtab
