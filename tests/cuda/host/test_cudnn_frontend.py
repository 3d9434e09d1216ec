"""What is asked of cuDNN's front end: by one that notes its calls, and, where the package is here, by itself."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from dovetail.errors import PlanCorruptError, ProviderError
from dovetail_cuda.run import cudnn as module
from dovetail_cuda.run.convolutions import ACTIVATIONS, Convolution, ConvPlan, check_convolution
from dovetail_cuda.run.cublaslt import load_cublaslt
from dovetail_cuda.run.cudnn import ConvSearch, Cudnn, is_cudnn_here, write_graph

CONV = Convolution(
    dtype="float16",
    image=(2, 16, 9, 9),
    image_strides=(1296, 1, 144, 16),
    filters=32,
    group=2,
    kernel=(3, 3),
    strides=(2, 2),
    dilations=(1, 1),
    before=(0, 1),
    after=(1, 1),
    outputs=(4, 5),
    result_line=32,
    has_bias=True,
    has_residual=True,
    activation="relu",
)
PLAN = ConvPlan(tag="eng1", engine=1)
SEARCH = ConvSearch(count=3, is_thorough=True, workspace_bytes=1 << 20)


class Enumerated:
    """An enumeration of the front end: its members are numbers with names."""

    def __getattr__(self, name: str) -> str:
        return name

    def __call__(self, number: int) -> int:
        return number


class NotingTensor:
    def __getattr__(self, name: str) -> Any:
        assert name in {"set_output", "set_data_type", "set_dim", "set_stride", "set_uid"}
        return lambda value: self


class NotingTensors:
    """An empty graph that notes dimensions and strides of its tensors by their ids."""

    def __init__(self) -> None:
        self.tensors: dict[int, tuple[list[int], list[int]]] = {}

    def tensor(self, *, name: str, dim: list[int], stride: list[int], uid: int) -> Any:
        self.tensors[uid] = (dim, stride)
        return self

    def __getattr__(self, name: str) -> Any:
        assert name in {"conv_fprop", "add", "bias", "relu", "set_output", "set_data_type"}, name
        return lambda *args, **kwargs: self

    def set_dim(self, dims: list[int]) -> Any:
        self._dims = dims
        return self

    def set_stride(self, strides: list[int]) -> Any:
        self._strides = strides
        return self

    def set_uid(self, uid: int) -> None:
        self.tensors[uid] = (self._dims, self._strides)


PROPOSED: dict[str, Any] = {
    "A": [
        *((20_001, {}, 0, 0, 1), (4, {}, 8, 1, 1), (4, {2: 7}, 8, 1, 1), (1, {3: 1, 1: 2}, 16, 0, 1)),
        *((2, {}, 1 << 30, 0, 1), (3, {}, 0, 0, 0), (5, {}, 0, 0, 1)),
    ],
    "B": [(1, {3: 1, 1: 2}, 16, 0, 1), (6, {}, 0, 0, 1)],
}
"""Plans of each heuristic: engine, knobs, scratch memory, whether it is compiled, and whether it builds."""


class NotingGraph:
    """A graph with the plans of a heuristic."""

    def __init__(self, calls: list[Any], **settings: Any) -> None:
        self.calls, self.settings, self.plans, self.built = calls, settings, [], -1

    def _note(self, name: str, *given: Any) -> NotingTensor:
        self.calls.append((name, *given))
        return NotingTensor()

    def __getattr__(self, name: str) -> Any:
        known = {"tensor", "conv_fprop", "add", "bias", "relu", "validate", "build_operation_graph"}
        assert name in known | {"deselect_numeric_notes", "deselect_workspace_greater_than"}, name
        return lambda *args, **kwargs: self._note(name, args or kwargs)

    def create_execution_plans(self, modes: list[str]) -> None:
        self.plans = list(PROPOSED[modes[0]])

    def create_execution_plan(self, engine: int, knobs: dict[int, int]) -> None:
        self.plans.append((engine, knobs, 0, 0, 1))

    def get_execution_plan_count(self) -> int:
        return len(self.plans)

    def get_engine_and_knobs_at_index(self, index: int) -> Any:
        return self.plans[index][:2]

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{self.plans[index][0]} {self.plans[index][1]}"

    def get_behavior_notes_for_plan_at_index(self, index: int) -> list[str]:
        return ["RUNTIME_COMPILATION"] if self.plans[index][3] else []

    def build_plan_at_index(self, index: int) -> None:
        self._note("build", self.plans[index][0])
        if not self.plans[index][4]:
            raise RuntimeError("no such plan")
        self.built = index

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return int(self.plans[index][2])

    def serialize(self, *, as_bytes: bool) -> bytes:
        assert as_bytes
        return f"plan {self.plans[self.built][:2]}".encode()

    def deserialize(self, handle: str, code: bytes) -> None:
        assert handle == "handle"
        if not code.startswith(b"plan"):
            raise RuntimeError("not a plan")
        self._note("read", code)

    def query_tensor_attributes_of_uid(self, uid: int) -> Any:
        """Return a tensor of the deserialized graph: the one of ``CONV``, with the changes that the code names."""
        written = NotingTensors()
        write_graph(written, CONV, "HALF")
        dims, strides = written.tensors[uid]
        changed = dict(part.split("=") for part in self.calls[-1][1].decode().split()[1:] if "=" in part)
        if changed.get("uid") == str(uid):
            dims = [dims[0] * 2, *dims[1:]] if "dims" in changed else dims
            strides = [*strides[:-1], strides[-1] * 2] if "strides" in changed else strides
        kind = changed.get("type", "HALF")
        return SimpleNamespace(get_dim=lambda: dims, get_stride=lambda: strides, get_data_type=lambda: kind)

    def get_workspace_size(self) -> int:
        return 64

    def execute(self, buffers: dict[int, int], workspace: int, handle: str) -> None:
        self._note("execute", buffers, workspace, handle)
        if not buffers[1]:
            raise RuntimeError("no image")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """What is called of a front end that does nothing."""
    noted: list[Any] = []
    made = SimpleNamespace(
        **dict.fromkeys(("data_type", "heur_mode", "numerical_note", "behavior_note", "knob_type"), Enumerated()),
        backend_version=lambda: 91901,
        create_handle=lambda: "handle",
        destroy_handle=lambda handle: noted.append(("destroy", handle)),
        set_stream=lambda handle, stream: noted.append(("stream", handle, stream)),
        pygraph=lambda **settings: NotingGraph(noted, **settings),
    )
    monkeypatch.setitem(sys.modules, "cudnn", made)
    monkeypatch.setattr(module, "load_cublaslt", lambda: noted.append(("cuBLASLt",)))
    module._import_cudnn.cache_clear()
    yield noted
    module._import_cudnn.cache_clear()


def _find(calls: list[Any], name: str) -> list[Any]:
    return [call[1:] for call in calls if call[0] == name]


def test_plans_are_those_of_the_library_that_build_and_fit(calls: list[Any]) -> None:
    built = Cudnn(lambda: None).build_plans(CONV, SEARCH)
    assert [each.name for each in built] == [
        "cuDNN 91901 eng4 {}",
        "cuDNN 91901 eng1 {3: 1, 1: 2}",
        "cuDNN 91901 eng6 {}",
    ]
    assert [each.workspace_bytes for each in built] == [8, 16, 0]
    assert built[1].code == b"plan (1, {3: 1, 1: 2})"
    assert {each.version for each in built} == {91901}


def test_few_of_the_plans_that_must_be_compiled_are(calls: list[Any]) -> None:
    Cudnn(lambda: None).build_plans(CONV, SEARCH)
    assert _find(calls, "build") == [(4,), (1,), (2,), (6,)]


def test_one_heuristic_is_asked_where_the_search_is_short(calls: list[Any]) -> None:
    search = ConvSearch(count=9, is_thorough=False, workspace_bytes=1 << 31)
    built = Cudnn(lambda: None).build_plans(CONV, search)
    assert [each.plan.engine for each in built] == [4, 1, 2, 5]


@pytest.mark.parametrize(
    ("dtype", "allows_tf32", "count"), [("float16", False, 3), ("float32", False, 4), ("float32", True, 3)]
)
def test_what_is_not_exact_is_deselected(calls: list[Any], dtype: str, allows_tf32: bool, count: int) -> None:
    conv = msgspec.structs.replace(CONV, dtype=dtype, allows_tf32=allows_tf32)
    Cudnn(lambda: None).build_plans(conv, ConvSearch(count=1, is_thorough=False, workspace_bytes=64))
    ((notes,),) = _find(calls, "deselect_numeric_notes")
    assert len(notes[0]) == count
    assert ("TENSOR_CORE" in notes[0]) == (count == 4)
    assert _find(calls, "deselect_workspace_greater_than") == [((64,),)]


def test_a_convolution_that_the_library_has_not_has_no_plans(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: Any, modes: Any) -> None:
        raise RuntimeError("no engine")

    monkeypatch.setattr(NotingGraph, "create_execution_plans", refuse)
    assert Cudnn(lambda: None).build_plans(CONV, SEARCH) == []


@pytest.mark.parametrize("uid", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("change", ["dims=1", "strides=1", "type=FLOAT"])
def test_code_of_another_convolution_is_refused(calls: list[Any], uid: int, change: str) -> None:
    with pytest.raises(PlanCorruptError, match="other tensors than its launch"):
        Cudnn(lambda: None).prepare(CONV, PLAN, f"plan uid={uid} {change}".encode())


def test_a_plan_is_read_back_once_and_run_on_any_stream(calls: list[Any]) -> None:
    first, second = Cudnn(lambda: None), Cudnn(lambda: None)
    prepared = first.prepare(CONV, PLAN, b"plan")
    assert first.prepare(CONV, PLAN, b"plan") is prepared
    assert _find(calls, "read") == [(b"plan",)]
    second.run(prepared, [10, 20, 30, 40, 50], 60, 7)
    assert _find(calls, "stream") == [("handle", 7)]
    assert _find(calls, "execute") == [({1: 10, 2: 20, 3: 30, 4: 40, 5: 50}, 60, "handle")]


def test_a_plan_that_cannot_be_read_is_built_from_its_engine_and_knobs(calls: list[Any]) -> None:
    prepared = Cudnn(lambda: None).prepare(CONV, ConvPlan(tag="eng8", engine=8, knobs=((1, 2),)), b"damaged")
    assert prepared.graph.plans == [(8, {1: 2}, 0, 0, 1)]
    assert _find(calls, "build") == [(8,)]


def test_what_fails_is_told_as_an_error_of_this_back_end(calls: list[Any]) -> None:
    library = Cudnn(lambda: None)
    prepared = library.prepare(CONV, PLAN, b"plan")
    with pytest.raises(ProviderError, match="a convolution failed: no image"):
        library.run(prepared, [0, 20, 30, 40, 50], 60, 7)


def test_the_library_that_it_needs_is_loaded_first(calls: list[Any]) -> None:
    """It ends the process where it plans and does not find that itself."""
    Cudnn(lambda: calls.append(("context",)))
    assert calls == [("cuBLASLt",), ("context",)]


def test_a_handle_is_given_back(calls: list[Any]) -> None:
    Cudnn(lambda: None).close()
    assert _find(calls, "destroy") == [("handle",)]


def test_a_front_end_without_the_library_is_told(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise RuntimeError("libcudnn.so.9 is missing")

    monkeypatch.setattr(sys.modules["cudnn"], "backend_version", fail)
    with pytest.raises(ProviderError, match=r"libcudnn.so.9 is missing(.|\n)*pip install nvidia-cudnn-cu13"):
        Cudnn(lambda: None)


def test_a_folder_of_that_name_is_no_front_end(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    (tmp_path / "cudnn").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    module._import_cudnn.cache_clear()
    with patch.dict(sys.modules):
        sys.modules.pop("cudnn", None)
        assert not is_cudnn_here()
        with pytest.raises(ProviderError, match=r"front end is not here(.|\n)*dovetail-cuda\[cudnn\]"):
            Cudnn(lambda: None)


# the front end itself

H200 = """{
    "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "regsPerBlock": 65536,
    "multiProcessorCount": 132, "warpSize": 32, "maxSharedMemoryPerBlock": 49152, "maxRegistersPerSM": 65536,
    "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024, "maxCtasPerSM": 32,
    "maxThreadsPerBlock": 1024, "maxThreadsPerSM": 2048, "pciDeviceId": 9013, "isTccDriver": 0,
    "supportCoopLaunch": 1, "totalGlobalMem": 150000000000, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000,
    "l2CacheSize": 62914560, "cudaDeviceId": 0, "deviceVer": 900, "driverVer": 13000, "deviceName": "H200"
}"""


@pytest.fixture
def real() -> Any:
    found = pytest.importorskip("cudnn", reason="the front end of cuDNN is not here")
    try:
        found.backend_version()
    except Exception as error:  # noqa: BLE001 - what it raises differs from version to version
        pytest.skip(f"the front end of cuDNN is here, and the library is not: {error}")
    return found


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_front_end_takes_every_graph(real: Any, activation: str, dtype: str) -> None:
    """As far as that goes without a device: graphs are described and checked, and plans are not made."""
    kind = {"float16": real.data_type.HALF, "bfloat16": real.data_type.BFLOAT16, "float32": real.data_type.FLOAT}[dtype]
    graph = real.pygraph(
        io_data_type=kind,
        intermediate_data_type=real.data_type.FLOAT,
        compute_data_type=real.data_type.FLOAT,
        device_property=real.create_device_properties(H200),
    )
    write_graph(graph, msgspec.structs.replace(CONV, dtype=dtype, activation=activation), kind)
    graph.validate()
    graph.build_operation_graph()
    graph.deselect_workspace_greater_than(1 << 20)
    assert sorted(tensor.uid for tensor in graph.get_inputs()) == [1, 2, 3, 4]
    assert [tensor.uid for tensor in graph.get_outputs()] == [5]


class OnPaper:
    """The front end for a device that is not here: it plans and builds, and runs nothing."""

    def __init__(self, real: Any) -> None:
        self._real, self._device = real, real.create_device_properties(H200)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def create_handle(self) -> None:
        return None

    def pygraph(self, handle: None = None, **settings: Any) -> Any:
        return self._real.pygraph(device_property=self._device, **settings)


@pytest.fixture
def planner(real: Any, monkeypatch: pytest.MonkeyPatch) -> Cudnn:
    """The real library, planning for an H200."""
    try:
        load_cublaslt()
    except ProviderError as error:
        pytest.skip(f"cuDNN plans nothing without cuBLASLt: {error.what}")
    monkeypatch.setattr(module, "_import_cudnn", lambda: OnPaper(real))
    return Cudnn(lambda: None)


def _make_conv(channels: int, filters: int, size: int, kernel: int, **fields: Any) -> Convolution:
    made = {
        "image": (8, channels, size, size),
        "image_strides": (size * size * channels, 1, size * channels, channels),
        "filters": filters,
        "group": 1,
        "kernel": (kernel, kernel),
        "strides": (1, 1),
        "before": (kernel // 2, kernel // 2),
        "after": (kernel // 2, kernel // 2),
        "outputs": (size, size),
        "result_line": filters,
        "has_residual": False,
    }
    return msgspec.structs.replace(CONV, **{**made, **fields})


PLANNED = {
    "3x3": _make_conv(64, 64, 56, 3),
    "1x1": _make_conv(256, 64, 56, 1),
    "residual": _make_conv(64, 256, 56, 1, has_residual=True),
    "downsample": _make_conv(256, 512, 56, 1, strides=(2, 2), outputs=(28, 28), activation=""),
    "grouped": _make_conv(64, 64, 28, 3, group=4, has_bias=False, activation=""),
    "dilated": _make_conv(64, 64, 28, 3, dilations=(2, 2), before=(2, 2), after=(2, 2)),
    "bfloat16": _make_conv(64, 64, 28, 3, dtype="bfloat16"),
    "float32": _make_conv(64, 64, 28, 3, dtype="float32"),
    "tf32": _make_conv(64, 64, 28, 3, dtype="float32", allows_tf32=True),
}


@pytest.mark.parametrize("name", list(PLANNED))
def test_the_library_has_plans_that_are_read_back(planner: Cudnn, name: str) -> None:
    conv = PLANNED[name]
    search = ConvSearch(count=4, is_thorough=True, workspace_bytes=64 << 20)
    built = planner.build_plans(conv, search)
    assert 4 <= len(built) <= 8
    assert len({each.name for each in built}) == len(built)
    for each in built:
        check_convolution(conv, each.plan)
        prepared = planner.prepare(conv, each.plan, each.code)
        assert prepared.graph.get_workspace_size_plan_at_index(0) == each.workspace_bytes <= 64 << 20


@pytest.mark.parametrize("name", ["3x3", "1x1", "residual"])
def test_the_library_builds_plans_again_from_engine_and_knobs(planner: Cudnn, name: str) -> None:
    conv = PLANNED[name]
    built = planner.build_plans(conv, ConvSearch(count=8, is_thorough=False, workspace_bytes=64 << 20))
    known = [each for each in built if all(knob for knob, _ in each.plan.knobs)]
    assert known
    for each in known:
        prepared = planner.prepare(conv, each.plan, b"damaged")
        assert prepared.graph.get_plan_name_at_index(0) == each.plan.tag


def test_the_library_does_a_residual_without_compiling(planner: Cudnn, real: Any) -> None:
    """That takes seconds; the order of what is added decides."""
    graph = planner._propose(PLANNED["residual"], real.heur_mode.A, 64 << 20)
    assert not any(planner._inspect(graph, index)[1] for index in range(6))


def test_the_front_end_has_every_name_that_is_used(real: Any) -> None:
    notes = ("NONDETERMINISTIC", "REDUCED_PRECISION_REDUCTION", "DOWN_CONVERT_INPUTS", "TENSOR_CORE")
    assert all(hasattr(real.numerical_note, note) for note in notes)
    assert hasattr(real.behavior_note, "RUNTIME_COMPILATION")
    assert real.heur_mode.A != real.heur_mode.B
    assert int(real.knob_type(1)) == 1
    names = ("deselect_numeric_notes", "create_execution_plans", "create_execution_plan", "get_execution_plan_count")
    names += (
        "get_engine_and_knobs_at_index",
        "get_plan_name_at_index",
        "get_behavior_notes_for_plan_at_index",
        "build_plan_at_index",
    )
    names += ("get_workspace_size_plan_at_index", "serialize", "deserialize", "execute")
    assert all(callable(getattr(real.pygraph, name)) for name in names)
    assert all(callable(getattr(real, name)) for name in ("create_handle", "destroy_handle", "set_stream"))
    assert real.backend_version() >= 90000
