"""Offers for tuning: how texts become rows of types and layouts."""

from __future__ import annotations

from typing import Any

import pytest

import dovetail_tensorrt.trt.plugin as trtp
from dovetail_tensorrt.trt.plugin.base import Offers


def rows(offered: trtp.AutoTuneCombination, count: int) -> list[str]:
    return [" ".join(f"{dtype.name}:{form.name}" for dtype, form in row) for row in offered.expand(count)]


def test_choices_vary_together_or_alone() -> None:
    assert rows(trtp.AutoTuneCombination("FP32|FP16, FP32|FP16"), 2) == [
        "FLOAT:LINEAR FLOAT:LINEAR",
        "HALF:LINEAR HALF:LINEAR",
    ]
    assert len(rows(trtp.AutoTuneCombination("FP32*FP16, FP32*FP16"), 2)) == 4
    assert rows(trtp.AutoTuneCombination("FP16, FP16", "LINEAR|HWC8"), 2) == [
        "HALF:LINEAR HALF:LINEAR",
        "HALF:HWC8 HALF:HWC8",
    ]


def test_positions_one_by_one() -> None:
    offered = trtp.AutoTuneCombination()
    offered.pos([0, 1], "FP32|FP16")
    offered.pos(2, "INT32")
    assert rows(offered, 3) == [
        "FLOAT:LINEAR FLOAT:LINEAR INT32:LINEAR",
        "HALF:LINEAR HALF:LINEAR INT32:LINEAR",
    ]


def test_equal_rows_join_their_tactics() -> None:
    one, other = trtp.AutoTuneCombination("FP32, FP32", tactics=[1]), trtp.AutoTuneCombination("FP32, FP32")
    other.tactics([2, 1])
    assert list(Offers.collect([one, other], 2, "here").rows.values()) == [(1, 2)]


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (lambda: trtp.AutoTuneCombination("FP33, FP32"), "there is no type 'FP33'"),
        (lambda: trtp.AutoTuneCombination("FP32", "NCHW"), "there is no layout 'NCHW'"),
        (lambda: trtp.AutoTuneCombination("FP32|FP16*BF16"), "mixed"),
        (lambda: trtp.AutoTuneCombination("FP32, FP32", "LINEAR, LINEAR, LINEAR"), "1 or 2"),
        (lambda: trtp.AutoTuneCombination("FP32", tactics=[0]), "positive"),
        (lambda: trtp.AutoTuneCombination("FP32", tactics=[1, 1]), "different"),
        (lambda: trtp.AutoTuneCombination("FP32|FP16, FP32|FP16|BF16").expand(2), "as many"),
        (lambda: trtp.AutoTuneCombination("FP32").expand(2), "positions 0 to 1"),
        (lambda: trtp.AutoTuneCombination().pos(-1, "FP32"), "0 or more"),
    ],
)
def test_what_makes_no_combination_is_refused(make: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        make()
