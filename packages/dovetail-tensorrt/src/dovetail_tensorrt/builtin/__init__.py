"""Built-in plugins: the layers that exported models name, with their names, versions, fields and types.

``register_all`` puts their creators into a registry. They run on the host with NumPy alone, and on a CUDA device with
kernels of Triton where ``dovetail-cuda`` is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dovetail_tensorrt.builtin.base import BuiltinCreator, BuiltinPlugin
from dovetail_tensorrt.builtin.plugins.crop_and_resize import CropAndResizePlugin
from dovetail_tensorrt.builtin.plugins.deformable_attention import DeformableAttentionPlugin
from dovetail_tensorrt.builtin.plugins.deformable_convolution import DeformableConvolutionPlugin
from dovetail_tensorrt.builtin.plugins.disentangled_attention import DisentangledAttentionPlugin
from dovetail_tensorrt.builtin.plugins.efficient_nms import EfficientNmsPlugin
from dovetail_tensorrt.builtin.plugins.group_normalization import GroupNormalizationPlugin
from dovetail_tensorrt.builtin.plugins.instance_normalization import InstanceNormalizationPlugin
from dovetail_tensorrt.builtin.plugins.pillar_scatter import PillarScatterPlugin
from dovetail_tensorrt.builtin.plugins.pyramid_roi_align import PyramidRoiAlignPlugin
from dovetail_tensorrt.builtin.plugins.roi_align import RoiAlignPlugin
from dovetail_tensorrt.builtin.plugins.scatter_elements import ScatterElementsPlugin
from dovetail_tensorrt.builtin.plugins.topk_last_dim import TopkLastDimPlugin

if TYPE_CHECKING:
    from dovetail.plugin.registry import PluginRegistry

__all__ = ["PLUGINS", "get_creators", "register_all"]

PLUGINS: Final[tuple[type[BuiltinPlugin], ...]] = (
    EfficientNmsPlugin,
    RoiAlignPlugin,
    DeformableAttentionPlugin,
    DeformableConvolutionPlugin,
    ScatterElementsPlugin,
    TopkLastDimPlugin,
    InstanceNormalizationPlugin,
    GroupNormalizationPlugin,
    PillarScatterPlugin,
    CropAndResizePlugin,
    PyramidRoiAlignPlugin,
    DisentangledAttentionPlugin,
)


def get_creators() -> list[BuiltinCreator]:
    """New creators, one for each plugin and version; this makes the package a plugin library."""
    return [BuiltinCreator(plugin, version) for plugin in PLUGINS for version in plugin.versions]


def register_all(registry: PluginRegistry, namespace: str = "") -> bool:
    """Register every built-in plugin that is not there yet; True when all are there.

    A plugin of the same name, version and namespace that somebody else registered stays.

    >>> from dovetail.plugin.registry import PluginRegistry
    >>> own = PluginRegistry()
    >>> register_all(own), register_all(own), own.find_creator("EfficientNMS_TRT", "1") is not None
    (True, True, True)
    """
    known = {(key.name, key.version) for key in registry.creator_keys if key.namespace == namespace}
    for creator in get_creators():
        if (creator.name, creator.plugin_version) not in known:
            registry.register_creator(creator, namespace)
    return True
