"""A V2 creator under the ``IPluginCreatorV3One`` contract."""

from __future__ import annotations

from typing import Any, Final

from dovetail.errors import PluginError
from dovetail.plugin.fields import PluginFieldCollection
from dovetail.plugin.interfaces import IPluginCreatorV3One
from dovetail.types import TensorRTPhase
from dovetail_tensorrt.v2.adapter import SERIALIZED_FIELD, AdaptedPlugin, adapt_plugin
from dovetail_tensorrt.v2.interfaces import IPluginCreator

__all__ = ["AdaptedCreator", "adapt_creator"]

__dovetail_adapter__ = True


def adapt_creator(creator: IPluginCreator) -> AdaptedCreator:
    """A V2 creator under the ``IPluginCreatorV3One`` contract; ``adapted`` of the result is the creator itself."""
    return AdaptedCreator(creator)


class AdaptedCreator(IPluginCreatorV3One):
    """Makes adapted V2 plugins: from fields for a network, from stored bytes for a loaded plan."""

    def __init__(self, creator: IPluginCreator) -> None:
        self.adapted: Final = creator

    @property
    def name(self) -> str:  # type: ignore[override]
        """The name of the V2 creator."""
        return self.adapted.name

    @property
    def plugin_version(self) -> str:  # type: ignore[override]
        """The version of the V2 creator."""
        return self.adapted.plugin_version

    @property
    def plugin_namespace(self) -> str:
        """The namespace of the V2 creator; a registry sets it."""
        return self.adapted.plugin_namespace

    @plugin_namespace.setter
    def plugin_namespace(self, namespace: str) -> None:
        self.adapted.plugin_namespace = namespace

    @property
    def field_names(self) -> PluginFieldCollection:  # type: ignore[override]
        """The fields of the V2 creator."""
        return self.adapted.field_names

    def create_plugin(
        self, name: str, field_collection: PluginFieldCollection, phase: TensorRTPhase = TensorRTPhase.BUILD
    ) -> AdaptedPlugin:
        """A plugin from fields, or, for a loaded plan, from the bytes that the plan stores, initialised."""
        if phase == TensorRTPhase.BUILD:
            return adapt_plugin(self._check("create_plugin", self.adapted.create_plugin(name, field_collection)))
        stored = self._read_stored(field_collection)
        plugin = adapt_plugin(self._check("deserialize_plugin", self.adapted.deserialize_plugin(name, stored)))
        plugin.ensure_initialized()
        return plugin

    def _check(self, method: str, plugin: Any) -> Any:
        if plugin is None:
            raise PluginError(f"{method} returned None", where=f"V2 creator {type(self.adapted).__name__}")
        return plugin

    def _read_stored(self, fields: PluginFieldCollection) -> bytes:
        field = next((field for field in fields if field.name == SERIALIZED_FIELD), None)
        if field is None:
            raise PluginError(
                "the stored plugin has no serialized V2 plugin",
                where=f"V2 creator {type(self.adapted).__name__}",
                expected=f"a field '{SERIALIZED_FIELD}'",
                got=", ".join(field.name for field in fields) or "no fields",
                fix="build the plan again with this creator",
            )
        return b"" if field.data is None else field.data.tobytes()
