// Folders whose tensors are not those of the model: refused by the name of the tensor.
#include <functional>
#include <map>

#include "engine/base/error.h"
#include "engine/checkpoint/hugging_face_reader.h"
#include "engine/families/load_config.h"
#include "engine/runtime/whole_model.h"
#include "tests/engine/data/data_test_util.h"

namespace trimtab {
namespace {

using Entries = std::map<std::string, SafetensorsEntry>;

const std::string kGolden = "testdata/goldens/hugging_face/gpt2";

class HuggingFaceRefusedTest : public testing::Test {
 protected:
  /// Opens a copy of the golden folder whose entries were changed.
  void Open(const std::function<void(Entries& entries)>& change) const {
    std::filesystem::copy_file(kGolden + "/config.json", folder_ + "/config.json",
                               std::filesystem::copy_options::overwrite_existing);
    Entries entries = SafetensorsReader(kGolden + "/model.safetensors").entries();
    change(entries);
    std::vector<SafetensorsEntry> list;
    for (const auto& [name, entry] : entries) list.push_back(entry);
    SafetensorsWriter(folder_ + "/model.safetensors", list, {}).Finish();
    const ModelConfig model = LoadModelConfig(kGolden);
    const WholeModelDeclaration whole = DeclareWholeModel(model);
    const HuggingFaceReader reader(folder_, model, whole.parameters);
  }
  void ExpectRefused(const std::function<void(Entries& entries)>& change,
                     const std::string& says) const {
    EXPECT_EQ(MessageOf<InputError>([&] { Open(change); }), folder_ + says);
  }

  std::string folder_ = ScratchFolder();
};

void Add(Entries& entries, const SafetensorsEntry& entry) { entries[entry.name] = entry; }

TEST_F(HuggingFaceRefusedTest, AMissingTensor) {
  ExpectRefused([](Entries& entries) { entries.erase("h.1.attn.c_proj.bias"); },
                ": no file has a tensor 'transformer.h.1.attn.c_proj.bias'");
}

TEST_F(HuggingFaceRefusedTest, ATensorThatIsNoParameter) {
  ExpectRefused([](Entries& entries) { Add(entries, {.name = "h.2.ln_1.bias", .shape = {32}}); },
                "/model.safetensors: tensor 'h.2.ln_1.bias' is no parameter of the model that " +
                    folder_ + "/config.json describes");
}

TEST_F(HuggingFaceRefusedTest, AParameterUnderTwoNames) {
  ExpectRefused(
      [](Entries& entries) { Add(entries, {.name = "transformer.ln_f.bias", .shape = {32}}); },
      "/model.safetensors: tensor 'ln_f.bias' is no parameter of the model that " + folder_ +
          "/config.json describes");
}

TEST_F(HuggingFaceRefusedTest, AnotherShape) {
  ExpectRefused(
      [](Entries& entries) {
        entries.at("h.0.mlp.c_fc.weight").shape = {128, 32};
      },
      "/model.safetensors: tensor 'h.0.mlp.c_fc.weight' is [128, 32]; expected [32, 128]");
}

TEST_F(HuggingFaceRefusedTest, NumbersThatAreNoWeights) {
  ExpectRefused(
      [](Entries& entries) { entries.at("ln_f.weight").dtype = DType::kI32; },
      "/model.safetensors: tensor 'ln_f.weight' holds no numbers of a type that is read; expected "
      "F32, BF16, F16, F8_E4M3 or F8_E5M2");
}

TEST_F(HuggingFaceRefusedTest, TheFolderOfAnotherModel) {
  ModelConfig model = LoadModelConfig(kGolden);
  const WholeModelDeclaration whole = DeclareWholeModel(model);
  const auto open = [&] { HuggingFaceReader(kGolden, model, whole.parameters); };
  model.name = "mine";
  model.init_std = 0.5;  // what only training looks at may differ
  model.make_vocab_size_divisible_by = 3;
  open();
  model.norm_epsilon = 1e-3;
  EXPECT_EQ(MessageOf<InputError>(open),
            kGolden +
                "/config.json: describes a model with norm_epsilon 1e-05; expected 0.001, as "
                "in 'mine'");
}

TEST_F(HuggingFaceRefusedTest, ButNotBuffersAndTheCopyOfASharedTable) {
  Open([](Entries& entries) {
    Add(entries, {.name = "h.0.attn.masked_bias", .dtype = DType::kI64, .shape = {}});
    Add(entries, {.name = "lm_head.weight", .shape = {61, 32}});
  });
}

}  // namespace
}  // namespace trimtab
