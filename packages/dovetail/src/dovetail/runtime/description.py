"""What a plan says of itself: its inputs and outputs, their types, shapes and places, and the profiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dovetail.errors import UsageError
from dovetail.escapes import escape_line
from dovetail.expr import sizes_from_dims, sizes_or_unknown
from dovetail.plan.manifest import Manifest, TensorRecord
from dovetail.runtime.bind.objects import refuse_address
from dovetail.runtime.bind.profiles import known_dims
from dovetail.types import DataType, Dims, TensorFormat, TensorIOMode, TensorLocation, data_type_from_numpy

if TYPE_CHECKING:
    from dovetail.plan.summary import EngineReport, TuningTable

__all__ = ["PlanDescription"]


class PlanDescription:
    """The tensors and profiles of a manifest, by the names of the contract."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.input_names: list[str] = [tensor.name for tensor in manifest.inputs]
        """In the order that arrays are passed in."""
        self.output_names: list[str] = [tensor.name for tensor in manifest.outputs]
        """In the order that results come in."""

    @property
    def name(self) -> str:
        """The network's name."""
        return self.manifest.name

    @property
    def num_layers(self) -> int:
        """How many steps the first program has."""
        return len(self.manifest.programs[0].steps)

    @property
    def num_optimization_profiles(self) -> int:
        """How many profiles the plan was built for; an open engine has one."""
        return max(len(self.manifest.profiles), 1)

    @property
    def num_io_tensors(self) -> int:
        """How many inputs and outputs there are."""
        return len(self.tensor_names)

    @property
    def refittable(self) -> bool:
        """Whether weights can be replaced."""
        return self.manifest.refit is not None

    @cached_property
    def tensor_names(self) -> list[str]:
        """Inputs, then outputs."""
        return [*self.input_names, *self.output_names]

    def get_tensor_name(self, index: int) -> str:
        """The name of an input or output by number."""
        try:
            return self.tensor_names[index]
        except IndexError:
            raise UsageError("no such tensor", expected=f"0 to {self.num_io_tensors - 1}", got=index) from None

    def __getitem__(self, index: int) -> str:
        return self.get_tensor_name(index)

    def tensor(self, name: str) -> TensorRecord:
        """The record of an input or output."""
        for tensor in (*self.manifest.inputs, *self.manifest.outputs):
            if tensor.name == name:
                return tensor
        raise UsageError(f"there is no tensor '{name}'", expected=", ".join(self.tensor_names))

    def input_tensor(self, name: str) -> TensorRecord:
        """The record of an input."""
        return _find(name, self.manifest.inputs, "input")

    def output_tensor(self, name: str) -> TensorRecord:
        """The record of an output."""
        return _find(name, self.manifest.outputs, "output")

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        """Whether a tensor is an input or an output."""
        self.tensor(name)
        is_input = any(tensor.name == name for tensor in self.manifest.inputs)
        return TensorIOMode.INPUT if is_input else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        """The element type of a tensor."""
        refuse_address(self.tensor(name))
        return data_type_from_numpy(self.tensor(name).dtype)

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape, with -1 where it is not fixed."""
        return Dims(sizes_or_unknown(sizes_from_dims(known_dims(self.tensor(name)))))

    def get_tensor_format(self, name: str, profile_index: int = 0) -> TensorFormat:
        """The layout of a tensor."""
        return TensorFormat[self.tensor(name).format]

    def get_tensor_location(self, name: str) -> TensorLocation:
        """Where a tensor is expected: in memory of the host, or of the engine's device (``get_tensor_memory``)."""
        return TensorLocation[self.tensor(name).location]

    def get_tensor_memory(self, name: str) -> str:
        """The id of the provider in whose memory a tensor is bound; empty for the host's."""
        return self.tensor(name).memory

    def is_shape_inference_io(self, name: str) -> bool:
        """Whether shapes depend on the contents of the tensor."""
        return self.tensor(name).is_shape

    def get_aliased_input_tensor(self, name: str) -> str | None:
        """The input whose memory an output shares."""
        return self.output_tensor(name).alias

    @property
    def updated_inputs(self) -> frozenset[str]:
        """The inputs that a run writes over, because an output has their memory."""
        return frozenset(tensor.alias for tensor in self.manifest.outputs if tensor.alias is not None)

    def copy_updated(self, arrays: Sequence[Any]) -> list[Any]:
        """One array an input, with copies of those that a run would write over."""
        updated = self.updated_inputs
        return [
            np.array(array) if tensor.name in updated else array
            for tensor, array in zip(self.manifest.inputs, arrays, strict=True)
        ]

    def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]:
        """Min, opt and max of an input in a profile."""
        return [Dims(shape) for shape in self._profile_entry(name, profile_index, "shapes")]

    def get_tensor_profile_values(self, name: str, profile_index: int) -> list[list[int]]:
        """Min, opt and max contents of a shape input in a profile."""
        return [list(values) for values in self._profile_entry(name, profile_index, "values")]

    def _profile_entry(self, name: str, index: int, kind: str) -> Iterable[list[int]]:
        self.input_tensor(name)
        if not 0 <= index < len(self.manifest.profiles):
            raise UsageError("no such profile", expected=f"below {len(self.manifest.profiles)}", got=index)
        entries: dict[str, tuple[list[int], list[int], list[int]]] = getattr(self.manifest.profiles[index], kind)
        return entries.get(name, ())

    def create_engine_inspector(self) -> Any:
        """An inspector: one line or JSON, with the tuner's table."""
        from dovetail.plan.inspect import EngineInspector

        return EngineInspector(self.manifest)

    @property
    def tuning(self) -> TuningTable:
        """What the tuner tried for each layer when the plan was built, what it chose and why."""
        return self.report().tuning

    def report(self) -> EngineReport:
        """What the plan says of itself, to be looked at in a notebook or read as data (``to_dict``)."""
        from dovetail.plan.summary import EngineReport

        return EngineReport(self.manifest)

    def _repr_html_(self) -> str:
        from dovetail.plan.summary import show_engine

        return show_engine(self.manifest)

    def __repr__(self) -> str:
        from dovetail.plan.summary import tensor_text

        ports = ", ".join(map(tensor_text, self.manifest.inputs))
        results = ", ".join(map(tensor_text, self.manifest.outputs))
        return escape_line(f"<Engine '{self.name}' ({ports}) -> ({results}), {self.num_layers} steps>")

    # what contexts ask

    def static_input_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs that have only one."""
        inputs = [(tensor.name, tensor.fixed_shape) for tensor in self.manifest.inputs]
        return {name: shape for name, shape in inputs if shape is not None}

    @cached_property
    def has_objects(self) -> bool:
        """Whether any input or output is a sequence, an optional, a map or a tensor of strings."""
        return any(t.type for t in (*self.manifest.inputs, *self.manifest.outputs))

    @cached_property
    def has_formatted_io(self) -> bool:
        """Whether any input or output lies in memory otherwise than row by row."""
        return any(t.format != "LINEAR" for t in (*self.manifest.inputs, *self.manifest.outputs))

    def value_index(self, profile: int, name: str) -> int:
        """The value of an output in a program."""
        program = self.manifest.programs[profile]
        names = [tensor.name for tensor in self.manifest.outputs]
        return program.outputs[names.index(name)]


def _find(name: str, tensors: list[TensorRecord], kind: str) -> TensorRecord:
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    raise UsageError(f"there is no {kind} '{name}'", expected=", ".join(t.name for t in tensors) or f"no {kind}s")
