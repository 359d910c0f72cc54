// Arithmetic of one element, shared by the cpu and the CUDA kernels.
//
// Branch-free, so that a loop over them becomes vector code.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#define TRIMTAB_HOST_DEVICE __host__ __device__ __forceinline__
#else
// A kernel's clones have targets of their own: only a forced inline crosses into them.
#define TRIMTAB_HOST_DEVICE inline __attribute__((always_inline))
#endif

namespace trimtab {

/// e^x to about 1 ulp. 0 below -87.3, where the result would be subnormal; stays at e^88 above 88.
/// Cody-Waite reduction by ln 2, then the minimax polynomial of the Cephes library's expf.
TRIMTAB_HOST_DEVICE float Exp(float x) {
  constexpr float kLowest = -87.3f;
  constexpr float kHighest = 88.0f;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  float clamped = x < kLowest ? kLowest : x;
  clamped = clamped > kHighest ? kHighest : clamped;
  const float rounded = clamped * 1.44269504088896341f + kRound;
  const float n = rounded - kRound;
  const float r = (clamped - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * r) * r + r + 1.0f;
  const uint32_t exponent = std::bit_cast<uint32_t>(rounded) + 127u;  // low bits hold n
  const float scale = std::bit_cast<float>(exponent << 23);
  return x < kLowest ? 0.0f : p * scale;
}

/// 1 / (1 + e^-x).
TRIMTAB_HOST_DEVICE float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

/// gelu(x) = x/2 (1 + tanh(u)) = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
TRIMTAB_HOST_DEVICE float Gelu(float x) {
  const float two_u = 1.5957691216057308f * (x + 0.044715f * x * x * x);
  return x * Sigmoid(two_u);
}

/// d gelu / dx.
TRIMTAB_HOST_DEVICE float GeluDerivative(float x) {
  const float square = x * x;
  const float two_u = 1.5957691216057308f * (x + 0.044715f * square * x);
  const float two_du = 1.5957691216057308f * (1.0f + 3.0f * 0.044715f * square);
  const float e = Exp(-two_u);
  const float s = 1.0f / (1.0f + e);
  return s + x * two_du * s * (e * s);
}

/// silu(x) = x sigmoid(x).
TRIMTAB_HOST_DEVICE float Silu(float x) { return x * Sigmoid(x); }

/// d silu / dx.
TRIMTAB_HOST_DEVICE float SiluDerivative(float x) {
  const float e = Exp(-x);
  const float s = 1.0f / (1.0f + e);
  return s + x * s * (e * s);
}

/// sin and cos of an angle of up to 1e8 in magnitude, each to about 1 ulp of 1: reduction by pi/2
/// in double, then the Cephes library's sinf and cosf polynomials.
TRIMTAB_HOST_DEVICE void SinCos(double angle, float& sine, float& cosine) {
  constexpr double kRound = 6755399441055744.0;  // 1.5 * 2^52: adding it rounds to an integer
  const double rounded = angle * 0.63661977236758134308 + kRound;
  const double quarters = rounded - kRound;
  const auto r = static_cast<float>((angle - quarters * 1.57079632679489655800) -
                                    quarters * 6.12323399573676603587e-17);
  const auto quadrant = static_cast<uint32_t>(std::bit_cast<uint64_t>(rounded)) & 3u;
  const float z = r * r;
  const float s = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
  const float c =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z -
      0.5f * z + 1.0f;
  const float sine_magnitude = (quadrant & 1u) != 0 ? c : s;
  const float cosine_magnitude = (quadrant & 1u) != 0 ? s : c;
  sine = (quadrant & 2u) != 0 ? -sine_magnitude : sine_magnitude;
  cosine = ((quadrant + 1u) & 2u) != 0 ? -cosine_magnitude : cosine_magnitude;
}

/// An AdamW step with everything that does not depend on the element worked out.
struct AdamWCoefficients {
  float beta1;
  float beta2;
  float rest1;  // 1 - beta1
  float rest2;  // 1 - beta2
  float gradient_scale;
  float keep;             // 1 - learning_rate * weight_decay
  float step_size;        // learning_rate / (1 - beta1^step)
  float root_correction;  // 1 / sqrt(1 - beta2^step)
  float epsilon;
};

TRIMTAB_HOST_DEVICE void AdamWElement(const AdamWCoefficients& c, float gradient, float& parameter,
                                      float& m, float& v) {
  const float g = gradient * c.gradient_scale;
  m = c.beta1 * m + c.rest1 * g;
  v = c.beta2 * v + c.rest2 * g * g;
  const float denominator = std::sqrt(v) * c.root_correction + c.epsilon;
  parameter = parameter * c.keep - c.step_size * m / denominator;
}

}  // namespace trimtab
