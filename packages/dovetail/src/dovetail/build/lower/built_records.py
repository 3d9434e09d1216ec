"""From what providers built to what a plan stores: checked, so that no plan is written that nobody can read."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import onnx_ir as ir

from dovetail.build.lower.blobs import BlobTable
from dovetail.errors import PlanCorruptError, ProviderError
from dovetail.plan.limits import MAX_NAME_CHARS
from dovetail.plan.manifest import KernelRecord, NodeReportRecord, PackedRecord, PartitionRecord, ReportRecord
from dovetail.plan.verify.manifest_rules import dtype_from_name
from dovetail.provider.interfaces import (
    BuildReport,
    BuiltKernel,
    BuiltPartition,
    NodeReport,
    PackedWeight,
    Provider,
)

__all__ = ["BuiltStore", "StepOwner"]

_MAX_BLOB_NAME: Final = 1000
_MAX_COUNT: Final = 2**63


@dataclass(frozen=True, kw_only=True)
class StepOwner:
    """Who built a step, for names of blobs and for errors."""

    provider: Provider
    name: str

    @property
    def where(self) -> str:
        """How errors name it."""
        return f"provider '{self.provider.id}', step '{self.name[:200]}'"


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
        payload = _check_bytes(built.payload, "the payload", owner)
        record = KernelRecord(
            payload=self.blobs.add_payload(_blob_name("kernel", owner.name), payload) if payload else "",
            version=_check_text(built.version, "the version", owner),
            tactic=_check_text(built.tactic, "the tactic", owner),
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
        payload = _check_bytes(built.payload, "the payload", owner)
        return PartitionRecord(
            payload=self.blobs.add_payload(_blob_name("partition", layers[0]), payload),
            version=_check_text(built.version, "the version", owner),
            inputs=inputs,
            outputs=outputs,
            weights={name: self._add_weight(owner, name, weight) for name, weight in built.weights.items()},
            layers=layers,
            code=self._add_code(owner, built.code),
            held=_describe_held(constants, built.weights),
            report=_report_record(owner, built.report),
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
                recipe=_check_text(weight.recipe, "a recipe", owner),
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
            _check_text(name, "a name of device code", owner): self.blobs.add_code(
                _blob_name("code", name), _check_bytes(blob, f"device code '{name}'", owner)
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


# reports


def _report_record(owner: StepOwner, report: BuildReport) -> ReportRecord | None:
    record = ReportRecord(
        nodes=[_node_record(owner, node) for node in report.nodes],
        refusals={
            _check_text(layer, "a layer of its report", owner): _check_text(reason, "a refusal", owner)
            for layer, reason in report.refusals.items()
        },
    )
    return None if record == ReportRecord() else record


def _node_record(owner: StepOwner, node: NodeReport) -> NodeReportRecord:
    name, op, made_by, tactic = (
        _check_text(text, "its report", owner) for text in (node.name, node.op, node.made_by, node.tactic)
    )
    return NodeReportRecord(
        name=name,
        op=op,
        layers=_check_texts(node.layers, owner),
        made_by=made_by,
        tactic=tactic,
        flops=_check_count(node.flops, owner),
        bytes=_check_count(node.bytes, owner),
        time_us=_check_time(node.time_us, owner),
    )


# checks


def _check_texts(texts: Sequence[str], owner: StepOwner) -> list[str]:
    return [_check_text(text, "a layer of its report", owner) for text in texts]


def _check_text(text: Any, what: str, owner: StepOwner) -> str:
    if not isinstance(text, str) or "\0" in text or len(text) > MAX_NAME_CHARS:
        raise ProviderError(
            f"{what} is no text that a plan can store",
            where=owner.where,
            expected=f"at most {MAX_NAME_CHARS} characters, none of them NUL",
            got=ascii(text)[:60],
        )
    return text


def _check_bytes(data: Any, what: str, owner: StepOwner) -> bytes:
    if not isinstance(data, bytes | bytearray | memoryview):
        raise ProviderError(f"{what} is no bytes", where=owner.where, got=type(data).__name__)
    return bytes(data)


def _check_array(array: Any, name: str, owner: StepOwner) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray):
        raise ProviderError(f"weight '{name[:200]}' is no array", where=owner.where, got=type(array).__name__)
    try:
        dtype_from_name(array.dtype.name)
    except PlanCorruptError:
        what = f"weight '{name[:200]}' has a type that a plan cannot store"
        raise ProviderError(what, where=owner.where, got=array.dtype.name) from None
    return array


def _check_count(count: Any, owner: StepOwner) -> int | None:
    if count is not None and not 0 <= int(count) < _MAX_COUNT:
        raise ProviderError("a count of its report is out of range", where=owner.where, got=count)
    return None if count is None else int(count)


def _check_time(time_us: Any, owner: StepOwner) -> float | None:
    if time_us is not None and not (math.isfinite(time_us) and time_us >= 0):
        raise ProviderError("a time of its report is out of range", where=owner.where, got=time_us)
    return None if time_us is None else float(time_us)
