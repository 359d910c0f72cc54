// Tiny models of every family (testdata/goldens), for tests of what holds for all of them.
#pragma once

#include <string>
#include <vector>

#include "engine/config/run/run_config.h"

namespace trimtab {

/// "gpt2", "llama", "bloom", ...: names of files in testdata/goldens.
const std::vector<std::string>& FamilyNames();

/// The family's golden run.
RunConfig GoldenRun(const std::string& family);

/// The family's model in four layers, with a batch to be laid out on up to four ranks.
RunConfig FamilyRun(const std::string& family);

/// The same router, which sends every token to every expert: a dry run then knows what each gets.
MoeConfig ToEveryExpert(MoeConfig moe);

}  // namespace trimtab
