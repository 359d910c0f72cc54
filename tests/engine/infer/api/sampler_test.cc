#include "engine/infer/api/sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "engine/base/error.h"

namespace trimtab {
namespace {

/// Logits of given probabilities, up to a constant.
std::vector<float> LogitsOf(const std::vector<double>& probabilities) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) + 3.0));
  return logits;
}

/// How often each token is drawn, over `draws` positions with each of two seeds.
std::map<int32_t, int> Counts(const std::vector<float>& logits, SamplingOptions options,
                              int draws) {
  std::map<int32_t, int> counts;
  std::vector<int32_t> history;
  for (const uint64_t seed : {3u, 4u}) {
    options.seed = seed;
    history.clear();
    for (int i = 0; i < draws; ++i) {
      history.push_back(0);
      ++counts[SampleToken(logits, history, options).id];
    }
  }
  return counts;
}

/// Pearson's statistic of the counts against `expected`; tokens that must not occur do not.
double ChiSquare(const std::map<int32_t, int>& counts, const std::vector<double>& expected) {
  int total = 0;
  for (const auto& [token, count] : counts) total += count;
  double statistic = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto found = counts.find(static_cast<int32_t>(i));
    const double count = found == counts.end() ? 0 : found->second;
    if (expected[i] == 0) {
      EXPECT_EQ(count, 0) << "token " << i;
      continue;
    }
    const double mean = expected[i] * total;
    statistic += (count - mean) * (count - mean) / mean;
  }
  return statistic;
}

struct DistributionCase {
  const char* name;
  SamplingOptions options;
  std::vector<double> expected;  // of tokens whose probabilities are .4 .3 .2 .08 .02
};

class Distribution : public testing::TestWithParam<DistributionCase> {};

TEST_P(Distribution, IsTheOneWorkedOutByHand) {
  const std::vector<float> logits = LogitsOf({0.4, 0.3, 0.2, 0.08, 0.02});
  // 18.47: four degrees of freedom, one in a thousand.
  EXPECT_LT(ChiSquare(Counts(logits, GetParam().options, 10000), GetParam().expected), 18.47);
}

INSTANTIATE_TEST_SUITE_P(
    Cases, Distribution,
    testing::Values(
        DistributionCase{"model", {.temperature = 1}, {0.4, 0.3, 0.2, 0.08, 0.02}},
        // Squares of the probabilities, over their sum 0.2968.
        DistributionCase{
            "cold",
            {.temperature = 0.5},
            {0.16 / 0.2968, 0.09 / 0.2968, 0.04 / 0.2968, 0.0064 / 0.2968, 0.0004 / 0.2968}},
        DistributionCase{"top_k", {.temperature = 1, .top_k = 2}, {4 / 7., 3 / 7., 0, 0, 0}},
        DistributionCase{
            "top_k_of_all", {.temperature = 1, .top_k = 9}, {0.4, 0.3, 0.2, 0.08, 0.02}},
        // 0.4 + 0.3 do not reach 0.75, with 0.2 they do.
        DistributionCase{
            "top_p", {.temperature = 1, .top_p = 0.75}, {4 / 9., 3 / 9., 2 / 9., 0, 0}},
        // Of the three that top_k leaves, two have 7/9.
        DistributionCase{"top_p_after_top_k",
                         {.temperature = 1, .top_k = 3, .top_p = 0.75},
                         {4 / 7., 3 / 7., 0, 0, 0}},
        // At least 0.3 of the likeliest: 0.12.
        DistributionCase{"min_p", {.temperature = 1, .min_p = 0.3}, {4 / 9., 3 / 9., 2 / 9., 0, 0}},
        DistributionCase{"tiny_top_p", {.temperature = 1, .top_p = 1e-9}, {1, 0, 0, 0, 0}}),
    [](const auto& test) { return test.param.name; });

TEST(Sampler, TakesTheFirstOfTheLikeliestWithoutTemperature) {
  const std::vector<float> logits = {1, 5, 5, -2};
  EXPECT_EQ(SampleToken(logits, {}, {}).id, 1);
  // Nearly no temperature, nearly always the likeliest.
  EXPECT_EQ(SampleToken(LogitsOf({0.3, 0.7}), {}, {.temperature = 1e-3}).id, 1);
}

TEST(Sampler, SaysLogProbabilitiesOfTheModel) {
  const std::vector<float> logits = LogitsOf({0.1, 0.6, 0.25, 0.05});
  const std::vector<int32_t> history = {1};
  const SampledToken sample = SampleToken(
      logits, history, {.temperature = 0, .repetition_penalty = 100, .log_probabilities = 2});
  EXPECT_EQ(sample.id, 2);  // 1 was penalised
  EXPECT_NEAR(sample.log_probability, std::log(0.25), 1e-6);
  ASSERT_EQ(sample.likeliest.size(), 2u);
  EXPECT_EQ(sample.likeliest[0].first, 1);
  EXPECT_NEAR(sample.likeliest[0].second, std::log(0.6), 1e-6);
  EXPECT_EQ(sample.likeliest[1].first, 2);
  // More than there are.
  EXPECT_EQ(SampleToken(logits, {}, {.log_probabilities = 20}).likeliest.size(), 4u);
}

TEST(Sampler, PenalisesWhatOccurredOnceWhateverItsSign) {
  // Positive logits are divided, negative ones multiplied: both fall behind. Twice is as once.
  EXPECT_EQ(SampleToken(std::vector<float>{3, 2, -1}, std::vector<int32_t>{0, 0},
                        {.repetition_penalty = 2})
                .id,
            1);
  EXPECT_EQ(SampleToken(std::vector<float>{-1.5, -1, -9}, std::vector<int32_t>{1},
                        {.repetition_penalty = 2})
                .id,
            0);
  EXPECT_EQ(SampleToken(std::vector<float>{3, 1, -1}, std::vector<int32_t>{0, 0},
                        {.repetition_penalty = 2})
                .id,
            0);  // 1.5, not 0.75
}

/// The logits that vLLM's rules make of `logits`, one rule after the other, written plainly.
std::vector<double> ChangedBySteps(const std::vector<float>& logits,
                                   const std::vector<int32_t>& history, size_t prompt_tokens,
                                   const GenerationRequest& request) {
  const double never = -std::numeric_limits<double>::infinity();
  std::vector<double> changed(logits.begin(), logits.end());
  const std::vector<int32_t> answer(history.begin() + static_cast<int64_t>(prompt_tokens),
                                    history.end());
  const auto has = [](const auto& list, int32_t token) {
    return std::count(list.begin(), list.end(), token);
  };
  for (int32_t token = 0; token < std::ssize(changed); ++token) {
    double& logit = changed[static_cast<size_t>(token)];
    const auto& allowed = request.allowed_tokens;
    if (!allowed.empty() && has(allowed, token) == 0) logit = never;
    for (const std::vector<int32_t>& banned : request.banned_sequences) {
      if (banned.back() != token || banned.size() > answer.size() + 1) continue;
      bool ends = true;
      for (size_t i = 0; i + 1 < banned.size(); ++i) {
        ends &= banned[i] == answer[answer.size() - (banned.size() - 1) + i];
      }
      if (ends) logit = never;
    }
    if (std::ssize(answer) < request.min_tokens && has(request.stop_tokens, token) > 0) {
      logit = never;
    }
    for (const auto& [id, bias] : request.logit_bias) logit += id == token ? bias : 0;
    if (has(history, token) > 0) {
      const double penalty = request.sampling.repetition_penalty;
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
    const auto times = static_cast<double>(has(answer, token));
    logit -= times * request.sampling.frequency_penalty;
    if (times > 0) logit -= request.sampling.presence_penalty;
  }
  return changed;
}

TEST(Sampler, RestrictsTokensInTheOrderOfVllm) {
  std::mt19937 random(11);
  const auto below = [&random](int bound) { return static_cast<int32_t>(random() % bound); };
  constexpr int kVocab = 9;
  int restricted = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<float> logits;
    for (int i = 0; i < kVocab; ++i) logits.push_back(static_cast<float>(below(1000)) / 200 - 2);
    std::vector<int32_t> history;
    for (int i = 1 + below(12); i > 0; --i) history.push_back(below(kVocab));
    const auto prompt_tokens = static_cast<size_t>(below(static_cast<int>(history.size()) + 1));
    GenerationRequest request;
    request.sampling.frequency_penalty = below(4) / 2.0 - 0.5;
    request.sampling.presence_penalty = below(4) / 2.0 - 0.5;
    request.sampling.repetition_penalty = 1 + below(3) / 2.0;
    if (below(2) == 0) request.allowed_tokens = {below(kVocab), below(kVocab), below(kVocab)};
    if (below(2) == 0) {
      request.banned_sequences = {{below(kVocab)}, {below(kVocab), below(kVocab)}};
    }
    request.stop_tokens = {below(kVocab), below(kVocab)};
    request.min_tokens = below(8);
    request.logit_bias = {{below(kVocab), static_cast<float>(below(9)) - 4}};
    const std::vector<double> changed = ChangedBySteps(logits, history, prompt_tokens, request);
    const auto best = std::max_element(changed.begin(), changed.end());
    const TokenRules rules = {.request = &request,
                              .prompt_tokens = static_cast<int64_t>(prompt_tokens)};
    if (std::isinf(*best)) {
      EXPECT_THROW(SampleToken(logits, history, request.sampling, rules), InputError);
      continue;
    }
    const SampledToken chosen = SampleToken(logits, history, request.sampling, rules);
    EXPECT_NEAR(changed[static_cast<size_t>(chosen.id)], *best, 1e-5) << "trial " << trial;
    // The model's own log probability, whatever restricts it.
    const SampledToken free = ScoreToken(logits, chosen.id, 0, 0);
    EXPECT_EQ(chosen.log_probability, free.log_probability);
    restricted += chosen.id != SampleToken(logits, history, {}).id ? 1 : 0;
    request.sampling.temperature = 1.5;
    const SampledToken drawn = SampleToken(logits, history, request.sampling, rules);
    EXPECT_FALSE(std::isinf(changed[static_cast<size_t>(drawn.id)]));
  }
  EXPECT_GT(restricted, 500);
}

TEST(Sampler, ChoosesWithinAMask) {
  const std::vector<float> logits(130, 0.0f);
  std::vector<uint64_t> mask(3, 0);
  mask[1] = uint64_t{1} << 5;
  mask[2] = uint64_t{1} << 1;
  std::map<int32_t, int> counts;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    ++counts[SampleToken(logits, {}, {.temperature = 1, .seed = seed}, {.mask = mask}).id];
  }
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_GT(counts[69], 20);
  EXPECT_GT(counts[129], 20);
}

TEST(Sampler, DependsOnSeedAndPositionAlone) {
  const std::vector<float> logits(1000, 0.5f);
  const SamplingOptions options = {.temperature = 0.8, .top_p = 0.9, .seed = 11};
  std::vector<int32_t> first;
  std::vector<int32_t> other_seed;
  std::vector<int32_t> history;
  for (int i = 0; i < 50; ++i) {
    first.push_back(SampleToken(logits, history, options).id);
    EXPECT_EQ(SampleToken(logits, history, options).id, first.back());
    SamplingOptions other = options;
    other.seed = 12;
    other_seed.push_back(SampleToken(logits, history, other).id);
    history.push_back(i);
  }
  EXPECT_NE(first, other_seed);
  EXPECT_GT(Counts(logits, options, 500).size(), 300u);
}

TEST(Sampler, NeverDrawsWhatHasNoProbability) {
  std::vector<float> logits(64, -std::numeric_limits<float>::infinity());
  logits[5] = 1;
  logits[63] = 1;
  for (const auto& [token, count] : Counts(logits, {.temperature = 2}, 500)) {
    EXPECT_TRUE(token == 5 || token == 63) << token;
    EXPECT_GT(count, 400);
  }
}

// 1 / temperature is beyond float's range.
TEST(Sampler, TakesTheLikeliestAtAnyLowTemperature) {
  const std::vector<float> logits = {1, 3, 2.9f, -4};
  for (const double temperature : {1e-5, 1e-30, 1e-40, 1e-300}) {
    for (SamplingOptions options : {SamplingOptions{}, SamplingOptions{.top_k = 2},
                                    SamplingOptions{.top_p = 0.5}, SamplingOptions{.min_p = 0.1}}) {
      options.temperature = temperature;
      EXPECT_EQ(SampleToken(logits, {}, options).id, 1) << temperature;
    }
  }
}

TEST(Sampler, RefusesLogitsThatAreNoNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const SamplingOptions& options :
       {SamplingOptions{}, SamplingOptions{.temperature = 1, .top_p = 0.5}}) {
    EXPECT_THROW(SampleToken(std::vector<float>{1, nan, 2}, {}, options), InputError);
    EXPECT_THROW(SampleToken(std::vector<float>{1, infinity}, {}, options), InputError);
    EXPECT_THROW(SampleToken(std::vector<float>{-infinity}, {}, options), InputError);
  }
}

}  // namespace
}  // namespace trimtab
