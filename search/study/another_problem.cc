#include "search/study/another_problem.h"

#include <nlohmann/json.hpp>

#include "engine/base/error.h"

namespace trimtab {

void ThrowAnotherProblem(const std::string& path, const nlohmann::json& stored,
                         const nlohmann::json& asked) {
  const nlohmann::json patch = nlohmann::json::diff(stored, asked);
  const nlohmann::json::json_pointer place(patch.at(0).at("path").get<std::string>());
  const auto value = [&](const nlohmann::json& problem) {
    return problem.contains(place) ? problem.at(place).dump() : std::string("nothing");
  };
  std::string more;
  if (patch.size() > 1) more = fmt::format(", and {} more", patch.size() - 1);
  throw InputError(fmt::format("{}: a study of another problem: {} is {} in the study and {} now{}",
                               path, place.to_string().substr(1), value(stored), value(asked),
                               more));
}

}  // namespace trimtab
