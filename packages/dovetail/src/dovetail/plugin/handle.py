"""The engine's grip on one plugin object: cached capabilities, checked results, and errors that name the plugin.

Engine bookkeeping lives here and never in the plugin's ``__dict__``, because plugins clone themselves by copying it.
A handle that owns its object destroys it exactly once.
"""

from __future__ import annotations

import ctypes
import operator
import os
import traceback
import weakref
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np

from dovetail.errors import DovetailError, PluginError
from dovetail.expr import MAX_DIM, DimsExprs, Expr, IDimensionExpr, IExprBuilder
from dovetail.loggers import ILogger, Logger, Severity
from dovetail.plugin.adapters import class_name
from dovetail.plugin.fields import MAX_NAME_BYTES, PluginField, iterate_fields
from dovetail.plugin.interfaces import (
    APILanguage,
    IPluginResourceContext,
    IPluginV3,
    IPluginV3OneBuild,
    IPluginV3OneBuildV2,
    IPluginV3OneCore,
    IPluginV3OneRuntime,
    PluginCapabilityType,
)
from dovetail.plugin.kernels import KernelLaunch
from dovetail.plugin.required import broken_rule
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorRTPhase

__all__ = ["MAX_OUTPUTS", "PluginHandle", "device_required", "is_success", "locate_error"]

MAX_OUTPUTS: Final = 1 << 16
"""A number beyond it is a mistake, and would take all memory before anybody is told."""

T = TypeVar("T")

_BUILD_METHODS: Final = (
    "get_output_data_types",
    "get_output_shapes",
    "configure_plugin",
    "supports_format_combination",
)
_RUNTIME_METHODS: Final = ("on_shape_change", "set_tactic", "enqueue", "attach_to_context", "get_fields_to_serialize")
_MAX_TACTIC_NAME: Final = 200
_PACKAGE: Final = f"{Path(__file__).parents[1]}{os.sep}"
"""Where Dovetail's own code lies."""
ADAPTER_MARK: Final = "__dovetail_adapter__"
_LOGGER: Final = Logger()
_NEW_OBJECT_RULES: Final = {"clone": "R24", "attach_to_context": "R29"}
"""Callback -> the rule that it returns a new object."""
_OWNERS: Final[weakref.WeakValueDictionary[int, PluginHandle]] = weakref.WeakValueDictionary()
"""The handle that destroys a plugin object, by identity of the object, which the handle keeps alive."""
_BASES: Final = (IPluginV3, IPluginV3OneCore, IPluginV3OneBuild, IPluginV3OneBuildV2, IPluginV3OneRuntime)


def locate_error(error: BaseException) -> str:
    """File and line where an exception was raised, for messages: the last line of the callback's author.

    What is raised by Dovetail or by a library inside a callback is caused by the line that called them. A module that
    only stands between the two, an adapter, says so by a global ``__dovetail_adapter__``.
    """
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return "unknown place"
    hosts = [ADAPTER_MARK in frame.f_globals for frame, _ in traceback.walk_tb(error.__traceback__)]
    theirs = [
        frame
        for frame, is_adapter in zip(frames, hosts, strict=True)
        if not is_adapter and not frame.filename.startswith(_PACKAGE)
    ]
    home = str(Path(theirs[0].filename).parent) if theirs else ""
    near = [frame for frame in theirs if str(Path(frame.filename).parent) == home]
    last = (near or theirs or frames)[-1]
    return f"{last.filename}:{last.lineno}"


def device_required(where: str) -> PluginError:
    """Return the error for a plugin with CUDA code that would run on the host."""
    return PluginError(
        "the plugin library contains CUDA code, and the plugin would run on the host, whose memory it cannot use",
        where=where,
        expected="a CUDA device",
        got="the host",
        fix="use a machine with a CUDA device and the provider cuda, build for such a machine with --target, or "
        "compile the library for the CPU with Dovetail's include/no_cuda",
    )


def is_success(returned: object) -> bool:
    """Whether what a callback returned stands for success.

    0 and None do. Other numbers, of any kind, are failures; so are truth values, of which authors mean opposite things.
    A tuple is judged by its first element, as CUDA's Python functions return one, an enumeration and a number of ctypes
    by its value, and an array by its only element. What is no number is no status, and says nothing.

    >>> [is_success(value) for value in (None, 0, "done", 1, -1, 0.5, True, False, (0,), (2, 0))]
    [True, True, True, False, False, False, False, False, True, False]
    """
    if isinstance(returned, tuple) and returned:
        returned = returned[0]
    if isinstance(returned, Enum | ctypes._SimpleCData):
        returned = returned.value
    if isinstance(returned, np.ndarray) and returned.size == 1:
        returned = returned.item()
    if isinstance(returned, bool | np.bool_):
        return False
    return not isinstance(returned, int | float | np.number) or returned == 0


class PluginHandle:
    """One plugin object with its three capabilities resolved once.

    Args:
        plugin: The object; a build-phase object needs core, build and runtime, a runtime-phase one core and runtime.
        phase: Which of the two it is.
        owned: Whether this handle destroys the object.

    Raises:
        PluginError: The object lacks a capability or a required method, or another handle owns it already.
    """

    __slots__ = ("__weakref__", "_destroyed", "build", "core", "owned", "phase", "plugin", "runtime")

    def __init__(self, plugin: Any, *, phase: TensorRTPhase, owned: bool) -> None:
        self.plugin: Any = plugin
        self.phase = phase
        self.owned = owned
        self._destroyed = False
        if not callable(getattr(plugin, "get_capability_interface", None)):
            raise PluginError(
                "the object is not an IPluginV3",
                got=type(plugin).__name__,
                fix="derive from dovetail.IPluginV3 and implement get_capability_interface and clone",
            )
        self.core = self._capability(PluginCapabilityType.CORE)
        self.build: Any = self._capability(PluginCapabilityType.BUILD) if phase is TensorRTPhase.BUILD else None
        self.runtime: Any = self._capability(PluginCapabilityType.RUNTIME)
        self._check_members()
        if owned:
            _claim(self, "create_plugin", "R01")

    # identity

    @property
    def name(self) -> str:
        """The plugin's name."""
        return self._identity("plugin_name")

    @property
    def version(self) -> str:
        """The plugin's version."""
        return self._identity("plugin_version")

    @property
    def namespace(self) -> str:
        """The plugin's namespace."""
        return self._identity("plugin_namespace")

    @property
    def where(self) -> str:
        """How messages name this plugin."""
        cls = class_name(self.plugin)
        try:
            return f"plugin '{self.core.plugin_name}' version '{self.core.plugin_version}' ({cls})"
        except Exception:  # noqa: BLE001 - this is for messages, also about a plugin whose name cannot be read
            return f"plugin {cls}"

    def _identity(self, attribute: str) -> str:
        value = self._call(attribute, lambda: getattr(self.core, attribute))
        if not isinstance(value, str) or len(value.encode()) > MAX_NAME_BYTES:
            raise PluginError(
                f"{attribute} is not a usable string",
                where=self.where,
                expected=f"str of at most {MAX_NAME_BYTES} bytes",
                got=repr(value)[:60],
            )
        return value

    # what the network asks

    @property
    def num_outputs(self) -> int:
        """How many outputs the plugin has; at least one."""
        given = self._call("num_outputs", lambda: self.build.num_outputs)
        count = _integer(given)
        if count is None or not 0 < count <= MAX_OUTPUTS:
            raise PluginError(
                "num_outputs must be a positive integer",
                where=self.where,
                expected=f"1 to {MAX_OUTPUTS}",
                got=repr(given),
            )
        return count

    @property
    def takes_ranks(self) -> bool:
        """Whether the plugin wants the ranks of its inputs when it is asked for types."""
        return bool(self._call("takes_ranks", lambda: getattr(self.build, "takes_ranks", False)))

    def get_output_data_types(
        self, input_types: Sequence[DataType], ranks: Sequence[int | None] = ()
    ) -> list[DataType]:
        """The type of each output, checked for count; ranks, None where not known, go to plugins that want them."""
        given = (list(input_types), list(ranks)) if self.takes_ranks else (list(input_types),)
        types = self._call("get_output_data_types", lambda: self.build.get_output_data_types(*given))
        self._check_count("get_output_data_types", types)
        return self._call("get_output_data_types", lambda: [DataType(t) for t in types])

    def get_output_shapes(
        self, inputs: Sequence[Sequence[Expr]], shape_inputs: Sequence[Sequence[Expr]]
    ) -> list[list[Expr]]:
        """The shape of each output as expressions, checked for count and kind."""
        ins, shapes = [DimsExprs(dims) for dims in inputs], [DimsExprs(dims) for dims in shape_inputs]
        result = self._call("get_output_shapes", lambda: self.build.get_output_shapes(ins, shapes, IExprBuilder()))
        self._check_count("get_output_shapes", result)
        return [self._checked_dims(index, dims) for index, dims in enumerate(result)]

    def _checked_dims(self, index: int, dims: Any) -> list[Expr]:
        exprs: list[Expr] = self._call("get_output_shapes", lambda: list(dims))
        for axis, expr in enumerate(exprs):
            if not isinstance(expr, IDimensionExpr):
                raise PluginError(
                    f"get_output_shapes: output {index}, dimension {axis} is not a dimension expression",
                    where=self.where,
                    got=repr(expr)[:60],
                    fix="use inputs[i][j] or exprBuilder.constant(n)",
                )
            if expr.is_constant() and not 0 <= expr.get_constant_value() < MAX_DIM:
                raise PluginError(
                    f"get_output_shapes: output {index}, dimension {axis} is out of range",
                    where=self.where,
                    expected=f"a size from 0 to {MAX_DIM - 1}",
                    got=expr.get_constant_value(),
                    fix="return the size of the dimension in get_output_shapes",
                )
        return exprs

    def _check_count(self, method: str, result: Any) -> None:
        count = len(result) if hasattr(result, "__len__") else None
        if count != self.num_outputs:
            raise PluginError(
                f"{method} returned {'nothing usable' if count is None else f'{count} entries'}",
                where=self.where,
                expected=f"a list of {self.num_outputs}, one for each output",
            )

    # what the builder asks

    def supports(self, pos: int, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int) -> tuple[bool, str | None]:
        """Whether a proposal is accepted; an exception counts as refused, and its text comes back too."""
        try:
            return bool(self.build.supports_format_combination(pos, in_out, num_inputs)), None
        except Exception as error:  # noqa: BLE001 - the contract: an exception is a refusal
            return False, f"raised {type(error).__name__}: {error} ({locate_error(error)})"

    def list_combinations(
        self, in_out: Sequence[DynamicPluginTensorDesc], num_inputs: int
    ) -> list[list[PluginTensorDesc]] | None:
        """All combinations of types and formats, where the plugin lists them; None where it is to be asked for each."""
        method = "get_supported_format_combinations"
        ask = getattr(self.build, method, None)
        listed = None if ask is None else self._call(method, lambda: ask(list(in_out), num_inputs))
        if listed is None:
            return None
        flat, count = self._call(method, lambda: list(listed)), len(in_out)
        if len(flat) % count or not all(isinstance(desc, PluginTensorDesc) for desc in flat):
            raise PluginError(
                f"{method} must give a descriptor for each input and output of each combination",
                where=self.where,
                expected=f"a multiple of {count} descriptors",
                got=len(flat),
            )
        return [flat[start : start + count] for start in range(0, len(flat), count)]

    def configure(self, inputs: Sequence[DynamicPluginTensorDesc], outputs: Sequence[DynamicPluginTensorDesc]) -> None:
        """Tell the plugin one combination of formats."""
        self._call_status("configure_plugin", lambda: self.build.configure_plugin(list(inputs), list(outputs)))

    def get_valid_tactics(self) -> list[int]:
        """The tactics for the combination that was configured last; checked to be positive and unique."""
        given = self._call("get_valid_tactics", lambda: list(self.build.get_valid_tactics()))
        tactics = [number for number in map(_integer, given) if number is not None and number > 0]
        if len(set(tactics)) != len(given):
            raise PluginError(
                "get_valid_tactics must give unique positive integers", where=self.where, got=repr(given)[:80]
            )
        return tactics

    def get_workspace_size(
        self, inputs: Sequence[DynamicPluginTensorDesc], outputs: Sequence[DynamicPluginTensorDesc]
    ) -> int:
        """Bytes of scratch memory; never negative."""
        given = self._call("get_workspace_size", lambda: self.build.get_workspace_size(list(inputs), list(outputs)))
        size = _integer(given)
        if size is None or size < 0:
            raise PluginError("get_workspace_size must give a number of bytes", where=self.where, got=repr(given))
        return size

    @property
    def offers_kernel(self) -> bool:
        """Whether the plugin is a kernel that a plan stores."""
        return self.build is not None and _overrides(self.build, "get_kernel_launch")

    def get_kernel_launch(
        self, inputs: Sequence[DynamicPluginTensorDesc], outputs: Sequence[DynamicPluginTensorDesc]
    ) -> KernelLaunch:
        """The kernel of a plugin that is one, for a combination and the tactic that is set."""
        method = "get_kernel_launch"
        launch = self._call(method, lambda: self.build.get_kernel_launch(list(inputs), list(outputs)))
        if not isinstance(launch, KernelLaunch):
            raise PluginError(f"{method} gave no KernelLaunch", where=self.where, got=type(launch).__name__)
        return launch

    def get_aliased_input(self, output_index: int) -> int:
        """Return the input that an output shares memory with, or -1."""
        method = getattr(self.build, "get_aliased_input", None)
        if method is None:
            return -1
        returned = self._call("get_aliased_input", lambda: method(output_index))
        source = _integer(returned)
        if source is None:
            raise PluginError(
                f"get_aliased_input({output_index}) must return an integer",
                where=self.where,
                expected="-1, or the index of an input",
                got=repr(returned)[:60],
            )
        return source

    @property
    def timing_cache_id(self) -> str | None:
        """The suffix of the timing cache key; None means the plugin did not opt in."""
        return self._text("timing_cache_id")

    @property
    def metadata_string(self) -> str | None:
        """Free text for the inspector."""
        return self._text("metadata_string")

    def name_tactic(self, tactic: int) -> str:
        """What the plugin calls a tactic; empty where it has no name for it."""
        names = self._call("tactic_names", lambda: getattr(self.build, "tactic_names", None))
        name = names.get(tactic) if isinstance(names, Mapping) else None
        return name[:_MAX_TACTIC_NAME].replace("\0", "?") if isinstance(name, str) else ""

    @property
    def preferred_memory(self) -> str:
        """Where the plugin wants to run: empty for the host, or see ``IPluginV3OneBuild.preferred_memory``."""
        return self._text("preferred_memory") or ""

    @property
    def requires_device(self) -> bool:
        """Whether the plugin is in a C++ library with CUDA code, whose kernels cannot use addresses of the host."""
        is_cpp = getattr(self.plugin, "api_language", None) is APILanguage.CPP
        return is_cpp and bool(getattr(self.plugin, "requires_device", False))

    def require_host(self, layer: str) -> None:
        """Raise where the plugin is to run on the host and cannot.

        Raises:
            PluginError: The library of the plugin contains CUDA code.
        """
        if self.requires_device:
            raise device_required(f"layer '{layer}', {self.where}")

    @property
    def can_capture(self) -> bool:
        """Whether what it puts on a stream may be replayed."""
        return bool(self._call("can_capture", lambda: getattr(self.runtime, "can_capture", True)))

    def _text(self, attribute: str) -> str | None:
        value: object = self._call(attribute, lambda: getattr(self.build, attribute, None))
        if value is not None and not isinstance(value, str):
            raise PluginError(f"{attribute} is no text", where=self.where, expected="str or None", got=repr(value)[:60])
        return value

    @property
    def format_combination_limit(self) -> int:
        """How many combinations the plugin wants tried at most."""
        default = IPluginV3OneBuild.DEFAULT_FORMAT_COMBINATION_LIMIT
        given = self._call("format_combination_limit", lambda: getattr(self.build, "format_combination_limit", default))
        limit = _integer(given)
        if limit is None or limit < 1:
            raise PluginError(
                "format_combination_limit must be a positive integer",
                where=self.where,
                expected=f"how many combinations to try at most, 1 or more; {default} unless it is set",
                got=repr(given)[:60],
            )
        return limit

    # life and runs

    def clone(self) -> PluginHandle:
        """A handle on ``plugin.clone()``, owned."""
        twin = self._call("clone", self.plugin.clone)
        return self._own(twin, "clone", self.phase)

    def attach_to_context(self, context: IPluginResourceContext) -> PluginHandle:
        """A handle on the clone that belongs to an execution context, owned."""
        twin = self._call("attach_to_context", lambda: self.runtime.attach_to_context(context))
        return self._own(twin, "attach_to_context", self.phase)

    def _own(self, twin: Any, method: str, phase: TensorRTPhase) -> PluginHandle:
        if twin is None:
            raise PluginError(f"{method} returned None", where=self.where, fix="return the new plugin object")
        if _adapted(twin) is _adapted(self.plugin):
            raise broken_rule(_NEW_OBJECT_RULES[method], f"{method} returned the object itself", where=self.where)
        handle = PluginHandle(twin, phase=phase, owned=False)
        _claim(handle, method, _NEW_OBJECT_RULES[method])
        return handle

    def set_tactic(self, tactic: int) -> None:
        """Tell the tactic to use."""
        self._call_status("set_tactic", lambda: self.runtime.set_tactic(tactic))

    def on_shape_change(self, inputs: Sequence[PluginTensorDesc], outputs: Sequence[PluginTensorDesc]) -> None:
        """Tell the concrete shapes of the runs to come."""
        # Not through _call: a host whose buffers change from run to run has this done in every one.
        try:
            status = self.runtime.on_shape_change(list(inputs), list(outputs))
        except Exception as error:
            raise self.describe_failure("on_shape_change", error) from error
        if status is not None:
            self.check_status("on_shape_change", status)

    def get_fields_to_serialize(self) -> list[PluginField]:
        """The fields a plan keeps."""
        fields = self._call("get_fields_to_serialize", self.runtime.get_fields_to_serialize)
        return list(iterate_fields(fields))

    def destroy(self, logger: ILogger | None = None) -> None:
        """Let go of an owned object; safe to call again.

        An exception in the plugin's ``destroy`` is logged and not raised: the objects after it are to be let go too.
        """
        if not self.owned or self._destroyed:
            return
        self._destroyed = True
        _OWNERS.pop(id(_adapted(self.plugin)), None)
        release = getattr(self.plugin, "destroy", None)
        if callable(release):
            try:
                self._call("destroy", release)
            except PluginError as error:
                (logger or _LOGGER).log(Severity.ERROR, str(error))

    def describe_failure(self, method: str, error: BaseException) -> PluginError:
        """Return the error to raise when a callback raised: a named error keeps its expectation and its fix."""
        where = f"{self.where}, {locate_error(error)}"
        fix = f"run `dovetail check` on the plugin to see the rule that {method} breaks"
        if not isinstance(error, DovetailError):
            return PluginError(f"{method} raised {type(error).__name__}: {error}", where=where, fix=fix)
        what = f"{error.where}: {error.what}" if error.where else error.what
        verb = f"raised {type(error).__name__}" if isinstance(error, PluginError) else "failed"
        return PluginError(
            f"{method} {verb}: {what}", where=where, expected=error.expected, got=error.got, fix=error.fix or fix
        )

    def _call(self, method: str, action: Callable[[], T]) -> T:
        try:
            return action()
        except Exception as error:
            raise self.describe_failure(method, error) from error

    def _call_status(self, method: str, action: Callable[[], Any]) -> None:
        self.check_status(method, self._call(method, action))

    def check_status(self, method: str, returned: Any) -> None:
        """Raise unless what a callback returned stands for success; see ``is_success``."""
        if not is_success(returned):
            raise PluginError(
                f"{method} returned status {returned!r}",
                where=self.where,
                expected="0 or None for success",
                fix=f"raise an exception that says why {method} failed, or return None",
            )

    def _capability(self, kind: PluginCapabilityType) -> Any:
        self_where = f"plugin {class_name(self.plugin)}"
        try:
            capability = self.plugin.get_capability_interface(kind)
        except Exception as error:
            raise PluginError(
                f"get_capability_interface({kind.name}) raised {type(error).__name__}: {error}",
                where=f"{self_where}, {locate_error(error)}",
            ) from error
        if capability is None:
            raise PluginError(
                f"get_capability_interface({kind.name}) returned None",
                where=self_where,
                expected=f"an object with the {kind.name.lower()} capability",
                fix="return self, or the object that implements this capability",
            )
        return capability

    def _check_members(self) -> None:
        missing = [] if _overrides(self.plugin, "clone") else ["clone"]
        if self.build is not None:
            missing += [name for name in _BUILD_METHODS if not _overrides(self.build, name)]
        missing += [name for name in _RUNTIME_METHODS if not _overrides(self.runtime, name)]
        if missing:
            raise PluginError(
                f"required method(s) not implemented: {', '.join(missing)}",
                where=self.where,
                fix="override them; set_tactic and attach_to_context are required too",
            )


def _claim(handle: PluginHandle, method: str, rule_id: str) -> None:
    """Make a handle the owner of its object, which no other may own: each owner destroys the object once."""
    key = id(_adapted(handle.plugin))
    if key in _OWNERS:
        raise broken_rule(rule_id, f"{method} returned an object that it returned before", where=handle.where)
    handle.owned = True
    _OWNERS[key] = handle


def _adapted(plugin: Any) -> Any:
    """Return the object behind an adapter, which several adapters may share; other objects are returned unchanged."""
    return getattr(plugin, "adapted", plugin)


def _integer(value: object) -> int | None:
    """The value as an int when it is an integer of any kind, NumPy's too; truth values are none."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    try:
        return operator.index(value)
    except (TypeError, ValueError):  # arrays have the method and can use it only when they hold one integer
        return None


def _overrides(capability: Any, name: str) -> bool:
    method = getattr(capability, name, None)
    function = getattr(method, "__func__", method)
    return callable(method) and all(function is not getattr(base, name, None) for base in _BASES)
