#include "engine/config/rules/rule_parts.h"

namespace trimtab {
namespace {

/// Ranks of a pipeline stage.
int64_t StageRanks(const ParallelConfig& layout) { return layout.tp * layout.cp * layout.dp; }

bool Divides(int64_t divisor, int64_t value) { return value % divisor == 0; }

constexpr Rule kExpertRules[] = {
    {"expert-ranks-require-experts", "A model without experts has none to lay out.",
     [](const RunConfig& run) {
       return run.model.moe.used() || (run.layout.ep == 1 && run.layout.etp == 1);
     },
     [](const RunConfig& run) {
       return fmt::format("ep is {}, etp {}, and the model has no experts", run.layout.ep,
                          run.layout.etp);
     }},
    {"dispatch-requires-expert-ranks", "Tokens are dispatched where several ranks hold experts.",
     [](const RunConfig& run) {
       return run.layout.dispatch == Dispatch::kAllToAll || run.layout.ep * run.layout.etp > 1;
     },
     [](const RunConfig& run) {
       return fmt::format("dispatch={} needs ep x etp of at least 2, and ep is {}, etp {}",
                          Name(run.layout.dispatch), run.layout.ep, run.layout.etp);
     }},
    {"document-mask-requires-routing-by-token",
     "Documents that do not see each other are routed token by token.",
     [](const RunConfig& run) {
       const MoeConfig& moe = run.model.moe;
       return !run.packing.masks_documents() || !moe.used() ||
              (moe.router != RouterKind::kSinkhorn && moe.capacity_factor == 0);
     },
     [](const RunConfig&) {
       return std::string(
           "mask=documents with Sinkhorn's router or a capacity, which look at whole sequences; "
           "expected a top-k router without capacity_factor");
     }},
    {"experts-divisible-by-ep", "Every expert-parallel rank holds the same number of experts.",
     [](const RunConfig& run) { return Divides(run.layout.ep, run.model.moe.num_experts); },
     [](const RunConfig& run) {
       return NotDivisible("moe.num_experts", run.model.moe.num_experts, "ep", run.layout.ep);
     }},
    {"expert-ranks-divide-stage",
     "The ranks of a pipeline stage, tp x cp x dp, are cut into etp x ep that hold every expert.",
     [](const RunConfig& run) {
       return Divides(run.layout.etp * run.layout.ep, StageRanks(run.layout));
     },
     [](const RunConfig& run) {
       const ParallelConfig& p = run.layout;
       return fmt::format("tp {} x cp {} x dp {} is not divisible by etp {} x ep {}", p.tp, p.cp,
                          p.dp, p.etp, p.ep);
     }},
    {"expert-ffn-divisible-by-etp",
     "Every rank that shares an expert computes the same number of its columns.",
     [](const RunConfig& run) { return Divides(run.layout.etp, run.model.moe.ffn_hidden_size); },
     [](const RunConfig& run) {
       return NotDivisible("moe.ffn_hidden_size", run.model.moe.ffn_hidden_size, "etp",
                           run.layout.etp);
     }},
    {"shared-experts-divisible-by-tp",
     "Every tensor-parallel rank computes the same number of columns of the shared experts.",
     [](const RunConfig& run) {
       return Divides(run.layout.tp, run.model.moe.shared_ffn_hidden_size);
     },
     [](const RunConfig& run) {
       return NotDivisible("moe.shared_ffn_hidden_size", run.model.moe.shared_ffn_hidden_size, "tp",
                           run.layout.tp);
     }},
    {"experts-require-sp-with-tp",
     "Every rank sends tokens of its own to experts: with tp, sequence parallelism makes them so.",
     [](const RunConfig& run) {
       return !run.model.moe.used() || run.layout.tp == 1 || run.layout.sequence_parallel;
     },
     [](const RunConfig& run) {
       return fmt::format("tp is {}, and experts need sp=1 with it", run.layout.tp);
     }},
    {"shard-fits-experts",
     "Ranks that share a sharded replica hold each of its experts equally often, or in part.",
     [](const RunConfig& run) {
       const int64_t replica = run.layout.tp * run.layout.shard;
       const int64_t experts = run.layout.etp * run.layout.ep;
       return replica == 0 || Divides(experts, replica) || Divides(replica, experts);
     },
     [](const RunConfig& run) {
       const ParallelConfig& p = run.layout;
       return fmt::format("neither of tp {} x shard {} and etp {} x ep {} divides the other", p.tp,
                          p.shard, p.etp, p.ep);
     }},
};

}  // namespace

std::span<const Rule> ExpertRules() { return kExpertRules; }

}  // namespace trimtab
