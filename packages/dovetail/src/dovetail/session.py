"""Dovetail in the shape of ONNX Runtime's ``InferenceSession``, to try it in a program that is written for that.

One line changes: ``from dovetail import InferenceSession``. What a session cannot do here is an error or a warning that
says so, never silence.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from dovetail.errors import DovetailError, InputError, UsageError
from dovetail.expr import Constant, Symbol
from dovetail.file_kinds import START_BYTES, looks_like_plan
from dovetail.files import open_regular
from dovetail.loggers import ILogger, Logger, Severity
from dovetail.plan.manifest import TensorRecord
from dovetail.provider.defaults import default_providers
from dovetail.runtime.engine import Engine
from dovetail.session_binding import SessionBinding

__all__ = ["InferenceSession", "SessionMetadata", "SessionTensor"]

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "CPUExecutionProvider": default_providers(),
    "CUDAExecutionProvider": ("cuda",),
    "OpenVINOExecutionProvider": ("openvino",),
}
"""What ONNX Runtime calls back ends that Dovetail has."""


@dataclass(frozen=True)
class SessionTensor:
    """An input or output, as ``get_inputs`` and ``get_outputs`` describe it."""

    name: str
    type: str
    """Such as ``tensor(float)``."""
    shape: list[int | str | None]
    """Sizes, names of dynamic dimensions, and None for those without a name."""


@dataclass(frozen=True, kw_only=True)
class SessionMetadata:
    """What a model says of itself; a plan keeps the names alone."""

    graph_name: str
    producer_name: str
    domain: str = ""
    description: str = ""
    graph_description: str = ""
    version: int = 0
    custom_metadata_map: Mapping[str, str] = field(default_factory=dict)


class InferenceSession:
    """An engine behind the methods of a session.

    Args:
        path_or_bytes: A model of ONNX, or a plan.
        sess_options: Options of a session, of which ``intra_op_num_threads`` is read.
        providers: Back ends in order of preference, by ONNX Runtime's names or Dovetail's, each alone or with its
            options; by default those of ``dovetail.compile``.
        provider_options: The options of each of the providers.
        logger: Where messages go.

    Raises:
        UsageError: A provider has no counterpart here.
    """

    def __init__(
        self,
        path_or_bytes: str | os.PathLike[str] | bytes,
        sess_options: Any = None,
        providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        logger: ILogger | None = None,
    ) -> None:
        self._logger = logger or Logger()
        self._source = path_or_bytes
        self._options = sess_options
        self._provider_options = _read_providers(providers, provider_options)
        self._told: set[str] = set()
        self._tell_idle(sess_options)
        self.engine: Final = self._open()
        """The engine, for everything that a session does not have."""

    def _open(self) -> Engine:
        options = {name: dict(found) for name, found in self._provider_options.items()}
        threads = getattr(self._options, "intra_op_num_threads", 0)
        if threads:
            options.setdefault("onnxruntime", {}).setdefault("threads", str(threads))
        if self._is_plan:
            return self._load(options)
        return self._build(options)

    @cached_property
    def _is_plan(self) -> bool:
        if isinstance(self._source, bytes):
            return looks_like_plan(self._source[:START_BYTES])
        path = Path(self._source)
        if not path.is_file():
            return False  # the importer says what is wrong
        with open_regular(path, follow=True) as stream:
            return looks_like_plan(stream.read(START_BYTES))

    def _load(self, options: dict[str, dict[str, str]]) -> Engine:
        from dovetail.runtime.loading import Runtime

        runtime = Runtime(self._logger, provider_options=options)
        if isinstance(self._source, bytes):
            return runtime.deserialize_cuda_engine(self._source)
        return runtime.load_engine(self._source)

    def _build(self, options: dict[str, dict[str, str]]) -> Engine:
        from dovetail.api import compile as compile_model
        from dovetail.build.config import BuilderConfig

        config = BuilderConfig()
        config.tells_unset_dims = False  # a session has no profile to set them with
        config.provider_options = options
        chosen = list(self._provider_options) or None
        return compile_model(self._source, providers=chosen, config=config, logger=self._logger)

    def _tell_idle(self, options: Any) -> None:
        """Warn of session options that were set and change nothing."""
        if options is None:
            return
        default = type(options)()
        for name in dir(options):
            value = getattr(options, name)
            if name.startswith("_") or callable(value) or name == "intra_op_num_threads":
                continue
            if value != getattr(default, name):
                self._tell(f"sess_options.{name} has no effect")

    def _tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._logger.log(Severity.WARNING, text)

    # what there is

    def get_inputs(self) -> list[SessionTensor]:
        """The inputs, in order."""
        return [_describe(tensor) for tensor in self.engine.manifest.inputs]

    def get_outputs(self) -> list[SessionTensor]:
        """The outputs, in order."""
        return [_describe(tensor) for tensor in self.engine.manifest.outputs]

    def get_overridable_initializers(self) -> list[SessionTensor]:
        """None: weights are replaced by a refit."""
        return []

    def get_providers(self) -> list[str]:
        """The providers that run steps, by Dovetail's names."""
        return [device.provider for device in self.engine.manifest.devices]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """The options that each provider was given."""
        return {name: dict(self._provider_options.get(name, {})) for name in self.get_providers()}

    def get_session_options(self) -> Any:
        """The options that the session was made with."""
        return self._options

    def get_modelmeta(self) -> SessionMetadata:
        """What the model says of itself, read from it when this is first asked."""
        return self._metadata

    @cached_property
    def _metadata(self) -> SessionMetadata:
        if self._is_plan:
            manifest = self.engine.manifest
            return SessionMetadata(graph_name=manifest.name, producer_name=manifest.producer)
        import onnx

        source = self._source
        model = (
            onnx.load_model_from_string(source)
            if isinstance(source, bytes)
            else onnx.load_model(source, load_external_data=False)
        )
        return SessionMetadata(
            graph_name=model.graph.name,
            producer_name=model.producer_name,
            domain=model.domain,
            description=model.doc_string,
            graph_description=model.graph.doc_string,
            version=model.model_version,
            custom_metadata_map={entry.key: entry.value for entry in model.metadata_props},
        )

    # running

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """The outputs of these names, in this order; all of them for None.

        Raises:
            InputError: An input is missing, unknown, or of another type or shape.
            UsageError: There is no output of such a name.
        """
        if run_options is not None:
            self._tell("run_options have no effect")
        if not isinstance(input_feed, Mapping):
            raise InputError("not a mapping from input to array", where="input_feed", got=type(input_feed).__name__)
        feed = {name: _unwrap(value) for name, value in input_feed.items()}
        return list(self.engine.run(feed, output_names=list(output_names) if output_names else None).values())

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], object],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Run in a thread, which then calls back with the results, the user's data, and an error or an empty text."""

        def work() -> None:
            try:
                results = self.run(output_names, input_feed, run_options)
            except DovetailError as error:
                callback([], user_data, str(error))
            else:
                callback(results, user_data, "")

        threading.Thread(target=work, name="dovetail-session").start()

    def io_binding(self) -> SessionBinding:
        """Arrays of the host bound to inputs and outputs."""
        return SessionBinding(self.engine)

    def run_with_iobinding(self, iobinding: SessionBinding, run_options: Any = None) -> None:
        """Run over what is bound."""
        if run_options is not None:
            self._tell("run_options have no effect")
        iobinding.run()

    def __repr__(self) -> str:
        return f"<InferenceSession over {self.engine!r}>"

    def _repr_html_(self) -> str:
        return self.engine._repr_html_()


def _read_providers(
    providers: Sequence[str | tuple[str, Mapping[str, Any]]] | None, options: Sequence[Mapping[str, Any]] | None
) -> dict[str, dict[str, str]]:
    """Dovetail's names of the providers, in order, with their options as texts."""
    named = list(providers or ())
    if options is not None and len(options) != len(named):
        raise UsageError("not one entry a provider", where="provider_options", expected=len(named), got=len(options))
    found: dict[str, dict[str, str]] = {}
    for index, entry in enumerate(named):
        name, own = (entry, {}) if isinstance(entry, str) else entry
        given = {**own, **(options[index] if options is not None else {})}
        for provider in _find_provider(name):
            found[provider] = {key: str(value) for key, value in given.items()}
    return found


def _find_provider(name: str) -> tuple[str, ...]:
    if name in _NAMES:
        return _NAMES[name]
    if name.endswith("ExecutionProvider"):
        raise UsageError(
            f"there is no counterpart of '{name}'",
            where="providers",
            expected=", ".join(_NAMES),
            fix="leave it out, or name a provider of Dovetail: 'dovetail provider list' shows them",
        )
    return (name,)


def _describe(tensor: TensorRecord) -> SessionTensor:
    from dovetail.element_types import onnx_type_from_dtype

    dims = [
        dim.value if isinstance(dim, Constant) else dim.name if isinstance(dim, Symbol) and dim.name[0] != "_" else None
        for dim in tensor.dims or ()
    ]
    return SessionTensor(tensor.name, tensor.type or onnx_type_from_dtype(tensor.dtype), dims)


def _unwrap(value: Any) -> Any:
    """The array of a value of ONNX Runtime; everything else is taken as it is."""
    return value.numpy() if type(value).__name__ == "OrtValue" else value
