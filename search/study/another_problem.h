// What is said where a study is not of the problem that is asked.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace trimtab {

/// Throws InputError: the study at `path` is of the problem `stored`, which differs from `asked`.
/// It names the first difference, and how many more there are.
[[noreturn]] void ThrowAnotherProblem(const std::string& path, const nlohmann::json& stored,
                                      const nlohmann::json& asked);

}  // namespace trimtab
