#include "engine/checkpoint/xxh64.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>

namespace trimtab {
namespace {

constexpr uint64_t kPrime1 = 0x9E3779B185EBCA87ULL;
constexpr uint64_t kPrime2 = 0xC2B2AE3D27D4EB4FULL;
constexpr uint64_t kPrime3 = 0x165667B19E3779F9ULL;
constexpr uint64_t kPrime4 = 0x85EBCA77C2B2AE63ULL;
constexpr uint64_t kPrime5 = 0x27D4EB2F165667C5ULL;

static_assert(std::endian::native == std::endian::little, "words are read in the machine's order");

template <typename T>
T Load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

uint64_t Round(uint64_t lane, uint64_t input) {
  return std::rotl(lane + input * kPrime2, 31) * kPrime1;
}

uint64_t Merge(uint64_t hash, uint64_t lane) { return (hash ^ Round(0, lane)) * kPrime1 + kPrime4; }

uint64_t Avalanche(uint64_t hash) {
  hash = (hash ^ (hash >> 33)) * kPrime2;
  hash = (hash ^ (hash >> 29)) * kPrime3;
  return hash ^ (hash >> 32);
}

}  // namespace

uint64_t Xxh64(std::span<const std::byte> data) {
  const std::byte* next = data.data();
  size_t left = data.size();
  uint64_t hash = kPrime5;
  if (left >= 32) {
    uint64_t a = kPrime1 + kPrime2;
    uint64_t b = kPrime2;
    uint64_t c = 0;
    uint64_t d = uint64_t{0} - kPrime1;
    for (; left >= 32; left -= 32, next += 32) {
      a = Round(a, Load<uint64_t>(next));
      b = Round(b, Load<uint64_t>(next + 8));
      c = Round(c, Load<uint64_t>(next + 16));
      d = Round(d, Load<uint64_t>(next + 24));
    }
    hash = std::rotl(a, 1) + std::rotl(b, 7) + std::rotl(c, 12) + std::rotl(d, 18);
    hash = Merge(Merge(Merge(Merge(hash, a), b), c), d);
  }
  hash += data.size();
  for (; left >= 8; left -= 8, next += 8) {
    hash = std::rotl(hash ^ Round(0, Load<uint64_t>(next)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    hash = std::rotl(hash ^ Load<uint32_t>(next) * kPrime1, 23) * kPrime2 + kPrime3;
    next += 4;
    left -= 4;
  }
  for (; left > 0; --left, ++next) {
    hash = std::rotl(hash ^ static_cast<uint64_t>(*next) * kPrime5, 11) * kPrime1;
  }
  return Avalanche(hash);
}

std::string Xxh64Hex(std::span<const std::byte> data) {
  return fmt::format("{:016x}", Xxh64(data));
}

}  // namespace trimtab
