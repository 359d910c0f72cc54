// Checksums of the tensors of a safetensors file, one for each tile of at most 64 x 1024 elements.
//
// A tile's checksum is a sum over its elements, so ranks add up the elements that each of them
// writes, in any order and in any layout, and a rank that reads a tile needs no other part of the
// file.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/checkpoint/safetensors.h"

namespace trimtab {

/// Cuts a tensor into tiles. The last dimension gives the columns, the others the rows; a
/// tensor of one column, or of one dimension, is a single row.
class TileGrid {
 public:
  explicit TileGrid(const SafetensorsEntry& entry);

  int64_t count() const { return across_ * down_; }
  /// Visits the runs of elements [begin, end) that lie in one tile each, in order:
  /// visit(tile, position of the first element in the tile, the element, count).
  template <typename Visit>
  void ForEachRun(int64_t begin, int64_t end, const Visit& visit) const;
  /// Visits the runs of one tile: visit(position in the tile, element, count).
  template <typename Visit>
  void ForEachRunOf(int64_t tile, const Visit& visit) const;
  /// Describes a tile in messages: "rows 0 to 63, columns 0 to 1023".
  std::string Describe(int64_t tile) const;

 private:
  int64_t rows_ = 1;
  int64_t columns_ = 1;
  int64_t tile_rows_ = 1;
  int64_t tile_columns_ = 1;
  int64_t across_ = 0;  // tiles beside each other
  int64_t down_ = 0;    // tiles below each other
};

/// The tiles of all tensors of a file: tensors in the order of the file, tiles row by row.
class TileIndex {
 public:
  struct Place {
    TileGrid grid;
    int64_t first = 0;  // tile of the file
  };

  /// `entries` have their positions in the file.
  explicit TileIndex(std::span<const SafetensorsEntry> entries);

  int64_t count() const { return count_; }
  const Place& Find(const SafetensorsEntry& entry) const;

 private:
  std::map<std::string, Place> places_;
  int64_t count_ = 0;
};

/// One sum, and its place among the tiles of the file.
struct PlacedSum {
  uint64_t place = 0;
  uint64_t sum = 0;
};

/// The sums of what a process has written to a file.
class TileSums {
 public:
  explicit TileSums(std::span<const SafetensorsEntry> entries);

  /// Adds elements from `element` on, given as they are stored. Safe from several threads.
  void Add(const SafetensorsEntry& entry, int64_t element, std::span<const std::byte> stored);
  /// Adds what another process wrote. From one thread, while no elements are added.
  void Add(std::span<const PlacedSum> sums);

  /// Returns the sums that are not 0.
  std::vector<PlacedSum> Placed() const;
  /// Returns every sum, as files of checksums hold them: 8 bytes each, little-endian.
  std::span<const std::byte> bytes() const;

 private:
  struct Free {
    void operator()(uint64_t* memory) const { std::free(memory); }
  };

  TileIndex index_;
  // Memory that the system clears when it is first used: most ranks write to few of the tiles.
  std::unique_ptr<uint64_t[], Free> sums_;
};

/// Compares the tiles of a file with the sums that were kept of them, each when it is first read.
class TileChecks {
 public:
  /// Throws InputError, naming `where`, unless `kept` has a sum for each tile of `entries`.
  TileChecks(std::span<const SafetensorsEntry> entries, std::span<const std::byte> kept,
             const std::string& where);

  /// Throws StorageError, naming `path` and the tensor, where a tile with any of elements
  /// [begin, end) is not as it was written. `stored` is the whole tensor. Safe from several
  /// threads.
  void Check(const SafetensorsEntry& entry, std::span<const std::byte> stored, int64_t begin,
             int64_t end, const std::string& path);

 private:
  TileIndex index_;
  std::vector<uint64_t> kept_;
  std::vector<std::atomic<bool>> checked_;
};

template <typename Visit>
void TileGrid::ForEachRun(int64_t begin, int64_t end, const Visit& visit) const {
  while (begin < end) {
    const int64_t row = begin / columns_;
    const int64_t column = begin % columns_;
    const int64_t within = column % tile_columns_;
    const int64_t count = std::min({end - begin, columns_ - column, tile_columns_ - within});
    visit(row / tile_rows_ * across_ + column / tile_columns_,
          row % tile_rows_ * tile_columns_ + within, begin, count);
    begin += count;
  }
}

template <typename Visit>
void TileGrid::ForEachRunOf(int64_t tile, const Visit& visit) const {
  const int64_t row = tile / across_ * tile_rows_;
  const int64_t column = tile % across_ * tile_columns_;
  const int64_t count = std::min(tile_columns_, columns_ - column);
  for (int64_t i = 0; i < std::min(tile_rows_, rows_ - row); ++i) {
    visit(i * tile_columns_, (row + i) * columns_ + column, count);
  }
}

}  // namespace trimtab
