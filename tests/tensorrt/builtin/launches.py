"""Launches of the kernels of every built-in plugin, planned over addresses that nobody reads."""

from __future__ import annotations

from dataclasses import replace

from dovetail.types import DataType, PluginTensorDesc, TensorFormat
from dovetail_tensorrt.builtin.device.launch import KernelLaunch
from tests.tensorrt.builtin.cases import CASES, PluginCase
from tests.tensorrt.builtin.problems import Problem
from tests.tensorrt.builtin.running import create

_OUTPUTS = {
    "EfficientNMS_TRT": ((2, 1), (2, 6, 4), (2, 6), (2, 6)),
    "ROIAlign_TRT": ((5, 3, 3, 2),),
    "MultiscaleDeformableAttnPlugin_TRT": ((2, 5, 2, 4),),
    "ModulatedDeformConv2d": ((2, 6, 6, 4),),
    "ScatterElements": ((3, 4),),
    "TopkLastDim": ((2, 3, 3), (2, 3, 3)),
    "GroupNormalizationPlugin": ((2, 6, 8, 8),),
    "PillarScatterPlugin": ((2, 4, 5, 6),),
    "CropAndResizeDynamic": ((2, 5, 3, 2, 3),),
    "PyramidROIAlign_TRT": ((2, 7, 3, 2, 2),),
    "DisentangledAttention_TRT": ((2, 16, 16),),
}
_DETECTOR = (((2, 8400, 4), (2, 8400, 80)),)
"""A detector of the usual size, which has as many candidates as there may be."""
_MORE_FIELDS = {
    "ROIAlign_TRT": ({"mode": 0, "coordinate_transformation_mode": 0},),
    "ScatterElements": ({"reduction": "mul"}, {"reduction": "max"}, {"reduction": "min"}),
    "TopkLastDim": ({"is_largest": 0},),
    "PyramidROIAlign_TRT": ({"legacy": 1}, {"roi_coords_transform": 0}),
}


def list_launches() -> list[KernelLaunch]:
    """At least one launch of each kernel, in each type that a plugin takes."""
    found = []
    for case in CASES.values():
        for fields in ({}, *_MORE_FIELDS.get(case.name, ())):
            for first in (DataType.FLOAT, DataType.HALF, DataType.BF16, DataType.INT32, DataType.INT64, DataType.INT8):
                found += _plan(replace(case, fields={**case.fields, **fields}), first)
    return found + _plan(replace(CASES["nms"], shapes=_DETECTOR), DataType.FLOAT)


def _plan(case: PluginCase, first: DataType) -> list[KernelLaunch]:
    """The launches of a case with another type in place of FLOAT; none where the plugin does not take it."""
    fields = {**case.fields, "type_id": int(first)} if "type_id" in case.fields else case.fields
    if "type_id" in case.fields and first in (DataType.INT64, DataType.INT8):
        return []
    plugin = create(Problem(case.name, dict(fields), [], case.version))
    types = [first if name in ("FLOAT", "HALF") else DataType[name] for name in case.types]
    if first not in plugin.list_types(0, first, len(types)):
        return []
    layout = TensorFormat.CDHW32 if first is DataType.INT8 and len(case.shapes[0][0]) == 5 else TensorFormat.LINEAR
    made = plugin.get_output_data_types(types)
    shapes = _OUTPUTS.get(case.name, case.shapes[0])
    given = [PluginTensorDesc(shape, dtype, layout, 0.5) for shape, dtype in zip(case.shapes[0], types, strict=True)]
    outputs = [PluginTensorDesc(shape, dtype, layout, 0.5) for shape, dtype in zip(shapes, made, strict=True)]
    places = [4096 * (number + 1) for number in range(len(given) + len(outputs))]
    return plugin.plan_run(given, outputs, places[: len(given)], places[len(given) :], 1 << 20)
