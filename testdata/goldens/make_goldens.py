#!/usr/bin/python3
"""Makes the golden files: a tiny model of each family trained by PyTorch in double precision.

Usage: ./make_goldens.py          (Debian packages python3-torch and python3-numpy)

Writes NAME.json, a run configuration, and NAME.safetensors beside this script. The latter holds
  weights.P     each parameter P before the first step, named as in the engine
  tokens        [steps * global batch, T + 1]: the samples, in the order they are consumed
  logits        [N, V] of the first micro batch
  grad.P        gradient of each parameter after the first step's backward pass, before clipping
  losses        mean loss of ten optimizer steps
  grad_norms    global gradient norm of those steps, before clipping
  router_losses what the routers' losses add to these losses, of models with experts
The models are written out here with plain tensor operations, from the papers and not from the
engine, so that the two agree only if both are right.
"""

import json
import math
import os
import struct

import numpy
import torch
import torch.nn.functional as F

import experts

STEPS = 10
OPTIMIZER = {
    "learning_rate": 1e-2,
    "min_learning_rate": 1e-3,
    "beta1": 0.9,
    "beta2": 0.95,
    "epsilon": 1e-8,
    "weight_decay": 0.1,
    "clip_grad": 1.0,
    "warmup_steps": 3,
    "decay_steps": 0,
}
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
GLM4 = dict(
    LLAMA,
    name="golden-glm4",
    qkv_bias=True,
    block="sandwich",
    rotary_fraction=0.5,
    rotary_interleaved=True,
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
MIXTRAL = dict(LLAMA, name="golden-mixtral", moe=experts.MIXTRAL)
DEEPSEEK = dict(LLAMA, name="golden-deepseek", num_layers=3, moe=experts.DEEPSEEK)


def head_size(model):
    return model.get("head_size", model["hidden_size"] // model["num_heads"])


def make_weights(model, generator):
    """Random weights for every parameter, spread wide enough that each one matters."""
    c, f, v = model["hidden_size"], model["ffn_hidden_size"], model["vocab_size"]
    d = head_size(model)
    qkv = (model["num_heads"] + 2 * model["num_kv_heads"]) * d
    fc1 = 2 * f if "glu" in model["activation"] else f
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
        shapes[p + "self_attention.linear_qkv.weight"] = (qkv, c)
        if model.get("query_key_norm"):
            shapes[p + "self_attention.q_layernorm.weight"] = (d,)
            shapes[p + "self_attention.k_layernorm.weight"] = (d,)
        shapes[p + "self_attention.linear_proj.weight"] = (c, model["num_heads"] * d)
        if block == "sandwich":
            shapes[p + "post_attention_layernorm.weight"] = (c,)
            shapes[p + "post_mlp_layernorm.weight"] = (c,)
        if block != "parallel_shared_norm":
            shapes[p + "pre_mlp_layernorm.weight"] = (c,)
        if experts.has_experts(model, i):
            shapes.update(experts.shapes(model, p + "mlp."))
            continue
        shapes[p + "mlp.linear_fc1.weight"] = (fc1, c)
        shapes[p + "mlp.linear_fc2.weight"] = (c, f)
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
            # Routers choose by logits so far apart that no rounding turns a choice over.
            values = (0.45 if "router" in name else 0.15) * values
        weights[name] = values.float().double().requires_grad_(True)
    return weights


def has_bias(model, name):
    if "q_layernorm" in name or "k_layernorm" in name:
        return False
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

    first = max(math.floor(pair(scaling.get("beta_fast", 32.0))), 0)
    last = min(math.ceil(pair(scaling.get("beta_slow", 1.0))), dims - 1)
    ramp = ((torch.arange(dims // 2, dtype=torch.float64) - first) / (last - first)).clamp(0, 1)
    return frequency / factor * ramp + frequency * (1 - ramp), 0.1 * math.log(factor) + 1


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


def attention(model, w, name, x, window):
    b, t, _ = x.shape
    h, kv, d = model["num_heads"], model["num_kv_heads"], head_size(model)
    q, k, v = linear(w, name + ".linear_qkv", x).split([h * d, kv * d, kv * d], dim=-1)
    q, k, v = (y.view(b, t, -1, d).transpose(1, 2) for y in (q, k, v))
    if model.get("query_key_norm"):
        q = rms_norm(model, w, name + ".q_layernorm", q)
        k = rms_norm(model, w, name + ".k_layernorm", k)
    if model["position"] == "rope":
        q, k = rotate(model, q), rotate(model, k)
    k, v = (y.repeat_interleave(h // kv, dim=1) for y in (k, v))
    scores = q @ k.transpose(-1, -2) * model.get("attention_scale", 1 / math.sqrt(d))
    scores = soft_cap(scores, model.get("attention_soft_cap", 0))
    positions = torch.arange(t)
    distance = positions[:, None] - positions[None, :]
    if model["position"] == "alibi":
        slopes = torch.tensor(alibi_slopes(h), dtype=torch.float64)
        scores = scores - slopes[:, None, None] * distance
    hidden = distance < 0
    if window:
        hidden = hidden | (distance >= window)
    out = scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v
    return linear(w, name + ".linear_proj", out.transpose(1, 2).reshape(b, t, h * d))


ACTIVATIONS = {
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
    "geglu": lambda x: F.gelu(x, approximate="tanh"),
    "gelu_erf": F.gelu,
    "relu": F.relu,
    "squared_relu": lambda x: F.relu(x).square(),
    "swiglu": F.silu,
}


def mlp(model, w, name, x):
    y = linear(w, name + ".linear_fc1", x)
    activation = ACTIVATIONS[model["activation"]]
    if "glu" in model["activation"]:
        gate, up = y.chunk(2, dim=-1)
        y = activation(gate) * up
    else:
        y = activation(y)
    return linear(w, name + ".linear_fc2", y)


def layer(model, w, number, x, routers):
    p = f"decoder.layers.{number}."
    block = model.get("block", "sequential")
    period = model.get("full_attention_period", 0)
    full = period > 0 and (number + 1) % period == 0
    window = 0 if full else model.get("sliding_window", 0)
    normed = norm(model, w, p + "input_layernorm", x)
    a = attention(model, w, p + "self_attention", normed, window)
    if block == "sandwich":
        a = norm(model, w, p + "post_attention_layernorm", a)
    if block == "parallel_shared_norm":
        return x + a + mlp(model, w, p + "mlp", normed)
    if block == "parallel":
        return x + a + mlp(model, w, p + "mlp", norm(model, w, p + "pre_mlp_layernorm", x))
    x = x + a
    normed = norm(model, w, p + "pre_mlp_layernorm", x)
    if number in routers:
        m = experts.moe_layer(model, w, p + "mlp", normed, routers[number], mlp)
    else:
        m = mlp(model, w, p + "mlp", normed)
    if block == "sandwich":
        m = norm(model, w, p + "post_mlp_layernorm", m)
    return x + m


def logits_of(model, w, tokens, routers):
    x = w["embedding.word_embeddings.weight"][tokens] * model.get("embedding_scale", 1.0)
    if model["position"] == "learned":
        first = model.get("position_offset", 0)
        x = x + w["embedding.position_embeddings.weight"][first : first + tokens.shape[1]]
    if model.get("embedding_norm"):
        x = norm(model, w, "embedding.word_embeddings_layernorm", x)
    for i in range(model["num_layers"]):
        x = layer(model, w, i, x, routers)
    x = norm(model, w, "decoder.final_layernorm", x)
    head = "embedding.word_embeddings.weight" if model["tied_embeddings"] else "output_layer.weight"
    logits = F.linear(x, w[head], w.get("output_layer.bias")) * model.get("logit_scale", 1.0)
    return soft_cap(logits, model.get("logit_soft_cap", 0))


def learning_rate(step):
    top, low, warmup = (
        OPTIMIZER[k] for k in ("learning_rate", "min_learning_rate", "warmup_steps")
    )
    if step < warmup:
        return top * (step + 1) / warmup
    progress = min((step - warmup) / (STEPS - warmup), 1.0)
    return low + 0.5 * (1 + math.cos(math.pi * progress)) * (top - low)


def write_safetensors(path, tensors):
    header, offset = {}, 0
    kinds = {"float32": "F32"}
    for name, array in tensors.items():
        header[name] = {
            "dtype": kinds[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(numpy.ascontiguousarray(array).tobytes())


def make_golden(stem, model, sequence, micro_batch, micro_batches):
    generator = torch.Generator().manual_seed(20)
    weights = make_weights(model, generator)
    batch = micro_batch * micro_batches
    tokens = torch.randint(
        model["vocab_size"], (STEPS * batch, sequence + 1), generator=generator
    )
    tensors = {"weights." + k: v.detach().float().numpy().copy() for k, v in weights.items()}
    tensors["tokens"] = tokens.float().numpy()

    matrices = [v for v in weights.values() if v.dim() == 2]
    vectors = [v for v in weights.values() if v.dim() == 1]
    optimizer = torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": OPTIMIZER["weight_decay"]},
            {"params": vectors, "weight_decay": 0.0},
        ],
        betas=(OPTIMIZER["beta1"], OPTIMIZER["beta2"]),
        eps=OPTIMIZER["epsilon"],
    )
    layers = range(model["num_layers"])
    routers = {i: experts.Router(model["moe"]) for i in layers if experts.has_experts(model, i)}
    losses, norms, router_losses = [], [], []
    for step in range(STEPS):
        samples = tokens[step * batch : (step + 1) * batch]
        logits = logits_of(model, weights, samples[:, :-1], routers)
        loss = F.cross_entropy(logits.flatten(0, 1), samples[:, 1:].flatten())
        optimizer.zero_grad()
        router_loss = sum(router.loss for router in routers.values())
        (loss + router_loss).backward()
        if step == 0:
            tensors["logits"] = logits[:micro_batch].detach().flatten(0, 1).float().numpy()
            for name, value in weights.items():
                tensors["grad." + name] = value.grad.float().numpy().copy()
        losses.append(loss.item())
        router_losses.append(float(router_loss))
        norm_before = torch.nn.utils.clip_grad_norm_(weights.values(), OPTIMIZER["clip_grad"])
        norms.append(norm_before.item())
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step)
        optimizer.step()
        for router in routers.values():
            router.end_step()
    tensors["losses"] = numpy.array(losses, dtype=numpy.float32)
    tensors["grad_norms"] = numpy.array(norms, dtype=numpy.float32)
    if routers:
        tensors["router_losses"] = numpy.array(router_losses, dtype=numpy.float32)
    write_safetensors(stem + ".safetensors", tensors)
    run = {
        "model": model,
        "layout": {"tp": 1, "dp": 1, "mbs": micro_batch},
        "optimizer": OPTIMIZER,
        "global_batch": batch,
        "sequence_length": sequence,
        "steps": STEPS,
    }
    with open(stem + ".json", "w") as file:
        json.dump(run, file, indent=2)
        file.write("\n")
    print(stem, "losses", " ".join(f"{x:.5f}" for x in losses))


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    families = [GPT2, LLAMA, FALCON, FALCON_MQA, GPTJ, NEOX, BLOOM, MPT, OPT, NEMOTRON]
    families += [MISTRAL, QWEN2, QWEN3, GEMMA2, GLM4, LLAMA31, YARN, MIXTRAL, DEEPSEEK]
    for family in families:
        stem = family["name"].removeprefix("golden-").replace("-", "_")
        make_golden(os.path.join(here, stem), family, sequence=20, micro_batch=2, micro_batches=2)
