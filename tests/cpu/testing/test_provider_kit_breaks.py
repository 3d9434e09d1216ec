"""Providers that break the contract in one place: the kit names the rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from dovetail.host_arrays import address_of, array_at
from dovetail.provider.interfaces import (
    BindContext,
    BoundPartition,
    Claim,
    Device,
    Event,
    KernelRegistry,
    MemoryInfo,
    NodeView,
    ProfileEvent,
    RewriteContext,
    StepKind,
    StoredKernel,
    StoredPartition,
    Stream,
)
from dovetail.testing import (
    HostDevice,
    HostDeviceArray,
    HostDeviceFactory,
    HostDeviceOptions,
    HostEvent,
    HostGraph,
    HostStream,
    check_provider,
)
from dovetail.testing.host_functions import HostDeviceFunction
from tests.support.paper_provider import PaperBound, PaperFactory, PaperPartition, PaperProvider

# the host device, told to misbehave


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"api_version": 99}, "P01"),
        ({"missing_claims": 1}, "P10"),
        ({"takes_all": True, "ops": ["Relu"]}, "P20"),
        ({"budget_bytes": 1000, "cost_bytes": 0}, "P15"),
        ({"cost_bytes": -1}, "P15"),
        ({"layout": "sideways"}, "P05"),
        ({"fail_allocation": 3}, "P50"),
        ({"raises_in": ["devices"]}, "P02"),
        ({"raises_in": ["create"]}, "P03"),
        ({"raises_in": ["get_capability"]}, "P10"),
        ({"raises_in": ["host_inputs"]}, "P14"),
        ({"raises_in": ["load_kernel"]}, "P23"),
        ({"raises_in": ["build_partition"], "compiles": True}, "P20"),
        ({"raises_in": ["load_partition"], "compiles": True}, "P20"),
        ({"raises_in": ["bind_partition"], "compiles": True}, "P30"),
        ({"raises_in": ["bind"]}, "P30"),
        ({"raises_in": ["allocate"]}, "P50"),
        ({"raises_in": ["array_at"]}, "P51"),
        ({"raises_in": ["copy"]}, "P52"),
        ({"raises_in": ["can_copy"]}, "P53"),
        ({"raises_in": ["import_array"]}, "P54"),
        ({"raises_in": ["pinned_allocator"]}, "P55"),
        ({"raises_in": ["create_stream"]}, "P60"),
        ({"raises_in": ["synchronize_stream"]}, "P61"),
        ({"raises_in": ["record"]}, "P62"),
        ({"raises_in": ["synchronize_event"]}, "P62"),
        ({"raises_in": ["wait"]}, "P63"),
        ({"raises_in": ["synchronize"]}, "P65"),
        ({"raises_in": ["close_stream"]}, "P60"),
        ({"raises_in": ["begin_capture"]}, "P70"),
        ({"raises_in": ["end_capture"]}, "P70"),
        ({"raises_in": ["replay"]}, "P71"),
        ({"raises_in": ["start_profiling"]}, "P80"),
        ({"raises_in": ["stop_profiling"]}, "P80"),
    ],
    ids=str,
)
def test_a_host_device_that_misbehaves(options: dict[str, Any], rule: str) -> None:
    report = check_provider(HostDeviceFactory(HostDeviceOptions(**options)), rules=[rule])
    assert report.failed_ids == {rule}, report.render()


# broken devices


class Factory(HostDeviceFactory):
    """Makes a broken device."""

    def __init__(self, kind: type[HostDevice], **options: Any) -> None:
        super().__init__(HostDeviceOptions(**options))
        self._kind = kind

    def create(self, device: Device, options: Mapping[str, str]) -> HostDevice:
        return self._kind(device, self._options.updated(options))


class NoDevice(HostDeviceFactory):
    def devices(self) -> Sequence[Device]:
        return []


class NoFingerprint(HostDeviceFactory):
    def devices(self) -> Sequence[Device]:
        return [Device(name="d", kind="gpu", fingerprint="")]


class OddKind(HostDeviceFactory):
    def devices(self) -> Sequence[Device]:
        return [Device(name="d", kind="abacus", fingerprint="f")]


class AnotherName(HostDevice):
    def __init__(self, device: Device, options: HostDeviceOptions) -> None:
        super().__init__(device, options)
        self.name = "somebody"


class TakesEveryOption(HostDeviceFactory):
    def create(self, device: Device, options: Mapping[str, str]) -> HostDevice:
        return HostDevice(device, self._options)


class RaisesForOptions(HostDeviceFactory):
    def create(self, device: Device, options: Mapping[str, str]) -> HostDevice:
        return HostDevice(device, self._options.updated({} if not options else {"layout": options["layout"]}))


class OddStepKind(HostDevice):
    def __init__(self, device: Device, options: HostDeviceOptions) -> None:
        super().__init__(device, options)
        self.step_kind = "graph"


class OddAlignment(HostDevice):
    def __init__(self, device: Device, options: HostDeviceOptions) -> None:
        super().__init__(device, options)
        self.memory = MemoryInfo(name=options.name, alignment_bytes=100)


class WrongRegistry(HostDevice):
    @property
    def kernels(self) -> KernelRegistry:
        registry = KernelRegistry("wrong")
        registry.register("Relu", since=6, types={"TT": ("float32",)})(lambda x: x)
        return registry


class RewritesOthers(HostDevice):
    def rewrite(self, model: ir.Model, context: RewriteContext) -> Sequence[str]:
        for node in model.graph:
            node.op_type = "Identity" if node.op_type == "Relu" else node.op_type
        return ["changed"]


class NoReasons(HostDevice):
    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        return [Claim(taken=node.op == "Relu") for node in nodes]


class ChangesItsMind(HostDevice):
    asked = 0

    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        type(self).asked += 1
        return [Claim(taken=self.asked % 2 == 0, reason="today not") for _ in nodes]


class MixedGroup(HostDevice):
    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        kinds = (StepKind.NODE, StepKind.PARTITION)
        return [Claim(taken=True, group="g", step_kind=kinds[i % 2]) for i, _ in enumerate(nodes)]


class TakesAnything(HostDevice):
    def get_capability(self, nodes: Sequence[NodeView]) -> Sequence[Claim]:
        return [Claim(taken=True) for _ in nodes]


class LooksUpBlindly(HostDevice):
    def load_kernel(self, stored: StoredKernel) -> HostDeviceFunction:
        if stored.domain:
            raise KeyError(stored.op)
        return super().load_kernel(stored)


class WrongNumbers(HostDevice):
    def load_kernel(self, stored: StoredKernel) -> HostDeviceFunction:
        function = super().load_kernel(stored)
        if stored.op == "Relu":
            function._function = lambda x: np.minimum(x, 0)
        return function


class WrongForIntegers(HostDevice):
    def load_kernel(self, stored: StoredKernel) -> HostDeviceFunction:
        function = super().load_kernel(stored)
        if stored.op == "Add" and stored.input_types[0] == "int8":
            function._function = lambda x, y: x
        return function


class Unaligned(HostDevice):
    def __init__(self, device: Device, options: HostDeviceOptions) -> None:
        super().__init__(device, options)
        allocate = self.allocator.allocate
        self.allocator.allocate = lambda *a: allocate(*a) + 8  # type: ignore[method-assign]


class AlwaysTheStart(HostDevice):
    def array_at(self, address: int, shape: Sequence[int], dtype: Any) -> HostDeviceArray:
        return super().array_at(address // 2**10 * 2**10 if len(shape) == 1 else address, shape, dtype)


class SkipsScalars(HostDevice):
    def copy(self, source: Any, target: Any, stream: Stream | None) -> None:
        if source.shape:
            super().copy(source, target, stream)


class CopiesEverywhere(HostDevice):
    def can_copy(self, source: MemoryInfo, target: MemoryInfo) -> bool:
        return True


class ImportsAnything(HostDevice):
    def import_array(self, value: Any) -> Any:
        return value


class ImportsNothing(HostDevice):
    def import_array(self, value: Any) -> Any:
        return None


class LazyStream(HostStream):
    def synchronize(self) -> None:
        return


class NeverDone(HostEvent):
    def is_done(self) -> bool:
        return False


class NeverDoneStream(HostStream):
    def record(self, *, is_timed: bool = False) -> HostEvent:
        event = super().record(is_timed=is_timed)
        return NeverDone(self, event.position)


class AlwaysDone(HostEvent):
    def is_done(self) -> bool:
        return True


class AlwaysDoneStream(HostStream):
    def record(self, *, is_timed: bool = False) -> HostEvent:
        return AlwaysDone(self, super().record(is_timed=is_timed).position)


class WaitsForNobody(HostStream):
    def wait(self, event: Event) -> None:
        return


class OneHandle(HostStream):
    @property
    def handle(self) -> int:
        return 7


class BackwardsEvent(HostEvent):
    def elapsed_us(self, earlier: Event) -> float:
        return -super().elapsed_us(earlier) - 1


class BackwardsStream(HostStream):
    def record(self, *, is_timed: bool = False) -> HostEvent:
        event = super().record(is_timed=is_timed)
        event.__class__ = BackwardsEvent
        return event


class MillisecondEvent(HostEvent):
    def elapsed_us(self, earlier: Event) -> float:
        return super().elapsed_us(earlier) / 1000


class MillisecondStream(HostStream):
    def record(self, *, is_timed: bool = False) -> HostEvent:
        event = super().record(is_timed=is_timed)
        event.__class__ = MillisecondEvent
        return event


class FirstStreamFunction(HostDeviceFunction):
    """Asks for the stream once and not in each run."""

    __slots__ = ()

    def bind(self, context: BindContext) -> HostDeviceFunction:
        from dataclasses import replace

        stream = context.stream
        return super().bind(replace(context, stream=None if stream is None else stream.current))


class KeepsTheFirstStream(HostDevice):
    def load_kernel(self, stored: StoredKernel) -> HostDeviceFunction:
        function = super().load_kernel(stored)
        function.__class__ = FirstStreamFunction
        return function


class OnTheHostByDlpack(HostDevice):
    @property
    def dlpack_device(self) -> tuple[int, int]:
        return (1, 0)


class Streaming(HostDevice):
    stream: ClassVar[type[HostStream]] = HostStream

    def create_stream(self) -> HostStream | None:
        return self.stream(self._streams)


def _with_stream(kind: type[HostStream]) -> type[HostDevice]:
    return type(kind.__name__, (Streaming,), {"stream": kind})


class SynchronizesNothing(HostDevice):
    def synchronize(self) -> None:
        return


class RunsWhileRecording(HostDevice):
    def begin_capture(self, stream: Stream) -> None:
        return

    def end_capture(self, stream: Stream) -> HostGraph:
        return HostGraph(self._streams, [])


class ReplaysNothing(HostDevice):
    def end_capture(self, stream: Stream) -> HostGraph:
        graph = super().end_capture(stream)
        graph.work.clear()
        return graph


class UpdatesInNameOnly(HostDevice):
    def end_capture(self, stream: Stream) -> HostGraph:
        graph = super().end_capture(stream)
        graph.update = lambda recorded: True  # type: ignore[method-assign]
        return graph


class NamelessEvents(HostDevice):
    def stop_profiling(self) -> Sequence[ProfileEvent]:
        return [ProfileEvent(name="", start_us=e.start_us, duration_us=1) for e in super().stop_profiling()]


class OtherClock(HostDevice):
    def stop_profiling(self) -> Sequence[ProfileEvent]:
        return [ProfileEvent(name=e.name, start_us=0, duration_us=1) for e in super().stop_profiling()]


class StrangeLayers(HostDevice):
    def stop_profiling(self) -> Sequence[ProfileEvent]:
        events = super().stop_profiling()
        return [ProfileEvent(name=e.name, start_us=e.start_us, duration_us=1, layer="ghost") for e in events]


class KeepsEvents(HostDevice):
    kept: ClassVar[list[ProfileEvent]] = []

    def stop_profiling(self) -> Sequence[ProfileEvent]:
        self.kept.extend(super().stop_profiling())
        return self.kept


class Leaks(HostDevice):
    def load_kernel(self, stored: StoredKernel) -> HostDeviceFunction:
        self.allocator.allocate(64, 256, 0)
        return super().load_kernel(stored)


BROKEN_DEVICES: list[tuple[HostDeviceFactory, str]] = [
    (NoDevice(), "P02"),
    (NoFingerprint(), "P02"),
    (OddKind(), "P02"),
    (Factory(AnotherName), "P03"),
    (TakesEveryOption(), "P04"),
    (RaisesForOptions(), "P04"),
    (Factory(OddStepKind), "P05"),
    (Factory(OddAlignment), "P05"),
    (Factory(WrongRegistry), "P06"),
    (Factory(RewritesOthers), "P07"),
    (Factory(NoReasons), "P11"),
    (Factory(ChangesItsMind), "P12"),
    (Factory(MixedGroup), "P13"),
    (Factory(TakesAnything), "P14"),
    (Factory(LooksUpBlindly), "P23"),
    (Factory(WrongNumbers), "P30"),
    (Factory(WrongNumbers), "P38"),
    (Factory(WrongForIntegers), "P31"),
    (Factory(Unaligned), "P50"),
    (Factory(AlwaysTheStart), "P51"),
    (Factory(SkipsScalars), "P52"),
    (Factory(CopiesEverywhere), "P53"),
    (Factory(ImportsAnything), "P54"),
    (Factory(ImportsNothing), "P54"),
    (Factory(ImportsNothing), "P46"),
    (Factory(_with_stream(OneHandle)), "P60"),
    (Factory(_with_stream(LazyStream)), "P61"),
    (Factory(_with_stream(NeverDoneStream)), "P62"),
    (Factory(_with_stream(AlwaysDoneStream)), "P62"),
    (Factory(_with_stream(WaitsForNobody)), "P63"),
    (Factory(_with_stream(BackwardsStream)), "P64"),
    (Factory(_with_stream(MillisecondStream)), "P64"),
    (Factory(KeepsTheFirstStream), "P47"),
    (Factory(OnTheHostByDlpack), "P48"),
    (Factory(SynchronizesNothing), "P65"),
    (Factory(RunsWhileRecording), "P70"),
    (Factory(ReplaysNothing), "P71"),
    (Factory(ReplaysNothing), "P73"),
    (Factory(UpdatesInNameOnly), "P72"),
    (Factory(NamelessEvents), "P80"),
    (Factory(OtherClock), "P80"),
    (Factory(StrangeLayers), "P81"),
    (Factory(KeepsEvents), "P81"),
    (Factory(Leaks), "P90"),
]


@pytest.mark.parametrize(
    ("factory", "rule"),
    BROKEN_DEVICES,
    ids=[f"{getattr(f, '_kind', type(f)).__name__} {rule}" for f, rule in BROKEN_DEVICES],
)
def test_a_broken_device(factory: HostDeviceFactory, rule: str) -> None:
    report = check_provider(factory, rules=[rule])
    assert report.failed_ids == {rule}, report.render()


# broken compilers


class TextPayload(PaperProvider):
    def build_partition(self, model: ir.Model, context: Any) -> Any:
        from dataclasses import replace

        return replace(super().build_partition(model, context), payload="text")


class NegativeFlops(PaperProvider):
    def build_partition(self, model: ir.Model, context: Any) -> Any:
        from dataclasses import replace

        from dovetail.provider.interfaces import BuildReport, NodeReport

        built = super().build_partition(model, context)
        return replace(built, report=BuildReport(nodes=[NodeReport(name="n", op="o", flops=-1)]))


class AnyVersion(PaperProvider):
    def check_version(self, stored: StoredPartition) -> None:
        return


class RaisesForDamage(PaperProvider):
    def read(self, stored: StoredPartition) -> onnx.ModelProto:
        onnx.load_from_string(bytes(stored.payload[5:]))
        return super().read(stored)


class IgnoresPayload(PaperProvider):
    seen: ClassVar[dict[str, Any]] = {}

    def read(self, stored: StoredPartition) -> onnx.ModelProto:
        if stored.name not in self.seen:
            self.seen[stored.name] = super().read(stored)
        return self.seen[stored.name]


class Forgetful(PaperProvider):
    """Works only in the process that built it."""

    models: ClassVar[list[Any]] = []

    def build_partition(self, model: ir.Model, context: Any) -> Any:
        self.models.append(len(self.models))
        return super().build_partition(model, context)

    def load_partition(self, stored: StoredPartition) -> PaperPartition:
        if not self.models:
            raise KeyError("it was not built here")
        self.models.pop()
        return super().load_partition(stored)


class NeverRefits(PaperProvider):
    refit_mode = "in_place"


class KeepsPartitions(PaperProvider):
    kept: ClassVar[list[Any]] = []

    def load_partition(self, stored: StoredPartition) -> PaperPartition:
        loaded = super().load_partition(stored)
        self.kept.append(loaded)
        return loaded


class Mislays(PaperPartition):
    """Each bound run in its own way."""

    bound: ClassVar[type[PaperBound]] = PaperBound

    def bind(self, context: BindContext) -> BoundPartition:
        return self.bound(self)


class FirstAddressOnly(PaperBound):
    """Reads where its first input lay."""

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        first = self.__dict__.setdefault("first", [(address_of(each), each.dtype) for each in inputs])
        found = [array_at(at, each.shape, dtype) for (at, dtype), each in zip(first, inputs, strict=True)]
        super().run(found, outputs)


class FirstBlockOnly(PaperBound):
    """Computes 4096 elements and leaves the others as they are."""

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        super().run(inputs, outputs)
        for output in outputs:
            output.reshape(-1)[4096:] = 0


class FirstShapeOnly(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        shape = self.partition.__dict__.setdefault("shape", inputs[0].shape)
        if inputs[0].shape != shape:
            raise RuntimeError("shape")
        super().run(inputs, outputs)


class NothingIsAnError(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        if not all(array.size for array in inputs):
            raise RuntimeError("empty")
        super().run(inputs, outputs)


class NoScalars(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        super().run([np.atleast_1d(array) for array in inputs], outputs)


class Backwards(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        results = self.partition.compute(inputs)[::-1]
        for index, result in enumerate(results):
            if outputs[index] is None:
                outputs[index] = result
            else:
                np.copyto(outputs[index], result)


class GivesTheSame(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        kept = self.partition.__dict__.setdefault("kept", self.partition.compute(inputs))
        for index, result in enumerate(self.partition.compute(inputs)):
            kept[index][...] = result
            outputs[index] = kept[index]


class WritesInputs(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        super().run(inputs, outputs)
        inputs[0][...] = 0


class KeepsInputs(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        self.kept = list(inputs)
        super().run(inputs, outputs)


class SharesScratch(PaperBound):
    """Keeps a result in what all contexts share, for a moment."""

    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        import time

        self.partition.__dict__["scratch"] = self.partition.compute(inputs)
        time.sleep(0.002)
        for index, result in enumerate(self.partition.__dict__["scratch"]):
            outputs[index] = result


class ClosesOnce(PaperBound):
    def close(self) -> None:
        raise RuntimeError("closed")


class FirstBufferOnly(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        self.first = getattr(self, "first", [array.copy() for array in inputs])
        super().run(self.first, outputs)


class FirstContextOnly(PaperBound):
    def run(self, inputs: Sequence[Any], outputs: list[Any]) -> None:
        owner = self.partition.__dict__.setdefault("owner", self)
        super().run(inputs if owner is self else [array * 0 for array in inputs], outputs)


def _with_bound(kind: type[PaperBound]) -> type[PaperProvider]:
    partition = type("Partition", (Mislays,), {"bound": kind})

    def make(self: PaperProvider, device: Device) -> None:
        PaperProvider.__init__(self, device)
        self.partition = partition

    return type(kind.__name__, (PaperProvider,), {"__init__": make})


BROKEN_COMPILERS: list[tuple[type[PaperProvider], str]] = [
    (TextPayload, "P21"),
    (NegativeFlops, "P22"),
    (Forgetful, "P25"),
    (AnyVersion, "P26"),
    (RaisesForDamage, "P27"),
    (IgnoresPayload, "P27"),
    (IgnoresPayload, "P28"),
    (_with_bound(FirstShapeOnly), "P32"),
    (_with_bound(FirstBlockOnly), "P32"),
    (_with_bound(NothingIsAnError), "P33"),
    (_with_bound(NoScalars), "P34"),
    (_with_bound(Backwards), "P35"),
    (_with_bound(FirstBufferOnly), "P40"),
    (_with_bound(FirstAddressOnly), "P40"),
    (_with_bound(GivesTheSame), "P41"),
    (_with_bound(WritesInputs), "P42"),
    (_with_bound(KeepsInputs), "P43"),
    (_with_bound(FirstContextOnly), "P44"),
    (_with_bound(SharesScratch), "P45"),
    (NeverRefits, "P85"),
    (KeepsPartitions, "P91"),
]


@pytest.mark.parametrize(
    ("kind", "rule"), BROKEN_COMPILERS, ids=[f"{kind.__name__} {rule}" for kind, rule in BROKEN_COMPILERS]
)
def test_a_broken_compiler(kind: type[PaperProvider], rule: str) -> None:
    report = check_provider(PaperFactory(kind), rules=[rule])
    assert report.failed_ids == {rule}, report.render()
