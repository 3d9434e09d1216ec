"""Networks over images that are rewritten with their channels last, and the proof that what was rewritten ran."""

from __future__ import annotations

from typing import Any, Final

import dovetail
from dovetail_cuda.lower.images import NHWC_DOMAIN
from dovetail_cuda.lower.operators.channels_last import ALLOWED

HEAD: Final = '<ir_version: 10, opset_import: ["" : 21]> g '
MODELS: Final[dict[str, tuple[str, ...]]] = {
    # the operators that are rewritten, and the model
    "3x3": (
        "Conv MaxPool GlobalAveragePool",
        """(float[2,8,9,7] x, float[16,8,3,3] w, float[16] b) => (float[2,16,1,1] y) {
        c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) p = MaxPool<kernel_shape=[3,3], strides=[2,2]>(r)
        y = GlobalAveragePool(p) }""",
    ),
    "residual": (
        "Conv Conv",
        """(float[1,32,5,6] x, float[32,32,3,3] w, float[32,32,1,1] v, float[32,1,1] k) => (float[1,32,5,6] y) {
        a = Conv<pads=[1,1,1,1]>(x, w) r = Relu(a) c = Conv(r, v) m = Mul(c, k) s = Add(m, r) y = Relu(s) }""",
    ),
    "BatchNormalization": (
        "Conv BatchNormalization",
        """(float[1,4,6,6] x, float[8,4,3,3] w, float[8] s, float[8] b, float[8] m, float[8] v) => (float[1,8,4,4] y) {
        c = Conv(x, w) q = Mul(v, v) y = BatchNormalization(c, s, b, m, q) }""",
    ),
    "AveragePool": (
        "AveragePool",
        """(float[1,3,6,6] x) => (float[1,3,4,3] y) {
        y = AveragePool<kernel_shape=[3,3], pads=[0,1,0,1], strides=[1,2], count_include_pad=1>(x) }""",
    ),
    "large windows": (
        "MaxPool",
        "(float[2,3,8,9] x) => (float[2,3,5,3] y) { y = MaxPool<kernel_shape=[4,4], strides=[1,2]>(x) }",
    ),
    "LpPool": (
        "LpPool",
        "(float[1,3,6,6] x) => (float[1,3,3,3] y) { y = LpPool<kernel_shape=[2,2], strides=[2,2]>(x) }",
    ),
    "GlobalMaxPool": ("GlobalMaxPool", "(float[2,3,5,4] x) => (float[2,3,1,1] y) { y = GlobalMaxPool(x) }"),
    "ConvTranspose": (
        "ConvTranspose",
        """(float[1,4,3,3] x, float[4,2,3,3] w, float[2] b) =>
        (float[1,2,7,7] y) { y = ConvTranspose<strides=[2,2]>(x, w, b) }""",
    ),
    "InstanceNormalization": (
        "InstanceNormalization",
        "(float[2,3,4,5] x, float[3] g, float[3] b) => (float[2,3,4,5] y) { y = InstanceNormalization(x, g, b) }",
    ),
    "LRN": ("LRN", "(float[1,6,3,4] x) => (float[1,6,3,4] y) { y = LRN<size=3, alpha=0.5>(x) }"),
    "blocks": (
        "SpaceToDepth DepthToSpace",
        """(float[1,2,4,6] x) => (float[1,2,4,6] y) {
        s = SpaceToDepth<blocksize=2>(x) r = Relu(s) y = DepthToSpace<blocksize=2>(r) }""",
    ),
    "GridSample": ("GridSample", "(float[1,2,4,5] x, float[1,3,3,2] z) => (float[1,2,3,3] y) { y = GridSample(x, z) }"),
    "one dimension": (
        "Conv",
        """(float[2,8,40] x, float[32,8,5] w, float[32] b) =>
        (float[2,32,38] y) { c = Conv<pads=[1,1]>(x, w, b) y = Tanh(c) }""",
    ),
    "depthwise": (
        "Conv",
        """(float[1,24,7,9] x, float[24,1,5,5] w, float[24] b) => (float[1,24,4,5] y) {
        c = Conv<pads=[2,2,2,2], strides=[2,2], group=24>(x, w, b) y = HardSwish(c) }""",
    ),
    "stem": (
        "Conv MaxPool",
        """(float[1,3,17,19] x, float[16,3,7,7] w, float[16] b) => (float[1,16,5,5] y) {
        c = Conv<pads=[3,3,3,3], strides=[2,2]>(x, w, b) r = Relu(c)
        y = MaxPool<kernel_shape=[3,3], strides=[2,2], pads=[1,1,1,1]>(r) }""",
    ),
}


class _Launches(dovetail.IProfiler):
    """The names of what ran on the device."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def report_layer_time(self, layer_name: str, ms: float) -> None:
        return

    def report_device_event(self, provider: str, event: Any) -> None:
        self.names.append(event.name)


def build(model: Any) -> Any:
    """An engine that prefers channels last."""
    config = dovetail.BuilderConfig()
    config.clear_flag(dovetail.BuilderFlag.TF32)
    config.provider_options = {"cuda": {"prefer_nhwc": "1"}}
    return dovetail.compile(model, providers=["cuda", "cpu"], config=config)


def list_rewritten(engine: Any) -> list[tuple[str, str]]:
    """The operators with their channels last that the plan has kernels of, each with the name of its kernel."""
    reports = [node for step in engine.manifest.programs[0].steps for node in step.partition.report.nodes]
    operators = [(op, node.name) for node in reports for op in node.op.split()]
    plain = [op for op, _ in operators if op in ALLOWED]
    assert not plain, f"left as they were: {plain}"
    return [(op.removeprefix(f"{NHWC_DOMAIN}::"), name) for op, name in operators if op.startswith(NHWC_DOMAIN)]


def check_ran(engine: Any, inputs: list[Any], expected: list[str]) -> None:
    """Have an engine prove that the operators it should have with their channels last were launched on the device."""
    assert {step.provider for step in engine.manifest.programs[0].steps} == {"cuda"}
    rewritten = list_rewritten(engine)
    assert sorted(op for op, _ in rewritten) == sorted(expected)
    context = engine.create_execution_context()
    context.profiler = _Launches()
    context.run(inputs)
    for op, name in rewritten:
        assert any(launched.startswith(name) for launched in context.profiler.names), f"{op} was not launched"
