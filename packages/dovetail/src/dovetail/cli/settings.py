"""How a model is built, from the words of a command line: providers and their options, passes, layers, plugins."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from dovetail.errors import ProviderError, UsageError

if TYPE_CHECKING:
    from dovetail.build.config import BuilderConfig

__all__ = [
    "BuildSettings",
    "add_build_settings",
    "add_provider_options",
    "apply_provider_options",
    "read_names",
    "read_settings",
    "require_providers",
]


class BuildSettings(NamedTuple):
    """What was asked for; the defaults ask for nothing."""

    providers: tuple[str, ...] | None = None
    rivals: bool = False
    strict: bool = False
    off: tuple[str, ...] = ()
    layer_providers: tuple[tuple[str, str], ...] = ()
    override: tuple[str, ...] = ()

    def apply(self, config: BuilderConfig) -> BuilderConfig:
        """Write all but the overrides, which are for the import, into a configuration."""
        config.strict = self.strict
        config.providers = self.providers
        config.rivals = self.rivals
        config.passes_off = self.off
        config.layer_providers = dict(self.layer_providers)
        return config


def add_build_settings(parser: argparse.ArgumentParser) -> None:
    """The options of every command that may build a model."""
    parser.add_argument(
        "--providers", metavar="A,B", help="back ends in order of preference (default: onnxruntime where it is, cpu)"
    )
    add_provider_options(parser)
    parser.add_argument(
        "--rivals", action="store_true", help="time each back end as the first of the order, and keep the fastest"
    )
    parser.add_argument(
        "--layer-provider",
        action="append",
        default=[],
        metavar="PATTERN=PROVIDER",
        help="the back end for layers whose names match, such as 'encoder.*=cpu'; may be repeated",
    )
    parser.add_argument("--off", metavar="PASS[,PASS]", help="passes to leave out, such as attention,gelu")
    parser.add_argument("--override", metavar="OP[,OP]", help="operators to take from plugins although ONNX has them")
    parser.add_argument("--strict", action="store_true", help="an error where there would otherwise be a warning")


def add_provider_options(parser: argparse.ArgumentParser) -> None:
    """The options of back ends, which plans are run with too."""
    parser.add_argument(
        "--provider-option",
        action="append",
        default=[],
        metavar="PROVIDER.KEY=VALUE",
        help="an option of a back end, such as onnxruntime.threads=2; may be repeated",
    )


def read_settings(args: argparse.Namespace) -> BuildSettings:
    """What a command line says of the build.

    Raises:
        UsageError: An option cannot be read.
    """
    providers = None if args.providers is None else read_names(args.providers, "--providers")
    layer_providers = tuple(_layer_provider(text) for text in args.layer_provider)
    require_providers(providers or (), where="--providers")
    require_providers((provider for _, provider in layer_providers), where="--layer-provider")
    return BuildSettings(
        providers=providers,
        rivals=args.rivals,
        strict=args.strict,
        off=() if args.off is None else read_names(args.off, "--off"),
        layer_providers=layer_providers,
        override=() if args.override is None else read_names(args.override, "--override"),
    )


def require_providers(names: Iterable[str], *, where: str) -> None:
    """Check that back ends which a command line names are here.

    Raises:
        UsageError: One is not.
    """
    from dovetail.provider.loader import require_provider

    for name in names:
        try:
            require_provider(name)
        except ProviderError as error:
            raise UsageError(error.what, where=where, expected=error.expected, fix=error.fix) from error


def read_names(text: str, option: str) -> tuple[str, ...]:
    """Names joined by commas.

    Raises:
        UsageError: One is empty.
    """
    names = tuple(part.strip() for part in text.split(","))
    if not all(names):
        raise UsageError("a name is empty", where=f"{option} {text!r}", expected="names joined by commas")
    return names


def _layer_provider(text: str) -> tuple[str, str]:
    pattern, equals, provider = text.rpartition("=")
    if not equals or not pattern or not provider:
        raise UsageError("this cannot be read", where=f"--layer-provider {text!r}", expected="pattern=provider")
    return pattern, provider


def apply_provider_options(texts: Iterable[str]) -> None:
    """Set options of back ends for this process.

    Raises:
        UsageError: A text cannot be read, an option is given twice, or there is no such back end.
    """
    options: dict[str, dict[str, str]] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        provider, dot, key = name.rpartition(".")
        where = f"--provider-option {text!r}"
        if not (equals and dot and provider and key):
            raise UsageError("this cannot be read", where=where, expected="provider.key=value")
        if key in options.setdefault(provider, {}):
            raise UsageError(f"option '{key}' is given twice", where=where)
        options[provider][key] = value
    require_providers(options, where="--provider-option")
    if options:
        from dovetail.provider.loader import set_default_options

        for provider, chosen in options.items():
            set_default_options(provider, chosen)
