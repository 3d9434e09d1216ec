"""Streams own the handles of their libraries, are found by their raw handles, and wait for one another."""

from __future__ import annotations

import gc
import threading
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

import dovetail
from dovetail.errors import ProviderError
from dovetail.provider.devices import Event
from dovetail_cuda.provider import CudaProvider
from dovetail_cuda.run.payload import Product, ProductLaunch
from dovetail_cuda.run.steps import Resources, prepare_launch
from tests.cuda.host.fake_driver import FakeDriver


@pytest.fixture
def device(paper: Any) -> tuple[CudaProvider, FakeDriver, Any]:
    provider, driver = paper
    return provider, driver, provider._streams


def test_a_stream_opens_its_library_once_and_no_other_stream_has_it(device: Any) -> None:
    provider, _, states = device
    first, second = provider.create_stream(), provider.create_stream()
    library = states.find(first.handle).products
    assert states.find(first.handle).products is library
    assert states.find(second.handle).products is not library
    assert len(provider._toolbox.opened) == 2


def test_a_library_is_opened_beside_and_by_nobody_twice(device: Any) -> None:
    provider, _, states = device
    for _ in range(3):
        states.open_products_soon()
    assert states.find(0).products is provider._toolbox.opened[0]
    for thread in threading.enumerate():
        if thread.name == "dovetail-cuda-library":
            thread.join()
    assert len(provider._toolbox.opened) == 1


def test_a_library_that_does_not_open_beside_is_told_to_who_needs_it(
    device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, _, states = device

    def fail() -> Any:
        raise ProviderError("the library does not start")

    monkeypatch.setattr(states._default, "_libraries", replace(states._libraries, products=fail))
    states.open_products_soon()
    with pytest.raises(ProviderError, match="the library does not start"):
        _ = states.find(0).products
    assert not provider._toolbox.opened


def test_nothing_is_opened_for_a_stream_that_multiplies_nothing(device: Any) -> None:
    provider, _, _ = device
    provider.create_stream()
    assert not provider._toolbox.opened


def test_a_stream_at_the_address_of_one_that_is_gone_has_a_state_of_its_own(device: Any) -> None:
    provider, _, states = device
    first = provider.create_stream()
    handle, library, generation = first.handle, states.find(first.handle).products, states.generation
    first.close()
    second = provider.create_stream()
    assert second.handle == handle
    assert states.generation > generation
    assert states.find(handle).products is not library


def test_a_lent_stream_at_the_address_of_another_one_is_told_apart_by_its_number(device: Any) -> None:
    """The caller destroys its stream without a word, and the driver gives the address to the next one."""
    provider, driver, states = device
    provider.synchronize()
    handle = driver.create_stream()
    first = provider.wrap_stream(handle)
    library = states.find(handle).products
    driver.destroy_stream(handle)
    assert driver.create_stream() == handle
    second = provider.wrap_stream(handle)
    assert first.handle == second.handle
    assert states.find(handle).products is not library


def test_those_who_wrap_one_stream_share_its_state_until_the_last_of_them_is_gone(device: Any) -> None:
    provider, driver, states = device
    provider.synchronize()
    handle = driver.create_stream()
    first, second = provider.wrap_stream(handle), provider.wrap_stream(handle)
    library = states.find(handle).products
    first.close()
    assert states.find(handle).products is library
    second.close()
    gc.collect()
    provider._gpu.release_now()
    assert library.is_closed
    assert states.find(handle) is states.find(0)
    assert handle in driver.streams  # closing leaves the caller's stream alone


def test_a_product_is_run_by_the_library_of_the_stream_that_it_is_put_on(device: Any) -> None:
    provider, driver, states = device
    first, second = provider.create_stream(), provider.create_stream()
    arrays = [driver.allocate(4 * count) for count in (8 * 4, 4 * 6, 8 * 6)]
    rng = np.random.default_rng(1)
    left, right = (
        driver.view(place, shape, np.float32) for place, shape in zip(arrays, ((8, 4), (4, 6)), strict=False)
    )
    left[:], right[:] = rng.standard_normal((8, 4)), rng.standard_normal((4, 6))
    product = Product(m=8, n=6, k=4, dtype="float32", left_line=4, right_line=6, result_line=6)
    launch = ProductLaunch(product=product, buffers=[0, 1, 2], algorithm=bytes(64), library_version=130100)
    resources = Resources(gpu=provider._gpu, kernels=[], functions=[], streams=states)
    step = prepare_launch(launch, resources).bind(arrays, 0, first.handle)
    prepared = _watch_libraries(states, first, second)
    for stream in (first, second):
        step(stream.handle)
        stream.synchronize()
        np.testing.assert_allclose(driver.view(arrays[2], (8, 6), np.float32), left @ right, rtol=1e-5)
    assert prepared == ["second"]  # that of the first was ready when the launch was bound
    handle = second.handle
    second.close()
    third = provider.create_stream()
    assert third.handle == handle
    step(third.handle)  # a handle that is closed would be told
    third.synchronize()
    assert len(provider._toolbox.opened) == 4  # three streams and the default one


def _watch_libraries(states: Any, first: Any, second: Any) -> list[str]:
    """The names of the streams whose libraries prepare something from now on."""
    seen: list[str] = []
    for name, stream in (("first", first), ("second", second)):
        library = states.find(stream.handle).products
        prepare = library.prepare
        library.prepare = lambda *args, name=name, prepare=prepare: (seen.append(name), prepare(*args))[1]
    return seen


def test_an_unknown_stream_is_an_error(device: Any) -> None:
    provider, _, _ = device
    with pytest.raises(ProviderError, match="a stream that is none"):
        provider.wrap_stream(0xBAD)


def test_a_stream_waits_for_what_another_one_has_done(device: Any) -> None:
    provider, driver, _ = device
    first, second, order = provider.create_stream(), provider.create_stream(), []
    driver._submit(first.handle, "kernel", lambda: order.append("first"))
    second.wait(first.record())
    driver._submit(second.handle, "kernel", lambda: order.append("second"))
    assert order == []
    second.synchronize()
    assert order == ["first", "second"]


def test_an_event_of_another_back_end_is_waited_for_by_the_host(device: Any) -> None:
    class OtherEvent(Event):
        is_waited_for = False

        def synchronize(self) -> None:
            self.is_waited_for = True

        def is_done(self) -> bool:
            return True

        def elapsed_us(self, earlier: Event) -> float:
            return 0.0

    provider, _, _ = device
    event = OtherEvent()
    provider.create_stream().wait(event)
    assert event.is_waited_for


def test_waiting_for_the_device_leaves_the_thread_its_context(device: Any) -> None:
    provider, driver, _ = device
    order: list[str] = []
    stream = provider.create_stream()
    driver._submit(stream.handle, "kernel", lambda: order.append("done"))
    driver.use_context(77)
    provider.synchronize()
    assert order == ["done"]
    assert driver.find_context() == 77


class Described:
    """An array of another library, which is still written on a stream of its own."""

    def __init__(self, place: Any, stream: int | None) -> None:
        self.__cuda_array_interface__ = {
            "shape": place.shape,
            "typestr": "<f4",
            "data": (place.address, False),
            "strides": None,
            "version": 3,
            "stream": stream,
        }


def test_a_run_waits_for_the_stream_that_an_array_names(device: Any) -> None:
    provider, driver, _ = device
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[4] x) => (float[4] y) {y = Neg(x)}'
    )
    engine = dovetail.compile(model, providers=["cuda", "cpu"])
    place = provider.array_at(provider.allocator.allocate(16, 256, 0), (4,), np.float32)
    for number in (3.0, 4.0):
        theirs = provider.create_stream()
        driver._submit(theirs.handle, "theirs", lambda n=number: driver.view(place.address, (4,), np.float32).fill(n))
        np.testing.assert_array_equal(engine(Described(place, theirs.handle)), np.full(4, -number, np.float32))


def test_the_device_is_waited_for_behind_what_another_thread_records(device: Any) -> None:
    """Waiting for the device spoils a recording, and a context may be closed while another one is captured."""
    provider, driver, _ = device
    stream, waits = provider.create_stream(), []
    wait = driver.synchronize
    driver.synchronize = lambda: (waits.append(provider._gpu.is_capturing), wait())
    provider.begin_capture(stream)
    closing = threading.Thread(target=provider.synchronize)
    closing.start()
    closing.join(0.2)
    assert (closing.is_alive(), waits) == (True, [])
    provider.end_capture(stream).close()
    closing.join(5)
    assert (closing.is_alive(), waits) == (False, [False])


def test_a_thread_that_records_is_told_that_it_cannot_wait(device: Any) -> None:
    provider, _, _ = device
    stream = provider.create_stream()
    provider.begin_capture(stream)
    with pytest.raises(ProviderError, match="cannot be waited for while a stream is recorded"):
        provider.synchronize()
    provider.end_capture(stream).close()
    provider.synchronize()
