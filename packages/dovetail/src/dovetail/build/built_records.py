"""From what providers built to what a plan stores: checked, so that no plan is written that nobody can read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from dovetail.build.built_checks import StepOwner, check_bytes, check_text, report_record
from dovetail.build.lower.blobs import BlobTable
from dovetail.errors import PlanCorruptError, ProviderError
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.manifest import CarriedRecord, KernelRecord, PackedRecord, PartitionRecord
from dovetail.plan.verify.manifest_rules import dtype_from_name
from dovetail.provider.interfaces import BuiltKernel, BuiltPartition, CarriedCandidates, PackedWeight

__all__ = ["BuiltStore"]

_MAX_BLOB_NAME: Final = 1000


@dataclass(kw_only=True)
class BuiltStore:
    """Stores what providers built among the blobs of a plan, and notes how packed weights are made again."""

    model: ir.Model
    blobs: BlobTable
    keep: frozenset[str] = frozenset()
    """Names of weights that may be replaced in a loaded engine."""
    packed: dict[str, PackedRecord] = field(default_factory=dict)
    """Blob -> what it was made of."""
    _weights: dict[str, ir.TensorProtocol] = field(default_factory=dict, init=False)

    def kernel_record(self, owner: StepOwner, built: BuiltKernel) -> KernelRecord | None:
        """What a kernel was built to; None where there is nothing to store."""
        payload = check_bytes(built.payload, "the payload", owner)
        record = KernelRecord(
            payload=self.blobs.add_payload(_blob_name("kernel", owner.name), payload) if payload else "",
            version=check_text(built.version, "the version", owner),
            tactic=check_text(built.tactic, "the tactic", owner),
            code=self._add_code(owner, built.code),
        )
        return None if record == KernelRecord() else record

    def partition_record(
        self,
        owner: StepOwner,
        built: BuiltPartition,
        *,
        inputs: list[str],
        outputs: list[str],
        layers: list[str],
        constants: Sequence[ir.Value] = (),
    ) -> PartitionRecord:
        """A compiled partition; its weights are stored once for all programs."""
        payload = check_bytes(built.payload, "the payload", owner)
        return PartitionRecord(
            payload=self.blobs.add_payload(_blob_name("partition", layers[0]), payload),
            version=check_text(built.version, "the version", owner),
            inputs=inputs,
            outputs=outputs,
            weights={name: self._add_weight(owner, name, weight) for name, weight in built.weights.items()},
            layers=layers,
            code=self._add_code(owner, built.code),
            held=_describe_held(constants, built.weights),
            report=report_record(owner, built.report),
            candidates=None if built.candidates is None else self._carried_record(owner, layers[0], built.candidates),
        )

    def _carried_record(self, owner: StepOwner, name: str, carried: CarriedCandidates) -> CarriedRecord:
        payload = check_bytes(carried.payload, "the payload of candidates", owner)
        return CarriedRecord(
            payload=self.blobs.add_payload(_blob_name("candidates", name), payload),
            code=self._add_code(owner, carried.code),
        )

    def add_packed(self, owner: StepOwner, name: str, weight: PackedWeight) -> str:
        """Store a packed weight, and what it is made of where that may be replaced."""
        sources = {source: self._find_tensor(owner, source) for source in weight.sources}
        is_kept = not self.keep.isdisjoint(sources)
        key = (owner.provider.id, tuple(sources), weight.recipe)
        blob = self.blobs.add_packed(_blob_name("packed", name), _check_array(weight.array, name, owner), key)
        if sources:
            self.packed[blob] = PackedRecord(
                provider=owner.provider.id,
                sources={n: self.blobs.add_constant(n, tensor) if is_kept else "" for n, tensor in sources.items()},
                recipe=check_text(weight.recipe, "a recipe", owner),
            )
        return blob

    def _add_weight(self, owner: StepOwner, name: str, weight: Any) -> str:
        """A weight of a partition; one that may be replaced is shared only with others of its name."""
        if isinstance(weight, PackedWeight):
            return self.add_packed(owner, name, weight)
        original = self.model.graph.initializers.get(name)
        if name in self.keep and original is not None and original.const_value is not None:
            return self.blobs.add_constant(name, original.const_value)
        return self.blobs.add_weight(name, _check_array(weight, name, owner))

    def _find_tensor(self, owner: StepOwner, name: str) -> ir.TensorProtocol:
        if name not in self._weights:
            self._weights = {value.name or "": tensor for value, tensor in _weights_of(self.model.graph)}
        if name not in self._weights:
            raise ProviderError(
                "a packed weight names a source that the network does not have", where=owner.where, got=ascii(name[:60])
            )
        return self._weights[name]

    def _add_code(self, owner: StepOwner, code: Mapping[str, bytes]) -> dict[str, str]:
        return {
            check_text(name, "a name of device code", owner): self.blobs.add_code(
                _blob_name("code", name), check_bytes(blob, f"device code '{name}'", owner)
            )
            for name, blob in code.items()
        }


def _weights_of(graph: ir.Graph) -> list[tuple[ir.Value, ir.TensorProtocol]]:
    """All constants of a graph and of the bodies in it: initializers, and nodes that are constants."""
    graphs = [graph, *graph.subgraphs()]
    values = [value for inner in graphs for value in inner.initializers.values()]
    values += [node.outputs[0] for node in graph.all_nodes() if node.op_type == "Constant"]
    pairs = [(value, ir.convenience.get_const_tensor(value)) for value in values]
    return [(value, tensor) for value, tensor in pairs if tensor is not None]


def _describe_held(constants: Sequence[ir.Value], stored: Mapping[str, Any]) -> dict[str, str]:
    """Type and shape of the weights that are in the payload, as they are not among those that it names."""
    found = {value.name or "": ir.convenience.get_const_tensor(value) for value in constants}
    held = {name: tensor for name, tensor in found.items() if tensor is not None and name not in stored}
    return {name[:MAX_NAME_CHARS].replace("\0", "?"): _describe_tensor(tensor) for name, tensor in held.items()}


def _describe_tensor(tensor: ir.TensorProtocol) -> str:
    dtype = "string" if tensor.dtype == ir.DataType.STRING else tensor.dtype.numpy().name
    return f"{dtype} {'x'.join(map(str, tensor.shape)) or 'scalar'}"


def _blob_name(kind: str, name: str) -> str:
    return f"{kind}:{name}"[:_MAX_BLOB_NAME]


def _check_array(array: Any, name: str, owner: StepOwner) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray):
        raise ProviderError(f"weight '{name[:200]}' is no array", where=owner.where, got=type(array).__name__)
    try:
        dtype_from_name(array.dtype.name)
    except PlanCorruptError:
        what = f"weight '{name[:200]}' has a type that a plan cannot store"
        raise ProviderError(what, where=owner.where, got=array.dtype.name) from None
    return array
