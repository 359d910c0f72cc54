"""Model families written out with plain tensor operations over tensors of Hugging Face's names and
shapes, from each family's modeling_*.py in transformers, and not from the engine.

Each function takes the weights, the config.json and tokens [B, T], and returns logits [B, T, V].
"""

import math

import torch
import torch.nn.functional as F


class Weights:
    """Makes each tensor when it is first asked for: at random, spread so that each one matters."""

    def __init__(self, dtype):
        self.generator = torch.Generator().manual_seed(30)
        self.dtype = dtype
        self.tensors = {}

    def __call__(self, name, *shape, around=0.0):
        if name not in self.tensors:
            values = torch.randn(shape, generator=self.generator, dtype=torch.float64)
            self.tensors[name] = (around + (0.1 if around else 0.15) * values).to(self.dtype)
        assert self.tensors[name].shape == shape, name
        return self.tensors[name].double()


def linear(w, name, x, rows, bias=False):
    weight = w(name + ".weight", rows, x.shape[-1])
    return F.linear(x, weight, w(name + ".bias", rows) if bias else None)


def conv1d(w, name, x, columns):
    return x @ w(name + ".weight", x.shape[-1], columns) + w(name + ".bias", columns)


def layer_norm(w, name, x, epsilon, bias=True):
    width = x.shape[-1]
    weight = w(name + ".weight", width, around=1.0)
    return F.layer_norm(x, (width,), weight, w(name + ".bias", width) if bias else None, epsilon)


def layer_norm_1p(w, name, x, epsilon):
    width = x.shape[-1]
    return F.layer_norm(
        x, (width,), 1.0 + w(name + ".weight", width), w(name + ".bias", width), epsilon
    )


def rms_norm(w, name, x, epsilon):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x * scale * w(name + ".weight", x.shape[-1], around=1.0)


def rms_norm_1p(w, name, x, epsilon):
    scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon)
    return x * scale * (1.0 + w(name + ".weight", x.shape[-1]))


def gelu_tanh(x):
    return F.gelu(x, approximate="tanh")


def squared_relu(x):
    return F.relu(x).pow(2)


def heads(x, count):
    """[B, T, count * D] to [B, count, T, D]."""
    return x.view(*x.shape[:2], count, -1).transpose(1, 2)


def cos_sin(x, theta, dims):
    frequency = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    angle = torch.outer(torch.arange(x.shape[-2], dtype=torch.float64), frequency)
    return torch.cos(angle), torch.sin(angle)


def rotate(x, theta, dims=None):
    """Rotary positions in halves of the first dims, on [B, heads, T, D]."""
    dims = dims or x.shape[-1]
    cos, sin = cos_sin(x, theta, dims)
    first, second, rest = x[..., : dims // 2], x[..., dims // 2 : dims], x[..., dims:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


def rotate_pairs(x, theta, dims):
    """The same of neighbouring dims."""
    cos, sin = cos_sin(x, theta, dims)
    even, odd, rest = x[..., 0:dims:2], x[..., 1:dims:2], x[..., dims:]
    turned = torch.stack([even * cos - odd * sin, odd * cos + even * sin], dim=-1).flatten(-2)
    return torch.cat([turned, rest], dim=-1)


def attend(q, k, v, scale=None, window=None, cap=None, slopes=None):
    """Causal attention of [B, heads, T, D]; [B, T, heads * D]."""
    k, v = (y.repeat_interleave(q.shape[1] // y.shape[1], dim=1) for y in (k, v))
    scores = q @ k.transpose(-1, -2) * (scale or q.shape[-1] ** -0.5)
    if cap:
        scores = cap * torch.tanh(scores / cap)
    t = scores.shape[-1]
    behind = torch.arange(t)[:, None] - torch.arange(t)[None, :]
    if slopes is not None:
        scores = scores - slopes[:, None, None] * behind
    hidden = (behind < 0) | (behind >= (window or t))
    out = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    return out.transpose(1, 2).flatten(2)


def alibi_slopes(count):
    """ALiBi's, of a power of two of heads."""
    return 2.0 ** (-8.0 * torch.arange(1, count + 1, dtype=torch.float64) / count)


def gpt2(w, c, tokens):
    width, epsilon = c["n_embd"], c["layer_norm_epsilon"]
    table = w("wte.weight", c["vocab_size"], width)
    x = table[tokens] + w("wpe.weight", c["n_positions"], width)[: tokens.shape[1]]
    for i in range(c["n_layer"]):
        p = f"h.{i}."
        y = conv1d(w, p + "attn.c_attn", layer_norm(w, p + "ln_1", x, epsilon), 3 * width)
        y = attend(*(heads(part, c["n_head"]) for part in y.split(width, dim=-1)))
        x = x + conv1d(w, p + "attn.c_proj", y, width)
        y = conv1d(w, p + "mlp.c_fc", layer_norm(w, p + "ln_2", x, epsilon), 4 * width)
        x = x + conv1d(w, p + "mlp.c_proj", gelu_tanh(y), width)
    return F.linear(layer_norm(w, "ln_f", x, epsilon), table)


def gptj(w, c, tokens):
    width, count = c["n_embd"], c["n_head"]
    x = w("transformer.wte.weight", c["vocab_size"], width)[tokens]
    for i in range(c["n_layer"]):
        p = f"transformer.h.{i}."
        n = layer_norm(w, p + "ln_1", x, c["layer_norm_epsilon"])
        q, k, v = (heads(linear(w, p + f"attn.{part}_proj", n, width), count) for part in "qkv")
        q, k = (rotate_pairs(y, 10000.0, c["rotary_dim"]) for y in (q, k))
        y = linear(w, p + "attn.out_proj", attend(q, k, v), width)
        z = gelu_tanh(linear(w, p + "mlp.fc_in", n, 4 * width, True))
        x = x + y + linear(w, p + "mlp.fc_out", z, width, True)
    x = layer_norm(w, "transformer.ln_f", x, c["layer_norm_epsilon"])
    return linear(w, "lm_head", x, c["vocab_size"], True)


def opt(w, c, tokens):
    width, count = c["hidden_size"], c["num_attention_heads"]
    narrow, before = c["word_embed_proj_dim"], c["do_layer_norm_before"]
    table = w("model.decoder.embed_tokens.weight", c["vocab_size"], narrow)
    positions = w("model.decoder.embed_positions.weight", c["max_position_embeddings"] + 2, width)
    x = table[tokens]
    if narrow != width:
        x = linear(w, "model.decoder.project_in", x, width)
    x = x + positions[2 : 2 + tokens.shape[1]]

    def norm_where(name, x, here):
        return layer_norm(w, name, x, 1e-5) if here else x

    for i in range(c["num_hidden_layers"]):
        p = f"model.decoder.layers.{i}."
        n = norm_where(p + "self_attn_layer_norm", x, before)
        q, k, v = (
            heads(linear(w, p + f"self_attn.{part}_proj", n, width, True), count) for part in "qkv"
        )
        x = x + linear(w, p + "self_attn.out_proj", attend(q, k, v), width, True)
        x = norm_where(p + "self_attn_layer_norm", x, not before)
        n = norm_where(p + "final_layer_norm", x, before)
        y = F.relu(linear(w, p + "fc1", n, c["ffn_dim"], True))
        x = norm_where(p + "final_layer_norm", x + linear(w, p + "fc2", y, width, True), not before)
    x = norm_where("model.decoder.final_layer_norm", x, before)
    if narrow != width:
        x = linear(w, "model.decoder.project_out", x, narrow)
    return F.linear(x, table)


def bloom(w, c, tokens):
    width, count, epsilon = c["hidden_size"], c["n_head"], c["layer_norm_epsilon"]
    table = w("word_embeddings.weight", c["vocab_size"], width)
    x = layer_norm(w, "word_embeddings_layernorm", table[tokens], epsilon)
    for i in range(c["n_layer"]):
        p = f"h.{i}."
        n = layer_norm(w, p + "input_layernorm", x, epsilon)
        fused = linear(w, p + "self_attention.query_key_value", n, 3 * width, True)
        q, k, v = fused.view(*tokens.shape, count, 3, -1).permute(3, 0, 2, 1, 4)
        y = attend(q, k, v, slopes=alibi_slopes(count))
        x = x + linear(w, p + "self_attention.dense", y, width, True)
        n = layer_norm(w, p + "post_attention_layernorm", x, epsilon)
        y = gelu_tanh(linear(w, p + "mlp.dense_h_to_4h", n, 4 * width, True))
        x = x + linear(w, p + "mlp.dense_4h_to_h", y, width, True)
    return F.linear(layer_norm(w, "ln_f", x, epsilon), table)


def mpt(w, c, tokens):
    width, count = c["d_model"], c["n_heads"]
    table = w("transformer.wte.weight", c["vocab_size"], width)
    x = table[tokens]
    for i in range(c["n_layers"]):
        p = f"transformer.blocks.{i}."
        n = layer_norm(w, p + "norm_1", x, 1e-5, bias=False)
        fused = linear(w, p + "attn.Wqkv", n, 3 * width)
        q, k, v = (heads(part, count) for part in fused.split(width, dim=-1))
        y = attend(q, k, v, slopes=alibi_slopes(count))
        x = x + linear(w, p + "attn.out_proj", y, width)
        n = layer_norm(w, p + "norm_2", x, 1e-5, bias=False)
        y = F.gelu(linear(w, p + "ffn.up_proj", n, c["expansion_ratio"] * width))
        x = x + linear(w, p + "ffn.down_proj", y, width)
    return F.linear(layer_norm(w, "transformer.norm_f", x, 1e-5, bias=False), table)


def gpt_neox(w, c, tokens):
    width, count, epsilon = c["hidden_size"], c["num_attention_heads"], c["layer_norm_eps"]
    x = w("gpt_neox.embed_in.weight", c["vocab_size"], width)[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"gpt_neox.layers.{i}."
        n = layer_norm(w, p + "input_layernorm", x, epsilon)
        fused = linear(w, p + "attention.query_key_value", n, 3 * width, True)
        q, k, v = fused.view(*tokens.shape, count, 3, -1).permute(3, 0, 2, 1, 4)
        dims = int(q.shape[-1] * c["rotary_pct"])
        q, k = (rotate(y, c["rotary_emb_base"], dims) for y in (q, k))
        y = linear(w, p + "attention.dense", attend(q, k, v), width, True)
        n = layer_norm(w, p + "post_attention_layernorm", x, epsilon)
        z = F.gelu(linear(w, p + "mlp.dense_h_to_4h", n, c["intermediate_size"], True))
        x = x + y + linear(w, p + "mlp.dense_4h_to_h", z, width, True)
    x = layer_norm(w, "gpt_neox.final_layer_norm", x, epsilon)
    return linear(w, "embed_out", x, c["vocab_size"])


def falcon(w, c, tokens):
    """Of the old architecture with one key/value head, or of the new one."""
    width, count, epsilon = c["hidden_size"], c["num_attention_heads"], c["layer_norm_epsilon"]
    new = c["new_decoder_architecture"]
    kv = c["num_kv_heads"] if new else 1
    size = width // count
    table = w("transformer.word_embeddings.weight", c["vocab_size"], width)
    x = table[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"transformer.h.{i}."
        n = layer_norm(w, p + ("ln_attn" if new else "input_layernorm"), x, epsilon)
        m = layer_norm(w, p + "ln_mlp", x, epsilon) if new else n
        fused = linear(w, p + "self_attention.query_key_value", n, (count + 2 * kv) * size)
        groups = fused.view(*tokens.shape, kv, count // kv + 2, size)
        q, k, v = groups[..., :-2, :].flatten(2, 3), groups[..., -2, :], groups[..., -1, :]
        q, k, v = (y.transpose(1, 2) for y in (q, k, v))
        q, k = (rotate(y, c["rope_theta"]) for y in (q, k))
        y = linear(w, p + "self_attention.dense", attend(q, k, v), width)
        z = F.gelu(linear(w, p + "mlp.dense_h_to_4h", m, 4 * width))
        x = x + y + linear(w, p + "mlp.dense_4h_to_h", z, width)
    return F.linear(layer_norm(w, "transformer.ln_f", x, epsilon), table)


def llama_attention(w, c, name, x, window=None, bias=False, turn=rotate):
    """With what Mistral, Qwen, Gemma 2, Nemotron and GLM add to it."""
    count, kv = c["num_attention_heads"], c["num_key_value_heads"]
    size = c.get("head_dim", c["hidden_size"] // count)
    dims = int(size * c.get("partial_rotary_factor", 1.0))
    q, k, v = (
        heads(linear(w, f"{name}.{part}_proj", x, number * size, bias), number)
        for part, number in (("q", count), ("k", kv), ("v", kv))
    )
    if c["model_type"].startswith("qwen3"):
        q = rms_norm(w, name + ".q_norm", q, c["rms_norm_eps"])
        k = rms_norm(w, name + ".k_norm", k, c["rms_norm_eps"])
    q, k = (turn(y, c["rope_theta"], dims) for y in (q, k))
    scale = c.get("query_pre_attn_scalar", size) ** -0.5
    y = attend(q, k, v, scale, window, c.get("attn_logit_softcapping"))
    return linear(w, name + ".o_proj", y, c["hidden_size"])


def gated_mlp(w, c, name, x, activation=F.silu):
    gate, up = (
        linear(w, f"{name}.{part}_proj", x, c["intermediate_size"]) for part in ("gate", "up")
    )
    return linear(w, name + ".down_proj", activation(gate) * up, c["hidden_size"])


def experts_mlp(w, c, name, x):
    """Of Mixtral, and of Qwen 3 with other names: the highest of the softmax, over their sum."""
    mixtral = c["model_type"] == "mixtral"
    width = c["intermediate_size" if mixtral else "moe_intermediate_size"]
    count = c["num_local_experts" if mixtral else "num_experts"]
    name += ".block_sparse_moe" if mixtral else ".mlp"
    gate, up, down = ("w1", "w3", "w2") if mixtral else ("gate_proj", "up_proj", "down_proj")
    scores = linear(w, name + ".gate", x, count).softmax(-1)
    top = scores.topk(c["num_experts_per_tok"], dim=-1)
    chosen = torch.zeros_like(scores).scatter(-1, top.indices, top.values)
    if mixtral or c["norm_topk_prob"]:
        chosen = chosen / chosen.sum(-1, keepdim=True)
    y = torch.zeros_like(x)
    for e in range(count):
        p = f"{name}.experts.{e}."
        z = F.silu(linear(w, p + gate, x, width)) * linear(w, p + up, x, width)
        y = y + chosen[..., e : e + 1] * linear(w, p + down, z, c["hidden_size"])
    return y


def llama(w, c, tokens):
    """And Mistral, Mixtral, Qwen 2, Qwen 3."""
    experts = c["model_type"] in ("mixtral", "qwen3_moe")
    epsilon, bias = c["rms_norm_eps"], c["model_type"] == "qwen2"
    x = w("model.embed_tokens.weight", c["vocab_size"], c["hidden_size"])[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(w, p + "input_layernorm", x, epsilon)
        window = c["sliding_window"] if c["model_type"] == "mistral" else None
        x = x + llama_attention(w, c, p + "self_attn", n, window, bias)
        n = rms_norm(w, p + "post_attention_layernorm", x, epsilon)
        x = x + (experts_mlp(w, c, p[:-1], n) if experts else gated_mlp(w, c, p + "mlp", n))
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, epsilon), c["vocab_size"])


def nemotron(w, c, tokens):
    epsilon = c["norm_eps"]
    x = w("model.embed_tokens.weight", c["vocab_size"], c["hidden_size"])[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = layer_norm_1p(w, p + "input_layernorm", x, epsilon)
        x = x + llama_attention(w, c, p + "self_attn", n)
        n = layer_norm_1p(w, p + "post_attention_layernorm", x, epsilon)
        y = squared_relu(linear(w, p + "mlp.up_proj", n, c["intermediate_size"]))
        x = x + linear(w, p + "mlp.down_proj", y, c["hidden_size"])
    return linear(w, "lm_head", layer_norm_1p(w, "model.norm", x, epsilon), c["vocab_size"])


def gemma2(w, c, tokens):
    epsilon, width = c["rms_norm_eps"], c["hidden_size"]
    table = w("model.embed_tokens.weight", c["vocab_size"], width)
    x = table[tokens] * torch.tensor(math.sqrt(width), dtype=torch.float32).double()
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        window = c["sliding_window"] if i % 2 == 0 else None
        n = rms_norm_1p(w, p + "input_layernorm", x, epsilon)
        y = llama_attention(w, c, p + "self_attn", n, window)
        x = x + rms_norm_1p(w, p + "post_attention_layernorm", y, epsilon)
        n = rms_norm_1p(w, p + "pre_feedforward_layernorm", x, epsilon)
        y = gated_mlp(w, c, p + "mlp", n, gelu_tanh)
        x = x + rms_norm_1p(w, p + "post_feedforward_layernorm", y, epsilon)
    cap = c["final_logit_softcapping"]
    return cap * torch.tanh(F.linear(rms_norm_1p(w, "model.norm", x, epsilon), table) / cap)


def glm4(w, c, tokens):
    """And GLM, which has two norms less."""
    epsilon, width = c["rms_norm_eps"], c["hidden_size"]
    four = c["model_type"] == "glm4"
    x = w("model.embed_tokens.weight", c["vocab_size"], width)[tokens]
    for i in range(c["num_hidden_layers"]):
        p = f"model.layers.{i}."
        n = rms_norm(w, p + "input_layernorm", x, epsilon)
        y = llama_attention(w, c, p + "self_attn", n, None, c["attention_bias"], rotate_pairs)
        x = x + (rms_norm(w, p + "post_self_attn_layernorm", y, epsilon) if four else y)
        n = rms_norm(w, p + "post_attention_layernorm", x, epsilon)
        fused = linear(w, p + "mlp.gate_up_proj", n, 2 * c["intermediate_size"])
        gate, up = fused.chunk(2, dim=-1)
        y = linear(w, p + "mlp.down_proj", F.silu(gate) * up, width)
        x = x + (rms_norm(w, p + "post_mlp_layernorm", y, epsilon) if four else y)
    return linear(w, "lm_head", rms_norm(w, "model.norm", x, epsilon), c["vocab_size"])
