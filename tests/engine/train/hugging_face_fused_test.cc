// Folders as Transformers 5 may save them: the experts of a layer in one tensor of all; and an
// output that is not the table of tokens although the configuration ties them.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "engine/checkpoint/hugging_face_reader.h"
#include "engine/config/json/strict_json.h"
#include "engine/families/load_config.h"
#include "engine/runtime/whole_model.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

struct Values {
  std::vector<int64_t> shape;
  std::vector<float> values;
};
using Tensors = std::map<std::string, Values>;

Tensors ReadAll(const std::string& folder) {
  Tensors all;
  const SafetensorsFolder files(folder);
  for (const auto& [name, tensor] : files.tensors()) {
    Values& read = all[name];
    read.shape = tensor.entry->shape;
    read.values.resize(static_cast<size_t>(tensor.entry->numel()));
    tensor.file->Read(*tensor.entry, 0, read.values);
  }
  return all;
}

void WriteAll(const std::string& folder, const nlohmann::json& config, const Tensors& tensors) {
  std::filesystem::create_directories(folder);
  WriteBytes(folder + "/config.json", config.dump());
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors) {
    entries.push_back({.name = name, .dtype = DType::kF32, .shape = tensor.shape});
  }
  SafetensorsWriter writer(folder + "/model.safetensors", std::move(entries), {});
  for (const auto& [name, tensor] : tensors) writer.Write(writer.Find(name), 0, tensor.values);
  writer.Finish();
}

/// Replaces text in all names.
void Rename(Tensors& tensors, const std::string& old_text, const std::string& new_text) {
  Tensors renamed;
  for (auto& [name, tensor] : tensors) {
    std::string now = name;
    if (const size_t at = now.find(old_text); at != std::string::npos) {
      now.replace(at, old_text.size(), new_text);
    }
    renamed[now] = std::move(tensor);
  }
  tensors = std::move(renamed);
}

/// Puts `parts` of every expert of a layer into one tensor [E, rows of all parts, columns].
void Fuse(Tensors& tensors, const std::string& layer, int64_t experts,
          const std::vector<std::string>& parts, const std::string& fused) {
  if (!tensors.contains(layer + "experts.0." + parts.front() + ".weight")) return;
  Values all;
  int64_t rows = 0;
  int64_t columns = 0;
  for (int64_t expert = 0; expert < experts; ++expert) {
    for (const std::string& part : parts) {
      const std::string name = layer + "experts." + std::to_string(expert) + "." + part + ".weight";
      const Values& tensor = tensors.at(name);
      rows += tensor.shape[0];
      columns = tensor.shape[1];
      all.values.insert(all.values.end(), tensor.values.begin(), tensor.values.end());
      tensors.erase(name);
    }
  }
  all.shape = {experts, rows / experts, columns};
  tensors[layer + "experts." + fused] = all;
}

class HuggingFaceFusedTest : public testing::TestWithParam<const char*> {};

TEST_P(HuggingFaceFusedTest, ExpertsInOneTensorAreThoseApart) {
  const std::string golden = std::string("testdata/goldens/hugging_face/") + GetParam();
  const ModelConfig model = LoadModelConfig(golden);
  Tensors tensors = ReadAll(golden);
  Rename(tensors, "block_sparse_moe", "mlp");
  for (const auto& [from, to] :
       {std::pair{".w1.", ".gate_proj."}, {".w3.", ".up_proj."}, {".w2.", ".down_proj."}}) {
    Rename(tensors, from, to);
  }
  const size_t apart = tensors.size();
  for (int64_t i = 0; i < model.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".mlp.";
    Fuse(tensors, layer, model.moe.num_experts, {"gate_proj", "up_proj"}, "gate_up_proj");
    Fuse(tensors, layer, model.moe.num_experts, {"down_proj"}, "down_proj");
  }
  ASSERT_LT(tensors.size(), apart);
  nlohmann::json config = ReadJsonFile(golden + "/config.json");
  if (config.contains("num_experts")) {
    config["num_local_experts"] = config["num_experts"];
    config.erase("num_experts");
  }
  const std::string folder = ScratchFolder();
  WriteAll(folder, config, tensors);
  const WholeModelDeclaration whole = DeclareWholeModel(model);
  const HuggingFaceReader expected(golden, model, whole.parameters);
  const HuggingFaceReader actual(folder, model, whole.parameters);
  for (const ParameterSpec* spec : ParameterSpecs(whole.parameters)) {
    const auto count = static_cast<size_t>(spec->rows * spec->columns);
    std::vector<float> want(count);
    std::vector<float> got(count);
    expected.Read({.spec = spec, .begin = 0, .values = want});
    actual.Read({.spec = spec, .begin = 0, .values = got});
    EXPECT_EQ(got, want) << std::string(spec->name);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, HuggingFaceFusedTest,
                         testing::Values("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2",
                                         "deepseek_v3"),
                         [](const auto& each) { return std::string(each.param); });

std::string LogOfOpening(const std::string& folder) {
  const ModelConfig model = LoadModelConfig(folder);
  const WholeModelDeclaration whole = DeclareWholeModel(model);
  testing::internal::CaptureStderr();
  const HuggingFaceReader reader(folder, model, whole.parameters);
  return testing::internal::GetCapturedStderr();
}

TEST(HuggingFaceTiedTest, AnotherOutputThanTheTiedTableIsTold) {
  const std::string golden = "testdata/goldens/hugging_face/gpt2";
  const nlohmann::json config = ReadJsonFile(golden + "/config.json");
  Tensors tensors = ReadAll(golden);
  const std::string folder = ScratchFolder();
  const Values table = tensors.contains("wte.weight") ? tensors.at("wte.weight")
                                                      : tensors.at("transformer.wte.weight");
  tensors["lm_head.weight"] = table;
  WriteAll(folder + "/same", config, tensors);
  EXPECT_EQ(LogOfOpening(folder + "/same"), "");
  tensors["lm_head.weight"].values.back() += 1;
  WriteAll(folder + "/other", config, tensors);
  const std::string log = LogOfOpening(folder + "/other");
  EXPECT_NE(log.find("/other: 'lm_head.weight' differs from '"), std::string::npos) << log;
  EXPECT_NE(log.find("wte.weight', as in Transformers 4; set tie_word_embeddings to false to use "
                     "'lm_head.weight', as Transformers 5 does"),
            std::string::npos)
      << log;
}

}  // namespace
}  // namespace trimtab
