"""The objects of a plugin under check: how new ones are made, from which fields, and what they serialize."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from dovetail.errors import DovetailError
from dovetail.plugin.check.cases.discovery import Wish
from dovetail.plugin.check.cases.field_values import (
    copy_fields,
    declared_fields,
    find_misread,
    guess_fields,
    make_fields,
)
from dovetail.plugin.check.cases.widen import Widened
from dovetail.plugin.check.evidence import Evidence, Log
from dovetail.plugin.check.host.calls import CallbackRaised, call, read_or
from dovetail.plugin.check.host.device_memory import CheckedDevice
from dovetail.plugin.check.host.late_writes import KeptMemory
from dovetail.plugin.check.isolation.fresh import FreshProcesses
from dovetail.plugin.check.plugin_object import Specimen, examine
from dovetail.plugin.fields import (
    PluginFieldCollection,
    decode_fields,
    encode_fields,
    iterate_fields,
)
from dovetail.plugin.interfaces import PREFERS_DEVICE
from dovetail.plugin.native.call_memory import CallMemory, RetainedMemory
from dovetail.rules import Blocked, Broken, NotApplicable
from dovetail.types import TensorRTPhase

__all__ = ["PluginObjects"]

_LAYER_NAME: Final = "checked"


class PluginObjects:
    """A creator, or a function that makes plugins, with what the user said about its inputs.

    Args:
        creator: The creator; None when there is only a function.
        make_plugin: The function, where there is no creator.
        fields: Field values by name.
        wish: Input shapes and types, as far as the user gave them.
        seed: Decides the numbers in the inputs.
        strict: Whether the strict set is judged too.
        device: Where the plugin runs, if it asks for memory of a device.
    """

    def __init__(
        self,
        *,
        creator: Any = None,
        make_plugin: Callable[[], Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        wish: Wish,
        seed: int = 0,
        strict: bool = False,
        device: CheckedDevice | None = None,
    ) -> None:
        self.creator, self._make_plugin = creator, make_plugin
        self.wish, self.seed, self.strict = wish, seed, strict
        self.offered_device = device
        self.log = Log()
        self.known: dict[str, Any] = {}
        self.memory = KeptMemory()
        self.widened: Widened | None = None
        self.notes: list[str] = []
        self._made: list[Specimen] = []
        self._memory: list[PluginFieldCollection] = []
        self._field_memory: list[Any] = []
        self._argument_memory: dict[tuple[int, str, int], Any] = {}
        self._fresh: FreshProcesses | None = None
        self._guesses: list[PluginFieldCollection] = []
        self.given = frozenset(fields or ())
        self.other_fields: PluginFieldCollection | None = None
        self.fields = make_fields(declared_fields(creator) if creator is not None else {}, fields or {})

    # objects

    def new_call_memory(self) -> CallMemory:
        """Return memory for the arguments of a C++ callback; stale reads of it are judged by R39 and R64 alone."""
        return RetainedMemory(self._field_memory, self._argument_memory)

    def create(self, phase: TensorRTPhase, fields: PluginFieldCollection) -> Specimen:
        """Have the creator make an object.

        Raises:
            CallbackRaised: The creator, or the object when asked for its capabilities, raised.
            Broken: What came back is not a usable plugin.
        """
        if self._make_plugin is not None:
            plugin = call(_PluginFactory(self._make_plugin), "create_plugin")
        else:
            plugin = call(self.creator, "create_plugin", _LAYER_NAME, fields, phase)
        specimen = examine(plugin, phase, made_by="create_plugin")
        self.keep(specimen)
        return specimen

    def make(self) -> Specimen:
        """A new build-phase object, whose field memory stays as it is."""
        _ = self.origin  # decides which fields are given
        self._memory.append(copy_fields(self.fields))
        try:
            return self.create(TensorRTPhase.BUILD, self._memory[-1])
        except Broken as broken:
            raise Blocked(f"{broken}, see R01 and R02") from None

    @Evidence
    def device(self) -> CheckedDevice | None:
        """Where the plugin runs, as a build with that device decides; None for the host."""
        offered = self.offered_device
        if offered is None:
            return None
        wanted = read_or(self.make().build, "preferred_memory", "")
        if wanted in (PREFERS_DEVICE, offered.id):
            return offered
        self.notes.append(
            f"checked on the host: preferred_memory is {wanted!r}, so an engine runs it there, and copies from and to "
            f"'{offered.id}'; '{PREFERS_DEVICE}' has it run on the device"
        )
        return None

    @Evidence
    def origin(self) -> Specimen:
        """The first object; where declared fields turn out to be required, they are guessed here."""
        self._memory.append(copy_fields(self.fields))
        try:
            return self.create(TensorRTPhase.BUILD, self._memory[-1])
        except Broken as broken:
            raise Blocked(f"{broken}, see R01 and R02") from None
        except CallbackRaised as raised:
            return self._create_with_guesses(raised)

    def _create_with_guesses(self, raised: CallbackRaised) -> Specimen:
        declared = {} if self.creator is None else declared_fields(self.creator)
        missing = {name: kind for name, kind in declared.items() if self.fields.find(name) is None}
        if missing and raised.method == "create_plugin":
            guesses = [PluginFieldCollection([*self.fields, *guess]) for guess in guess_fields(missing)]
            self._guesses = [guess for guess in guesses if self._can_create(guess)]
        if not self._guesses:
            raise raised
        self.fields = self._guesses[0]
        return self.create(TensorRTPhase.BUILD, self.fields)

    def _can_create(self, fields: PluginFieldCollection) -> bool:
        try:
            self.create(TensorRTPhase.BUILD, fields)
        except (Broken, CallbackRaised):
            return False
        return True

    def keep(self, specimen: Specimen) -> None:
        """Remember an object so that it is destroyed in the end."""
        self._made.append(specimen)

    def destroy_all(self) -> None:
        """Let go of every object that is left, the newest first; what ``destroy`` raises is judged by its rule."""
        done: set[int] = {id(specimen.plugin) for specimen in self._made if specimen.is_destroyed}
        for specimen in reversed(self._made):
            if id(specimen.plugin) not in done:
                done.add(id(specimen.plugin))
                with suppress(CallbackRaised):
                    call(specimen.plugin, "destroy")

    # fields

    def require_creator(self) -> None:
        """Leave a rule about creators out when there is none."""
        if self.creator is None:
            raise NotApplicable("there is no creator")

    def serialize(self, specimen: Specimen) -> list[dict[str, Any]]:
        """The fields of an object in the form that a plan stores.

        Raises:
            Broken: What ``get_fields_to_serialize`` gave cannot be stored.
        """
        returned = call(specimen.runtime, "get_fields_to_serialize")
        if returned is not None and not isinstance(returned, list | tuple):
            raise Broken(f"get_fields_to_serialize returned {returned!r}, expected a PluginFieldCollection")
        try:
            fields = list(iterate_fields(returned))
            encoded = encode_fields(fields, where="get_fields_to_serialize")
            decode_fields(encoded)
        except (DovetailError, TypeError, ValueError, AttributeError) as error:
            raise Broken(f"get_fields_to_serialize gave what a plan cannot store: {_one_line(error)}") from None
        misread = next((text for text in map(find_misread, fields) if text), None)
        if misread:
            raise Broken(
                f"get_fields_to_serialize: {misread}",
                fix="declare the type that the array has, or convert it first: array.astype(np.int32)",
            )
        return encoded


class _PluginFactory:
    """A function that makes plugins, called as a creator is so that what it raises is reported the same way."""

    def __init__(self, make_plugin: Callable[[], Any]) -> None:
        self._make_plugin = make_plugin

    def create_plugin(self) -> Any:
        return self._make_plugin()


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
