#include "engine/checkpoint/safetensors_folder.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "engine/base/error.h"
#include "engine/config/json/strict_json.h"

namespace trimtab {
namespace {

/// A name within the folder: what leads out of it is refused.
bool IsPlainFileName(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const std::string& directory) {
  std::error_code ignored;
  const std::string single = directory + "/" + kSingleFile;
  if (std::filesystem::exists(single, ignored)) {
    Open(single);
  } else if (std::filesystem::exists(directory + "/" + kIndexFile, ignored)) {
    OpenShards(directory);
  } else {
    throw InputError(
        fmt::format("{}: holds neither {} nor {}", directory, kSingleFile, kIndexFile));
  }
}

SafetensorsReader& SafetensorsFolder::Open(const std::string& path) {
  SafetensorsReader& file = *files_.emplace_back(std::make_unique<SafetensorsReader>(path));
  for (const auto& [name, entry] : file.entries()) {
    const auto [known, added] = tensors_.try_emplace(name, Tensor{&file, &entry});
    if (!added) {
      throw InputError(
          fmt::format("{}: tensor '{}' is in {} too", path, name, known->second.file->path()));
    }
  }
  return file;
}

void SafetensorsFolder::OpenShards(const std::string& directory) {
  const std::string path = directory + "/" + kIndexFile;
  const nlohmann::json index = ReadJsonFile(path);
  StrictObject root(index, path + ": $");
  const nlohmann::json& map = *root.Find("weight_map", Need::kRequired);
  if (!map.is_object()) root.Refuse("weight_map", "an object of tensors and their files");
  std::map<std::string, std::set<std::string>> shards;  // the tensors of each file
  for (const auto& [tensor, file] : map.items()) {
    if (!file.is_string() || !IsPlainFileName(file.get<std::string>())) {
      throw InputError(
          fmt::format("{}: $.weight_map: tensor '{}' is in {}; expected the name of a "
                      ".safetensors file of the folder",
                      path, tensor, DescribeJson(file)));
    }
    shards[file.get<std::string>()].insert(tensor);
  }
  for (const auto& [file, tensors] : shards) {
    const SafetensorsReader& shard = Open(directory + "/" + file);
    for (const auto& [name, entry] : shard.entries()) {
      if (tensors.contains(name)) continue;
      throw InputError(
          fmt::format("{}: tensor '{}' is not one that {} says is here", shard.path(), name, path));
    }
    for (const std::string& name : tensors) {
      if (shard.entries().contains(name)) continue;
      throw InputError(
          fmt::format("{}: has no tensor '{}', which {} says is here", shard.path(), name, path));
    }
  }
}

}  // namespace trimtab
