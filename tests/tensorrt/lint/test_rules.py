"""Each rule on sources that break it and on sources that keep it, in Python and in C++."""

# ruff: noqa: E501 - a sample a line

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import NamedTuple

import pytest

from dovetail_tensorrt.lint import RULES, lint_paths

PYTHON = "import tensorrt as trt\nclass P(trt.IPluginV3, trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime):\n"
CPP = "class P : public nvinfer1::IPluginV3, public nvinfer1::IPluginV3OneRuntime\n{\npublic:\n"
PYTHON_ENQUEUE = "def enqueue(self, input_desc, output_desc, inputs, outputs, workspace, stream):"
CPP_ENQUEUE = (
    "int32_t enqueue(PluginTensorDesc const* inputDesc, PluginTensorDesc const* outputDesc, void const* const* inputs, "
    "void* const* outputs, void* workspace, cudaStream_t stream) noexcept override"
)


class Sample(NamedTuple):
    """A body of a class, or with ``whole`` a file, and the rules that it breaks."""

    language: str
    body: str
    broken: str = ""
    whole: bool = False


SAMPLES = [
    # L01
    Sample("py", f"{PYTHON_ENQUEUE}\n    x = torch.empty(3)", "L01"),
    Sample("py", f"{PYTHON_ENQUEUE}\n    self.work()\ndef work(self):\n    cudart.cudaMalloc(4)", "L01"),
    Sample("py", f"{PYTHON_ENQUEUE}\n    x = torch.as_tensor(inputs[0]); y = np.empty(3)"),
    Sample("cpp", CPP_ENQUEUE + " { cudaMalloc(&p, 4); return 0; }", "L01"),
    Sample("cpp", CPP_ENQUEUE + " { auto* p = new float[4]; return 0; }", "L01"),
    Sample("cpp", CPP_ENQUEUE + " { return run(inputs); }\nint run(void const* const* i) { cublasCreate(&h); }", "L01"),
    Sample("cpp", CPP_ENQUEUE + " { launch(workspace, stream); return 0; }\nP() { cudaMalloc(&mP, 4); }\n~P() {}"),
    # L02
    Sample("py", f"{PYTHON_ENQUEUE}\n    torch.cuda.synchronize()", "L02"),
    Sample("py", f"{PYTHON_ENQUEUE}\n    y = tensor.cpu().numpy()", "L02"),
    Sample("py", f"{PYTHON_ENQUEUE}\n    cudart.cudaMemcpyAsync(a, b, 4, k, stream)"),
    Sample("cpp", CPP_ENQUEUE + " { cudaStreamSynchronize(stream); return 0; }", "L02"),
    Sample("cpp", CPP_ENQUEUE + " { cudaMemcpy(a, b, 4, cudaMemcpyDeviceToHost); return 0; }", "L02"),
    Sample("cpp", CPP_ENQUEUE + " { cudaMemcpyAsync(a, b, 4, cudaMemcpyDeviceToDevice, stream); return 0; }"),
    # L03
    Sample("py", "def clone(self):\n    t = P()\n    t.x = cp.zeros(3)\n    return t", "L03"),
    Sample("py", "def clone(self):\n    return copy.copy(self)"),
    Sample(
        "cpp",
        "IPluginV3* clone() noexcept override { auto* p = new P(*this); cudaMalloc(&p->mX, 4); return p; }",
        "L03",
    ),
    Sample("cpp", "IPluginV3* clone() noexcept override { return new P(*this); }"),
    # L04
    Sample("py", "def attach_to_context(self, context):\n    self.context = context\n    return self", "L04"),
    Sample("py", "def attach_to_context(self, context):\n    return self.clone()"),
    Sample("cpp", "IPluginV3* attachToContext(IPluginResourceContext* c) noexcept override { return this; }", "L04"),
    Sample("cpp", "IPluginV3* attachToContext(IPluginResourceContext* c) noexcept override { return clone(); }"),
    # L05
    Sample(
        "py",
        "def __init__(self):\n    self.runtime = Runtime(self)\ndef clone(self):\n    return copy.copy(self)",
        "L05",
    ),
    Sample(
        "py",
        "def __init__(self):\n    self.runtime = Runtime(self)\n"
        "def clone(self):\n    t = copy.copy(self)\n    t.runtime = Runtime(t)\n    return t",
    ),
    Sample("py", "def __init__(self):\n    self.runtime = Runtime(self)\ndef clone(self):\n    return P()"),
    Sample("cpp", "P() : mRuntime(this) {}\nIPluginV3* clone() noexcept override { return new P(*this); }", "L05"),
    Sample(
        "cpp",
        "P() { mRuntime = std::make_unique<Runtime>(this); }\n"
        "IPluginV3* clone() noexcept override { return new P(*this); }",
        "L05",
    ),
    Sample(
        "cpp",
        "P() : mRuntime(this) {}\nP(P const& other) : mRuntime(this) {}\n"
        "IPluginV3* clone() noexcept override { return new P(*this); }",
    ),
    # L06
    Sample(
        "py",
        "import tensorrt as trt\nclass C(trt.IPluginCreatorV3One):\n"
        "    def create_plugin(self, name, fc, phase):\n        return Plugin(fc[0].data)\n",
        "L06",
        whole=True,
    ),
    Sample(
        "py",
        "import tensorrt as trt\nclass C(trt.IPluginCreatorV3One):\n"
        "    def create_plugin(self, name, fc, phase):\n        return Plugin(fc[0].data.copy(), int(fc[1].data[0]))\n",
        whole=True,
    ),
    Sample(
        "cpp",
        "class C : public IPluginCreatorV3One { IPluginV3* createPlugin(char const* name, PluginFieldCollection const* fc,"
        " TensorRTPhase phase) noexcept override { mWeights = static_cast<float const*>(fc->fields[0].data); } };",
        "L06",
        whole=True,
    ),
    Sample(
        "cpp",
        "class C : public IPluginCreatorV3One { IPluginV3* createPlugin(char const* name, PluginFieldCollection const* fc,"
        " TensorRTPhase phase) noexcept override { auto const* w = static_cast<float const*>(fc->fields[0].data);"
        " return new P(w, 3); } };",
        "L06",
        whole=True,
    ),
    Sample(
        "cpp",
        "class C : public IPluginCreatorV3One { IPluginV3* createPlugin(char const* name, PluginFieldCollection const* fc,"
        " TensorRTPhase phase) noexcept override { mAxis = *static_cast<int const*>(fc->fields[0].data);"
        " return new P(mAxis); } };",
        whole=True,
    ),
    Sample(
        "cpp",
        "PluginFieldCollection const* getFieldsToSerialize() noexcept override { int32_t axis = mAxis;"
        ' mFields.emplace_back(PluginField("axis", &axis, PluginFieldType::kINT32, 1)); return &mFC; }',
        "L06",
    ),
    Sample(
        "cpp",
        "PluginFieldCollection const* getFieldsToSerialize() noexcept override {"
        ' mFields.emplace_back(PluginField("axis", &mAxis, PluginFieldType::kINT32, 1)); return &mFC; }',
    ),
    Sample(
        "py",
        "import tensorrt as trt\nclass Q:\n    def __init__(self, edges, axis=0):\n"
        "        self.edges, self.axis = [float(e) for e in edges], axis\n"
        "class C(trt.IPluginCreatorV3One):\n"
        "    def create_plugin(self, name, fc, phase):\n        return Q(fc[0].data)\n",
        whole=True,
    ),
    Sample(
        "py",
        "import tensorrt as trt\nclass Q:\n    def __init__(self, edges, axis=0):\n        self.axis = axis\n"
        "class C(trt.IPluginCreatorV3One):\n"
        "    def create_plugin(self, name, fc, phase):\n        return Q([1.0], axis=fc[0].data)\n",
        "L06",
        whole=True,
    ),
    Sample("py", "def __init__(self, fc):\n    self.scale = fc[0].data", "L06"),
    Sample("py", "def __init__(self, fc):\n    self.scale = fc[0].data.copy()"),
    # L07
    Sample("py", "def initialize(self):\n    self.table = make()", "L07"),
    Sample("py", "def __init__(self):\n    self.initialize()\ndef initialize(self):\n    self.table = make()"),
    Sample(
        "cpp", "int32_t initialize() noexcept { return setUp(); }\nvoid terminate() noexcept { tearDown(); }", "L07 L07"
    ),
    Sample("cpp", "P() { initialize(); }\nint32_t initialize() noexcept { return setUp(); }"),
    # L08
    Sample(
        "py",
        f"{PYTHON_ENQUEUE}\n    if n > 100:\n        wide[grid](x)\n    else:\n        narrow[grid](x)",
        "L08",
    ),
    Sample(
        "py", f"{PYTHON_ENQUEUE}\n    if desc.type == trt.float16:\n        a[grid](x)\n    else:\n        b[grid](x)"
    ),
    Sample(
        "cpp", CPP_ENQUEUE + " { if (n > 100) { wide<<<g, b, 0, stream>>>(x); } else { narrow<<<g, b>>>(x); } }", "L08"
    ),
    Sample(
        "cpp",
        CPP_ENQUEUE + " { switch (mode) { case 0: one<<<g, b>>>(x); break; case 1: two<<<g, b>>>(x); break; } }",
        "L08",
    ),
    Sample(
        "cpp", CPP_ENQUEUE + " { if (type == DataType::kHALF) half<<<g, b>>>(x); else full<<<g, b>>>(x); return 0; }"
    ),
    # L09
    Sample("py", "def get_valid_tactics(self):\n    return [1, 2]", "L09"),
    Sample("py", "timing_cache_id = ''\ndef get_valid_tactics(self):\n    return [1, 2]"),
    Sample("cpp", "int32_t getNbTactics() noexcept override { return 2; }", "L09"),
    Sample(
        "cpp",
        "int32_t getNbTactics() noexcept override { return 2; }\nchar const* getTimingCacheID() noexcept override;",
    ),
    Sample("py", "def get_valid_tactics(self):\n    return []"),
    Sample(
        "cpp",
        "int32_t getNbTactics() noexcept override { return 0; }\n"
        "int32_t getValidTactics(int32_t* t, int32_t n) noexcept override { return 0; }",
    ),
    # L10
    Sample("py", f"{PYTHON_ENQUEUE}\n    x = as_array(inputs[0], input_desc[0])\n    x[...] = 0", "L10"),
    Sample("py", f"{PYTHON_ENQUEUE}\n    x = as_array(inputs[0], d)\n    np.add(x, 1, out=x)", "L10"),
    Sample("py", f"{PYTHON_ENQUEUE}\n    x = as_array(inputs[0], d)\n    y = as_array(outputs[0], d)\n    y[...] = x"),
    Sample(
        "py",
        f"{PYTHON_ENQUEUE}\n    x = as_array(inputs[0], d)\n    x[...] = 0\ndef get_aliased_input(self, i):\n    return 0",
    ),
    Sample("cpp", CPP_ENQUEUE + " { auto* x = const_cast<void*>(inputs[0]); return 0; }", "L10"),
    Sample("cpp", CPP_ENQUEUE + " { auto const* x = static_cast<float const*>(inputs[0]); return 0; }"),
    # L11
    Sample("py", "import tensorrt as trt\nclass P(trt.IPluginV2DynamicExt):\n    pass\n", "L11", whole=True),
    Sample("cpp", "class P : public nvinfer1::IPluginV2IOExt {};", "L11", whole=True),
    Sample(
        "py",
        "import tensorrt as trt\nclass B(trt.IPluginV3, trt.IPluginV3OneRuntime):\n    pass\n"
        "class P(B):\n    def attach_to_context(self, context):\n        return self\n",
        "L04",
        whole=True,
    ),
    Sample(
        "cpp",
        "class B : public IPluginV3 {};\nclass P : public B { IPluginV3* attachToContext(C* c) { return this; } };",
        "L04",
        whole=True,
    ),
    # L12
    Sample("py", "def set_tactic(self, tactic):\n    self.tactic = tactic\ndef clone(self):\n    return P()", "L12"),
    Sample(
        "py",
        "def set_tactic(self, tactic):\n    self.tactic = tactic\n"
        "def clone(self):\n    t = P()\n    t.tactic = self.tactic\n    return t",
    ),
    Sample(
        "cpp",
        "int32_t setTactic(int32_t t) noexcept override { mTactic = t; return 0; }\n"
        "IPluginV3* clone() noexcept override { return new P(mAxis); }",
        "L12",
    ),
    Sample(
        "cpp",
        "int32_t setTactic(int32_t t) noexcept override { mTactic = t; return 0; }\n"
        "IPluginV3* clone() noexcept override { return new P(*this); }",
    ),
    # L13
    Sample("py", PYTHON + "    pass\nconfig.set_flag(trt.BuilderFlag.FP16)\n", "L13", whole=True),
    Sample("py", "import tensorrt as trt\nconfig.set_flag(trt.BuilderFlag.FP16)\n", whole=True),
    Sample(
        "cpp", "void f() { n->addPluginV3(i, 1, s, 0, p); config->setFlag(BuilderFlag::kFP16); }", "L13", whole=True
    ),
    # L14
    Sample(
        "py",
        PYTHON + "    def get_aliased_input(self, i):\n        return 0\nconfig = builder.create_builder_config()\n",
        "L14",
        whole=True,
    ),
    Sample(
        "py",
        PYTHON + "    def get_aliased_input(self, i):\n        return 0\nconfig = builder.create_builder_config()\n"
        "config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)\n",
        whole=True,
    ),
    # L15
    Sample("py", "def on_shape_change(self, i, o):\n    self.p = cudart.cudaMalloc(4)", "L15"),
    Sample(
        "py",
        "def on_shape_change(self, i, o):\n    self.p = cudart.cudaMalloc(4)\ndef destroy(self):\n    free(self.p)",
    ),
    Sample("cpp", "int32_t configurePlugin() noexcept override { cudaMalloc(&mP, 4); return 0; }", "L15"),
    Sample("cpp", "int32_t configurePlugin() noexcept override { cudaMalloc(&mP, 4); return 0; }\n~P() override;"),
    # L16
    Sample("cpp", 'int32_t onShapeChange() noexcept override { throw std::runtime_error("no"); }', "L16"),
    Sample("cpp", "int32_t onShapeChange() noexcept override { try { throw 1; } catch (...) { return 1; } return 0; }"),
    Sample("cpp", 'P(int n) { if (n < 0) throw std::invalid_argument("n"); }'),
    # L17
    Sample("cpp", 'extern "C" IPluginCreator* const* getPluginCreators(int32_t& n) { return 0; }', "L17", whole=True),
    Sample("py", "def get_plugin_creators():\n    return []\n", "L17", whole=True),
    Sample("py", "def get_plugin_creators():\n    return []\ndef get_creators():\n    return []\n", whole=True),
]


def write(sample: Sample, folder: Path) -> Path:
    path = folder / ("plugin.py" if sample.language == "py" else "plugin.cu")
    if sample.whole:
        text = sample.body
    elif sample.language == "py":
        text = PYTHON + textwrap.indent(sample.body, "    ") + "\n"
    else:
        text = f"{CPP}{sample.body}\n}};\n"
    path.write_text(text)
    return path


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{sample.broken or 'none'}-{sample.language}")
def test_the_rule_finds_what_breaks_it_and_nothing_else(sample: Sample, tmp_path: Path) -> None:
    found = lint_paths([write(sample, tmp_path)])
    assert " ".join(finding.rule for finding in found.findings) == sample.broken, found.findings


def test_every_rule_has_samples_that_break_it_and_samples_that_keep_it() -> None:
    broken = {rule for sample in SAMPLES for rule in sample.broken.split()}
    assert broken == set(RULES)
    assert [rule for rule in RULES.values() if not (rule.why and rule.fix and rule.title)] == []
