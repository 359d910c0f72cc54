#!/usr/bin/env python3
"""Writes the config.json of the default of each model type as Transformers 4 and 5 save it.

  make_configs.py                      from the facts below
  make_configs.py --transformers PATH  from the classes in a checkout of Transformers; which folder
                                       they go to follows from its version

The facts are the default values of configuration_TYPE.py of huggingface/transformers, and which
of them `save_pretrained` writes (`to_diff_dict` in configuration_utils.py).
"""

import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def sizes(hidden, layers, heads, kv, ffn, positions, vocab, **more):
    keys = {
        "vocab_size": vocab,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "max_position_embeddings": positions,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "rms_norm_eps": 1e-6,
        "use_cache": True,
        "attention_dropout": 0.0,
        "tie_word_embeddings": False,
        "rope_theta": 10000.0,
    }
    keys.update(more)
    return {key: value for key, value in keys.items() if value != "absent"}


SUMMARY = {
    "summary_activation": None,
    "summary_first_dropout": 0.1,
    "summary_proj_to_labels": True,
    "summary_type": "cls_index",
    "summary_use_proj": True,
}
GPT2 = {
    "vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
    "n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1,
    "attn_pdrop": 0.1, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
    "scale_attn_weights": True, "use_cache": True, "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False, "bos_token_id": 50256, "eos_token_id": 50256,
    "tie_word_embeddings": True, **SUMMARY,
}
GPTJ = {
    "vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16,
    "n_inner": None, "rotary_dim": 64, "activation_function": "gelu_new", "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
    "use_cache": True, "bos_token_id": 50256, "eos_token_id": 50256, "tie_word_embeddings": False,
}
GPT_NEOX = {
    "vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
    "intermediate_size": 24576, "hidden_act": "gelu", "rotary_pct": 0.25, "rotary_emb_base": 10000,
    "partial_rotary_factor": 0.25, "rope_theta": 10000, "attention_dropout": 0.0,
    "hidden_dropout": 0.0, "classifier_dropout": 0.1, "max_position_embeddings": 2048,
    "initializer_range": 0.02, "layer_norm_eps": 1e-5, "use_cache": True, "bos_token_id": 0,
    "eos_token_id": 2, "tie_word_embeddings": False, "use_parallel_residual": True,
    "attention_bias": True,
}
OPT = {
    "vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
    "max_position_embeddings": 2048, "do_layer_norm_before": True,
    "_remove_final_layer_norm": False, "word_embed_proj_dim": 768, "dropout": 0.1,
    "attention_dropout": 0.0, "num_attention_heads": 12, "activation_function": "relu",
    "layerdrop": 0.0, "init_std": 0.02, "use_cache": True, "pad_token_id": 1, "bos_token_id": 2,
    "eos_token_id": 2, "enable_bias": True, "layer_norm_elementwise_affine": True,
    "tie_word_embeddings": True,
}
BLOOM = {
    "vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02, "use_cache": True, "bos_token_id": 1, "eos_token_id": 2,
    "apply_residual_connection_post_layernorm": False, "hidden_dropout": 0.0,
    "attention_dropout": 0.0, "pretraining_tp": 1, "slow_but_exact": False,
    "tie_word_embeddings": True,
}
MPT = {
    "attn_config": {
        "alibi": True, "alibi_bias_max": 8, "attn_impl": "torch", "attn_pdrop": 0,
        "attn_type": "multihead_attention", "attn_uses_sequence_id": False, "clip_qkv": None,
        "model_type": "", "prefix_lm": False, "qk_ln": False, "softmax_scale": None,
    },
    "d_model": 2048, "n_heads": 16, "n_layers": 24, "expansion_ratio": 4, "max_seq_len": 2048,
    "vocab_size": 50368, "resid_pdrop": 0.0, "emb_pdrop": 0.0, "learned_pos_emb": True,
    "init_device": "cpu", "logit_scale": None, "no_bias": True, "verbose": 0,
    "embedding_fraction": 1.0, "norm_type": "low_precision_layernorm", "layer_norm_epsilon": 1e-5,
    "use_cache": False, "initializer_range": 0.02, "tie_word_embeddings": True,
}
FALCON = {
    "vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
    "num_ln_in_parallel_attn": None, "layer_norm_epsilon": 1e-5, "initializer_range": 0.02,
    "use_cache": True, "hidden_dropout": 0.0, "attention_dropout": 0.0, "num_kv_heads": 71,
    "alibi": False, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True,
    "bias": False, "max_position_embeddings": 2048, "rope_theta": 10000.0, "bos_token_id": 11,
    "eos_token_id": 11, "ffn_hidden_size": 18176, "activation": "gelu",
    "tie_word_embeddings": True,
}
DBRX = {
    "attn_config": {"attn_pdrop": 0.0, "clip_qkv": None, "kv_n_heads": 1, "model_type": "",
                    "rope_theta": 10000.0},
    "ffn_config": {"ffn_act_fn": {"name": "silu"}, "ffn_hidden_size": 3584, "model_type": "",
                   "moe_jitter_eps": None, "moe_loss_weight": 0.01,
                   "moe_normalize_expert_weights": 1.0, "moe_num_experts": 4, "moe_top_k": 1},
    "d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048, "vocab_size": 32000,
    "resid_pdrop": 0.0, "emb_pdrop": 0.0, "use_cache": True, "initializer_range": 0.02,
    "output_router_logits": False, "num_key_value_heads": 1, "tie_word_embeddings": False,
}
DEEPSEEK = {
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "head_dim": 64, "attention_bias": False, "pretraining_tp": 1,
}
QWEN_EXPERTS = {
    "decoder_sparse_step": 1, "norm_topk_prob": False, "output_router_logits": False,
    "router_aux_loss_coef": 0.001, "mlp_only_layers": [], "use_sliding_window": False,
    "sliding_window": None,
}
FACTS = {
    "gpt2": GPT2,
    "gptj": GPTJ,
    "gpt_neox": GPT_NEOX,
    "opt": OPT,
    "bloom": BLOOM,
    "mpt": MPT,
    "falcon": FALCON,
    "nemotron": sizes(6144, 32, 48, 48, 24576, 4096, 256000, hidden_act="relu2", head_dim=128,
                      initializer_range=0.0134, rms_norm_eps="absent", norm_eps=1e-5,
                      bos_token_id=2, eos_token_id=3, partial_rotary_factor=0.5,
                      attention_bias=False, mlp_bias=False),
    "llama": sizes(4096, 32, 32, 32, 11008, 2048, 32000, bos_token_id=1, eos_token_id=2,
                   pretraining_tp=1, attention_bias=False, mlp_bias=False, head_dim=128),
    "mistral": sizes(4096, 32, 32, 8, 14336, 131072, 32000, bos_token_id=1, eos_token_id=2,
                     head_dim=None, sliding_window=4096),
    "qwen2": sizes(4096, 32, 32, 32, 22016, 32768, 151936, use_sliding_window=False,
                   sliding_window=None, max_window_layers=28, layer_types=["full_attention"] * 32),
    "qwen3": sizes(4096, 32, 32, 32, 22016, 32768, 151936, head_dim=128, attention_bias=False,
                   use_sliding_window=False, sliding_window=None, max_window_layers=28,
                   layer_types=["full_attention"] * 32),
    "gemma2": sizes(2304, 26, 8, 4, 9216, 8192, 256000, head_dim=256, hidden_act="absent",
                    hidden_activation="gelu_pytorch_tanh", pad_token_id=0, eos_token_id=1,
                    bos_token_id=2, tie_word_embeddings=True, attention_bias=False,
                    query_pre_attn_scalar=256, sliding_window=4096, final_logit_softcapping=30.0,
                    attn_logit_softcapping=50.0, use_bidirectional_attention=None,
                    layer_types=["sliding_attention", "full_attention"] * 13),
    "gemma3_text": sizes(2304, 26, 8, 4, 9216, 131072, 262208, head_dim=256, hidden_act="absent",
                         hidden_activation="gelu_pytorch_tanh", pad_token_id=0, eos_token_id=1,
                         bos_token_id=2, tie_word_embeddings=True, attention_bias=False,
                         rope_theta=1000000.0, rope_local_base_freq=10000.0,
                         query_pre_attn_scalar=256, sliding_window=4096,
                         final_logit_softcapping=None, attn_logit_softcapping=None,
                         use_bidirectional_attention=False,
                         layer_types=(["sliding_attention"] * 5 + ["full_attention"]) * 4
                         + ["sliding_attention"] * 2),
    "olmo2": sizes(4096, 32, 32, 32, 11008, 2048, 50304, rms_norm_eps=1e-5, pad_token_id=1,
                   bos_token_id=None, eos_token_id=50279, attention_bias=False),
    "olmo3": sizes(4096, 32, 32, 32, 11008, 2048, 50304, rms_norm_eps=1e-5, pad_token_id=1,
                   bos_token_id=None, eos_token_id=50279, attention_bias=False,
                   sliding_window=4096,
                   layer_types=(["sliding_attention"] * 3 + ["full_attention"]) * 8),
    "glm": sizes(4096, 40, 32, 2, 13696, 131072, 151552, head_dim=128, rms_norm_eps=1.5625e-07,
                 partial_rotary_factor=0.5, attention_bias=True, pad_token_id=151329,
                 eos_token_id=[151329, 151336, 151338], bos_token_id=None),
    "glm4": sizes(4096, 40, 32, 2, 13696, 131072, 151552, head_dim=128, rms_norm_eps=1.5625e-07,
                  partial_rotary_factor=0.5, attention_bias=True, pad_token_id=151329,
                  eos_token_id=[151329, 151336, 151338], bos_token_id=None),
    "mixtral": sizes(4096, 32, 32, 8, 14336, 131072, 32000, bos_token_id=1, eos_token_id=2,
                     head_dim=None, rms_norm_eps=1e-5, rope_theta=1000000.0, sliding_window=None,
                     num_experts_per_tok=2, num_local_experts=8, output_router_logits=False,
                     router_aux_loss_coef=0.001, router_jitter_noise=0.0),
    "qwen2_moe": sizes(2048, 24, 16, 16, 5632, 32768, 151936, **QWEN_EXPERTS, qkv_bias=True,
                       num_experts=60, num_experts_per_tok=4, moe_intermediate_size=1408,
                       shared_expert_intermediate_size=5632, max_window_layers=28,
                       layer_types=["full_attention"] * 24),
    "qwen3_moe": sizes(2048, 24, 32, 4, 6144, 32768, 151936, **QWEN_EXPERTS, attention_bias=False,
                       num_experts=128, num_experts_per_tok=8, moe_intermediate_size=768),
    # num_experts_per_tok is null in its class, and such a model cannot be built.
    "deepseek_v2": sizes(4096, 32, 32, 32, 11008, 2048, 32000, **DEEPSEEK, bos_token_id=1,
                         eos_token_id=2, mlp_bias=False, first_k_dense_replace=0, n_group=None,
                         n_routed_experts=64, n_shared_experts=2, routed_scaling_factor=1.0,
                         topk_group=None, topk_method="greedy", norm_topk_prob=False,
                         num_experts_per_tok=6, moe_intermediate_size=1407),
    "deepseek_v3": sizes(7168, 61, 128, 128, 18432, 4096, 129280, **DEEPSEEK, bos_token_id=0,
                         eos_token_id=1, qk_head_dim=192, rope_interleave=True,
                         first_k_dense_replace=3, n_group=8, topk_group=4, n_routed_experts=256,
                         n_shared_experts=1, routed_scaling_factor=2.5, norm_topk_prob=True,
                         num_experts_per_tok=8, moe_intermediate_size=2048),
    "gpt_oss": sizes(2880, 36, 64, 8, 2880, 131072, 201088, head_dim=64, rms_norm_eps=1e-5,
                     rope_theta=150000.0, attention_bias=True, sliding_window=128,
                     num_local_experts=128, num_experts_per_tok=4, router_aux_loss_coef=0.9,
                     output_router_logits=False,
                     layer_types=["sliding_attention", "full_attention"] * 18,
                     rope_scaling={"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0,
                                   "beta_slow": 1.0, "truncate": False,
                                   "original_max_position_embeddings": 4096}),
    "dbrx": DBRX,
}


def transformers4(model_type, facts):
    """Nulls of the base class and its default of tied embeddings are not written."""
    config = {"model_type": model_type, "transformers_version": "4.57.1", **facts}
    if facts.get("tie_word_embeddings") is True:
        del config["tie_word_embeddings"]
    if "rope_theta" in facts and model_type != "gptj":
        config.setdefault("rope_scaling", None)
    return {key: value for key, value in config.items()
            if value is not None or not key.endswith("_token_id")}


def transformers5(model_type, facts):
    """Rotary positions are one object, and every key of the class is written."""
    config = {"model_type": model_type, "transformers_version": "5.3.0", "pad_token_id": None,
              **facts}
    theta = config.pop("rope_theta", None)
    attention = config.get("attn_config", {})
    if model_type == "dbrx":
        config["attn_config"] = {k: v for k, v in attention.items() if k != "rope_theta"}
        theta = attention["rope_theta"]
    if theta is not None:
        rope = config.pop("rope_scaling", None) or {"rope_type": "default"}
        rope = {**rope, "rope_theta": float(theta)}
        for key in ("rotary_pct", "partial_rotary_factor"):
            if key in config:
                rope["partial_rotary_factor"] = config.pop(key)
        config.pop("rotary_emb_base", None)
        config["rope_parameters"] = rope
    if model_type in ("gemma3_text", "olmo3"):
        theta = 5e5 if model_type == "olmo3" else theta
        local = config.pop("rope_local_base_freq", theta)
        config["rope_parameters"] = {
            "full_attention": {"rope_type": "default", "rope_theta": theta},
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
        }
    if "num_experts" in config:
        config["num_local_experts"] = config.pop("num_experts")
    if model_type == "gpt_oss":
        config["router_aux_loss_coef"] = 0.001
        config["swiglu_limit"] = 7.0
    return config


def write(folder, model_type, config):
    path = os.path.join(HERE, folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, model_type + ".json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1, sort_keys=True)
        file.write("\n")


def from_checkout(path):
    sys.path.insert(0, os.path.join(path, "src"))
    import transformers  # pylint: disable=import-outside-toplevel

    folder = "transformers" + transformers.__version__.split(".")[0]
    for model_type in FACTS:
        more = {"num_experts_per_tok": 6} if model_type == "deepseek_v2" else {}
        config = transformers.CONFIG_MAPPING[model_type](**more)
        write(folder, model_type, json.loads(config.to_json_string(use_diff=True)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--transformers", metavar="PATH", help="a checkout of Transformers")
    path = parser.parse_args().transformers
    if path:
        return from_checkout(path)
    for model_type, facts in FACTS.items():
        write("transformers4", model_type, transformers4(model_type, facts))
        write("transformers5", model_type, transformers5(model_type, facts))
    return None


if __name__ == "__main__":
    main()
