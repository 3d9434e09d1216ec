"""Compute over a fake ONNX Runtime, call for call."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxruntime_ep_dovetail.library import compute
from tests.ort_ep.library.fake_ort import (
    BOOL,
    FLOAT,
    INT4,
    INT64,
    SLOTS,
    STRING,
    FakeContext,
    FakeOrt,
    FakeValue,
    Partition,
)

Make = Callable[..., Partition]


@pytest.fixture
def make() -> Iterator[Make]:
    made: list[Partition] = []

    def build(
        new_frame: Any, inputs: tuple[int, ...] = (FLOAT,), outputs: tuple[int, ...] = (FLOAT,), **more: Any
    ) -> Partition:
        made.append(Partition(FakeOrt(), new_frame, inputs, outputs, **more))
        return made[-1]

    yield build
    for partition in made:
        partition.release()


def floats(*shape: int, start: int = 0) -> FakeValue:
    return FakeValue(np.arange(start, start + np.prod(shape, dtype=int), dtype=np.float32).reshape(shape), FLOAT)


def view(address: int, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    count = int(np.prod(shape))
    buffer = (ctypes.c_char * (count * np.dtype(dtype).itemsize)).from_address(address)
    return np.frombuffer(buffer, dtype=dtype).reshape(shape)


class Doubles:
    """A frame whose outputs are all twice the first input, and that notes what it was asked."""

    made: list[Doubles]

    def __init__(self, num_outputs: int = 1) -> None:
        self.num_outputs = num_outputs
        self.resizes: list[tuple[tuple[int, ...] | None, ...]] = []
        self.runs: list[tuple[int, ...]] = []

    def resize(self, shapes: tuple[tuple[int, ...] | None, ...]) -> tuple[tuple[int, ...] | None, ...]:
        self.resizes.append(shapes)
        self.shape = shapes[0] or ()
        return (self.shape,) * self.num_outputs

    def run(self, addresses: tuple[int, ...]) -> None:
        self.runs.append(addresses)
        if 0 not in self.shape:
            for target in addresses[-self.num_outputs :]:
                np.multiply(view(addresses[0], self.shape), 2, out=view(target, self.shape))

    def result(self, index: int) -> tuple[int, tuple[int, ...]]:
        raise AssertionError(index)


class Tells:
    """A frame whose output has a shape that only the run tells: what is not zero in the input."""

    def resize(self, shapes: tuple[tuple[int, ...], ...]) -> list[None]:
        self.shape = shapes[0]
        return [None]

    def run(self, addresses: tuple[int, ...]) -> None:
        assert addresses[1] == 0
        values = view(addresses[0], self.shape).ravel() if 0 not in self.shape else np.empty(0, np.float32)
        self.found = np.ascontiguousarray(values[values != 0])

    def result(self, index: int) -> tuple[int | None, tuple[int, ...]]:
        assert index == 0
        return self.found.ctypes.data, self.found.shape


def test_a_run_reads_inputs_and_writes_outputs(make: Make) -> None:
    partition = make(Doubles)
    context = partition.run(floats(2, 3))
    np.testing.assert_array_equal(context.outputs[0].array, np.arange(6, dtype=np.float32).reshape(2, 3) * 2)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (2, 0, 3), (1, 2, 1, 2, 1, 2, 1, 2, 1, 2), (7, 5)])
def test_every_rank_and_empty_tensors(make: Make, shape: tuple[int, ...]) -> None:
    frame = Doubles()
    partition = make(lambda: frame)
    for _ in range(2):
        context = partition.run(FakeValue(np.ones(shape, np.float32), FLOAT, shape))
        assert context.outputs[0].array.shape == shape
        assert (context.outputs[0].array == 2).all()
    assert frame.resizes == [(shape,)]


def test_no_inputs_and_no_outputs(make: Make) -> None:
    class Nothing(Doubles):
        def resize(self, shapes: Any) -> Any:
            self.resizes.append(shapes)
            return ()

        def run(self, addresses: tuple[int, ...]) -> None:
            self.runs.append(addresses)

    frame = Nothing()
    partition = make(lambda: frame, (), ())
    partition.run()
    partition.run()
    assert (frame.resizes, frame.runs) == ([()], [(), ()])
    assert frame.runs[0] is frame.runs[1]


def test_resize_is_called_when_shapes_change_and_only_then(make: Make) -> None:
    frame = Doubles()
    partition = make(lambda: frame)
    for shape in [(2, 3), (2, 3), (3, 2), (6,), (6,), (2, 3)]:
        partition.run(floats(*shape))
    assert frame.resizes == [((2, 3),), ((3, 2),), ((6,),), ((2, 3),)]
    assert len(frame.runs) == 6


def test_the_same_addresses_are_the_same_tuple(make: Make) -> None:
    frame = Doubles()
    partition = make(lambda: frame)
    first, second = floats(2, 3), floats(2, 3)
    output = floats(2, 3)
    reuse = {(0, (2, 3)): output}
    for value in (first, first, second, second, first):
        partition.run(value, reuse=reuse)
    runs = frame.runs
    assert runs[0] == (first.array.ctypes.data, output.array.ctypes.data)
    assert runs[0] is runs[1]
    assert runs[1] is not runs[2]
    assert runs[2] is runs[3]
    assert runs[4] == runs[0]


def test_run_is_looked_up_after_each_resize(make: Make) -> None:
    calls: list[str] = []

    class Switching(Doubles):
        def resize(self, shapes: Any) -> Any:
            rank = len(shapes[0])
            self.run = lambda addresses: calls.append(f"rank {rank}")  # type: ignore[method-assign]
            return super().resize(shapes)

    partition = make(Switching)
    partition.run(floats(2))
    partition.run(floats(2, 3))
    partition.run(floats(2, 3))
    assert calls == ["rank 1", "rank 2", "rank 2"]


def test_an_absent_input_has_no_shape_and_no_address(make: Make) -> None:
    frame = Doubles()
    partition = make(lambda: frame, (FLOAT, INT64, FLOAT))
    partition.run(floats(2), None, floats(3))
    partition.run(floats(2), FakeValue(np.zeros((), np.int64), INT64), floats(3))
    partition.run(floats(2), None, floats(3))
    assert frame.resizes == [((2,), None, (3,)), ((2,), (), (3,)), ((2,), None, (3,))]
    assert [addresses[1] == 0 for addresses in frame.runs] == [True, False, True]


def test_an_output_that_nobody_wants_has_no_address(make: Make) -> None:
    class Careful(Doubles):
        def run(self, addresses: tuple[int, ...]) -> None:
            self.runs.append(addresses)

    frame = Careful(2)
    partition = make(lambda: frame, (FLOAT,), (FLOAT, FLOAT))
    context = partition.run(floats(2), unwanted={0})
    assert set(context.outputs) == {1}
    assert frame.runs[0][1] == 0
    assert frame.runs[0][2] != 0


def test_a_result_of_unknown_shape_is_copied(make: Make) -> None:
    partition = make(Tells)
    for values in ([1, 0, 2, 0], [0, 0, 0, 0], [5, 6, 7, 8]):
        context = partition.run(FakeValue(np.array(values, np.float32), FLOAT))
        np.testing.assert_array_equal(context.outputs[0].array, np.array([v for v in values if v], np.float32))


def test_known_and_unknown_outputs_together(make: Make) -> None:
    class Mixed(Tells):
        def resize(self, shapes: Any) -> Any:
            super().resize(shapes)
            return [None, shapes[0], None]

        def run(self, addresses: tuple[int, ...]) -> None:
            assert addresses[1] == addresses[3] == 0
            view(addresses[2], self.shape)[...] = 9
            self.found = np.array([3, 4], np.int64)

        def result(self, index: int) -> tuple[int, tuple[int, ...]]:
            return self.found[index // 2 :].ctypes.data, (1,)

    context = make(Mixed, (FLOAT,), (INT64, FLOAT, INT64)).run(floats(2))
    assert [context.outputs[i].array.tolist() for i in range(3)] == [[3], [9, 9], [4]]


def test_a_frame_can_write_its_result_itself(make: Make) -> None:
    class Fills(Tells):
        def result(self, index: int) -> tuple[int | None, tuple[int, ...]]:
            return None, self.found.shape

        def fill(self, index: int, address: int) -> None:
            view(address, self.found.shape)[...] = -self.found

    context = make(Fills).run(FakeValue(np.array([1, 0, 2], np.float32), FLOAT))
    assert context.outputs[0].array.tolist() == [-1, -2]


@pytest.mark.parametrize(("kind", "dtype"), [(BOOL, np.bool_), (INT64, np.int64), (INT4, np.uint8)])
def test_results_are_copied_by_their_element_size(make: Make, kind: int, dtype: Any) -> None:
    source = np.array([1, 0, 1, 1, 0], dtype)

    class Copies(Tells):
        def run(self, addresses: tuple[int, ...]) -> None: ...

        def result(self, index: int) -> tuple[int, tuple[int, ...]]:
            return source.ctypes.data, (5,)

    context = make(Copies, (FLOAT,), (kind,)).run(floats(1))
    copied = source if kind != INT4 else np.array([1, 0, 1, 0, 0], dtype)  # two elements to a byte: three bytes
    np.testing.assert_array_equal(context.outputs[0].array, copied)


class Raises(Doubles):
    def run(self, addresses: tuple[int, ...]) -> None:
        raise KeyError("first line\nsecond line with ü")


def _expect(partition: Partition, *inputs: FakeValue | None) -> str:
    status = partition.call(FakeContext(list(inputs), partition.output_types))
    assert status is not None
    assert status[0] == 1
    return status[1]


def test_an_exception_becomes_a_status_and_drops_the_frame(make: Make) -> None:
    frames: list[weakref.ref[Raises]] = []

    def new_frame() -> Raises:
        frame = Raises()
        frames.append(weakref.ref(frame))
        return frame

    partition = make(new_frame)
    for _ in range(2):
        assert _expect(partition, floats(2)) == "KeyError: 'first line\\nsecond line with ü'"
    gc.collect()
    assert [frame() for frame in frames] == [None, None]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("one\ntwo"), "ValueError: one\ntwo"),
        (ValueError(), "ValueError"),
        (ValueError("half a pair \ud800"), "ValueError: half a pair \\ud800"),
        (Unprintable(), "Unprintable: (its text cannot be had)"),
        (KeyboardInterrupt(), "KeyboardInterrupt"),
    ],
)
@pytest.mark.parametrize("where", ["new_frame", "resize", "run", "result"])
def test_the_text_of_an_exception_is_kept(make: Make, where: str, error: BaseException, message: str) -> None:
    def fail(*_: Any) -> Any:
        raise error

    class Failing(Tells):
        pass

    if where != "new_frame":
        setattr(Failing, where, fail)
    partition = make(fail if where == "new_frame" else Failing)
    assert _expect(partition, floats(2)) == message


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ((), "ValueError: resize gave 0 shapes for 1 outputs"),
        (((2,), (2,)), "ValueError: resize gave 2 shapes for 1 outputs"),
        (((2, -1),), "ValueError: a shape has the dimension -1"),
    ],
)
def test_wrong_answers_of_resize_are_named(make: Make, outputs: Any, message: str) -> None:
    class Wrong(Doubles):
        def resize(self, shapes: Any) -> Any:
            return outputs

    assert _expect(make(Wrong), floats(2)) == message


@pytest.mark.parametrize("outputs", [None, (3,), (("a",),)])
def test_answers_of_resize_that_are_no_shapes(make: Make, outputs: Any) -> None:
    class Wrong(Doubles):
        def resize(self, shapes: Any) -> Any:
            return outputs

    assert _expect(make(Wrong), floats(2)).startswith("TypeError: ")


def test_wrong_results_are_named(make: Make) -> None:
    class Wrong(Tells):
        answer: Any = (0, (3,))

        def result(self, index: int) -> Any:
            return self.answer

    assert _expect(make(Wrong), floats(2)) == "ValueError: the result of output 0 is at address 0"
    Wrong.answer = (0, (-3,))
    assert _expect(make(Wrong), floats(2)) == "ValueError: a shape has the dimension -3"
    Wrong.answer = (64, (3,))
    expected = "TypeError: a result of element type 99 cannot be copied"
    assert _expect(make(Wrong, (FLOAT,), (99,)), floats(2)) == expected


def test_a_tensor_without_an_address_gives_the_status_of_onnxruntime(make: Make) -> None:
    partition = make(Doubles, (STRING,))
    context = FakeContext([FakeValue(np.zeros(2, np.uint8), STRING)], [FLOAT])
    assert partition.call(context) == (2, "strings have no address")


def test_an_input_of_another_type_is_refused(make: Make) -> None:
    frame = Doubles()
    partition = make(lambda: frame, (FLOAT, FLOAT))
    wrong = FakeValue(np.zeros(2, np.int64), INT64)
    assert _expect(partition, floats(2), wrong) == "input 1 has element type 7, and 1 was compiled"
    assert frame.resizes == []
    partition.run(floats(2), floats(2))


def test_an_input_of_type_0_is_not_checked(make: Make) -> None:
    make(Doubles, (FLOAT, 0)).run(floats(2), FakeValue(np.zeros(2, np.int64), INT64))


@pytest.mark.parametrize("function", ["GetInput", "GetTypeAndShape", "GetData", "GetOutput"])
@pytest.mark.parametrize("is_first", [True, False])
def test_a_status_of_onnxruntime_is_passed_on_and_keeps_the_frame(make: Make, function: str, is_first: bool) -> None:
    frames: list[Doubles] = []

    def new_frame() -> Doubles:
        frames.append(Doubles())
        return frames[-1]

    partition = make(new_frame)
    if not is_first:
        partition.run(floats(2))
    partition.ort.fail_in = function
    assert _expect(partition, floats(2)) == f"{function} failed"
    partition.ort.fail_in = None
    context = partition.run(floats(2))
    assert context.outputs[0].array.tolist() == [0, 2]
    assert len(frames) == 1


def test_runs_on_many_threads_have_frames_of_their_own(make: Make) -> None:
    frames: list[Exclusive] = []
    at_once = threading.Barrier(4, timeout=20)

    class Exclusive(Doubles):
        def __init__(self) -> None:
            super().__init__()
            self.is_busy = False
            frames.append(self)

        def run(self, addresses: tuple[int, ...]) -> None:
            assert not self.is_busy
            self.is_busy = True
            super().run(addresses)
            if len(self.runs) == 1:
                at_once.wait()
            self.is_busy = False

    partition = make(Exclusive)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for turn in range(60):
            value = floats(1 + turn % 3, 4, start=100 * number)
            output = partition.run(value).outputs[0].array
            if not (output == value.array * 2).all():
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert len(frames) == 4
    assert sum(len(frame.runs) for frame in frames) == 240


def test_release_lets_frames_go() -> None:
    frames: list[weakref.ref[Doubles]] = []

    def new_frame() -> Doubles:
        frame = Doubles()
        frames.append(weakref.ref(frame))
        return frame

    partition = Partition(FakeOrt(), new_frame, (FLOAT,), (FLOAT,))
    partition.run(floats(2))
    assert frames[0]() is not None
    partition.release()
    gc.collect()
    assert frames[0]() is None
    with pytest.raises(ValueError, match="there is no state at address"):
        partition.release()


def test_a_kernel_finds_its_state_behind_its_struct() -> None:
    ort = FakeOrt()
    partition = Partition(ort, Doubles, (FLOAT,), (FLOAT,))
    kernel = (ctypes.c_char * (compute.KERNEL_STATE_OFFSET + 8))()
    place = ctypes.addressof(kernel)
    ctypes.c_uint64.from_address(place + compute.KERNEL_STATE_OFFSET).value = partition.state
    run = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(compute.kernel_compute_address())
    context = FakeContext([floats(3)], [FLOAT])
    assert run(place, ort.handle(context)) is None
    assert context.outputs[0].array.tolist() == [0, 2, 4]
    partition.release()


def test_each_runtime_has_its_own_table() -> None:
    first, second = FakeOrt(), FakeOrt()
    one = Partition(first, Raises, (FLOAT,), (FLOAT,))
    two = Partition(second, Raises, (FLOAT,), (FLOAT,))
    _expect(one, floats(1))
    assert (len(first.statuses), len(second.statuses)) == (1, 0)
    chosen = compute.create_state(Raises, 1, 1, (FLOAT,), (FLOAT,), api_address=first.address)
    for state in (one.state, two.state, chosen):
        compute.release_state(state)
    with pytest.raises(RuntimeError, match="no such OrtApi has been attached"):
        compute.create_state(Raises, 1, 1, (FLOAT,), (FLOAT,), api_address=1)


def test_a_table_without_a_function_is_refused() -> None:
    ort = FakeOrt()
    ort.table[SLOTS["KernelContext_GetOutput"]] = None
    with pytest.raises(ValueError, match="slot 5 of OrtApi, KernelContext_GetOutput, is empty"):
        compute.attach(ort.address, SLOTS)
    with pytest.raises(ValueError, match="the address of OrtApi is 0"):
        compute.attach(0, SLOTS)
    with pytest.raises(KeyError):
        compute.attach(ort.address, {})


def test_counts_and_types_must_agree() -> None:
    compute.attach(FakeOrt().address, SLOTS)
    with pytest.raises(ValueError, match="there are 2 inputs and 1 element types"):
        compute.create_state(Doubles, 2, 1, (FLOAT,), (FLOAT,))
    with pytest.raises(ValueError, match="there are 1 outputs and 0 element types"):
        compute.create_state(Doubles, 1, 1, (FLOAT,), ())


shapes = st.lists(st.integers(0, 4), max_size=5).map(tuple)


@settings(max_examples=25)
@given(runs=st.lists(st.tuples(shapes, st.none() | shapes), min_size=1, max_size=6))
def test_any_sequence_of_shapes(runs: list[tuple[tuple[int, ...], tuple[int, ...] | None]]) -> None:
    frame = Doubles()
    partition = Partition(FakeOrt(), lambda: frame, (FLOAT, FLOAT), (FLOAT,))
    expected = []
    for first, second in runs:
        absent_or_not = None if second is None else FakeValue(np.ones(second, np.float32), FLOAT, second)
        context = partition.run(FakeValue(np.ones(first, np.float32), FLOAT, first), absent_or_not)
        assert context.outputs[0].array.shape == first
        assert (context.outputs[0].array == 2).all()
        if not expected or expected[-1] != (first, second):
            expected.append((first, second))
    assert frame.resizes == expected
    partition.release()


class Streamed:
    """A frame that notes the streams it gets."""

    def __init__(self) -> None:
        self.sized: list[int] = []
        self.runs: list[tuple[int, ...]] = []

    def resize(self, shapes: tuple[Any, ...], stream: int) -> tuple[Any, ...]:
        self.sized.append(stream)
        return shapes

    def run(self, addresses: tuple[int, ...]) -> None:
        self.runs.append(addresses)


def test_a_state_with_a_stream_passes_its_handle_last(make: Make) -> None:
    frame = Streamed()
    partition, value, other = make(lambda: frame, has_stream=True), floats(2), floats(3)
    output = floats(2)
    reuse = {(0, (2,)): output}
    for stream in (0x70, 0x70, 0x80):
        partition.run(value, stream=stream, reuse=reuse)
    partition.run(other)
    addresses = [value.array.ctypes.data, output.array.ctypes.data]
    assert [list(run) for run in frame.runs[:3]] == [[*addresses, 0x70], [*addresses, 0x70], [*addresses, 0x80]]
    assert frame.runs[0] is frame.runs[1]
    assert frame.runs[3][-1] == 0
    assert frame.sized == [0x70, 0]


def test_a_failure_to_get_the_stream_is_the_status_of_the_run(make: Make) -> None:
    partition = make(Streamed, has_stream=True)
    partition.ort.fail_in = "GetStream"
    context = FakeContext([floats(2)], [FLOAT])
    assert partition.call(context) == (1, "GetStream failed")


LATE = """
import ctypes, os, sys
from onnxruntime_ep_dovetail.library import compute, find_library
from onnxruntime_ep_dovetail.library.contract import API_FUNCTIONS

class Frame:
    def resize(self, shapes): return ()
    def run(self, addresses): os.write(1, b"ran\\n")

no_op = ctypes.cast(ctypes.CDLL(str(find_library())).dovetail_ep_noop, ctypes.c_void_p).value
table = (ctypes.c_void_p * len(API_FUNCTIONS))(*[no_op] * len(API_FUNCTIONS))
compute.attach(ctypes.addressof(table), {name: i for i, name in enumerate(API_FUNCTIONS)})
state = compute.create_state(Frame, 0, 0, (), ())
call = ctypes.CFUNCTYPE(*[ctypes.c_void_p] * 4)(compute.compute_address())
call(None, state, None)

class Late:
    def __del__(self, call=call, state=state, write=os.write, is_finalizing=sys.is_finalizing, table=table):
        write(1, b"finalizing: %d\\n" % is_finalizing())
        call(None, state, None)
        write(1, b"called\\n")

sys.late = Late()
"""


def test_nothing_runs_when_the_interpreter_ends() -> None:
    finished = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, timeout=60, check=False)
    assert finished.stdout == "ran\nfinalizing: 1\ncalled\n", finished.stderr
    assert finished.returncode == 0
