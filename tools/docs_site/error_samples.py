"""How each class of errors comes about: what to do about it, and a program that raises it where a short one can."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SAMPLES", "ErrorSample"]


class ErrorSample(NamedTuple):
    """What a page says of a class of errors."""

    advice: str
    program: str = ""


_ENGINE = """import numpy as np
import dovetail as dt

network = dt.Builder().create_network()
x = network.add_input("x", dt.float32, (-1, 3))
network.mark_output(network.add_activation(x, dt.ActivationType.RELU).get_output(0))
"""
_COMPILED = f"""{_ENGINE}engine = dt.compile(network, shapes={{"x": ((1, 3), (2, 3), (8, 3))}})
"""
_MODEL = """from onnx import TensorProto, helper
import dovetail as dt

node = helper.make_node({op}, ["x"], [{output}], domain={domain})
x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
versions = [helper.make_opsetid("", 21), helper.make_opsetid("acme", 1)]
model = helper.make_model(helper.make_graph([node], "graph", [x], [y]), opset_imports=versions)
dt.compile(model)
"""

SAMPLES: dict[str, ErrorSample] = {
    "DovetailError": ErrorSample(
        "The root of all others. Catch it to catch every failure that Dovetail reports on purpose; its parts are "
        "`what`, `where`, `expected`, `got` and `fix`."
    ),
    "UsageError": ErrorSample(
        "Change the call or the command line: no model, input or machine makes it right.",
        f'{_ENGINE}network.add_input("deep", dt.float32, (1,) * 9)\n',
    ),
    "ModelError": ErrorSample(
        "Change the model, or export it again. `dovetail inspect model.onnx` shows what is in it; one error tells "
        "everything that is wrong.",
        _MODEL.format(op='"Relu"', output='"z"', domain='""'),
    ),
    "UnsupportedOpError": ErrorSample(
        "Write the operator as a plugin and register it before the build, or name its library with `--plugins`. "
        "`dovetail plugin new acme::Swizzle` writes the start of one.",
        _MODEL.format(op='"Swizzle"', output='"y"', domain='"acme"'),
    ),
    "InputError": ErrorSample(
        "Pass what the engine takes: `engine.input_names`, and shapes within the profile that it was built with. Or "
        "build it with a wider profile.",
        f"{_COMPILED}engine(np.ones((9, 3), np.float32))\n",
    ),
    "PluginError": ErrorSample(
        "The author of the plugin must act. The message names the plugin, its file and the callback; `dovetail check` "
        "finds the rule that it breaks.",
        """import numpy as np
import dovetail as dt


@dt.layer("Wrong", shape=lambda x: (x[0],))
def wrong(x):
    return x.reverse()


network = dt.Builder().create_network()
x = network.add_input("x", dt.float32, (4,))
network.mark_output(network.add_plugin_v3([x], [], wrong.plugin()).get_output(0))
dt.compile(network)(np.ones(4, np.float32))
""",
    ),
    "DeviceMissingError": ErrorSample(
        "Choose another provider or another device, build for a device elsewhere with `--target`, or use the plan "
        "where its device is. `dovetail provider list` shows the devices that are here."
    ),
    "ForeignLibraryError": ErrorSample(
        "Build the compiled library again with the headers of this version: `dovetail include-dir` prints where they "
        "are."
    ),
    "ProviderError": ErrorSample(
        "Name a back end that is installed (`dovetail provider list`), or tell the author of the back end what the "
        "message says. `dovetail provider check NAME` judges one.",
        f'{_ENGINE}dt.compile(network, providers=["cdua"])\n',
    ),
    "BuildError": ErrorSample(
        "The network is right and could not become a plan with these settings. The message names the layer and the "
        "setting; its subclasses say more."
    ),
    "BuildCancelledError": ErrorSample(
        "A progress monitor returned False from `step_complete`. Nothing was written.",
        f"""{_ENGINE}

class Stop(dt.IProgressMonitor):
    def __init__(self):
        super().__init__()

    def phase_start(self, *names):
        pass

    def step_complete(self, phase, step):
        return False

    def phase_finish(self, name):
        pass


config = dt.BuilderConfig()
config.progress_monitor = Stop()
dt.compile(network, config=config)
""",
    ),
    "RunCancelledError": ErrorSample(
        "Whoever started the run asked it to end, as `RunOptions.terminate` of ONNX Runtime does. Run it again."
    ),
    "TimingCacheError": ErrorSample(
        "Delete the cache, or build without `--error-on-timing-cache-miss`; a cache is only a saving of time."
    ),
    "PlanError": ErrorSample(
        "The plan cannot be used here; subclasses say why. `dovetail plan check FILE` answers in one word.",
        'import dovetail as dt\n\ndt.load("missing.plan")\n',
    ),
    "PlanCorruptError": ErrorSample(
        "Copy the file again, or build the plan again. Nothing of it was run.",
        f"""from pathlib import Path

{_COMPILED}engine.save("small.plan")
content = bytearray(Path("small.plan").read_bytes())
content[-1] ^= 1
Path("damaged.plan").write_bytes(content)
dt.load("damaged.plan")
""",
    ),
    "PlanVersionError": ErrorSample(
        "Build the plan again with this version, or load it with the one that wrote it; [which plans a version "
        "reads](../plan-versions.md) is a promise."
    ),
    "PlanDeviceMismatchError": ErrorSample(
        "Load the plan where its device and its provider are, or build it here. `dovetail inspect FILE` shows what it "
        "was tuned on."
    ),
    "PlanTrustError": ErrorSample(
        "The plan carries code. If you trust whoever made it, allow that kind of code: `--host-code`, or "
        "`Runtime.engine_host_code_allowed`. See [what loading a plan may do](../project/security.md)."
    ),
    "ResourceError": ErrorSample(
        "Free memory or disk, give the run more (`RunLimits`), or install the package that the message names.",
        f"{_COMPILED}engine.run_limits = dt.RunLimits(memory_bytes=1)\nengine(np.ones((2, 3), np.float32))\n",
    ),
    "InternalError": ErrorSample(
        "A defect of Dovetail. Please report it with the output of `dovetail env`, and with `DOVETAIL_TRACEBACK=1` set."
    ),
}
"""Every class of ``dovetail.errors``."""
