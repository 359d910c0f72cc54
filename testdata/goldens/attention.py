"""Attention, fused and latent."""

import math

import torch

from parts import linear, rms_norm, soft_cap
from positions import alibi_slopes, rotate


def head_size(model):
    latent = model.get("latent_attention")
    if latent:
        return latent["qk_nope_head_dim"] + latent["qk_rope_head_dim"]
    return model.get("head_size", model["hidden_size"] // model["num_heads"])


def attention_shapes(model, prefix):
    c, h, d = model["hidden_size"], model["num_heads"], head_size(model)
    latent = model.get("latent_attention")
    if not latent:
        qkv = (h + 2 * model["num_kv_heads"]) * d
        shapes = {prefix + "linear_qkv.weight": (qkv, c)}
        if model.get("query_key_norm"):
            whole = model.get("query_key_norm_whole")
            shapes[prefix + "q_layernorm.weight"] = (h * d if whole else d,)
            shapes[prefix + "k_layernorm.weight"] = (model["num_kv_heads"] * d if whole else d,)
        if model.get("attention_sinks"):
            shapes[prefix + "softmax_offset"] = (h,)
        shapes[prefix + "linear_proj.weight"] = (c, h * d)
        return shapes
    shapes = {}
    rank, value = latent["kv_lora_rank"], latent["v_head_dim"]
    if "q_lora_rank" in latent:
        shapes[prefix + "linear_q_down_proj.weight"] = (latent["q_lora_rank"], c)
        shapes[prefix + "q_layernorm.weight"] = (latent["q_lora_rank"],)
        shapes[prefix + "linear_q_up_proj.weight"] = (h * d, latent["q_lora_rank"])
    else:
        shapes[prefix + "linear_q_proj.weight"] = (h * d, c)
    shapes[prefix + "linear_kv_down_proj.weight"] = (rank + latent["qk_rope_head_dim"], c)
    shapes[prefix + "kv_layernorm.weight"] = (rank,)
    up = h * (latent["qk_nope_head_dim"] + value)
    shapes[prefix + "linear_kv_up_proj.weight"] = (up, rank)
    shapes[prefix + "linear_proj.weight"] = (c, h * value)
    return shapes


def heads(y, size):
    """[B, T, heads * size] as [B, heads, T, size]."""
    return y.unflatten(-1, (-1, size)).transpose(1, 2)


def fused_qkv(model, w, name, x, window):
    h, kv, d = model["num_heads"], model["num_kv_heads"], head_size(model)
    y = linear(w, name + ".linear_qkv", x)
    if model.get("qkv_clip"):
        y = y.clamp(-model["qkv_clip"], model["qkv_clip"])
    q, k, v = y.split([h * d, kv * d, kv * d], dim=-1)
    if model.get("query_key_norm_whole"):
        q = rms_norm(model, w, name + ".q_layernorm", q)
        k = rms_norm(model, w, name + ".k_layernorm", k)
    q, k, v = (heads(part, d) for part in (q, k, v))
    if model.get("query_key_norm") and not model.get("query_key_norm_whole"):
        q = rms_norm(model, w, name + ".q_layernorm", q)
        k = rms_norm(model, w, name + ".k_layernorm", k)
    if model["position"] == "rope":
        q, k = rotate(model, q, window), rotate(model, k, window)
    return q, *(y.repeat_interleave(h // kv, dim=1) for y in (k, v))


def latent_qkv(model, w, name, x, window):
    """DeepSeek-V2, equations 9 to 19."""
    latent = model["latent_attention"]
    fixed, turning = latent["qk_nope_head_dim"], latent["qk_rope_head_dim"]
    if "q_lora_rank" in latent:
        compressed = linear(w, name + ".linear_q_down_proj", x)
        compressed = rms_norm(model, w, name + ".q_layernorm", compressed)
        q = linear(w, name + ".linear_q_up_proj", compressed)
    else:
        q = linear(w, name + ".linear_q_proj", x)
    q_fixed, q_turning = heads(q, fixed + turning).split([fixed, turning], dim=-1)
    both = linear(w, name + ".linear_kv_down_proj", x)
    compressed, k_turning = both.split([latent["kv_lora_rank"], turning], dim=-1)
    compressed = rms_norm(model, w, name + ".kv_layernorm", compressed)
    kv = heads(linear(w, name + ".linear_kv_up_proj", compressed), fixed + latent["v_head_dim"])
    k_fixed, v = kv.split([fixed, latent["v_head_dim"]], dim=-1)
    k_turning = rotate(model, k_turning.unsqueeze(1), window).expand(*k_fixed.shape[:-1], turning)
    q = torch.cat([q_fixed, rotate(model, q_turning, window)], dim=-1)
    return q, torch.cat([k_fixed, k_turning], dim=-1), v


def attention(model, w, name, x, window):
    t, d = x.shape[1], head_size(model)
    q, k, v = (latent_qkv if "latent_attention" in model else fused_qkv)(model, w, name, x, window)
    scores = q @ k.transpose(-1, -2) * model.get("attention_scale", 1 / math.sqrt(d))
    scores = soft_cap(scores, model.get("attention_soft_cap", 0))
    positions = torch.arange(t)
    distance = positions[:, None] - positions[None, :]
    if model["position"] == "alibi":
        slopes = torch.tensor(alibi_slopes(model["num_heads"]), dtype=torch.float64)
        scores = scores - slopes[:, None, None] * distance
    hidden = distance < 0
    if window:
        hidden = hidden | (distance >= window)
    scores = scores.masked_fill(hidden, float("-inf"))
    if model.get("attention_sinks"):
        sinks = w[name + ".softmax_offset"][:, None, None].expand(*scores.shape[:-1], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    out = scores.softmax(-1)[..., :t] @ v
    return linear(w, name + ".linear_proj", out.transpose(1, 2).flatten(2))
