"""Tiny models of the families that goldens are made of, as model JSON."""

GPT2 = {
    "name": "golden-gpt2",
    "vocab_size": 61,
    "hidden_size": 32,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 4,
    "ffn_hidden_size": 128,
    "max_sequence_length": 24,
    "norm": "layernorm",
    "activation": "gelu",
    "position": "learned",
    "norm_epsilon": 1e-5,
    "rope_theta": 10000.0,
    "bias": True,
    "tied_embeddings": True,
    "init_std": 0.02,
    "make_vocab_size_divisible_by": 8,
}
LLAMA = dict(
    GPT2,
    name="golden-llama",
    num_kv_heads=2,
    ffn_hidden_size=48,
    norm="rmsnorm",
    activation="swiglu",
    position="rope",
    norm_epsilon=1e-6,
    bias=False,
    tied_embeddings=False,
)
# As Mixtral (softmax over the chosen experts, a load-balancing loss and a z-loss), and as
# DeepSeek-V3 with plain attention (sigmoids, groups, a shared expert, a bias that balances, a first
# dense layer).
MIXTRAL = dict(
    LLAMA,
    name="golden-mixtral",
    moe={
        "num_experts": 6,
        "router_topk": 2,
        "ffn_hidden_size": 24,
        "aux_loss_coeff": 0.02,
        "z_loss_coeff": 0.001,
    },
)
DEEPSEEK = dict(
    LLAMA,
    name="golden-deepseek",
    num_layers=3,
    num_kv_heads=4,
    rotary_interleaved=True,
    attention_scale=0.5,
    rope_scaling={
        "kind": "yarn",
        "factor": 4.0,
        "original_length": 16,
        "beta_fast": 4.0,
        "attention_factor": 1.0,
    },
    latent_attention={
        "q_lora_rank": 12,
        "kv_lora_rank": 9,
        "qk_nope_head_dim": 6,
        "qk_rope_head_dim": 4,
        "v_head_dim": 7,
    },
    moe={
        "num_experts": 8,
        "router_topk": 3,
        "ffn_hidden_size": 16,
        "shared_ffn_hidden_size": 24,
        "first_k_dense": 1,
        "score": "sigmoid",
        "norm_topk": True,
        "topk_scaling_factor": 2.5,
        "num_groups": 4,
        "group_topk": 2,
        "group_score": "sum_of_top_two",
        "expert_bias": True,
        "bias_update_rate": 0.02,
        "aux_loss_coeff": 0.01,
    },
)
DEEPSEEK_V2 = dict(
    LLAMA,
    name="golden-deepseek-v2",
    num_layers=3,
    num_kv_heads=4,
    rotary_interleaved=True,
    latent_attention={
        "kv_lora_rank": 8,
        "qk_nope_head_dim": 4,
        "qk_rope_head_dim": 4,
        "v_head_dim": 6,
    },
    moe={
        "num_experts": 8,
        "router_topk": 3,
        "ffn_hidden_size": 16,
        "shared_ffn_hidden_size": 24,
        "first_k_dense": 1,
        "pre_softmax": True,
        "topk_scaling_factor": 2.0,
        "num_groups": 4,
        "group_topk": 3,
        "aux_loss_coeff": 0.01,
    },
)
GPT_OSS = dict(
    LLAMA,
    name="golden-gpt-oss",
    activation="clamped_swiglu",
    head_size=10,
    bias=True,
    attention_sinks=True,
    sliding_window=6,
    full_attention_period=2,
    rope_scaling={
        "kind": "yarn",
        "factor": 4.0,
        "original_length": 16,
        "beta_fast": 4.0,
        "truncate": False,
    },
    moe={
        "num_experts": 6,
        "router_topk": 2,
        "ffn_hidden_size": 24,
        "router_bias": True,
        "aux_loss_coeff": 0.02,
    },
)
DBRX = dict(
    LLAMA,
    name="golden-dbrx",
    norm="layernorm",
    norm_bias=False,
    qkv_clip=0.75,
    moe={
        "num_experts": 6,
        "router_topk": 3,
        "ffn_hidden_size": 24,
        "aux_loss_coeff": 0.05,
    },
)

# The families, by what they differ from the two above in.
FALCON = dict(
    GPT2,
    name="golden-falcon",
    num_heads=4,
    num_kv_heads=2,
    activation="gelu_erf",
    position="rope",
    bias=False,
    block="parallel",
)
FALCON_MQA = dict(FALCON, name="golden-falcon-mqa", num_kv_heads=1, block="parallel_shared_norm")
GPTJ = dict(
    GPT2,
    name="golden-gptj",
    position="rope",
    bias=False,
    mlp_bias=True,
    tied_embeddings=False,
    output_bias=True,
    block="parallel_shared_norm",
    rotary_fraction=0.5,
    rotary_interleaved=True,
)
NEOX = dict(
    GPT2,
    name="golden-neox",
    activation="gelu_erf",
    position="rope",
    tied_embeddings=False,
    block="parallel",
    rotary_fraction=0.25,
)
BLOOM = dict(GPT2, name="golden-bloom", position="alibi", embedding_norm=True)
MPT = dict(
    GPT2, name="golden-mpt", position="alibi", activation="gelu_erf", bias=False, norm_bias=False
)
OPT = dict(GPT2, name="golden-opt", activation="relu", position_offset=2)
OPT_350M = dict(
    OPT, name="golden-opt-350m", block="post_norm", final_norm=False, embedding_size=20
)
NEMOTRON = dict(
    GPT2,
    name="golden-nemotron",
    num_kv_heads=2,
    activation="squared_relu",
    position="rope",
    bias=False,
    tied_embeddings=False,
    norm_weight_plus_one=True,
    rotary_fraction=0.5,
)
MISTRAL = dict(LLAMA, name="golden-mistral", sliding_window=7)
QWEN2 = dict(LLAMA, name="golden-qwen2", qkv_bias=True)
QWEN3 = dict(LLAMA, name="golden-qwen3", head_size=12, query_key_norm=True, tied_embeddings=True)
GEMMA2 = dict(
    LLAMA,
    name="golden-gemma2",
    activation="geglu",
    tied_embeddings=True,
    block="sandwich",
    head_size=12,
    norm_weight_plus_one=True,
    embedding_scale=5.5,
    attention_scale=0.25,
    attention_soft_cap=2.0,
    logit_soft_cap=3.0,
    sliding_window=6,
    full_attention_period=2,
)
# Layers with a window turn by a base of their own, unscaled.
GEMMA3 = dict(
    LLAMA,
    name="golden-gemma3",
    activation="geglu",
    tied_embeddings=True,
    block="sandwich",
    head_size=12,
    query_key_norm=True,
    norm_weight_plus_one=True,
    embedding_scale=5.5,
    attention_scale=0.25,
    sliding_window=6,
    full_attention_period=2,
    rope_theta=100000.0,
    window_rope_theta=1000.0,
    rope_scaling={"kind": "linear", "factor": 8.0},
)
OLMO2 = dict(
    LLAMA,
    name="golden-olmo2",
    block="reordered_norm",
    query_key_norm=True,
    query_key_norm_whole=True,
)
OLMO3 = dict(
    OLMO2,
    name="golden-olmo3",
    sliding_window=6,
    full_attention_period=2,
    window_rope_theta=10000.0,
    rope_scaling={"kind": "yarn", "factor": 4.0, "original_length": 16, "beta_fast": 4.0},
)
GLM4 = dict(
    LLAMA,
    name="golden-glm4",
    qkv_bias=True,
    block="sandwich",
    rotary_fraction=0.5,
    rotary_interleaved=True,
)
GLM130 = dict(
    GPT2, name="golden-glm130", activation="geglu_erf", position="rope", block="deep_norm"
)
LLAMA31 = dict(
    LLAMA,
    name="golden-llama31",
    rope_scaling={
        "kind": "llama3",
        "factor": 4.0,
        "original_length": 16,
        "low_frequency": 1.0,
        "high_frequency": 4.0,
    },
)
YARN = dict(
    LLAMA,
    name="golden-yarn",
    logit_scale=0.6,
    rope_scaling={"kind": "yarn", "factor": 4.0, "original_length": 16, "beta_fast": 4.0},
)

FAMILIES = [GPT2, LLAMA, FALCON, FALCON_MQA, GPTJ, NEOX, BLOOM, MPT, OPT, NEMOTRON]
FAMILIES += [MISTRAL, QWEN2, QWEN3, GEMMA2, GLM4, GLM130, LLAMA31, YARN, MIXTRAL, DEEPSEEK]
FAMILIES += [DEEPSEEK_V2, GPT_OSS, DBRX, OPT_350M, GEMMA3, OLMO2, OLMO3]
