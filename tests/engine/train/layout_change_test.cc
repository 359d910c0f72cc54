// What one layout has saved, another goes on with: the same state bit for bit, and the losses of a
// run that was never stopped. Pairs that differ in as many keys as can be, drawn from the pairs of
// all legal layouts of small models: some, or under TRIMTAB_EXHAUSTIVE many.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <span>

#include "engine/checkpoint/checkpoint.h"
#include "engine/config/rules/rules.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/checkpointing.h"
#include "engine/train/run_training.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/train/layouts.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kBefore = 2;  // steps
constexpr int64_t kAfter = 2;

/// Changes that a test case makes.
#ifdef TRIMTAB_EXHAUSTIVE
constexpr size_t kAtOnce = 100;
#else
constexpr size_t kAtOnce = 1;
#endif

/// How far losses in a precision may be from those of one rank: see precision_layout_test.cc.
struct NumericsCase {
  const char* name;
  const char* layout;
  double tolerance;
};
constexpr NumericsCase kFp32 = {"fp32", "precision=fp32", 1e-5};
constexpr NumericsCase kOthers[] = {
    {"bf16", "precision=bf16", 6e-3},
    {"bf16_small", "precision=bf16,master=remainder,moments=bf16,grads=bf16", 6e-3},
    {"fp16", "precision=fp16", 1.5e-3},
    {"fp8", "precision=fp8", 8e-3},
};

/// Spaces of layouts are made once.
const LayoutSpace& Space(SmallModel model, bool in_fp8) {
  static std::map<SmallModel, LayoutSpace> spaces;
  if (!in_fp8) return SpaceToLayOut(model);
  const auto found = spaces.find(model);
  if (found != spaces.end()) return found->second;
  const RunConfig base = RunToLayOutInFp8(model == SmallModel::kLlama);
  return spaces.try_emplace(model, base).first->second;
}

/// From which layout to which.
using Change = std::pair<size_t, size_t>;

/// `count` pairs: of several that are drawn, the one that differs in most keys.
std::vector<Change> DrawChanges(const LayoutSpace& space, size_t count, uint32_t seed) {
  constexpr int kDrawn = 30;
  std::mt19937 random(seed);
  std::vector<Change> changes;
  while (changes.size() < count) {
    const size_t from = random() % space.size();
    size_t best = random() % space.size();
    for (int i = 1; i < kDrawn; ++i) {
      const size_t other = random() % space.size();
      if (space.Differences(from, other) > space.Differences(from, best)) best = other;
    }
    changes.emplace_back(from, best);
  }
  return changes;
}

/// A test case.
struct Case {
  SmallModel model = SmallModel::kGpt2;
  NumericsCase numerics = kFp32;
  std::vector<Change> changes;
  std::string name;

  bool in_fp8_space() const { return std::string(numerics.name) != kFp32.name; }
  RunConfig Run(size_t index) const {
    RunConfig run = Space(model, in_fp8_space())[index];
    run.layout.numerics = ParseLayout(numerics.layout, 0).numerics;
    run.steps = kBefore + kAfter;
    run.loss_scale.growth_interval = 1;  // a scale that moves
    return run;
  }
};

void PrintTo(const Case& test_case, std::ostream* out) { *out << test_case.name; }

/// `count` for each model.
std::vector<Case> CasesOf(const NumericsCase& numerics, std::span<const SmallModel> models,
                          size_t count) {
  std::vector<Case> cases;
  for (const SmallModel model : models) {
    const Case common = {.model = model, .numerics = numerics, .changes = {}, .name = {}};
    const LayoutSpace& space = Space(model, common.in_fp8_space());
    const std::vector<Change> changes = DrawChanges(space, kAtOnce * count, /*seed=*/3);
    for (size_t first = 0; first < changes.size(); first += kAtOnce) {
      const size_t end = first + kAtOnce;
      Case& added = cases.emplace_back(common);
      added.changes.assign(changes.begin() + static_cast<int64_t>(first),
                           changes.begin() + static_cast<int64_t>(end));
      added.name = fmt::format("{}_{}_{}_to_{}_of_{}", numerics.name, Name(model), first + 1, end,
                               changes.size());
    }
  }
  return cases;
}

std::vector<Case> AllCases() {
  std::vector<Case> cases = CasesOf(kFp32, kSmallModels, 40);
  for (const NumericsCase& numerics : kOthers) {
    const std::vector<Case> more = CasesOf(numerics, kDenseModels, 8);
    cases.insert(cases.end(), more.begin(), more.end());
  }
  return cases;
}

/// Trains until `steps` are done in all; returns the losses.
std::vector<double> Train(const RunConfig& run, TrainingOptions options, int64_t steps) {
  std::vector<double> losses;
  int64_t done = 0;
  options.on_step = [&](const TrainingStep& step) {
    losses.push_back(step.loss);
    done = step.step;
  };
  options.stop_requested = [&] { return done < steps ? StopSignal::kNone : StopSignal::kDrain; };
  RunTraining(run, options);
  return losses;
}

/// What one rank trains to.
const std::vector<double>& Uninterrupted(const Case& test_case) {
  static std::map<std::pair<SmallModel, std::string>, std::vector<double>> known;
  const auto [entry, is_new] = known.try_emplace({test_case.model, test_case.numerics.name});
  if (is_new) {
    RunConfig run = test_case.Run(0);
    run.layout = ParseLayout(test_case.numerics.layout, 0);
    run.layout.micro_batch = 4;
    entry->second = Train(run, {}, run.steps);
  }
  return entry->second;
}

/// Loads `from` under the layout of `run`, and saves what it holds then to `to`.
void SaveAgain(const RunConfig& run, const std::string& from, const std::string& to) {
  const CheckpointReader reader(from);
  std::unique_ptr<CheckpointWriter> writer;
  RunRanks(run, [&](Rank& rank) {
    Trainer trainer(run, rank.parallel(), rank.device());
    ReadState(trainer, reader);
    const CheckpointHeader header = HeaderOf(trainer, reader.header().step);
    if (rank.index() == 0) {
      const WholeModelDeclaration model = DeclareWholeModel(trainer);
      writer =
          std::make_unique<CheckpointWriter>(to, header, StoredParameters(run, model.parameters));
    }
    rank.Barrier();
    WriteState(trainer, *writer);
  });
  writer->Finish();
}

void ExpectSameState(const std::string& a, const std::string& b) {
  for (const char* name : {"/weights.safetensors", "/optimizer.safetensors"}) {
    EXPECT_TRUE(ReadBytes(a + name) == ReadBytes(b + name)) << name << " differs";
  }
  const CheckpointHeader left = CheckpointReader(a).header();
  const CheckpointHeader right = CheckpointReader(b).header();
  EXPECT_EQ(left.step, right.step);
  EXPECT_EQ(left.samples, right.samples);
  EXPECT_EQ(left.loss_scale.scale, right.loss_scale.scale);
  EXPECT_EQ(left.loss_scale.good_steps, right.loss_scale.good_steps);
  EXPECT_EQ(left.loss_scale.skipped, right.loss_scale.skipped);
  EXPECT_EQ(left.fp8.layers, right.fp8.layers);
  EXPECT_EQ(left.fp8.amax, right.fp8.amax);
  EXPECT_EQ(left.fp8.scale, right.fp8.scale);
  EXPECT_EQ(left.fp8.inverse, right.fp8.inverse);
}

class LayoutChangeTest : public testing::TestWithParam<Case> {};

TEST_P(LayoutChangeTest, GoesOnAsIfNothingHadChanged) {
  const Case& test_case = GetParam();
  const std::vector<double>& expected = Uninterrupted(test_case);
  const std::string folder = ScratchFolder();
  for (const auto& [from, to] : test_case.changes) {
    const RunConfig first = test_case.Run(from);
    const RunConfig second = test_case.Run(to);
    SCOPED_TRACE(ToString(first.layout) + " to " + ToString(second.layout));
    ASSERT_EQ(FirstBrokenRule(first), nullptr);
    ASSERT_EQ(FirstBrokenRule(second), nullptr);
    Train(first, {.checkpoint = folder + "/saved"}, kBefore);
    SaveAgain(second, folder + "/saved", folder + "/again");
    ExpectSameState(folder + "/saved", folder + "/again");
    const std::vector<double> losses = Train(second, {.load = folder + "/saved"}, kBefore + kAfter);
    ASSERT_EQ(losses.size(), static_cast<size_t>(kAfter));
    for (size_t i = 0; i < losses.size(); ++i) {
      const double uninterrupted = expected[kBefore + i];
      EXPECT_NEAR(losses[i], uninterrupted, test_case.numerics.tolerance * uninterrupted)
          << "step " << kBefore + static_cast<int64_t>(i);
    }
  }
  RecordProperty("total_layout_changes_resumed", std::to_string(test_case.changes.size()));
}

INSTANTIATE_TEST_SUITE_P(Changes, LayoutChangeTest, testing::ValuesIn(AllCases()),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace trimtab
