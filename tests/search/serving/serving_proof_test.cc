#include "search/serving/serving_proof.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/base/error.h"
#include "search/serving/serving_report.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/search/serving/serving_problems.h"

namespace trimtab {
namespace {

struct Killed {};

/// A problem with its prediction, and a machine on which the second candidate is the fastest.
class ServingProofTest : public testing::Test, public ServingProofEvents {
 protected:
  ServingProofTest()
      : problem_(ProblemOn("1xh100", "llama3-8b",
                           {.requests = DrawRequests("300/20", 30, 0, 1), .concurrency = 8})),
        path_(ScratchFolder() + "/serving.db") {
    result_ = SearchServing(problem_, 1);
    EXPECT_GE(result_.ranking.size(), 3u);
    std::filesystem::remove(path_);
  }

  void OnVisit(const ServingVisit&, int64_t, int64_t) override {}
  bool stop_requested() override { return stop_; }

  std::unique_ptr<ServingStudy> Open(bool resume) {
    return ServingStudy::Open(path_, ServingProblemJson(problem_), resume);
  }

  ServeOnce Machine() {
    return [this](const ServingCandidate& candidate, const std::string& name) {
      names_.push_back(name);
      ServingVisit visit;
      const std::string key = candidate.Key();
      if (key == failing_) visit.failure = "out of memory";
      visit.report = result_.best().prediction.report;
      const bool second = key == result_.ranking[1].candidate.Key();
      // The machine wanders: every round is slower than the one before.
      const double round = name.back() - '0';
      visit.report.duration_s *= (second ? 0.8 : 1) * (1 + 0.2 * round);
      return std::optional(visit);
    };
  }

  ServingProof Prove(ServingStudy& study) {
    return ProveServing(problem_, result_, {.candidates = 3, .rounds = 2}, Machine(), study, *this);
  }

  ServingProblem problem_;
  ServingSearchResult result_;
  std::string path_;
  std::string failing_;
  std::vector<std::string> names_;
  bool stop_ = false;
};

TEST_F(ServingProofTest, WhatIsMeasuredDecides) {
  const auto study = Open(false);
  const ServingProof proof = Prove(*study);
  ASSERT_TRUE(proof.winner);
  EXPECT_EQ(*proof.winner, 1u);
  EXPECT_TRUE(proof.sure);
  EXPECT_TRUE(proof.ended);
  EXPECT_EQ(names_.size(), 6u);
  EXPECT_EQ(proof.proved[0].visits, 2);
  const nlohmann::json report = ServingReportJson(problem_, result_, &proof);
  EXPECT_EQ(report["recommended"]["key"], result_.ranking[1].candidate.Key());
  EXPECT_TRUE(report["recommended"]["proved"]);
  EXPECT_GT(report["recommended"]["measured"]["output_tokens_per_s"], 0);
  EXPECT_NE(ServingReportHtml(report).find("Served for real"), std::string::npos);
}

TEST_F(ServingProofTest, WhoFailsIsOut) {
  failing_ = result_.ranking[1].candidate.Key();
  const auto study = Open(false);
  const ServingProof proof = Prove(*study);
  EXPECT_NE(*proof.winner, 1u);
  EXPECT_EQ(proof.proved[1].failure, "out of memory");
  EXPECT_EQ(names_.size(), 5u);  // its second visit is not made
}

TEST_F(ServingProofTest, StopsAndGoesOn) {
  stop_ = true;
  EXPECT_FALSE(Prove(*Open(false)).winner);
  stop_ = false;
  EXPECT_THROW(Open(false), UsageError);
  EXPECT_EQ(*Prove(*Open(true)).winner, 1u);
}

// Killed after any write, a resumed proof makes the visits that are missing, and no other twice.
TEST_F(ServingProofTest, AKillLosesNothing) {
  for (int kill = 1; kill <= 12; ++kill) {
    std::filesystem::remove(path_);
    names_.clear();
    {
      const auto study = Open(false);
      int writes = 0;
      study->set_after_write([&] {
        if (++writes == kill) throw Killed();
      });
      EXPECT_THROW(Prove(*study), Killed);
    }
    // There are two moments of a visit: before it is on disk, and after.
    EXPECT_EQ(names_.size(), static_cast<size_t>(kill + 1) / 2);
    const ServingProof proof = Prove(*Open(true));
    EXPECT_EQ(*proof.winner, 1u);
    EXPECT_EQ(names_.size(), kill % 2 == 1 ? 7u : 6u) << kill;
  }
}

// What the study reports is what the search did, at its end and when it was stopped on the way.
TEST_F(ServingProofTest, AStudyReportsWhatTheSearchDid) {
  {
    const auto study = Open(false);
    EXPECT_THROW(study->Report(), InputError);
    const ServingProof proof = Prove(*study);
    EXPECT_EQ(study->Report(), ServingReportJson(problem_, result_, &proof));
  }
  EXPECT_TRUE(IsServingStudy(path_));
  EXPECT_TRUE(ServingStudy::OpenExisting(path_)->Report()["recommended"]["proved"]);

  std::filesystem::remove(path_);
  EXPECT_FALSE(IsServingStudy(path_));
  EXPECT_THROW(ServingStudy::OpenExisting(path_), InputError);
  {
    const auto study = Open(false);
    int writes = 0;
    study->set_after_write([&writes] {
      if (++writes == 4) throw Killed();  // two visits are on disk
    });
    EXPECT_THROW(Prove(*study), Killed);
  }
  const nlohmann::json report = ServingStudy::OpenExisting(path_)->Report();
  int64_t visits = 0;
  for (const nlohmann::json& each : report["ranking"]) visits += each.value("visits", int64_t{0});
  EXPECT_EQ(visits, 2);
}

TEST_F(ServingProofTest, AStudyOfAnotherVersionIsRefused) {
  Open(false);
  Database(path_, Access::kWrite).Execute("PRAGMA user_version = 5001");
  const std::string error = path_ + ": not a study of a search for serving";
  EXPECT_EQ(MessageOf<StorageError>([&] { Open(true); }), error);
  EXPECT_EQ(MessageOf<StorageError>([&] { ServingStudy::OpenExisting(path_); }), error);
}

// What a search does can be read while it does it; a second one is kept out.
TEST_F(ServingProofTest, AStudyIsReadWhileASearchWritesIt) {
  const auto study = Open(false);
  EXPECT_THROW(ServingStudy::OpenExisting(path_)->Report(), InputError);
  int reads = 0;
  study->set_after_write(
      [&] { reads += ServingStudy::OpenExisting(path_)->Visits().empty() ? 0 : 1; });
  const ServingProof proof = Prove(*study);
  EXPECT_GT(reads, 4);
  EXPECT_EQ(ServingStudy::OpenExisting(path_)->Report(), study->Report());
  EXPECT_NE(
      MessageOf<StorageError>([&] { Open(true); }).find("in use by another trimtab, process "),
      std::string::npos);
}

TEST_F(ServingProofTest, AStudyIsOfOneProblem) {
  Open(false);
  problem_.load.requests.pop_back();
  EXPECT_THROW(Open(true), InputError);
}

TEST_F(ServingProofTest, AStudyKeepsRates) {
  const auto study = Open(false);
  EXPECT_FALSE(study->FindMeasured("x"));
  study->AddMeasured("x", {{"low_rate", 3}});
  EXPECT_EQ((*study->FindMeasured("x"))["low_rate"], 3);
}

}  // namespace
}  // namespace trimtab
