// A vector whose first elements stand in the object itself: short lists that are made by the
// thousand ask nobody for memory.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <initializer_list>
#include <type_traits>
#include <utility>
#include <vector>

namespace trimtab {

/// Up to `kInline` elements in place; all of them elsewhere once there are more.
template <typename T, size_t kInline>
class InlineVector {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_default_constructible_v<T>);

 public:
  InlineVector() {}  // NOLINT(modernize-use-equals-default): leaves few_ as it is
  InlineVector(const InlineVector& other) : many_(other.many_), size_(other.size_) {
    CopyFew(other);
  }
  InlineVector(InlineVector&& other) noexcept : many_(std::move(other.many_)), size_(other.size_) {
    CopyFew(other);
  }
  InlineVector& operator=(const InlineVector& other) {
    many_ = other.many_;
    size_ = other.size_;
    CopyFew(other);
    return *this;
  }
  InlineVector(std::initializer_list<T> values) {
    for (const T& value : values) push_back(value);
  }

  void push_back(const T& value) {
    if (size_ < kInline) {
      few_[size_++] = value;
      return;
    }
    if (size_ == kInline) many_.assign(few_.begin(), few_.end());
    many_.push_back(value);
    ++size_;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  const T* begin() const { return size_ <= kInline ? few_.data() : many_.data(); }
  const T* end() const { return begin() + size_; }
  const T& operator[](size_t i) const { return begin()[i]; }

  friend bool operator==(const InlineVector& a, const InlineVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  /// Of short lists, only what is there is copied.
  void CopyFew(const InlineVector& other) {
    if (size_ > kInline) return;
    std::copy(other.few_.begin(), other.few_.begin() + static_cast<std::ptrdiff_t>(size_),
              few_.begin());
  }

  std::array<T, kInline> few_;  // the first size_ of it
  std::vector<T> many_;         // all elements, where there are more than kInline
  size_t size_ = 0;
};

}  // namespace trimtab
