"""Plugins that break one rule about runs, threads or the strict set."""

from __future__ import annotations

import math
import os
import threading
import time
from typing import Any

import numpy as np

from dovetail.plugin.arrays import as_array, write_scalar
from dovetail.types import DataType, PluginTensorDesc
from tests.null.plugin.check.faults import breaks
from tests.null.plugin.check.good import Centred, Positive, Scale


@breaks("R40", "enqueue raised RuntimeError: no kernel")
class RaisesInEnqueue(Scale):
    def enqueue(self, *arguments: Any) -> Any:
        raise RuntimeError("no kernel")


@breaks("R40", "set_tactic raised KeyError")
class RefusesOwnTactic(Scale):
    def set_tactic(self, tactic: int) -> Any:
        self.tactic = {0: 0, 1: 1}[tactic]


@breaks("R41", "enqueue changed input 0: 1")
class WritesInput(Scale):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        as_array(inputs[0], input_desc[0])[...] *= 3


@breaks("R42", "bytes after the end of output 0, the first at byte 1536")
class WritesPastTheEnd(Centred):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        size = as_array(outputs[0], output_desc[0]).size
        as_array(outputs[0], output_desc[0], shape=(size + 1,))[-1] = 7


@breaks("R42", "before the start of output 0, the nearest at byte -1")
class WritesBeforeTheStart(Centred):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        as_array(outputs[0] - 4, output_desc[0], shape=(1,))[0] = 7


@breaks("R43", "96 bytes were asked for, enqueue wrote 96 bytes after the end of the workspace")
class AsksForTooLittle(Centred):
    def get_workspace_size(self, in_: Any, out: Any) -> int:
        return super().get_workspace_size(in_, out) // 2


@breaks("R44", "output 0, element (1, 2, 7, 7) was not written (1 of 384 elements)")
class LeavesLastElement(Centred):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        y = as_array(outputs[0], output_desc[0]).reshape(-1)
        before = y[-1]
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        y[-1] = before


@breaks("R44", "(192 of 384 elements)")
class WritesHalfPrecision(Centred):
    """Declares FLOAT and writes half-precision numbers: the type is other than declared."""

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        y = as_array(outputs[0], output_desc[0]).reshape(-1).view(np.float16)
        y[: x.size] = x.reshape(-1)


@breaks("R45", "with other bytes in the outputs, output 0")
class AddsToOutput(Scale):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        y = as_array(outputs[0], output_desc[0])
        y += as_array(inputs[0], input_desc[0]) * y.dtype.type(self.alpha)


@breaks("R45", "with other bytes in the workspace, output 0")
class ReadsWorkspace(Centred):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        first = float(as_array(workspace, input_desc[0], shape=(1,))[0])
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        as_array(outputs[0], output_desc[0])[...] += first


@breaks("R46", "of the first object")
class AddsNoise(Scale):
    noise = np.random.default_rng(0)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        y = as_array(outputs[0], output_desc[0])
        y += self.noise.uniform(1, 2, y.shape).astype(y.dtype)


@breaks("R47", "inputs A, then B: output 0, element")
class RemembersLastRun(Scale):
    last = 0.0

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        as_array(outputs[0], output_desc[0])[...] += as_array(inputs[0], input_desc[0]).dtype.type(self.last)
        self.last = 1.0


@breaks("R48", "shapes changed from (2, 3, 8, 8) to (1, 3, 8, 8): enqueue wrote")
class KeepsFirstShape(Centred):
    shape: Any = None

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        self.shape = self.shape or tuple(in_[0].dims)

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        kept = PluginTensorDesc(self.shape)
        super().enqueue([kept], [kept], inputs, outputs, workspace, stream)


@breaks("R49", "output 1 holds 385, expected 0 to 384")
class CountsOneTooMany(Positive):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0]).reshape(-1)
        as_array(outputs[0], output_desc[0], shape=x.shape)[...] = x
        write_scalar(outputs[1], output_desc[1].type, x.size + 1)


@breaks("R50", "with tactic 1")
class TacticsDiffer(Scale):
    def enqueue(self, *arguments: Any) -> Any:
        kept = self.alpha
        self.alpha = kept * 1.01 if self.tactic == 2 else kept
        super().enqueue(*arguments)
        self.alpha = kept


@breaks("R51", "formats HWC HWC, tactic 1: output 0")
class FormatsDiffer(Scale):
    def enqueue(self, input_desc: Any, *arguments: Any) -> Any:
        kept = self.alpha
        self.alpha = kept * 2 if input_desc[0].format.name == "HWC" else kept
        super().enqueue(input_desc, *arguments)
        self.alpha = kept


@breaks("R52", "with workspace 0 enqueue raised PluginError")
class LooksAtWorkspace(Scale):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        as_array(workspace, input_desc[0])
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)


@breaks("R53", "inputs (0, 3, 8, 8): enqueue raised ValueError", shapes=["2x3x8x8", "0x3x8x8"])
class FailsOnEmpty(Centred):
    def enqueue(self, input_desc: Any, *arguments: Any) -> Any:
        as_array(arguments[1][0], input_desc[0]).max()
        super().enqueue(input_desc, *arguments)


@breaks("R54", "with another context beside it, each with its own shapes: output 0")
class ShapeInClass(Scale):
    rows = 0

    def on_shape_change(self, in_: Any, out: Any) -> Any:
        type(self).rows = in_[0].dims[0]

    def enqueue(self, *arguments: Any) -> Any:
        kept = self.alpha
        self.alpha = kept * self.rows
        super().enqueue(*arguments)
        self.alpha = kept


@breaks("R55", "while another runs: output 0")
class SharesBuffer(Scale):
    buffer: dict[str, Any] = {}  # noqa: RUF012 - shared by all objects: that is the fault

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        self.buffer["first"] = float(x.reshape(-1)[0])
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        time.sleep(0.002)
        as_array(outputs[0], output_desc[0])[...] += x.dtype.type(self.buffer["first"])


@breaks("R56", "after a sibling was destroyed enqueue raised IndexError")
class DestroysShared(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.table = [alpha]

    def enqueue(self, *arguments: Any) -> Any:
        assert self.table[0] == self.alpha
        super().enqueue(*arguments)

    def destroy(self) -> None:
        self.table.clear()


@breaks("R56", "destroy raised AttributeError")
class RaisesInDestroy(Scale):
    def destroy(self) -> None:
        self.handle.close()  # type: ignore[attr-defined]


@breaks("R57", "enqueue allocated", strict=True)
class MakesTemporary(Scale):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        x = as_array(inputs[0], input_desc[0])
        as_array(outputs[0], output_desc[0])[...] = x * x.dtype.type(self.alpha)


@breaks("R58", "16 runs left", strict=True)
class KeepsHistory(Scale):
    history: list[Any] = []  # noqa: RUF012 - in the class, where a look at the object does not show it

    def enqueue(self, *arguments: Any) -> Any:
        super().enqueue(*arguments)
        self.history.append(bytearray(1000))


@breaks("R59", "enqueue changed the object: self.runs: 0 -> 1", strict=True)
class CountsRuns(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.runs = 0

    def enqueue(self, *arguments: Any) -> Any:
        super().enqueue(*arguments)
        self.runs += 1


@breaks("R60", "the second time destroy raised AttributeError", strict=True)
class DestroysOnce(Scale):
    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__(alpha)
        self.handle = "open"

    def destroy(self) -> None:
        del self.handle


@breaks("R61", "enqueue did not return within 1 s", timeout_s=1.0)
class Hangs(Scale):
    def enqueue(self, *arguments: Any) -> Any:
        while True:
            time.sleep(0.01)


@breaks("R61", "configure_plugin ended the process with SIGABRT")
class Aborts(Scale):
    def configure_plugin(self, in_: Any, out: Any) -> Any:
        os.abort()


@breaks("R62", "bytes of output 0 changed after enqueue had returned")
class WritesLate(Scale):
    def enqueue(self, *arguments: Any) -> Any:
        super().enqueue(*arguments)
        threading.Timer(0.005, self.spoil, arguments).start()

    def spoil(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> None:
        as_array(outputs[0], output_desc[0])[...] = 9


@breaks("R63", "with other numbers before and after the inputs, output 0")
class ReadsPastTheEnd(Centred):
    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        super().enqueue(input_desc, output_desc, inputs, outputs, workspace, stream)
        x = as_array(inputs[0], input_desc[0], shape=(math.prod(input_desc[0].dims) + 1,))
        as_array(outputs[0], output_desc[0])[...] += x[-1]


@breaks("R64", "the same inputs at other addresses: output 0")
class KeepsInput(Scale):
    seen: Any = None

    def enqueue(self, input_desc: Any, output_desc: Any, inputs: Any, outputs: Any, workspace: int, stream: int) -> Any:
        if self.seen is None or self.seen[1] != input_desc[0].dims:
            self.seen = (inputs[0], input_desc[0].dims)
        super().enqueue(input_desc, output_desc, [self.seen[0]], outputs, workspace, stream)


@breaks("R65", "first in a new process with another working directory: output 0")
class CachesForAll(Scale):
    rows: dict[str, int] = {}  # noqa: RUF012 - shared by all objects: that is the fault

    def enqueue(self, input_desc: Any, *arguments: Any) -> Any:
        kept = self.alpha
        self.alpha = kept * self.rows.setdefault("rows", input_desc[0].dims[0])
        super().enqueue(input_desc, *arguments)
        self.alpha = kept


@breaks("R66", "with HALF", types=None)
class OtherInHalf(Scale):
    def enqueue(self, input_desc: Any, *arguments: Any) -> Any:
        kept = self.alpha
        self.alpha = 2 * kept if input_desc[0].type == DataType.HALF else kept
        super().enqueue(input_desc, *arguments)
        self.alpha = kept


@breaks("R68", "enqueue changed the global generator of NumPy")
class SeedsEverybody(Scale):
    def enqueue(self, *arguments: Any) -> Any:
        np.random.seed(3)
        super().enqueue(*arguments)
