"""Run the plugins of ``sources/throws.cpp`` once for each fault, each time in a forked process.

Arguments: the library and the faults. Prints one JSON object for each fault: the signal that ended the process (0 for
none), whether results were right, and the texts of all errors that were raised or logged.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
from typing import Any

import numpy as np

import dovetail as dt
from dovetail.errors import DovetailError
from dovetail.loggers import ILogger, Severity
from dovetail.plugin.registry import get_plugin_registry

LIMIT_S = 60


class Texts(ILogger):
    """Keeps the texts of errors."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def log(self, severity: Severity, msg: str) -> None:
        if severity <= Severity.ERROR:
            self.texts.append(msg)


def find_plugin(fault: str) -> tuple[str, str]:
    """The name and namespace of the plugin whose method has the fault."""
    interface = fault.partition(".")[0]
    if interface.startswith("IPluginV2"):
        return interface, ""
    if interface == "IPluginCreator":
        return "IPluginV2DynamicExt", ""
    if interface == "registered":
        return "RegisteredOlder" if "setPluginNamespace" in fault else "Registered", ""
    return ("Quick", "quick") if "Quick" in interface else ("V3", "")


def live(path: str, fault: str, logger: Texts) -> bool:
    """Load the library, build, save, load and run a network of one plugin, and use a resource."""
    name, namespace = find_plugin(fault)
    library = get_plugin_registry().load_library(path)
    if fault.startswith("IPluginResource"):
        use = ctypes.CDLL(path).useResource
        use.restype = ctypes.c_bool
        return bool(use())
    creator = get_plugin_registry().get_creator(name, "1", namespace)
    plugin = creator.create_plugin("p", dt.PluginFieldCollection(), dt.TensorRTPhase.BUILD)
    builder = dt.Builder(logger)
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 3))
    layer = network.add_plugin_v3([x], [], plugin)
    network.mark_output(layer.get_output(0))
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (2, 3), (4, 3))
    config = builder.create_builder_config()
    config.add_optimization_profile(profile)
    plan = builder.build_serialized_network(network, config)
    engine = dt.Runtime(logger).deserialize_cuda_engine(plan)
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    is_right = bool(np.array_equal(engine(given), 2 * given))
    engine.close()
    del engine, network, layer, plugin, builder, config, x, creator
    gc.collect()
    get_plugin_registry().deregister_library(library)
    del library
    gc.collect()
    return is_right


def run_fault(path: str, fault: str, output: int) -> None:
    """Run one fault in this process and write what happened."""
    logger = Texts()
    get_plugin_registry().logger = logger
    os.environ["DOVETAIL_TEST_FAULT"] = fault
    is_right, errors, written = False, list[str](), os.memfd_create("stderr")
    os.dup2(written, 2)  # the default logger of the process writes there
    try:
        is_right = live(path, fault, logger)
    except DovetailError as error:
        errors.append(str(error))
    gc.collect()
    os.lseek(written, 0, os.SEEK_SET)
    logger.texts += filter(None, os.read(written, 1 << 20).decode().split("[dovetail] [E] "))
    modules = [name for name in sys.modules if name.startswith("dovetail.")]
    result = {"is_right": is_right, "errors": errors, "logged": logger.texts, "modules": modules}
    os.write(output, json.dumps(result).encode())


def run_forked(path: str, fault: str) -> dict[str, Any]:
    """Run one fault in a child."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(LIMIT_S)
        status = 1
        try:
            run_fault(path, fault, write)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        written = file.read()
    _, status = os.waitpid(child, 0)
    result: dict[str, Any] = (
        json.loads(written) if written else {"is_right": False, "errors": [], "logged": [], "modules": []}
    )
    signal_number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    return {"fault": fault, "signal": signal_number, "exit": 0 if signal_number else os.WEXITSTATUS(status), **result}


def main() -> None:
    """Run all faults that are named."""
    path, *faults = sys.argv[1:]
    for name in run_forked(path, "none.none:none")["modules"]:
        importlib.import_module(name)  # once here instead of in every child
    for fault in faults:
        result = run_forked(path, fault)
        del result["modules"]
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
