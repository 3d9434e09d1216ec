"""The kit for back ends: it passes those that keep the contract, and names the rule that a broken one breaks."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from onnx import parser

from dovetail.cli import main
from dovetail.errors import ProviderError, UsageError
from dovetail.provider.interfaces import ProviderFactory
from dovetail.provider.loader import provider_names
from dovetail.rules import Status
from dovetail.testing import HostDeviceFactory, HostDeviceOptions, check_provider
from dovetail.testing.provider_kit import registered_rules
from tests.support.paper_provider import PaperFactory

DEVICE = HostDeviceFactory()
OWN = '<ir_version: 10, opset_import: ["" : 21]> own (float[N] x) => (float[N] y) { y = Relu(x) }'
NEVER_OFFERED = {"P39"}
"""A model comes from the caller."""


@pytest.mark.parametrize(
    "provider",
    [
        "cpu",
        "onnxruntime",
        HostDeviceFactory(),
        HostDeviceFactory(HostDeviceOptions(compiles=True)),
        HostDeviceFactory(HostDeviceOptions(has_streams=False)),
        HostDeviceFactory(HostDeviceOptions(packs=True, has_code=True, workspace_bytes=64)),
        HostDeviceFactory(HostDeviceOptions(compiles=True, packs=True, num_lanes=2, refit_mode="recreate")),
        PaperFactory(),
    ],
    ids=["cpu", "onnxruntime", "kernels", "partitions", "without streams", "packed", "with lanes", "paper"],
)
def test_providers_that_keep_the_contract(provider: str | ProviderFactory) -> None:
    if provider == "onnxruntime":
        pytest.importorskip("onnxruntime", reason="the provider needs it")
    before = provider_names()
    report = check_provider(provider)
    assert report.ok, report.render()
    assert not [outcome for outcome in report.outcomes if outcome.status is Status.NOT_JUDGED]
    report.raise_for_failures()
    assert provider_names() == before


def test_a_device_is_asked_for_everything_it_offers() -> None:
    options = HostDeviceOptions(cost_bytes=1, budget_bytes=10**9, packs=True)
    compiler = replace(options, compiles=True, ops=["Relu", "MatMul", "Add", "Softmax"])
    reports = [check_provider(HostDeviceFactory(each)) for each in (options, compiler)]
    passed = {o.rule.id for report in reports for o in report.outcomes if o.status is Status.PASSED}
    assert {rule.id for rule in registered_rules()} - passed <= NEVER_OFFERED


def test_what_is_not_offered_is_not_passed() -> None:
    report = check_provider("cpu", rules=["P01", "P61", "P70"])
    assert [outcome.status for outcome in report.outcomes] == ["passed", "not_offered", "not_offered"]
    assert "1 passed, 0 failed, 2 not offered, 0 not judged" in report.render()
    assert "P61" in report.render()


def test_a_model_of_the_author() -> None:
    model = parser.parse_model(OWN)
    report = check_provider("cpu", model=model, inputs={"x": np.float32([-1, 2])}, rules=["P20", "P39"])
    assert report.outcome("P39").status is Status.PASSED
    with pytest.raises(UsageError, match="inputs"):
        check_provider("cpu", model=model)


def test_what_cannot_be_asked() -> None:
    with pytest.raises(ProviderError, match="no provider 'nobody'"):
        check_provider("nobody")
    with pytest.raises(UsageError, match="no rule P999"):
        check_provider("cpu", rules=["P999"])


def test_failures_are_raised_with_why_and_fix() -> None:
    report = check_provider(HostDeviceFactory(HostDeviceOptions(missing_claims=1)), rules=["P10"])
    with pytest.raises(ProviderError, match=r"breaks 1 rule.*\n  FAIL P10 .*claims.*why: .*fix: "):
        report.raise_for_failures()
    (rule,) = report.to_dict()["rules"]
    assert (rule["status"], rule["id"], bool(rule["fix"])) == ("failed", "P10", True)


def test_every_rule_says_what_why_and_how() -> None:
    rules = registered_rules()
    assert len(rules) > 60
    assert len({rule.title for rule in rules}) == len(rules)
    for rule in rules:
        assert rule.title
        assert rule.why.endswith(".")
        assert rule.fix
        assert rule.judge.__doc__


# the command


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provider", "check", "cpu", "--rules", "P01", "P61"]) == 0
    shown = capsys.readouterr().out
    assert "checking provider 'cpu'" in shown
    assert "1 passed, 0 failed, 1 not offered, 0 not judged" in shown


def test_the_command_in_json_with_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provider", "check", "cpu", "--option", "layout=NHWC", "--rules", "P05", "P30", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["counts"] == {"passed": 2, "failed": 0, "not_offered": 0, "not_judged": 0}


def test_the_command_fails_when_a_rule_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["provider", "check", "cpu", "--option", "layout=diagonal", "--rules", "P03"]) == ProviderError.exit_code
    )
    shown = capsys.readouterr().out
    assert "no such layout" in shown
    assert "fix: " in shown


@pytest.mark.parametrize("words", [["nobody"], ["cpu", "--option", "layout"], ["cpu", "--rules", "R01"]])
def test_the_command_refuses(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["provider", "check", *words]) in (UsageError.exit_code, ProviderError.exit_code)
    assert capsys.readouterr().err
