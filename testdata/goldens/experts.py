"""Layers with experts."""

import torch
import torch.nn.functional as F

from parts import gate_up, linear, mlp, mlp_shapes


def has_experts(model, layer):
    return "moe" in model and layer >= model["moe"].get("first_k_dense", 0)


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
