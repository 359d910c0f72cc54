#include "engine/ops/packed/packed_gemm.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/float16.h"
#include "engine/base/float8.h"
#include "engine/base/units.h"
#include "engine/ops/cpu/packed/packed_gemm.h"
#include "engine/ops/cuda_ops.h"
#include "engine/ops/dispatch.h"
#include "engine/ops/elementwise/widen.h"

namespace trimtab {
namespace {

struct FormatRow {
  WeightFormat format;
  std::string_view name;
  DType stored;
  float largest;         // of the numbers, where they have scales; 0 without
  bool scale_per_group;  // not only per row
};
constexpr std::array<FormatRow, 6> kFormats = {{
    {WeightFormat::kF32, "fp32", DType::kF32, 0, false},
    {WeightFormat::kBf16, "bf16", DType::kBf16, 0, false},
    {WeightFormat::kF16, "fp16", DType::kF16, 0, false},
    {WeightFormat::kF8, "fp8", DType::kF8E4M3, 448, false},
    {WeightFormat::kInt8, "int8", DType::kI8, 127, false},
    {WeightFormat::kInt4, "int4", DType::kU8, 7, true},
}};

const FormatRow& RowOf(WeightFormat format) { return kFormats[static_cast<size_t>(format)]; }

constexpr int64_t kWordBytes = 4;

/// Words that hold one row of W.
int64_t RowWords(const PackedMatrix& packed) {
  return CeilDiv(packed.in, WordColumns(packed.format));
}

/// Bytes of the numbers of one panel.
int64_t PanelBytes(const PackedMatrix& packed) {
  return RowWords(packed) * kPanelRows * kWordBytes;
}

/// To the nearest number of the format, which has a scale.
float Rounded(const FormatRow& format, float value) {
  if (format.format == WeightFormat::kF8) return E4M3ToFloat(FloatToE4M3(value));
  return static_cast<float>(std::lrint(std::clamp(value, -format.largest, format.largest)));
}

/// Number `value` of row `row` of a panel, column `column` of the matrix.
void PutNumber(WeightFormat format, int64_t column, int64_t row, float value, std::byte* panel) {
  const int64_t index = PanelIndex(WordColumns(format), column, row);
  const auto put = [&](auto number) {
    std::memcpy(panel + index * static_cast<int64_t>(sizeof(number)), &number, sizeof(number));
  };
  switch (format) {
    case WeightFormat::kF32:
      return put(value);
    case WeightFormat::kBf16:
      return put(FloatToBf16(value));
    case WeightFormat::kF16:
      return put(FloatToF16(value));
    case WeightFormat::kF8:
      return put(FloatToE4M3(value));
    case WeightFormat::kInt8:
      return put(static_cast<int8_t>(value));
    case WeightFormat::kInt4:
      break;
  }
  const uint32_t bits = (static_cast<uint32_t>(static_cast<int>(value)) & 0xf) ^ Int4Flip(column);
  panel[index / 2] |= static_cast<std::byte>(bits << (index % 2 * 4));
}

/// The scale of columns [begin, end) of a row.
float ScaleOf(const FormatRow& format, std::span<const float> row) {
  float largest = 0;
  for (const float value : row) largest = std::max(largest, std::abs(value));
  return largest > 0 ? largest / format.largest : 1.0f;
}

void CheckProduct(OpKind op, const Tensor& x, const PackedMatrix& weight, const Tensor& y) {
  CheckMatrix(op, "x", x);
  CheckMatrix(op, "y", y);
  CheckPlainFloat(op, "x", x);
  Device& device = y.device();
  const FormatRow& format = RowOf(weight.format);
  CheckOperand(op, "x", x, {y.dim(0), weight.in}, device, x.dtype());
  CheckOperand(op, "y", y, {x.dim(0), weight.out}, device, y.dtype());
  TRIMTAB_ASSERT(y.dtype() == x.dtype() || y.dtype() == DType::kF32,
                 "{}: y is {}, x is {}, expected the same or fp32", Name(op), Name(y.dtype()),
                 Name(x.dtype()));
  CheckOperand(op, "values", weight.values, weight.values.shape(), device, format.stored);
  if (weight.input_scales.defined()) {
    CheckOperand(op, "input_scales", weight.input_scales, {weight.in}, device);
  }
}

/// y: each group of rows of x times the matrix of its own, on the cpu.
void MultiplyCpu(const PackedMatrix& weights, GroupRows rows, const float* x, const float* bias,
                 Tensor& y) {
  const Multiplier multiplier = MultiplierOf(weights.format);
  HostFloats scratch(PackedGemmScratchCpu(multiplier, weights, rows));
  PackedGemmCpu(multiplier, y.device().threads(), weights, rows, x, bias, F32Out(y).data(),
                scratch.data());
}

OpRecord Record(OpKind kind, int64_t m, const PackedMatrix& weight, DType dtype) {
  return {.kind = kind,
          .dtype = dtype,
          .dims = {CeilDiv(m, weight.matrices), weight.out, weight.in, weight.matrices},
          .flops = 2 * m * weight.out * weight.in,
          .bytes = m * (weight.in + weight.out) * SizeOf(dtype) + weight.bytes()};
}

}  // namespace

std::string_view Name(WeightFormat format) { return RowOf(format).name; }

int64_t PackedMatrix::panels() const { return CeilDiv(out, kPanelRows); }

int64_t ScalesOf(WeightFormat format, int64_t in) {
  const FormatRow& row = RowOf(format);
  if (row.largest == 0) return 0;
  return row.scale_per_group ? in / kInt4Group : 1;
}

int64_t PackedMatrix::groups() const { return ScalesOf(format, in); }

int64_t PackedMatrix::bytes() const {
  return values.bytes() + (scales.defined() ? scales.bytes() : 0) +
         (input_scales.defined() ? input_scales.bytes() : 0);
}

PackedMatrix NewPackedMatrix(Device& device, WeightFormat format, int64_t matrices, int64_t out,
                             int64_t in) {
  TRIMTAB_ASSERT(format != WeightFormat::kInt4 || in % kInt4Group == 0,
                 "{} columns in groups of {}", in, kInt4Group);
  PackedMatrix packed = {.format = format,
                         .matrices = matrices,
                         .out = out,
                         .in = in,
                         .values = {},
                         .scales = {},
                         .input_scales = {}};
  const DType stored = RowOf(format).stored;
  const int64_t width = kPanelRows * kWordBytes / SizeOf(stored);
  packed.values = Tensor::Empty(device, {matrices, packed.panels(), RowWords(packed), width},
                                stored, MemoryTag::kWeights);
  if (packed.groups() > 0) {
    packed.scales = Tensor::Empty(device, {matrices, packed.panels(), packed.groups(), kPanelRows},
                                  DType::kF32, MemoryTag::kWeights);
  }
  return packed;
}

void RoundRow(WeightFormat format, std::span<const float> row, std::span<float> numbers,
              std::span<float> scales) {
  const FormatRow& rules = RowOf(format);
  if (scales.empty()) {
    std::copy(row.begin(), row.end(), numbers.begin());
    return;
  }
  const size_t group = row.size() / scales.size();
  for (size_t g = 0; g < scales.size(); ++g) {
    const auto values = row.subspan(g * group, group);
    scales[g] = ScaleOf(rules, values);
    for (size_t i = 0; i < group; ++i) {
      numbers[g * group + i] = Rounded(rules, values[i] / scales[g]);
    }
  }
}

void PackWeights(std::span<const float> weights, int64_t index, PackedMatrix& packed) {
  TRIMTAB_ASSERT(std::ssize(weights) == packed.out * packed.in && index < packed.matrices,
                 "{} weights as matrix {} of {}, {} by {}", weights.size(), index, packed.matrices,
                 packed.out, packed.in);
  Device& device = packed.values.device();
  if (device.kind() == DeviceKind::kMeta) return;
  const int64_t groups = packed.groups();
  std::vector<float> numbers(static_cast<size_t>(packed.in));
  std::vector<float> row_scales(static_cast<size_t>(groups));
  const int64_t panel_bytes = PanelBytes(packed);
  std::vector<std::byte> panel(static_cast<size_t>(panel_bytes));
  std::vector<float> scales(static_cast<size_t>(groups * kPanelRows));
  auto* target = static_cast<std::byte*>(packed.values.raw());
  for (int64_t p = 0; p < packed.panels(); ++p) {
    std::fill(panel.begin(), panel.end(), std::byte{0});
    std::fill(scales.begin(), scales.end(), 1.0f);
    const int64_t rows = std::min(kPanelRows, packed.out - p * kPanelRows);
    for (int64_t row = 0; row < rows; ++row) {
      const auto values = weights.subspan(static_cast<size_t>((p * kPanelRows + row) * packed.in),
                                          static_cast<size_t>(packed.in));
      RoundRow(packed.format, values, numbers, row_scales);
      for (int64_t g = 0; g < groups; ++g) {
        scales[static_cast<size_t>(g * kPanelRows + row)] = row_scales[static_cast<size_t>(g)];
      }
      for (int64_t column = 0; column < packed.in; ++column) {
        PutNumber(packed.format, column, row, numbers[static_cast<size_t>(column)], panel.data());
      }
    }
    const int64_t at = index * packed.panels() + p;
    device.CopyFromHost(target + at * panel_bytes, panel.data(), panel_bytes);
    if (groups == 0) continue;
    Tensor part = packed.scales.Slice(at * std::ssize(scales), {std::ssize(scales)});
    CopyFromHost(part, scales);
  }
}

void UnpackWeights(const PackedMatrix& packed, int64_t index, std::span<float> weights) {
  Device& device = packed.values.device();
  const int64_t panel_bytes = PanelBytes(packed);
  const int64_t panel_scales = packed.groups() * kPanelRows;
  std::vector<std::byte> panel(static_cast<size_t>(panel_bytes));
  std::vector<float> scales(static_cast<size_t>(panel_scales));
  std::vector<float> block(static_cast<size_t>(packed.in * kPanelRows));
  const auto* source = static_cast<const std::byte*>(packed.values.raw());
  for (int64_t p = 0; p < packed.panels(); ++p) {
    const int64_t at = index * packed.panels() + p;
    device.CopyToHost(panel.data(), source + at * panel_bytes, panel_bytes);
    if (panel_scales > 0)
      CopyToHost(packed.scales.Slice(at * panel_scales, {panel_scales}), scales);
    UnpackColumns(packed.format, panel.data(), scales.empty() ? nullptr : scales.data(), 0,
                  packed.in, block.data());
    const int64_t rows = std::min(kPanelRows, packed.out - p * kPanelRows);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < packed.in; ++column) {
        weights[static_cast<size_t>((p * kPanelRows + row) * packed.in + column)] =
            block[static_cast<size_t>(column * kPanelRows + row)];
      }
    }
  }
}

OpRecord PackedGemmRecord(int64_t m, const PackedMatrix& weight, DType dtype) {
  return Record(OpKind::kPackedGemm, m, weight, dtype);
}
OpRecord GroupedPackedGemmRecord(int64_t m, const PackedMatrix& weights, DType dtype) {
  return Record(OpKind::kGroupedPackedGemm, m, weights, dtype);
}

void PackedGemm(const Tensor& x, const PackedMatrix& weight, const Tensor& bias, Tensor& y) {
  constexpr OpKind kOp = OpKind::kPackedGemm;
  CheckProduct(kOp, x, weight, y);
  TRIMTAB_ASSERT(weight.matrices == 1, "packed_gemm: {} matrices, expected one", weight.matrices);
  Device& device = y.device();
  if (bias.defined()) CheckOperand(kOp, "bias", bias, {weight.out}, device, y.dtype());
  const OpScope scope(device, PackedGemmRecord(x.dim(0), weight, x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    return CudaKernel(device, kOp, &CudaOps::packed_gemm)(x, weight, bias, y);
  }
  if (device.kind() != DeviceKind::kCpu) return;
  const int64_t rows = x.dim(0);
  const F32In x32(x);
  const float* input = x32.data();
  HostFloats scaled(weight.input_scales.defined() ? x.numel() : 0);
  if (weight.input_scales.defined()) {
    ScaleInputsCpu(device.threads(), rows, weight.in, weight.input_scales.f32(), input,
                   scaled.data());
    input = scaled.data();
  }
  MultiplyCpu(weight, std::span(&rows, 1), input, F32In(bias).data(), y);
}

void GroupedPackedGemm(const Tensor& x, const PackedMatrix& weights, GroupRows rows, Tensor& y) {
  constexpr OpKind kOp = OpKind::kGroupedPackedGemm;
  CheckProduct(kOp, x, weights, y);
  int64_t all = 0;
  for (const int64_t each : rows) all += each;
  TRIMTAB_ASSERT(!weights.input_scales.defined(), "grouped_packed_gemm: inputs have no scales");
  TRIMTAB_ASSERT(std::ssize(rows) == weights.matrices && all == x.dim(0),
                 "grouped_packed_gemm: {} groups with {} rows, expected {} with {}", rows.size(),
                 all, weights.matrices, x.dim(0));
  Device& device = y.device();
  const OpScope scope(device, GroupedPackedGemmRecord(x.dim(0), weights, x.dtype()));
  if (device.kind() == DeviceKind::kCuda) {
    const auto gemm = CudaKernel(device, kOp, &CudaOps::packed_gemm);
    int64_t first = 0;
    for (int64_t g = 0; g < weights.matrices; first += rows[static_cast<size_t>(g++)]) {
      const int64_t count = rows[static_cast<size_t>(g)];
      if (count == 0) continue;
      Tensor part = y.Rows(first, count);
      gemm(x.Rows(first, count), MatrixOf(weights, g), {}, part);
    }
    return;
  }
  if (device.kind() != DeviceKind::kCpu) return;
  MultiplyCpu(weights, rows, F32In(x).data(), /*bias=*/nullptr, y);
}

PackedMatrix MatrixOf(const PackedMatrix& packed, int64_t index) {
  const auto part = [&](const Tensor& all) {
    if (!all.defined()) return all;
    const Shape shape = {1, all.dim(1), all.dim(2), all.dim(3)};
    return all.Slice(index * shape.numel(), shape);
  };
  PackedMatrix matrix = packed;
  matrix.matrices = 1;
  matrix.values = part(packed.values);
  matrix.scales = part(packed.scales);
  return matrix;
}

}  // namespace trimtab
