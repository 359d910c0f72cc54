#include "engine/train/run_training.h"

#include <cmath>

#include "engine/base/error.h"
#include "engine/checkpoint/checkpoint.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/train/run_losses.h"

namespace trimtab {
namespace {

constexpr int64_t kSteps = 10;

RunConfig RunWith(bool llama, const std::string& layout) {
  RunConfig run = SmallRun(llama);
  run.layout = ParseLayout(layout, 0);
  run.steps = kSteps;
  run.optimizer.warmup_steps = 2;
  return run;
}

struct Trained {
  std::vector<double> losses;
  TrainingSummary summary;
};

/// Trains, and stops after `stop_after` steps when that is not 0.
Trained Train(const RunConfig& run, TrainingOptions options, int64_t stop_after = 0) {
  Trained trained;
  int64_t done = 0;
  options.on_step = [&](const TrainingStep& step) {
    trained.losses.push_back(step.loss);
    done = step.step;
  };
  options.stop_requested = [&] {
    return stop_after > 0 && done >= stop_after ? StopSignal::kDrain : StopSignal::kNone;
  };
  trained.summary = RunTraining(run, options);
  return trained;
}

void ExpectSameState(const std::string& a, const std::string& b) {
  for (const char* name : {"/weights.safetensors", "/optimizer.safetensors"}) {
    EXPECT_TRUE(ReadBytes(a + name) == ReadBytes(b + name)) << name << " differs";
  }
}

class Resume : public testing::TestWithParam<std::tuple<bool, const char*>> {};

// Ten steps, and four then six more from the checkpoint: the same losses and the same state.
TEST_P(Resume, GivesTheSameBitsAsNeverStopping) {
  const RunConfig run = RunWith(std::get<0>(GetParam()), std::get<1>(GetParam()));
  const std::string folder = ScratchFolder();
  const Trained whole = Train(run, {.checkpoint = folder + "/whole"});
  ASSERT_EQ(whole.losses.size(), static_cast<size_t>(kSteps));

  const Trained first = Train(run, {.checkpoint = folder + "/parts"}, /*stop_after=*/4);
  EXPECT_EQ(first.summary.stopped_by, StopSignal::kDrain);
  EXPECT_EQ(first.summary.steps_done, 4);
  const Trained second = Train(run, {.load = folder + "/parts", .checkpoint = folder + "/parts"});
  EXPECT_EQ(second.summary.first_step, 4);
  EXPECT_EQ(second.summary.steps_done, kSteps);

  std::vector<double> losses = first.losses;
  losses.insert(losses.end(), second.losses.begin(), second.losses.end());
  EXPECT_EQ(losses, whole.losses);
  ExpectSameState(folder + "/parts", folder + "/whole");
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Resume,
    testing::Combine(testing::Bool(),
                     testing::Values("mbs=2", "tp=2,mbs=2", "dp=2,mbs=1", "dp=2,zero=1,mbs=2",
                                     "dp=2,zero=2,mbs=1", "dp=4,zero=3,shard=2,mbs=1",
                                     "dp=2,zero=2,overlap_param_gather=1,mbs=2,precision=bf16,"
                                     "master=remainder",
                                     "dp=2,zero=1,overlap_param_gather=1,mbs=4,precision=fp8",
                                     "dp=2,zero=3,mbs=2,precision=bf16",
                                     "tp=2,dp=2,sp=1,zero=1,mbs=1", "mbs=4,precision=bf16",
                                     "dp=2,zero=1,mbs=2,precision=bf16,"
                                     "master=remainder,moments=bf16",
                                     "mbs=4,precision=fp16,moments=fp16",
                                     "mbs=4,precision=fp8,grads=bf16", "pp=2,mbs=2",
                                     "pp=2,vp=2,mbs=4,schedule=interleaved-1f1b,precision=fp8",
                                     "pp=3,dp=2,zero=1,mbs=1,schedule=zero-bubble,"
                                     "precision=bf16",
                                     "cp=2,dp=2,zero=1,mbs=2,precision=bf16")),
    [](const auto& param) {
      std::string name = std::get<0>(param.param) ? "llama_" : "gpt_";
      for (const char c : std::string(std::get<1>(param.param))) {
        name += c == '=' || c == '-' ? '\0' : c == ',' ? '_' : c;
      }
      std::erase(name, '\0');
      return name;
    });

// What one layout saved, another goes on with; the losses agree up to the order of summation.
TEST(RunTraining, GoesOnInAnotherLayout) {
  const Trained whole = Train(RunWith(true, "mbs=4"), {});
  for (const char* saved :
       {"tp=2,dp=2,sp=1,zero=1,mbs=1", "dp=4,zero=2,mbs=1", "dp=2,zero=3,mbs=2",
        "tp=2,dp=2,sp=1,zero=3,mbs=2", "dp=4,zero=3,shard=2,mbs=1",
        "dp=4,zero=1,shard=2,overlap_param_gather=1,mbs=2", "cp=2,tp=2,sp=1,zero=2,mbs=2"}) {
    const std::string folder = ScratchFolder();
    Train(RunWith(true, saved), {.checkpoint = folder + "/parts"}, /*stop_after=*/4);
    for (const char* loaded : {"mbs=4", "dp=4,zero=1,mbs=1", "tp=2,dp=1,mbs=8,recompute=full",
                               "dp=2,zero=2,mbs=2", "dp=4,zero=3,mbs=1", "pp=2,dp=2,zero=3",
                               "dp=4,zero=2,shard=2,overlap_param_gather=1,mbs=1", "cp=3,mbs=2",
                               "cp=2,dp=2,zero=3,cp_comm_type=all_gather"}) {
      const Trained second = Train(RunWith(true, loaded), {.load = folder + "/parts"});
      ASSERT_EQ(second.losses.size(), 6u);
      for (size_t i = 0; i < 6; ++i) {
        EXPECT_NEAR(second.losses[i], whole.losses[i + 4], 1e-5 * whole.losses[i + 4])
            << saved << " to " << loaded;
      }
    }
  }
}

TEST(RunTraining, GoesOnInAnotherPipeline) {
  const std::string folder = ScratchFolder();
  constexpr const char* kLayouts[] = {"mbs=2", "pp=3,mbs=2,schedule=gpipe",
                                      "pp=2,tp=2,sp=1,mbs=2,schedule=zero-bubble,stages=1+2",
                                      "pp=2,vp=2,dp=2,zero=1,mbs=2,schedule=interleaved-1f1b"};
  for (const bool llama : {false, true}) {
    const Trained whole = Train(RunWith(llama, "mbs=8"), {});
    for (const char* saved : kLayouts) {
      Train(RunWith(llama, saved), {.checkpoint = folder + "/parts"}, /*stop_after=*/4);
      for (const char* loaded : kLayouts) {
        const Trained second = Train(RunWith(llama, loaded), {.load = folder + "/parts"});
        ASSERT_EQ(second.losses.size(), 6u);
        for (size_t i = 0; i < 6; ++i) {
          EXPECT_NEAR(second.losses[i], whole.losses[i + 4], 1e-5 * whole.losses[i + 4])
              << saved << " to " << loaded;
        }
      }
    }
  }
}

TEST(RunTraining, GoesOnWithTheScalesOfAllStages) {
  const std::string folder = ScratchFolder();
  constexpr const char* kLayouts[] = {"mbs=4,precision=fp8", "pp=2,mbs=4,precision=fp8",
                                      "pp=2,vp=2,mbs=4,schedule=interleaved-1f1b,precision=fp8"};
  const Trained whole = Train(RunWith(false, kLayouts[0]), {});
  for (const char* saved : kLayouts) {
    Train(RunWith(false, saved), {.checkpoint = folder + "/parts"}, /*stop_after=*/4);
    for (const char* loaded : kLayouts) {
      const Trained second = Train(RunWith(false, loaded), {.load = folder + "/parts"});
      ASSERT_EQ(second.losses.size(), 6u);
      EXPECT_NEAR(second.losses[0], whole.losses[4], 1e-5 * whole.losses[4])
          << saved << " to " << loaded;
    }
  }
  // A run that cannot use the history shows.
  RunConfig other = RunWith(false, kLayouts[0]);
  other.fp8.history /= 2;
  const Trained without = Train(other, {.load = folder + "/parts", .overrides = {"history"}});
  EXPECT_GT(std::abs(without.losses[0] - whole.losses[4]), 1e-5 * whole.losses[4]);
}

TEST(RunTraining, SavesAsOftenAsAsked) {
  const std::string folder = ScratchFolder();
  std::vector<int64_t> saved;
  TrainingOptions options = {.checkpoint = folder + "/checkpoint", .save_every = 4};
  options.on_save = [&](int64_t step, double) { saved.push_back(step); };
  RunTraining(RunWith(false, "dp=2,mbs=1"), options);
  EXPECT_EQ(saved, (std::vector<int64_t>{4, 8, 10}));
}

TEST(RunTraining, CancelSavesNothing) {
  const std::string folder = ScratchFolder();
  TrainingOptions options = {.checkpoint = folder + "/checkpoint"};
  options.stop_requested = [] { return StopSignal::kCancel; };
  EXPECT_EQ(RunTraining(RunWith(false, "dp=2,mbs=1"), options).steps_done, 1);
  EXPECT_FALSE(std::filesystem::exists(folder + "/checkpoint"));
}

TEST(RunTraining, AFailingListenerEndsAllRanks) {
  TrainingOptions options;
  options.on_step = [](const TrainingStep&) { throw StorageError("stdout is full"); };
  EXPECT_EQ(
      MessageOf<StorageError>([&] { RunTraining(RunWith(false, "tp=2,dp=2,mbs=1"), options); }),
      "stdout is full");
}

// A checkpoint is of its weights, wherever the model's file was and whatever only training asks.
TEST(RunTraining, GoesOnWithTheSameWeightsUnderAnotherName) {
  const std::string folder = ScratchFolder();
  const Trained whole = Train(RunWith(true, "tp=2,mbs=2"), {});
  Train(RunWith(true, "tp=2,mbs=2"), {.checkpoint = folder + "/parts"}, /*stop_after=*/4);
  RunConfig run = RunWith(true, "tp=2,mbs=2");
  run.model.name = "./elsewhere.json";
  run.model.init_std = 0.5;
  run.model.max_sequence_length = 64;
  run.model.make_vocab_size_divisible_by = 8;
  const Trained second = Train(run, {.load = folder + "/parts"});
  ASSERT_EQ(second.losses.size(), 6u);
  EXPECT_NEAR(second.losses[0], whole.losses[4], 1e-5 * whole.losses[4]);
}

TEST(RunTraining, SavesWhatIsNotAtTheTargetThoughNoStepIsLeft) {
  const std::string folder = ScratchFolder();
  const RunConfig run = RunWith(false, "dp=2,mbs=1");
  Train(run, {.checkpoint = folder + "/first"});
  std::vector<int64_t> saved;
  const auto go_on = [&](const std::string& load, const std::string& checkpoint) {
    saved.clear();
    TrainingOptions options = {.load = load, .checkpoint = checkpoint};
    options.on_save = [&](int64_t step, double) { saved.push_back(step); };
    Train(run, options);
    return CheckpointReader(checkpoint).header().step;
  };
  EXPECT_EQ(go_on(folder + "/first", folder + "/second"), kSteps);
  EXPECT_EQ(saved, std::vector<int64_t>{kSteps});
  ExpectSameState(folder + "/first", folder + "/second");
  EXPECT_EQ(go_on(folder + "/first/", folder + "/first"), kSteps);
  EXPECT_EQ(saved, std::vector<int64_t>{}) << "it is there already";
  // A save that was whole and not in place yet.
  Train(run, {.checkpoint = folder + "/parts"}, /*stop_after=*/4);
  std::filesystem::rename(folder + "/first", folder + "/parts.tmp");
  EXPECT_EQ(go_on(folder + "/parts.tmp", folder + "/parts"), kSteps);
  EXPECT_FALSE(std::filesystem::exists(folder + "/parts.tmp"));
}

// What was loaded is not lost before the next save is whole.
TEST(RunTraining, PutsWhatASaveLeftInPlaceBeforeItTrains) {
  const std::string folder = ScratchFolder();
  const RunConfig run = RunWith(false, "dp=2,mbs=1");
  Train(run, {.checkpoint = folder + "/parts.old"}, /*stop_after=*/4);
  TrainingOptions options = {.load = folder + "/parts.old", .checkpoint = folder + "/parts"};
  options.on_step = [&](const TrainingStep&) {
    EXPECT_EQ(CheckpointReader(folder + "/parts").header().step, 4);
    throw StorageError("cut short");
  };
  EXPECT_THROW(RunTraining(run, options), StorageError);
  EXPECT_EQ(CheckpointReader(folder + "/parts").header().step, 4);
}

TEST(RunTraining, OneRunAtATimeSavesToAFolder) {
  const std::string folder = ScratchFolder();
  const RunConfig run = RunWith(false, "mbs=2");
  const TrainingOptions other = {.checkpoint = folder + "/checkpoint/"};
  TrainingOptions options = {.checkpoint = folder + "/checkpoint"};
  options.on_step = [&](const TrainingStep&) {
    EXPECT_EQ(
        MessageOf<StorageError>([&] { RunTraining(run, other); }),
        folder + "/checkpoint/: another run saves to it; expected a folder of this run alone");
  };
  RunTraining(run, options);
  RunTraining(run, other);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_EQ(entry.path(), folder + "/checkpoint") << "nothing else is left";
  }
}

// The length of the schedule is not where a run stops.
TEST(RunTraining, ARunThatStopsAndIsExtendedHasNoSeam) {
  for (const char* layout : {"mbs=2", "tp=2,dp=2,sp=1,zero=1,mbs=1", "pp=2,mbs=2,precision=bf16"}) {
    const std::string folder = ScratchFolder();
    RunConfig run = RunWith(false, layout);
    const Trained whole = Train(run, {.checkpoint = folder + "/whole"});
    RunConfig part = run;
    part.steps = 4;
    part.optimizer.decay_steps = kSteps;
    const Trained first = Train(part, {.checkpoint = folder + "/parts"});
    testing::internal::CaptureStderr();
    const Trained second = Train(run, {.load = folder + "/parts", .checkpoint = folder + "/parts"});
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
    std::vector<double> losses = first.losses;
    losses.insert(losses.end(), second.losses.begin(), second.losses.end());
    EXPECT_EQ(losses, whole.losses) << layout;
    ExpectSameState(folder + "/parts", folder + "/whole");
  }
}

TEST(RunTraining, RefusesAnotherScheduleUnlessAskedForByName) {
  const std::string folder = ScratchFolder();
  RunConfig part = RunWith(false, "mbs=2");
  part.steps = 4;
  Train(part, {.checkpoint = folder + "/parts"});
  const RunConfig run = RunWith(false, "mbs=2");
  EXPECT_THROW(Train(run, {.load = folder + "/parts"}), UsageError);
  testing::internal::CaptureStderr();
  const Trained second = Train(run, {.load = folder + "/parts", .overrides = {"steps"}});
  EXPECT_NE(testing::internal::GetCapturedStderr().find(
                "/parts: steps is 4 in the checkpoint, 10 in this run\n"),
            std::string::npos);
  EXPECT_EQ(second.losses.size(), 6u);
}

// With another batch, the samples that come next are taken, none twice and none left out.
TEST(RunTraining, AnotherBatchGoesOnAtTheNextSample) {
  const std::string folder = ScratchFolder();
  const auto at_rest = [](int64_t batch, int64_t steps) {
    RunConfig run = RunWith(false, "mbs=2");
    run.optimizer.learning_rate = run.optimizer.min_learning_rate = 0;
    run.optimizer.weight_decay = 0;
    run.global_batch = batch;
    run.steps = steps;
    return run;
  };
  // Weights stay as they are, so a loss says only which samples it is of.
  const Trained twos = Train(at_rest(2, 10), {});
  Train(at_rest(2, 2), {.checkpoint = folder + "/two"});
  const Trained fours = Train(
      at_rest(4, 4),
      {.load = folder + "/two", .checkpoint = folder + "/four", .overrides = {"global_batch"}});
  ASSERT_EQ(fours.losses.size(), 2u);
  EXPECT_NEAR(fours.losses[0], (twos.losses[2] + twos.losses[3]) / 2, 1e-6);
  EXPECT_NEAR(fours.losses[1], (twos.losses[4] + twos.losses[5]) / 2, 1e-6);
  EXPECT_EQ(CheckpointReader(folder + "/four").header().samples, 12);
  const Trained after = Train(at_rest(4, 5), {.load = folder + "/four"});
  EXPECT_NEAR(after.losses[0], (twos.losses[6] + twos.losses[7]) / 2, 1e-6);
}

TEST(RunTraining, RefusesACheckpointOfAnotherRun) {
  const std::string folder = ScratchFolder();
  const RunConfig run = RunWith(false, "mbs=2");
  Train(run, {.checkpoint = folder + "/checkpoint"}, /*stop_after=*/1);
  RunConfig wider = run;
  wider.model.ffn_hidden_size = 64;
  EXPECT_EQ(MessageOf<InputError>([&] { Train(wider, {.load = folder + "/checkpoint"}); }),
            folder +
                "/checkpoint: holds a model with ffn_hidden_size 128; expected 64, as in "
                "'small-gpt2'");
  RunConfig other_batch = run;
  other_batch.global_batch = 4;
  EXPECT_THROW(Train(other_batch, {.load = folder + "/checkpoint"}), UsageError);
  EXPECT_THROW(Train(run, {.load = folder + "/nothing"}), InputError);
}

TEST(RunTraining, RefusesBadTargetsBeforeItTrains) {
  const std::string folder = ScratchFolder();
  WriteBytes(folder + "/file", "x");
  TrainingOptions options = {.checkpoint = folder + "/file"};
  options.on_step = [](const TrainingStep&) { FAIL() << "trained"; };
  EXPECT_THROW(RunTraining(RunWith(false, "mbs=2"), options), StorageError);
  RunConfig run = RunWith(false, "mbs=2");
  run.device = DeviceKind::kCuda;
  EXPECT_THROW(RunTraining(run, {}), EnvironmentError);
}

}  // namespace
}  // namespace trimtab
