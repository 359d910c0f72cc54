#include "engine/base/plain_name.h"

#include <gtest/gtest.h>

namespace trimtab {
namespace {

TEST(PlainName, KeepsLettersAndDigits) {
  EXPECT_EQ(PlainName("H100-SXM 80GB"), "h100sxm80gb");
  EXPECT_EQ(PlainName(" (llm.c) "), "llmc");
  EXPECT_EQ(PlainName("+/-"), "");
  EXPECT_EQ(PlainWords("GPT-NeoX (Megatron + DeepSpeed)"),
            (std::vector<std::string>{"gpt", "neox", "megatron", "deepspeed"}));
}

TEST(PlainName, IsFoundWhereWordsSpellIt) {
  const auto place = [](const char* text, const char* name) {
    return FindPlainName(PlainWords(text), PlainName(name));
  };
  EXPECT_EQ(place("NVIDIA NeMo 24.07", "nemo"), 1u);
  EXPECT_EQ(place("GPT-NeoX (Megatron + DeepSpeed)", "Megatron-DeepSpeed"), 2u);
  EXPECT_EQ(place("LitGPT on one node", "lit-gpt"), 0u);
  EXPECT_EQ(place("lit-gpt", "LitGPT"), 0u);
  EXPECT_EQ(place("Megatron-LM", "Megatron"), 0u);
  EXPECT_EQ(place("nemotron", "NeMo"), 1u) << "a word's beginning is another word";
  EXPECT_EQ(place("Deep Speed", "DeepSpeed ZeRO"), 2u) << "half of it";
}

}  // namespace
}  // namespace trimtab
