"""Finding what to check: a creator or a plugin class in a file, a package folder, a module or a C++ library."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from dovetail.errors import DovetailError, PluginError, UsageError
from dovetail.near_names import suggest
from dovetail.plugin.adapters import is_adaptable_creator, is_adaptable_plugin, resolve_creator, resolve_plugin
from dovetail.plugin.carried.payload import is_native
from dovetail.plugin.interfaces import IPluginCreatorV3One, IPluginV3
from dovetail.plugin.quick import QuickLayer
from dovetail.plugin.registry import collect_static_registrations, get_plugin_registry, instantiate
from dovetail.stand_ins import advise_missing, with_stand_ins

__all__ = ["LocatedPlugin", "locate"]


@dataclass(frozen=True)
class LocatedPlugin:
    """A creator, or a function that makes plugins."""

    creator: Any = None
    make_plugin: Callable[[], Any] | None = None


def locate(target: str) -> LocatedPlugin:
    """Import what a target names and pick the creator or plugin class in it.

    Raises:
        UsageError: There is no such thing, or the target does not say which of several.
        PluginError: Importing raised.
    """
    place, name = _split(target)
    if is_native(Path(place)) and not Path(place).is_dir():
        return _pick(target, name, None, _native_creators(place))
    with _attributing(place), collect_static_registrations() as registered:
        module = _import(place)
        creators = _creators_in(module, registered)
    return _pick(target, name, module, creators)


def _native_creators(place: str) -> dict[str, Any]:
    from dovetail.plugin.native.loader import load_native_creators  # few targets are C++ libraries

    return {creator.name: creator for creator in load_native_creators(Path(place).resolve(), get_plugin_registry())}


def _split(target: str) -> tuple[str, str]:
    place, colon, name = target.rpartition(":")
    if colon and name.isidentifier() and not Path(target).exists():
        return place, name
    return target, ""


def _import(place: str) -> ModuleType:
    path = Path(place)
    if path.exists():
        return _import_file(path)
    if path.suffix == ".py" or "/" in place or "\\" in place:
        raise UsageError("there is no such file", where=place, fix="check the path")
    if importlib.util.find_spec(place.partition(".")[0]) is None:
        raise UsageError("there is no such file or module", where=place, fix="check the path, or install the package")
    return with_stand_ins(lambda: importlib.import_module(place))


def _import_file(path: Path) -> ModuleType:
    location = path.resolve()
    entry = location / "__init__.py" if location.is_dir() else location
    if entry.suffix != ".py" or not entry.is_file():
        raise UsageError("this is not a Python file or package", where=str(path))
    name = f"dovetail_checked_{location.stem}"
    folders = [str(location)] if location.is_dir() else None
    spec = importlib.util.spec_from_file_location(name, entry, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise UsageError("the file cannot be imported as Python", where=str(path))
    module, loader = importlib.util.module_from_spec(spec), spec.loader
    sys.modules[name] = module
    if str(location.parent) not in sys.path:  # for modules beside it, as for a script; after those that are installed
        sys.path.append(str(location.parent))
    try:
        with_stand_ins(lambda: loader.exec_module(module))
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _attributing(place: str) -> Iterator[None]:
    try:
        yield
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        frames = traceback.extract_tb(error.__traceback__)
        line = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else place
        where = f"{error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else line
        what = f"importing '{place}' raised {type(error).__name__}: {error}"
        raise PluginError(what, where=where, fix=advise_missing(error)) from error


def _creators_in(module: ModuleType, registered: list[Any]) -> dict[str, Any]:
    """The creators of a module by the names they can be picked by: class, variable and plugin name."""
    get_creators = getattr(module, "get_creators", None)
    found: list[tuple[str, Any]] = [("", creator) for creator in (get_creators() if callable(get_creators) else [])]
    found += [("", creator) for creator in registered]
    found += [(name, value) for name, value in vars(module).items() if _is_creator(value)]
    known = {type(creator) for _, creator in found}
    classes = [value for value in vars(module).values() if _is_creator_class(value, module)]
    known |= {each for each in classes if _is_only_base(each, classes)}
    for name, value in vars(module).items():
        if isinstance(value, QuickLayer):
            found.append((name, value.creator))
        elif _is_creator_class(value, module) and value not in known:
            found.append((name, instantiate(value)))
    names: dict[str, Any] = {}
    for name, creator in found:
        usable = resolve_creator(creator)
        for key in (name, type(creator).__name__, getattr(creator, "name", "")):
            if key and key not in ("LayerCreator",):
                names.setdefault(str(key), usable)
    return names


def _is_creator(value: Any) -> bool:
    return not isinstance(value, type) and (isinstance(value, IPluginCreatorV3One) or is_adaptable_creator(value))


def _is_creator_class(value: Any, module: ModuleType) -> bool:
    if not isinstance(value, type) or value.__module__ != module.__name__:
        return False
    return issubclass(value, IPluginCreatorV3One) or is_adaptable_creator(value)


def _is_only_base(value: type, classes: list[type]) -> bool:
    """Whether a class is what others are made from: some derive from it, and it cannot be made without arguments."""
    if not any(issubclass(each, value) and each is not value for each in classes):
        return False
    params = inspect.signature(value).parameters.values()
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(param.default is param.empty and param.kind not in kinds for param in params)


def _is_plugin_class(value: Any) -> bool:
    return isinstance(value, type) and (issubclass(value, IPluginV3) or is_adaptable_plugin(value))


def _pick(target: str, name: str, module: ModuleType | None, creators: dict[str, Any]) -> LocatedPlugin:
    if name in creators:
        return LocatedPlugin(creator=creators[name])
    plugin_class = getattr(module, name, None) if name else None
    if plugin_class is not None and _is_plugin_class(plugin_class):
        return LocatedPlugin(make_plugin=_maker_of(plugin_class))
    if name:
        raise UsageError(
            f"'{name}' is no creator and no plugin class",
            where=target,
            expected=", ".join(sorted(creators)) or "a module with a creator",
            fix=suggest(name, creators),
        )
    different = list({id(creator): creator for creator in creators.values()}.values())
    if len(different) == 1:
        return LocatedPlugin(creator=different[0])
    if not different:
        raise UsageError("there is no creator", where=target, fix="define one, or name a plugin class after a colon")
    raise UsageError(
        "there are several creators", where=target, expected=", ".join(sorted(creators)), fix="name one after a colon"
    )


def _maker_of(plugin_class: type) -> Callable[[], Any]:
    @functools.wraps(plugin_class, updated=())
    def make() -> Any:
        return resolve_plugin(plugin_class())

    return make
