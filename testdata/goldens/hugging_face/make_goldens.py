#!/usr/bin/python3
"""Makes tiny models as Hugging Face folders, and what PyTorch computes with them.

Usage: ./make_goldens.py          (Debian packages python3-torch and python3-numpy)

Writes NAME/config.json and NAME/*.safetensors, as Hugging Face's transformers would save the model,
and NAME/expected.safetensors, computed in double precision by models.py:
  tokens   [B, T + 1]
  logits   [B * T, V] of all tokens but the last of each sequence
  loss     mean cross-entropy of predicting the next token
"""

import json
import os
import struct
import sys

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True  # of models.py, into this folder
import local_layers  # noqa: E402
import mixtures  # noqa: E402
import models  # noqa: E402

BATCH, SEQUENCE = 4, 12
HERE = os.path.dirname(os.path.abspath(__file__))


def write_safetensors(path, tensors):
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
    header, data = {}, b""
    for name, tensor in tensors.items():
        same_size = torch.int16 if tensor.dtype == torch.bfloat16 else tensor.dtype
        raw = tensor.contiguous().view(same_size).numpy().tobytes()
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    with open(path, "w") as file:
        json.dump(value, file, indent=2)
        file.write("\n")


def write_shards(folder, tensors, shards):
    names = list(tensors)
    weight_map = {}
    for i in range(shards):
        file = f"model-{i + 1:05}-of-{shards:05}.safetensors"
        part = names[i * len(names) // shards : (i + 1) * len(names) // shards]
        write_safetensors(os.path.join(folder, file), {name: tensors[name] for name in part})
        weight_map.update({name: file for name in part})
    total = sum(tensor.nelement() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(os.path.join(folder, "model.safetensors.index.json"), index)


def make_golden(name, model, config, dtype=torch.float32, shards=1, extra=None):
    """`extra` makes tensors that are no parameters from those that are."""
    weights = models.Weights(dtype)
    tokens = torch.randint(
        config["vocab_size"], (BATCH, SEQUENCE + 1), generator=weights.generator
    )
    logits = model(weights, config, tokens[:, :-1]).flatten(0, 1)
    loss = F.cross_entropy(logits, tokens[:, 1:].flatten())
    folder = os.path.join(HERE, name)
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "config.json"), config)
    tensors = {**weights.tensors, **(extra(weights.tensors) if extra else {})}
    if shards == 1:
        write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    else:
        write_shards(folder, tensors, shards)
    expected = {"tokens": tokens, "logits": logits, "loss": loss.reshape(1)}
    write_safetensors(
        os.path.join(folder, "expected.safetensors"), {k: v.float() for k, v in expected.items()}
    )
    print(f"{name}: loss {loss.item():.6f}")


GPT2 = {
    "architectures": ["GPT2LMHeadModel"],
    "model_type": "gpt2",
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "n_embd": 32,
    "n_head": 4,
    "n_layer": 2,
    "n_positions": 16,
    "vocab_size": 61,
}
GPTJ = dict(
    GPT2, architectures=["GPTJForCausalLM"], model_type="gptj", rotary_dim=4,
    tie_word_embeddings=False,
)
OPT = {
    "architectures": ["OPTForCausalLM"],
    "model_type": "opt",
    "activation_function": "relu",
    "do_layer_norm_before": True,
    "ffn_dim": 128,
    "hidden_size": 32,
    "max_position_embeddings": 16,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "vocab_size": 61,
    "word_embed_proj_dim": 32,
}
OPT_350M = dict(OPT, do_layer_norm_before=False, word_embed_proj_dim=24)
BLOOM = {
    "architectures": ["BloomForCausalLM"],
    "model_type": "bloom",
    "apply_residual_connection_post_layernorm": False,
    "hidden_size": 32,
    "layer_norm_epsilon": 1e-5,
    "n_head": 4,
    "n_layer": 2,
    "vocab_size": 61,
}
MPT = {
    "architectures": ["MPTForCausalLM"],
    "model_type": "mpt",
    "attn_config": {"alibi": True, "alibi_bias_max": 8, "clip_qkv": None, "qk_ln": False},
    "d_model": 32,
    "expansion_ratio": 4,
    "max_seq_len": 64,
    "n_heads": 4,
    "n_layers": 2,
    "no_bias": True,
    "vocab_size": 61,
}
GPT_NEOX = {
    "architectures": ["GPTNeoXForCausalLM"],
    "model_type": "gpt_neox",
    "hidden_act": "gelu",
    "hidden_size": 32,
    "intermediate_size": 128,
    "layer_norm_eps": 1e-5,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "rotary_emb_base": 10000,
    "rotary_pct": 0.5,
    "tie_word_embeddings": False,
    "use_parallel_residual": True,
    "vocab_size": 61,
}
FALCON = {
    "architectures": ["FalconForCausalLM"],
    "model_type": "falcon",
    "alibi": False,
    "bias": False,
    "hidden_size": 32,
    "layer_norm_epsilon": 1e-5,
    "multi_query": True,
    "new_decoder_architecture": False,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "parallel_attn": True,
    "rope_theta": 10000.0,
    "vocab_size": 61,
}
LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": 32,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 61,
}
MISTRAL = dict(
    LLAMA, architectures=["MistralForCausalLM"], model_type="mistral", sliding_window=5
)
QWEN2 = dict(
    LLAMA, architectures=["Qwen2ForCausalLM"], model_type="qwen2", use_sliding_window=False
)
QWEN3 = dict(
    LLAMA, architectures=["Qwen3ForCausalLM"], model_type="qwen3", head_dim=16,
    attention_bias=False, use_sliding_window=False,
)
MIXTRAL = dict(
    LLAMA, architectures=["MixtralForCausalLM"], model_type="mixtral", intermediate_size=16,
    num_experts_per_tok=2, num_local_experts=4, router_aux_loss_coef=0.02,
)
QWEN3_MOE = dict(
    QWEN3, architectures=["Qwen3MoeForCausalLM"], model_type="qwen3_moe", decoder_sparse_step=1,
    mlp_only_layers=[], moe_intermediate_size=16, norm_topk_prob=True, num_experts=4,
    num_experts_per_tok=2, router_aux_loss_coef=0.001,
)
NEMOTRON = dict(
    LLAMA, architectures=["NemotronForCausalLM"], model_type="nemotron", hidden_act="relu2",
    norm_eps=1e-5, partial_rotary_factor=0.5,
)
del NEMOTRON["rms_norm_eps"]
GEMMA2 = dict(
    LLAMA, architectures=["Gemma2ForCausalLM"], model_type="gemma2", head_dim=16,
    hidden_activation="gelu_pytorch_tanh", attn_logit_softcapping=5.0, final_logit_softcapping=3.0,
    query_pre_attn_scalar=24, sliding_window=5, tie_word_embeddings=True,
)
del GEMMA2["hidden_act"]
GEMMA3 = dict(
    GEMMA2, architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", num_hidden_layers=4,
    attn_logit_softcapping=None, final_logit_softcapping=None, rope_theta=1000000.0,
    rope_local_base_freq=10000.0, rope_scaling={"rope_type": "linear", "factor": 8.0},
    sliding_window_pattern=3,
)
OLMO2 = dict(
    LLAMA, architectures=["Olmo2ForCausalLM"], model_type="olmo2", attention_bias=False,
    rope_theta=500000.0, rope_scaling=None,
)
OLMO3 = dict(
    OLMO2, architectures=["Olmo3ForCausalLM"], model_type="olmo3", num_hidden_layers=4,
    sliding_window=5, layer_types=["sliding_attention"] * 3 + ["full_attention"],
    rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 4.0, "beta_slow": 1.0, "attention_factor": 1.1,
    },
)
GLM4 = dict(
    LLAMA, architectures=["Glm4ForCausalLM"], model_type="glm4", attention_bias=True, head_dim=8,
    partial_rotary_factor=0.5,
)
QWEN2_MOE = dict(
    QWEN2, architectures=["Qwen2MoeForCausalLM"], model_type="qwen2_moe", decoder_sparse_step=1,
    mlp_only_layers=[], moe_intermediate_size=16, shared_expert_intermediate_size=24,
    norm_topk_prob=False, num_experts=4, num_experts_per_tok=2, router_aux_loss_coef=0.001,
)
DEEPSEEK_V2 = dict(
    LLAMA, architectures=["DeepseekV2ForCausalLM"], model_type="deepseek_v2", attention_bias=False,
    num_hidden_layers=3, num_key_value_heads=4, q_lora_rank=None, kv_lora_rank=12,
    qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=5, first_k_dense_replace=1, moe_layer_freq=1,
    n_routed_experts=8, n_shared_experts=2, moe_intermediate_size=12, num_experts_per_tok=3,
    n_group=4, topk_group=2, topk_method="group_limited_greedy", scoring_func="softmax",
    norm_topk_prob=False, routed_scaling_factor=2.0, aux_loss_alpha=0.001, seq_aux=True,
)
DEEPSEEK_V3 = dict(
    DEEPSEEK_V2, architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", q_lora_rank=10,
    n_shared_experts=1, scoring_func="sigmoid", topk_method="noaux_tc", norm_topk_prob=True,
    routed_scaling_factor=2.5, num_nextn_predict_layers=1,
)
GPT_OSS = dict(
    LLAMA, architectures=["GptOssForCausalLM"], model_type="gpt_oss", attention_bias=True,
    head_dim=16, sliding_window=5, num_local_experts=4, num_experts_per_tok=2,
    router_aux_loss_coef=0.9, swiglu_limit=7.0,
    rope_scaling={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
        "beta_fast": 4.0, "beta_slow": 1.0, "truncate": False,
    },
)
DBRX = {
    "architectures": ["DbrxForCausalLM"],
    "model_type": "dbrx",
    "attn_config": {"clip_qkv": 0.5, "kv_n_heads": 2, "rope_theta": 10000.0},
    "d_model": 32,
    "ffn_config": {
        "ffn_hidden_size": 24, "moe_loss_weight": 0.05, "moe_normalize_expert_weights": 1,
        "moe_num_experts": 4, "moe_top_k": 2,
    },
    "max_seq_len": 64,
    "n_heads": 4,
    "n_layers": 2,
    "tie_word_embeddings": False,
    "vocab_size": 61,
}
GLM = dict(GLM4, architectures=["GlmForCausalLM"], model_type="glm")


def main():
    half = torch.bfloat16
    # The published file: no prefix, a buffer in each layer.
    make_golden(
        "gpt2", models.gpt2, GPT2,
        extra=lambda w: {f"h.{i}.attn.bias": torch.ones(1, 1, 4, 4).tril() for i in range(2)},
    )
    make_golden("gptj", models.gptj, GPTJ, half)
    make_golden("opt", models.opt, OPT, torch.float16)
    make_golden("opt_350m", models.opt, OPT_350M, torch.float16)
    make_golden("bloom", models.bloom, BLOOM, half)
    make_golden("mpt", models.mpt, MPT, half)
    make_golden("gpt_neox", models.gpt_neox, GPT_NEOX, torch.float16)
    # The published file: a copy of the tied table.
    make_golden(
        "falcon_7b", models.falcon, FALCON, half,
        extra=lambda w: {"lm_head.weight": w["transformer.word_embeddings.weight"]},
    )
    new = dict(FALCON, new_decoder_architecture=True, num_kv_heads=2)
    make_golden("falcon_40b", models.falcon, new, half)
    make_golden("llama", models.llama, LLAMA, half, shards=2)
    make_golden("mistral", models.llama, MISTRAL, half)
    make_golden("qwen2", models.llama, QWEN2, half)
    make_golden("qwen3", models.llama, QWEN3, half, shards=3)
    make_golden("mixtral", models.llama, MIXTRAL, half)
    make_golden("qwen3_moe", models.llama, QWEN3_MOE, half, shards=2)
    make_golden("nemotron", models.nemotron, NEMOTRON, half)
    make_golden("gemma2", models.gemma2, GEMMA2, half)
    make_golden("gemma3", local_layers.gemma3, GEMMA3, half)
    make_golden("olmo2", local_layers.olmo, OLMO2, half)
    make_golden("olmo3", local_layers.olmo, OLMO3, half, shards=2)
    make_golden("glm4", models.glm4, GLM4, half)
    make_golden("glm", models.glm4, GLM, half)
    make_golden("qwen2_moe", mixtures.qwen2_moe, QWEN2_MOE, half)
    make_golden("deepseek_v2", mixtures.deepseek, DEEPSEEK_V2, half)
    # The published file: a layer more, for multi-token prediction.
    make_golden(
        "deepseek_v3", mixtures.deepseek, DEEPSEEK_V3, half, shards=2,
        extra=lambda w: {"model.layers.3.eh_proj.weight": torch.ones(32, 64)},
    )
    make_golden("gpt_oss", mixtures.gpt_oss, GPT_OSS, half)
    make_golden("dbrx", mixtures.dbrx, DBRX, half)


if __name__ == "__main__":
    main()
