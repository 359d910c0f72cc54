// The names of modules and their parameters: "decoder.layers.3.self_attention.linear_qkv.weight".
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <ostream>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace trimtab {

/// A short text without memory of its own, as a model has thousands of them.
class ModuleName {
 public:
  static constexpr size_t kCapacity = 79;

  ModuleName() = default;
  // From texts without a word: names are made of them.
  ModuleName(std::string_view text) { Append(text); }    // NOLINT(google-explicit-constructor)
  ModuleName(const char* text) { Append(text); }         // NOLINT(google-explicit-constructor)
  ModuleName(const std::string& text) { Append(text); }  // NOLINT(google-explicit-constructor)
  // NOLINTNEXTLINE(google-explicit-constructor)
  operator std::string() const { return std::string(view()); }

  std::string_view view() const { return {text_.data(), size_}; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  friend ModuleName operator+(const ModuleName& name, std::string_view text) {
    ModuleName longer = name;
    longer.Append(text);
    return longer;
  }
  friend ModuleName operator+(std::string_view text, const ModuleName& name) {
    return ModuleName(text) + name.view();
  }
  friend bool operator==(const ModuleName& a, const ModuleName& b) { return a.view() == b.view(); }
  friend std::ostream& operator<<(std::ostream& out, const ModuleName& name) {
    return out << name.view();
  }

 private:
  void Append(std::string_view text) {
    TRIMTAB_ASSERT(size_ + text.size() <= kCapacity, "the name {}{} is too long", view(), text);
    std::memcpy(text_.data() + size_, text.data(), text.size());
    size_ += text.size();
  }

  std::array<char, kCapacity> text_;  // the first size_ of it
  unsigned char size_ = 0;
};

}  // namespace trimtab

/// Takes "{}" alone.
template <>
struct fmt::formatter<trimtab::ModuleName> {
  constexpr auto parse(fmt::format_parse_context& context) const { return context.begin(); }
  auto format(const trimtab::ModuleName& name, fmt::format_context& context) const {
    const std::string_view text = name.view();
    return std::copy(text.begin(), text.end(), context.out());
  }
};
