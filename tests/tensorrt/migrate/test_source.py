"""What the migration does to sources: formatting, other styles, and what it cannot decide."""

from __future__ import annotations

import pytest

from dovetail.errors import InputError
from dovetail_tensorrt.migrate.module import migrate_source

ODD = '''\
# a licence

import   tensorrt as  trt   # odd spaces


class P( trt.IPluginV2DynamicExt ):
\t"""Tabs, and no constructor."""
\tnum_outputs=1; plugin_type='P'
\tplugin_version = '1'  # why not

\t# says where it is from
\t@property
\tdef origin(self): return 'here'

\tdef get_output_datatype(self, index, input_types): return input_types[0]

\tdef get_output_dimensions( self , output_index , inputs , b ) :
\t\t# the same
\t\treturn inputs[ 0 ]   # all of it

\tdef supports_format_combination(self, pos, in_out, n):
\t\treturn helper(in_out, pos)

\tdef configure_plugin(self, i, o): pass
\tdef enqueue(self, *args): pass
\tdef serialize(self): return ''
\tdef clone(self): return P()


def unrelated( a,b ):
\treturn a+b
'''


def test_formatting_and_comments_stay() -> None:
    code = migrate_source(ODD).code
    for kept in (
        *("# a licence\n", "import   tensorrt as  trt   # odd spaces\n", "\tplugin_version = '1'  # why not\n"),
        *("\t# says where it is from\n\t@property\n\tdef origin(self): return 'here'\n",),
        *("\t\t# the same\n\t\treturn [inputs[ 0 ]]   # all of it\n", "def unrelated( a,b ):\n\treturn a+b\n"),
        *("\tdef get_output_data_types(self, input_types): return [input_types[0]]\n",),
        *("\tnum_outputs=1; plugin_name='P'\n",),
    ):
        assert kept in code, code
    assert "    " not in code.replace("    trt", "")
    assert '\t\tself.plugin_namespace = ""\n' in code
    assert "\t\tin_out = [dynamic.desc for dynamic in in_out[: pos + 1]]\n\t\treturn helper(in_out, pos)\n" in code
    compile(code, "odd", "exec")


def test_what_cannot_be_decided_is_noted_with_its_line() -> None:
    source = """\
import tensorrt as trt


class P(trt.IPluginV2DynamicExt):
    def __init__(self):
        super().__init__()
        self.num_outputs = 1

    def attach_to_context(self, cudnn, cublas, allocator):
        self.handle = cublas

    def configure_plugin(self, inp, out):
        self.plan = choose(inp)

    def get_workspace_size(self, inp, out):
        return size_of(inp[0])

    def initialize(self):
        self.table = 1

    def clone(self):
        twin = P()
        twin.initialize()
        return twin


class Q(P):
    def get_workspace_size(self, inp, out):
        return super().get_workspace_size(inp, out) + 1


limit = trt.IPluginV2DynamicExt.FORMAT_COMBINATION_LIMIT
"""
    done = migrate_source(source)
    assert [(note.line, note.what) for note in done.notes] == [
        (9, "attach_to_context uses 'cublas', which is None now"),
        (13, "configure_plugin passes descriptors on; on_shape_change, which does the same before runs, does so too"),
        (16, "get_workspace_size passes descriptors on"),
        (21, "clone calls initialize on the twin"),
        (29, "get_workspace_size passes descriptors on"),
        (29, "super().get_workspace_size has another form in the migrated base"),
        (32, "'trt.IPluginV2DynamicExt.FORMAT_COMBINATION_LIMIT' has no equal in V3"),
    ]
    assert all(note.why for note in done.notes)
    assert (done.plugins, done.creators) == (("P", "Q"), ())


def test_trivial_hooks_go_and_others_stay_under_private_names() -> None:
    source = '''\
import tensorrt as trt


class P(trt.IPluginV2DynamicExt):
    def initialize(self):
        """Nothing to do."""
        return 0

    def terminate(self):
        pass

    def destroy(self):
        self.closed = True

    def get_serialization_size(self):
        return 0

    def serialize(self):
        return b""
'''
    code = migrate_source(source).code
    assert "initialize" not in code
    assert "terminate" not in code
    assert "get_serialization_size" not in code
    assert "    def destroy(self):\n        self.closed = True\n" in code
    assert "_is_initialized" not in code


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("network.add_plugin_v2([x], p)", "network.add_plugin_v3([x], [], p)"),
        (
            "network.add_plugin_v2(inputs=[x], plugin=p)",
            "network.add_plugin_v3(inputs=[x], shape_inputs=[], plugin=p)",
        ),
        ("creator.create_plugin('P', fc)", "creator.create_plugin('P', fc, trt.TensorRTPhase.BUILD)"),
        (
            "creator.create_plugin(name='P', field_collection=fc)",
            "creator.create_plugin(name='P', field_collection=fc, phase=trt.TensorRTPhase.BUILD)",
        ),
        ("isinstance(p, trt.IPluginV2DynamicExt)", "isinstance(p, trt.IPluginV3)"),
        ("registry.get_plugin_creator('P', '1', '')", "registry.get_creator('P', '1', '')"),
        ("print(p.plugin_type)", "print(p.plugin_name)"),
    ],
)
def test_callers_follow(call: str, expected: str) -> None:
    source = f"import tensorrt as trt\n\n\nclass C(trt.IPluginCreator):\n    pass\n\n\n{call}\n"
    assert migrate_source(source).code.endswith(f"\n\n\n{expected}\n")


def test_names_that_are_imported_one_by_one_are_imported_anew() -> None:
    body = "    def create_plugin(self, n, f):\n        return None\n"
    source = f"from tensorrt import IPluginCreator, TensorFormat\n\n\nclass C(IPluginCreator):\n{body}"
    code = migrate_source(source).code
    assert code.startswith("from tensorrt import IPluginCreatorV3One, TensorFormat, TensorRTPhase\n")


def test_methods_with_other_parameters_are_left_and_noted() -> None:
    source = (
        "import tensorrt as trt\nclass P(trt.IPluginV2DynamicExt):\n    def get_output_dimensions(self, *a): return 1\n"
    )
    done = migrate_source(source)
    assert [(note.line, note.what) for note in done.notes] == [
        (3, "get_output_dimensions takes other parameters than the interface gives it")
    ]
    assert "    def get_output_dimensions(self, *a): return 1\n" in done.code


def test_methods_that_have_a_name_of_v3_already_step_aside() -> None:
    method = "    def get_output_data_types(self, index, types): return 1\n"
    done = migrate_source(f"import tensorrt as trt\nclass P(trt.IPluginV2DynamicExt):\n{method}")
    assert [note.what for note in done.notes] == ["get_output_data_types is a method of V3, which V2 never called"]
    assert "    def v2_get_output_data_types(self, index, types): return 1\n" in done.code


def test_a_plugin_that_stores_nothing_has_no_fields() -> None:
    done = migrate_source("import tensorrt as trt\n\n\nclass P(trt.IPluginV2DynamicExt):\n    pass\n")
    assert "    def get_fields_to_serialize(self):\n        return trt.PluginFieldCollection([])\n" in done.code


def test_calls_of_hooks_follow_and_those_of_other_objects_stay() -> None:
    source = """\
import tensorrt as trt


class P(trt.IPluginV2DynamicExt):
    def initialize(self):
        pool.initialize()
        self.pool.terminate()
        return 0

    def terminate(self):
        self.done = True

    def serialize(self):
        return b""

    def reset(self):
        self.terminate()
        twin = P()
        twin.initialize()
        return self.serialize() + engine.serialize()


pool.terminate()
"""
    code = migrate_source(source).code
    for kept in ("pool.initialize()", "self.pool.terminate()", "engine.serialize()", "\n\n\npool.terminate()\n"):
        assert kept in code
    for changed in ("self._terminate()", "twin._initialize()", "self._serialize() + "):
        assert changed in code


def test_methods_that_are_assigned_are_noted() -> None:
    source = (
        "import tensorrt as trt\nclass P(trt.IPluginV2DynamicExt):\n    get_output_datatype = lambda s, i, t: t[0]\n"
    )
    assert [(note.line, note.what) for note in migrate_source(source).notes] == [
        (3, "get_output_datatype is assigned and not defined")
    ]


@pytest.mark.parametrize(("method", "count"), [("__init__(self)", 0), ("deserialize_plugin(self, name, data)", 1)])
def test_a_class_derived_from_a_creator_is_noted_for_methods_that_have_another_form(method: str, count: int) -> None:
    creator = "class C(trt.IPluginCreator):\n    def create_plugin(self, name, fc):\n        pass\n"
    derived = f"class D(C):\n    def {method}:\n        pass\n"
    done = migrate_source(f"import tensorrt as trt\n\n\n{creator}\n\n{derived}")
    assert len([note for note in done.notes if "class D derives from C" in note.what]) == count


def test_creators_with_other_parameters_are_noted_and_defaults_stay() -> None:
    head = "import tensorrt as trt\n\n\nclass C(trt.IPluginCreator):\n"
    done = migrate_source(f"{head}    def create_plugin(self, *args):\n        return None\n")
    assert [(note.line, note.what) for note in done.notes] == [
        (5, "create_plugin takes other parameters than the interface gives it")
    ]
    code = migrate_source(f"{head}    def create_plugin(self, name, fc=None):\n        return None\n").code
    assert "def create_plugin(self, name, fc=None, phase=trt.TensorRTPhase.BUILD):" in code
    compile(code, "defaults", "exec")


def test_a_class_on_one_line_is_migrated() -> None:
    code = migrate_source("import tensorrt as trt\nclass P(trt.IPluginV2): num_outputs = 1\n").code
    compile(code, "line", "exec")
    assert "    num_outputs = 1\n" in code


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1\n", "file.py: there is no V2 plugin and no V2 creator in it"),
        ("def f(:\n", "file.py:1: this is no Python"),
    ],
)
def test_other_files_are_refused(source: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        migrate_source(source, where="file.py")


def test_a_migrated_file_has_nothing_more_to_migrate() -> None:
    with pytest.raises(InputError, match="there is no V2 plugin"):
        migrate_source(migrate_source(ODD).code)
