"""ONNX import: what a model becomes, which nodes become plugins and with which fields, and what errors tell."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx_ir as ir
import pytest
from onnx import TensorProto, helper, numpy_helper, parser

import dovetail as dt
from dovetail.errors import DovetailError, ModelError, PluginError, ResourceError, UnsupportedOpError, UsageError
from dovetail.loggers import ILogger, Severity
from dovetail.network.importer.importer import import_model
from dovetail.network.inference.dim_exprs import expr_from_dim
from dovetail.network.inference.symbols import DIMS_KEY
from dovetail.network.plugins import PLUGIN_DOMAIN, PLUGIN_OP, entry_of
from dovetail.plugin.quick import QuickLayer
from tests.support.plugins import ScalePlugin

HEADER = '<ir_version: 10, opset_import: ["" : 21, "acme" : 1]>\n'


class Notes(ILogger):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[Severity, str]] = []

    def log(self, severity: Severity, msg: str) -> None:
        self.messages.append((severity, msg))

    def warnings(self) -> list[str]:
        return [text for severity, text in self.messages if severity <= Severity.WARNING]


class Creator(dt.IPluginCreatorV3One):
    """Makes ``ScalePlugin`` and keeps the fields it was given."""

    def __init__(self, name: str = "Foo", *fields: str, version: str = "1", outputs: int = 1) -> None:
        dt.IPluginCreatorV3One.__init__(self)
        self.name = name
        self.plugin_version = version
        self.plugin_namespace = ""
        self.field_names = dt.PluginFieldCollection([dt.PluginField(field) for field in fields])
        self.outputs = outputs
        self.given: dict[str, dt.PluginField] = {}
        self.calls: list[Any] = []
        self.made: list[Any] = []

    def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
        self.given = {field.name: field for field in field_collection}
        self.made.append((name, phase))
        plugin = ManyPlugin(2.0, self.calls)
        plugin.num_outputs = self.outputs
        return plugin


class ManyPlugin(ScalePlugin):
    """Any number of outputs, each like the first input."""

    def get_output_data_types(self, input_types: Any) -> Any:
        return [input_types[0]] * self.num_outputs

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, exprBuilder: Any) -> Any:
        self.note("shape_inputs", [list(values) for values in shape_inputs])
        return [dt.DimsExprs(inputs[0])] * self.num_outputs


def make(text: str) -> onnx.ModelProto:
    return parser.parse_model(HEADER + text)


def registry_with(*creators: Any, namespace: str = "") -> dt.PluginRegistry:
    registry = dt.PluginRegistry()
    for creator in creators:
        registry.register_creator(creator, namespace)
    return registry


def plugin_nodes(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph.all_nodes() if entry_of(node) is not None]


def ops(graph: ir.Graph) -> list[str]:
    return [node.op_type for node in graph]


CHAIN = "agraph (float[N,4] x) => (float[N,4] y) <float[4] w = {1, 2, 3, 4}> { t = Mul(x, w)  y = Relu(t) }"


class TestSources:
    def test_every_kind_of_source_gives_the_same_model(self, tmp_path: Path) -> None:
        proto = make(CHAIN)
        onnx.save(proto, tmp_path / "m.onnx")
        path = tmp_path / "m.onnx"
        for source in (path, str(path), proto.SerializeToString(), proto, ir.from_proto(proto)):
            model = import_model(source)
            assert ops(model.graph) == ["Mul", "Relu"]
            assert list(model.graph.initializers) == ["w"]
            assert [str(value.shape) for value in model.graph.outputs] == ["[N,4]"]

    def test_what_was_passed_is_left_as_it_is(self) -> None:
        proto = make("agraph (float[N,4] x) => (float[N,4] y) { y = Foo(x) }")
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "seq-len"
        source = ir.from_proto(proto)
        before, before_ir = proto.SerializeToString(), ir.to_proto(source).SerializeToString()
        import_model(proto, registry=registry_with(Creator()))
        import_model(source, registry=registry_with(Creator()))
        assert proto.SerializeToString() == before
        assert ir.to_proto(source).SerializeToString() == before_ir
        assert ops(source.graph) == ["Foo"]

    def test_a_path_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(ModelError, match=r"none\.onnx.*cannot be read"):
            import_model(tmp_path / "none.onnx")

    def test_something_else(self) -> None:
        with pytest.raises(UsageError, match="no model"):
            import_model(42)  # type: ignore[arg-type]

    def test_an_unsorted_model_in_memory(self) -> None:
        x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1]))
        first = ir.Node("", "Relu", [x])
        second = ir.Node("", "Neg", [first.outputs[0]])
        graph = ir.Graph([x], [second.outputs[0]], nodes=[second, first], opset_imports={"": 21})
        assert [node.op_type for node in import_model(ir.Model(graph, ir_version=10)).graph] == ["Relu", "Neg"]

    def test_weights_are_arrays_of_their_own(self) -> None:
        proto = make(CHAIN)
        model = import_model(proto)
        proto.graph.initializer[0].float_data[0] = 99
        tensor = model.graph.initializers["w"].const_value
        assert isinstance(tensor, ir.Tensor)
        assert tensor.numpy().tolist() == [1, 2, 3, 4]

    def test_inputs_with_initializers_are_weights(self) -> None:
        proto = make(CHAIN)
        proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4]))
        model = import_model(proto)
        assert [value.name for value in model.graph.inputs] == ["x"]
        assert list(model.graph.initializers) == ["w"]

    def test_a_wrong_declared_shape_of_a_weight_gives_way(self) -> None:
        proto = make(CHAIN)
        proto.graph.value_info.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [1, 1, 4]))
        value = import_model(proto).graph.initializers["w"]
        assert value.shape == [4]

    def test_unnamed_and_doubly_named_nodes_get_names(self) -> None:
        proto = make("agraph (float[1] x) => (float[1] y) { a = Relu(x) b = Relu(a) c = Neg(b) y = Neg(c) }")
        for node, name in zip(proto.graph.node, ["", "Relu", "n", "n"], strict=True):
            node.name = name
        names = [node.name for node in import_model(proto).graph]
        assert names[1:3] == ["Relu", "n"]
        assert len(set(names)) == 4
        assert all(names)


class TestShapes:
    def test_dims_that_are_no_names_get_safe_ones(self) -> None:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["seq-len", "seq len", "2*N", "N", 3])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
        value = model.graph.inputs[0]
        assert value.shape is not None
        dims = list(value.shape)
        assert len({str(dim) for dim in dims}) == 5
        assert [dim if isinstance(dim, int) else dim.value.isidentifier() for dim in dims] == [True] * 4 + [3]
        assert dims[3] == "N"
        assert json.loads(value.metadata_props[DIMS_KEY]) == ["seq-len", "seq len", "2*N", "N", 3]
        assert model.graph.outputs[0].shape == value.shape

    def test_one_name_stays_one_symbol(self) -> None:
        inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["a/b"]) for name in "xz"]
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([helper.make_node("Add", ["x", "z"], ["y"])], "g", inputs, [y])
        model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
        first, second = model.graph.inputs
        assert first.shape == second.shape == model.graph.outputs[0].shape

    @pytest.mark.parametrize("name", ["_d0", "size_0_0", "value_x_0", "ß", "1st", "max("])
    def test_names_that_the_engine_uses_are_renamed(self, name: str) -> None:
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [name])
        y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
        model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
        value = model.graph.inputs[0]
        assert value.shape is not None
        assert value.shape[0] != name
        assert json.loads(value.metadata_props[DIMS_KEY]) == [name]

    def test_unknown_dims_get_different_names(self) -> None:
        proto = make("agraph (float[?,?] x, float[?] z) => (float y) { y = Add(x, z) }")
        proto.graph.input[1].type.tensor_type.shape.dim[0].dim_value = -1
        model = import_model(proto)
        names = [str(dim) for value in model.graph.inputs for dim in value.shape or ()]
        assert names == ["x_dim_0", "x_dim_1", "z_dim_0"]

    def test_what_is_inferred_wins_over_what_is_declared(self) -> None:
        proto = make("agraph (float[N,4] x) => (float[M,4] y) { t = Relu(x) y = Neg(t) }")
        proto.graph.value_info.append(helper.make_tensor_value_info("t", TensorProto.FLOAT, ["old-name", 7]))
        model = import_model(proto)
        assert [str(node.outputs[0].shape) for node in model.graph] == ["[N,4]", "[N,4]"]

    def test_a_declared_output_shape_that_differs_is_a_warning(self) -> None:
        notes = Notes()
        import_model(make("agraph (float[2] x) => (float[3] y) { y = Relu(x) }"), logger=notes)
        assert len(notes.warnings()) == 1
        assert "declared [3] and computed as [2]" in notes.warnings()[0]

    def test_sizes_that_only_the_run_knows(self) -> None:
        text = "agraph (float[6,2] x, int64[2] s) => (float[A,2] y, float[B,2] z) { y, z = Split<axis=0>(x, s) }"
        model = import_model(make(text))
        shapes = [list(value.shape or ()) for value in model.graph.outputs]
        assert [shape[1] for shape in shapes] == [2, 2]
        assert [str(expr_from_dim(shape[0])) for shape in shapes] == ["value_s_0", "value_s_1"]

    def test_bodies_are_typed_from_outside(self) -> None:
        text = """agraph (float[N] x, int64 n, bool c) => (float[N] y) {
            y = Loop (n, c, x) <body = b (i, k, v) => (k2, v2) { k2 = Identity(k) v2 = Add(v, v) }> }"""
        proto = make(text)
        body = proto.graph.node[0].attribute[0].g
        for value in [*body.input, *body.output]:
            value.ClearField("type")
        model = import_model(proto)
        assert model.graph.outputs[0].dtype == ir.DataType.FLOAT
        inner = model.graph[0].attributes["body"].as_graph()
        assert [value.dtype for value in inner.inputs] == [ir.DataType.INT64, ir.DataType.BOOL, ir.DataType.FLOAT]

    def test_control_flow_keeps_its_bodies(self) -> None:
        text = """agraph (float[N] x, bool c) => (float[N] y) {
            y = If (c) <then_branch = t () => (float[N] a) { a = Neg(x) },
                        else_branch = e () => (float[N] b) { s = Foo(x) b = Relu(s) }> }"""
        creator = Creator()
        model = import_model(make(text), registry=registry_with(creator))
        assert [str(value.shape) for value in model.graph.outputs] == ["[N]"]
        (node,) = plugin_nodes(model)
        assert node.graph is model.graph[0].attributes["else_branch"].as_graph()


class TestFunctions:
    FUNCTIONS = """
        <domain: "acme", opset_import: ["" : 21]> Twice (a) => (r) { r = Add(a, a) }
        <domain: "acme", opset_import: ["" : 21, "acme" : 1]> Four <k> (a) => (r) {
            t = acme.Twice(a) u = acme.Twice(t) r = LeakyRelu<alpha = @k>(u) }"""

    def test_calls_are_expanded(self) -> None:
        text = "agraph (float[N] x) => (float[N] y) { t = acme.Four<k = 0.5>(x) y = acme.Twice(t) }"
        model = import_model(make(text + self.FUNCTIONS))
        assert ops(model.graph) == ["Add", "Add", "LeakyRelu", "Add"]
        assert model.graph[2].attributes["alpha"].as_float() == 0.5
        assert not model.functions
        assert [value.name for value in model.graph.outputs] == ["y"]

    def test_a_function_may_return_its_argument_or_one_value_twice(self) -> None:
        text = """agraph (float[N] x) => (float[N] y, float[N] z, float[N] w) { y, z, w = acme.Same(x) }
            <domain: "acme", opset_import: ["" : 21]> Same (a) => (a, r, r) { r = Neg(a) }"""
        model = import_model(make(text))
        assert [value.name for value in model.graph.inputs] == ["x"]
        assert [value.name for value in model.graph.outputs] == ["y", "z", "w"]
        assert sorted(ops(model.graph)) == ["Identity", "Identity", "Neg"]

    def test_a_function_wins_over_a_plugin_unless_asked(self) -> None:
        creator = Creator("Twice")
        registry = registry_with(creator)
        text = "agraph (float[N] x) => (float[N] y) { y = acme.Twice(x) }" + self.FUNCTIONS
        assert ops(import_model(make(text), registry=registry).graph) == ["Add"]
        assert ops(import_model(make(text), registry=registry, override={"Twice"}).graph) == [PLUGIN_OP]
        asked = text.replace("acme.Twice(x)", 'acme.Twice<plugin_namespace = "">(x)')
        assert ops(import_model(make(asked), registry=registry).graph) == [PLUGIN_OP]

    def test_a_plugin_inside_a_function(self) -> None:
        text = """agraph (float[N] x) => (float[N] y) { y = acme.Wrap<k = 0.25>(x) }
            <domain: "acme", opset_import: ["" : 21, "acme" : 1]> Wrap <k> (a) => (r) { r = acme.Foo<alpha = @k>(a) }"""
        creator = Creator("Foo", "alpha")
        model = import_model(make(text), registry=registry_with(creator))
        assert len(plugin_nodes(model)) == 1
        assert creator.given["alpha"].data is not None
        assert creator.given["alpha"].data.tolist() == [0.25]

    def test_functions_that_call_themselves(self) -> None:
        text = """agraph (float[N] x) => (float[N] y) { y = acme.A(x) }
            <domain: "acme", opset_import: ["" : 21, "acme" : 1]> A (a) => (r) { r = acme.B(a) }
            <domain: "acme", opset_import: ["" : 21, "acme" : 1]> B (a) => (r) { r = acme.A(a) }"""
        with pytest.raises(ModelError, match="calls itself: 'A' -> 'B' -> 'A'"):
            import_model(make(text))

    def test_functions_that_grow_without_end(self) -> None:
        text = "agraph (float[N] x) => (float[N] y) { y = acme.F29(x) }"
        text += '<domain: "acme", opset_import: ["" : 21]> F0 (a) => (r) { r = Neg(a) }'
        for level in range(1, 30):
            text += f"""<domain: "acme", opset_import: ["" : 21, "acme" : 1]> F{level} (a) => (r) {{
                t = acme.F{level - 1}(a) r = acme.F{level - 1}(t) }}"""
        with pytest.raises(ResourceError, match="expand to 536,870,912 nodes; expected at most"):
            import_model(make(text))

    def test_another_opset_in_a_function(self) -> None:
        text = "agraph (float[N] x) => (float[N] y) { y = acme.Twice(x) }"
        text += self.FUNCTIONS.replace('"" : 21', '"" : 18')
        model = import_model(make(text))
        assert ops(model.graph) == ["Add"]
        assert model.opset_imports[""] == 21


class TestPlugins:
    def test_an_unknown_operator_becomes_a_plugin(self) -> None:
        creator = Creator()
        proto = make("agraph (float[N,4] x) => (float[N,4] y) { t = Foo(x) y = acme.Foo(t) }")
        proto.graph.node[0].name = "first"
        model = import_model(proto, registry=registry_with(creator))
        nodes = plugin_nodes(model)
        assert [(node.domain, node.op_type) for node in nodes] == [(PLUGIN_DOMAIN, PLUGIN_OP)] * 2
        assert [node.attributes["plugin"].as_int() for node in nodes] == [0, 1]
        assert nodes[0].name == "first"
        assert creator.made[0] == ("first", dt.TensorRTPhase.BUILD)
        assert model.opset_imports[PLUGIN_DOMAIN] == 1
        assert str(model.graph.outputs[0].shape) == "[N,4]"
        assert model.graph.outputs[0].name == "y"
        assert model.graph.outputs[0].dtype == ir.DataType.FLOAT

    def test_the_network_keeps_a_clone_and_lets_the_plugin_go(self) -> None:
        creator = Creator()
        proto = make("agraph (float[4] x) => (float[4] y) { y = Foo(x) }")
        model = import_model(proto, registry=registry_with(creator))
        assert [call[0] for call in creator.calls if call[0] in ("clone", "destroy")] == ["clone", "destroy"]
        copy = model.clone()
        del model
        gc.collect()
        assert [call[0] for call in creator.calls].count("destroy") == 1
        del copy
        gc.collect()
        assert [call[0] for call in creator.calls].count("destroy") == 2

    def test_version_and_namespace(self) -> None:
        old, new, other = Creator("Foo"), Creator("Foo", version="2"), Creator("Foo", version="2")
        registry = registry_with(old, new)
        registry.register_creator(other, "acme")
        for attributes, expected in [
            ("", old),
            ('<plugin_version = "2">', new),
            ('<plugin_version = "2", plugin_namespace = "acme">', other),
        ]:
            import_model(make(f"agraph (float[4] x) => (float[4] y) {{ y = Foo{attributes}(x) }}"), registry=registry)
            assert expected.made.pop() == ("Foo", dt.TensorRTPhase.BUILD)

    def test_an_operator_of_onnx_is_a_plugin_when_asked(self) -> None:
        creator = Creator("Relu")
        registry = registry_with(creator, namespace="acme")
        plain = "agraph (float[4] x) => (float[4] y) { y = Relu(x) }"
        asked = plain.replace("Relu(x)", 'Relu<plugin_namespace = "acme">(x)')
        assert not plugin_nodes(import_model(make(plain), registry=registry))
        assert len(plugin_nodes(import_model(make(asked), registry=registry))) == 1
        both = registry_with(Creator("Relu"))
        assert len(plugin_nodes(import_model(make(plain), registry=both, override=["Relu"]))) == 1

    def test_an_operator_newer_than_the_model_may_be_a_plugin(self) -> None:
        proto = make("agraph (float[4] x) => (float[4] y) { y = Gelu(x) }")
        proto.opset_import[0].version = 13
        assert len(plugin_nodes(import_model(proto, registry=registry_with(Creator("Gelu"))))) == 1
        with pytest.raises(UnsupportedOpError, match="since version 20"):
            import_model(proto, registry=registry_with())

    def test_shape_inputs(self) -> None:
        creator = Creator()
        text = """agraph (float[4] x, int64[2] s, float[4] z) => (float[4] y) {
            y = Foo<tensorrt_plugin_shape_input_indices = [-2]>(x, s, z) }"""
        (node,) = plugin_nodes(import_model(make(text), registry=registry_with(creator)))
        entry = entry_of(node)
        assert entry is not None
        assert (entry.num_inputs, entry.num_shape_inputs) == (2, 1)
        assert [value.name for value in node.inputs if value is not None] == ["x", "z", "s"]
        symbols = next(detail for method, detail in creator.calls if method == "shape_inputs")
        assert [[str(expr) for expr in values] for values in symbols] == [["value_s_0", "value_s_1"]]

    @pytest.mark.parametrize("indices", ["[2]", "[-3]", "[0, 0]", "[1, -1]"])
    def test_shape_inputs_that_are_not_there(self, indices: str) -> None:
        text = f"""agraph (float[4] x, int64[2] s) => (float[4] y) {{
            y = Foo<tensorrt_plugin_shape_input_indices = {indices}>(x, s) }}"""
        with pytest.raises(ModelError, match="must name different inputs"):
            import_model(make(text), registry=registry_with(Creator()))

    def test_an_input_left_out(self) -> None:
        proto = make('agraph (float[4] x) => (float[4] y) { y = Foo(x, "", x, "") }')
        (node,) = plugin_nodes(import_model(proto, registry=registry_with(Creator())))
        assert [str(value.shape) for value in node.inputs if value is not None] == ["[4]", "[0]", "[4]"]
        assert node.inputs[1] is not None
        assert node.inputs[1].dtype == ir.DataType.FLOAT

    def test_fewer_outputs_than_the_plugin_has(self) -> None:
        creator = Creator(outputs=3)
        proto = make("agraph (float[4] x) => (float[4] y) { y = Foo(x) }")
        (node,) = plugin_nodes(import_model(proto, registry=registry_with(creator)))
        assert len(node.outputs) == 3
        assert [value.dtype for value in node.outputs] == [ir.DataType.FLOAT] * 3

    def test_more_outputs_than_the_plugin_has(self) -> None:
        proto = make("agraph (float[4] x) => (float[4] y, float[4] z) { y, z = Foo(x) }")
        with pytest.raises(ModelError, match="more outputs than the plugin"):
            import_model(proto, registry=registry_with(Creator()))

    def test_all_missing_creators_are_listed_at_once(self) -> None:
        proto = make(
            """agraph (float[4] x) => (float[4] y) {
            a = acme.Foa<alpha = 0.5, mode = "same">(x) b = Bar(a) y = Foo<plugin_version = "3">(b) }"""
        )
        proto.graph.node[0].name = "one"
        with pytest.raises(UnsupportedOpError) as caught:
            import_model(proto, registry=registry_with(Creator("Foo"), Creator("Unrelated")))
        text = str(caught.value)
        assert "3 problems" in text
        assert "node 'one' (acme::Foa, opset 1)" in text
        assert "alpha: FLOAT=0.5" in text
        assert "mode: STRING='same'" in text
        assert "field_names 'alpha' (FLOAT32), 'mode' (CHAR)" in text
        assert "name 'Foa', plugin_version '1', plugin_namespace 'acme'" in text
        assert "near names are 'Foo' version '1'" in text
        assert "ask for version '1'" in text
        assert "opset 21" in text
        assert "register" in text

    def test_an_override_that_nobody_made(self) -> None:
        with pytest.raises(UnsupportedOpError, match="a plugin is asked for"):
            import_model(make(CHAIN), registry=registry_with(), override={"Relu"})

    def test_creators_that_fail_are_listed_together(self) -> None:
        class Refusing(Creator):
            def create_plugin(self, name: str, field_collection: Any, phase: Any) -> Any:
                if name == "none":
                    return None
                raise ValueError("alpha is missing")

        proto = make("agraph (float[4] x) => (float[4] y) { t = Foo(x) y = Foo(t) }")
        proto.graph.node[1].name = "none"
        with pytest.raises(PluginError) as caught:
            import_model(proto, registry=registry_with(Refusing()))
        assert "create_plugin raised ValueError: alpha is missing" in str(caught.value)
        assert "create_plugin returned None" in str(caught.value)
        assert "test_importer.py:" in str(caught.value)

    def test_a_network_with_plugins_can_be_imported_again(self) -> None:
        registry = registry_with(Creator())
        first = import_model(make("agraph (float[4] x) => (float[4] y) { t = Foo(x) y = Neg(t) }"), registry=registry)
        second = import_model(first, registry=registry_with())
        assert entry_of(plugin_nodes(second)[0]) is entry_of(plugin_nodes(first)[0])


def field_of(attribute: onnx.AttributeProto, declared: dt.PluginFieldType = dt.PluginFieldType.UNKNOWN) -> Any:
    creator = Creator("Foo", attribute.name)
    creator.field_names = dt.PluginFieldCollection([dt.PluginField(attribute.name, None, declared)])
    proto = make("agraph (float[4] x) => (float[4] y) { y = Foo(x) }")
    proto.graph.node[0].attribute.append(attribute)
    notes = Notes()
    import_model(proto, registry=registry_with(creator), logger=notes)
    return creator.given[attribute.name], notes


class TestFields:
    T = dt.PluginFieldType

    @pytest.mark.parametrize(
        ("value", "field_type", "expected"),
        [
            (0.5, T.FLOAT32, [0.5]),
            ([0.5, 2.0], T.FLOAT32, [0.5, 2.0]),
            (3, T.INT32, [3]),
            ([3, -4], T.INT32, [3, -4]),
        ],
    )
    def test_numbers(self, value: Any, field_type: Any, expected: list[Any]) -> None:
        field, notes = field_of(helper.make_attribute("a", value))
        assert field.type is field_type
        assert field.data.tolist() == expected
        assert not notes.warnings()

    def test_strings_end_with_nul(self) -> None:
        field, _ = field_of(helper.make_attribute("a", "same"))
        assert (field.type, bytes(field.data)) == (self.T.CHAR, b"same\0")
        field, _ = field_of(helper.make_attribute("a", ["x", "yz"]))
        assert (field.type, bytes(field.data)) == (self.T.CHAR, b"x\0yz\0")

    def test_integers_beyond_32_bits_need_a_declared_type(self) -> None:
        with pytest.raises(ModelError, match="INT32 cannot hold 4294967301"):
            field_of(helper.make_attribute("a", [1, 2**32 + 5]))

    def test_integers_beyond_32_bits_keep_their_value_in_a_field_declared_int64(self) -> None:
        field, notes = field_of(helper.make_attribute("a", [1, 2**32 + 5]), self.T.INT64)
        assert (field.type, field.data.tolist()) == (self.T.INT64, [1, 2**32 + 5])
        assert not notes.warnings()

    @pytest.mark.parametrize(
        ("dtype", "field_type"),
        [
            (np.float32, T.FLOAT32),
            (np.float16, T.FLOAT16),
            (np.float64, T.FLOAT64),
            (ml_dtypes.bfloat16, T.BF16),
            (np.int8, T.INT8),
            (np.int16, T.INT16),
            (np.int32, T.INT32),
            (np.int64, T.INT64),
            (np.uint8, T.UNKNOWN),
            (np.bool_, T.INT8),
            (ml_dtypes.float8_e4m3fn, T.FP8),
        ],
    )
    def test_tensors(self, dtype: Any, field_type: Any) -> None:
        array = np.array([[0, 1], [1, 0]], dtype)
        tensor = ir.to_proto(ir.Tensor(array, name="t"))
        field, _ = field_of(helper.make_attribute("a", tensor))
        assert field.type is field_type
        assert field.data.astype(np.float32).tolist() == [0, 1, 1, 0]
        assert field.data.flags.writeable

    def test_a_tensor_of_strings(self) -> None:
        field, _ = field_of(helper.make_attribute("a", helper.make_tensor("t", TensorProto.STRING, [2], [b"p", b"q"])))
        assert (field.type, bytes(field.data)) == (self.T.CHAR, b"p\0q\0")

    def test_a_tensor_that_no_field_can_hold(self) -> None:
        with pytest.raises(ModelError, match="UINT32 tensor cannot be a plugin field"):
            field_of(helper.make_attribute("a", numpy_helper.from_array(np.zeros(2, np.uint32))))

    def test_a_graph_is_no_field(self) -> None:
        body = helper.make_graph([], "g", [], [])
        with pytest.raises(ModelError, match="GRAPH cannot be a plugin field"):
            field_of(helper.make_attribute("a", body))

    def test_only_what_the_creator_names_is_passed_and_what_is_absent_is_told(self) -> None:
        creator = Creator("Foo", "alpha", "beta")
        notes = Notes()
        text = "agraph (float[4] x) => (float[4] y) { y = Foo<alpha = 0.5, gamma = 1>(x) }"
        import_model(make(text), registry=registry_with(creator), logger=notes)
        assert list(creator.given) == ["alpha"]
        absent, unread = notes.warnings()
        assert "'beta' has no attribute" in absent
        assert "no field for attribute(s) 'gamma'; it has 'alpha', 'beta'" in unread

    def test_a_parameter_with_a_default_needs_no_attribute(self) -> None:
        def scale(x: Any, *, by: float = 1.0) -> Any:
            return x * by

        notes, layer = Notes(), QuickLayer(scale, "Foo", "1", (), 1, (dt.TensorFormat.LINEAR,))
        text = "agraph (float[4] x) => (float[4] y) { y = Foo(x) }"
        import_model(make(text), registry=registry_with(layer.creator), logger=notes)
        assert notes.warnings() == []


class TestWrongModels:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("agraph (float[4] x) => (float[4] y) { y = Relu(q) }", ["'q' is made by nothing"]),
            ("agraph (float[4] x) => (float[4] z) { y = Relu(x) }", ["output 'z'", "nothing in the graph makes it"]),
            (
                "agraph (float[4] x) => (float[4] y) { y = Relu(t) t = Neg(y) }",
                ["'t' is used before it is made", "circle"],
            ),
            (
                """agraph (float[4] x, bool c) => (float[4] y) { t = Neg(x) y = If(c) <
                then_branch = a () => (float[4] t) { r = Abs(t) t = Neg(r) },
                else_branch = b () => (float[4] u) { u = Neg(t) }> }""",
                ["'t' is used before it is made", "then_branch"],
            ),
            ("agraph (float[4] x) => (float[4] y) { y = Relu(x) y = Neg(x) }", ["'y' has a name that is taken"]),
            ("agraph (float[4] x) => (float[4] x2) { x = Relu(x) x2 = Neg(x) }", ["'x' has a name that is taken"]),
            ("agraph (float[4] x) => (float[4] y) { y = Relu(x, x) }", ["2 inputs; expected 1 to 1", "opset 21"]),
            ("agraph (float[4] x) => (float[4] y) { y = Add(x) }", ["1 inputs; expected 2 to 2"]),
            ('agraph (float[4] x) => (float[4] y) { y = Add("", x) }', ["'A' is required and absent"]),
            ("agraph (float[4] x) => (float[4] y) { y = LeakyRelu<alfa = 0.1>(x) }", ["did you mean 'alpha'"]),
            ("agraph (float[4] x) => (float[4] y) { y = LeakyRelu<alpha = 1>(x) }", ["'alpha' is INT; expected FLOAT"]),
            ("agraph (float[4] x) => (float[4] y) { y = Cast(x) }", ["'to' is required and absent"]),
            ("agraph (float[4] x, int64[4] z) => (float[4] y) { y = Add(x, z) }", ["one type; got FLOAT and INT64"]),
            ("agraph (bool[4] x) => (bool[4] y) { y = Relu(x) }", ["is BOOL, which the operator does not take"]),
            ("agraph (float[4] x) => (int64[4] y) { y = Relu(x) }", ["declared INT64 and computed as FLOAT"]),
            ("agraph (float[4] x, float[5] z) => (float[4] y) { y = Add(x, z) }", ["shapes do not fit"]),
        ],
    )
    def test_the_error_names_the_problem(self, text: str, words: list[str]) -> None:
        with pytest.raises(ModelError) as caught:
            import_model(make(text))
        for word in words:
            assert word in str(caught.value)

    def test_all_problems_come_in_one_error(self) -> None:
        proto = make("agraph (float[4] x) => (float[4] y) { a = Relu(q) b = Relu(r) b = Neg(x) y = Neg(b) }")
        proto.graph.initializer.append(helper.make_tensor("w", TensorProto.FLOAT, [2], [1, 2]))
        proto.graph.initializer[0].dims[0] = 3
        with pytest.raises(ModelError) as caught:
            import_model(proto)
        assert "4 problems" in str(caught.value)
        for word in ("'q'", "'r'", "'b'", "expected 3 entries of float_data, got 2"):
            assert word in str(caught.value)

    def test_operators_and_plugins_are_told_together(self) -> None:
        with pytest.raises(ModelError) as caught:
            import_model(make("agraph (float[4] x) => (float[4] y) { a = Nope(x) b = Relu(a, a) y = Neg(b) }"))
        assert "2 problems" in str(caught.value)

    @pytest.mark.parametrize(
        "text",
        [
            "agraph (seq(float[4]) x) => (float y) { y = ConcatFromSequence<axis = 0>(x) }",
            "agraph (optional(float[4]) x) => (bool y) { y = OptionalHasElement(x) }",
            "agraph (string[4] x) => (string[4] y) { y = Identity(x) }",
            "agraph (float[4] x) => (int64 y) { s = SequenceConstruct(x) y = SequenceLength(s) }",
        ],
    )
    def test_values_that_are_no_tensors_of_numbers(self, text: str) -> None:
        assert len(import_model(make(text)).graph.outputs) == 1

    def test_sparse_initializers_are_not_dropped_in_silence(self) -> None:
        proto = make("agraph (float[3] x) => (float[3] y) { y = Add(x, w) }")
        values = helper.make_tensor("w", TensorProto.FLOAT, [1], [2.0])
        indices = helper.make_tensor("i", TensorProto.INT64, [1], [1])
        proto.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [3]))
        with pytest.raises(UnsupportedOpError, match="sparse initializers"):
            import_model(proto)

    def test_opsets(self) -> None:
        proto = make(CHAIN)
        proto.opset_import[0].version = 9999
        with pytest.raises(ModelError, match="9999 is not known"):
            import_model(proto)
        del proto.opset_import[:]
        with pytest.raises(ModelError, match="imports no operator set"):
            import_model(proto)

    def test_the_long_name_of_the_operator_set(self) -> None:
        proto = make(CHAIN)
        proto.opset_import[0].domain = "ai.onnx"
        proto.graph.node[1].domain = "ai.onnx"
        model = import_model(proto)
        assert model.opset_imports[""] == 21
        assert [str(value.shape) for value in model.graph.outputs] == ["[N,4]"]

    def test_a_deprecated_operator(self) -> None:
        with pytest.raises(ModelError, match="deprecated"):
            import_model(make("agraph (float[4] x) => (float[4] y) { y = Scatter(x, x, x) }"))

    def test_names_are_shown_without_their_power(self) -> None:
        proto = make("agraph (float[4] x) => (float[4] y) { y = Foo(x) }")
        proto.graph.node[0].name = "evil\x1b[2J\nnode"
        with pytest.raises(DovetailError) as caught:
            import_model(proto, registry=registry_with())
        assert "\x1b" not in str(caught.value)
        assert "evil\\x1b[2J\\nnode" in str(caught.value)

    def test_many_problems_are_cut(self) -> None:
        nodes = " ".join(f"t{index} = Relu(q{index})" for index in range(100))
        with pytest.raises(ModelError, match="100 problems"):
            import_model(make(f"agraph (float[4] x) => (float[4] y) {{ {nodes} y = Relu(x) }}"))

    def test_a_large_model_is_quick(self) -> None:
        lines = ["v0 = Relu(x)", *(f"v{index} = Relu(v{index - 1})" for index in range(1, 5000)), "y = Neg(v4999)"]
        model = import_model(make(f"agraph (float[N,4] x) => (float[N,4] y) {{ {' '.join(lines)} }}"))
        assert len(model.graph) == 5001
