// The families that the engine describes.
#pragma once

#include <span>
#include <string>

#include "engine/families/family.h"

namespace trimtab {

// A family is one line here: the function of its file, and a place in lists of models. The order of
// the lines is that of messages, and of the types that an export tries; lists of models order
// presets by their places first.
#define TRIMTAB_FAMILIES(FAMILY) \
  FAMILY(Gpt2Family, 1)          \
  FAMILY(GptJFamily, 2)          \
  FAMILY(GptNeoxFamily, 2)       \
  FAMILY(OptFamily, 1)           \
  FAMILY(BloomFamily, 1)         \
  FAMILY(MptFamily, 1)           \
  FAMILY(FalconFamily, 3)        \
  FAMILY(NemotronFamily, 3)      \
  FAMILY(LlamaFamily, 3)         \
  FAMILY(MistralFamily, 3)       \
  FAMILY(Qwen2Family, 3)         \
  FAMILY(Qwen3Family, 3)         \
  FAMILY(Gemma2Family, 4)        \
  FAMILY(Gemma3Family, 4)        \
  FAMILY(Olmo2Family, 4)         \
  FAMILY(Olmo3Family, 4)         \
  FAMILY(Glm130bFamily, 4)       \
  FAMILY(GlmFamily, 4)           \
  FAMILY(Glm4Family, 4)          \
  FAMILY(MixtralFamily, 4)       \
  FAMILY(Qwen3MoeFamily, 3)      \
  FAMILY(Qwen2MoeFamily, 4)      \
  FAMILY(DeepSeekV2Family, 4)    \
  FAMILY(DeepSeekV3Family, 4)    \
  FAMILY(GptOssFamily, 4)        \
  FAMILY(DbrxFamily, 4)          \
  FAMILY(GrokFamily, 4)

#define TRIMTAB_DECLARE_FAMILY(name, place) Family name();
TRIMTAB_FAMILIES(TRIMTAB_DECLARE_FAMILY)
#undef TRIMTAB_DECLARE_FAMILY

/// Returns every family, in the order above.
std::span<const Family> Families();

/// Returns the family of config.json's model_type; nullptr if it is unknown.
const Family* FindFamily(const std::string& type);

/// Returns the family likewise. Throws InputError, prefixed with `where`, if it is unknown.
const Family& RequireFamily(const std::string& type, const std::string& where);

/// Returns the known types: "gpt2, gptj, ...".
std::string FamilyTypes();

/// Returns the presets of all families, in the order in which lists show them.
std::span<const PresetGroup> PresetGroups();

}  // namespace trimtab
