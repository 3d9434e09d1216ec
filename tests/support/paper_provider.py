"""A provider that compiles partitions on the host: small enough to break in one place at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import numpy_helper

import dovetail as dt
from dovetail.errors import PlanCorruptError, ProviderError
from dovetail.provider.interfaces import (
    API_VERSION,
    BindContext,
    BoundPartition,
    BuildContext,
    BuildReport,
    BuiltPartition,
    Device,
    KernelRegistry,
    LoadedPartition,
    NodeReport,
    Provider,
    RefitMode,
    StepKind,
    StoredPartition,
)
from dovetail.provider.loader import get_provider

__all__ = ["PaperBound", "PaperFactory", "PaperPartition", "PaperProvider"]

VERSION = "paper 1"


class PaperProvider(Provider):
    """Stores partitions as ONNX without weights and runs them with the kernels of ``cpu``."""

    name = "paper"
    step_kind = StepKind.PARTITION
    refit_mode = RefitMode.RECREATE
    partition: type[PaperPartition]

    def __init__(self, device: Device) -> None:
        self.device = device
        self.partition = PaperPartition

    @property
    def kernels(self) -> KernelRegistry:
        return get_provider("cpu").kernels

    def build_partition(self, model: ir.Model, context: BuildContext) -> BuiltPartition:
        proto = ir.to_proto(model)
        weights = {each.name: self.pack(each.name, numpy_helper.to_array(each)) for each in proto.graph.initializer}
        del proto.graph.initializer[:]
        nodes = [NodeReport(name=node.name or node.op_type, op=node.op_type) for node in proto.graph.node]
        return BuiltPartition(
            payload=b"PAPER" + proto.SerializeToString(),
            weights=weights,
            version=VERSION,
            report=BuildReport(nodes=nodes),
        )

    def pack(self, name: str, array: Any) -> Any:
        """A weight as the payload wants it."""
        return array

    def load_partition(self, stored: StoredPartition) -> PaperPartition:
        self.check_version(stored)
        return self.partition(self.read(stored), stored)

    def check_version(self, stored: StoredPartition) -> None:
        """Refuse what another version made."""
        if stored.version != VERSION:
            raise ProviderError("the payload is of another version", expected=VERSION, got=stored.version)

    def read(self, stored: StoredPartition) -> onnx.ModelProto:
        """The model, with its weights."""
        try:
            if bytes(stored.payload[:5]) != b"PAPER":
                raise ValueError("not a payload of this provider")
            model = onnx.load_from_string(bytes(stored.payload[5:]))
            onnx.checker.check_model(_complete(model, stored.weights))
        except Exception as error:
            raise PlanCorruptError("the payload cannot be read", where=f"step '{stored.name}'") from error
        return model


def _complete(model: onnx.ModelProto, weights: Mapping[str, Any]) -> onnx.ModelProto:
    for name, array in weights.items():
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
    return model


class PaperPartition(LoadedPartition):
    """A model and the engine that runs it."""

    def __init__(self, model: onnx.ModelProto, stored: StoredPartition) -> None:
        self.model = model
        self.outputs = list(stored.outputs)
        self.inputs = list(stored.inputs)
        self.engine = dt.compile(self.model, providers=["cpu"])

    def bind(self, context: BindContext) -> BoundPartition:
        return PaperBound(self)

    def compute(self, inputs: Sequence[Any]) -> list[Any]:
        """The results, in order."""
        results = self.engine(**dict(zip(self.inputs, inputs, strict=True)))
        return [results[name] for name in self.outputs] if isinstance(results, dict) else [results]


class PaperBound(BoundPartition):
    """One bound run."""

    def __init__(self, partition: PaperPartition) -> None:
        self.partition = partition

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        for index, result in enumerate(self.partition.compute(inputs)):
            if outputs[index] is None:
                outputs[index] = result
            else:
                np.copyto(outputs[index], result, casting="no")


class PaperFactory:
    """Makes them, whole or broken."""

    name = "paper"
    version = "1.0"
    api_version = API_VERSION

    def __init__(self, kind: type[PaperProvider] = PaperProvider) -> None:
        self.kind = kind

    def devices(self) -> Sequence[Device]:
        return [Device(name="paper", kind="cpu", fingerprint="paper")]

    def create(self, device: Device, options: Mapping[str, str]) -> PaperProvider:
        if options:
            raise ProviderError(f"unknown option(s) {', '.join(options)}", where="provider 'paper'")
        return self.kind(device)
