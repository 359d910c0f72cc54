"""Rotary positions and ALiBi."""

import math

import torch


def scaled(model, frequency, dims):
    """Frequencies of rotary positions [dims / 2] after scaling, and what cos and sin are times."""
    scaling = model.get("rope_scaling", {"kind": "none"})
    if scaling["kind"] == "none":
        return frequency, 1.0
    if scaling["kind"] == "linear":
        return frequency / scaling["factor"], 1.0
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


def rotate(model, x, window):
    """Rotary positions on x [B, heads, T, D]: pairs as halves of what turns, or as neighbours."""
    t, d = x.shape[-2:]
    dims = int(d * model.get("rotary_fraction", 1.0))
    own = model.get("window_rope_theta") if window else None
    theta = own or model["rope_theta"]
    frequency = theta ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    frequency, factor = (frequency, 1.0) if own else scaled(model, frequency, dims)
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
