"""Kernel modules are imported when an operator of theirs is asked for, and found even when the index is behind."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from dovetail.provider.kernels import KernelRegistry

FAMILY = """
from {package}._registry import registry

@registry.register("{op}", since={since}, until={until}, domain="{domain}")
def compute(x):
    return {result}
"""


def make_package(folder: Path, name: str, index: dict[str, list[str]]) -> KernelRegistry:
    """Three families: two of one op, for old and for new opsets, and one of another domain."""
    package = folder / name
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "_registry.py").write_text(
        "from dovetail.provider.schemas.families import KernelFamilies\n"
        "from dovetail.provider.kernels import KernelRegistry\n"
        f"registry = KernelRegistry({name!r}, KernelFamilies({name!r}, {index!r}))\n"
    )
    for module, op, since, until, domain, result in (
        ("old", "Twice", 1, 9, "", "x + x"),
        ("new", "Twice", 10, None, "", "2 * x"),
        ("other", "Thrice", 1, None, "org.example", "3 * x"),
    ):
        text = FAMILY.format(package=name, op=op, since=since, until=until, domain=domain, result=result)
        (package / f"{module}.py").write_text(text)
    made: KernelRegistry = __import__(f"{name}._registry", fromlist=["registry"]).registry
    return made


def imported(name: str) -> set[str]:
    return {m.rpartition(".")[2] for m in sys.modules if m.startswith(f"{name}.") and not m.endswith("._registry")}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_only_the_modules_of_the_op_are_imported(folder: Path) -> None:
    lazy = make_package(folder, "lazy_kernels", {"old": ["Twice"], "new": ["Twice"], "other": ["org.example::Thrice"]})
    assert imported("lazy_kernels") == set()
    found = lazy.find("Twice", "ai.onnx", 13)
    assert found is not None
    assert found.function(4) == 8
    assert imported("lazy_kernels") == {"old", "new"}


def test_iterating_sees_every_kernel(folder: Path) -> None:
    lazy = make_package(folder, "whole_kernels", {"old": ["Twice"], "new": ["Twice"], "other": ["org.example::Thrice"]})
    assert len(lazy) == 3
    assert {(kernel.op, kernel.since) for kernel in lazy} == {("Twice", 1), ("Twice", 10), ("Thrice", 1)}


def test_an_index_that_is_behind_costs_only_time(folder: Path) -> None:
    lazy = make_package(folder, "stale_kernels", {"old": ["Twice"]})
    newer, foreign = lazy.find("Twice", "", 13), lazy.find("Thrice", "org.example", 1)
    assert newer is not None
    assert foreign is not None
    assert (newer.since, foreign.function(2)) == (10, 6)


def test_an_unknown_op_is_none(folder: Path) -> None:
    lazy = make_package(folder, "small_kernels", {})
    assert lazy.find("Fourfold", "", 1) is None
    assert lazy.find("Twice", "org.example", 1) is None


def test_a_module_that_does_not_import_says_so_every_time(folder: Path) -> None:
    lazy = make_package(folder, "broken_kernels", {"old": ["Twice"], "bad": ["Once"]})
    (folder / "broken_kernels" / "bad.py").write_text("import no_such_module_anywhere\n")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="no_such_module_anywhere"):
            lazy.find("Once", "", 1)


def test_a_registry_without_families_is_as_it_was() -> None:
    plain = KernelRegistry("plain")
    plain.register("Neg", since=6)(lambda x: -x)
    assert len(plain) == 1
    assert plain.find("Abs", "", 13) is None


def test_the_index_of_the_cpu_kernels_is_in_step() -> None:
    tool = Path(__file__).parents[4] / "tools" / "make_kernel_index"
    done = subprocess.run([sys.executable, str(tool), "--check"], check=False)
    assert done.returncode == 0, "run .venv/bin/python tools/make_kernel_index"


def test_a_plan_of_one_op_imports_one_family() -> None:
    code = """
    import sys
    from dovetail.provider.loader import get_provider
    assert get_provider("cpu").kernels.find("Relu", "", 13) is not None
    package = "dovetail.providers.cpu.kernels."
    print(*(m.removeprefix(package) for m in sys.modules if m.startswith(package)))
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True)
    assert {name for name in done.stdout.split() if not name.startswith("_")} == {"onnx", "onnx.activation"}
