// The matrix products of a transformer block, as the engine's linear layers ask for them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/ops/gemm/gemm.h"

namespace trimtab {

/// One of forward y = x W^T, input gradient dx = dy W, weight gradient dW = dy^T x.
struct BlockProduct {
  std::string name{};  // "qkv forward"
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  GemmTypes types{};
  Transpose trans_a = Transpose::kNo;
  Transpose trans_b = Transpose::kNo;
  bool accumulate = false;
  bool bias = false;
};

/// A linear layer: weight [out, in].
struct BlockLinear {
  std::string name{};
  int64_t out = 0;
  int64_t in = 0;
};

inline std::vector<BlockLinear> Llama2Block7B() {
  return {{"qkv", 3 * 4096, 4096},
          {"proj", 4096, 4096},
          {"gate_up", 2 * 11008, 4096},
          {"down", 4096, 11008}};
}

inline std::vector<BlockLinear> Gpt2Block124M() {
  return {{"qkv", 3 * 768, 768}, {"proj", 768, 768}, {"fc1", 3072, 768}, {"fc2", 768, 3072}};
}

/// Three products per linear; weight gradients are added to an fp32 buffer. In fp8 every operand
/// lies with k innermost, activations and weights in e4m3, gradients in e5m2, results in bf16.
inline std::vector<BlockProduct> ProductsOf(const std::vector<BlockLinear>& linears, int64_t tokens,
                                            bool fp8, bool bias) {
  const DType value = fp8 ? DType::kF8E4M3 : DType::kBf16;
  const DType gradient = fp8 ? DType::kF8E5M2 : DType::kBf16;
  const Transpose stored = fp8 ? Transpose::kYes : Transpose::kNo;
  std::vector<BlockProduct> products;
  for (const auto& [name, out, in] : linears) {
    products.push_back({.name = name + " forward",
                        .m = tokens,
                        .n = out,
                        .k = in,
                        .types = {value, value, DType::kBf16},
                        .trans_b = Transpose::kYes,
                        .bias = bias});
    products.push_back({.name = name + " input gradient",
                        .m = tokens,
                        .n = in,
                        .k = out,
                        .types = {gradient, value, DType::kBf16},
                        .trans_b = stored});
    products.push_back({.name = name + " weight gradient",
                        .m = out,
                        .n = in,
                        .k = tokens,
                        .types = {gradient, value, DType::kF32},
                        .trans_a = fp8 ? Transpose::kNo : Transpose::kYes,
                        .trans_b = stored,
                        .accumulate = true});
  }
  return products;
}

}  // namespace trimtab
