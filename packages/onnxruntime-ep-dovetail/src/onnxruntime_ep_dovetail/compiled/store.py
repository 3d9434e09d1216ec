"""Compiled models: partitions stored as ``EPContext`` nodes with their plan inside or beside, and loaded from them.

A node says in ``notes`` which plan is its own, so that another one that lies beside the model is not taken for it. What
a model says is hostile until checked: paths stay in its folder, plans carry their own digests, and types are compared
with those that ONNX Runtime has memory for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import numpy as np
import onnx_ir as ir

import dovetail
from dovetail import DovetailError, InternalError, ModelError, PlanCorruptError, PlanError, ResourceError, UsageError
from dovetail.network.importer.files import map_file, open_under
from dovetail.plan.container import PlanFile
from dovetail.plan.manifest import Manifest
from onnxruntime_ep_dovetail._version import __version__
from onnxruntime_ep_dovetail.abi import OrtRuntime
from onnxruntime_ep_dovetail.compiled.nodes import Bytes, make_node, read_bytes
from onnxruntime_ep_dovetail.graph.read import IsGiven, ReadGraph
from onnxruntime_ep_dovetail.session.options import EP_NAME, EpOptions
from onnxruntime_ep_dovetail.session.partition import Partition, wrap_engine

__all__ = ["ContextPlans", "is_our_context"]

_OP: Final = ("EPContext", "com.microsoft")
_CACHE: Final = "ep_cache_context"
_DIGEST: Final = "manifest_sha256"
_WEIGHTS: Final = "weights"
_MAX_EMBEDDED_BYTES: Final = 2**31 - 2**20
"""A model is one message of at most 2 GiB."""
_ODD_CHARS: Final = re.compile(r"[^A-Za-z0-9_.-]+")

_shared: WeakValueDictionary[tuple[str, str], dovetail.Engine] = WeakValueDictionary()
"""Engines of sessions that share, by the digest of their plan and the options of their providers."""


def is_our_context(node: ir.Node) -> bool:
    """Whether a node is a partition that this execution provider compiled."""
    source = node.attributes.get("source")
    return (node.op_type, node.domain) == _OP and source is not None and source.value == EP_NAME


class ContextPlans:
    """The plans of one session's partitions: how they get into a compiled model and out of it."""

    def __init__(self, runtime: OrtRuntime, options: EpOptions, is_given: IsGiven) -> None:
        self._runtime = runtime
        self._options = options
        self._is_given = is_given
        """Whether the session brings the value of a weight."""
        self.manifests: list[Manifest] = []
        """Of the partitions that this session stored."""

    # loading

    def load(self, read: ReadGraph, model_path: str) -> Partition | None:
        """The partition that a graph of one ``EPContext`` node stands for; None for any other graph."""
        node = read.model.graph.node(0)
        if not is_our_context(node):
            return None
        where = f"EPContext node '{node.name or ''}'"
        plan, digest = self._find_plan(node, read.addresses[node], model_path, where), _expected_digest(node, where)
        _check_given([name for name in _stored_weights(node) if self._is_given(name)], where)
        try:
            engine = self._load_engine(plan, digest)
        except DovetailError as error:
            raise _place_in(error, where) from error
        return _match_border(engine, node, read.model.graph, where)

    def _find_plan(self, node: ir.Node, address: int, model_path: str, where: str) -> Bytes:
        if _read_number(node, "main_context", 1) != 1:
            raise ModelError("the plan of the node lies in another node", where=where, expected="main_context = 1")
        content = read_bytes(self._runtime, address, _CACHE)
        if not content.size:
            raise ModelError(f"attribute {_CACHE} is missing or empty", where=where, fix="compile the model again")
        if _read_number(node, "embed_mode", 1) == 1:
            return content
        name = content.tobytes().decode(errors="replace")
        return _map_beside(self._options.context.folder_of(model_path), name, where)

    def _load_engine(self, plan: Bytes, digest: str) -> dovetail.Engine:
        with PlanFile.from_bytes(plan.data) as file:
            found = hashlib.sha256(file.manifest).hexdigest()
        if found != digest:
            fix = "put the plan that was saved with the model beside it, or compile the model again"
            raise PlanCorruptError("the plan is not that of the model", expected=digest, got=found, fix=fix)
        options = {name: dict(values) for name, values in self._options.provider_options.items()}
        key = (found, json.dumps(options, sort_keys=True))
        engine = _shared.get(key) if self._options.context.is_shared else None
        if engine is None:
            engine = dovetail.Runtime(provider_options=options).deserialize_cuda_engine(plan)
        if self._options.context.is_shared:
            _shared[key] = engine
        return engine

    # saving

    def save(self, partition: Partition, name: str, read: ReadGraph, model_path: str) -> int:
        """Store a partition and return the node that stands for it.

        Args:
            partition: What is stored.
            name: Of the fused node.
            read: Its inputs and outputs are those of the fused node, in order.
            model_path: The model that is compiled; empty when it came from memory.
        """
        context, engine, graph = self._options.context, partition.engine, read.model.graph
        _check_given([value.name or "" for value in read.given], f"partition '{name}'")
        _check_order(partition)
        self.manifests.append(engine.manifest)
        place = _embed if context.is_embedded else self._write_beside
        cache, digest = place(engine, name, model_path)
        attributes: dict[str, int | bytes] = {
            "embed_mode": int(context.is_embedded),
            _CACHE: cache,
            "notes": json.dumps({_DIGEST: digest, _WEIGHTS: _weights_in(graph)}).encode(),
        }
        return self._make_node(name, graph.inputs, graph.outputs, attributes)

    def save_idle(self, name: str, graph: ir.Graph) -> int:
        """The node that stands for a partition whose results nobody reads."""
        left_out = ir.Value(name="")  # the operator must have one output at least
        return self._make_node(name, graph.inputs, [left_out], {})

    def _make_node(
        self, name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value], plan: Mapping[str, int | bytes]
    ) -> int:
        attributes: dict[str, int | bytes] = {
            "main_context": 1,
            **plan,
            "ep_sdk_version": __version__.encode(),
            "partition_name": f"{self._options.context.node_name_prefix}{name}".encode(),
            "source": EP_NAME.encode(),
        }
        read, made = ([value.name or "" for value in values] for values in (inputs, outputs))
        # ONNX Runtime finds the node by the name of the fused one, so a prefix cannot be a part of it.
        return make_node(self._runtime, _OP, name, read, made, attributes)

    def _write_beside(self, engine: dovetail.Engine, name: str, model_path: str) -> tuple[bytes, str]:
        """Write a plan beside the compiled model: its name as the model says it, and its digest."""
        context = self._options.context
        target = context.output_path(model_path)
        if target is None:
            raise UsageError(
                "there is no place for the plan of a compiled model that stays in memory",
                where="option ep.context_file_path",
                fix="name the file of the compiled model there, or store plans inside with ep.context_embed_mode=1",
            )
        part = _ODD_CHARS.sub("_", context.node_name_prefix + name.replace(f"{EP_NAME}_", ""))
        path = target.with_name(f"{target.stem}_{part}.plan")
        engine.save(path)
        with PlanFile.open(path) as file:
            digest = hashlib.sha256(file.manifest).hexdigest()
        if context.is_shared:
            path = path.replace(path.with_name(f"{digest[:32]}.plan"))
        return path.name.encode(), digest


def _embed(engine: dovetail.Engine, name: str, _model_path: str) -> tuple[bytes, str]:
    plan = bytes(engine.serialize())
    if len(plan) > _MAX_EMBEDDED_BYTES:
        raise ResourceError(
            "the plan is too large to be inside a model",
            where=f"partition '{name}'",
            expected=f"at most {_MAX_EMBEDDED_BYTES} bytes",
            got=len(plan),
            fix="store plans beside the model: ep.context_embed_mode=0",
        )
    with PlanFile.from_bytes(plan) as file:
        return plan, hashlib.sha256(file.manifest).hexdigest()


def _map_beside(folder: Path | None, name: str, where: str) -> Bytes:
    """Map a plan that a model names; it lies below the folder of the model and is reached through no link."""
    place = f"{where}, plan '{name[:200]}'"
    if folder is None:
        raise UsageError(
            "the plan lies beside the model, and the model came from memory",
            where=place,
            fix="say where the model lies with the session option ep.context_file_path",
        )
    try:
        with open_under(folder, name) as file:
            return map_file(file, where=place)
    except ModelError as error:
        raise PlanError(error.what, where=place, expected=error.expected, got=error.got, fix=error.fix) from None


def _place_in(error: DovetailError, where: str) -> DovetailError:
    """The same error, which also says in which node."""
    place = f"{where}, {error.where}" if error.where else where
    return type(error)(error.what, where=place, expected=error.expected, got=error.got, fix=error.fix)


def _expected_digest(node: ir.Node, where: str) -> str:
    notes = node.attributes.get("notes")
    try:
        digest = json.loads(notes.as_string())[_DIGEST] if notes is not None else None
    except (ValueError, TypeError, KeyError, RecursionError):
        digest = None
    if not isinstance(digest, str):
        raise ModelError("attribute notes does not say which plan it is", where=where, fix="compile the model again")
    return digest


def _weights_in(graph: ir.Graph) -> list[str]:
    """The names of the weights of a graph and of its bodies."""
    return sorted({name for one in (graph, *graph.subgraphs()) for name in one.initializers})


def _stored_weights(node: ir.Node) -> list[str]:
    """The names of the weights that a node's plan holds, as far as it says so."""
    told = json.loads(node.attributes["notes"].as_string()).get(_WEIGHTS)
    return [name for name in told if isinstance(name, str)] if isinstance(told, list) else []


def _check_given(names: Sequence[str], where: str) -> None:
    """A plan holds the values of weights, and cannot hold or take those that a session brings."""
    if names:
        raise UsageError(
            "a compiled model has the weights that the model has, and the session's options bring another value",
            where=f"{where}, weight '{min(names)}'",
            fix="put the value into the model before it is compiled, and do not give it with add_initializer",
        )


def _read_number(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None or attribute.type != ir.AttributeType.INT else attribute.as_int()


def _match_border(engine: dovetail.Engine, node: ir.Node, graph: ir.Graph, where: str) -> Partition:
    """The engine as a partition whose inputs and outputs are those of the fused node, which ``graph`` has in order."""
    manifest, tensors = engine.manifest, dict[str | None, str]()
    for kind, values, records in (
        ("inputs", node.inputs, manifest.inputs),
        ("outputs", node.outputs, manifest.outputs),
    ):
        if len(values) != len(records):
            raise PlanError(f"the plan has other {kind}", where=where, expected=len(values), got=len(records))
        for value, record in zip(values, records, strict=True):
            _check_type(value, record.type or record.dtype, where)
            tensors[value.name if value is not None else ""] = record.name
    if len(graph.outputs) != len(manifest.outputs) or len(graph.inputs) != len(manifest.inputs):
        raise PlanError("a value at the border of the node is used twice or not at all", where=where)
    return wrap_engine(engine, _rename(graph.inputs, tensors), _rename(graph.outputs, tensors))


def _rename(values: Sequence[ir.Value], tensors: dict[str | None, str]) -> list[str]:
    return [tensors[value.name] for value in values]


def _check_type(value: ir.Value | None, made: str, where: str) -> None:
    """ONNX Runtime makes memory by the type that the model says; the plan writes by its own."""
    said = value.dtype if value is not None else None
    if said is None or np.dtype(said.numpy()).name != made:
        name = value.name if value is not None else ""
        raise PlanError("the plan has another type", where=f"{where}, value '{name}'", expected=said, got=made)


def _check_order(partition: Partition) -> None:
    manifest = partition.engine.manifest
    names = tuple(tensor.name for tensor in manifest.inputs), tuple(tensor.name for tensor in manifest.outputs)
    if names != (tuple(partition.inputs), tuple(partition.outputs)):
        raise InternalError("the plan of a partition has its inputs or outputs in another order")
