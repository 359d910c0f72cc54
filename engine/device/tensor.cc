#include "engine/device/tensor.h"

#include <algorithm>
#include <vector>

#include "engine/base/float16.h"

namespace trimtab {

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    text += fmt::format("{}{}", i > 0 ? ", " : "", dims_[static_cast<size_t>(i)]);
  }
  return text + "]";
}

Tensor Tensor::Empty(Device& device, const Shape& shape, DType dtype, MemoryTag tag) {
  Tensor tensor;
  tensor.shape_ = shape;
  tensor.dtype_ = dtype;
  tensor.storage_ = device.Allocate(shape.numel() * SizeOf(dtype), tag);
  return tensor;
}

Tensor Tensor::Slice(int64_t offset, const Shape& shape) const {
  TRIMTAB_ASSERT(offset >= 0 && offset + shape.numel() <= numel(),
                 "slice {} at element {} passes the end of {}", shape.ToString(), offset,
                 shape_.ToString());
  Tensor slice = *this;
  slice.offset_ += offset;
  slice.shape_ = shape;
  return slice;
}

Tensor Tensor::Rows(int64_t first, int64_t count) const {
  TRIMTAB_ASSERT(shape_.rank() == 2, "rows of {}, which is no matrix", shape_.ToString());
  return Slice(first * shape_[1], {count, shape_[1]});
}

void* Tensor::raw() const {
  TRIMTAB_ASSERT(defined(), "an undefined tensor has no data");
  char* base = static_cast<char*>(storage_->data());
  return base == nullptr ? nullptr : base + offset_ * SizeOf(dtype_);
}

namespace {

void CopyIn(Tensor& tensor, DType dtype, const void* values, size_t count) {
  TRIMTAB_ASSERT(tensor.dtype() == dtype && tensor.numel() == static_cast<int64_t>(count),
                 "copying {} values of {} into {} {}", count, Name(dtype), Name(tensor.dtype()),
                 tensor.shape().ToString());
  tensor.device().CopyFromHost(tensor.raw(), values, tensor.bytes());
}

void RequireSixteenBits(const Tensor& tensor) {
  TRIMTAB_ASSERT(tensor.dtype() == DType::kBf16 || tensor.dtype() == DType::kF16,
                 "floats do not stand for the values of {} {}", Name(tensor.dtype()),
                 tensor.shape().ToString());
}

}  // namespace

void CopyFromHost(Tensor& tensor, std::span<const float> values) {
  const DType dtype = tensor.dtype();
  if (dtype == DType::kF32) return CopyIn(tensor, dtype, values.data(), values.size());
  RequireSixteenBits(tensor);
  std::vector<uint16_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(),
                 dtype == DType::kBf16 ? FloatToBf16 : FloatToF16);
  CopyIn(tensor, dtype, bits.data(), bits.size());
}

void CopyFromHost(Tensor& tensor, std::span<const int32_t> values) {
  CopyIn(tensor, DType::kI32, values.data(), values.size());
}

void CopyToHost(const Tensor& tensor, std::span<float> values) {
  TRIMTAB_ASSERT(tensor.numel() == static_cast<int64_t>(values.size()),
                 "copying {} {} to {} floats", Name(tensor.dtype()), tensor.shape().ToString(),
                 values.size());
  if (tensor.dtype() == DType::kF32) {
    return tensor.device().CopyToHost(values.data(), tensor.raw(), tensor.bytes());
  }
  RequireSixteenBits(tensor);
  std::vector<uint16_t> bits(values.size());
  tensor.device().CopyToHost(bits.data(), tensor.raw(), tensor.bytes());
  std::transform(bits.begin(), bits.end(), values.begin(),
                 tensor.dtype() == DType::kBf16 ? Bf16ToFloat : F16ToFloat);
}

void CopyBytesFromHost(Tensor& tensor, std::span<const std::byte> bytes) {
  TRIMTAB_ASSERT(tensor.bytes() == static_cast<int64_t>(bytes.size()), "copying {} bytes to {} {}",
                 bytes.size(), Name(tensor.dtype()), tensor.shape().ToString());
  tensor.device().CopyFromHost(tensor.raw(), bytes.data(), tensor.bytes());
}

void CopyBytesToHost(const Tensor& tensor, std::span<std::byte> bytes) {
  TRIMTAB_ASSERT(tensor.bytes() == static_cast<int64_t>(bytes.size()), "copying {} {} to {} bytes",
                 Name(tensor.dtype()), tensor.shape().ToString(), bytes.size());
  tensor.device().CopyToHost(bytes.data(), tensor.raw(), tensor.bytes());
}

}  // namespace trimtab
