// Weights from and to Hugging Face folders: what PyTorch computes with each golden folder
// (testdata/goldens/hugging_face), the engine computes too, under any layout; and what is exported
// and loaded again under another layout is the same bit for bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <set>
#include <stdexcept>

#include "engine/base/float16.h"
#include "engine/checkpoint/hugging_face_reader.h"
#include "engine/config/rules/rules.h"
#include "engine/families/hugging_face.h"
#include "engine/families/load_config.h"
#include "engine/families/registry.h"
#include "engine/runtime/ranks.h"
#include "engine/runtime/whole_model.h"
#include "engine/train/checkpointing.h"
#include "engine/train/export_weights.h"
#include "tests/engine/data/data_test_util.h"
#include "tests/engine/train/layouts.h"

namespace trimtab {
namespace {

constexpr double kLogitTolerance = 2e-5;  // absolute; logits are of size 1
constexpr double kLossTolerance = 1e-5;   // relative

std::vector<float> ValuesOf(const SafetensorsReader& file, const std::string& name) {
  const SafetensorsEntry& entry = file.Find(name);
  std::vector<float> values(static_cast<size_t>(entry.numel()));
  file.Read(entry, 0, values);
  return values;
}

/// A golden folder, and a run of its model.
struct Golden final : TokenSource {
  explicit Golden(const std::string& name)
      : folder("testdata/goldens/hugging_face/" + name),
        expected(folder + "/expected.safetensors"),
        tokens(ValuesOf(expected, "tokens")) {
    const std::vector<int64_t>& shape = expected.Find("tokens").shape;
    run.model = LoadModelConfig(folder);
    run.model.make_vocab_size_divisible_by = 4;
    run.global_batch = shape[0];
    run.sequence_length = shape[1] - 1;
    run.threads_per_rank = 1;
    run.steps = 1;
    run.layout.micro_batch = run.global_batch;
  }

  void Sample(int64_t index, std::span<int32_t> sample) const override {
    for (size_t i = 0; i < sample.size(); ++i) {
      sample[i] = static_cast<int32_t>(tokens.at(static_cast<size_t>(index) * sample.size() + i));
    }
  }
  int64_t vocab_size() const override { return run.model.vocab_size; }

  std::string folder;
  SafetensorsReader expected;
  std::vector<float> tokens;
  RunConfig run;
};

/// Writes a checkpoint of what the run holds after loading the weights of `folder`.
void SaveLoaded(const RunConfig& run, const std::string& folder, const std::string& checkpoint) {
  const std::unique_ptr<WeightSource> source = OpenHuggingFaceWeights(folder, run.model);
  const WholeModelDeclaration whole = DeclareWholeModel(run.model);
  const CheckpointHeader header = {.run = run, .buffers = source->buffers()};
  CheckpointWriter writer(checkpoint, header, StoredParameters(header.run, whole.parameters));
  RunRanks(run, [&](Rank& rank) {
    Trainer trainer(run, rank.parallel(), rank.device());
    ReadWeights(trainer, *source);
    WriteState(trainer, writer);
  });
  writer.Finish();
}

class HuggingFaceTest : public testing::TestWithParam<std::string> {};

TEST_P(HuggingFaceTest, LogitsAreThoseOfPyTorch) {
  const Golden golden(GetParam());
  const RunConfig& run = golden.run;
  const auto device = MakeCpuDevice(1);
  const ParallelContext parallel = MakeMetaContext(run.layout, 0);
  Trainer trainer(run, parallel, *device);
  ReadWeights(trainer, *OpenHuggingFaceWeights(golden.folder, run.model));
  const GptModel& model = *trainer.chunks().front();
  MicroBatch batch = NewBatches(model.context(), model.chunk(), 1).front();
  std::vector<int32_t> tokens;
  for (int64_t sequence = 0; sequence < run.global_batch; ++sequence) {
    std::vector<int32_t> sample(static_cast<size_t>(run.sequence_length) + 1);
    golden.Sample(sequence, sample);
    tokens.insert(tokens.end(), sample.begin(), sample.end() - 1);
  }
  CopyFromHost(batch.tokens, tokens);
  CopyFromHost(batch.targets, tokens);
  const auto scalar = [&] {
    Tensor one = Tensor::Empty(*device, {1}, DType::kF32, MemoryTag::kWorkspace);
    CopyFromHost(one, std::vector<float>{1.0f});
    return one;
  };
  Tensor scale = scalar();
  Tensor loss_sum = scalar();
  MicroBatchState state;
  Tensor logits;
  model.Forward(batch, scale, loss_sum, state, &logits);
  std::vector<float> actual(static_cast<size_t>(logits.numel()));
  CopyToHost(logits, actual);
  const std::vector<float> expected = ValuesOf(golden.expected, "logits");
  const int64_t vocab = run.model.vocab_size;
  ASSERT_EQ(static_cast<int64_t>(expected.size()), logits.dim(0) * vocab);
  for (int64_t row = 0; row < logits.dim(0); ++row) {
    for (int64_t id = 0; id < vocab; ++id) {
      ASSERT_NEAR(actual[static_cast<size_t>(row * logits.dim(1) + id)],
                  expected[static_cast<size_t>(row * vocab + id)], kLogitTolerance)
          << "row " << row << " id " << id;
    }
  }
}

TEST_P(HuggingFaceTest, TheLossIsThatOfPyTorchUnderEveryKindOfLayout) {
  const Golden golden(GetParam());
  const double expected = ValuesOf(golden.expected, "loss").front();
  const std::unique_ptr<WeightSource> source =
      OpenHuggingFaceWeights(golden.folder, golden.run.model);
  int legal = 0;
  for (const char* layout :
       {"tp=2,sp=1,mbs=4", "tp=2,pp=2,mbs=1", "pp=2,mbs=2,schedule=zero-bubble", "cp=2,mbs=4",
        "dp=2,zero=1,mbs=2", "dp=2,zero=3,mbs=1", "dp=4,zero=3,shard=2,mbs=1", "dp=2,ep=2,mbs=1",
        "dp=4,ep=2,zero=3,mbs=1", "tp=2,sp=1,etp=2,mbs=2",
        "tp=2,sp=1,dp=2,ep=2,etp=2,zero=1,dispatch=allgather,mbs=1"}) {
    SCOPED_TRACE(layout);
    RunConfig run = golden.run;
    run.layout = ParseLayout(layout, 0);
    if (FirstBrokenRule(run) != nullptr) continue;
    ++legal;
    RunRanks(run, [&](Rank& rank) {
      Trainer trainer(run, rank.parallel(), rank.device());
      ReadWeights(trainer, *source);
      EXPECT_NEAR(trainer.Step(golden, 0).loss, expected, kLossTolerance * expected);
    });
  }
  EXPECT_GE(legal, 4);
}

TEST_P(HuggingFaceTest, ComesBackBitForBitThroughRandomLayouts) {
  const Golden golden(GetParam());
  const std::string folder = ScratchFolder();
  SaveLoaded(golden.run, golden.folder, folder + "/first");
  const std::string weights = ReadBytes(folder + "/first/weights.safetensors");
  const int64_t half = static_cast<int64_t>(weights.size()) / 2;
  ExportToHuggingFace(folder + "/first", folder + "/hf", {.max_shard_bytes = half}, [](int64_t) {});
  EXPECT_EQ(LoadModelConfig(folder + "/hf").parameter_count(), golden.run.model.parameter_count());
  const LayoutSpace space(golden.run, /*most_ranks=*/4);
  std::mt19937 random(7);
  for (int round = 0; round < 12; ++round) {
    const RunConfig run = space[random() % space.size()];
    SCOPED_TRACE(ToString(run.layout));
    SaveLoaded(run, folder + "/hf", folder + "/again");
    ASSERT_TRUE(ReadBytes(folder + "/again/weights.safetensors") == weights);
  }
}

TEST_P(HuggingFaceTest, ExportsEveryTensorOfTheFolderItCameFrom) {
  const Golden golden(GetParam());
  const std::string folder = ScratchFolder();
  SaveLoaded(golden.run, golden.folder, folder + "/saved");
  const HuggingFaceSummary summary = ExportToHuggingFace(folder + "/saved", folder + "/hf",
                                                         {.dtype = DType::kBf16}, [](int64_t) {});
  EXPECT_EQ(summary.tensor_bytes, 2 * golden.run.model.parameter_count());
  const SafetensorsFolder original(golden.folder);
  const SafetensorsFolder exported(folder + "/hf");
  size_t found = 0;
  for (const auto& [name, tensor] : exported.tensors()) {
    // Some folders leave out the prefix of the model's body.
    auto source = original.tensors().find(name);
    if (source == original.tensors().end()) {
      source = original.tensors().find(name.substr(name.find('.') + 1));
    }
    ASSERT_NE(source, original.tensors().end()) << name;
    ASSERT_EQ(tensor.entry->shape, source->second.entry->shape) << name;
    std::vector<float> values(static_cast<size_t>(tensor.entry->numel()));
    tensor.file->Read(*tensor.entry, 0, values);
    std::vector<float> expected(values.size());
    source->second.file->Read(*source->second.entry, 0, expected);
    for (float& value : expected) value = Bf16ToFloat(FloatToBf16(value));
    EXPECT_EQ(values, expected) << name;
    ++found;
  }
  EXPECT_EQ(static_cast<int64_t>(found), summary.tensors);
}

INSTANTIATE_TEST_SUITE_P(Families, HuggingFaceTest,
                         testing::Values("gpt2", "gptj", "opt", "opt_350m", "bloom", "mpt",
                                         "gpt_neox", "falcon_7b", "falcon_40b", "llama", "mistral",
                                         "qwen2", "qwen3", "nemotron", "gemma2", "gemma3", "olmo2",
                                         "olmo3", "glm", "glm4", "mixtral", "qwen3_moe",
                                         "qwen2_moe", "deepseek_v2", "deepseek_v3", "gpt_oss",
                                         "dbrx"),
                         [](const auto& param) { return param.param; });

TEST(HuggingFaceExport, LeavesNothingWhenItIsStopped) {
  const Golden golden("gpt2");
  const std::string folder = ScratchFolder();
  SaveLoaded(golden.run, golden.folder, folder + "/saved");
  int parts = 0;
  const auto stop_later = [&](int64_t /*bytes*/) {
    if (++parts == 3) throw std::runtime_error("stopped");
  };
  EXPECT_EQ(MessageOf<std::runtime_error>(
                [&] { ExportToHuggingFace(folder + "/saved", folder + "/hf", {}, stop_later); }),
            "stopped");
  EXPECT_FALSE(std::filesystem::exists(folder + "/hf"));
  EXPECT_FALSE(std::filesystem::exists(folder + "/hf.tmp"));
}

// At the sizes of the published models: each parameter has its place, and the tensors hold as many
// numbers as the model has parameters.
TEST(HuggingFacePresets, HaveTensorsForAllParameters) {
  for (const std::string& preset : ModelPresetNames()) {
    if (preset == "grok-1" || preset == "glm-130b") continue;  // published without a type
    SCOPED_TRACE(preset);
    const ModelConfig model = LoadModelConfig(preset);
    const std::string type = ToHuggingFace(model)["model_type"].get<std::string>();
    const Family& family = RequireFamily(type, preset);
    const WholeModelDeclaration whole = DeclareWholeModel(model);
    std::set<std::string> names;
    int64_t elements = 0;
    const auto count = [&](const ParameterSpec& parameter) {
      for (const HuggingFaceTensor& tensor : SourceOf(family, model, parameter).tensors) {
        EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
        elements += std::accumulate(tensor.shape.begin(), tensor.shape.end(), int64_t{1},
                                    std::multiplies<>());
      }
    };
    for (const ParameterSpec* parameter : ParameterSpecs(whole.parameters)) count(*parameter);
    for (const auto& buffer : whole.parameters.buffers().all()) {
      if (buffer->kind == BufferKind::kState) count(SpecOf(*buffer));
    }
    EXPECT_EQ(elements, model.parameter_count());
  }
}

}  // namespace
}  // namespace trimtab
