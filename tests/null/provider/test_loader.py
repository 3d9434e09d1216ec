"""Providers of installed packages: listed without importing, imported when asked for, and named when they are wrong."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.entry_points import LoadingPolicy, set_loading_policy
from dovetail.errors import ProviderError, UsageError
from dovetail.provider.loader import (
    ProviderListing,
    get_default_options,
    get_factory,
    get_provider,
    has_provider,
    list_providers,
    provider_names,
    set_default_options,
)
from tests.support.distributions import PROVIDER_MODULE, install

_numbers = itertools.count()

Offer = Callable[..., str]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Install a provider under a name no other test has; the text of its module may be changed."""
    monkeypatch.syspath_prepend(tmp_path)
    for variable in ("DOVETAIL_AUTOLOAD", "DOVETAIL_PROVIDERS_ALLOW"):
        monkeypatch.delenv(variable, raising=False)

    def write(change: Callable[[str], str] = lambda text: text, *, target: str | None = None, **names: str) -> str:
        module = f"small_provider_{next(_numbers)}"
        name = names.get("name", module)
        text = change(PROVIDER_MODULE.format(name=name))
        entry = {"dovetail.providers": {name: target or f"{module}:create_factory"}}
        install(tmp_path, names.get("distribution", f"dist-{module}"), entry, {module: text})
        monkeypatch.syspath_prepend(tmp_path)  # forget what was known of the folder
        return name

    return write


@pytest.fixture(autouse=True)
def _policy_of_the_environment() -> Iterator[None]:
    yield
    set_loading_policy(None)


def _listing(name: str) -> ProviderListing:
    (found,) = [listing for listing in list_providers() if listing.name == name]
    return found


def test_listed_without_importing_and_imported_when_asked_for(offer: Offer) -> None:
    name = offer()
    assert name in provider_names()
    assert has_provider(name)
    assert _listing(name) == ProviderListing(name=name, origin=f"dist-{name} 1.2", is_imported=False)
    assert name not in sys.modules
    provider = get_provider(name)
    assert provider.name == name
    assert name in sys.modules
    assert _listing(name).is_imported


def test_built_in_providers_are_listed_as_such() -> None:
    assert _listing("cpu").origin == "built in"
    assert has_provider("cpu")
    assert not has_provider("nobody")


def test_one_provider_for_each_set_of_options(offer: Offer) -> None:
    name = offer()
    plain, wide = get_provider(name), get_provider(name, {"width": "2", "depth": "3"})
    assert get_provider(name, {}) is plain is get_provider(name)
    assert get_provider(name, {"depth": "3", "width": "2"}) is wide is not plain
    assert wide.options == {"width": "2", "depth": "3"}  # type: ignore[attr-defined]
    assert get_factory(name) is get_factory(name)


def test_default_options_are_for_whoever_names_none(offer: Offer) -> None:
    name = offer()
    plain = get_provider(name)
    set_default_options(name, {"width": "2"})
    try:
        assert get_provider(name) is get_provider(name, {"width": "2"}) is not plain
        assert get_provider(name, {}) is plain
        assert get_default_options(name) == {"width": "2"}
    finally:
        set_default_options(name, {})
    assert get_provider(name) is plain
    with pytest.raises(ProviderError, match="there is no provider 'nobody'"):
        set_default_options("nobody", {})
    with pytest.raises(ProviderError, match="is not text"):
        set_default_options(name, {"width": 2})  # type: ignore[dict-item]


def test_options_are_text(offer: Offer) -> None:
    with pytest.raises(ProviderError, match=r"option 'width' is not text; expected names and values of type str"):
        get_provider(offer(), {"width": 2})  # type: ignore[dict-item]


def test_unknown_option_of_a_built_in_provider() -> None:
    with pytest.raises(ProviderError, match="nonsense"):
        get_provider("cpu", {"nonsense": "1"})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: "raise ValueError('no licence')", "raised ValueError when it was imported: no licence"),
        (lambda text: "import sys\nsys.exit(3)", "raised SystemExit when it was imported: 3"),
        (lambda text: "import no_such_package", "ModuleNotFoundError when it was imported"),
        (lambda text: text.replace("def create_factory", "def other"), "AttributeError when it was imported"),
        (lambda text: text.replace('    name = "', '    name = "not_'), "another name; expected small_provider"),
        (lambda text: text.replace("= API_VERSION", "= 99"), "another version of the contract; expected 1, got 99"),
        (
            lambda text: text.replace("return Factory()", "return 5"),
            "is no factory; expected a ProviderFactory, got int",
        ),
        (lambda text: text.replace("def devices", "def gadgets"), "is no factory"),
        (
            lambda text: text.replace("return [Device", "raise OSError('no bus')\n        return [Device"),
            "OSError when",
        ),
        (lambda text: text.replace('[Device(name="a device", kind="npu", fingerprint="f")]', "[]"), "no device here"),
        (
            lambda text: text.replace("return Small(device, options)", "return 5"),
            "is no provider; expected a Provider, got int",
        ),
        (
            lambda text: text.replace("return Small(device, options)", "return 1 / 0"),
            "ZeroDivisionError when it was made",
        ),
    ],
)
def test_a_wrong_provider_is_named_and_the_others_go_on(
    offer: Offer, change: Callable[[str], str], message: str
) -> None:
    good = offer()
    bad = offer(change)
    with pytest.raises(ProviderError) as caught:
        get_provider(bad)
    assert message in str(caught.value)
    assert f"provider '{bad}'" in str(caught.value)
    assert get_provider(good).name == good
    assert {good, bad} <= set(provider_names())


def test_a_provider_that_lies_about_its_name_after_its_factory_did_not(offer: Offer) -> None:
    name = offer(lambda text: text.replace("class Factory", "Small.name = 'cpu'\nclass Factory"))
    with pytest.raises(ProviderError, match=f"provider '{name}': it goes by another name than its factory"):
        get_provider(name)


def test_a_name_that_two_packages_offer_is_refused(offer: Offer) -> None:
    name = offer(name="twice", distribution="first")
    offer(name="twice", distribution="second")
    assert name not in provider_names()
    with pytest.raises(ProviderError, match=r"provider 'twice' of first 1\.2: .*second 1\.2 offers the same name"):
        get_provider(name)


def test_nobody_takes_the_name_of_a_built_in_provider(offer: Offer) -> None:
    offer(name="cpu", distribution="impostor")
    origins = {listing.origin: listing.problem for listing in list_providers() if listing.name == "cpu"}
    assert origins == {"built in": None, "impostor 1.2": "the name is that of a built-in provider"}
    assert type(get_provider("cpu")).__module__.startswith("dovetail.")


@pytest.mark.parametrize("target", ["just_a_module", "not a module:at all", ""])
def test_a_malformed_entry_point(offer: Offer, target: str) -> None:
    name = offer(target=target or ":")
    with pytest.raises(ProviderError, match="and not 'module:function'"):
        get_provider(name)


def test_the_switch_turns_all_of_them_off(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    name = offer()
    monkeypatch.setenv("DOVETAIL_AUTOLOAD", "0")
    assert name not in provider_names()
    assert name not in {listing.name for listing in list_providers()}
    with pytest.raises(ProviderError, match=r"(?s)there is no provider.*switched off \(DOVETAIL_AUTOLOAD=0"):
        get_provider(name)
    assert name not in sys.modules
    assert get_provider("cpu").name == "cpu"


@pytest.mark.parametrize("text", ["", "no", "false", "2"])
def test_a_switch_that_is_neither_on_nor_off(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("DOVETAIL_AUTOLOAD", text)
    with pytest.raises(UsageError, match="expected 0 or 1"):
        provider_names()
    assert get_provider("cpu").name == "cpu"


@pytest.mark.parametrize("allowed", ["", " , ", "other,another"])
def test_what_is_not_on_the_allow_list_is_listed_and_not_imported(
    offer: Offer, monkeypatch: pytest.MonkeyPatch, allowed: str
) -> None:
    name = offer()
    monkeypatch.setenv("DOVETAIL_PROVIDERS_ALLOW", allowed)
    assert _listing(name).problem == f"'{name}' is not on the allow-list"
    assert name not in provider_names()
    with pytest.raises(ProviderError, match="is not on the allow-list"):
        get_factory(name)
    assert name not in sys.modules


def test_what_is_on_the_allow_list_is_imported(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    name = offer()
    monkeypatch.setenv("DOVETAIL_PROVIDERS_ALLOW", f"other, {name}")
    assert get_provider(name).name == name


def test_a_policy_of_the_program_stands_above_the_environment(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    name = offer()
    monkeypatch.setenv("DOVETAIL_PROVIDERS_ALLOW", name)
    set_loading_policy(LoadingPolicy(providers=frozenset()))
    assert name not in provider_names()
    set_loading_policy(LoadingPolicy(autoload=False))
    assert name not in {listing.name for listing in list_providers()}
    set_loading_policy(None)
    assert name in provider_names()


def test_the_near_name_is_offered(offer: Offer) -> None:
    name = offer()
    with pytest.raises(ProviderError, match=f"there is no provider '{name}x'; expected one of .*{name}"):
        get_provider(name + "x")


def test_packages_are_not_searched_for_built_in_providers() -> None:
    code = """
import sys
from dovetail.provider.loader import get_provider, has_provider
assert has_provider("cpu") and get_provider("cpu")
sys.exit("importlib.metadata" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_command_lists_providers_without_importing_them(
    offer: Offer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "250")
    good, bad = offer(), offer(lambda text: "raise ValueError('no licence')")
    assert main(["provider", "list", "--json"]) == 0
    listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)["providers"]}
    assert listed["cpu"]["origin"] == "built in"
    assert listed["cpu"]["available"]
    for name in (good, bad):
        assert (listed[name]["origin"], listed[name]["reason"]) == (f"dist-{name} 1.2", "not imported")
        assert name not in sys.modules
    assert main(["provider", "list", "--load"]) == 0
    text = capsys.readouterr().out
    assert "npu 0: a device" in text
    assert f"cannot be used: provider '{bad}' of dist-{bad} 1.2: it raised ValueError when it was imported" in text
