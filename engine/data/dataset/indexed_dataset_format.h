// Constants of the .idx format, shared by its reader and its builder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trimtab::idx {

inline constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
inline constexpr uint64_t kVersion = 1;
/// Magic, version, type code, sequence count, document count.
inline constexpr int64_t kHeaderBytes = 9 + 8 + 1 + 8 + 8;

inline std::string BinPath(const std::string& prefix) { return prefix + ".bin"; }
inline std::string IdxPath(const std::string& prefix) { return prefix + ".idx"; }
inline std::string InfoPath(const std::string& prefix) { return prefix + ".json"; }

}  // namespace trimtab::idx
