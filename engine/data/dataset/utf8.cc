#include "engine/data/dataset/utf8.h"

#include <fmt/format.h>

#include <utility>

namespace trimtab {
namespace {

constexpr unsigned char kLowest = 0x80;   // of a continuation byte
constexpr unsigned char kHighest = 0xBF;  // of a continuation byte

}  // namespace

bool Utf8Checker::Add(std::string_view piece) {
  for (const char each : piece) {
    const auto byte = static_cast<unsigned char>(each);
    if (missing_ > 0) {
      if (byte < low_ || byte > high_) {
        return Fail(character_, fmt::format("invalid UTF-8 (0x{:02x} within a character)", byte));
      }
      --missing_;
      low_ = kLowest;
      high_ = kHighest;
    } else if (byte == 0 || byte >= kLowest) {
      if (!StartCharacter(byte)) return false;
    }
    ++offset_;
  }
  return true;
}

bool Utf8Checker::Finish() {
  return missing_ == 0 || Fail(character_, "a truncated UTF-8 character");
}

/// The Unicode Standard, table 3-7: which bytes may follow which first byte.
bool Utf8Checker::StartCharacter(unsigned char first) {
  if (first == 0) return Fail(offset_, "a NUL byte");
  if (first < 0xC2 || first > 0xF4) {
    return Fail(offset_, fmt::format("invalid UTF-8 (0x{:02x})", first));
  }
  character_ = offset_;
  missing_ = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
  low_ = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : kLowest;
  high_ = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : kHighest;
  return true;
}

bool Utf8Checker::Fail(int64_t offset, std::string fault) {
  fault_offset_ = offset;
  fault_ = std::move(fault);
  return false;
}

}  // namespace trimtab
