// Kernels that choose between variants by the width of a row: every one of them, on rows where
// packs may be used and on rows where they may not. The reference is the cpu device with the same
// stored values.
#include <gtest/gtest.h>

#include <cmath>

#include "engine/ops/activation/activation.h"
#include "engine/ops/attention/attention.h"
#include "engine/ops/attention/latent_heads.h"
#include "engine/ops/cuda/emulated_ops.h"
#include "engine/ops/fp8/fused_fp8.h"
#include "engine/ops/gemm/gemm.h"
#include "engine/ops/norm/norm.h"
#include "tests/engine/ops/op_test.h"

namespace trimtab {
namespace {

constexpr double kEpsilon = 1e-5;

/// Makes tensors of one device. Equal calls in equal order give equal values.
class Bench {
 public:
  Bench(std::unique_ptr<Device> device, DType dtype, int64_t offset)
      : device_(std::move(device)), dtype_(dtype), offset_(offset) {}

  DType dtype() const { return dtype_; }

  /// `offset` elements into an allocation.
  Tensor Values(const Shape& shape, DType dtype) {
    const Tensor whole =
        Tensor::Empty(*device_, {shape.numel() + offset_}, dtype, MemoryTag::kActivations);
    const Tensor tensor = whole.Slice(offset_, shape);
    Upload(tensor, RandomValues(shape.numel(), ++seed_));
    return tensor;
  }
  Tensor Values(const Shape& shape) { return Values(shape, dtype_); }
  Tensor Scalar(float value) {
    Tensor tensor = Values({1}, DType::kF32);
    Upload(tensor, std::vector<float>{value});
    return tensor;
  }
  /// For copies of a gradient.
  Fp8Beside Beside(const Shape& matrix) {
    return {.scale = Scalar(250.0f),
            .out = {.rows = Values(matrix, DType::kF8E5M2),
                    .transposed = Values({matrix[1], matrix[0]}, DType::kF8E5M2),
                    .amax = Scalar(0.0f)}};
  }

 private:
  std::unique_ptr<Device> device_;
  DType dtype_;
  int64_t offset_;
  uint32_t seed_ = 0;
};

struct Case {
  DType dtype;
  int64_t rows;
  int64_t columns;
  int64_t offset;
};

/// Runs `op`, which returns its results, on both devices.
template <typename Op>
void ExpectSame(const Case& c, Op op) {
  SCOPED_TRACE(fmt::format("{}, {} x {}, offset {}", Name(c.dtype), c.rows, c.columns, c.offset));
  Bench cpu(MakeCpuDevice(1), c.dtype, c.offset);
  Bench emulated(MakeEmulatedDevice(), c.dtype, c.offset);
  const std::vector<Tensor> expected = op(cpu);
  const std::vector<Tensor> actual = op(emulated);
  for (size_t i = 0; i < expected.size(); ++i) {
    // Both results may be that far from the exact one.
    const double allowed = 2 * ToleranceOf(expected[i].dtype()).reduction;
    ExpectClose(Download(actual[i]), ToDouble(Download(expected[i])), allowed,
                fmt::format("result {}", i));
  }
}

// A warp, 128, 256, 512 threads to a row, and rows too long for registers; ragged ones among them.
std::vector<Case> Widths() {
  std::vector<Case> cases;
  for (const DType dtype : {DType::kF32, DType::kBf16}) {
    const int64_t pack = 16 / SizeOf(dtype);
    for (const int64_t packs : {31, 64, 90, 130, 260, 520}) {
      cases.push_back({dtype, 3, packs * pack, 0});
    }
    if (dtype == DType::kF32) cases.push_back({dtype, 3, 1030 * pack, 0});
    cases.push_back({dtype, 3, 520, 1});
    cases.push_back({dtype, 3, 521, 0});
  }
  return cases;
}

TEST(RowKernelsTest, LayerNorm) {
  for (const Case& c : Widths()) {
    ExpectSame(c, [&c](Bench& b) {
      const Shape matrix = {c.rows, c.columns};
      const Tensor x = b.Values(matrix);
      const Tensor weight = b.Values({c.columns});
      Tensor y = b.Values(matrix);
      Tensor mean = b.Values({c.rows}, DType::kF32);
      Tensor rstd = b.Values({c.rows}, DType::kF32);
      LayerNormForward(x, weight, b.Values({c.columns}), kEpsilon, y, mean, rstd);
      Tensor dx = b.Values(matrix);
      Tensor dweight = b.Values({c.columns}, DType::kF32);
      Tensor dbias = b.Values({c.columns}, DType::kF32);
      LayerNormBackward(b.Values(matrix), x, weight, mean, rstd, dx, dweight, dbias, true);
      const Fp8Beside copies = b.Beside(matrix);
      LayerNormBackward(b.Values(matrix), x, weight, mean, rstd, dx, dweight, dbias, true, false,
                        copies);
      return std::vector<Tensor>{
          y, mean, rstd, dx, dweight, dbias, copies.out.rows, copies.out.transposed};
    });
  }
}

TEST(RowKernelsTest, RmsNorm) {
  for (const Case& c : Widths()) {
    ExpectSame(c, [&c](Bench& b) {
      const Shape matrix = {c.rows, c.columns};
      const Tensor x = b.Values(matrix);
      const Tensor weight = b.Values({c.columns});
      Tensor y = b.Values(matrix);
      Tensor rstd = b.Values({c.rows}, DType::kF32);
      RmsNormForward(x, weight, kEpsilon, y, rstd);
      Tensor dx = b.Values(matrix);
      Tensor dweight = b.Values({c.columns}, b.dtype());
      RmsNormBackward(b.Values(matrix), x, weight, rstd, dx, dweight, false);
      const Fp8Beside copies = b.Beside(matrix);
      RmsNormBackward(b.Values(matrix), x, weight, rstd, dx, dweight, true, false, copies);
      return std::vector<Tensor>{y, rstd, dx, dweight, copies.out.rows, copies.out.transposed};
    });
  }
}

TEST(RowKernelsTest, RmsNormToFp8) {
  for (const Case& c : Widths()) {
    ExpectSame(c, [&c](Bench& b) {
      const Shape matrix = {c.rows, c.columns};
      Fp8Output out = {.rows = b.Values(matrix, DType::kF8E4M3),
                       .transposed = b.Values({c.columns, c.rows}, DType::kF8E4M3),
                       .amax = b.Scalar(0.0f)};
      Tensor rstd = b.Values({c.rows}, DType::kF32);
      RmsNormForwardFp8(b.Values(matrix), b.Values({c.columns}), kEpsilon, b.Scalar(250.0f), out,
                        rstd);
      return std::vector<Tensor>{out.rows, out.transposed, out.amax, rstd};
    });
  }
}

// What is kept of rows until their columns can be stored: 32 of them, or fewer for want of shared
// memory or of rows; the columns of unaligned rows in turns. Rows end within what is kept or not,
// and their columns may be stored in words or not.
std::vector<Case> KeptRows() {
  return {{DType::kBf16, 200, 64, 0},  {DType::kBf16, 203, 520, 0},  {DType::kF32, 68, 1032, 0},
          {DType::kBf16, 36, 7296, 0}, {DType::kBf16, 21, 16384, 0}, {DType::kBf16, 70, 131, 1},
          {DType::kF32, 66, 4101, 0}};
}

TEST(RowKernelsTest, NormsToFp8OfManyRows) {
  for (const Case& c : KeptRows()) {
    ExpectSame(c, [&c](Bench& b) {
      const Shape matrix = {c.rows, c.columns};
      Fp8Output out = {.rows = b.Values(matrix, DType::kF8E4M3),
                       .transposed = b.Values({c.columns, c.rows}, DType::kF8E4M3),
                       .amax = b.Scalar(0.0f)};
      const Tensor x = b.Values(matrix);
      const Tensor weight = b.Values({c.columns});
      Tensor mean = b.Values({c.rows}, DType::kF32);
      Tensor rstd = b.Values({c.rows}, DType::kF32);
      LayerNormForwardFp8(x, weight, b.Values({c.columns}), kEpsilon, b.Scalar(250.0f), out, mean,
                          rstd);
      Tensor dx = b.Values(matrix);
      Tensor dweight = b.Values({c.columns}, DType::kF32);
      const Fp8Beside copies = b.Beside(matrix);
      RmsNormBackward(b.Values(matrix), x, weight, rstd, dx, dweight, true, false, copies);
      return std::vector<Tensor>{out.rows, out.transposed,  out.amax,
                                 dx,       dweight,         copies.out.rows,
                                 rstd,     copies.out.amax, copies.out.transposed};
    });
  }
}

TEST(RowKernelsTest, NormsOfManyRows) {
  // More rows than a device's blocks hold at once: blocks go round, some one time more.
  for (const int64_t columns : {64, 520}) {
    ExpectSame({DType::kBf16, 601, columns, 0}, [columns](Bench& b) {
      const Shape matrix = {601, columns};
      const Tensor x = b.Values(matrix);
      const Tensor weight = b.Values({columns});
      Tensor y = b.Values(matrix);
      Tensor rstd = b.Values({601}, DType::kF32);
      RmsNormForward(x, weight, kEpsilon, y, rstd);
      Tensor dx = b.Values(matrix);
      Tensor dweight = b.Values({columns}, DType::kF32);
      RmsNormBackward(b.Values(matrix), x, weight, rstd, dx, dweight, false);
      return std::vector<Tensor>{y, rstd, dx, dweight};
    });
  }
}

TEST(RowKernelsTest, SwiGluOfRowsOfSeveralBlocks) {
  for (const Case& c : {Case{DType::kBf16, 3, 11008, 0}, Case{DType::kF16, 2, 5000, 1},
                        Case{DType::kF32, 2, 1601, 0}}) {
    ExpectSame(c, [&c](Bench& b) {
      const Tensor gate_up = b.Values({c.rows, 2 * c.columns});
      Tensor y = b.Values({c.rows, c.columns});
      GatedActivationForward(ActivationFunction::kSilu, gate_up, y);
      Tensor dgate_up = b.Values({c.rows, 2 * c.columns});
      GatedActivationBackward(ActivationFunction::kSilu, gate_up, y, dgate_up);
      return std::vector<Tensor>{y, dgate_up};
    });
  }
}

TEST(RowKernelsTest, RopeOfManyAndOfLargeHeads) {
  for (const AttentionShape& s :
       {AttentionShape{{2, 9}, 40, 8, 96}, AttentionShape{{1, 3}, 5, 1, 1024},
        AttentionShape{{3, 600}, 1, 1, 16}}) {
    for (const bool inverse : {false, true}) {
      ExpectSame({DType::kBf16, s.tokens(), s.qkv_size(), 0}, [&](Bench& b) {
        Tensor qkv = b.Values({s.tokens(), s.qkv_size()});
        Rope(s, 10000.0, inverse, qkv);
        return std::vector<Tensor>{qkv};
      });
    }
  }
}

TEST(RowKernelsTest, RopeIntoFp8OfManyTiles) {
  // A block has several tiles of the same tokens.
  const AttentionShape kShape = {{2, 150}, 40, 8, 96};
  ExpectSame({DType::kBf16, kShape.tokens(), kShape.qkv_size(), 0}, [&](Bench& b) {
    const Shape matrix = {kShape.tokens(), kShape.qkv_size()};
    Fp8Output out = {.rows = b.Values(matrix, DType::kF8E5M2),
                     .transposed = b.Values({matrix[1], matrix[0]}, DType::kF8E5M2),
                     .amax = b.Scalar(0.0f)};
    RopeBackwardFp8(kShape, 10000.0, b.Values(matrix), b.Scalar(40.0f), out);
    return std::vector<Tensor>{out.rows, out.transposed, out.amax};
  });
}

TEST(RowKernelsTest, JoinsOfManyHeads) {
  // What does not turn are whole packs or not, and more than a block copies at once.
  for (const int64_t fixed : {64, 65}) {
    const AttentionShape s = {.rows = {1, 3},
                              .heads = 140,
                              .kv_heads = 140,
                              .head_size = fixed + 8,
                              .value_head_size = fixed};
    Rotary rotary(10000.0);
    rotary.dims = 8;
    ExpectSame({DType::kBf16, s.tokens(), s.qkv_size(), 0}, [&](Bench& b) {
      const Shape joined = JoinedKeyValueShape(s, rotary.dims);
      Tensor qkv = b.Values({s.tokens(), s.qkv_size()});
      JoinHeads(s, rotary, b.Values({s.tokens(), s.query_size()}), b.Values(joined),
                b.Values({s.tokens(), rotary.dims}), qkv);
      Tensor dquery = b.Values({s.tokens(), s.query_size()});
      Tensor dkey_value = b.Values(joined);
      Tensor dturning = b.Values({s.tokens(), rotary.dims});
      JoinHeadsBackward(s, rotary, b.Values({s.tokens(), s.qkv_size()}), dquery, dkey_value,
                        dturning);
      return std::vector<Tensor>{qkv, dquery, dkey_value, dturning};
    });
  }
}

TEST(RowKernelsTest, RopeOfLatePositions) {
  const AttentionShape kShape = {{1, 131072}, 1, 1, 4};
  ExpectSame({DType::kF32, kShape.tokens(), kShape.qkv_size(), 0}, [&](Bench& b) {
    Tensor qkv = b.Values({kShape.tokens(), kShape.qkv_size()});
    Rope(kShape, 10000.0, false, qkv);
    return std::vector<Tensor>{qkv.Slice(kShape.qkv_size() * 131000, {72, kShape.qkv_size()})};
  });
}

TEST(RowKernelsTest, BiasGradientOfManyRows) {
  for (const Case& c : {Case{DType::kBf16, 1003, 264, 0}, Case{DType::kF32, 700, 33, 0},
                        Case{DType::kF16, 300, 776, 1}}) {
    ExpectSame(c, [&c](Bench& b) {
      Tensor dbias = b.Values({c.columns}, DType::kF32);
      BiasBackward(b.Values({c.rows, c.columns}), dbias, true);
      return std::vector<Tensor>{dbias};
    });
  }
}

}  // namespace
}  // namespace trimtab
