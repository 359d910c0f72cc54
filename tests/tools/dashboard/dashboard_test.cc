#include "tools/dashboard/dashboard.h"

#include <gtest/gtest.h>
#include <httplib.h>

#include <nlohmann/json.hpp>

#include "engine/base/io/lock_file.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/tools/run_cli.h"
#include "tests/tools/shell.h"

namespace trimtab {
namespace {

using nlohmann::json;

constexpr int kNoBrowser = 77;  // the exit code of use_dashboard.py

class DashboardTest : public testing::Test {
 protected:
  /// Predicts a little, into a study.
  void Search(const std::string& study) const {
    const CliResult result =
        RunCli({"search", "--model", "gpt2-124m", "--cluster", "8xh100", "--gbs", "64", "--seq",
                "1024", "--precision", "bf16", "--prove", "0", "--study", study, "-q"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
  }

  httplib::Result Get(const Dashboard& dashboard, const std::string& path,
                      const std::string& host = "") const {
    httplib::Client client("127.0.0.1", dashboard.port());
    httplib::Headers headers;
    if (!host.empty()) headers.emplace("Host", host);
    return client.Get(path, headers);
  }

  std::string folder_ = ScratchFolder();
  std::string study_ = folder_ + "/study.db";
};

TEST_F(DashboardTest, WaitsForAStudyAndShowsIt) {
  const Dashboard dashboard(study_, 0);
  const httplib::Result waiting = Get(dashboard, "/");
  ASSERT_EQ(waiting->status, 200);
  EXPECT_NE(waiting->body.find("Waiting for a search to write"), std::string::npos);
  EXPECT_EQ(Get(dashboard, "/report.json")->status, 503);
  EXPECT_EQ(Get(dashboard, "/state?since=none")->status, 204);

  Search(study_);
  const httplib::Result state = Get(dashboard, "/state?since=none");
  ASSERT_EQ(state->status, 200);
  const json now = json::parse(state->body);
  const std::string html = now["html"];
  EXPECT_NE(html.find("data-runs=\"false\""), std::string::npos) << html.substr(0, 500);
  EXPECT_NE(html.find("id=\"ranking\""), std::string::npos);
  EXPECT_EQ(Get(dashboard, "/state?since=" + now["version"].get<std::string>())->status, 204);
  const json report = json::parse(Get(dashboard, "/report.json")->body);
  EXPECT_EQ(report["problem"]["model"]["name"], "gpt2-124m");
}

TEST_F(DashboardTest, TellsARunningSearchFromOneThatEnded) {
  const Dashboard dashboard(study_, 0);
  Search(study_);
  auto writer = LockFile::Take(study_ + ".lock");  // as a search holds it
  ASSERT_NE(writer, nullptr);
  const json running = json::parse(Get(dashboard, "/state?since=none")->body);
  const std::string html = running["html"];
  EXPECT_NE(html.find("The search is running: predicting."), std::string::npos)
      << html.substr(0, 500);
  writer.reset();
  const httplib::Result ended =
      Get(dashboard, "/state?since=" + running["version"].get<std::string>());
  ASSERT_EQ(ended->status, 200) << "its end is news, though the file is as it was";
  EXPECT_NE(ended->body.find("The search is ended."), std::string::npos);
}

TEST_F(DashboardTest, AnswersItsOwnPageAlone) {
  const Dashboard dashboard(study_, 0);
  const httplib::Result page = Get(dashboard, "/");
  const std::string policy = page->get_header_value("Content-Security-Policy");
  EXPECT_TRUE(policy.starts_with("default-src 'none'; ")) << policy;
  EXPECT_NE(policy.find("connect-src 'self'"), std::string::npos) << policy;
  EXPECT_NE(page->body.find("; connect-src 'self'\">"), std::string::npos);
  EXPECT_EQ(Get(dashboard, "/", "localhost:80")->status, 200);
  for (const char* host : {"evil.example", "127.0.0.1.evil.example:80", "10.0.0.1"}) {
    EXPECT_EQ(Get(dashboard, "/", host)->status, 403) << host;
  }
  EXPECT_EQ(Get(dashboard, "/etc/passwd")->status, 404);
  httplib::Client client("127.0.0.1", dashboard.port());
  EXPECT_EQ(client.Post("/state", "{}", "application/json")->status, 405);
  EXPECT_EQ(client.Delete("/state")->status, 405);
}

TEST_F(DashboardTest, APortThatIsTakenIsRefused) {
  const Dashboard first(study_, 0);
  Search(study_);
  const CliResult second =
      RunCli({"dashboard", "--study", study_, "--port", std::to_string(first.port())});
  EXPECT_EQ(second.exit_code, 6) << second.out;
  EXPECT_NE(second.err.find("cannot listen on 127.0.0.1 port"), std::string::npos) << second.err;
}

TEST_F(DashboardTest, RefusesWhatIsNoStudy) {
  EXPECT_EQ(RunCli({"dashboard", "--study", folder_ + "/none.db"}).exit_code, 3);
  WriteBytes(folder_ + "/text.db", "a text");
  EXPECT_EQ(RunCli({"dashboard", "--study", folder_ + "/text.db"}).exit_code, 7);
}

// A person who watches: what is new comes without a reload, and Ctrl-C ends the command.
TEST_F(DashboardTest, ABrowserFollowsTheStudy) {
  Search(folder_ + "/whole.db");
  const Outcome outcome =
      Shell("python3 tests/tools/dashboard/use_dashboard.py tools/trimtab " + folder_);
  if (outcome.status == kNoBrowser) GTEST_SKIP() << "no chromium here (Debian package chromium)";
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const json seen = json::parse(outcome.output);
  EXPECT_EQ(seen["before"].get<std::string>().find("Waiting for a search"), 0u) << seen;
  EXPECT_EQ(seen["after"], "The search is ended.");
  EXPECT_EQ(seen["loads"], 1) << "it was never loaded again";
  const json& kept = seen["kept"];  // of what the reader chose, by a refresh
  EXPECT_EQ(kept["sort"], "descending");
  EXPECT_EQ(kept["filter"], "tp=2");
  EXPECT_EQ(kept["open"], true);
  EXPECT_EQ(kept["focused"], true);
  ASSERT_GT(kept["rows"].size(), 1u) << kept;
  EXPECT_LT(kept["rows"].size(), seen["rows"]);
  EXPECT_EQ(kept["sorted"], true) << kept["rows"];
  for (const json& row : kept["rows"]) {
    EXPECT_NE(row.get<std::string>().find("tp=2"), std::string::npos) << row;
  }
  EXPECT_GT(seen["rows"], 1);
  EXPECT_GT(seen["charts"], 0);
  EXPECT_LE(seen["overflow"], 0);
  EXPECT_EQ(seen["messages"], json::array());
  EXPECT_FALSE(seen["requests"].empty()) << "the page polls";
  for (const json& request : seen["requests"]) {
    EXPECT_EQ(request.get<std::string>().find(seen["url"].get<std::string>() + "state?since="), 0u)
        << request;
  }
  EXPECT_EQ(seen["exit_code"], 130);
  EXPECT_NE(seen["connection"].get<std::string>().find("the last that was heard"),
            std::string::npos);
}

}  // namespace
}  // namespace trimtab
