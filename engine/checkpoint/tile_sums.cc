#include "engine/checkpoint/tile_sums.h"

#include <bit>
#include <cstring>
#include <new>

#include "engine/base/error.h"
#include "engine/base/mix.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr int64_t kTileColumns = 1024;
constexpr int64_t kTileElements = 64 * kTileColumns;

static_assert(std::endian::native == std::endian::little, "sums are stored as they are");

/// Adds up elements that follow each other in a tile, from position `within` on. The mixed number
/// has the position in its upper half, so an element that moved shows too.
template <typename Stored>
uint64_t SumOf(const std::byte* from, int64_t count, int64_t within) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    Stored stored;
    std::memcpy(&stored, from + i * static_cast<int64_t>(sizeof(Stored)), sizeof(Stored));
    sum += MixBits(static_cast<uint64_t>(within + i) << 32 | stored);
  }
  return sum;
}

uint64_t SumOf(int64_t element_bytes, const std::byte* from, int64_t count, int64_t within) {
  switch (element_bytes) {
    case 1:
      return SumOf<uint8_t>(from, count, within);
    case 2:
      return SumOf<uint16_t>(from, count, within);
    default:
      break;
  }
  TRIMTAB_ASSERT(element_bytes == 4, "elements of {} bytes have no checksums", element_bytes);
  return SumOf<uint32_t>(from, count, within);
}

int64_t ElementBytes(const SafetensorsEntry& entry) {
  TRIMTAB_ASSERT(entry.dtype, "{} has no type that is known", entry.name);
  return SizeOf(*entry.dtype);
}

}  // namespace

TileGrid::TileGrid(const SafetensorsEntry& entry) {
  const int64_t numel = entry.numel();
  columns_ = entry.shape.empty() || entry.shape.back() <= 1 ? numel : entry.shape.back();
  if (numel == 0) return;
  rows_ = numel / columns_;
  tile_columns_ = std::min(columns_, kTileColumns);
  tile_rows_ = kTileElements / tile_columns_;
  across_ = CeilDiv(columns_, tile_columns_);
  down_ = CeilDiv(rows_, tile_rows_);
}

std::string TileGrid::Describe(int64_t tile) const {
  const int64_t row = tile / across_ * tile_rows_;
  const int64_t column = tile % across_ * tile_columns_;
  return fmt::format("rows {} to {}, columns {} to {}", row, std::min(row + tile_rows_, rows_) - 1,
                     column, std::min(column + tile_columns_, columns_) - 1);
}

TileIndex::TileIndex(std::span<const SafetensorsEntry> entries) {
  std::vector<const SafetensorsEntry*> ordered;
  for (const SafetensorsEntry& entry : entries) ordered.push_back(&entry);
  std::stable_sort(ordered.begin(), ordered.end(), [](const auto* a, const auto* b) {
    return a->begin != b->begin ? a->begin < b->begin : a->name < b->name;  // some are empty
  });
  for (const SafetensorsEntry* entry : ordered) {
    const TileGrid grid(*entry);
    places_.emplace(entry->name, Place{grid, count_});
    count_ += grid.count();
  }
}

const TileIndex::Place& TileIndex::Find(const SafetensorsEntry& entry) const {
  const auto found = places_.find(entry.name);
  TRIMTAB_ASSERT(found != places_.end(), "no checksums of a tensor {}", entry.name);
  return found->second;
}

TileSums::TileSums(std::span<const SafetensorsEntry> entries)
    : index_(entries),
      sums_(static_cast<uint64_t*>(
          std::calloc(static_cast<size_t>(index_.count()) + 1, sizeof(uint64_t)))) {
  if (sums_ == nullptr) throw std::bad_alloc();
}

void TileSums::Add(const SafetensorsEntry& entry, int64_t element,
                   std::span<const std::byte> stored) {
  const TileIndex::Place& place = index_.Find(entry);
  const int64_t bytes = ElementBytes(entry);
  const int64_t end = element + std::ssize(stored) / bytes;
  place.grid.ForEachRun(
      element, end, [&](int64_t tile, int64_t within, int64_t first, int64_t count) {
        const uint64_t sum = SumOf(bytes, stored.data() + (first - element) * bytes, count, within);
        std::atomic_ref(sums_[static_cast<size_t>(place.first + tile)])
            .fetch_add(sum, std::memory_order_relaxed);
      });
}

void TileSums::Add(std::span<const PlacedSum> sums) {
  for (const PlacedSum& each : sums) {
    TRIMTAB_ASSERT(each.place < static_cast<uint64_t>(index_.count()), "tile {} of {}", each.place,
                   index_.count());
    sums_[each.place] += each.sum;
  }
}

std::vector<PlacedSum> TileSums::Placed() const {
  std::vector<PlacedSum> placed;
  for (uint64_t place = 0; place < static_cast<uint64_t>(index_.count()); ++place) {
    if (sums_[place] != 0) placed.push_back({place, sums_[place]});
  }
  return placed;
}

std::span<const std::byte> TileSums::bytes() const {
  return std::as_bytes(std::span(sums_.get(), static_cast<size_t>(index_.count())));
}

TileChecks::TileChecks(std::span<const SafetensorsEntry> entries, std::span<const std::byte> kept,
                       const std::string& where)
    : index_(entries),
      kept_(static_cast<size_t>(index_.count())),
      checked_(static_cast<size_t>(index_.count())) {
  const size_t expected = kept_.size() * sizeof(uint64_t);
  if (kept.size() != expected) {
    throw InputError(fmt::format("{}: {} bytes; expected {}, for {} tiles", where, kept.size(),
                                 expected, kept_.size()));
  }
  if (expected > 0) std::memcpy(kept_.data(), kept.data(), expected);
}

void TileChecks::Check(const SafetensorsEntry& entry, std::span<const std::byte> stored,
                       int64_t begin, int64_t end, const std::string& path) {
  const TileIndex::Place& place = index_.Find(entry);
  const int64_t bytes = ElementBytes(entry);
  place.grid.ForEachRun(begin, end, [&](int64_t tile, int64_t, int64_t, int64_t) {
    const auto index = static_cast<size_t>(place.first + tile);
    if (checked_[index].load(std::memory_order_acquire)) return;
    uint64_t sum = 0;
    place.grid.ForEachRunOf(tile, [&](int64_t within, int64_t element, int64_t count) {
      sum += SumOf(bytes, stored.data() + element * bytes, count, within);
    });
    if (sum != kept_[index]) {
      throw StorageError(
          fmt::format("{}: tensor '{}', {}: checksum {:016x}; expected {:016x}: it was damaged or "
                      "replaced since it was written",
                      path, entry.name, place.grid.Describe(tile), sum, kept_[index]));
    }
    checked_[index].store(true, std::memory_order_release);
  });
}

}  // namespace trimtab
