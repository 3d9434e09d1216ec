"""Quick layers: shapes, types, tactics, attributes, and the whole life that the contract gives a plugin."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import dovetail
from dovetail.errors import PluginError, UsageError
from dovetail.expr import Constant, IExprBuilder, Symbol, evaluate
from dovetail.formats import pack, unpack
from dovetail.plugin.arrays import address_of
from dovetail.plugin.check import check_creator
from dovetail.plugin.fields import PluginField, PluginFieldCollection, PluginFieldType, decode_fields, encode_fields
from dovetail.plugin.handle import PluginHandle
from dovetail.plugin.interfaces import IPluginResourceContext
from dovetail.plugin.quick import LayerPlugin, QuickLayer, layer
from dovetail.plugin.registry import get_plugin_registry
from dovetail.plugin.symbolic import ceil_div
from dovetail.types import DataType, DynamicPluginTensorDesc, PluginTensorDesc, TensorFormat, TensorRTPhase

F32, F16, BF16, I32 = DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.INT32


@pytest.fixture(autouse=True)
def _clean_global() -> Iterator[None]:
    registry = get_plugin_registry()
    before = registry.all_creators
    yield
    for creator in registry.all_creators:
        if not any(creator is known for known in before):
            registry.deregister_creator(creator)


def make_scaled_relu() -> QuickLayer:
    @dovetail.layer("my::scaled_relu", tactics=("where", "maximum"))
    def scaled_relu(x, *, alpha: float = 1.0, tactic: str = "where"):  # type: ignore[no-untyped-def]
        if tactic == "where":
            return np.where(x > 0, x * alpha, 0)
        return np.maximum(x, 0) * alpha

    return scaled_relu


def descs(*arrays: npt.NDArray[Any], format_: TensorFormat = TensorFormat.LINEAR) -> list[PluginTensorDesc]:
    return [
        PluginTensorDesc(array.shape, dovetail.types.data_type_from_numpy(array.dtype), format_) for array in arrays
    ]


def run(plugin: LayerPlugin, inputs: list[npt.NDArray[Any]], *outputs: npt.NDArray[Any]) -> None:
    plugin.on_shape_change(descs(*inputs), descs(*outputs))
    plugin.enqueue(descs(*inputs), descs(*outputs), [*map(address_of, inputs)], [*map(address_of, outputs)], 0, 0)


def proposal(*types_and_formats: tuple[Any, Any]) -> list[DynamicPluginTensorDesc]:
    dims = (1, 4, 2, 2)
    return [DynamicPluginTensorDesc(PluginTensorDesc(dims, t, f), dims, dims, dims) for t, f in types_and_formats]


def test_a_layer_with_dynamic_shapes_two_tactics_and_an_attribute_fits_in_fifteen_lines() -> None:
    lines = inspect.getsource(make_scaled_relu).splitlines()[1:-2]
    assert len(lines) <= 15
    made = make_scaled_relu()
    plugin = made.plugin(alpha=2.0)
    dims = [[Symbol("n"), Constant(3)]]
    assert list(plugin.get_output_shapes(dims, [], IExprBuilder())[0]) == dims[0]  # type: ignore[arg-type]
    assert plugin.get_valid_tactics() == [1, 2]
    x = np.array([-1, 2], np.float32)
    for tactic in (0, 1, 2):
        plugin.set_tactic(tactic)
        out = np.full(2, np.nan, np.float32)
        run(plugin, [x], out)
        assert out.tolist() == [0, 4]


def test_the_function_can_still_be_called() -> None:
    made = make_scaled_relu()
    assert made(np.array([-1.0, 2.0]), alpha=3.0, tactic="maximum").tolist() == [0, 6]
    assert "my::scaled_relu" in repr(made)
    assert "test_quick.py" in repr(made)


def test_the_creator_is_registered_under_name_version_and_namespace() -> None:
    made = make_scaled_relu()
    creator = get_plugin_registry().get_creator("scaled_relu", "1", "my")
    assert creator is made.creator
    assert [field.name for field in creator.field_names] == ["alpha"]
    other = layer("Plain", version="7")(lambda x: x)
    assert get_plugin_registry().get_creator("Plain", "7") is other.creator


def test_another_function_of_the_same_name_is_refused_but_a_rerun_replaces() -> None:
    first = make_scaled_relu()
    second = make_scaled_relu()
    assert get_plugin_registry().get_creator("scaled_relu", "1", "my") is second.creator
    assert first.creator is not second.creator
    with pytest.raises(PluginError, match="already registered") as caught:

        @layer("my::scaled_relu")
        def other(x: Any) -> Any:
            return x

    assert str(caught.value).count("test_quick.py") == 2


def test_a_plugin_passes_through_its_whole_life_with_tactic_and_attributes() -> None:
    made = make_scaled_relu()
    plugin = made.plugin(alpha=2.5)
    handle = PluginHandle(plugin, phase=TensorRTPhase.BUILD, owned=False)
    assert (handle.name, handle.version, handle.namespace) == ("scaled_relu", "1", "my")
    assert handle.num_outputs == 1
    plugin.set_tactic(2)
    for twin in (plugin.clone(), plugin.attach_to_context(IPluginResourceContext())):
        assert twin is not plugin
        assert twin.attributes == {"alpha": 2.5}
        assert twin._tactic == 2
        assert twin._keywords == {"alpha": 2.5, "tactic": "maximum"}
        assert twin._keywords is not plugin._keywords
    stored = encode_fields(plugin.get_fields_to_serialize(), where="here")
    again = made.creator.create_plugin("again", decode_fields(stored), TensorRTPhase.RUNTIME)
    assert again.attributes == {"alpha": 2.5}
    assert again.timing_cache_id == plugin.timing_cache_id


def test_tactics_out_of_range_are_refused() -> None:
    plugin = make_scaled_relu().plugin()
    for tactic in (-1, 3):
        with pytest.raises(PluginError, match="expected 0 to 2"):
            plugin.set_tactic(tactic)


def test_tactic_zero_is_the_functions_default_or_the_first() -> None:
    @layer("t::second", tactics=("a", "b"))
    def second(x: Any, *, tactic: str = "b") -> Any:
        return x + (1 if tactic == "a" else 2)

    @layer("t::first", tactics=("a", "b"))
    def first(x: Any, *, tactic: str) -> Any:
        return x + (1 if tactic == "a" else 2)

    for made, expected in ((second, 2), (first, 1)):
        out = np.zeros(1, np.float32)
        run(made.plugin(), [np.zeros(1, np.float32)], out)
        assert out[0] == expected


def test_the_timing_cache_id_follows_attributes_and_code_but_not_the_tactic() -> None:
    made = make_scaled_relu()
    base = made.plugin(alpha=1.0)
    assert base.timing_cache_id
    base.set_tactic(2)
    assert base.clone().timing_cache_id == made.plugin().timing_cache_id
    assert made.plugin(alpha=2.0).timing_cache_id != base.timing_cache_id
    edited = layer("my::edited")(lambda x, *, alpha=1.0: x)
    assert edited.plugin().timing_cache_id != base.timing_cache_id


# shapes


def test_shapes_are_computed_with_operators() -> None:
    def pooled(x: Any, *, size: int) -> Any:
        return (x[0], x[1], ceil_div(x[2], size), (x[3] - size) // 2 + 1)

    @layer("t::pool", shape=pooled)
    def pool(x: Any, *, size: int = 2) -> Any:
        return x

    dims = [[Symbol("n"), Constant(3), Symbol("h"), Constant(9)]]
    (shape,) = pool.plugin(size=4).get_output_shapes(dims, [], IExprBuilder())  # type: ignore[arg-type]
    assert [evaluate(expr, {"n": 2, "h": 10}) for expr in shape] == [2, 3, 3, 3]
    assert pooled((2, 3, 10, 9), size=4) == (2, 3, 3, 3)


def test_several_outputs_have_several_shapes_and_types() -> None:
    @layer("t::split", outputs=2)
    def split(x: Any) -> Any:
        half = x.shape[0] // 2
        return x[:half], x[half:].astype(np.int32)

    @split.shape
    def split_shape(x: Any) -> Any:
        return (x[0] // 2, *x[1:]), (x[0] - x[0] // 2, *x[1:])

    @split.types
    def split_types(x: DataType) -> Any:
        return x, I32

    plugin = split.plugin()
    first, second = plugin.get_output_shapes([[Symbol("n"), Constant(2)]], [], IExprBuilder())  # type: ignore[list-item]
    assert [evaluate(first[0], {"n": 5}), evaluate(second[0], {"n": 5})] == [2, 3]
    assert plugin.get_output_data_types([F32]) == [F32, I32]
    a, b = np.zeros((2, 2), np.float32), np.zeros((3, 2), np.int32)
    run(plugin, [np.arange(10, dtype=np.float32).reshape(5, 2)], a, b)
    assert a.tolist() == [[0, 1], [2, 3]]
    assert b.tolist() == [[4, 5], [6, 7], [8, 9]]


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (lambda x: (x[0] / 2,), "unsupported operand"),
        (lambda x: (1.5,), "made from input dimensions"),
        (lambda x: (max(x[0], x[1]),), "dim_max"),
        (lambda x: ((x[0],), (x[1],)), "one shape for each output"),
    ],
)
def test_wrong_shape_functions_are_explained(shape: Any, words: str) -> None:
    made = layer("t::wrong", shape=shape)(lambda x: x)
    with pytest.raises((PluginError, TypeError), match=words):
        made.plugin().get_output_shapes([[Symbol("n"), Symbol("m")]], [], IExprBuilder())  # type: ignore[list-item]


# types and formats


def test_by_default_floats_of_one_type_in_one_format_are_taken() -> None:
    @layer("t::add")
    def add(x: Any, y: Any) -> Any:
        return x + y

    plugin, linear = add.plugin(), TensorFormat.LINEAR
    unread = (None, None)
    for dtype in (F32, F16, BF16):
        assert plugin.get_output_data_types([dtype, dtype]) == [dtype]
        assert plugin.supports_format_combination(0, proposal((dtype, linear), unread, unread), 2)
        assert plugin.supports_format_combination(1, proposal((dtype, linear), (dtype, linear), unread), 2)
        assert plugin.supports_format_combination(2, proposal(*[(dtype, linear)] * 3), 2)
    assert not plugin.supports_format_combination(0, proposal((I32, linear), unread, unread), 2)
    assert not plugin.supports_format_combination(0, proposal((F32, TensorFormat.CHW32), unread, unread), 2)
    assert not plugin.supports_format_combination(1, proposal((F32, linear), (F16, linear), unread), 2)
    assert not plugin.supports_format_combination(2, proposal((F32, linear), (F32, linear), (F16, linear)), 2)
    with pytest.raises(PluginError, match="does not take these input types; got FLOAT, INT32"):
        plugin.get_output_data_types([F32, I32])


def test_a_types_function_decides_for_all_positions() -> None:
    @layer("t::gather", types=lambda x, i: x if i is I32 else None)
    def gather(x: Any, i: Any) -> Any:
        return x[i]

    plugin, linear = gather.plugin(), TensorFormat.LINEAR
    unread = (None, None)
    assert plugin.supports_format_combination(0, proposal((DataType.BOOL, linear), unread, unread), 2)
    assert plugin.supports_format_combination(1, proposal((DataType.BOOL, linear), (I32, linear), unread), 2)
    assert not plugin.supports_format_combination(1, proposal((F32, linear), (DataType.INT64, linear), unread), 2)
    assert plugin.supports_format_combination(2, proposal((F32, linear), (I32, linear), (F32, linear)), 2)
    assert not plugin.supports_format_combination(2, proposal((F32, linear), (I32, linear), (I32, linear)), 2)


def test_a_types_function_that_returns_nonsense_is_explained() -> None:
    made = layer("t::nonsense", types=lambda x: "float")(lambda x: x)
    with pytest.raises(PluginError, match="must return a DataType"):
        made.plugin().get_output_data_types([F32])


def test_a_layer_may_take_vectorised_formats() -> None:
    @layer("t::neg", formats=(TensorFormat.LINEAR, TensorFormat.CHW2))
    def neg(x: Any) -> Any:
        return -x

    plugin, chw2 = neg.plugin(), TensorFormat.CHW2
    assert plugin.supports_format_combination(1, proposal((F16, chw2), (F16, chw2)), 1)
    assert not plugin.supports_format_combination(1, proposal((F16, chw2), (F16, TensorFormat.LINEAR)), 1)
    x = np.arange(12, dtype=np.float16).reshape(1, 3, 2, 2)
    packed = pack(x, chw2)
    out = np.empty_like(packed)
    desc = descs(x, format_=chw2)
    plugin.enqueue(desc, desc, [address_of(packed)], [address_of(out)], 0, 0)
    assert (unpack(out, chw2, x.shape) == -x).all()


def test_bfloat16_works() -> None:
    out = np.zeros(2, ml_dtypes.bfloat16)
    run(make_scaled_relu().plugin(alpha=2), [np.array([-1, 2], ml_dtypes.bfloat16)], out)
    assert out.tolist() == [0, 4]


def test_empty_tensors_run() -> None:
    out = np.zeros((0, 3), np.float32)
    plugin = make_scaled_relu().plugin()
    plugin.enqueue(descs(out), descs(out), [0], [0], 0, 0)


def test_a_layer_may_take_any_number_of_inputs_or_none() -> None:
    @layer("t::sum")
    def total(*xs: Any) -> Any:
        return np.sum(xs, axis=0)

    out = np.zeros(2, np.float32)
    run(total.plugin(), [np.ones(2, np.float32)] * 3, out)
    assert out.tolist() == [3, 3]

    @layer("t::seven", shape=lambda *, count: (count,))
    def seven(*, count: int = 2) -> Any:
        return np.full(count, 7, np.float32)

    assert seven.plugin().get_output_data_types([]) == [F32]
    run(seven.plugin(), [], out)
    assert out.tolist() == [7, 7]
    with pytest.raises(PluginError, match="wrong number of inputs; expected x, got 2"):
        make_scaled_relu().plugin().get_output_data_types([F32, F32])
    with pytest.raises(PluginError, match="no default shape"):
        layer("t::lost")(lambda: 0).plugin().get_output_shapes([], [], IExprBuilder())


# outputs


def test_out_is_the_planned_buffer() -> None:
    seen = []

    @layer("t::inplace")
    def double(x: Any, *, out: Any) -> None:
        seen.append(address_of(out))
        np.multiply(x, 2, out=out)

    out = np.zeros(2, np.float32)
    run(double.plugin(), [np.array([1, 2], np.float32)], out)
    assert out.tolist() == [2, 4]
    assert seen == [address_of(out)]

    @layer("t::both", outputs=2)
    def both(x: Any, *, out: Any) -> None:
        out[0][...] = x
        out[1][...] = -x

    other = np.zeros(2, np.float32)
    run(both.plugin(), [np.array([1, 2], np.float32)], out, other)
    assert (out.tolist(), other.tolist()) == ([1, 2], [-1, -2])


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (lambda x: x[:1], r"output 0 has another shape than declared; expected \(2,\), got \(1,\)"),
        (lambda x: np.float32(1), "another shape"),
        (lambda x: x.astype(np.complex64), "does not fit the declared one; expected float32, got complex64"),
        (lambda x: (x, x), "one array for each output; expected 1 arrays, got 2"),
        (lambda x: None, "the function returned nothing"),
    ],
)
def test_results_that_do_not_fit_are_explained(function: Any, words: str) -> None:
    out = np.zeros(2, np.float32)
    with pytest.raises(PluginError, match=words):
        run(layer("t::misfit")(function).plugin(), [np.ones(2, np.float32)], out)


def test_inputs_cannot_be_written() -> None:
    @layer("t::naughty")
    def naughty(x: Any) -> Any:
        x += 1
        return x

    x = np.zeros(2, np.float32)
    with pytest.raises(ValueError, match="read-only"):
        run(naughty.plugin(), [x], np.zeros(2, np.float32))
    assert not x.any()


# attributes


def all_attributes() -> QuickLayer:
    @layer("t::attributes")
    def everything(
        x: Any,
        *,
        count: int,
        ratio: float = 0.1,
        flag: bool = True,
        mode: str = "same",
        blob: bytes = b"\x00\xff",
        axes: tuple[int, ...] = (),
        scales: list[float] = [1.0, 0.5],  # noqa: B006 - converted to a tuple
        table: np.ndarray = np.eye(2, dtype=np.float32),  # type: ignore[type-arg]  # noqa: B008
        inferred=(1, 2),  # type: ignore[no-untyped-def]
    ) -> Any:
        return x

    return everything


def test_every_kind_of_attribute_survives_a_plan_exactly() -> None:
    made = all_attributes()
    table = np.arange(6, dtype=ml_dtypes.bfloat16).reshape(2, 3)
    given = {"count": -(2**40), "ratio": 0.1, "flag": False, "mode": "é", "blob": b"", "axes": (3, -1), "table": table}
    plugin = made.plugin(**given)
    stored = encode_fields(plugin.get_fields_to_serialize(), where="here")
    again = made.creator.create_plugin("x", decode_fields(stored), TensorRTPhase.RUNTIME)
    assert again.timing_cache_id == plugin.timing_cache_id
    expected = {**given, "scales": (1.0, 0.5), "inferred": (1, 2)}
    assert set(again.attributes) == set(expected)
    for name, value in expected.items():
        if name != "table":
            assert again.attributes[name] == value
    assert again.attributes["table"].dtype == table.dtype
    assert (again.attributes["table"] == table).all()


def test_arrays_are_copied_once_and_shared_by_clones() -> None:
    made = all_attributes()
    table = np.eye(2, dtype=np.float32)
    plugin = made.plugin(count=1, table=table)
    table[...] = 9
    kept = plugin.attributes["table"]
    assert (kept == np.eye(2)).all()
    assert not kept.flags.writeable
    assert plugin.clone().attributes["table"] is kept


def test_fields_are_copied_out_of_their_memory() -> None:
    made = all_attributes()
    count, table = np.array([3], np.int64), np.ones(2, np.float32)
    fields = PluginFieldCollection(
        [
            PluginField("count", count, PluginFieldType.INT64),
            PluginField("table", table, PluginFieldType.FLOAT32),
            PluginField("mode"),
        ]
    )
    plugin = made.creator.create_plugin("x", fields, TensorRTPhase.BUILD)
    count[...] = table[...] = 0
    assert plugin.attributes["count"] == 3
    assert plugin.attributes["table"].tolist() == [1, 1]
    assert plugin.attributes["mode"] == "same"


def test_fields_from_an_onnx_node_are_understood() -> None:
    made = all_attributes()
    fields = PluginFieldCollection(
        [
            PluginField("count", np.array([3], np.int32), PluginFieldType.INT32),
            PluginField("ratio", np.array([0.5], np.float32), PluginFieldType.FLOAT32),
            PluginField("flag", np.array([0], np.int32), PluginFieldType.INT32),
            PluginField("mode", b"valid\0", PluginFieldType.CHAR),
            PluginField("axes", np.array([1, 2], np.int32), PluginFieldType.INT32),
        ]
    )
    values = made.creator.create_plugin("x", fields, TensorRTPhase.BUILD).attributes
    assert (values["count"], values["ratio"], values["flag"], values["mode"]) == (3, 0.5, False, "valid")
    assert values["axes"] == (1, 2)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([PluginField("cuont", np.zeros(1, np.int32), PluginFieldType.INT32)], "unknown field 'cuont'"),
        ([PluginField("count", np.zeros(2, np.int32), PluginFieldType.INT32)], "must hold one value; got 2"),
        ([PluginField("count", np.array([0.5], np.float32), PluginFieldType.FLOAT32)], "'count' cannot be 0.5"),
        ([], "attribute 'count' has no value"),
    ],
)
def test_wrong_fields_are_explained(fields: list[PluginField], words: str) -> None:
    with pytest.raises((PluginError, UsageError), match=words):
        all_attributes().creator.create_plugin("x", PluginFieldCollection(fields), TensorRTPhase.BUILD)


@pytest.mark.parametrize(
    ("attributes", "words"),
    [
        ({"cuont": 1}, "there is no attribute 'cuont'.*did you mean 'count'"),
        ({}, "attribute 'count' has no value"),
        ({"count": 1.5}, "'count' cannot be 1.5; expected an integer"),
        ({"count": 1, "ratio": "x"}, "expected a number"),
        ({"count": 1, "flag": 2}, "expected True or False"),
        ({"count": 1, "mode": b"x"}, "expected a string"),
        ({"count": 1, "mode": "a\0"}, "expected a string without NUL"),
        ({"count": 1, "blob": "x"}, "expected bytes"),
        ({"count": 1, "axes": 3}, "expected a tuple of integers"),
        ({"count": 1, "scales": ["x"]}, "expected a tuple of numbers"),
        ({"count": 1, "table": object()}, "expected an array"),
    ],
)
def test_wrong_attributes_are_explained(attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=f"(?s){words}"):
        all_attributes().plugin(**attributes)


def _default_among_inputs(x: Any, alpha: float = 1.0) -> Any: ...
def _keywords(x: Any, **rest: Any) -> Any: ...
def _no_kind(x: Any, *, thing: Any) -> Any: ...
def _union(x: Any, *, thing: int | None = None) -> Any: ...
def _takes_tactic(x: Any, *, tactic: str = "a") -> Any: ...
def _plain(x: Any) -> Any: ...


@pytest.mark.parametrize(
    ("options", "function", "words"),
    [
        ({}, _default_among_inputs, r"put a \* before it: def layer\(x, \*, alpha=...\)"),
        ({}, _keywords, "hides the attributes"),
        ({}, _no_kind, "no kind that a plan can store"),
        ({}, _union, "no kind that a plan can store"),
        ({}, _takes_tactic, "the layer has none"),
        ({"tactics": ("b",)}, _takes_tactic, "default tactic is not one of"),
        ({"tactics": ("a", "a")}, _takes_tactic, "different names"),
        ({"tactics": "ab"}, _takes_tactic, "different names"),
        ({"tactics": ("a",)}, _plain, "its function takes none"),
        ({"outputs": 0}, _plain, "at least one output"),
        ({"formats": ()}, _plain, "at least one format"),
        ({}, np.add, "wrap it in a def"),
    ],
)
def test_functions_that_cannot_be_layers_are_refused(options: dict[str, Any], function: Any, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        layer("t::refused", **options)(function)
    assert get_plugin_registry().find_creator("refused", "1", "t") is None


def test_annotations_that_cannot_be_resolved_leave_it_to_the_default() -> None:
    def later(x: Missing, *, alpha: float = 1.0) -> Any:  # type: ignore[name-defined]  # noqa: F821
        return x

    assert layer("t::later")(later).plugin(alpha=2).attributes == {"alpha": 2.0}


def test_layers_keep_every_rule_of_the_contract() -> None:
    @layer("t::doubled", shape=lambda x, *, times: (x[0] * times, *x[1:]))
    def repeated(x: Any, *, times: int = 2, out: Any) -> None:
        np.copyto(out, np.broadcast_to(x, (times, *x.shape)).reshape(out.shape))

    for made in (make_scaled_relu(), repeated):
        report = check_creator(made.creator)
        assert report.ok, report.render()


def test_two_contexts_in_two_threads() -> None:
    made = make_scaled_relu()
    base = made.plugin(alpha=2.0)
    base.set_tactic(1)
    failures: list[str] = []

    def work(value: float) -> None:
        plugin = base.attach_to_context(IPluginResourceContext())
        x, out = np.full(50, value, np.float32), np.zeros(50, np.float32)
        for _ in range(200):
            out[...] = 0
            run(plugin, [x], out)
            if not (out == 2 * value).all():
                failures.append(str(value))

    threads = [threading.Thread(target=work, args=(float(n + 1),)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
