// XXH64: the checksum of checkpoint files, the same as `xxhsum -H64` prints.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace trimtab {

/// XXH64 with seed 0 (xxHash specification 0.1.1, sections "XXH64 algorithm description").
uint64_t Xxh64(std::span<const std::byte> data);

/// 16 lower-case hexadecimal digits.
std::string Xxh64Hex(std::span<const std::byte> data);

}  // namespace trimtab
