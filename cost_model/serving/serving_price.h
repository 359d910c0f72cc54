// Seconds of a step of serving: what it does, priced by a GPU's profile and by what the engine and
// GPUs of its generation reach of it.
#pragma once

#include <array>
#include <vector>

#include "cost_model/hardware/hardware_profile.h"
#include "cost_model/serving/serving_stack.h"
#include "cost_model/serving/serving_work.h"

namespace trimtab {

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
  ServingBreakdown& operator+=(const ServingBreakdown& other);
};

/// Numbers of rows between which the speed of a cpu's products is interpolated: powers of two, and
/// the most rows that are multiplied one by one, for the next one is another kernel's.
inline constexpr std::array<double, 10> kRowKnots = {1, 2, 3, 4, 8, 16, 32, 64, 128, 256};

/// What an engine reaches on a machine with weights and cache in one precision: of a GPU's profile,
/// or measured.
struct ServingRates {
  double weight_bytes = 0;  // of a weight, with its share of a scale
  double kv_bytes = 0;      // of a key or value, likewise
  bool multiplies_fp4 = false;
  double weight_rate = 0;  // bytes/s, of weights in 16 bits
  double low_rate = 0;     // of those in the precision
  double kv_rate = 0;
  double other_rate = 0;  // of all other ops, as if activations had 16 bits
  double expert_rate = 0;
  double popularity = 0;  // shape of how often experts are chosen; 0: all equally often
  double rate_16 = 0;     // FLOP/s
  double rate_low = 0;
  double unpack_rate = 0;  // weights/s that a cpu unpacks beside multiplying; 0: takes no time
  // Time of a product of so many rows against what these rates say: kernels differ by rows. Empty:
  // they say it all.
  std::vector<double> by_rows{};
  double expert_flops = 0;
  double attention_flops = 0;
  double link_rate = 0;
  double message_s = 0;
  double gap_s = 0;
  bool launches_each_op = false;
  double expert_layer_s = 0;
  double quantise_s = 0;
  double host_s = 0;
  double sequence_s = 0;
  double prompt_layer_s = 0;

  bool operator==(const ServingRates&) const = default;
};

/// How fast a rank copies blocks of its cache to where another replica gets them, or from there.
struct CopyRates {
  double bytes_per_s = 0;
  double latency_s = 0;  // of each sequence
};
/// On machines of `profile`, through the memory of hosts: of GPUs over the link to theirs, and
/// where the replicas are not all in one node, over the network if that is slower; of a cpu through
/// its memory, which reads and writes. Connections that all ranks of a replica share are not looked
/// at.
CopyRates CopyRatesOf(const HardwareProfile& profile, bool in_one_node);

/// `kv_bytes` of a key or value. Throws UsageError where the profile has no peak that the products
/// need.
ServingRates ServingRatesOf(const HardwareProfile& profile, const ServingGpu& gpu,
                            const ServingEngine& engine, ServingPrecision weights, double kv_bytes);

/// Prices of one engine, GPU and precision of weights. README.md derives them.
class ServingPricer {
 public:
  explicit ServingPricer(const ServingRates& rates) : rates_(rates) {}

  ServingBreakdown Price(const ServingWork& work) const;

 private:
  double Product(const ServingProduct& product) const;
  double Experts(const ServingProduct& product, const ServingWork& work) const;
  double Touched(const ServingWork& work) const;
  double Unpacking(double weights, double flops) const;
  double ByRows(double weights, double flops) const;

  ServingRates rates_;
};

}  // namespace trimtab
