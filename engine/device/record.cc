#include "engine/device/record.h"

namespace trimtab {

std::string_view Name(OpKind kind) {
  static constexpr std::array<std::string_view, kOpKindCount> kNames = {"gemm",
                                                                        "attention_forward",
                                                                        "attention_backward",
                                                                        "layer_norm_forward",
                                                                        "layer_norm_backward",
                                                                        "rms_norm_forward",
                                                                        "rms_norm_backward",
                                                                        "activation_forward",
                                                                        "activation_backward",
                                                                        "gated_activation_forward",
                                                                        "gated_activation_backward",
                                                                        "head_norm_forward",
                                                                        "head_norm_backward",
                                                                        "join_heads",
                                                                        "join_heads_backward",
                                                                        "attention_sink",
                                                                        "attention_sink_backward",
                                                                        "rope",
                                                                        "add_bias",
                                                                        "bias_backward",
                                                                        "embedding_forward",
                                                                        "embedding_backward",
                                                                        "position_forward",
                                                                        "position_backward",
                                                                        "cross_entropy",
                                                                        "cross_entropy_parts",
                                                                        "cross_entropy_grad",
                                                                        "add",
                                                                        "copy",
                                                                        "fill",
                                                                        "sum",
                                                                        "sum_squares",
                                                                        "soft_cap",
                                                                        "clamp",
                                                                        "clamp_backward",
                                                                        "clip",
                                                                        "adamw",
                                                                        "momentum",
                                                                        "normalize",
                                                                        "quintic",
                                                                        "amax",
                                                                        "quantize",
                                                                        "fp8_scales",
                                                                        "layer_norm_forward_fp8",
                                                                        "rms_norm_forward_fp8",
                                                                        "gelu_forward_fp8",
                                                                        "gelu_backward_fp8",
                                                                        "swiglu_forward_fp8",
                                                                        "swiglu_backward_fp8",
                                                                        "rope_backward_fp8",
                                                                        "grouped_gemm",
                                                                        "grouped_add_bias",
                                                                        "grouped_bias_backward",
                                                                        "router_choose",
                                                                        "sinkhorn_choose",
                                                                        "router_weights",
                                                                        "router_weights_backward",
                                                                        "router_loss_backward",
                                                                        "count_choices",
                                                                        "drop_tokens",
                                                                        "sort_by_expert",
                                                                        "order_arrivals",
                                                                        "update_expert_bias",
                                                                        "permute",
                                                                        "unpermute",
                                                                        "unpermute_backward",
                                                                        "gate_rows",
                                                                        "gate_rows_backward",
                                                                        "store_kv",
                                                                        "paged_attention",
                                                                        "packed_gemm",
                                                                        "grouped_packed_gemm"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view Name(CollectiveKind kind) {
  static constexpr std::array<std::string_view, kCollectiveKindCount> kNames = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast",
      "all_to_all", "send",           "recv",       "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view Name(GroupKind group) {
  static constexpr std::array<std::string_view, kGroupKindCount> kNames = {
      "world",   "tp", "kv",  "cp",     "dp",  "pp",           "embedding",     "shard",
      "replica", "ep", "etp", "etp_ep", "edp", "expert_shard", "expert_replica"};
  return kNames[static_cast<size_t>(group)];
}

std::string_view Name(PieceKind piece) {
  static constexpr std::array<std::string_view, 4> kNames = {"embedding", "layer", "head",
                                                             "update"};
  return kNames[static_cast<size_t>(piece)];
}

std::string_view Name(PassKind pass) {
  static constexpr std::array<std::string_view, 3> kNames = {"forward", "recompute", "backward"};
  return kNames[static_cast<size_t>(pass)];
}

}  // namespace trimtab
