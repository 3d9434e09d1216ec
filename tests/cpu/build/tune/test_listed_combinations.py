"""Plugins that list their combinations at once, and that are told ranks: what decorated functions are made of."""

from __future__ import annotations

from typing import Any

import pytest

import dovetail as dt
from tests.support.plugins import ScalePlugin


class ListingPlugin(ScalePlugin):
    """Offers CHW32 on both sides, then LINEAR; needs the rank of its input for its types."""

    takes_ranks = True
    tactics = ()

    def get_output_data_types(self, input_types: Any, ranks: Any) -> Any:  # type: ignore[override]
        self.note("ranks", list(ranks))
        return [input_types[0]]

    def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> Any:
        self.note("listed", [(tuple(each.desc.dims), each.desc.type, tuple(each.max)) for each in in_out])
        forms = (dt.TensorFormat.CHW32, dt.TensorFormat.LINEAR)
        return [dt.PluginTensorDesc((), dt.float32, form) for form in forms for _ in range(2)]


class UnevenPlugin(ListingPlugin):
    """Lists an output too few."""

    def get_supported_format_combinations(self, in_out: Any, num_inputs: int) -> Any:
        return [dt.PluginTensorDesc()]


def build(plugin: Any) -> Any:
    """The plan of one plugin layer."""
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (1, 2, 3, 4))
    network.mark_output(network.add_plugin_v3([x], [], plugin).get_output(0))
    return builder.build_plan(network, builder.create_builder_config())


def test_the_listed_rows_are_what_is_timed() -> None:
    plugin = ListingPlugin(3.0)
    plan = build(plugin)
    formats = {tuple(candidate.formats) for candidate in plan.manifest.tuning[0].candidates}
    assert formats == {("FLOAT:CHW32", "FLOAT:CHW32"), ("FLOAT:LINEAR", "FLOAT:LINEAR")}
    assert ("ranks", [4]) in plugin.calls
    assert ("listed", [((1, 2, 3, 4), dt.float32, (1, 2, 3, 4))] * 2) in plugin.calls
    assert "supports_format_combination" not in {name for name, _ in plugin.calls}


def test_a_list_has_a_descriptor_for_each_tensor() -> None:
    with pytest.raises(dt.PluginError, match="a multiple of 2 descriptors"):
        build(UnevenPlugin())


def test_descriptors_say_that_memory_is_the_host_s() -> None:
    seen: list[bool] = []

    class Looking(ScalePlugin):
        def enqueue(self, input_desc: Any, output_desc: Any, *rest: Any) -> None:
            seen.extend(each.is_on_device for each in (*input_desc, *output_desc))
            super().enqueue(input_desc, output_desc, *rest)

    build(Looking(2.0))
    assert seen
    assert not any(seen)
