"""What a draft layer lacks, told by the target's layers."""

from __future__ import annotations

from mtpfix.storage.lacking import lacking

ATTENTION = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.o_proj")
EXPERTS = ("mlp.experts.up_proj", "mlp.experts.down_proj")


def layer(*names: str, experts: int = 4) -> dict[str, frozenset[int]]:
    return {name: frozenset(range(experts)) if ".experts." in name else frozenset() for name in names}


def test_a_whole_layer_lacks_nothing() -> None:
    draft = layer(*ATTENTION, "mlp.gate", *EXPERTS, "eh_proj")
    assert lacking(draft, [layer(*ATTENTION, "mlp.gate", *EXPERTS)]) == ()


def test_a_module_that_every_similar_layer_has_is_lacking() -> None:
    targets = [layer("linear_attn.out_proj", "mlp.gate", *EXPERTS), layer(*ATTENTION, "mlp.gate", *EXPERTS)]
    assert lacking(layer("self_attn.q_proj", "self_attn.o_proj", "mlp.gate", *EXPERTS), targets) == (
        "self_attn.k_proj",
    )


def test_a_single_expert_is_named_with_its_number() -> None:
    draft = {**layer(*ATTENTION, *EXPERTS), "mlp.experts.up_proj": frozenset({0, 2, 3})}
    assert lacking(draft, [layer(*ATTENTION, *EXPERTS)]) == ("mlp.experts.1.up_proj",)


def test_a_dense_draft_lacks_no_experts_and_layers_differ() -> None:
    dense = layer(*ATTENTION, "mlp.up_proj", "mlp.down_proj")
    assert lacking(dense, [layer(*ATTENTION, "mlp.gate", *EXPERTS)]) == ()
    assert lacking(layer(*ATTENTION), [layer(*ATTENTION, "self_attn.indexer.wk")]) == ()
    assert lacking(layer(*ATTENTION), [layer(*ATTENTION, "self_attn.g_proj"), layer(*ATTENTION)]) == ()
    assert lacking(layer(*ATTENTION), []) == ()
