// A folder of safetensors files as Hugging Face lays it out: model.safetensors, or shards with an
// index that names the file of each tensor.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"

namespace trimtab {

inline constexpr const char* kSingleFile = "model.safetensors";
inline constexpr const char* kIndexFile = "model.safetensors.index.json";

class SafetensorsFolder {
 public:
  struct Tensor {
    const SafetensorsReader* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  /// Opens every file. As Hugging Face does, takes model.safetensors where there are both. Throws
  /// InputError: no such files, a shard that is missing, index and shards that disagree.
  explicit SafetensorsFolder(const std::string& directory);

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }

 private:
  SafetensorsReader& Open(const std::string& path);
  void OpenShards(const std::string& directory);

  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace trimtab
