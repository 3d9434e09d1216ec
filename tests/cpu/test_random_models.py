"""Random models, each built in one of the ways there are and used in two: the results are ONNX Runtime's."""

from __future__ import annotations

import pytest

from tests.support.differential import USES, WAYS, find_failures
from tests.support.random_models import make_random_model

SEEDS = 120
QUICK = 36
"""Each pair of a way and a use once."""
ALL = [pytest.param(seed, marks=[pytest.mark.slow] if seed >= QUICK else []) for seed in range(SEEDS)]


@pytest.mark.parametrize("seed", ALL)
def test_a_model_gives_the_same_however_it_is_built_and_used(seed: int) -> None:
    way = list(WAYS)[seed % len(WAYS)]
    use = [name for name in USES if name != "calls"][seed // len(WAYS) % (len(USES) - 1)]
    failures = find_failures(make_random_model(seed), [way], ["calls", use])
    assert not failures, "\n".join(map(str, failures))


def test_a_seed_gives_one_model() -> None:
    first, second = make_random_model(7), make_random_model(7)
    assert first.model.SerializeToString(deterministic=True) == second.model.SerializeToString(deterministic=True)
    assert [{k: v.tobytes() for k, v in f.items()} for f in first.feeds] == [
        {k: v.tobytes() for k, v in f.items()} for f in second.feeds
    ]


def test_seeds_cover_the_operators_and_the_odd_cases() -> None:
    cases = [make_random_model(seed) for seed in range(SEEDS)]
    ops = set().union(*(case.ops for case in cases))
    wanted = "Conv Gemm MatMul Softmax LayerNormalization If Loop Scan SequenceConstruct NonZero Unique QuantizeLinear"
    assert ops.issuperset(wanted.split())
    assert len(ops) > 120
    assert {case.model.opset_import[0].version for case in cases}.issuperset(range(9, 27))
    assert sum(case.has_plugins for case in cases) > 25
    assert sum(bool(case.bounds) for case in cases) > 50
