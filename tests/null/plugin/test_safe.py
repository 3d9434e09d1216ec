"""The safe registry: it takes what declares itself safe and passes the strict set, and says why it refuses the rest."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import PluginError
from dovetail.plugin.arrays import as_array
from dovetail.plugin.fields import PluginFieldCollection
from dovetail.plugin.interfaces import (
    IPluginCreatorV3One,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
)
from dovetail.plugin.registry import get_plugin_registry
from dovetail.plugin.safe import SafePluginRegistry, get_safe_plugin_registry, register_safe_plugin
from dovetail.types import DataType, TensorFormat


class SafeRelu(IPluginV3, IPluginV3OneCore, IPluginV3OneBuild, IPluginV3OneRuntime):
    """Writes straight into the output: no allocation, no state."""

    def __init__(self) -> None:
        super().__init__()
        self.plugin_name, self.plugin_version, self.plugin_namespace = "SafeRelu", "1", ""
        self.num_outputs = 1

    def get_capability_interface(self, type: Any) -> Any:
        return self

    def clone(self) -> SafeRelu:
        twin = type(self)()
        twin.__dict__.update(self.__dict__)
        return twin

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]]

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        return [dovetail.DimsExprs(inputs[0])]

    def configure_plugin(self, in_: Any, out: Any) -> None:
        pass

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        desc = in_out[pos].desc
        return bool(desc.type == DataType.FLOAT and desc.format == TensorFormat.LINEAR)

    def on_shape_change(self, in_: Any, out: Any) -> None:
        pass

    def set_tactic(self, tactic: int) -> None:
        pass

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        np.maximum(as_array(inputs[0], input_desc[0]), 0, out=as_array(outputs[0], output_desc[0]))

    def attach_to_context(self, resource_context: Any) -> Any:
        return self.clone()

    def get_fields_to_serialize(self) -> Any:
        return PluginFieldCollection([])


class CountingRelu(SafeRelu):
    """Keeps state between runs."""

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        self.runs = getattr(self, "runs", 0) + 1
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)


class AllocatingRelu(SafeRelu):
    """Allocates in every run."""

    def enqueue(
        self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int
    ) -> None:
        x = as_array(inputs[0], input_desc[0])
        scratch = np.zeros(x.size + 4096, np.float32)
        as_array(outputs[0], output_desc[0])[...] = np.maximum(x, scratch[0])


class Creator(IPluginCreatorV3One):
    safe = True
    plugin: type[SafeRelu] = SafeRelu

    def __init__(self) -> None:
        super().__init__()
        self.name, self.plugin_version, self.plugin_namespace = "SafeRelu", "1", ""
        self.field_names = PluginFieldCollection([])

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        return self.plugin()


class CountingCreator(Creator):
    plugin = CountingRelu


class AllocatingCreator(Creator):
    plugin = AllocatingRelu


class UndeclaredCreator(Creator):
    safe = False


@pytest.fixture
def registry() -> SafePluginRegistry:
    return SafePluginRegistry()


@pytest.fixture
def clean_safe() -> Iterator[SafePluginRegistry]:
    registry = get_safe_plugin_registry()
    yield registry
    registry.close()


def test_a_safe_creator_is_taken(registry: SafePluginRegistry) -> None:
    creator = Creator()
    assert registry.register_creator(creator)
    assert registry.get_creator("SafeRelu", "1") is creator


def test_a_creator_that_does_not_declare_itself_is_refused(registry: SafePluginRegistry) -> None:
    with pytest.raises(PluginError, match="set safe = True on the creator") as caught:
        registry.register_creator(UndeclaredCreator())
    assert "UndeclaredCreator" in str(caught.value)
    assert registry.all_creators == []


@pytest.mark.parametrize("cls", [CountingCreator, AllocatingCreator])
def test_a_creator_that_fails_the_strict_set_is_refused_with_the_rule(
    registry: SafePluginRegistry, cls: type[Creator]
) -> None:
    with pytest.raises(PluginError, match=r"(?s)the checker found otherwise:\n  R\d+ ") as caught:
        registry.register_creator(cls())
    assert cls.__name__ in str(caught.value)
    assert registry.all_creators == []


def test_the_safe_registry_stands_beside_the_global_one(clean_safe: SafePluginRegistry) -> None:
    assert clean_safe is dovetail.get_safe_plugin_registry()
    assert clean_safe is not get_plugin_registry()
    assert clean_safe.parent is None
    register_safe_plugin(Creator)
    assert isinstance(clean_safe.get_creator("SafeRelu", "1"), Creator)
    assert get_plugin_registry().find_creator("SafeRelu", "1") is None


def test_libraries_are_held_to_the_same_rule(registry: SafePluginRegistry, tmp_path: Path) -> None:
    path = tmp_path / "quick_library.py"
    path.write_text("import dovetail\n@dovetail.layer('lib::same')\ndef same(x):\n    return x\n")
    with pytest.raises(PluginError, match="does not declare that it is safe"):
        registry.load_library(path)
    assert registry.libraries == []
