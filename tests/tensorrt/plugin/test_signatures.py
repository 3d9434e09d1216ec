"""Wrong decorators, signatures and calls: each is one error that says what and where."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple, Union  # noqa: UP035 - as scripts write them

import numpy as np
import numpy.typing as npt
import pytest

import dovetail
import dovetail_tensorrt.trt.plugin as trtp


def plain(x: trtp.TensorDesc, n: int, f: float) -> trtp.TensorDesc:
    return x.like()


def no_annotation(x, n: int) -> trtp.TensorDesc:  # type: ignore[no-untyped-def]
    return x.like()


def with_default(x: trtp.TensorDesc, n: int = 1) -> trtp.TensorDesc:
    return x.like()


def with_rest(x: trtp.TensorDesc, *rest: int) -> trtp.TensorDesc:
    return x.like()


def tensor_last(n: int, x: trtp.TensorDesc) -> trtp.TensorDesc:
    return x.like()


def wrong_attribute(x: trtp.TensorDesc, n: list) -> trtp.TensorDesc:  # type: ignore[type-arg]
    return x.like()


def reserved(x: trtp.TensorDesc, stream: int) -> trtp.TensorDesc:
    return x.like()


def returns_nothing(x: trtp.TensorDesc):  # type: ignore[no-untyped-def]
    return x.like()


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (no_annotation, "'x' has no annotation"),
        (with_default, "'n' has a default"),
        (with_rest, "not a plain one"),
        (tensor_last, "tensor 'x' comes after an attribute"),
        (wrong_attribute, "no plan can store"),
        (reserved, "'stream' cannot be the name"),
        (returns_nothing, "return annotation tells how many outputs"),
        (len, "decorates a function"),
    ],
)
def test_register_refuses(function: Any, expected: str) -> None:
    with pytest.raises(ValueError, match=expected) as caught:
        trtp.register("sig::bad")(function)
    assert isinstance(caught.value, dovetail.UsageError)


@pytest.mark.parametrize(
    "name", ["relu", "trt::relu", "tensorrt::relu", "std::relu", "::relu", "a::", "a.b::c", "a::b::c"]
)
def test_names_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="name"):
        trtp.register(name)(plain)


def test_a_name_is_defined_once_and_first() -> None:
    trtp.register("sig::once")(plain)
    with pytest.raises(ValueError, match="registered twice"):
        trtp.register("sig::once")(plain)
    with pytest.raises(ValueError, match="is not registered"):
        trtp.impl("sig::never")(plain)


def impl_ok(x, f, outputs, stream):  # type: ignore[no-untyped-def]
    pass


def impl_annotated(
    x: trtp.Tensor,
    n: int,
    f: float,
    outputs: Tuple[trtp.Tensor],  # noqa: UP006
    stream: int,
    tactic: Optional[int],  # noqa: UP045
) -> None:
    pass


def impl_wrong_input(y, outputs, stream):  # type: ignore[no-untyped-def]
    pass


def impl_no_stream(x, outputs):  # type: ignore[no-untyped-def]
    pass


def impl_order(x, f, n, outputs, stream):  # type: ignore[no-untyped-def]
    pass


def impl_unknown(x, q, outputs, stream):  # type: ignore[no-untyped-def]
    pass


def impl_type(x: trtp.Tensor, n: float, outputs: Tuple[trtp.Tensor], stream: int) -> None:  # noqa: UP006
    pass


def impl_desc(x: trtp.TensorDesc, outputs: Tuple[trtp.Tensor], stream: int) -> None:  # noqa: UP006
    pass


def impl_returns(x: trtp.Tensor, outputs: Tuple[trtp.Tensor], stream: int) -> int:  # noqa: UP006
    return 0


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (impl_wrong_input, r"expected \(x, \[n\], \[f\], outputs, stream, \[tactic\]\)"),
        (impl_no_stream, "not those that this function gets"),
        (impl_order, "in the order of the register function"),
        (impl_unknown, "'q' is no attribute"),
        (impl_type, "'n' has another annotation"),
        (impl_desc, "'x' has another annotation"),
        (impl_returns, "return annotation is another"),
    ],
)
def test_impl_refuses(function: Any, expected: str) -> None:
    trtp.register("sig::impl")(plain)
    with pytest.raises(ValueError, match=expected):
        trtp.impl("sig::impl")(function)
    trtp.impl("sig::impl")(impl_ok)
    with pytest.raises(ValueError, match="already"):
        trtp.impl("sig::impl")(impl_annotated)


def test_annotations_may_be_there_or_not() -> None:
    trtp.register("sig::a")(plain)
    trtp.impl("sig::a")(impl_annotated)


def test_ahead_of_time_needs_its_return_annotation() -> None:
    trtp.register("sig::aot")(plain)

    def bare(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc], tactic: int):  # type: ignore[no-untyped-def]  # noqa: UP006
        return None

    with pytest.raises(ValueError, match="return annotation is missing"):
        trtp.aot_impl("sig::aot")(bare)

    def right(
        x: trtp.TensorDesc,
        n: int,
        outputs: tuple[trtp.TensorDesc],
        tactic: int,
    ) -> Tuple[Union[str, bytes], Union[str, bytes], trtp.KernelLaunchParams, trtp.SymExprs]:  # noqa: UP006, UP007
        raise AssertionError

    trtp.aot_impl("sig::aot")(right)

    def tune(x: trtp.TensorDesc, outputs: Tuple[trtp.TensorDesc]) -> List[trtp.AutoTuneCombination]:  # noqa: UP006
        return []

    trtp.autotune("sig::aot")(tune)


class FakeTensor:
    dtype, shape = dovetail.float32, (2,)


@pytest.mark.parametrize(
    ("arguments", "attributes", "expected"),
    [
        ((FakeTensor(),), {"n": 1}, "'f' has no value"),
        ((FakeTensor(),), {"n": 1, "f": 1.0, "q": 2}, "no attribute 'q'"),
        ((FakeTensor(),), {"n": True, "f": 1.0}, "'n' is of another type"),
        ((FakeTensor(),), {"n": 1, "f": 1}, "'f' is of another type"),
        ((3,), {"n": 1, "f": 1.0}, "'x' is no tensor"),
        ((), {"n": 1, "f": 1.0}, "1 tensors: x"),
    ],
)
def test_calls_are_checked(arguments: Any, attributes: Any, expected: str) -> None:
    trtp.register("sig::call")(plain)
    with pytest.raises(ValueError, match=expected):
        trtp.op.sig.call(*arguments, **attributes)


def test_arrays_are_of_their_type_and_one_dimension() -> None:
    def desc(x: trtp.TensorDesc, a: npt.NDArray[np.int32]) -> trtp.TensorDesc:
        return x.like()

    trtp.register("sig::array")(desc)
    call = trtp.op.sig.array(FakeTensor(), a=np.array([1], np.int32))
    assert call.attributes["a"].tolist() == [1]
    for wrong in (np.array([1]), np.array([[1]], np.int32), [1]):
        with pytest.raises(ValueError, match="no array of its type"):
            trtp.op.sig.array(FakeTensor(), a=wrong)


def test_plugins_without_a_function_and_unknown_names() -> None:
    trtp.register("sig::idle", lazy_register=True)(plain)
    call = trtp.op.sig.idle(FakeTensor(), n=1, f=2.0)
    with pytest.raises(ValueError, match="add an @impl or an @aot_impl"):
        call()
    with pytest.raises(AttributeError, match="did you mean 'idle'"):
        _ = trtp.op.sig.idel
    with pytest.raises(AttributeError, match="no plugin 'nowhere"):
        _ = trtp.op.nowhere.x


def test_a_lazy_plugin_is_registered_when_it_is_called() -> None:
    trtp.register("sig::lazy", lazy_register=True)(plain)
    registry = dovetail.get_plugin_registry()
    assert registry.find_creator("lazy", "1", "sig") is None
    trtp.op.sig.lazy(FakeTensor(), n=1, f=2.0)
    assert registry.find_creator("lazy", "1", "sig") is not None
