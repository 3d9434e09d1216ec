"""``config.toml``: what it may say, and one line for whatever it gets wrong."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail_serve.repository.problems import ModelConfigError, tell_on_one_line
from dovetail_serve.repository.settings import ModelSettings, VersionPolicy, parse_settings, read_settings

WHOLE = b"""
instances = 2
threads = 4
max_batch_size = 8
batching = "always"
max_queue_delay_us = 500
max_queue_size = 64
default_timeout_us = 1000000
default_priority = 3
versions = { latest = 2 }

[build]
providers = ["onnxruntime", "cpu"]
precision = "fp16"
shapes = { x = [[1, 3], [4, 3], [8, 3]], z = [2] }

[provider_options.onnxruntime]
threads = 2
pool = "session"

[[padding]]
inputs = { ids = 1, mask = 1 }
outputs = { hidden = 1 }
values = { ids = 1.5 }
multiple = 16

[[warmup]]
count = 3
shapes = { x = [4, 3] }
files = { z = "warmup/z.npy" }
"""


def test_everything_can_be_said() -> None:
    settings = parse_settings(WHOLE)
    assert (settings.instances, settings.threads, settings.max_batch_size) == (2, 4, 8)
    assert settings.versions == VersionPolicy(latest=2)
    assert settings.build.shapes["x"] == ((1, 3), (4, 3), (8, 3))
    assert settings.build.shapes["z"] == ((2,), (2,), (2,))
    assert settings.provider_options == {"onnxruntime": {"threads": "2", "pool": "session"}}
    assert settings.padding[0].multiple == 16
    assert settings.warmup[0].files == {"z": "warmup/z.npy"}


def test_nothing_need_be_said(tmp_path: Path) -> None:
    assert parse_settings(b"") == ModelSettings() == read_settings(None, "m")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("instance = 2", "m/config.toml, 'instance': unknown key; expected"),
        ("instance = 2", "fix: did you mean 'instances'"),
        ("instances = 'two'", "'instances': not a whole number; expected 1 to 256, got 'two'"),
        ("instances = true", "'instances': not a whole number; expected 1 to 256, got True"),
        ("instances = 0", "'instances': out of range; expected 1 to 256, got 0"),
        ("max_queue_size = -1", "'max_queue_size': out of range"),
        ("batching = 'sometimes'", "'batching': no such value; expected measure, always, got 'sometimes'"),
        ("versions = 'newest'", "'versions': no policy of versions; expected \"all\", { latest = 2 }"),
        ("versions = []", "'versions': no policy of versions"),
        ("versions = [0]", "'versions': not a list of whole numbers"),
        ("versions = {latest = 0}", "'versions.latest': out of range; expected 1 to 1000, got 0"),
        ("build = 3", "'build': not a table; expected [build], got 3"),
        ("[build]\nprecison = 'fp16'", "'build.precison': unknown key"),
        ("[build]\nproviders = 'cpu'", "'build.providers': not a list of texts"),
        ("[build]\nstrict = 1", "'build.strict': neither true nor false"),
        ("[build.shapes]\nx = [1, -1]", "'build.shapes.x': no shapes; expected one shape such as [1, 3]"),
        ("max_batch_size=2\n[[padding]]\nvalues={x=1}", "'padding[0].inputs': no input is padded"),
        ("max_batch_size=2\n[[padding]]\ninputs={x=0}", "'padding[0].inputs.x': out of range; expected 1 to 64"),
        ("[[padding]]\ninputs={x=1}", "'padding': it has no effect without max_batch_size"),
        ("max_queue_delay_us = 5", "'max_queue_delay_us': it has no effect without max_batch_size"),
        ("[[warmup]]\nfiles = {x = '../x.npy'}", "'warmup[0].files.x': no file of the model's folder"),
        ("[[warmup]]\nfiles = {x = '/x.npy'}", "'warmup[0].files.x': no file of the model's folder"),
        ("[[warmup]]\nfiles = {x = 'x.pkl'}", "'warmup[0].files.x': no file of the model's folder"),
        ("[provider_options.cpu]\nlayout = true", "'provider_options.cpu.layout': not an option's value"),
        ("a = [", "m/config.toml: it is no TOML"),
    ],
)
def test_a_mistake_is_one_line_with_file_and_key(text: str, message: str) -> None:
    with pytest.raises(ModelConfigError) as caught:
        parse_settings(text.encode(), "m/config.toml")
    assert message in tell_on_one_line(caught.value)
    assert "m/config.toml" in str(caught.value)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    with contextlib.suppress(ModelConfigError):
        assert isinstance(parse_settings(data), ModelSettings)


VALUES = st.recursive(
    st.booleans() | st.integers(-5, 5) | st.text("ab\"'\\", max_size=3) | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
KEYS = st.sampled_from(["instances", "versions", "build", "padding", "warmup", "provider_options", "threads", "x"])


def _toml(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return repr(value).lower()


@given(st.dictionaries(KEYS, VALUES, max_size=3))
def test_no_values_do_more_than_be_refused(table: dict[str, object]) -> None:
    text = "\n".join(f"{key} = {_toml(value)}" for key, value in table.items())
    with contextlib.suppress(ModelConfigError):
        assert isinstance(parse_settings(text.encode()), ModelSettings)


def test_deep_nesting_and_great_size_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelConfigError):
        parse_settings(b"a = " + b"[" * 100_000)
    (tmp_path / "config.toml").write_bytes(b"#" * (1 << 21))
    with pytest.raises(ModelConfigError, match="it is too large"):
        read_settings(tmp_path / "config.toml", "m")


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        (VersionPolicy(), ["10"]),
        (VersionPolicy(latest=0), ["1", "9", "10"]),
        (VersionPolicy(latest=5), ["1", "9", "10"]),
        (VersionPolicy(chosen=(9, 4)), ["4", "9"]),
    ],
)
def test_policies_choose_by_number(policy: VersionPolicy, chosen: list[str]) -> None:
    assert policy.choose(["1", "10", "9"]) == chosen
