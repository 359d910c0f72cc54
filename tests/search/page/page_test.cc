#include "search/page/page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>

#include "search/page/html.h"
#include "search/page/layout_words.h"
#include "search/page/parts.h"
#include "tests/search/page/page_fixtures.h"
#include "tests/search/schema_check.h"

namespace trimtab {
namespace {

/// The page without its scripts and styles: what is left where scripts are off.
std::string WithoutScripts(std::string html) {
  for (const char* element : {"script", "style"}) {
    const std::string begin = std::string("<") + element;
    const std::string end = std::string("</") + element + ">";
    for (size_t at = html.find(begin); at != std::string::npos; at = html.find(begin, at)) {
      html.erase(at, html.find(end, at) + end.size() - at);
    }
  }
  return html;
}

size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(Page, ItsFixturesFollowTheSchema) {
  std::ifstream file("search/report.schema.json");
  const nlohmann::json schema = nlohmann::json::parse(file);
  for (const nlohmann::json& report :
       {MeasuredReport(), PredictedReport(), LonelyReport(), LargeReport(1200), HostileReport()}) {
    EXPECT_EQ(SchemaBreach(schema, report), "");
  }
}

TEST(Page, SaysTheVerdictInWords) {
  const nlohmann::json report = MeasuredReport();
  const std::string html = WithoutScripts(ReportHtml(report, SomeFindings()));
  EXPECT_NE(html.find("<h1>2-way tensor parallel, micro batch 1, fp32, on 2 ranks × 1 thread</h1>"),
            std::string::npos);
  for (const char* words :
       {"Against the plain default", "+89.8 %", "2.9 % <small>slower</small>", "2.2 % and 3.5 %",
        "left under a rank's limit of 256 MiB", "compute-bound: 86 % of the step computes",
        "30 visits in 7 rounds. Intervals hold at 95 %",
        "It is ahead of every other (95 % sure)."}) {
    EXPECT_NE(html.find(words), std::string::npos) << words;
  }
}

TEST(Page, WithoutScriptsItsTablesHoldEveryFigure) {
  nlohmann::json report = LargeReport(1200);
  const std::string html = WithoutScripts(ReportHtml(report, SomeFindings()));
  const auto expect = [&](const nlohmann::json& value, const char* what) {
    EXPECT_NE(html.find(Grouped(value.get<double>())), std::string::npos) << what << value;
  };
  for (const nlohmann::json& row : report["ranking"]) {
    expect(row["figure"]["tokens_per_s"], "figure ");
    expect(row["figure"]["low"], "low ");
    expect(row["predicted"]["tokens_per_s"], "predicted ");
    if (!row["measured"].is_null()) expect(row["measured"]["tokens_per_s_as_clocked"], "clocked ");
  }
  for (const nlohmann::json& visit : report["machine"]["visits"]) {
    expect(visit["tokens_per_s_even"], "even ");
  }
  for (const nlohmann::json& rule : report["space"]["pruned"]) {
    EXPECT_NE(html.find(rule["description"].get<std::string>()), std::string::npos);
  }
  EXPECT_NE(html.find("<summary>The other 1,180</summary>"), std::string::npos);
  EXPECT_EQ(Count(html, "dp=64,<wbr>zero=1"), 1200 - MeasuredReport()["ranking"].size());
  EXPECT_LT(html.size(), 2u << 20) << "a page to open, not to download";
}

TEST(Page, EveryFigureOfTheOrderSaysHowFarItCanBeTrusted) {
  const nlohmann::json report = MeasuredReport();
  const std::string html = ReportHtml(report, SomeFindings());
  const std::string ranking = html.substr(html.find("id=\"ranking\""));
  const size_t rows = report["ranking"].size();
  // Each row has the order's figure and the prediction.
  EXPECT_EQ(Count(ranking, "<span class=\"trust "), 2 * rows);
  EXPECT_EQ(Count(ranking, "<span class=\"trust measured\""), 6u);
}

TEST(Page, TheOrdersOwnFigureComesFirst) {
  nlohmann::json report = MeasuredReport();
  const auto before = [&](const char* first, const char* second) {
    const std::string html = ReportHtml(report, SomeFindings());
    const size_t ranking = html.find("id=\"ranking\"");
    return html.find(first, ranking) < html.find(second, ranking);
  };
  EXPECT_TRUE(before(">Tokens/s<", ">Memory measured, MiB<"));
  report["objective"] = "memory";
  EXPECT_TRUE(before(">Memory measured, MiB<", ">Tokens/s<"));
  report["objective"] = "cost";
  report["problem"]["cluster"]["device"] = "cuda";
  EXPECT_TRUE(before(">Tokens/s a GPU<", ">Tokens/s<"));
}

TEST(Page, PrintsFindingsAsSentences) {
  const Findings findings = {.limits = {{"it does not meet --require days<=2: 2.9 days"}},
                             .takes = {{"1B tokens take 3 days"}},
                             .decided = {{"a tie: these are within 1 % of it", {"tp=4", "tp=8"}}},
                             .trust = {{"1 of 3 visits waited"}},
                             .worse = "more memory"};
  const std::string html = ReportHtml(MeasuredReport(), findings);
  for (const char* words :
       {"role=\"note\">It does not meet --require days&lt;=2: 2.9 days.</p>",
        "<p>1B tokens take 3 days.</p>",
        "<p>A tie: these are within 1 % of it: <code>tp=4</code> and <code>tp=8</code>.</p>",
        "<p>1 of 3 visits waited.</p>", "2.9 % <small>more memory</small>"}) {
    EXPECT_NE(html.find(words), std::string::npos) << words;
  }
}

TEST(Page, SaysWhereARowStands) {
  EXPECT_EQ(StandingWords("failed", "out_of_memory", ""), "failed: out of memory");
  EXPECT_EQ(StandingWords("failed", "failed", ""), "failed");
  EXPECT_EQ(StandingWords("racing", "measured", ""), "racing");
  EXPECT_EQ(StandingWords("behind", "measured", "ordered by memory"), "behind: ordered by memory");
}

TEST(Page, FetchesNothing) {
  const std::string html = ReportHtml(MeasuredReport(), SomeFindings());
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  const std::string page = WithoutScripts(html);
  for (const char* fetching : {"http:", "https:", " src=", "<iframe", "<object", "<embed"}) {
    EXPECT_EQ(page.find(fetching), std::string::npos) << fetching;
  }
  for (const char* fetching : {"<script src", "@import"}) {
    EXPECT_EQ(html.find(fetching), std::string::npos) << fetching;
  }
  EXPECT_NE(html.find("Redistribution and use"), std::string::npos) << "Vega's licence stays";
}

TEST(Page, NoTextLeavesItsPlace) {
  const std::string plain = ReportHtml(MeasuredReport(), SomeFindings());
  const std::string hostile = ReportHtml(HostileReport(), HostileFindings());
  for (const char* tag : {"<script", "</script", "<img", "const vega ="}) {
    EXPECT_EQ(Count(hostile, tag), Count(plain, tag)) << tag;
  }
}

TEST(Page, SaysLayoutsInWords) {
  EXPECT_EQ(LayoutWords("tp=2,sp=1,dp=1,mbs=4"),
            "2-way tensor parallel with sequence parallel, micro batch 4, fp32");
  EXPECT_EQ(LayoutWords("tp=1,dp=1,mbs=1"), "a single rank, micro batch 1, fp32");
  EXPECT_EQ(LayoutWords("tp=1,dp=8,zero=1,mbs=2,recompute=full,precision=bf16,master=remainder"),
            "8-way data parallel with sharded optimizer, micro batch 2, recompute full, bf16 with "
            "remainder masters");
  EXPECT_EQ(LayoutWords("what=is,this"), "what=is,this");
  EXPECT_EQ(PlaceWords(DeviceKind::kCpu, 1, 2), "1 rank × 2 threads");
  EXPECT_EQ(PlaceWords(DeviceKind::kCuda, 8, 1), "8 GPUs");
}

TEST(Page, GathersTheOpsOfAStep) {
  const std::vector<Part> parts = StepParts({{"gemm", 3.0},
                                             {"all_reduce:tp", 1.0},
                                             {"all_gather:dp", 0.5},
                                             {"adamw", 0.25},
                                             {"fill", 0}});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0].name, "optimizer");
  EXPECT_EQ(parts[1].name, "matrix products");
  EXPECT_EQ(parts[2].name, "messages");
  EXPECT_EQ(parts[2].amount, 1.5);
}

TEST(Page, PrintsNumbersAsPeopleReadThem) {
  EXPECT_EQ(Grouped(3986.4), "3,986");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Grouped(123.45), "123.5");
  EXPECT_EQ(Grouped(1.012), "1.01");
  EXPECT_EQ(Grouped(0.0824), "0.0824");
  EXPECT_EQ(Grouped(0), "0");
  EXPECT_EQ(Grouped(-4200), "−4,200");
  EXPECT_EQ(Percent(0.95), "95 %");
  EXPECT_EQ(Percent(0.0254), "2.5 %");
  EXPECT_EQ(SignedPercent(-0.025), "−2.5 %");
  EXPECT_EQ(SignedPercent(0.53), "+53.0 %");
}

}  // namespace
}  // namespace trimtab
