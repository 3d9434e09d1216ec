"""The pictures of docs/report.md: ``make report-pictures``."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from dovetail.cli import main
from tests.browser.browsing import open_page, run_browser

_BLOCKS = 4


def write_network(path: Path) -> Path:
    """Write a small convolutional network with names as exporters give them."""
    rng = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: dict[str, np.ndarray] = {}

    def add(op: str, inputs: list[str], name: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [f"{name}_out"], name=name, **attributes))
        return f"{name}_out"

    def convolve(value: str, name: str, rows: int, columns: int, stride: int) -> str:
        weights[f"{name}.w"] = (rng.standard_normal((rows, columns, 3, 3)) * 0.1).astype(np.float32)
        weights.update({f"{name}.n{i}": np.ones(rows, np.float32) for i in range(4)})
        value = add("Conv", [value, f"{name}.w"], f"{name}/Conv", pads=[1, 1, 1, 1], strides=[stride, stride])
        return add("BatchNormalization", [value, *(f"{name}.n{i}" for i in range(4))], f"{name}/BatchNormalization")

    value, columns = "image", 3
    for block in range(_BLOCKS):
        rows, place = 16 * (block + 1), f"/stages/{block}"
        first = add("Relu", [convolve(value, f"{place}/conv1", rows, columns, 2)], f"{place}/Relu")
        second = convolve(first, f"{place}/conv2", rows, rows, 1)
        gate = add("Sigmoid", [second], f"{place}/act/Sigmoid")
        value = add("Add", [first, add("Mul", [second, gate], f"{place}/act/Mul")], f"{place}/Add")
        columns = rows
    weights["head.w"] = (rng.standard_normal((columns, 10)) * 0.1).astype(np.float32)
    value = add("Flatten", [add("GlobalAveragePool", [value], "/head/Pool")], "/head/Flatten")
    value = add("Softmax", [add("MatMul", [value, "head.w"], "/head/MatMul")], "/head/Softmax")
    graph = helper.make_graph(
        nodes,
        "stages",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, 64, 64])],
        [helper.make_tensor_value_info(value, TensorProto.FLOAT, ["n", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


def make_report(folder: Path) -> Path:
    """A report of the network on two providers, measured here."""
    model = write_network(folder / "stages.onnx")
    plans = [str(folder / f"stages_{name}.plan") for name in ("cpu", "ort")]
    for plan, words in zip(plans, (["--providers", "cpu"], []), strict=True):
        command = ["build", str(model), "-o", plan, "--quiet", "--detailed", *words]
        assert main([*command, "--shapes", "image:1x3x64x64:4x3x64x64:8x3x64x64"]) == 0
    page = folder / "stages.html"
    assert main(["report", *plans, "--profile", "-o", str(page)]) == 0
    return page


def make_pictures(target: Path) -> None:
    """Write the pictures to a folder."""
    target.mkdir(parents=True, exist_ok=True)
    shots: list[tuple[str, str, Literal["light", "dark"]]] = [
        ("report-layer", f"engine=1&tab=Layers&layer={quote('/stages/1/conv2/Conv', safe='')}", "light"),
        ("report-memory", "tab=Memory", "dark"),
        ("report-difference", "engine=1&tab=Difference", "light"),
    ]
    with tempfile.TemporaryDirectory() as folder, run_browser() as browser:
        page = make_report(Path(folder))
        for name, link, scheme in shots:
            with open_page(browser, page, link, size=(1280, 800), scheme=scheme) as found:
                found.page.wait_for_timeout(200)
                found.page.screenshot(path=target / f"{name}.png")


if __name__ == "__main__":
    make_pictures(Path(sys.argv[1]))
