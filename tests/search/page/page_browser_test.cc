// Opens pages in headless Chromium: what it has to say of them, and what can be seen.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "search/page/page.h"
#include "tests/search/page/page_fixtures.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr int kNoBrowser = 77;  // the exit code of look_at_pages.py

// Everything a page of ours must not do, to see that it would be noticed.
constexpr const char* kBadPage = R"(<!doctype html><body style="margin:0">
<div style="width:3000px">&nbsp;</div><img src="http://trimtab.invalid/x.png">
<script>console.warn("a warning"); console.error("an error"); nothing.at.all;</script>)";

class PageInBrowser : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    Write("measured.html", ReportHtml(MeasuredReport(), SomeFindings()));
    Write("predicted.html", ReportHtml(PredictedReport(), SomeFindings()));
    Write("lonely.html", ReportHtml(LonelyReport(), SomeFindings()));
    Write("large.html", ReportHtml(LargeReport(1200), SomeFindings()));
    Write("hostile.html", ReportHtml(HostileReport(), HostileFindings()));
    Write("bad.html", kBadPage);
    std::string command = "python3 tests/search/page/look_at_pages.py " + Path("browser");
    for (const char* view :
         {"measured.html:1280:light", "measured.html:390:dark", "measured.html:1280:noscript",
          "measured.html:718:print", "predicted.html:390:light", "lonely.html:390:light",
          "large.html:390:light", "large.html:1280:dark", "hostile.html:1280:light",
          "bad.html:1280:light"}) {
      command.append(" ").append(Path(view));
    }
    command.append(" > ").append(Path("seen.json"));
    status_ = WEXITSTATUS(std::system(command.c_str()));
    if (status_ != 0) return;
    std::ifstream file(Path("seen.json"));
    seen_ = json::parse(file);
    ours_ = seen_;
    ours_.erase(Path("bad.html:1280:light"));
  }

  void SetUp() override {
    if (status_ == kNoBrowser) GTEST_SKIP() << "no chromium here (Debian package chromium)";
    ASSERT_EQ(status_, 0) << "look_at_pages.py failed";
  }

  static std::string Path(const std::string& name) {
    return std::string(std::getenv("TEST_TMPDIR")) + "/" + name;
  }

  static void Write(const std::string& name, const std::string& text) {
    std::ofstream(Path(name)) << text;
  }

  static const json& Seen(const std::string& view) { return seen_.at(Path(view)); }

  static const json& OurViews() { return ours_; }

 private:
  static int status_;
  static json seen_;
  static json ours_;  // but for the bad page
};

int PageInBrowser::status_ = 0;
json PageInBrowser::seen_;
json PageInBrowser::ours_;

TEST_F(PageInBrowser, ABadPageIsNoticed) {
  const json& seen = Seen("bad.html:1280:light");
  const std::string messages = seen["messages"].dump();
  EXPECT_NE(messages.find("a warning"), std::string::npos);
  EXPECT_NE(messages.find("an error"), std::string::npos);
  EXPECT_NE(messages.find("nothing is not defined"), std::string::npos);
  EXPECT_EQ(seen["requests"], json::array({"http://trimtab.invalid/x.png"}));
  EXPECT_EQ(seen["overflow"], 3000 - 1280);
  EXPECT_LT(seen["colours"], 20);
}

TEST_F(PageInBrowser, SaysNothingAndFetchesNothing) {
  for (const auto& [view, seen] : OurViews().items()) {
    EXPECT_EQ(seen["messages"], json::array()) << view;
    EXPECT_EQ(seen["requests"], json::array()) << view;
  }
}

TEST_F(PageInBrowser, FitsItsWidth) {
  for (const auto& [view, seen] : OurViews().items()) {
    EXPECT_LE(seen["overflow"], 0) << view;
    EXPECT_NE(view.find(fmt::format(":{}:", seen["width"].get<int>())), std::string::npos) << view;
  }
}

TEST_F(PageInBrowser, IsNotBlank) {
  for (const auto& [view, seen] : OurViews().items()) EXPECT_GT(seen["colours"], 20) << view;
}

TEST_F(PageInBrowser, FollowsLightAndDark) {
  EXPECT_EQ(Seen("measured.html:1280:light")["background"], "rgb(255, 255, 255)");
  EXPECT_EQ(Seen("measured.html:390:dark")["background"], "rgb(20, 24, 29)");
}

TEST_F(PageInBrowser, DrawsEveryChart) {
  // Kinds of marks, in the order in which they are counted: rectangles, symbols, rules, texts.
  const json& marks = Seen("measured.html:1280:light")["marks"];
  EXPECT_EQ(marks.size(), 6u);
  for (const auto& [chart, count] : marks.items()) EXPECT_GT(count, 5) << chart;
  EXPECT_EQ(Seen("measured.html:390:dark")["marks"], marks);
  const json& predicted = Seen("predicted.html:390:light")["marks"];
  EXPECT_EQ(predicted.size(), 5u) << "nothing measured: no errors to show, no machine";
  for (const auto& [chart, count] : predicted.items()) EXPECT_GT(count, 5) << chart;
  EXPECT_EQ(Seen("lonely.html:390:light")["marks"].size(), 3u) << "nothing was left out";
  for (const auto& [chart, count] : Seen("measured.html:1280:noscript")["marks"].items()) {
    EXPECT_EQ(count, 0) << chart;
  }
}

TEST_F(PageInBrowser, ShowsTheFiguresUnderThePointer) {
  const std::string tooltip = Seen("measured.html:1280:light")["tooltip"];
  EXPECT_NE(tooltip.find("Tokens/s: 3,968"), std::string::npos) << tooltip;
  EXPECT_NE(tooltip.find("Trust: measured"), std::string::npos) << tooltip;
}

TEST_F(PageInBrowser, FoldsSortsAndFilters) {
  const size_t rows = MeasuredReport()["ranking"].size();
  EXPECT_EQ(Seen("measured.html:1280:noscript")["rows"], 20);
  for (const char* view : {"measured.html:1280:light", "large.html:390:light"}) {
    EXPECT_EQ(Seen(view)["rows"], 20) << view;
  }
  const json& use = Seen("measured.html:1280:light")["use"];
  EXPECT_EQ(use["all"], rows);
  EXPECT_GT(use["filtered"].size(), 0u);
  EXPECT_LT(use["filtered"].size(), rows);
  for (const json& layout : use["filtered"]) {
    EXPECT_NE(layout.get<std::string>().find("zero=1"), std::string::npos) << layout;
  }
  EXPECT_EQ(use["compared"].size(), 3u);
  EXPECT_EQ(use["reversed"], MeasuredReport()["ranking"].back()["layout"]);
}

}  // namespace
}  // namespace trimtab
