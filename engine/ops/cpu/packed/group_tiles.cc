#include "engine/ops/cpu/packed/group_tiles.h"

#include <algorithm>
#include <bit>

#include "engine/ops/cpu/packed/tile_unit.h"

namespace trimtab {

#ifdef TRIMTAB_HAS_TILES

namespace {

// Columns that are spread at a time. Of few tiles, those of two panels stay in the first level of
// cache beside the inputs; of more, a tile is to have work enough.
constexpr int64_t kFewTiles = 2;
constexpr int64_t kFewColumns = 128;
constexpr int64_t kSpreadColumns = 256;

constexpr int64_t kGroupBytes = kInt4Group / WordColumns(WeightFormat::kInt4) * kWordRowBytes;
static_assert(kInt4Group == TileColumns(WeightFormat::kInt4));

// Panels that share what is loaded of x.
constexpr int64_t kTogether = 2;

// What four bits are as bf16. Those above them, which are of the next number, choose between two
// times the same.
class NumberTable {
 public:
  TRIMTAB_TILES NumberTable() {
    alignas(64) uint16_t table[32];
    for (int i = 0; i < 32; ++i) {
      const auto number = static_cast<float>(i % 16 - 8);
      table[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(number) >> 16);
    }
    numbers_ = _mm512_load_si512(table);
  }
  TRIMTAB_TILES __m512i Of(__m512i words) const {
    return _mm512_permutexvar_epi16(words, numbers_);
  }

 private:
  __m512i numbers_;
};

// Spreads a group of columns into rows of pairs, in the order that SplitRow gives them.
TRIMTAB_TILES inline void SpreadInt4(const char* words, const NumberTable& numbers, char* pairs) {
  static_assert(Int4Flip(0) == 8 && Int4Flip(7) == 0);
  const __m512i flip = _mm512_set1_epi32(static_cast<int>(0x80000000u));  // of the one on top
  for (int64_t row = 0; row < kGroupBytes; row += kWordRowBytes, pairs += 4 * kWordRowBytes) {
    for (int64_t half = 0; half < kWordRowBytes; half += kHalfBytes) {
      const __m512i packed = _mm512_xor_si512(_mm512_loadu_si512(words + row + half), flip);
      char* to = pairs + half;
      _mm512_store_si512(to, numbers.Of(packed));
      _mm512_store_si512(to + kWordRowBytes, numbers.Of(_mm512_srli_epi16(packed, 4)));
      _mm512_store_si512(to + 2 * kWordRowBytes, numbers.Of(_mm512_srli_epi16(packed, 8)));
      _mm512_store_si512(to + 3 * kWordRowBytes, numbers.Of(_mm512_srli_epi16(packed, 12)));
    }
  }
}

// A tile of rows of x times some groups of spread panels.
struct Groups {
  int64_t height;
  int64_t count;
  const char* x;                   // [count, kTileParts, height, kTileRowBytes]
  const char* words[kTogether];    // of each panel, [count, kGroupBytes]
  char* pairs[kTogether];          // the same spread, [count, kStepBytes]
  const float* scales[kTogether];  // [count, kPanelRows]
  const char* ahead[kTogether];    // asked of memory meanwhile
  bool first;                      // Sums begin here; otherwise with what `sums` holds.
  float* sums;                     // [height, stride]: kPanelRows for each panel
  int64_t stride;                  // in floats
};

// The sums of one group, of each half of a panel.
using GroupSums = float[2 * kTogether][kMostHeight * kHalf];

// sums [height, kHalf], `stride` floats apart, = or += what one group or two have, times their
// scales.
template <int kGroups>
TRIMTAB_TILES inline void AddScaled(int64_t height, const float* one, const float* two,
                                    const float* scales, bool first, float* sums, int64_t stride) {
  const __m512 of_one = _mm512_loadu_ps(scales);
  const __m512 of_two = kGroups == 2 ? _mm512_loadu_ps(scales + kPanelRows) : of_one;
  for (int64_t row = 0; row < height; ++row, sums += stride) {
    __m512 sum = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums);
    sum = _mm512_fmadd_ps(_mm512_load_ps(one + row * kHalf), of_one, sum);
    if constexpr (kGroups == 2) {
      sum = _mm512_fmadd_ps(_mm512_load_ps(two + row * kHalf), of_two, sum);
    }
    _mm512_storeu_ps(sums, sum);
  }
}

template <int kPanels, int kGroups>
TRIMTAB_TILES inline void AddAllScaled(const Groups& t, const GroupSums* groups, int64_t group) {
  for (int64_t half = 0; half < 2 * kPanels; ++half) {
    AddScaled<kGroups>(t.height, groups[0][half], groups[1][half],
                       t.scales[half / 2] + group * kPanelRows + half % 2 * kHalf,
                       t.first && group == 0, t.sums + half * kHalf, t.stride);
  }
}

// Tiles are named by their numbers in the text of the program. All that one tile of numbers does is
// done at a time: loading it takes as long as one of these.
#define TRIMTAB_SUM_GROUP(sums, pairs)  \
  _tile_zero(sums);                     \
  _tile_loadd(7, pairs, kWordRowBytes); \
  _tile_dpbf16ps(sums, 4, 7);           \
  _tile_dpbf16ps(sums, 5, 7);           \
  _tile_dpbf16ps(sums, 6, 7)

template <int kPanels>
TRIMTAB_TILES inline void SpreadGroup(const Groups& t, const NumberTable& numbers, int64_t group) {
  for (int panel = 0; panel < kPanels; ++panel) {
    AskFor(t.ahead[panel] + group * kGroupBytes, kGroupBytes);
    SpreadInt4(t.words[panel] + group * kGroupBytes, numbers, t.pairs[panel] + group * kStepBytes);
  }
}

// Two groups are scaled at a time, while the sums of the next one are made. The first tile to be
// multiplied by these panels spreads their numbers, group by group, in the same time.
template <int kPanels, bool kSpreads>
TRIMTAB_TILES void AddGroups(const Groups& t) {
  alignas(64) GroupSums groups[2];
  const int64_t part = t.height * kTileRowBytes;
  const char* x = t.x;
  const NumberTable numbers;
  if constexpr (kSpreads) SpreadGroup<kPanels>(t, numbers, 0);
  FinishWrites();
  for (int64_t group = 0; group < t.count; ++group, x += kTileParts * part) {
    const int64_t at = group * kStepBytes;
    _tile_loadd(4, x, kTileRowBytes);
    _tile_loadd(5, x + part, kTileRowBytes);
    _tile_loadd(6, x + 2 * part, kTileRowBytes);
    TRIMTAB_SUM_GROUP(0, t.pairs[0] + at);
    TRIMTAB_SUM_GROUP(1, t.pairs[0] + at + kHalfBytes);
    if constexpr (kPanels == 2) {
      TRIMTAB_SUM_GROUP(2, t.pairs[1] + at);
      TRIMTAB_SUM_GROUP(3, t.pairs[1] + at + kHalfBytes);
    }
    if constexpr (kSpreads) {
      if (group + 1 < t.count) SpreadGroup<kPanels>(t, numbers, group + 1);
    }
    if (group > 0 && group % 2 == 0) AddAllScaled<kPanels, 2>(t, groups, group - 2);
    GroupSums& to = groups[group % 2];
    FinishWrites();
    _tile_stored(0, to[0], kHalfBytes);
    _tile_stored(1, to[1], kHalfBytes);
    if constexpr (kPanels == 2) {
      _tile_stored(2, to[2], kHalfBytes);
      _tile_stored(3, to[3], kHalfBytes);
    }
    FinishWrites();
  }
  if (t.count % 2 == 0) {
    AddAllScaled<kPanels, 2>(t, groups, t.count - 2);
  } else {
    AddAllScaled<kPanels, 1>(t, groups, t.count - 1);
  }
}

#undef TRIMTAB_SUM_GROUP

}  // namespace

void MultiplyGroupTiles(const PanelRun& panels, const RowTiles& tiles, int64_t first, int64_t count,
                        float* results) {
  const TileShapes shapes(tiles.height);
  const int64_t width = panels.count * kPanelRows;
  const int64_t panel_bytes = tiles.steps * kGroupBytes;
  const int64_t most = (count <= kFewTiles ? kFewColumns : kSpreadColumns) / kInt4Group;
  alignas(64) char pairs[kTogether][kSpreadColumns / kInt4Group * kStepBytes];
  for (int64_t begin = 0; begin < tiles.steps; begin += most) {
    const int64_t groups = std::min(most, tiles.steps - begin);
    for (int64_t panel = 0; panel < panels.count; panel += kTogether) {
      const int64_t together = std::min(kTogether, panels.count - panel);
      Groups t = {.height = tiles.height,
                  .count = groups,
                  .x = nullptr,
                  .words = {},
                  .pairs = {},
                  .scales = {},
                  .ahead = {},
                  .first = begin == 0,
                  .sums = nullptr,
                  .stride = width};
      for (int64_t i = 0; i < together; ++i) {
        const char* words = static_cast<const char*>(panels.numbers) + (panel + i) * panel_bytes +
                            begin * kGroupBytes;
        t.words[i] = words;
        t.pairs[i] = pairs[i];
        t.scales[i] = panels.scales + ((panel + i) * tiles.steps + begin) * kPanelRows;
        // Of further columns, or of the next run. Scales are short runs that caches do not foresee.
        const bool ends = begin + groups == tiles.steps;
        t.ahead[i] = words + groups * kGroupBytes + (ends ? (panels.count - 1) * panel_bytes : 0);
        const float* next = t.scales[i] + groups * kPanelRows +
                            (ends ? (panels.count - 1) * tiles.steps * kPanelRows : 0);
        AskFor(reinterpret_cast<const char*>(next), most * kWordRowBytes);
      }
      for (int64_t tile = 0; tile < count; ++tile) {
        t.x = tiles.parts + (first + tile) * tiles.tile_bytes() +
              begin * kTileParts * tiles.part_bytes();
        t.sums = results + tile * tiles.height * width + panel * kPanelRows;
        if (together == 2) {
          tile == 0 ? AddGroups<2, true>(t) : AddGroups<2, false>(t);
        } else {
          tile == 0 ? AddGroups<1, true>(t) : AddGroups<1, false>(t);
        }
      }
    }
  }
}

#else

void MultiplyGroupTiles(const PanelRun&, const RowTiles&, int64_t, int64_t, float*) {
  TRIMTAB_ASSERT(false, "packed_gemm: no tiles on this processor");
}

#endif

}  // namespace trimtab
