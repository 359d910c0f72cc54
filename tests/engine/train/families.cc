#include "tests/engine/train/families.h"

#include "engine/families/load_config.h"

namespace trimtab {

const std::vector<std::string>& FamilyNames() {
  static const std::vector<std::string> names = {
      "gpt2",    "llama",  "falcon",   "falcon_mqa", "gptj",    "neox",     "bloom",
      "mpt",     "opt",    "nemotron", "mistral",    "qwen2",   "qwen3",    "gemma2",
      "glm4",    "glm130", "llama31",  "yarn",       "mixtral", "deepseek", "deepseek_v2",
      "gpt_oss", "dbrx",   "opt_350m", "gemma3",     "olmo2",   "olmo3"};
  return names;
}

RunConfig GoldenRun(const std::string& family) {
  return LoadRunConfig("testdata/goldens/" + family + ".json");
}

RunConfig FamilyRun(const std::string& family) {
  RunConfig run = GoldenRun(family);
  run.model.num_layers = 4;
  run.sequence_length = 16;
  run.global_batch = 8;
  run.layout = {};
  run.threads_per_rank = 1;
  return run;
}

MoeConfig ToEveryExpert(MoeConfig moe) {
  moe.router_topk = moe.num_experts;
  moe.group_topk = moe.num_groups;
  return moe;
}

}  // namespace trimtab
