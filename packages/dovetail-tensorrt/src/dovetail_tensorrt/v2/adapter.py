"""A V2 plugin under the ``IPluginV3`` contract: its life, from the network to the end of the engine.

What happens to the V2 object, in order:

- build: ``clone``, types, shapes, formats, ``attach_to_context``, ``configure_plugin``, ``initialize``, runs,
  ``serialize``, ``detach_from_context``, ``terminate``, ``destroy``;
- run time: ``deserialize_plugin``, ``initialize``; for each context ``clone``, ``attach_to_context``, runs,
  ``detach_from_context``, ``destroy``; at last ``terminate`` and ``destroy``.

As in the original, ``initialize`` is called on the object of the engine and not on its clones, which must be made in an
initialised state. In the build the object that runs is initialised, when it first has to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from dovetail.errors import PluginError
from dovetail.expr import DimsExprs, IExprBuilder
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType
from dovetail.plugin.handle import is_success
from dovetail.plugin.interfaces import (
    IPluginCapability,
    IPluginResourceContext,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginCapabilityType,
)
from dovetail.types import DataType
from dovetail_tensorrt.v2.dialects import BuildDescs, Dialect, DynamicDialect, RunDescs
from dovetail_tensorrt.v2.implicit import ExtDialect, IOExtDialect, OneTypeDialect
from dovetail_tensorrt.v2.interfaces import IPluginV2, IPluginV2DynamicExt, IPluginV2Ext, IPluginV2IOExt

__all__ = ["SERIALIZED_FIELD", "AdaptedPlugin", "adapt_plugin"]

__dovetail_adapter__ = True

SERIALIZED_FIELD: Final = "serialized_plugin_v2"
"""The field of a plan that holds what ``serialize`` of the V2 plugin gave."""

_DIALECTS: Final[Sequence[tuple[type[IPluginV2], Callable[[Any], Dialect[Any]]]]] = (
    (IPluginV2DynamicExt, DynamicDialect),
    (IPluginV2IOExt, IOExtDialect),
    (IPluginV2Ext, ExtDialect),
    (IPluginV2, OneTypeDialect),
)


def adapt_plugin(plugin: IPluginV2) -> AdaptedPlugin:
    """A V2 plugin under the ``IPluginV3`` contract; the object itself stays the caller's.

    Raises:
        PluginError: The object is of no V2 interface.
    """
    return AdaptedPlugin(plugin, _choose_dialect(plugin))


def _choose_dialect(plugin: IPluginV2) -> Dialect[Any]:
    for interface, make in _DIALECTS:
        if isinstance(plugin, interface):
            return make(plugin)
    raise PluginError(
        "the object is no V2 plugin",
        expected="an object derived from " + ", ".join(interface.__name__ for interface, _ in _DIALECTS),
        got=type(plugin).__name__,
    )


class AdaptedPlugin(IPluginV3, IPluginV3OneCore, IPluginV3OneBuild, IPluginV3OneRuntime):
    """One V2 object with the engine's part of its life.

    Args:
        plugin: The V2 object.
        dialect: How it is asked.
        is_initialized: Whether it is a clone of an initialised object.
    """

    can_capture = False

    def __init__(self, plugin: IPluginV2, dialect: Dialect[Any], *, is_initialized: bool = False) -> None:
        self.adapted: Final = plugin
        self._dialect = dialect
        self._is_initialized = is_initialized
        self._must_terminate = False
        self._is_attached = False
        self._is_destroyed = False

    def get_capability_interface(self, type: PluginCapabilityType) -> IPluginCapability:  # noqa: A002
        """This object, which has all capabilities in both phases."""
        return self

    # core and build attributes, read when they are asked for: V2 plugins may set them late

    @property
    def plugin_name(self) -> str:  # type: ignore[override]
        """The type of the V2 plugin."""
        return self.adapted.plugin_type

    @property
    def plugin_version(self) -> str:  # type: ignore[override]
        """The version of the V2 plugin."""
        return self.adapted.plugin_version

    @property
    def plugin_namespace(self) -> str:  # type: ignore[override]
        """The namespace of the V2 plugin."""
        return self.adapted.plugin_namespace

    @property
    def num_outputs(self) -> int:  # type: ignore[override]
        """How many outputs the V2 plugin has."""
        return self.adapted.num_outputs

    @property
    def format_combination_limit(self) -> int:  # type: ignore[override]
        """How many combinations are tried at most."""
        return self._dialect.format_combination_limit

    @property
    def preferred_memory(self) -> str:  # type: ignore[override]
        """Where the V2 plugin wants its addresses."""
        return self.adapted.preferred_memory

    # build

    def get_output_data_types(self, input_types: Sequence[DataType]) -> Sequence[DataType]:
        """The type of each output."""
        return self._dialect.get_output_data_types(input_types)

    def get_output_shapes(
        self,
        inputs: Sequence[DimsExprs],
        shape_inputs: Sequence[DimsExprs],
        exprBuilder: IExprBuilder,  # noqa: N803
    ) -> Sequence[DimsExprs]:
        """The shape of each output."""
        if shape_inputs:
            raise PluginError(
                "a V2 plugin has no shape inputs", where=self.plugin_name, fix="pass the tensors as inputs"
            )
        return self._dialect.get_output_shapes(inputs, exprBuilder)

    def supports_format_combination(self, pos: int, in_out: BuildDescs, num_inputs: int) -> bool:
        """Whether a proposal is accepted."""
        return self._dialect.supports_format_combination(pos, in_out, num_inputs)

    def configure_plugin(self, in_: BuildDescs, out: BuildDescs) -> None:
        """Tell a combination of formats."""
        self._dialect.configure_plugin(in_, out)

    def get_workspace_size(self, in_: BuildDescs, out: BuildDescs) -> int:
        """Bytes of scratch memory for every shape up to max."""
        if self._dialect.asks_workspace_initialized:
            self.ensure_initialized()
        return self._dialect.get_workspace_size(in_, out)

    # runtime

    def on_shape_change(self, in_: RunDescs, out: RunDescs) -> None:
        """Tell the shapes of the runs to come."""
        self.ensure_initialized()
        self._dialect.on_shape_change(in_, out)

    def set_tactic(self, tactic: int) -> None:
        """Nothing: V2 plugins have no tactics."""

    def enqueue(
        self,
        input_desc: RunDescs,
        output_desc: RunDescs,
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> Any:
        """Run."""
        return self._dialect.enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)

    def get_fields_to_serialize(self) -> PluginFieldCollection:
        """One field with the bytes of ``serialize``."""
        data = np.frombuffer(serialize_plugin(self.adapted), np.int8)
        return PluginFieldCollection([PluginField(SERIALIZED_FIELD, data, PluginFieldType.UNKNOWN)])

    # life

    def clone(self) -> AdaptedPlugin:
        """An adapter over ``clone()`` of the V2 plugin."""
        twin: IPluginV2 | None = self.adapted.clone()
        if twin is None:
            raise PluginError("clone returned None", where=f"V2 plugin {type(self.adapted).__name__}")
        return AdaptedPlugin(twin, _choose_dialect(twin), is_initialized=self._is_initialized)

    def attach_to_context(self, resource_context: IPluginResourceContext) -> AdaptedPlugin:
        """A clone that has been told of the context, its allocator included."""
        twin = self.clone()
        if isinstance(twin.adapted, IPluginV2Ext):
            twin.adapted.attach_to_context(None, None, resource_context.gpu_allocator)
            twin._is_attached = True
        return twin

    def ensure_initialized(self) -> None:
        """Initialise the V2 plugin unless it, or the object it was cloned from, is so already."""
        if self._is_initialized:
            return
        status = self.adapted.initialize()
        if not is_success(status):
            raise PluginError(f"initialize returned status {status!r}", where=f"V2 plugin {self.plugin_name}")
        self._is_initialized = self._must_terminate = True

    def destroy(self) -> None:
        """Detach, terminate and destroy, each that is due and each once; what fails first is raised at the end."""
        if self._is_destroyed:
            return
        self._is_destroyed = True
        steps = [self.adapted.destroy]
        if self._must_terminate:
            steps.insert(0, self.adapted.terminate)
        if self._is_attached and isinstance(self.adapted, IPluginV2Ext):
            steps.insert(0, self.adapted.detach_from_context)
        _run_all(steps)


def _run_all(steps: Sequence[Callable[[], Any]]) -> None:
    """Call every function, also after one has failed; the first failure is raised at the end."""
    first: Exception | None = None
    for step in steps:
        try:
            step()
        except Exception as error:  # noqa: BLE001 - raised below, when the others had their turn
            first = first or error
    if first is not None:
        raise first


def _says_size(plugin: IPluginV2) -> bool:
    return type(plugin).get_serialization_size is not IPluginV2.get_serialization_size


def serialize_plugin(plugin: IPluginV2) -> bytes:
    """The bytes that a plan stores for a V2 plugin, checked against the size that it says.

    A plugin that says it has none is not asked for them, and need not have ``serialize``.
    """
    if _says_size(plugin) and plugin.get_serialization_size() == 0:
        return b""
    data = plugin.serialize()
    if not isinstance(data, str | bytes | bytearray | memoryview):
        raise PluginError(
            "serialize gave no bytes",
            where=f"V2 plugin {type(plugin).__name__}",
            expected="bytes or str",
            got=type(data).__name__,
        )
    encoded = data.encode() if isinstance(data, str) else bytes(data)
    size = plugin.get_serialization_size() if _says_size(plugin) else len(encoded)
    if size not in (len(data), len(encoded)):
        raise PluginError(
            f"serialize gave {len(encoded)} bytes and get_serialization_size says {size}",
            where=f"V2 plugin {type(plugin).__name__}",
            fix="leave get_serialization_size out, or return len(self.serialize())",
        )
    return encoded
