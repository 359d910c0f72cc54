#include "cost_model/hardware/software_stack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"

namespace trimtab {
namespace {

TEST(SoftwareStack, OursChangesNothing) {
  ASSERT_FALSE(BuiltinStacks().empty());
  EXPECT_EQ(BuiltinStacks().front(), SoftwareStack());
  EXPECT_EQ(LoadSoftwareStack("trimtab"), SoftwareStack());
  for (const StackNumber& number : StackNumbers()) {
    const double value = (SoftwareStack().*number.member).value;
    EXPECT_TRUE(value == 0 || value == 1) << number.key;
  }
}

TEST(SoftwareStack, BuiltinOnesAreWholeAndSurviveJson) {
  std::set<std::string> names;
  for (const SoftwareStack& stack : BuiltinStacks()) {
    EXPECT_TRUE(names.insert(stack.name).second) << stack.name;
    EXPECT_EQ(SoftwareStackFromJson(ToJson(stack), "$"), stack);
    for (const StackNumber& number : StackNumbers()) {
      const Quantity& quantity = stack.*number.member;
      if (quantity == SoftwareStack().*number.member) continue;
      EXPECT_FALSE(quantity.source.empty()) << stack.name << " " << number.key;
    }
  }
}

TEST(SoftwareStack, SaysWhichOptionsItHas) {
  const SoftwareStack stack = LoadSoftwareStack("torchtitan");
  const auto zero = std::ranges::find(stack.options, "zero", &StackOption::key);
  ASSERT_NE(zero, stack.options.end());
  EXPECT_EQ(zero->values, (std::vector<std::string>{"0", "2", "3"}));
  nlohmann::json json = ToJson(stack);
  json["options"] = {"zero"};
  EXPECT_THROW(SoftwareStackFromJson(json, "$"), InputError);
  json["options"] = {{"zero", 1}};
  EXPECT_THROW(SoftwareStackFromJson(json, "$"), InputError);
}

TEST(SoftwareStack, IsFoundByTheFrameworksName) {
  const auto name = [](const std::string& framework, double year) {
    return StackOfFramework(framework, year).name;
  };
  EXPECT_EQ(name("NeMo 24.12", 2024.9), "nemo");
  EXPECT_EQ(name("NeMo / Megatron-Core (MLPerf)", 2024), "nemo-mlperf");
  EXPECT_EQ(name("Megatron-LM 2021", 2021), "megatron-2021");
  EXPECT_EQ(name("Megatron-LM 23e00ed0, TE 2.11", 2026), "megatron-2024")
      << "of two with the same name, the one of the nearest year";
  EXPECT_EQ(name("DeepSpeed ZeRO-3", 2021.5), "deepspeed-2021");
  EXPECT_EQ(name("DeepSpeed ZeRO-3", 2024.5), "deepspeed");
}

TEST(SoftwareStack, IsFoundHoweverItIsSpelt) {
  const auto name = [](const std::string& framework) {
    return StackOfFramework(framework, 2024.5).name;
  };
  EXPECT_EQ(name("TorchTitan"), "torchtitan");
  EXPECT_EQ(name("torch titan nightly"), "torchtitan");
  EXPECT_EQ(name("NVIDIA NeMo v24.07"), "nemo");
  EXPECT_EQ(name("Megatron Core 0.9"), "megatron-bridge");
  EXPECT_EQ(name("MosaicML Composer"), "llm-foundry");
  EXPECT_EQ(name("GPT-NeoX (Megatron + DeepSpeed)"), "megatron-deepspeed");
  EXPECT_EQ(name("HF Transformers + DeepSpeed"), "deepspeed");
  EXPECT_EQ(name("NeMo (PyTorch Lightning)"), "nemo") << "what it is built on says less";
  EXPECT_EQ(name("PyTorch FSDP2 (torchtitan)"), "torchtitan");
  EXPECT_EQ(name("PyTorch FSDP2"), "pytorch-fsdp");
  EXPECT_EQ(name("Megatron-Bridge, NeMo container 26.04"), "megatron-bridge") << "the first of two";
}

TEST(SoftwareStack, OneOfSeveralTogetherIsFoundInAnyOrder) {
  const auto name = [](const std::string& framework) {
    return StackOfFramework(framework, 2024.5).name;
  };
  for (const char* framework :
       {"Megatron-LM + DeepSpeed", "DeepSpeed + Megatron-LM", "DeepSpeed/Megatron",
        "Megatron-DeepSpeed", "Megatron-LM and DeepSpeed"}) {
    EXPECT_EQ(name(framework), "megatron-deepspeed") << framework;
  }
  EXPECT_EQ(name("MCore"), "megatron-bridge");
  EXPECT_EQ(name("HAI-LLM"), "megatron-bridge");
  EXPECT_EQ(name("MosaicML"), "llm-foundry");
  EXPECT_EQ(name("metaseq (fairscale FSDP + Megatron-LM)"), "pytorch-fsdp");
  EXPECT_EQ(name("torchtune"), "pytorch-fsdp");
  EXPECT_EQ(name("LLaMA-Factory with FSDP"), "pytorch-fsdp");
  EXPECT_EQ(name("HF Trainer, DeepSpeed ZeRO-3"), "deepspeed");
  EXPECT_EQ(name("ERNIEKit (PaddleFleet)"), "paddlenlp");
  EXPECT_EQ(name("AXLearn"), "maxtext");
}

TEST(SoftwareStack, OfTwoThatAreAsNearTheEarlierOneCounts) {
  EXPECT_EQ(StackOfFramework("something else", 2022.5).name, "usual-2021");
  EXPECT_EQ(StackOfFramework("DeepSpeed ZeRO-3", 2022.5).name, "deepspeed-2021");
}

TEST(SoftwareStack, OneThatNobodyKnowsIsAsWasUsual) {
  for (const auto& [year, name] :
       {std::pair{2020.5, "usual-2021"}, {2023.0, "usual-2023"}, {2026.5, "usual-2025"}}) {
    const SoftwareStack& stack = StackOfFramework("something else", year);
    EXPECT_EQ(stack.name, name);
    EXPECT_NE(stack.compute.origin, Origin::kFitted) << "so its predictions are less sure";
  }
}

TEST(SoftwareStack, LaterReleasesAreFaster) {
  SoftwareStack stack;
  stack.year = 2024;
  stack.compute.value = 1.1;
  stack.compute_per_year.value = 0.1;
  EXPECT_DOUBLE_EQ(InYear(stack, 2026).compute.value, 1.1 * 1.1 * 1.1);
  EXPECT_DOUBLE_EQ(InYear(stack, 2023).compute.value, 1.0);
  EXPECT_EQ(InYear(stack, 2030).compute, InYear(stack, 2026).compute) << "as far as is known";
  EXPECT_EQ(InYear(SoftwareStack(), 2030), SoftwareStack());
}

TEST(SoftwareStack, RefusesWhatIsWrong) {
  nlohmann::json json = ToJson(LoadSoftwareStack("nemo"));
  json["compute"]["value"] = 0;
  EXPECT_THROW(SoftwareStackFromJson(json, "$"), InputError);
  json = ToJson(LoadSoftwareStack("nemo"));
  json["speed"] = 1;
  EXPECT_THROW(SoftwareStackFromJson(json, "$"), InputError);
  EXPECT_THROW(LoadSoftwareStack("nemmo"), UsageError);
}

}  // namespace
}  // namespace trimtab
