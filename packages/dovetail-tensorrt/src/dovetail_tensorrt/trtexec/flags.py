"""The flags of ``trtexec``: what each is called, takes and does here; those without an effect say why.

A flag is ``--name`` or ``--name=value``. The table is data; ``words`` reads a command line by it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

__all__ = ["FLAGS", "SECTIONS", "Flag"]

SECTIONS: Final = ("Model", "Build", "System", "Inference", "Reporting")


@dataclass(frozen=True, kw_only=True)
class Flag:
    """One flag."""

    name: str
    section: str
    kind: str
    """"switch", "text", "int", "float", "shapes", "pairs" or "list"."""
    help: str
    idle: str = ""
    """Why it changes nothing here; empty for a flag that works."""
    alias: str = ""
    """The flag that it is another name for."""
    can_repeat: bool = False


def _flags(section: str, rows: Iterable[tuple[str, str, str]], idle: str = "") -> list[Flag]:
    return [Flag(name=name, section=section, kind=kind, help=text, idle=idle) for name, kind, text in rows]


_ALWAYS: Final = "it is always so"
_NO_DLA: Final = "there is no DLA"
_MODEL_TYPES: Final = "layers keep the types that the model has"
_NO_PLACE: Final = "Dovetail has nothing that it would set"

_WORKING: Final = (
    *_flags("Model", [("onnx", "text", "the ONNX model")]),
    *_flags(
        "Build",
        [
            ("minShapes", "shapes", "the smallest shapes, name:1x3x224x224,..."),
            ("optShapes", "shapes", "the shapes to tune for"),
            ("maxShapes", "shapes", "the largest shapes"),
            ("profile", "int", "the number of the profile that the next shapes are of"),
            ("memPoolSize", "pairs", "limits of memory pools in MiB (or with B, K, M, G), workspace:size"),
            ("profilingVerbosity", "text", "layer_names_only, detailed or none"),
            ("avgTiming", "int", "how many runs a timing is the mean of"),
            ("refit", "switch", "weights of the engine can be replaced"),
            ("stripWeights", "switch", "leave the weights out of the plan"),
            ("noTF32", "switch", "no TF32 arithmetic"),
            ("fp16", "switch", "compute in FP16 where nothing speaks against it"),
            ("bf16", "switch", "compute in BF16 where nothing speaks against it"),
            ("int8", "switch", "quantize products and convolutions to INT8"),
            ("fp8", "switch", "quantize products and convolutions to FP8"),
            ("best", "switch", "FP16, and INT8 where there is --calib"),
            ("stronglyTyped", "switch", "types as the model says; flags for types have no effect then"),
            ("calib", "text", "the ranges for --int8 and --fp8, as dovetail build --calib-cache writes them"),
            ("precisionConstraints", "text", "none, prefer or obey: whether --layerPrecisions counts"),
            ("layerPrecisions", "pairs", "types of layers: name:fp32,head*:fp16"),
            ("saveEngine", "text", "write the plan to a file"),
            ("loadEngine", "text", "take the plan from a file"),
            ("skipInference", "switch", "end after the build"),
            ("buildOnly", "switch", "end after the build"),
            ("getPlanVersionOnly", "switch", "tell the version that wrote a plan, and end"),
            ("noBuilderCache", "switch", "use no timing cache"),
            ("timingCacheFile", "text", "load timings from a file, and store them there"),
            ("errorOnTimingCacheMiss", "switch", "fail where a timing is not in the cache"),
            ("preview", "list", "switch features on (+) and off (-): aliasedPluginIO1003"),
            ("builderOptimizationLevel", "int", "0 to 5"),
            ("maxTactics", "int", "how many tactics of a layer are tried at most"),
            ("versionCompatible", "switch", "ask for plans of other versions"),
            ("sparsity", "text", "disable, enable or force"),
            ("inputIOFormats", "list", "type and format of each input, or one for all: fp16:chw+hwc8,int32:chw"),
            ("outputIOFormats", "list", "type and format of each output, or one for all"),
            ("enablePluginOverride", "switch", "plugins win over operators of the same name"),
        ],
    ),
    *_flags(
        "System",
        [
            ("device", "int", "the number of the CUDA device"),
            ("staticPlugins", "text", "a plugin library to import"),
            ("dynamicPlugins", "text", "a plugin library to load"),
            ("setPluginsToSerialize", "text", "a plugin library that the plan is to carry"),
        ],
    ),
    *_flags(
        "Inference",
        [
            ("shapes", "shapes", "the shapes to run with"),
            ("loadInputs", "pairs", "read inputs from files: name:file"),
            ("iterations", "int", "run at least so often (default 10)"),
            ("warmUp", "int", "run so many milliseconds first (default 200)"),
            ("duration", "float", "measure for so many seconds (default 3)"),
            ("sleepTime", "int", "wait so many milliseconds between runs"),
            ("idleTime", "int", "sleep so many milliseconds after each run"),
            ("infStreams", "int", "run in so many contexts at once (default 1)"),
            ("threads", "switch", "a thread for each context, which is always so"),
            ("noCudaGraph", "switch", "capture no graphs"),
            ("includeDataTransfers", "switch", "time copies to and from the device too"),
            ("useProfile", "int", "the profile to run with (default 0)"),
            ("timeDeserialize", "switch", "time loading the plan, and end"),
        ],
    ),
    *_flags(
        "Reporting",
        [
            ("verbose", "switch", "tell more"),
            ("avgRuns", "int", "tell the mean of so many runs in a trace (default 10)"),
            ("percentile", "list", "which percentiles to tell (default 90,95,99)"),
            ("dumpOutput", "switch", "show the outputs of the last run"),
            ("exportOutput", "text", "write the outputs of the last run as JSON"),
            ("dumpRawBindingsToFile", "switch", "write inputs and outputs as raw files"),
            ("dumpProfile", "switch", "show the time of each layer"),
            ("exportProfile", "text", "write the time of each layer as JSON"),
            ("dumpLayerInfo", "switch", "show what the layers are"),
            ("exportLayerInfo", "text", "write what the layers are as JSON"),
            ("dumpOptimizationProfile", "switch", "show the profiles of the plan"),
            ("exportTimes", "text", "write the times of each run as JSON"),
            ("dumpRefit", "switch", "show which weights can be replaced"),
            ("help", "switch", "show the flags"),
        ],
    ),
)

_IDLE: Final = (
    *_flags(
        "Build",
        [
            ("layerOutputTypes", "text", "types of outputs of layers"),
        ],
        _MODEL_TYPES,
    ),
    *_flags(
        "Build",
        [
            ("excludeLeanRuntime", "switch", "carry no runtime in the plan"),
            ("noCompilationCache", "switch", "no compilation cache"),
            ("tacticSources", "list", "where tactics come from"),
            ("hardwareCompatibilityLevel", "text", "devices that a plan runs on"),
            ("runtimePlatform", "text", "platform that a plan runs on"),
            ("tilingOptimizationLevel", "text", "effort for tiling"),
            ("l2LimitForTiling", "text", "cache for tiling"),
            ("maxAuxStreams", "int", "streams inside a run"),
            ("layerDeviceTypes", "text", "devices of layers"),
            ("directIO", "switch", "no reformats at the border"),
            ("restricted", "switch", "safety scope"),
            ("allowWeightStreaming", "switch", "weights may be streamed"),
            ("markDebug", "list", "debug tensors"),
            ("markUnfusedTensorsAsDebugTensors", "switch", "debug tensors"),
            ("tuneBuildRoutes", "switch", "try build routes"),
            ("setBuildRoute", "text", "a build route"),
            ("helpBuildRoute", "switch", "list build routes"),
            ("tuningSearch", "text", "how build routes are tried"),
            ("tuningCacheFile", "text", "a cache of build routes"),
            ("continue", "switch", "go on with trying build routes"),
            ("loadRefOutputs", "text", "outputs to compare build routes with"),
            ("refPair", "text", "outputs to compare build routes with"),
            ("accuracyThreshold", "float", "how far build routes may differ"),
            ("accuracyAlgorithm", "text", "how build routes are compared"),
            ("monitorMemory", "switch", "watch the memory of a build"),
            ("consistency", "switch", "check a safe engine"),
            ("safe", "switch", "safety runtime"),
        ],
        _NO_PLACE,
    ),
    *_flags(
        "Inference",
        [
            ("useCudaGraph", "switch", "capture graphs"),
            ("noDataTransfers", "switch", "time no copies"),
            ("exposeDMA", "switch", "copies in order"),
            ("useSpinWait", "switch", "wait busily"),
            ("separateProfileRun", "switch", "profile in runs of their own"),
        ],
        _ALWAYS,
    ),
    *_flags(
        "Inference",
        [
            ("noSpinWait", "switch", "wait without using a core"),
            ("useManagedMemory", "switch", "managed memory"),
            ("allocationStrategy", "text", "when memory of a context is taken"),
            ("saveDebugTensors", "text", "debug tensors"),
            ("saveAllDebugTensors", "text", "debug tensors"),
            ("weightStreamingBudget", "text", "memory for weights"),
            ("timeRefit", "switch", "time a refit"),
            ("persistentCacheRatio", "float", "cache for activations"),
            ("useRuntime", "text", "which runtime runs"),
            ("leanDLLPath", "text", "the lean runtime"),
        ],
        _NO_PLACE,
    ),
    *_flags(
        "System",
        [
            ("ignoreParsedPluginLibs", "switch", "libraries that the parser names"),
            ("tempdir", "text", "where temporary files go"),
            ("tempfileControls", "list", "how temporary files are made"),
        ],
        _NO_PLACE,
    ),
    *_flags(
        "System", [("useDLACore", "int", "a DLA"), ("allowGPUFallback", "switch", "what a DLA cannot run")], _NO_DLA
    ),
)

_ALIASES: Final = (
    Flag(name="vc", section="Build", kind="switch", help="short for versionCompatible", alias="versionCompatible"),
    Flag(name="streams", section="Inference", kind="int", help="an old name of infStreams", alias="infStreams"),
    Flag(name="plugins", section="System", kind="text", help="an old name of staticPlugins", alias="staticPlugins"),
    Flag(name="workspace", section="Build", kind="text", help="an old form of memPoolSize=workspace:", alias=""),
)

_REPEATABLE: Final = frozenset(("staticPlugins", "dynamicPlugins", "setPluginsToSerialize", "plugins"))

FLAGS: Final = {
    flag.name: flag
    if flag.name not in _REPEATABLE
    else Flag(name=flag.name, section=flag.section, kind=flag.kind, help=flag.help, alias=flag.alias, can_repeat=True)
    for flag in (*_WORKING, *_IDLE, *_ALIASES)
}
