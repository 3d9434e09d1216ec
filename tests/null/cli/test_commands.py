"""Commands of installed packages: listed without importing them, run like Dovetail's own, and refused with a reason."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dovetail.cli import main
from dovetail.entry_points import LoadingPolicy, set_loading_policy
from tests.support.distributions import install

GREET = """
from dovetail.cli.answers import Reply
from dovetail.cli.options import finish_command
from dovetail.errors import InputError

def declare(parser):
    parser.add_argument("name", metavar="NAME")
    finish_command(parser, run)

def run(args):
    if args.name == "nobody":
        raise InputError("there is nobody to greet", fix="name somebody")
    return Reply(document={"hello": args.name}, show=show)

def show(document, screen):
    screen.line(f"hello {document['hello']}")
"""

_numbers = itertools.count()

Offer = Callable[..., str]
Shown = pytest.CaptureFixture[str]


@pytest.fixture
def offer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Offer:
    """Install a package with one command; what comes back is the name of its module, and of the command by default."""
    for variable in ("DOVETAIL_AUTOLOAD", "DOVETAIL_COMMANDS_ALLOW"):
        monkeypatch.delenv(variable, raising=False)

    def write(text: str = GREET, *, command: str | None = None, target: str | None = None) -> str:
        name = f"greet_{next(_numbers)}"
        entry_points = {"dovetail.commands": {command or name: target or name}}
        install(tmp_path, f"dist-{name}", entry_points, {name: text})
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write


def _fail(words: list[str], capsys: Shown) -> tuple[int, str]:
    code = main(words)
    shown = capsys.readouterr()
    assert shown.out == ""
    return code, shown.err


def test_listed_without_importing(offer: Offer, capsys: Shown) -> None:
    name = offer()
    assert main(["-h"]) == 0
    shown = capsys.readouterr().out
    assert f"a command of dist-{name} 1.2" in " ".join(shown.split())
    assert name not in sys.modules


def test_known_commands_are_listed_with_what_they_are_for() -> None:
    """The text belongs to the package: another one that offers the name is shown by its own."""
    from dovetail.cli.catalogue import summarize
    from dovetail.entry_points import Offer as Point

    ours = Point(name="trtexec", target="absent", distribution="dovetail-tensorrt", version="9")
    assert summarize(ours) == "build, run and time a model with the flags of trtexec (dovetail-tensorrt 9)"
    theirs = Point(name="trtexec", target="absent", distribution="other", version="9")
    assert summarize(theirs) == "a command of other 9"


def test_run_like_any_other(offer: Offer, capsys: Shown) -> None:
    name = offer()
    assert main([name, "you"]) == 0
    assert capsys.readouterr().out == "hello you\n"
    assert main([name, "you", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"hello": "you"}
    assert main([name, "-h"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: dovetail {name} [-h] [--json] NAME")
    assert _fail([name, "nobody"], capsys) == (2, "error: there is nobody to greet\n  fix: name somebody\n")
    assert _fail([name], capsys)[0] == 1


def test_a_command_of_dovetail_looks_at_no_package(offer: Offer, monkeypatch: pytest.MonkeyPatch) -> None:
    offer()
    monkeypatch.setattr("dovetail.entry_points.find_offers", lambda group: pytest.fail(group))
    assert main(["inspect", "-h"]) == 0


def test_a_known_command_names_the_package_to_install(capsys: Shown) -> None:
    code, message = _fail(["serve", "model.plan"], capsys)
    assert code == 6
    assert message == (
        "error: command 'serve': this is a command of the package 'dovetail-serve', which is not installed\n"
        "  fix: pip install dovetail-serve\n"
    )


def test_an_unknown_command_is_a_usage_error(offer: Offer, capsys: Shown) -> None:
    name = offer()
    code, message = _fail(["greeet"], capsys)
    assert code == 1
    assert f"'{name}'" in message
    assert name not in sys.modules


def test_names_of_dovetail_cannot_be_taken(offer: Offer, capsys: Shown) -> None:
    name = offer(command="env")
    assert main(["env", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["commands"]
    assert found == {
        "name": "env",
        "origin": f"dist-{name} 1.2",
        "reason": "the name is that of a command of Dovetail",
    }
    assert name not in sys.modules


def test_a_name_that_two_packages_offer_is_refused(offer: Offer, capsys: Shown) -> None:
    first, second = offer(command="greet"), offer(command="greet")
    code, message = _fail(["greet", "you"], capsys)
    assert (code, f"dist-{second} 1.2 offers the same name" in message) == (1, True)
    assert {first, second} & sys.modules.keys() == set()


@pytest.mark.parametrize("target", ["module:declare", "no module"])
def test_an_entry_point_that_names_no_module_is_refused(offer: Offer, capsys: Shown, target: str) -> None:
    offer(command="greet", target=target)
    code, message = _fail(["greet", "you"], capsys)
    assert (code, f"the entry point is '{target}' and not a module" in message) == (1, True)


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ("import nowhere_to_be_found", 6, "cannot be imported: No module named 'nowhere_to_be_found'"),
        ("1 / 0", 2, "importing it failed: ZeroDivisionError: division by zero"),
        ("declare = 3", 2, "its module does not say what arguments the command takes"),
        ("def declare(parser):\n    1 / 0", 2, "declaring it failed: ZeroDivisionError: division by zero"),
        ("def declare(parser):\n    pass", 2, "the command declares its arguments and not what runs it"),
    ],
    ids=["imports", "raises", "no function", "function raises", "runs nothing"],
)
def test_a_package_that_breaks_the_contract_is_named(
    offer: Offer, capsys: Shown, text: str, code: int, message: str
) -> None:
    name = offer(text)
    got, shown = _fail([name], capsys)
    assert (got, message in shown) == (code, True)
    assert f"command '{name}' of dist-{name} 1.2" in shown or "runs it" in message
    assert (f"fix: pip install dist-{name}" in shown) == (code == 6)


def test_the_policy_decides(offer: Offer, capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    name = offer()
    monkeypatch.setenv("DOVETAIL_COMMANDS_ALLOW", "other")
    assert "is not on the allow-list" in _fail([name, "you"], capsys)[1]
    assert main(["-h"]) == 0
    assert name not in capsys.readouterr().out
    monkeypatch.setenv("DOVETAIL_COMMANDS_ALLOW", f"other,{name}")
    assert main([name, "you"]) == 0
    set_loading_policy(LoadingPolicy(commands=frozenset()))
    capsys.readouterr()
    try:
        assert _fail([name, "you"], capsys)[0] == 1
    finally:
        set_loading_policy(None)


def test_switched_off_it_is_not_said_to_be_missing(capsys: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOVETAIL_AUTOLOAD", "0")
    code, message = _fail(["serve"], capsys)
    assert (code, "entry points are switched off" in message) == (1, True)
