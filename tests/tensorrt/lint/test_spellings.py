"""Spellings of stored field pointers (L06) and of back-pointers (L05): every one is found, and no copy is."""

# ruff: noqa: E501 - a sample a line

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from dovetail_tensorrt.lint import lint_paths

MEMBERS = (
    "float const* mWeights; std::string mName; std::vector<float> mValues; PluginField mField; PluginFieldCollection mFields; "
    "std::vector<PluginField> mList; std::string_view mView; std::span<float const> mSpan; char const* mText; "
    "PluginFieldCollection const* mFc; Weights mW; void const* mRaw; std::vector<float const*> mPointers;"
)
CREATE = (
    "IPluginV3* createPlugin(char const* name, PluginFieldCollection const* fc, TensorRTPhase phase) noexcept override"
)
PLUGIN = "class P : public nvinfer1::IPluginV3, public nvinfer1::IPluginV3OneRuntime\n{\npublic:\n"
PYTHON = "import tensorrt as trt\nclass P(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):\n"

KEPT = (
    "mWeights = static_cast<float const*>(fc->fields[0].data);",
    "mWeights = reinterpret_cast<const float*>(fc->fields[0].data);",
    "mWeights = (float const*)fc->fields[0].data;",
    "mWeights = (const float*)(fc->fields[0].data);",
    "mRaw = fc->fields[0].data;",
    "this->mRaw = fc->fields[i].data;",
    "const auto* p = static_cast<float const*>(fc->fields[0].data); mWeights = p;",
    "const auto* p = fc->fields; mRaw = p[0].data;",
    "auto const& f = fc->fields[0]; mRaw = f.data;",
    "PluginField const& f = fc->fields[0]; mRaw = f.data;",
    "PluginField const* f = &fc->fields[0]; mRaw = f->data;",
    "auto f = fc->fields[0]; mField = f;",
    "mField = fc->fields[0];",
    "mFields = *fc;",
    "mFc = fc;",
    "mView = std::string_view{static_cast<char const*>(fc->fields[0].data), 4};",
    "mView = std::string_view(static_cast<char const*>(fc->fields[0].data), static_cast<size_t>(fc->fields[0].length));",
    "std::string_view v{static_cast<char const*>(fc->fields[0].data)}; mView = v;",
    "mSpan = std::span<float const>(static_cast<float const*>(fc->fields[0].data), 4);",
    "mSpan = {static_cast<float const*>(fc->fields[0].data), 4};",
    "mText = fc->fields[0].name;",
    "mText = static_cast<char const*>(fc->fields[0].data);",
    "mText = name;",
    "mW = Weights{DataType::kFLOAT, fc->fields[0].data, fc->fields[0].length};",
    "Weights w{DataType::kFLOAT, fc->fields[0].data, 3}; mW = w;",
    "mW.values = fc->fields[0].data;",
    "mList.push_back(fc->fields[0]);",
    "mList.assign(fc->fields, fc->fields + fc->nbFields);",
    "mPointers.push_back(static_cast<float const*>(fc->fields[0].data));",
    "for (int i = 0; i < fc->nbFields; ++i) { auto const* d = fc->fields[i].data; if (i) { mRaw = d; } }",
    "static auto const* kept = static_cast<float const*>(fc->fields[0].data); return new P(*kept);",
    "auto* p = new P; p->mWeights = static_cast<float const*>(fc->fields[0].data); return p;",
    "auto p = std::make_unique<P>(); p->weights = fc->fields[0].data; return p.release();",
    "float const* w = static_cast<float const*>(fc->fields[0].data) + 1; mWeights = w;",
    "mWeights = &static_cast<float const*>(fc->fields[0].data)[1];",
    "mWeights = fc->nbFields ? static_cast<float const*>(fc->fields[0].data) : nullptr;",
    "float const* w; w = static_cast<float const*>(fc->fields[0].data); mWeights = w;",
    "auto const* w = static_cast<float const*>(fc->fields[0].data); return new P(w, 3);",
    "auto const* w = static_cast<float const*>(fc->fields[0].data); return new P{w};",
    "return new P(static_cast<float const*>(fc->fields[0].data));",
    "auto const* w = static_cast<float const*>(fc->fields[0].data); return std::make_unique<P>(w).release();",
    "gWeights = static_cast<float const*>(fc->fields[0].data);",
)

COPIED = (
    "mValues.assign(static_cast<float const*>(fc->fields[0].data), static_cast<float const*>(fc->fields[0].data) + 3);",
    "float w = *static_cast<float const*>(fc->fields[0].data); return new P(w);",
    "float w = static_cast<float const*>(fc->fields[0].data)[0]; return new P(w);",
    "std::memcpy(mValues.data(), fc->fields[0].data, 12);",
    "mName = static_cast<char const*>(fc->fields[0].data);",
    "mName = fc->fields[0].name;",
    "mName = name;",
    "std::string s = static_cast<char const*>(fc->fields[0].data); return new P(s);",
    "std::string const s{static_cast<char const*>(fc->fields[0].data), 4}; mName = s;",
    "auto const* p = static_cast<float const*>(fc->fields[0].data); std::vector<float> v(p, p + 3); return new P(v);",
    "auto const* p = static_cast<float const*>(fc->fields[0].data); mValues = std::vector<float>(p, p + 3);",
    "auto const* p = static_cast<float const*>(fc->fields[0].data); mValues = {p, p + 3};",
    "PluginField const& f = fc->fields[0]; int n = f.length; mName = std::to_string(n);",
    "return new P(*fc);",
    "return new P(fc);",
    "return new P(name, fc);",
    "auto v = std::make_shared<std::vector<float>>(static_cast<float const*>(fc->fields[0].data), static_cast<float const*>(fc->fields[0].data) + 3); return nullptr;",
    "int n; n = *static_cast<int const*>(fc->fields[0].data); return new P(n);",
    "float const* w; w = static_cast<float const*>(fc->fields[0].data); return new P(w[0], w[1]);",
    "mValues.push_back(*static_cast<float const*>(fc->fields[0].data));",
)

# The body of the creator, and a class before it.
KEPT_BY_CONSTRUCTORS = (
    (
        "return new P(static_cast<float const*>(fc->fields[0].data));",
        "class P : public IPluginV3 { public: P(float const* w) : mW(w) {} float const* mW; };",
    ),
    (
        "return new P(*fc);",
        "class P : public IPluginV3 { public: P(PluginFieldCollection const& fc) : mFc(&fc) {} PluginFieldCollection const* mFc; };",
    ),
    (
        "return new P(fc);",
        "class P : public IPluginV3 { public: P(PluginFieldCollection const* fc) { mW = static_cast<float const*>(fc->fields[0].data); } float const* mW; };",
    ),
    (
        "return new P(fc);",
        "class P : public IPluginV3 { public: explicit P(PluginFieldCollection const* fc) : mFc{fc} {} PluginFieldCollection const* mFc; };",
    ),
    (
        "return new P(fc->fields[0]);",
        "class P : public IPluginV3 { public: explicit P(PluginField const& f) : mW{static_cast<float const*>(f.data)} {} float const* mW; };",
    ),
)

COPIED_BY_CONSTRUCTORS = (
    (
        "return new P(static_cast<float const*>(fc->fields[0].data));",
        "class P : public IPluginV3 { public: P(float const* w) : mW(w, w + 3) {} std::vector<float> mW; };",
    ),
    (
        "return new P(static_cast<char const*>(fc->fields[0].data));",
        "class P : public IPluginV3 { public: P(char const* w) : mW(w) {} std::string mW; };",
    ),
    (
        "return new P(fc);",
        "class P : public IPluginV3 { public: P(PluginFieldCollection const* fc) { mW = *static_cast<float const*>(fc->fields[0].data); } float mW; };",
    ),
)

BACK_POINTERS = (
    "P() : mRuntime(this) {}\nIPluginV3* clone() noexcept override { return new P(*this); }",
    "P() : mRuntime{this} {}\nIPluginV3* clone() noexcept override { return new P{*this}; }",
    "P() { mRuntime = new Runtime(this); }\nIPluginV3* clone() noexcept override { auto* p = new P(); p->mRuntime = mRuntime; return p; }",
    "P() { mRuntime = std::make_unique<Runtime>(this); }\nIPluginV3* clone() noexcept override { auto* p = new P(); p->mRuntime = std::make_unique<Runtime>(*mRuntime); return p; }",
    "P() { mRuntime = std::make_shared<Runtime>(this); }\nIPluginV3* clone() noexcept override { auto p = std::make_unique<P>(); p->mRuntime = mRuntime; return p.release(); }",
    "P() { mRuntime.mPlugin = this; }\nIPluginV3* clone() noexcept override { return new P(*this); }",
    "P() { mRuntime.setPlugin(this); }\nIPluginV3* clone() noexcept override { return new P(*this); }",
    "P() { mRuntime->mPlugin = this; }\nIPluginV3* clone() noexcept override { auto* p = new P; p->mRuntime = this->mRuntime; return p; }",
    "P() : mRuntime(this) {}\nP(P const& other) : mRuntime(other.mRuntime) {}\nIPluginV3* clone() noexcept override { return new P(*this); }",
    "P() : mRuntime(this) {}\nIPluginV3* clone() noexcept override { return new P(); }\nIPluginV3* attachToContext(IPluginResourceContext* c) noexcept override { auto* p = new P(); p->mRuntime = mRuntime; return p; }",
)

OWN_POINTERS = (
    "P() : mRuntime(this) {}\nP(P const& other) : mRuntime(this) {}\nIPluginV3* clone() noexcept override { return new P(*this); }",
    "P() : mRuntime(this) {}\nIPluginV3* clone() noexcept override { return new P(); }",
    "P() { mRuntime = new Runtime(this); }\nIPluginV3* clone() noexcept override { auto* p = new P(); p->mGain = mGain; return p; }",
    "P() { mRuntime.mPlugin = this; }\nIPluginV3* clone() noexcept override { auto* p = new P(*this); p->mRuntime.mPlugin = p; return p; }",
    "P() { mRuntime.setPlugin(this); }\nIPluginV3* clone() noexcept override { auto* p = new P(*this); p->mRuntime.setPlugin(p); return p; }",
    "P() : mRuntime(this) {}\nIPluginV3* clone() noexcept override { auto p = std::make_unique<P>(*this); p->mRuntime.mPlugin = p.get(); return p.release(); }",
    "P() { mRuntime = std::make_shared<Runtime>(); }\nIPluginV3* clone() noexcept override { auto p = std::make_unique<P>(); p->mRuntime = mRuntime; return p.release(); }",
)

PYTHON_BACK_POINTERS = (
    "def __init__(self):\n    self.runtime = Runtime(self)\ndef clone(self):\n    return copy.copy(self)",
    "def __init__(self):\n    self.runtime = Runtime(self)\ndef clone(self):\n    t = P()\n    t.runtime = self.runtime\n    return t",
    "def __init__(self):\n    self.runtime = Runtime(plugin=self)\ndef clone(self):\n    t = P()\n    t.runtime = copy.copy(self.runtime)\n    return t",
    "def __init__(self):\n    self.runtime = Runtime()\n    self.runtime.plugin = self\ndef clone(self):\n    t = P()\n    t.__dict__.update(self.__dict__)\n    return t",
)

PYTHON_OWN_POINTERS = (
    "def __init__(self):\n    self.runtime = Runtime(self)\ndef clone(self):\n    return P()",
    "def __init__(self):\n    self.runtime = Runtime(self)\ndef clone(self):\n    t = copy.copy(self)\n    t.runtime = Runtime(t)\n    return t",
    "def __init__(self):\n    self.runtime = Runtime()\n    self.runtime.plugin = self\ndef clone(self):\n    t = copy.copy(self)\n    t.runtime = copy.copy(self.runtime)\n    t.runtime.plugin = t\n    return t",
)


def find(tmp_path: Path, source: str, rule: str, suffix: str = ".cpp") -> int:
    path = tmp_path / f"plugin{suffix}"
    path.write_text(source)
    return sum(finding.rule == rule for finding in lint_paths([path]).findings)


def creator(body: str, before: str = "") -> str:
    head = "#include <NvInfer.h>\nusing namespace nvinfer1;\n"
    return f"{head}{before}\nclass C : public IPluginCreatorV3One {{ public: {CREATE} {{ {body} }}\n{MEMBERS} }};"


@pytest.mark.parametrize("body", KEPT)
def test_a_pointer_into_a_field_that_is_kept_is_found(body: str, tmp_path: Path) -> None:
    assert find(tmp_path, creator(body), "L06")


@pytest.mark.parametrize("body", COPIED)
def test_a_copy_of_a_field_is_not_reported(body: str, tmp_path: Path) -> None:
    assert not find(tmp_path, creator(body), "L06")


@pytest.mark.parametrize(("body", "before"), KEPT_BY_CONSTRUCTORS)
def test_a_constructor_that_keeps_a_pointer_is_found(body: str, before: str, tmp_path: Path) -> None:
    assert find(tmp_path, creator(body, before), "L06")


@pytest.mark.parametrize(("body", "before"), COPIED_BY_CONSTRUCTORS)
def test_a_constructor_that_copies_is_not_reported(body: str, before: str, tmp_path: Path) -> None:
    assert not find(tmp_path, creator(body, before), "L06")


@pytest.mark.parametrize("parameters", ["void const* data, size_t length", "const void* data, std::size_t length"])
def test_stored_bytes_that_are_kept_are_found(parameters: str, tmp_path: Path) -> None:
    source = (
        f"class C : public IPluginCreator {{ IPluginV2* deserializePlugin(char const* name, {parameters}) noexcept override "
        "{ %s } float const* mWeights; float mGain; };"
    )
    assert find(tmp_path, source % "mWeights = static_cast<float const*>(data); return nullptr;", "L06")
    assert not find(tmp_path, source % "mGain = *static_cast<float const*>(data); return nullptr;", "L06")


@pytest.mark.parametrize("body", BACK_POINTERS)
def test_a_part_that_knows_the_original_is_found(body: str, tmp_path: Path) -> None:
    assert find(tmp_path, f"{PLUGIN}{body}\n}};\n", "L05")


@pytest.mark.parametrize("body", OWN_POINTERS)
def test_a_part_that_knows_its_own_object_is_not_reported(body: str, tmp_path: Path) -> None:
    assert not find(tmp_path, f"{PLUGIN}{body}\n}};\n", "L05")


@pytest.mark.parametrize("body", PYTHON_BACK_POINTERS)
def test_a_part_in_python_that_knows_the_original_is_found(body: str, tmp_path: Path) -> None:
    assert find(tmp_path, PYTHON + textwrap.indent(body, "    ") + "\n", "L05", ".py")


@pytest.mark.parametrize("body", PYTHON_OWN_POINTERS)
def test_a_part_in_python_that_knows_its_own_object_is_not_reported(body: str, tmp_path: Path) -> None:
    assert not find(tmp_path, PYTHON + textwrap.indent(body, "    ") + "\n", "L05", ".py")
