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

/// The clamp of GPT-OSS's MLP, and its swish: x sigmoid(1.702 x) of an x of at most the limit.
inline constexpr float kClampLimit = 7.0f;
TRIMTAB_HOST_DEVICE float ClampedSwish(float x) {
  const float clamped = x > kClampLimit ? kClampLimit : x;
  return clamped * Sigmoid(1.702f * clamped);
}

/// d ClampedSwish / dx.
TRIMTAB_HOST_DEVICE float ClampedSwishDerivative(float x) {
  const float e = Exp(-1.702f * x);
  const float s = 1.0f / (1.0f + e);
  return x > kClampLimit ? 0.0f : s + 1.702f * x * s * (e * s);
}

/// erf(x) to about 1 ulp: near 0 an odd polynomial, elsewhere 1 - e^p(|x|) (minimax polynomials by
/// N. Juffa, stackoverflow.com/a/35148199).
TRIMTAB_HOST_DEVICE float Erf(float x) {
  const float t = x < 0.0f ? -x : x;
  const float s = x * x;
  float far = -1.72853470e-5f * t + 3.83197126e-4f;
  far = far * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  far = far * t - 1.06777877e-1f;
  far = far * t - 6.34846687e-1f;
  far = far * t - 1.28717512e-1f;
  far = 1.0f - Exp(far * t - t);
  float near = -5.96761703e-4f;
  near = near * s + 4.99119423e-3f;
  near = near * s - 2.67681349e-2f;
  near = near * s + 1.12819925e-1f;
  near = near * s - 3.76125336e-1f;
  near = near * s + 1.28379166e-1f;
  near = near * x + x;
  const float signed_far = x < 0.0f ? -far : far;
  return t > 0.927734375f ? signed_far : near;
}

/// gelu(x) = x/2 (1 + erf(x / sqrt 2)).
TRIMTAB_HOST_DEVICE float GeluErf(float x) {
  return 0.5f * x * (1.0f + Erf(x * 0.70710678118654752f));
}

/// d GeluErf / dx: the normal distribution function, plus x times its density.
TRIMTAB_HOST_DEVICE float GeluErfDerivative(float x) {
  const float density = 0.39894228040143268f * Exp(-0.5f * x * x);
  return 0.5f * (1.0f + Erf(x * 0.70710678118654752f)) + x * density;
}

/// tanh(x): near 0 the Cephes library's tanhf polynomial, elsewhere 1 - 2 / (e^2|x| + 1).
TRIMTAB_HOST_DEVICE float Tanh(float x) {
  const float t = x < 0.0f ? -x : x;
  const float z = x * x;
  float near = -5.70498872745e-3f;
  near = near * z + 2.06390887954e-2f;
  near = near * z - 5.37397155531e-2f;
  near = near * z + 1.33314422036e-1f;
  near = near * z - 3.33332819422e-1f;
  near = near * z * x + x;
  const float far = 1.0f - 2.0f / (Exp(2.0f * t) + 1.0f);
  const float signed_far = x < 0.0f ? -far : far;
  return t > 0.625f ? signed_far : near;
}

/// The activation functions of an MLP. kGelu is the tanh approximation, kGeluErf the function
/// itself (Hendrycks & Gimpel, arXiv:1606.08415); kSquaredRelu is max(x, 0)^2 (So et al., Primer,
/// arXiv:2109.08668); kClampedSwish is x sigmoid(1.702 x) of an x of at most 7 (GPT-OSS).
enum class ActivationFunction { kGelu, kGeluErf, kRelu, kSquaredRelu, kSilu, kClampedSwish };

template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE float Activate(float x) {
  const float positive = x > 0.0f ? x : 0.0f;
  if constexpr (kFunction == ActivationFunction::kGelu) return Gelu(x);
  if constexpr (kFunction == ActivationFunction::kGeluErf) return GeluErf(x);
  if constexpr (kFunction == ActivationFunction::kRelu) return positive;
  if constexpr (kFunction == ActivationFunction::kSquaredRelu) return positive * positive;
  if constexpr (kFunction == ActivationFunction::kSilu) return Silu(x);
  if constexpr (kFunction == ActivationFunction::kClampedSwish) return ClampedSwish(x);
}

template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE float ActivateDerivative(float x) {
  if constexpr (kFunction == ActivationFunction::kGelu) return GeluDerivative(x);
  if constexpr (kFunction == ActivationFunction::kGeluErf) return GeluErfDerivative(x);
  if constexpr (kFunction == ActivationFunction::kRelu) return x > 0.0f ? 1.0f : 0.0f;
  if constexpr (kFunction == ActivationFunction::kSquaredRelu) return x > 0.0f ? 2.0f * x : 0.0f;
  if constexpr (kFunction == ActivationFunction::kSilu) return SiluDerivative(x);
  if constexpr (kFunction == ActivationFunction::kClampedSwish) return ClampedSwishDerivative(x);
}

/// What a gate's function is multiplied by, from the second projection: that itself, or, beside
/// kClampedSwish, 1 + it kept within 7.
template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE float GateFactor(float up) {
  if constexpr (kFunction != ActivationFunction::kClampedSwish) return up;
  const float low = up < -kClampLimit ? -kClampLimit : up;
  return 1.0f + (low > kClampLimit ? kClampLimit : low);
}
template <ActivationFunction kFunction>
TRIMTAB_HOST_DEVICE float GateFactorDerivative(float up) {
  if constexpr (kFunction != ActivationFunction::kClampedSwish) return 1.0f;
  return up < -kClampLimit || up > kClampLimit ? 0.0f : 1.0f;
}

/// x * scale, and with a cap above 0, cap * tanh(x * scale / cap) (Gemma 2, arXiv:2408.00118).
struct SoftCap {
  float scale = 1.0f;
  float cap = 0.0f;

  bool identity() const { return scale == 1.0f && cap == 0.0f; }
  TRIMTAB_HOST_DEVICE float Apply(float x) const {
    const float scaled = x * scale;
    return cap > 0.0f ? cap * Tanh(scaled / cap) : scaled;
  }
  /// The derivative where the result is `y`.
  TRIMTAB_HOST_DEVICE float Derivative(float y) const {
    const float t = cap > 0.0f ? y / cap : 0.0f;
    return scale * (1.0f - t * t);
  }
};

/// What the cross-entropy of a row needs of its logits (engine/ops/vocabulary/cross_entropy.h).
struct LossParts {
  float largest;
  float sum;     // of exp(logit - largest)
  float target;  // the target's logit
};

/// Of all shards' parts [shards, 3, rows] of a row, the first of which is at `parts`.
TRIMTAB_HOST_DEVICE LossParts JoinLossParts(const float* parts, int64_t shards, int64_t rows) {
  LossParts all = {parts[0], 0.0f, 0.0f};
  for (int64_t s = 1; s < shards; ++s) {
    const float largest = parts[3 * s * rows];
    all.largest = all.largest < largest ? largest : all.largest;
  }
  for (int64_t s = 0; s < shards; ++s) {
    const float* part = parts + 3 * s * rows;
    all.sum += part[rows] * Exp(part[0] - all.largest);
    all.target += part[2 * rows];
  }
  return all;
}

/// What ALiBi takes from a score of head `head` of `heads` per token between query and key (Press
/// et al., arXiv:2108.12409, and its code for numbers of heads that are no power of 2): 2^(-8i/n)
/// for i = 1, ..., n, the largest power of 2 in `heads`, then the odd steps of twice as many. 0
/// without heads.
TRIMTAB_HOST_DEVICE float AlibiSlope(int64_t head, int64_t heads) {
  if (heads == 0) return 0.0f;
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double step =
      head < power ? static_cast<double>(head + 1) / static_cast<double>(power)
                   : static_cast<double>(2 * (head - power) + 1) / static_cast<double>(2 * power);
  return static_cast<float>(std::exp2(-8.0 * step));
}

/// How the attentions of a query over two sets of keys become the one over both: what to multiply
/// each result by, and the log-sum-exp of all scores.
struct AttentionMerge {
  float keep;    // of the attention so far
  float weight;  // of the part that is added
  float log_sum_exp;
};

/// From the log-sum-exps of the attention so far and of the part, -infinity where they have seen no
/// key (Liu et al., Ring Attention, arXiv:2310.01889).
TRIMTAB_HOST_DEVICE AttentionMerge MergeAttention(float so_far, float part) {
  if (part == -INFINITY) return {1.0f, 0.0f, so_far};
  const float highest = so_far < part ? part : so_far;
  const float keep = Exp(so_far - highest);
  const float weight = Exp(part - highest);
  const float sum = keep + weight;
  return {keep / sum, weight / sum, highest + std::log(sum)};
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

/// The coefficients of a step from its configuration and from the scalars
/// (engine/ops/optimizer/update_state.h) that change: learning rate, 1 / (1 - beta1^step), 1 /
/// sqrt(1 - beta2^step), gradient scale. In double: 1 - beta2 loses its digits in float.
TRIMTAB_HOST_DEVICE AdamWCoefficients MakeAdamWCoefficients(float beta1, float beta2, float epsilon,
                                                            float weight_decay, float learning_rate,
                                                            float bias_correction,
                                                            float root_correction,
                                                            float gradient_scale) {
  const double rate = learning_rate;
  return {beta1,
          beta2,
          static_cast<float>(1.0 - static_cast<double>(beta1)),
          static_cast<float>(1.0 - static_cast<double>(beta2)),
          gradient_scale,
          static_cast<float>(1.0 - rate * static_cast<double>(weight_decay)),
          static_cast<float>(rate * static_cast<double>(bias_correction)),
          root_correction,
          epsilon};
}

TRIMTAB_HOST_DEVICE void AdamWElement(const AdamWCoefficients& c, float gradient, float& parameter,
                                      float& m, float& v) {
  const float g = gradient * c.gradient_scale;
  m = c.beta1 * m + c.rest1 * g;
  v = c.beta2 * v + c.rest2 * g * g;
  const float denominator = std::sqrt(v) * c.root_correction + c.epsilon;
  parameter = parameter * c.keep - c.step_size * m / denominator;
}

/// A step by momentum (engine/ops/optimizer/momentum.h) with everything that does not depend on the
/// element worked out.
struct MomentumCoefficients {
  float momentum;
  bool nesterov;
  float gradient_scale;
  float keep;       // 1 - learning_rate * weight_decay
  float step_size;  // learning_rate, times the update's scale
};
TRIMTAB_HOST_DEVICE MomentumCoefficients MakeMomentumCoefficients(float momentum, bool nesterov,
                                                                  float weight_decay,
                                                                  float learning_rate,
                                                                  float update_scale,
                                                                  float gradient_scale) {
  const double kept = 1.0 - static_cast<double>(learning_rate) * static_cast<double>(weight_decay);
  return {momentum, nesterov, gradient_scale, static_cast<float>(kept),
          learning_rate * update_scale};
}

/// The update that a gradient comes to.
TRIMTAB_HOST_DEVICE float MomentumElement(const MomentumCoefficients& c, float gradient,
                                          float& momentum) {
  const float g = gradient * c.gradient_scale;
  momentum = c.momentum * momentum + g;
  return c.nesterov ? c.momentum * momentum + g : momentum;
}

/// What divides by a norm and a little more.
TRIMTAB_HOST_DEVICE float NormFactor(float squares, float epsilon) {
  return 1.0f / (std::sqrt(squares) + epsilon);
}

/// What Clip (engine/ops/optimizer/update_state.h) makes of the sum of squares of gradients that
/// are `loss_scale` times too large: their norm, what to multiply them by, and 1 if the norm is
/// finite, else 0.
TRIMTAB_HOST_DEVICE void ClipByNorm(double sum_of_squares, float max_norm, float loss_scale,
                                    float& norm, float& gradient_scale, float& apply) {
  constexpr float kLargest = 3.402823466e+38f;
  const double exact = std::sqrt(sum_of_squares) / static_cast<double>(loss_scale);
  const double limit = max_norm;
  const double clip = max_norm > 0.0f && exact > limit ? limit / exact : 1.0;
  norm = static_cast<float>(exact);
  gradient_scale = static_cast<float>(clip / static_cast<double>(loss_scale));
  apply = norm <= kLargest ? 1.0f : 0.0f;  // not so for NaN either
}

/// An fp32 master weight as a bf16 weight and 16 bits (engine/ops/optimizer/update_state.h): the
/// weight's bits, rounded to nearest with ties away from zero, and the signed difference from them.
TRIMTAB_HOST_DEVICE uint16_t WeightBitsOfMaster(float master) {
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(master) + 0x8000u) >> 16);
}
TRIMTAB_HOST_DEVICE uint16_t RemainderOfMaster(float master) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(master));
}
TRIMTAB_HOST_DEVICE float MasterOfParts(uint16_t weight_bits, uint16_t remainder) {
  // The remainder's sign bit says that the weight was rounded up.
  const uint32_t borrow = (remainder & 0x8000u) << 1;
  return std::bit_cast<float>((static_cast<uint32_t>(weight_bits) << 16 | remainder) - borrow);
}

/// The scale of a block of fp16 moments (engine/ops/optimizer/update_state.h) from its largest
/// magnitude, and what to multiply by to store: both 0 if the block is so close to zero that the
/// scale would not be a normal number.
TRIMTAB_HOST_DEVICE void MomentScale(float largest, float& scale, float& inverse) {
  constexpr float kSmallestNormal = 1.17549435e-38f;
  constexpr float kStored = 32768.0f;  // kMomentLargest
  const float wanted = largest / kStored;
  const bool usable = wanted >= kSmallestNormal;
  scale = usable ? wanted : 0.0f;
  inverse = usable ? kStored / largest : 0.0f;
}

/// The scale under which `amax` becomes `fp8_max`; `scale` stays where amax is 0 or not finite. The
/// scale is finite however small amax is.
TRIMTAB_HOST_DEVICE float Fp8Scale(float amax, float fp8_max, float scale) {
  constexpr float kLargest = 3.402823466e+38f;
  if (!(amax > 0.0f) || amax > kLargest) return scale;
  const float wanted = fp8_max / amax;
  return wanted > kLargest ? kLargest : wanted;
}

}  // namespace trimtab
