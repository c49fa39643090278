"""Facts of two models with round numbers: 1 GB of weights, dense and as a mixture of experts."""

from nixwulf.llm.model_facts import ModelFacts, Weights

DENSE = ModelFacts(
    "dense", layers=10, hidden=1000, parameters=1e9, weights=Weights(8, 8), kv_heads=8, heads=8,
    head_dim=128, cache_width=10_000,
)  # fmt: skip
MIXTURE = ModelFacts(
    "mixture", layers=10, hidden=1000, parameters=1e9, weights=Weights(8, 8), kv_heads=8,
    experts=8, experts_used=2, routed=8e8,
)  # fmt: skip
