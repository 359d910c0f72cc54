"""The models of the goldens in plain tensor operations, from the papers and not from the engine."""

import math

import torch
import torch.nn.functional as F

from attention import attention, attention_shapes
from experts import has_experts, moe_layer, moe_shapes
from parts import mlp, mlp_shapes, norm, soft_cap


def make_weights(model, generator):
    """Random weights for every parameter, spread wide enough that each one matters."""
    c, f, v = model["hidden_size"], model["ffn_hidden_size"], model["vocab_size"]
    block, e = model.get("block", "sequential"), model.get("embedding_size", c)
    shapes = {"embedding.word_embeddings.weight": (v, e)}
    if e != c:
        shapes["embedding.project_in.weight"] = (c, e)
    if model["position"] == "learned":
        rows = model["max_sequence_length"] + model.get("position_offset", 0)
        shapes["embedding.position_embeddings.weight"] = (rows, c)
    if model.get("embedding_norm"):
        shapes["embedding.word_embeddings_layernorm.weight"] = (c,)
    for i in range(model["num_layers"]):
        p = f"decoder.layers.{i}."
        if block not in ("post_norm", "reordered_norm"):
            shapes[p + "input_layernorm.weight"] = (c,)
        shapes.update(attention_shapes(model, p + "self_attention."))
        if block in ("sandwich", "post_norm", "reordered_norm"):
            shapes[p + "post_attention_layernorm.weight"] = (c,)
            shapes[p + "post_mlp_layernorm.weight"] = (c,)
        if block not in ("parallel_shared_norm", "post_norm", "reordered_norm"):
            shapes[p + "pre_mlp_layernorm.weight"] = (c,)
        has = has_experts(model, i)
        shapes.update(moe_shapes(model, p + "mlp.") if has else mlp_shapes(model, p + "mlp.", f))
    if model.get("final_norm", True):
        shapes["decoder.final_layernorm.weight"] = (c,)
    if e != c:
        shapes["decoder.project_out.weight"] = (e, c)
    if not model["tied_embeddings"]:
        shapes["output_layer.weight"] = (v, e)
    for name in list(shapes):
        if has_bias(model, name):
            shapes[name.replace("weight", "bias")] = shapes[name][:1]
    weights = {}
    for name, shape in shapes.items():
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        if "layernorm.weight" in name:
            values = 0.1 * values + (0.0 if model.get("norm_weight_plus_one") else 1.0)
        else:
            values = 0.15 * values
        # Choices far enough apart that no rounding turns them over.
        values = 3.0 * values if "router" in name else values
        weights[name] = values.float().double().requires_grad_(True)
    return weights


def has_bias(model, name):
    if any(part in name for part in ("q_layernorm", "k_layernorm", "kv_layernorm")):
        return False
    if "softmax_offset" in name:
        return False
    if "router" in name:
        return model["moe"].get("router_bias", False)
    if "experts.linear" in name:
        return model.get("mlp_bias", model["bias"])
    if "layernorm" in name:
        return model["norm"] == "layernorm" and model.get("norm_bias", True)
    if "linear_qkv" in name:
        return model.get("qkv_bias", model["bias"])
    if "mlp.linear" in name:
        return model.get("mlp_bias", model["bias"])
    if "output_layer" in name:
        return model.get("output_bias", False)
    return "linear" in name and model["bias"]


def layer(model, w, number, x, router):
    """The residual stream after the layer, and its router's loss."""
    p = f"decoder.layers.{number}."
    block = model.get("block", "sequential")
    period = model.get("full_attention_period", 0)
    full = period > 0 and (number + 1) % period == 0
    window = 0 if full else model.get("sliding_window", 0)
    if block == "post_norm":
        x = x + attention(model, w, p + "self_attention", x, window)
        x = norm(model, w, p + "post_attention_layernorm", x)
        return norm(model, w, p + "post_mlp_layernorm", x + mlp(model, w, p + "mlp", x)), 0.0
    if block == "reordered_norm":
        a = attention(model, w, p + "self_attention", x, window)
        x = x + norm(model, w, p + "post_attention_layernorm", a)
        return x + norm(model, w, p + "post_mlp_layernorm", mlp(model, w, p + "mlp", x)), 0.0
    normed = norm(model, w, p + "input_layernorm", x)
    if block == "deep_norm":
        alpha = math.sqrt(2 * model["num_layers"])
        x = alpha * normed + attention(model, w, p + "self_attention", normed, window)
        normed = norm(model, w, p + "pre_mlp_layernorm", x)
        return alpha * normed + mlp(model, w, p + "mlp", normed), 0.0
    a = attention(model, w, p + "self_attention", normed, window)
    if block == "sandwich":
        a = norm(model, w, p + "post_attention_layernorm", a)
    before_mlp = x if "parallel" in block else x + a
    if block != "parallel_shared_norm":
        normed = norm(model, w, p + "pre_mlp_layernorm", before_mlp)
    loss = 0.0
    if has_experts(model, number):
        m, loss = moe_layer(model, w, p + "mlp", normed, router)
    else:
        m = mlp(model, w, p + "mlp", normed)
    if block == "sandwich":
        m = norm(model, w, p + "post_mlp_layernorm", m)
    return x + a + m, loss


def logits_of(model, w, tokens, routers):
    """The logits [B, T, V], and the routers' losses added up over the layers."""
    router_loss = torch.zeros((), dtype=torch.float64)
    x = w["embedding.word_embeddings.weight"][tokens] * model.get("embedding_scale", 1.0)
    if "embedding_size" in model:
        x = F.linear(x, w["embedding.project_in.weight"])
    if model["position"] == "learned":
        first = model.get("position_offset", 0)
        x = x + w["embedding.position_embeddings.weight"][first : first + tokens.shape[1]]
    if model.get("embedding_norm"):
        x = norm(model, w, "embedding.word_embeddings_layernorm", x)
    for i in range(model["num_layers"]):
        x, loss = layer(model, w, i, x, routers.get(i))
        router_loss = router_loss + loss
    if model.get("final_norm", True):
        x = norm(model, w, "decoder.final_layernorm", x)
    if "embedding_size" in model:
        x = F.linear(x, w["decoder.project_out.weight"])
    head = "embedding.word_embeddings.weight" if model["tied_embeddings"] else "output_layer.weight"
    logits = F.linear(x, w[head], w.get("output_layer.bias")) * model.get("logit_scale", 1.0)
    return soft_cap(logits, model.get("logit_soft_cap", 0)), router_loss
