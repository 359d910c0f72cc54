"""Mixture of experts for make_goldens.py, from the papers of Mixtral and DeepSeek-V3."""

import torch
import torch.nn.functional as F

# As Mixtral (softmax over the chosen experts, a load-balancing loss and a z-loss), and as
# DeepSeek-V3 with plain attention (sigmoids, groups, a shared expert, a bias that balances, a first
# dense layer).
MIXTRAL = {
    "num_experts": 6,
    "router_topk": 2,
    "ffn_hidden_size": 24,
    "aux_loss_coeff": 0.02,
    "z_loss_coeff": 0.001,
}
DEEPSEEK = {
    "num_experts": 8,
    "router_topk": 3,
    "ffn_hidden_size": 16,
    "shared_ffn_hidden_size": 24,
    "first_k_dense": 1,
    "score": "sigmoid",
    "norm_topk": True,
    "topk_scaling_factor": 2.5,
    "num_groups": 4,
    "group_topk": 2,
    "group_score": "sum_of_top_two",
    "expert_bias": True,
    "bias_update_rate": 0.02,
    "aux_loss_coeff": 0.01,
}


def has_experts(model, layer):
    return "moe" in model and layer >= model["moe"].get("first_k_dense", 0)


def shapes(model, prefix):
    """Of the parameters of one layer: the experts' matrices stand one below the other."""
    moe, c = model["moe"], model["hidden_size"]
    experts, f, shared = (
        moe.get(k, 0) for k in ("num_experts", "ffn_hidden_size", "shared_ffn_hidden_size")
    )
    result = {
        prefix + "router.weight": (experts, c),
        prefix + "experts.linear_fc1.weight": (experts * 2 * f, c),
        prefix + "experts.linear_fc2.weight": (experts * c, f),
    }
    if shared > 0:
        result[prefix + "shared_experts.linear_fc1.weight"] = (2 * shared, c)
        result[prefix + "shared_experts.linear_fc2.weight"] = (c, shared)
    return result


class Router:
    """Routes one layer, and keeps its losses and what its bias needs."""

    def __init__(self, moe):
        self.moe = moe
        self.bias = torch.zeros(moe["num_experts"], dtype=torch.float64)
        self.load = torch.zeros(moe["num_experts"], dtype=torch.float64)
        self.loss = 0.0

    def choose(self, scores):
        moe = self.moe
        scores = scores + self.bias
        groups = moe.get("num_groups", 1)
        if groups > 1:
            by_group = scores.view(*scores.shape[:-1], groups, -1)
            worth = by_group.topk(2, dim=-1).values.sum(-1)
            best = worth.topk(moe["group_topk"], dim=-1).indices
            allowed = torch.zeros_like(worth, dtype=torch.bool).scatter(-1, best, True)
            scores = by_group.masked_fill(~allowed[..., None], float("-inf")).flatten(-2)
        return scores.topk(moe["router_topk"], dim=-1).indices

    def route(self, logits):
        """Experts and weights [B, T, k]."""
        moe = self.moe
        k, experts = moe["router_topk"], moe["num_experts"]
        if moe.get("score", "softmax") == "sigmoid":
            scores = torch.sigmoid(logits)
            chosen = self.choose(scores.detach())
            weights = scores.gather(-1, chosen)
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
            p = scores / (scores.sum(-1, keepdim=True) + 1e-20)
        else:
            chosen = self.choose(logits.detach())
            weights = logits.gather(-1, chosen).softmax(-1)
            p = logits.softmax(-1)
        self.load += F.one_hot(chosen, experts).sum((0, 1, 2)).double()
        # The loss of each sequence: coeff * E / (k T^2) * sum over experts of (sum of p) * count.
        by_score = F.one_hot(logits.detach().topk(k, dim=-1).indices, experts).sum((1, 2)).double()
        t = logits.shape[1]
        aux = (p.sum(1) * by_score).sum(-1) * (experts / (k * t * t))
        z = logits.logsumexp(-1).pow(2).mean(-1)
        self.loss = (moe["aux_loss_coeff"] * aux + moe.get("z_loss_coeff", 0.0) * z).mean()
        return chosen, weights * moe.get("topk_scaling_factor", 1.0)

    def end_step(self):
        if self.moe.get("expert_bias", False):
            self.bias += self.moe["bias_update_rate"] * torch.sign(self.load.mean() - self.load)
        self.load.zero_()


def moe_layer(model, w, name, x, router, mlp):
    """`mlp` makes the shared experts' part. Every expert computes every token: [B, T, E, C]."""
    chosen, weights = router.route(F.linear(x, w[name + ".router.weight"]))
    experts = model["moe"]["num_experts"]
    fc1, fc2 = (
        w[f"{name}.experts.linear_{fc}.weight"].unflatten(0, (experts, -1)) for fc in ("fc1", "fc2")
    )
    gate, up = torch.einsum("btc,efc->btef", x, fc1).chunk(2, dim=-1)
    out = torch.einsum("btef,ecf->btec", F.silu(gate) * up, fc2)
    index = chosen[..., None].expand(*chosen.shape, x.shape[-1])
    y = (out.gather(2, index) * weights[..., None]).sum(2)
    if name + ".shared_experts.linear_fc1.weight" in w:
        y = y + mlp(model, w, name + ".shared_experts", x)
    return y
