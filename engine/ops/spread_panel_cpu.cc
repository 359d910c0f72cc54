#include "engine/ops/spread_panel_cpu.h"

#include <bit>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/units.h"
#include "engine/ops/row_tiles_cpu.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TRIMTAB_AVX512 [[gnu::target("avx512f,avx512bw,avx512vl")]]
#endif

namespace trimtab {
namespace {

#if defined(__x86_64__)

constexpr int64_t kHalfBytes = kWordRowBytes / 2;  // a register

// A register; arithmetic on it is the compiler's own.
using U32 [[gnu::vector_size(64)]] = uint32_t;
using I32 [[gnu::vector_size(64)]] = int32_t;
using F32 [[gnu::vector_size(64)]] = float;

// Spreads `rows` rows of words, each of 32 times four int8, into pairs.
TRIMTAB_AVX512 void SpreadInt8(const char* words, int64_t rows, char* pairs) {
  // Each byte on top of a word of its own, and so a number times 2^24, of which the upper half is a
  // bf16.
  const __m512i picks[4] = {
      _mm512_set1_epi64(0x0480808000808080), _mm512_set1_epi64(0x0580808001808080),
      _mm512_set1_epi64(0x0680808002808080), _mm512_set1_epi64(0x0780808003808080)};
  // In each 128 bits the second half has words 2 and 3.
  const __m512i base = _mm512_set4_epi32(0x08000000, 0x08000000, 0, 0);
  __m512i lanes[4];
  for (int slot = 0; slot < 4; ++slot) lanes[slot] = _mm512_add_epi8(picks[slot], base);
  for (int64_t row = 0; row < rows; ++row, pairs += 2 * kWordRowBytes) {
    for (int64_t half = 0; half < 2; ++half) {
      const __m512i packed = _mm512_loadu_si512(words + row * kWordRowBytes + half * kHalfBytes);
      U32 numbers[4];
      for (int slot = 0; slot < 4; ++slot) {
        const auto top = (I32)_mm512_shuffle_epi8(packed, lanes[slot]);
        numbers[slot] = (U32) __builtin_convertvector(top, F32);
      }
      for (int pair = 0; pair < 2; ++pair) {
        const U32 both = numbers[2 * pair] >> 16 | numbers[2 * pair + 1];
        _mm512_storeu_si512(pairs + pair * kWordRowBytes + half * kHalfBytes, (__m512i)both);
      }
    }
  }
}

// Spreads `rows` rows of words, each of 32 times eight int4, into pairs.
TRIMTAB_AVX512 void SpreadInt4(const char* words, int64_t rows, char* pairs) {
  // What four bits are as bf16. Those above them, which are of the next number, choose between two
  // times the same.
  alignas(64) uint16_t table[32];
  for (int i = 0; i < 32; ++i) {
    table[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(i % 16 - 8)) >> 16);
  }
  const __m512i numbers = _mm512_load_si512(table);
  const __m512i flip = _mm512_set1_epi32(static_cast<int>(0x80000000u));  // of the one on top
  for (int64_t row = 0; row < rows; ++row, pairs += 4 * kWordRowBytes) {
    for (int64_t half = 0; half < 2; ++half) {
      char* to = pairs + half * kHalfBytes;
      const __m512i packed = _mm512_xor_si512(
          _mm512_loadu_si512(words + row * kWordRowBytes + half * kHalfBytes), flip);
      _mm512_storeu_si512(to, _mm512_permutexvar_epi16(packed, numbers));
      _mm512_storeu_si512(to + kWordRowBytes,
                          _mm512_permutexvar_epi16(_mm512_srli_epi16(packed, 4), numbers));
      _mm512_storeu_si512(to + 2 * kWordRowBytes,
                          _mm512_permutexvar_epi16(_mm512_srli_epi16(packed, 8), numbers));
      _mm512_storeu_si512(to + 3 * kWordRowBytes,
                          _mm512_permutexvar_epi16(_mm512_srli_epi16(packed, 12), numbers));
    }
  }
}
static_assert(Int4Flip(0) == 8 && Int4Flip(7) == 0);

#else

void SpreadInt8(const char*, int64_t, char*) { TRIMTAB_ASSERT(false, "no AVX-512"); }
void SpreadInt4(const char*, int64_t, char*) { TRIMTAB_ASSERT(false, "no AVX-512"); }

#endif

}  // namespace

void SpreadPanel(WeightFormat format, const char* words, int64_t columns, char* pairs) {
  const int64_t rows = CeilDiv(columns, WordColumns(format));
  if (format == WeightFormat::kInt4) return SpreadInt4(words, rows, pairs);
  if (format == WeightFormat::kInt8) {
    SpreadInt8(words, rows, pairs);
  } else {
    std::memcpy(pairs, words, static_cast<size_t>(rows * kWordRowBytes));
  }
  const int64_t spread = rows * WordColumns(format) / 2 * kWordRowBytes;
  std::memset(pairs + spread, 0,
              static_cast<size_t>(StepsOf(columns) * kTileColumns / 2 * kWordRowBytes - spread));
}

}  // namespace trimtab
