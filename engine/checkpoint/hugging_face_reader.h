// The weights of a Hugging Face folder, for any layout.
#pragma once

#include <map>
#include <set>
#include <span>
#include <string>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/hugging_face_names.h"
#include "engine/checkpoint/safetensors_folder.h"
#include "engine/checkpoint/stored_tensor.h"

namespace trimtab {

class HuggingFaceReader {
 public:
  /// Opens DIR/config.json and the weights beside it, and checks that they hold `model`: every one
  /// of its parameters and of the buffers that belong to it (all of `declared`, whole) once, in its
  /// shape, and nothing else but buffers that are computed. Quantised weights are read as what they
  /// stand for (stored_tensor.h), which is said in one line.
  /// Throws InputError naming the file and the tensor, or the key.
  HuggingFaceReader(const std::string& directory, const ModelConfig& model,
                    const ParameterStore& declared);

  /// Fills the slice's weights; what is padding there stays. Of the files, only what the slice
  /// holds is read. Safe from several threads.
  void Read(const TensorSlice& slice) const;

 private:
  struct Parameter {
    std::vector<HuggingFacePiece> pieces;
    std::vector<StoredTensor> tensors;
  };
  /// Finds the tensors of a parameter; their names go to `used`.
  void Add(const Family& family, const ModelConfig& model, const ParameterSpec& spec,
           std::set<std::string>& used);
  /// Reads elements [full, full + values.size()) of the whole parameter, which has `columns`.
  static void ReadRun(const Parameter& parameter, int64_t columns, int64_t full,
                      std::span<float> values);

  /// Warns if the files hold another output than the table of tokens that the model shares with it.
  void ReportUntiedOutput(const Family& family, const ModelConfig& model) const;
  /// Says how many tensors are dequantised, if any are.
  void ReportQuantised() const;

  std::string directory_;
  SafetensorsFolder folder_;
  QuantisationConfig quantisation_;
  std::map<std::string, Parameter> parameters_;
};

}  // namespace trimtab
