#include "cost_model/explain.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>

#include "cost_model/hardware/numerics.h"
#include "cost_model/prices/message_price.h"
#include "cost_model/prices/price.h"
#include "engine/base/error.h"
#include "engine/comm/process_groups.h"
#include "engine/config/rules/rules.h"
#include "engine/train/trainer.h"

namespace trimtab {
namespace {

std::string Of(const char* name, Origin origin) {
  return fmt::format("{} ({})", name, Name(origin));
}

/// Messages at the bandwidth of the network, and `link_bandwidth` within it, without latency.
MessagePrice MessagesOfLight(const RunConfig& run, const Cluster& cluster, double link_bandwidth) {
  HardwareProfile profile = cluster.profile;
  profile.link_bandwidth.value = link_bandwidth;
  profile.link_latency_s.value = profile.network_latency_s.value = 0;
  profile.link_efficiency.value = profile.network_efficiency.value = 1;
  profile.shared_ports.value = 1;
  SoftwareStack stack = cluster.stack;
  stack.network.value = 1;
  return MessagePrice(profile, cluster.ranks_per_node, stack, run.model.moe);
}

/// Adds up what a rank does in a step.
class ExplainRecorder final : public Recorder {
 public:
  ExplainRecorder(const RunConfig& run, const Cluster& cluster, const Pricer& pricer)
      : layout_(run.layout),
        cluster_(cluster),
        pricer_(pricer),
        messages_(MessagesOfLight(run, cluster, cluster.profile.link_bandwidth.value)),
        copies_(MessagesOfLight(run, cluster, cluster.profile.memory_bandwidth.value)) {}

  void EnterPiece(const PieceRecord& piece) override { piece_ = piece; }
  void BeginOp(const OpRecord& op) override {
    const bool multiplies = op.flops > 0;
    const std::string type = multiplies ? fmt::format(" {}", Name(op.dtype)) : "";
    ExplainedPart& part = PartOf(std::string(Name(op.kind)) + type);
    ++part.count;
    part.seconds += pricer_.SecondsIn(piece_, op);
    const HardwareProfile& profile = cluster_.profile;
    // A stack may move less than our engine does, or hide a share of its messages.
    const double bytes =
        std::min(1.0, cluster_.stack.memory_traffic.value) * static_cast<double>(op.bytes);
    const double move_s = bytes / profile.memory_bandwidth.value;
    const double multiply_s =
        multiplies ? static_cast<double>(op.flops) / pricer_.PeakFlopsIn(piece_, op) : 0;
    part.light_s += pricer_.ShareRun(piece_) * std::max(move_s, multiply_s);
    if (part.priced_by.empty()) part.priced_by = PricedBy(op);
  }
  void BeginComm(const CommRecord& message) override {
    ExplainedPart& part = PartOf(fmt::format("{} {}", Name(message.kind), Name(message.group)));
    ++part.count;
    const int64_t stride = StrideOf(message.group, layout_);
    part.seconds += pricer_.SecondsIn(piece_, message, layout_, stride);
    const HardwareProfile& profile = cluster_.profile;
    if (pricer_.measured(message)) {  // ranks of one machine copy through its memory
      part.light_s += copies_.Seconds(message, stride);
      part.priced_by = Of("tables of this machine", Origin::kMeasured);
      return;
    }
    const double runs = IsOfDataRanks(message.group) ? 1 : pricer_.ShareRun(piece_);
    part.light_s += runs * std::min(1.0, pricer_.Exposed(message)) *
                    (GoesBetweenStages(message) ? messages_.BetweenStages(message, layout_)
                                                : messages_.Seconds(message, stride));
    if (!part.priced_by.empty()) return;
    const int64_t domain = std::max(cluster_.ranks_per_node, profile.link_domain);
    const bool within = stride * message.ranks <= domain;
    const Quantity& wire = within ? profile.link_bandwidth : profile.network_bandwidth;
    const Quantity& efficiency = within ? profile.link_efficiency : profile.network_efficiency;
    part.priced_by = Of(within ? "link_bandwidth" : "network_bandwidth", wire.origin) + ", " +
                     Of(within ? "link_efficiency" : "network_efficiency", efficiency.origin);
    if (within || stride == 1) return;
    part.priced_by += ", " + Of("shared_ports", profile.shared_ports.origin);
  }
  void BeginWait(const CommRecord& /*message*/) override {}
  void End() override {}

  std::vector<ExplainedPart> Parts() const {
    std::vector<ExplainedPart> parts;
    for (const auto& [name, part] : parts_) parts.push_back(part);
    std::sort(parts.begin(), parts.end(),
              [](const ExplainedPart& a, const ExplainedPart& b) { return a.seconds > b.seconds; });
    return parts;
  }

 private:
  ExplainedPart& PartOf(const std::string& what) {
    ExplainedPart& part = parts_[what];
    part.what = what;
    return part;
  }

  std::string PricedBy(const OpRecord& op) const {
    const HardwareProfile& profile = cluster_.profile;
    const SoftwareStack& stack = cluster_.stack;
    if (pricer_.measured(op)) return Of("tables of this machine", Origin::kMeasured);
    if (op.flops == 0) {
      return Of("bandwidth_efficiency", profile.bandwidth_efficiency.origin) + ", " +
             Of("memory_traffic", stack.memory_traffic.origin);
    }
    const bool attention =
        op.kind == OpKind::kAttentionForward || op.kind == OpKind::kAttentionBackward;
    if (attention) {
      return Of("attention", profile.attention_forward.origin) + ", " +
             Of("the stack's", stack.attention.origin);
    }
    return Of("gemm_efficiency", profile.gemm_efficiency.origin) + ", " +
           Of("compute", stack.compute.origin);
  }

  const ParallelConfig& layout_;
  const Cluster& cluster_;
  const Pricer& pricer_;
  MessagePrice messages_;  // through links and network
  MessagePrice copies_;    // through the memory of one machine
  PieceRecord piece_;
  std::map<std::string, ExplainedPart> parts_;
};

double SecondsOf(const std::vector<ExplainedPart>& parts) {
  return std::accumulate(parts.begin(), parts.end(), 0.0,
                         [](double sum, const ExplainedPart& part) { return sum + part.seconds; });
}

}  // namespace

std::vector<ExplainedPart> ExplainStep(const RunConfig& run, const Cluster& cluster) {
  RequireLegal(run);
  const Mode mode = ModeOf(run, cluster);
  const Pricer pricer = PricerOf(cluster, mode, run.layout.numerics.precision, run.model.moe);
  const Executor executor = ExecutorOf(mode, cluster);
  std::vector<ExplainedPart> longest;
  for (int64_t stage = 0; stage < run.layout.pp; ++stage) {
    const std::unique_ptr<Device> device = MakeMetaDevice(executor.threads, executor.kind);
    const ParallelContext context =
        MakeMetaContext(run.layout, RankAt(run.layout, {.pp = static_cast<int>(stage)}),
                        run.model.kv_copies(run.layout.tp));
    Trainer trainer(run, context, *device);
    ExplainRecorder recorder(run, cluster, pricer);
    device->set_recorder(&recorder);
    const auto source = MakeSyntheticSource(run.model.vocab_size, run.seed);
    trainer.Step(*source, 0);
    device->set_recorder(nullptr);
    std::vector<ExplainedPart> parts = recorder.Parts();
    if (SecondsOf(parts) > SecondsOf(longest)) longest = std::move(parts);
  }
  return longest;
}

}  // namespace trimtab
