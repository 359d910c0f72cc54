"""What the models of the goldens are made of: norms, linear layers, dense MLPs."""

import torch
import torch.nn.functional as F


def mlp_shapes(model, prefix, f):
    c = model["hidden_size"]
    fc1 = 2 * f if "glu" in model["activation"] else f
    return {prefix + "linear_fc1.weight": (fc1, c), prefix + "linear_fc2.weight": (c, f)}


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


def soft_cap(x, cap):
    return cap * torch.tanh(x / cap) if cap else x


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
