"""The models of the goldens in plain tensor operations, from the papers and not from the engine."""

import math

import torch
import torch.nn.functional as F


def has_experts(model, layer):
    return "moe" in model and layer >= model["moe"].get("first_k_dense", 0)


def mlp_shapes(model, prefix, f):
    c = model["hidden_size"]
    fc1 = 2 * f if "glu" in model["activation"] else f
    return {prefix + "linear_fc1.weight": (fc1, c), prefix + "linear_fc2.weight": (c, f)}


def moe_shapes(model, prefix):
    """The experts' matrices stand one below the other."""
    moe, c = model["moe"], model["hidden_size"]
    shapes = {prefix + "router.weight": (moe["num_experts"], c)}
    for name, (rows, columns) in mlp_shapes(
        model, prefix + "experts.", moe["ffn_hidden_size"]
    ).items():
        shapes[name] = (moe["num_experts"] * rows, columns)
    if moe.get("shared_ffn_hidden_size", 0) > 0:
        shapes.update(
            mlp_shapes(model, prefix + "shared_experts.", moe["shared_ffn_hidden_size"])
        )
    return shapes


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
            shapes[prefix + "q_layernorm.weight"] = (d,)
            shapes[prefix + "k_layernorm.weight"] = (d,)
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


def make_weights(model, generator):
    """Random weights for every parameter, spread wide enough that each one matters."""
    c, f, v = model["hidden_size"], model["ffn_hidden_size"], model["vocab_size"]
    block = model.get("block", "sequential")
    shapes = {"embedding.word_embeddings.weight": (v, c)}
    if model["position"] == "learned":
        rows = model["max_sequence_length"] + model.get("position_offset", 0)
        shapes["embedding.position_embeddings.weight"] = (rows, c)
    if model.get("embedding_norm"):
        shapes["embedding.word_embeddings_layernorm.weight"] = (c,)
    for i in range(model["num_layers"]):
        p = f"decoder.layers.{i}."
        shapes[p + "input_layernorm.weight"] = (c,)
        shapes.update(attention_shapes(model, p + "self_attention."))
        if block == "sandwich":
            shapes[p + "post_attention_layernorm.weight"] = (c,)
            shapes[p + "post_mlp_layernorm.weight"] = (c,)
        if block != "parallel_shared_norm":
            shapes[p + "pre_mlp_layernorm.weight"] = (c,)
        has = has_experts(model, i)
        shapes.update(moe_shapes(model, p + "mlp.") if has else mlp_shapes(model, p + "mlp.", f))
    shapes["decoder.final_layernorm.weight"] = (c,)
    if not model["tied_embeddings"]:
        shapes["output_layer.weight"] = (v, c)
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


def norm_weight(model, w, name):
    return w[name + ".weight"] + (1.0 if model.get("norm_weight_plus_one") else 0.0)


def rms_norm(model, w, name, x):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + model["norm_epsilon"])
    return x * scale * norm_weight(model, w, name)


def norm(model, w, name, x):
    if model["norm"] == "rmsnorm":
        return rms_norm(model, w, name, x)
    weight = norm_weight(model, w, name)
    return F.layer_norm(x, x.shape[-1:], weight, w.get(name + ".bias"), model["norm_epsilon"])


def linear(w, name, x):
    return F.linear(x, w[name + ".weight"], w.get(name + ".bias"))


def scaled(model, frequency, dims):
    """Frequencies of rotary positions [dims / 2] after scaling, and what cos and sin are times."""
    scaling = model.get("rope_scaling", {"kind": "none"})
    if scaling["kind"] == "none":
        return frequency, 1.0
    factor, length = scaling["factor"], scaling["original_length"]
    if scaling["kind"] == "llama3":
        wavelength = 2 * math.pi / frequency
        low, high = scaling["low_frequency"], scaling["high_frequency"]
        smooth = (length / wavelength - low) / (high - low)
        between = (1 - smooth) * frequency / factor + smooth * frequency
        result = torch.where(wavelength > length / low, frequency / factor, between)
        return torch.where(wavelength < length / high, frequency, result), 1.0

    def pair(turns):
        return dims * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(model["rope_theta"]))

    first, last = pair(scaling.get("beta_fast", 32.0)), pair(scaling.get("beta_slow", 1.0))
    if scaling.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, dims - 1)
    ramp = ((torch.arange(dims // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    attention_factor = scaling.get("attention_factor", 0.1 * math.log(factor) + 1)
    return frequency / factor * ramp + frequency * (1 - ramp), attention_factor


def rotate(model, x):
    """Rotary positions on x [B, heads, T, D]: pairs as halves of what turns, or as neighbours."""
    t, d = x.shape[-2:]
    dims = int(d * model.get("rotary_fraction", 1.0))
    frequency = model["rope_theta"] ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    frequency, factor = scaled(model, frequency, dims)
    angle = torch.outer(torch.arange(t, dtype=torch.float64), frequency)
    cos, sin = torch.cos(angle) * factor, torch.sin(angle) * factor
    turned, rest = x[..., :dims], x[..., dims:]
    if model.get("rotary_interleaved"):
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = turned.chunk(2, dim=-1)
    first, second = first * cos - second * sin, second * cos + first * sin
    if model.get("rotary_interleaved"):
        turned = torch.stack([first, second], dim=-1).flatten(-2)
    else:
        turned = torch.cat([first, second], dim=-1)
    return torch.cat([turned, rest], dim=-1)


def alibi_slopes(heads):
    """Of the ALiBi paper's own code."""

    def of_power(n):
        return [2.0 ** (-8.0 * (i + 1) / n) for i in range(n)]

    if math.log2(heads).is_integer():
        return of_power(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return of_power(closest) + of_power(2 * closest)[0::2][: heads - closest]


def soft_cap(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


def heads(y, size):
    """[B, T, heads * size] as [B, heads, T, size]."""
    return y.unflatten(-1, (-1, size)).transpose(1, 2)


def fused_qkv(model, w, name, x):
    h, kv, d = model["num_heads"], model["num_kv_heads"], head_size(model)
    y = linear(w, name + ".linear_qkv", x)
    if model.get("qkv_clip"):
        y = y.clamp(-model["qkv_clip"], model["qkv_clip"])
    q, k, v = (heads(part, d) for part in y.split([h * d, kv * d, kv * d], dim=-1))
    if model.get("query_key_norm"):
        q = rms_norm(model, w, name + ".q_layernorm", q)
        k = rms_norm(model, w, name + ".k_layernorm", k)
    if model["position"] == "rope":
        q, k = rotate(model, q), rotate(model, k)
    return q, *(y.repeat_interleave(h // kv, dim=1) for y in (k, v))


def latent_qkv(model, w, name, x):
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
    k_turning = rotate(model, k_turning.unsqueeze(1)).expand(*k_fixed.shape[:-1], turning)
    q = torch.cat([q_fixed, rotate(model, q_turning)], dim=-1)
    return q, torch.cat([k_fixed, k_turning], dim=-1), v


def attention(model, w, name, x, window):
    t, d = x.shape[1], head_size(model)
    q, k, v = (latent_qkv if "latent_attention" in model else fused_qkv)(model, w, name, x)
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


ACTIVATIONS = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "geglu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "geglu_erf": F.gelu,
    "relu": F.relu,
    "squared_relu": lambda x: F.relu(x).square(),
    "swiglu": F.silu,
}


def gate_up(model, y):
    gate, up = y.chunk(2, dim=-1)
    if model["activation"] == "clamped_swiglu":
        gate, up = gate.clamp(max=7.0), up.clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (up + 1)
    return ACTIVATIONS[model["activation"]](gate) * up


def mlp(model, w, name, x):
    y = linear(w, name + ".linear_fc1", x)
    y = gate_up(model, y) if "glu" in model["activation"] else ACTIVATIONS[model["activation"]](y)
    return linear(w, name + ".linear_fc2", y)


def choose_clearly(scores, count):
    """The highest `count`; fails where rounding to fp32 might choose others."""
    ordered = scores.sort(dim=-1, descending=True).values
    if count < scores.shape[-1]:
        gap = (ordered[..., count - 1] - ordered[..., count]).min().item()
        assert gap > 2e-5, f"a choice by a margin of {gap}: take another model"
    return scores.topk(count, dim=-1).indices


class Router:
    """Routes one layer, and keeps what its losses and its bias need (DeepSeek-V3, Mixtral)."""

    def __init__(self, moe):
        self.moe = moe
        self.bias = torch.zeros(moe["num_experts"], dtype=torch.float64)
        self.load = torch.zeros(moe["num_experts"], dtype=torch.float64)

    def choose(self, scores):
        moe = self.moe
        scores = scores + self.bias
        groups = moe.get("num_groups", 1)
        if groups > 1:
            by_group = scores.view(*scores.shape[:-1], groups, -1)
            summed = 2 if moe.get("group_score") == "sum_of_top_two" else 1
            worth = by_group.topk(summed, dim=-1).values.sum(-1)
            best = choose_clearly(worth, moe["group_topk"])
            allowed = torch.zeros_like(worth, dtype=torch.bool).scatter(-1, best, True)
            scores = by_group.masked_fill(~allowed[..., None], float("-inf")).flatten(-2)
        return choose_clearly(scores, moe["router_topk"])

    def route(self, logits):
        """Experts and weights [B, T, k], and the losses' mean over the batch."""
        moe = self.moe
        k, experts = moe["router_topk"], moe["num_experts"]
        if moe.get("score", "softmax") == "sigmoid":
            scores = torch.sigmoid(logits)
            chosen = self.choose(scores.detach())
            weights = scores.gather(-1, chosen)
            if moe.get("norm_topk"):
                weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
            p = scores / (scores.sum(-1, keepdim=True) + 1e-20)
        else:
            chosen = self.choose(logits.detach())
            p = logits.softmax(-1)
            before = moe.get("pre_softmax", False)
            weights = p.gather(-1, chosen) if before else logits.gather(-1, chosen).softmax(-1)
        self.load += F.one_hot(chosen, experts).sum((0, 1, 2)).double()
        # The loss of each sequence: coeff * E / (k T^2) * sum over experts of (sum of p) * count.
        by_score = F.one_hot(logits.detach().topk(k, dim=-1).indices, experts).sum((1, 2)).double()
        t = logits.shape[1]
        aux = (p.sum(1) * by_score).sum(-1) * (experts / (k * t * t))
        z = logits.logsumexp(-1).pow(2).mean(-1)
        loss = moe["aux_loss_coeff"] * aux + moe.get("z_loss_coeff", 0.0) * z
        return chosen, weights * moe.get("topk_scaling_factor", 1.0), loss.mean()

    def end_step(self):
        if self.moe.get("expert_bias", False):
            self.bias += self.moe["bias_update_rate"] * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


def expert_mlp(model, w, name, x):
    """Every expert on every token: [B, T, E, C]."""
    experts = model["moe"]["num_experts"]
    fc1, fc2 = (
        w[f"{name}.experts.linear_{fc}.weight"].unflatten(0, (experts, -1)) for fc in ("fc1", "fc2")
    )
    biases = (w.get(f"{name}.experts.linear_{fc}.bias") for fc in ("fc1", "fc2"))
    bias1, bias2 = (0.0 if b is None else b.unflatten(0, (experts, -1)) for b in biases)
    y = torch.einsum("btc,efc->btef", x, fc1) + bias1
    return torch.einsum("btef,ecf->btec", gate_up(model, y), fc2) + bias2


def moe_layer(model, w, name, x, router):
    chosen, weights, loss = router.route(linear(w, name + ".router", x))
    out = expert_mlp(model, w, name, x)
    index = chosen[..., None].expand(*chosen.shape, x.shape[-1])
    y = (out.gather(2, index) * weights[..., None]).sum(2)
    if name + ".shared_experts.linear_fc1.weight" in w:
        y = y + mlp(model, w, name + ".shared_experts", x)
    return y, loss


def layer(model, w, number, x, router):
    """The residual stream after the layer, and its router's loss."""
    p = f"decoder.layers.{number}."
    block = model.get("block", "sequential")
    period = model.get("full_attention_period", 0)
    full = period > 0 and (number + 1) % period == 0
    window = 0 if full else model.get("sliding_window", 0)
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
    if model["position"] == "learned":
        first = model.get("position_offset", 0)
        x = x + w["embedding.position_embeddings.weight"][first : first + tokens.shape[1]]
    if model.get("embedding_norm"):
        x = norm(model, w, "embedding.word_embeddings_layernorm", x)
    for i in range(model["num_layers"]):
        x, loss = layer(model, w, i, x, routers.get(i))
        router_loss = router_loss + loss
    x = norm(model, w, "decoder.final_layernorm", x)
    head = "embedding.word_embeddings.weight" if model["tied_embeddings"] else "output_layer.weight"
    logits = F.linear(x, w[head], w.get("output_layer.bias")) * model.get("logit_scale", 1.0)
    return soft_cap(logits, model.get("logit_soft_cap", 0)), router_loss
