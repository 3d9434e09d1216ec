"""The two sides of a comparison: Dovetail with some settings, and references that know nothing of it.

A side runs a model on inputs by name and gives all outputs by name. Whatever a reference cannot do is said to be the
reference's: the model may be fine.
"""

from __future__ import annotations

import copy
import os
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import onnx
import onnx_ir as ir

from dovetail.api import compile as compile_model
from dovetail.build.config import BuilderConfig
from dovetail.errors import DovetailError, ModelError, UnsupportedOpError, UsageError
from dovetail.loggers import ILogger
from dovetail.network.importer.maps import model_to_proto
from dovetail.network.importer.maps import save_model as write_model
from dovetail.network.importer.problems import Problems
from dovetail.network.importer.read import read_model
from dovetail.passes import PASS_NAMES
from dovetail.plugin.registry import PluginRegistry
from dovetail.runtime.engine import Engine
from dovetail.tools.engine_runs import EngineRunner

if TYPE_CHECKING:
    from dovetail.api import Bounds, Shape

__all__ = ["REFERENCES", "DovetailSide", "RunFeeds", "Side", "Source", "make_reference", "read_source", "save_model"]

Source = str | os.PathLike[str] | bytes | onnx.ModelProto | ir.Model
"""What a model can be read from."""

RunFeeds = Callable[[Mapping[str, Any]], dict[str, Any]]
"""Inputs by name in, outputs by name out."""

REFERENCES: Final = ("onnxruntime", "reference", "cpu")
"""What a result can be held against."""
_INLINE_BYTES: Final = 1024
_IR_VERSION: Final = 10
_NEW_FORMAT: Final = "Unsupported model IR version"
"""What ONNX Runtime says of a model whose format is newer than itself."""


class Side(ABC):
    """Something that runs a model."""

    name: str

    @abstractmethod
    def open(self, model: Source) -> AbstractContextManager[RunFeeds]:
        """What runs a model, for as long as a block lasts: inputs by name in, all outputs by name out."""

    def run(self, model: Source, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """All outputs by name, of one run."""
        with self.open(model) as run:
            return run(feeds)


def read_source(source: Source) -> ir.Model:
    """A model as its file has it: no function expanded, no operator replaced; weights come from its folder alone.

    Raises:
        ModelError: It is no model, or is damaged.
    """
    problems = Problems()
    model = read_model(source, problems, lambda _: None)
    problems.raise_if_any()
    return model


def save_model(model: ir.Model, path: Path) -> None:
    """Write a model; one that is too large for one message has its weights in a file beside it."""
    size = sum(value.const_value.nbytes for value in model.graph.initializers.values() if value.const_value is not None)
    if size < 2**30:
        write_model(model, path)
    else:
        write_model(model, path, external_data=f"{path.stem}.data", size_threshold_bytes=_INLINE_BYTES)


# Dovetail


@dataclass(frozen=True, kw_only=True)
class DovetailSide(Side):
    """An engine, built and run once."""

    name: str = "dovetail"
    providers: Sequence[str] | None = None
    shapes: Mapping[str, Shape | Bounds] | None = None
    config: BuilderConfig | None = None
    registry: PluginRegistry | None = None
    override: Collection[str] = ()
    logger: ILogger | None = None
    is_part: bool = False
    """Whether models may be parts of the one that the settings were written for."""

    def build(self, model: Source) -> Engine:
        """The engine; the caller closes it."""
        config = copy.copy(self.config or BuilderConfig())
        config.is_part = config.is_part or self.is_part
        return compile_model(
            model,
            providers=self.providers,
            shapes=self.shapes,
            config=config,
            registry=self.registry,
            override=self.override,
            logger=self.logger,
        )

    @contextmanager
    def open(self, model: Source) -> Iterator[RunFeeds]:
        """Build, and let go at the end."""
        with self.build(model) as engine:
            yield EngineRunner(engine).run


# references


def make_reference(name: str, like: DovetailSide) -> Side:
    """The reference of that name.

    Args:
        name: One of ``REFERENCES``.
        like: The candidate; its plugins and shapes serve Dovetail's own kernels too.

    Raises:
        UsageError: There is no such reference.
    """
    if name == "onnxruntime":
        return OnnxRuntimeSide()
    if name == "reference":
        return EvaluatorSide()
    if name == "cpu":
        config = BuilderConfig()
        config.passes_off = PASS_NAMES
        return replace(like, name="cpu", providers=("cpu",), config=config)
    raise UsageError(f"there is no reference '{name}'", where="against", expected=f"one of {', '.join(REFERENCES)}")


class OnnxRuntimeSide(Side):
    """A session of ONNX Runtime over the model itself, with nothing of Dovetail in between."""

    name = "onnxruntime"

    @contextmanager
    def open(self, model: Source) -> Iterator[RunFeeds]:
        """Open a session."""
        with ExitStack() as stack:
            yield partial(_run_session, self._open_session(model, stack))

    def _open_session(self, model: Source, stack: ExitStack) -> Any:
        from dovetail.providers.onnxruntime.sessions import Level, SessionSettings, Use, create_session

        opened = _as_file(model, stack)
        try:
            return create_session(opened, Level.ALL, SessionSettings(), Use.WHOLE, where="the reference")
        except DovetailError as error:
            if error.__cause__ is None or isinstance(error.__cause__, ImportError):
                raise
            if _NEW_FORMAT in str(error.__cause__) and not isinstance(model, ir.Model):
                return self._open_session(read_source(model), stack)
            raise _refusal("ONNX Runtime", model, error.__cause__) from error


def _as_file(model: Source, stack: ExitStack) -> str | bytes:
    """What ONNX Runtime opens: a path or bytes; a model in memory is written to a file for as long as the stack is."""
    if isinstance(model, onnx.ModelProto):
        return bytes(model.SerializeToString())
    if isinstance(model, bytes):
        return model
    if not isinstance(model, ir.Model):
        return os.fspath(model)
    path = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dovetail-"))) / "model.onnx"
    save_model(_lower_ir_version(model), path)
    return os.fspath(path)


def _run_session(session: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    names = [output.name for output in session.get_outputs()]
    wanted = {tensor.name for tensor in session.get_inputs()}
    try:
        results = session.run(names, {name: value for name, value in feeds.items() if name in wanted})
    except Exception as error:
        raise _breakdown("ONNX Runtime", error) from error
    return dict(zip(names, results, strict=True))


def _lower_ir_version(model: ir.Model) -> ir.Model:
    """The model in a version of the format that every ONNX Runtime of today reads; what it computes is the same."""
    if model.ir_version <= _IR_VERSION:
        return model
    copy = model.clone()
    copy.ir_version = _IR_VERSION
    return copy


class EvaluatorSide(Side):
    """The evaluator of the onnx package: slow, plain, and written by those who wrote the specification."""

    name = "reference"

    @contextmanager
    def open(self, model: Source) -> Iterator[RunFeeds]:
        """Read the model, to be evaluated node by node."""
        from onnx.reference import ReferenceEvaluator

        held = model if isinstance(model, ir.Model) else read_source(model)
        try:
            evaluator = ReferenceEvaluator(model_to_proto(held))
        except Exception as error:
            raise _refusal("onnx.reference", held, error) from error
        yield partial(_evaluate, evaluator)


def _evaluate(evaluator: Any, feeds: Mapping[str, Any]) -> dict[str, Any]:
    names, wanted = list(evaluator.output_names), set(evaluator.input_names)
    try:
        results = evaluator.run(names, {name: value for name, value in feeds.items() if name in wanted})
    except Exception as error:
        raise _breakdown("onnx.reference", error) from error
    return dict(zip(names, results, strict=True))


def _refusal(who: str, model: Source, error: BaseException) -> DovetailError:
    """Why a reference does not take a model; operators that are nobody's but the author's are named."""
    custom = _custom_ops(model if isinstance(model, ir.Model) else read_source(model))
    what = f"{who} does not know {', '.join(custom)}" if custom else f"{who} does not take the model: {_head(error)}"
    return UnsupportedOpError(what, where="the reference", fix=_FIX)


_FIX: Final = 'compare with Dovetail\'s own kernels: against="cpu"'


def _breakdown(who: str, error: BaseException) -> DovetailError:
    return ModelError(f"{who} failed while it ran: {_head(error)}", where="the reference", fix=_FIX)


def _head(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0].strip()[:300]}" if lines else type(error).__name__


def _custom_ops(model: ir.Model) -> list[str]:
    functions = {(function.domain, function.name) for function in model.functions.values()}
    found = {
        f"{node.domain}::{node.op_type}" if node.domain else node.op_type: None
        for node in model.graph.all_nodes()
        if (node.domain, node.op_type) not in functions and not _has_schema(node)
    }
    return list(found)


def _has_schema(node: ir.Node) -> bool:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return onnx.defs.has(node.op_type, domain) or domain.startswith("com.microsoft")
