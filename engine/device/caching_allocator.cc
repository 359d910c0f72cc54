#include "engine/device/caching_allocator.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/units.h"

namespace trimtab {
namespace {

constexpr int64_t kNothingRefused = std::numeric_limits<int64_t>::max();
constexpr int64_t kPage = 2 * kMiB;  // what drivers and kernels map at a time

}  // namespace

bool CachingAllocator::Order::operator()(const Block* left, const Block* right) const {
  if (left->bytes != right->bytes) return left->bytes < right->bytes;
  return std::less<>()(left->data, right->data);
}

CachingAllocator::CachingAllocator(MemorySource& source)
    : source_(source), refused_bytes_(kNothingRefused) {}

CachingAllocator::~CachingAllocator() {
  for (const auto& [data, block] : blocks_) {
    const bool whole = block->previous == nullptr && block->next == nullptr;
    if (whole && !block->used) source_.Free(data);
  }
}

CachingAllocator::FreeBlocks& CachingAllocator::FreeOf(const Segment& segment) {
  return free_[segment.pool][segment.small ? 1 : 0];
}

/// The free block of the current pool that fits best. Unless `any_size`, large ones are spared.
CachingAllocator::Block* CachingAllocator::FindFree(int64_t bytes, bool small, bool any_size) {
  const FreeBlocks& blocks = free_[current_pool_][small ? 1 : 0];
  Block least;
  least.bytes = bytes;
  const auto found = blocks.lower_bound(&least);
  if (found == blocks.end()) return nullptr;
  const bool spared = (*found)->bytes > std::max(kLargeSegment, kLargestCut * bytes);
  return spared && !any_size ? nullptr : *found;
}

/// A fresh segment of the current pool as one free block; nullptr when the source has none.
CachingAllocator::Block* CachingAllocator::NewSegment(int64_t bytes, bool small) {
  if (bytes >= refused_bytes_) return nullptr;
  void* data = source_.Allocate(bytes);
  if (data == nullptr) {
    refused_bytes_ = bytes;
    return nullptr;
  }
  auto block = std::make_unique<Block>();
  block->data = static_cast<char*>(data);
  block->bytes = bytes;
  block->segment = std::make_shared<Segment>(
      Segment{.pool = current_pool_, .small = small, .data = data, .bytes = bytes});
  reserved_bytes_ += bytes;
  ++segment_count_;
  Block* added = block.get();
  FreeOf(*added->segment).insert(added);
  blocks_.emplace(data, std::move(block));
  return added;
}

CachingAllocator::Block* CachingAllocator::TakeSegment(int64_t bytes, bool small) {
  if (small) return NewSegment(kSmallSegment, small);
  const int64_t exact = RoundUp(bytes, kPage);
  Block* block = NewSegment(std::max(exact, kLargeSegment), small);
  return block != nullptr ? block : NewSegment(exact, small);
}

void* CachingAllocator::TryAllocate(int64_t bytes) {
  TRIMTAB_ASSERT(bytes > 0, "{} bytes asked for", bytes);
  const bool small = bytes <= kSmallRequest;
  const int64_t rounded = RoundUp(bytes, small ? kAlignment : kLargeGranule);
  Block* block = FindFree(rounded, small, false);
  if (block == nullptr) block = TakeSegment(rounded, small);
  if (block == nullptr) block = FindFree(rounded, small, true);
  if (block == nullptr && current_pool_ == kMainPool) {
    Trim();
    block = TakeSegment(rounded, small);
  }
  // Rather a large block cut up than a run that ends for a few bytes.
  if (block == nullptr && small) block = FindFree(rounded, false, true);
  if (block == nullptr) return nullptr;
  FreeOf(*block->segment).erase(block);
  Cut(block, rounded);
  block->used = true;
  in_use_bytes_ += block->bytes;
  return block->data;
}

void* CachingAllocator::Allocate(int64_t bytes) {
  void* data = TryAllocate(bytes);
  if (data != nullptr) return data;
  if (current_pool_ == kMainPool) throw Exhausted(bytes);
  return Pretend(bytes);
}

OutOfMemoryError CachingAllocator::Exhausted(int64_t bytes) const {
  return OutOfMemoryError(fmt::format(
      "out of memory: the {} has no {} to give; {} in use, {} cached in {} segments (largest "
      "free block {})",
      source_.name(), FormatBytes(bytes), FormatBytes(in_use_bytes_), FormatBytes(cached_bytes()),
      segment_count_, FormatBytes(largest_free_block())));
}

/// An address of its own within the largest block in use, where calls that are captured find
/// memory of the GPU.
void* CachingAllocator::Pretend(int64_t bytes) {
  const Block* largest = nullptr;
  for (const auto& [data, block] : blocks_) {
    if (block->used && (largest == nullptr || block->bytes > largest->bytes)) largest = block.get();
  }
  const auto offset = static_cast<int64_t>(pretended_.size() + 1) * kAlignment;
  if (largest == nullptr || offset >= largest->bytes) throw Exhausted(bytes);
  lacked_bytes_ += bytes;
  return *pretended_.insert(largest->data + offset).first;
}

/// Leaves `block` with `bytes` and frees the rest, if that is of use to anybody.
void CachingAllocator::Cut(Block* block, int64_t bytes) {
  const int64_t least = block->segment->small ? kAlignment : kSmallRequest;
  if (block->bytes - bytes < least) return;
  auto rest = std::make_unique<Block>();
  rest->data = block->data + bytes;
  rest->bytes = block->bytes - bytes;
  rest->segment = block->segment;
  rest->previous = block;
  rest->next = block->next;
  if (rest->next != nullptr) rest->next->previous = rest.get();
  block->next = rest.get();
  block->bytes = bytes;
  FreeOf(*rest->segment).insert(rest.get());
  void* data = rest->data;
  blocks_.emplace(data, std::move(rest));
}

void CachingAllocator::Free(void* data) {
  if (pretended_.contains(data)) return;  // until the pool is closed: each has its own
  const auto found = blocks_.find(data);
  TRIMTAB_ASSERT(found != blocks_.end() && found->second->used, "memory returned twice");
  Block* block = found->second.get();
  if (current_pool_ != kMainPool && block->segment->pool != current_pool_) {
    held_[current_pool_].push_back(data);
    return;
  }
  Put(block);
}

/// `block`, no longer used, joins its free neighbours.
void CachingAllocator::Put(Block* block) {
  block->used = false;
  in_use_bytes_ -= block->bytes;
  FreeBlocks& blocks = FreeOf(*block->segment);
  if (block->next != nullptr && !block->next->used) {
    blocks.erase(block->next);
    Absorb(block, block->next);
  }
  if (block->previous != nullptr && !block->previous->used) {
    Block* previous = block->previous;
    blocks.erase(previous);
    Absorb(previous, block);
    block = previous;
  }
  blocks.insert(block);
}

void CachingAllocator::Absorb(Block* block, Block* next) {
  block->bytes += next->bytes;
  block->next = next->next;
  if (block->next != nullptr) block->next->previous = block;
  void* gone = next->data;
  blocks_.erase(gone);
}

void CachingAllocator::OpenPool(PoolId pool) {
  TRIMTAB_ASSERT(current_pool_ == kMainPool, "pool {} is still open", current_pool_);
  current_pool_ = pool;
  lacked_bytes_ = 0;
}

void CachingAllocator::ClosePool() {
  TRIMTAB_ASSERT(current_pool_ != kMainPool, "{} pools so far, none is open", last_pool_);
  current_pool_ = kMainPool;
  pretended_.clear();
}

int64_t CachingAllocator::in_use_bytes(PoolId pool) const {
  int64_t bytes = 0;
  for (const auto& [data, block] : blocks_) {
    if (block->used && block->segment->pool == pool) bytes += block->bytes;
  }
  return bytes;
}

void CachingAllocator::ReleasePool(PoolId pool) {
  TRIMTAB_ASSERT(pool != kMainPool && pool != current_pool_, "pool {} is not closed", pool);
  for (const auto& [data, block] : blocks_) {
    if (block->previous == nullptr && block->segment->pool == pool) {
      block->segment->pool = kMainPool;  // of all its blocks: they share the segment
    }
  }
  auto& freed = free_[pool];
  for (size_t small : {size_t{0}, size_t{1}}) free_[kMainPool][small].merge(freed[small]);
  free_.erase(pool);
  const std::vector<void*> held = std::move(held_[pool]);
  held_.erase(pool);
  for (void* data : held) Free(data);
}

void CachingAllocator::Trim() {
  for (FreeBlocks& blocks : free_[kMainPool]) {
    for (auto it = blocks.begin(); it != blocks.end();) {
      Block* block = *it;
      if (block->bytes != block->segment->bytes) {
        ++it;
        continue;
      }
      it = blocks.erase(it);
      reserved_bytes_ -= block->bytes;
      --segment_count_;
      refused_bytes_ = kNothingRefused;
      void* data = block->data;
      source_.Free(data);
      blocks_.erase(data);
    }
  }
}

int64_t CachingAllocator::largest_free_block() const {
  const auto pool = free_.find(current_pool_);
  int64_t largest = 0;
  if (pool == free_.end()) return largest;
  for (const FreeBlocks& blocks : pool->second) {
    if (!blocks.empty()) largest = std::max(largest, (*blocks.rbegin())->bytes);
  }
  return largest;
}

}  // namespace trimtab
