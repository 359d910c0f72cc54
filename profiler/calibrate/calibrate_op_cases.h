// What calibration runs to measure every op but products and attention.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/device/record.h"
#include "engine/ops/fp8/fused_fp8.h"
#include "profiler/calibrate/calibrate_rig.h"

namespace trimtab {

/// One op at one size: what it costs by its own count, and how to run it once as the engine does.
struct OpCase {
  OpRecord record;
  std::function<void()> run;
};

/// Makes cases of about `bytes` of traffic each, one maker per kind of op. Tensors that the engine
/// allocates for the op's result are allocated anew in every run; what it kept since the forward
/// pass, and parameters, come from the cold buffer; what the op before has just written is warm.
class OpCases {
 public:
  OpCases(Rig& rig, int64_t bytes) : rig_(rig), bytes_(bytes) {}

  std::vector<OpCase> All() {
    std::vector<OpCase> cases;
    AddNorms(cases);
    AddHeadNorms(cases);
    AddActivations(cases);
    AddEmbeddings(cases);
    AddLoss(cases);
    AddElementwise(cases);
    AddLatentHeads(cases);
    AddSinksAndClamps(cases);
    AddUpdate(cases);
    AddFp8(cases);
    AddFusedFp8(cases);
    AddRouters(cases);
    AddChoices(cases);
    AddDispatch(cases);
    AddExperts(cases);
    return cases;
  }

 private:
  static constexpr int64_t kColumns = 512;  // of the matrices that row-wise ops are measured on

  /// Rows of [rows, kColumns] such that `tensors` of them make up the traffic.
  int64_t Rows(double tensors) const {
    const double row_bytes = static_cast<double>(kColumns * SizeOf(DType::kF32)) * tensors;
    return std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(bytes_) / row_bytes));
  }
  Tensor Warm(const Shape& shape) {
    Tensor tensor = rig_.Fresh(shape);
    FillForTiming(tensor);
    return tensor;
  }
  Tensor Ids(int64_t rows) {
    Tensor ids = Tensor::Empty(rig_.device(), {rows}, DType::kI32, MemoryTag::kWorkspace);
    std::vector<int32_t> values(static_cast<size_t>(rows));
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<int32_t>(i * 37 % static_cast<size_t>(kColumns));
    }
    CopyFromHost(ids, values);
    return ids;
  }

  void AddNorms(std::vector<OpCase>& cases);
  void AddHeadNorms(std::vector<OpCase>& cases);
  void AddActivations(std::vector<OpCase>& cases);
  void AddEmbeddings(std::vector<OpCase>& cases);
  void AddLoss(std::vector<OpCase>& cases);
  void AddElementwise(std::vector<OpCase>& cases);
  void AddLatentHeads(std::vector<OpCase>& cases);
  void AddSinksAndClamps(std::vector<OpCase>& cases);
  void AddUpdate(std::vector<OpCase>& cases);
  void AddFp8(std::vector<OpCase>& cases);
  void AddFusedFp8(std::vector<OpCase>& cases);
  void AddRouters(std::vector<OpCase>& cases);
  void AddChoices(std::vector<OpCase>& cases);
  void AddDispatch(std::vector<OpCase>& cases);
  void AddExperts(std::vector<OpCase>& cases);
  /// `topk` experts for each token, all as often.
  Tensor Choices(int64_t tokens, int64_t topk);
  /// Fresh copies [rows, columns] in fp8, both ways.
  Fp8Output Copies(int64_t rows, int64_t columns, DType dtype) {
    const auto fresh = [&](const Shape& shape) {
      return Tensor::Empty(rig_.device(), shape, dtype, MemoryTag::kWorkspace);
    };
    return {.rows = fresh({rows, columns}), .transposed = fresh({columns, rows}), .amax = {}};
  }

  Rig& rig_;
  int64_t bytes_;
};

}  // namespace trimtab
