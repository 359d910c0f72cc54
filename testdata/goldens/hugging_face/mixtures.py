"""Families with experts that models.py does not have: Qwen2-MoE, DeepSeek-V2 and V3, GPT-OSS,
DBRX."""

import math

import torch
import torch.nn.functional as F

from models import (
    attend, gated_mlp, heads, layer_norm, linear, llama_attention, rms_norm, rotate_pairs,
)


def each_expert(w, name, x, weights, count, width):
    """The sum over experts named one by one of their results times weights [B, T, E]."""
    y = torch.zeros_like(x)
    for e in range(count):
        c = {"intermediate_size": width, "hidden_size": x.shape[-1]}
        y = y + weights[..., e : e + 1] * gated_mlp(w, c, f"{name}.experts.{e}", x)
    return y


def of_chosen(scores, chosen):
    return torch.zeros_like(scores).scatter(-1, chosen, scores.gather(-1, chosen))


def qwen2_moe(w, c, tokens):
    epsilon, width = c["rms_norm_eps"], c["hidden_size"]
    x = w("model.embed_tokens.weight", c["vocab_size"], width)[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(w, p + "input_layernorm", x, epsilon)
        x = x + llama_attention(w, c, p + "self_attn", n, None, True)
        n = rms_norm(w, p + "post_attention_layernorm", x, epsilon)
        scores = linear(w, p + "mlp.gate", n, c["num_experts"]).softmax(-1)
        weights = of_chosen(scores, scores.topk(c["num_experts_per_tok"], dim=-1).indices)
        y = each_expert(w, p + "mlp", n, weights, c["num_experts"], c["moe_intermediate_size"])
        shared = dict(c, intermediate_size=c["shared_expert_intermediate_size"])
        gate = torch.sigmoid(linear(w, p + "mlp.shared_expert_gate", n, 1))
        x = x + y + gate * gated_mlp(w, shared, p + "mlp.shared_expert", n)
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, epsilon), c["vocab_size"])


def latent_attention(w, c, name, x):
    count, fixed, turning = c["num_attention_heads"], c["qk_nope_head_dim"], c["qk_rope_head_dim"]
    epsilon, rank, value = c["rms_norm_eps"], c["kv_lora_rank"], c["v_head_dim"]
    if c["q_lora_rank"] is None:
        q = linear(w, name + ".q_proj", x, count * (fixed + turning))
    else:
        y = linear(w, name + ".q_a_proj", x, c["q_lora_rank"])
        y = rms_norm(w, name + ".q_a_layernorm", y, epsilon)
        q = linear(w, name + ".q_b_proj", y, count * (fixed + turning))
    both = linear(w, name + ".kv_a_proj_with_mqa", x, rank + turning)
    y = rms_norm(w, name + ".kv_a_layernorm", both[..., :rank], epsilon)
    kv = heads(linear(w, name + ".kv_b_proj", y, count * (fixed + value)), count)
    q = heads(q, count)
    theta = c["rope_theta"]
    k_turned = rotate_pairs(both[..., rank:].unsqueeze(1), theta, turning)
    k = torch.cat([kv[..., :fixed], k_turned.expand(-1, count, -1, -1)], dim=-1)
    q = torch.cat([q[..., :fixed], rotate_pairs(q[..., fixed:], theta, turning)], dim=-1)
    return linear(w, name + ".o_proj", attend(q, k, kv[..., fixed:]), c["hidden_size"])


def deepseek_weights(w, c, name, x):
    """Of every expert, 0 of those not chosen."""
    count, groups = c["n_routed_experts"], c["n_group"]
    logits = linear(w, name + ".gate", x, count)
    if c["model_type"] == "deepseek_v3":
        scores = torch.sigmoid(logits)
        to_choose = scores + w(name + ".gate.e_score_correction_bias", count)
        worth = to_choose.unflatten(-1, (groups, -1)).topk(2, dim=-1).values.sum(-1)
    else:
        scores = to_choose = logits.softmax(-1)
        worth = to_choose.unflatten(-1, (groups, -1)).amax(-1)
    kept = torch.zeros_like(worth).scatter(-1, worth.topk(c["topk_group"], dim=-1).indices, 1.0)
    kept = kept.repeat_interleave(count // groups, dim=-1)
    to_choose = to_choose.masked_fill(kept == 0, float("-inf"))
    weights = of_chosen(scores, to_choose.topk(c["num_experts_per_tok"], dim=-1).indices)
    if c["norm_topk_prob"]:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    return weights * c["routed_scaling_factor"]


def deepseek(w, c, tokens):
    epsilon = c["rms_norm_eps"]
    x = w("model.embed_tokens.weight", c["vocab_size"], c["hidden_size"])[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(w, p + "input_layernorm", x, epsilon)
        x = x + latent_attention(w, c, p + "self_attn", n)
        n = rms_norm(w, p + "post_attention_layernorm", x, epsilon)
        if i < c["first_k_dense_replace"]:
            x = x + gated_mlp(w, c, p + "mlp", n)
            continue
        weights = deepseek_weights(w, c, p + "mlp", n)
        width = c["moe_intermediate_size"]
        y = each_expert(w, p + "mlp", n, weights, c["n_routed_experts"], width)
        shared = dict(c, intermediate_size=c["n_shared_experts"] * width)
        x = x + y + gated_mlp(w, shared, p + "mlp.shared_experts", n)
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, epsilon), c["vocab_size"])


def yarn(c, dims):
    scaling = c["rope_scaling"]
    frequency = c["rope_theta"] ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)

    def pair(turns):
        length = scaling["original_max_position_embeddings"]
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(c["rope_theta"]))

    first, last = max(pair(scaling["beta_fast"]), 0), min(pair(scaling["beta_slow"]), dims - 1)
    ramp = ((torch.arange(dims // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    factor = 0.1 * math.log(scaling["factor"]) + 1
    return frequency / scaling["factor"] * ramp + frequency * (1 - ramp), factor


def rotate_scaled(x, frequency, factor):
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), frequency)
    cos, sin = torch.cos(angle) * factor, torch.sin(angle) * factor
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def sink_attention(w, c, name, x, window):
    count, kv, size = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
    q, k, v = (
        heads(linear(w, f"{name}.{part}_proj", x, number * size, True), number)
        for part, number in (("q", count), ("k", kv), ("v", kv))
    )
    q, k = (rotate_scaled(y, *yarn(c, size)) for y in (q, k))
    k, v = (y.repeat_interleave(count // kv, dim=1) for y in (k, v))
    t = x.shape[1]
    behind = torch.arange(t)[:, None] - torch.arange(t)[None, :]
    scores = (q @ k.transpose(-1, -2) * size**-0.5).masked_fill(
        (behind < 0) | (behind >= (window or t)), float("-inf")
    )
    sinks = w(name + ".sinks", count)[:, None, None].expand(x.shape[0], -1, t, 1)
    out = torch.cat([scores, sinks], dim=-1).softmax(-1)[..., :t] @ v
    return linear(w, name + ".o_proj", out.transpose(1, 2).flatten(2), c["hidden_size"], True)


def gpt_oss(w, c, tokens):
    epsilon, width = c["rms_norm_eps"], c["hidden_size"]
    count, ffn = c["num_local_experts"], c["intermediate_size"]
    x = w("model.embed_tokens.weight", c["vocab_size"], width)[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        window = c["sliding_window"] if i % 2 == 0 else None
        n = rms_norm(w, p + "input_layernorm", x, epsilon)
        x = x + sink_attention(w, c, p + "self_attn", n, window)
        n = rms_norm(w, p + "post_attention_layernorm", x, epsilon)
        logits = linear(w, p + "mlp.router", n, count, True)
        top = logits.topk(c["num_experts_per_tok"], dim=-1)
        weights = torch.zeros_like(logits).scatter(-1, top.indices, top.values.softmax(-1))
        e = p + "mlp.experts."
        fused = torch.einsum("btc,ecf->btef", n, w(e + "gate_up_proj", count, width, 2 * ffn))
        fused = fused + w(e + "gate_up_proj_bias", count, 2 * ffn)
        gate = fused[..., 0::2].clamp(max=c["swiglu_limit"])
        up = fused[..., 1::2].clamp(-c["swiglu_limit"], c["swiglu_limit"])
        y = gate * torch.sigmoid(1.702 * gate) * (up + 1)
        y = torch.einsum("btef,efc->btec", y, w(e + "down_proj", count, ffn, width))
        y = y + w(e + "down_proj_bias", count, width)
        x = x + (y * weights[..., None]).sum(2)
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, epsilon), c["vocab_size"])


def dbrx(w, c, tokens):
    width, heads_of = c["d_model"], c["n_heads"]
    kv, clip = c["attn_config"]["kv_n_heads"], c["attn_config"]["clip_qkv"]
    ffn = c["ffn_config"]["ffn_hidden_size"]
    count, size = c["ffn_config"]["moe_num_experts"], width // heads_of
    x = w("transformer.wte.weight", c["vocab_size"], width)[tokens]
    for i in range(c["n_layers"]):
        p = f"transformer.blocks.{i}."
        a = p + "norm_attn_norm."
        n = layer_norm(w, a + "norm_1", x, 1e-5, bias=False)
        fused = linear(w, a + "attn.Wqkv", n, (heads_of + 2 * kv) * size).clamp(-clip, clip)
        parts = fused.split([heads_of * size, kv * size, kv * size], dim=-1)
        q, k, v = (heads(y, y.shape[-1] // size) for y in parts)
        theta = c["attn_config"]["rope_theta"]
        frequency = theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        q, k = (rotate_scaled(y, frequency, 1.0) for y in (q, k))
        x = x + linear(w, a + "attn.out_proj", attend(q, k, v), width)
        n = layer_norm(w, a + "norm_2", x, 1e-5, bias=False)
        scores = linear(w, p + "ffn.router.layer", n, count).softmax(-1)
        weights = of_chosen(scores, scores.topk(c["ffn_config"]["moe_top_k"], dim=-1).indices)
        weights = weights / weights.sum(-1, keepdim=True)
        e = p + "ffn.experts.mlp."
        w1, v1, w2 = (
            w(e + part, count * ffn, width).view(count, ffn, width) for part in ("w1", "v1", "w2")
        )
        y = F.silu(torch.einsum("btc,efc->btef", n, w1)) * torch.einsum("btc,efc->btef", n, v1)
        x = x + (torch.einsum("btef,efc->btec", y, w2) * weights[..., None]).sum(2)
    x = layer_norm(w, "transformer.norm_f", x, 1e-5, bias=False)
    return linear(w, "lm_head", x, c["vocab_size"])
