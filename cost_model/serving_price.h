// Seconds of a step of serving: what it does, priced by a GPU's profile and by what the engine and
// GPUs of its generation reach of it.
#pragma once

#include "cost_model/hardware_profile.h"
#include "cost_model/serving_stack.h"
#include "cost_model/serving_work.h"

namespace trimtab {

/// Bytes of a GPU's memory that its driver shows. Datasheets count in GiB and say GB, and
/// the driver keeps about 1 %: 85.0e9 of an "80 GB" H100, 150.1e9 of a "141 GB" H200.
double VisibleMemory(const HardwareProfile& profile);

/// Where the seconds of a step go.
struct ServingBreakdown {
  double dense_s = 0;    // products but those of experts and the head
  double experts_s = 0;  // with what their layers cost beyond ops
  double head_s = 0;
  double attention_s = 0;  // keys and values, and attention of prompts
  double messages_s = 0;
  double other_s = 0;         // all other ops
  double gaps_s = 0;          // between ops
  double prompt_floor_s = 0;  // what a step with prompts takes beyond all of this
  double host_s = 0;

  double seconds() const {
    return dense_s + experts_s + head_s + attention_s + messages_s + other_s + gaps_s +
           prompt_floor_s + host_s;
  }
};

/// Prices of one engine, GPU and precision of weights. README.md derives them.
class ServingPricer {
 public:
  /// Throws UsageError where the profile has no peak that the products need.
  ServingPricer(const HardwareProfile& profile, const ServingGpu& gpu, const ServingEngine& engine,
                ServingPrecision weights, int64_t kv_bytes);

  ServingBreakdown Price(const ServingWork& work) const;

 private:
  double Product(const ServingProduct& product) const;
  double Experts(const ServingProduct& product, const ServingWork& work) const;

  double weight_bytes_ = 0;
  double kv_bytes_ = 0;
  bool multiplies_fp4_ = false;
  double weight_rate_ = 0;  // bytes/s, of weights in 16 bits
  double low_rate_ = 0;     // of others
  double kv_rate_ = 0;
  double other_rate_ = 0;
  double expert_rate_ = 0;
  double rate_16_ = 0;  // FLOP/s
  double rate_low_ = 0;
  double expert_flops_ = 0;
  double attention_flops_ = 0;
  double link_rate_ = 0;
  double message_s_ = 0;
  double gap_s_ = 0;
  double expert_layer_s_ = 0;
  double quantise_s_ = 0;
  double host_s_ = 0;
  double sequence_s_ = 0;
  double prompt_layer_s_ = 0;
};

}  // namespace trimtab
