// Memory of a device, kept for the next one who asks.
//
// The driver of a GPU takes milliseconds to give memory and stops the GPU to take it back, the
// kernel takes as long to give fresh pages, and a training step asks for the same sizes over and
// over. So memory is taken from either in large segments, cut into blocks, and blocks that come
// back are joined with free neighbours and kept.
//
// All of a GPU's belongs to one stream: a block that was freed may be handed out at once, because
// whoever gets it works after whoever had it. A block that another stream still uses must be waited
// for by the device's stream before it is freed.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/base/error.h"

namespace trimtab {

/// Where segments come from: a GPU's driver, the system, or in tests a simulation.
class MemorySource {
 public:
  virtual ~MemorySource() = default;
  /// Whose memory it is, for messages: "GPU".
  virtual std::string_view name() const = 0;
  /// Memory aligned to CachingAllocator::kAlignment; nullptr when there is not that much left.
  virtual void* Allocate(int64_t bytes) = 0;
  /// Work that still uses the memory is waited for.
  virtual void Free(void* data) = 0;
};

/// Not thread-safe, like the device it serves.
class CachingAllocator {
 public:
  /// Of every block; requests are rounded up to it.
  static constexpr int64_t kAlignment = 512;
  /// Requests up to this size share segments of their own, so that they do not cut up large blocks.
  static constexpr int64_t kSmallRequest = int64_t{1} << 20;
  static constexpr int64_t kSmallSegment = int64_t{2} << 20;
  /// Larger ones are rounded up to this, ...
  static constexpr int64_t kLargeGranule = int64_t{64} << 10;
  /// ... and segments for them are at least this large where there is room.
  static constexpr int64_t kLargeSegment = int64_t{64} << 20;
  /// A free block above kLargeSegment is cut only for requests of at least this part of it, while
  /// the source has memory: a large block lost to a small request would be missed later.
  static constexpr int64_t kLargestCut = 8;

  /// `source` must outlive the allocator.
  explicit CachingAllocator(MemorySource& source);
  /// Returns every segment without a block in use. The others stay until the process ends: after a
  /// failure somebody may still read and write there, such as MPI.
  ~CachingAllocator();
  CachingAllocator(const CachingAllocator&) = delete;
  CachingAllocator& operator=(const CachingAllocator&) = delete;

  /// At least `bytes` (> 0). Where neither cached nor fresh memory suffices, cached segments are
  /// given back and the source is asked again; then it throws OutOfMemoryError that says what was
  /// asked for, what is in use and what is cached.
  void* Allocate(int64_t bytes);
  /// The same, but nullptr instead of an exception.
  void* TryAllocate(int64_t bytes);
  void Free(void* data);

  /// Memory of captures, whose replays write to the same addresses again: a pool that nobody else
  /// gets any of.
  using PoolId = int;
  PoolId NewPool() { return ++last_pool_; }
  /// From now until ClosePool, memory comes from `pool`. What was taken before and is freed
  /// meanwhile is kept for the pool too, because the capture may have used it. Segments are not
  /// given back meanwhile: that would wait for the GPU, which a capture must not.
  /// Allocate does not throw meanwhile: what is captured does not run yet, and whoever captures
  /// must get to the end of it. Where there is no memory it hands out an address within a block
  /// that is in use, and the pool lacks it: what was captured must be thrown away.
  void OpenPool(PoolId pool);
  void ClosePool();
  /// What the pool opened last could not hand out, in bytes.
  int64_t lacked_bytes() const { return lacked_bytes_; }
  /// Of blocks that came from the pool's segments.
  int64_t in_use_bytes(PoolId pool) const;
  /// Its captures are no more: what is free of the pool is free for all, the rest once it is freed.
  void ReleasePool(PoolId pool);

  /// Gives every wholly free segment back to the source, except those of pools.
  void Trim();

  int64_t reserved_bytes() const { return reserved_bytes_; }  // taken from the source
  int64_t in_use_bytes() const { return in_use_bytes_; }      // rounded up, as handed out
  int64_t cached_bytes() const { return reserved_bytes_ - in_use_bytes_; }
  int64_t segment_count() const { return segment_count_; }
  int64_t largest_free_block() const;

 private:
  static constexpr PoolId kMainPool = 0;

  struct Segment {
    PoolId pool = kMainPool;
    bool small = false;
    void* data = nullptr;
    int64_t bytes = 0;
  };
  struct Block {
    char* data = nullptr;
    int64_t bytes = 0;
    bool used = false;
    std::shared_ptr<Segment> segment;
    Block* previous = nullptr;  // neighbours in the segment
    Block* next = nullptr;
  };
  /// Smallest first, so that the first that is large enough fits best; then lowest first, so that
  /// the far ends of segments stay free.
  struct Order {
    bool operator()(const Block* left, const Block* right) const;
  };
  using FreeBlocks = std::set<Block*, Order>;

  FreeBlocks& FreeOf(const Segment& segment);
  Block* FindFree(int64_t bytes, bool small, bool any_size);
  void* Pretend(int64_t bytes);
  OutOfMemoryError Exhausted(int64_t bytes) const;
  Block* TakeSegment(int64_t bytes, bool small);
  Block* NewSegment(int64_t bytes, bool small);
  void Cut(Block* block, int64_t bytes);
  void Put(Block* block);
  void Absorb(Block* block, Block* next);

  MemorySource& source_;
  std::unordered_map<void*, std::unique_ptr<Block>> blocks_;
  std::map<PoolId, std::array<FreeBlocks, 2>> free_;  // of large, of small segments
  std::map<PoolId, std::vector<void*>> held_;         // freed during a capture, not of its pool
  PoolId current_pool_ = kMainPool;
  PoolId last_pool_ = kMainPool;
  std::set<void*> pretended_;  // handed out without memory
  int64_t lacked_bytes_ = 0;
  int64_t refused_bytes_;  // the source had not this much, and nothing was returned to it since
  int64_t reserved_bytes_ = 0;
  int64_t in_use_bytes_ = 0;
  int64_t segment_count_ = 0;
};

}  // namespace trimtab
