// Parts: what a step's time and a rank's memory are made of, in a reader's words.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace trimtab {

struct Part {
  std::string name;
  int order = 0;  // the same for the same name in every layout, so that colours agree
  double amount = 0;
};

/// Of a `breakdown_s`, predicted or measured op by op: at most six parts, in order.
std::vector<Part> StepParts(const nlohmann::json& breakdown_s);

/// Of a `memory_bytes`, in order.
std::vector<Part> MemoryParts(const nlohmann::json& memory_bytes);

/// With a capital letter at its head.
std::string Capitalised(std::string text);

}  // namespace trimtab
