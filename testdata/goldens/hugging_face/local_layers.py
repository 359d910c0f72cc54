"""Gemma 3, OLMo 2 and OLMo 3: norms of queries and keys, layers with a window that turn in their
own way. From modeling_gemma3.py, modeling_olmo2.py and modeling_olmo3.py in transformers; see
models.py.
"""

import math

import torch
import torch.nn.functional as F

from models import attend, gated_mlp, gelu_tanh, heads, linear, rms_norm, rms_norm_1p


def yarn(frequency, scaling, theta, dims):
    """Frequencies, and what cos and sin are times; the range between is of whole pairs."""

    def pair(turns):
        length = scaling["original_max_position_embeddings"]
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first = max(math.floor(pair(scaling["beta_fast"])), 0)
    last = min(math.ceil(pair(scaling["beta_slow"])), dims - 1)
    ramp = ((torch.arange(dims // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    scaled = frequency / scaling["factor"] * ramp + frequency * (1 - ramp)
    return scaled, scaling["attention_factor"]


def rotate(x, theta, scaling=None):
    """Rotary positions in halves, on [B, heads, T, D]."""
    dims = x.shape[-1]
    frequency, times = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims), 1.0
    if scaling and scaling["rope_type"] == "linear":
        frequency = frequency / scaling["factor"]
    elif scaling:
        frequency, times = yarn(frequency, scaling, theta, dims)
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), frequency)
    cos, sin = torch.cos(angle) * times, torch.sin(angle) * times
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def projections(w, c, name, x, size):
    return (
        linear(w, f"{name}.{part}_proj", x, c[number] * size)
        for part, number in (
            ("q", "num_attention_heads"), ("k", "num_key_value_heads"), ("v", "num_key_value_heads")
        )
    )


def gemma3_attention(w, c, name, x, full):
    size, epsilon = c["head_dim"], c["rms_norm_eps"]
    q, k, v = projections(w, c, name, x, size)
    q, k = heads(q, c["num_attention_heads"]), heads(k, c["num_key_value_heads"])
    q = rms_norm_1p(w, name + ".q_norm", q, epsilon)
    k = rms_norm_1p(w, name + ".k_norm", k, epsilon)
    theta = c["rope_theta" if full else "rope_local_base_freq"]
    q, k = (rotate(y, theta, c["rope_scaling"] if full else None) for y in (q, k))
    v, window = heads(v, c["num_key_value_heads"]), None if full else c["sliding_window"]
    y = attend(q, k, v, c["query_pre_attn_scalar"] ** -0.5, window)
    return linear(w, name + ".o_proj", y, c["hidden_size"])


def gemma3(w, c, tokens):
    epsilon, width = c["rms_norm_eps"], c["hidden_size"]
    table = w("model.embed_tokens.weight", c["vocab_size"], width)
    x = table[tokens] * torch.tensor(math.sqrt(width), dtype=torch.float32).double()
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        full = (i + 1) % c["sliding_window_pattern"] == 0
        n = rms_norm_1p(w, p + "input_layernorm", x, epsilon)
        y = gemma3_attention(w, c, p + "self_attn", n, full)
        x = x + rms_norm_1p(w, p + "post_attention_layernorm", y, epsilon)
        n = rms_norm_1p(w, p + "pre_feedforward_layernorm", x, epsilon)
        y = gated_mlp(w, c, p + "mlp", n, gelu_tanh)
        x = x + rms_norm_1p(w, p + "post_feedforward_layernorm", y, epsilon)
    return F.linear(rms_norm_1p(w, "model.norm", x, epsilon), table)


def olmo_attention(w, c, name, x, full):
    count, kv, epsilon = c["num_attention_heads"], c["num_key_value_heads"], c["rms_norm_eps"]
    q, k, v = projections(w, c, name, x, c["hidden_size"] // count)
    q = heads(rms_norm(w, name + ".q_norm", q, epsilon), count)
    k = heads(rms_norm(w, name + ".k_norm", k, epsilon), kv)
    scaling = c.get("rope_scaling") if full else None
    q, k = (rotate(y, c["rope_theta"], scaling) for y in (q, k))
    y = attend(q, k, heads(v, kv), None, None if full else c["sliding_window"])
    return linear(w, name + ".o_proj", y, c["hidden_size"])


def olmo(w, c, tokens):
    """OLMo 2, and OLMo 3, which lists what each layer sees."""
    epsilon, layers = c["rms_norm_eps"], c["num_hidden_layers"]
    types = c.get("layer_types", ["full_attention"] * layers)
    x = w("model.embed_tokens.weight", c["vocab_size"], c["hidden_size"])[tokens]
    for i in range(layers):
        p = f"model.layers.{i}."
        y = olmo_attention(w, c, p + "self_attn", x, types[i] == "full_attention")
        x = x + rms_norm(w, p + "post_attention_layernorm", y, epsilon)
        y = gated_mlp(w, c, p + "mlp", x)
        x = x + rms_norm(w, p + "post_feedforward_layernorm", y, epsilon)
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, epsilon), c["vocab_size"])
