// Tensor: a dense row-major view of one Storage. Copying a Tensor shares the memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "engine/base/dtype.h"
#include "engine/base/error.h"
#include "engine/device/device.h"

namespace trimtab {

/// Up to four dimensions, outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 4;

  Shape() = default;
  // Inlined, like what follows: dry runs make shapes and compare them by the million.
  Shape(std::initializer_list<int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    TRIMTAB_ASSERT(rank_ <= kMaxRank, "a shape has at most {} dimensions, got {}", kMaxRank, rank_);
    std::copy(dims.begin(), dims.end(), dims_.begin());
  }

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[static_cast<size_t>(i)]; }
  /// Product of all dimensions; 1 for rank 0.
  int64_t numel() const {
    int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= dims_[static_cast<size_t>(i)];
    return product;
  }
  /// "[4, 64, 768]"
  std::string ToString() const;
  bool operator==(const Shape& other) const {
    return dims_[0] == other.dims_[0] && dims_[1] == other.dims_[1] && dims_[2] == other.dims_[2] &&
           dims_[3] == other.dims_[3] && rank_ == other.rank_;
  }

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

class Tensor {
 public:
  Tensor() = default;  // undefined: defined() is false

  /// Uninitialised memory on `device`, counted under `tag`.
  static Tensor Empty(Device& device, const Shape& shape, DType dtype, MemoryTag tag);

  bool defined() const { return storage_ != nullptr; }
  Device& device() const { return storage_->device(); }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t dim(int i) const { return shape_[i]; }
  int64_t numel() const { return shape_.numel(); }
  int64_t bytes() const { return numel() * SizeOf(dtype_); }

  /// `shape.numel()` elements starting `offset` elements into this tensor; shares the memory.
  Tensor Slice(int64_t offset, const Shape& shape) const;
  /// `count` rows of this matrix [rows, columns], from row `first` on.
  Tensor Rows(int64_t first, int64_t count) const;
  /// The same elements under another shape of equal numel.
  Tensor Reshape(const Shape& shape) const { return Slice(0, shape); }

  /// Address of the first element; nullptr on meta.
  void* raw() const;
  float* f32() const { return Typed<float>(DType::kF32); }
  int32_t* i32() const { return Typed<int32_t>(DType::kI32); }
  /// Raw bits of bf16, fp16 or uint16.
  uint16_t* u16() const {
    TRIMTAB_ASSERT(SizeOf(dtype_) == 2, "tensor is {}, asked for 16-bit values", Name(dtype_));
    return static_cast<uint16_t*>(raw());
  }

 private:
  template <typename T>
  T* Typed(DType expected) const {
    TRIMTAB_ASSERT(dtype_ == expected, "tensor is {}, asked for {}", Name(dtype_), Name(expected));
    return static_cast<T*>(raw());
  }

  std::shared_ptr<Storage> storage_;
  int64_t offset_ = 0;  // elements
  Shape shape_;
  DType dtype_ = DType::kF32;
};

/// Copies host values into `tensor` (same count). bf16 and fp16 take and give floats: rounded to
/// nearest even on the way in, exact on the way out.
void CopyFromHost(Tensor& tensor, std::span<const float> values);
void CopyFromHost(Tensor& tensor, std::span<const int32_t> values);
void CopyToHost(const Tensor& tensor, std::span<float> values);

/// Copy what `tensor` stores, whatever its type: as many bytes.
void CopyBytesFromHost(Tensor& tensor, std::span<const std::byte> bytes);
void CopyBytesToHost(const Tensor& tensor, std::span<std::byte> bytes);

}  // namespace trimtab
