"""The rules of the house that a linter does not know, checked on every file of the repository."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted(ROOT.glob("packages/*/src/**/*.py"))
TEXT_SUFFIXES = {".cfg", ".in", ".json", ".md", ".py", ".pyi", ".sh", ".toml", ".txt", ".yaml", ".yml"}
LONGEST_FUNCTION = 80
LONGEST_MODULE = 800


def _repository_files() -> Iterator[Path]:
    """Yield what belongs to the repository, without asking git, which a fresh machine may lack."""
    for folder, folders, files in os.walk(ROOT):
        hidden = {name for name in folders if name.startswith(".") and name != ".ci"}
        made = {"build"} if Path(folder) == ROOT else set()
        folders[:] = sorted(set(folders) - hidden - made - {"__pycache__", "dist", "shared"})
        yield from (Path(folder, name) for name in sorted(files))


@cache
def _text_files() -> list[tuple[Path, str]]:
    found = []
    for path in _repository_files():
        data = path.read_bytes()
        if path.suffix in TEXT_SUFFIXES or (b"\0" not in data and not path.suffix):
            found.append((path, data.decode("utf-8")))
    return found


def _find_suffix(suffix: str) -> list[tuple[Path, str]]:
    return [(path, text) for path, text in _text_files() if path.suffix == suffix]


@cache
def _trees() -> dict[Path, ast.Module]:
    """Every module of the packages, parsed once for all rules."""
    return {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _find(pattern: str) -> list[str]:
    compiled = re.compile(pattern)
    return [
        f"{_name(path)}:{number}: {line.strip()[:120]}"
        for path, text in _text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if compiled.search(line)
    ]


def _module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(part for part in parts[parts.index("src") + 1 :] if part != "__init__")


def test_the_walk_finds_the_repository() -> None:
    names = {_name(path) for path, _ in _text_files()}
    assert {"README.md", "Makefile", ".ci/run", "requirements/dev.txt", "pyproject.toml"} <= names
    assert ROOT / "packages/dovetail/src/dovetail/errors.py" in SOURCES


def test_every_module_is_documented_and_says_what_is_public() -> None:
    assert [_name(path) for path, tree in _trees().items() if not ast.get_docstring(tree)] == [], "no docstring"
    defining = [path for path, tree in _trees().items() if _defines(tree) and path.name != "__main__.py"]
    assert [_name(path) for path in defining if "__all__" not in _assigned(_trees()[path])] == [], "no __all__"


def _defines(tree: ast.Module) -> bool:
    return any(isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign) for node in tree.body)


def _assigned(tree: ast.Module) -> set[str]:
    return {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def test_every_source_folder_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert [_name(folder) for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


def _is_long(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return function.end_lineno - function.lineno >= LONGEST_FUNCTION


def test_sizes_stay_readable() -> None:
    functions = [
        (path, node)
        for path, tree in _trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert [f"{_name(path)}:{node.lineno}: {node.name}" for path, node in functions if _is_long(node)] == []
    assert [_name(path) for path in SOURCES if path.read_text(encoding="utf-8").count("\n") > LONGEST_MODULE] == []


def test_private_modules_are_used_by_their_own_package_alone() -> None:
    offences = [
        f"{_name(path)}:{line}: {target}"
        for path, tree in _trees().items()
        for line, target in _imports(tree)
        if _is_private_to_others(target, _module_name(path))
    ]
    assert offences == []


def _imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            names = [alias.name for alias in node.names if alias.name.startswith("_")]
            yield from ((node.lineno, f"{node.module}.{name}") for name in names)


def _is_private_to_others(target: str, user: str) -> bool:
    owner = target.split("._", 1)[0]
    return "._" in target and target.startswith("dovetail.") and not f"{user}.".startswith(f"{owner}.")


def test_a_private_module_of_others_is_told_from_an_own_one() -> None:
    tree = ast.parse(
        "from dovetail.plan._parts import x\nimport dovetail.plan._parts\nfrom dovetail.plan import _parts"
    )
    targets = [target for _, target in _imports(tree) if _is_private_to_others(target, "dovetail.runtime.engine")]
    assert targets == ["dovetail.plan._parts"] * 3
    assert not _is_private_to_others("dovetail.plan._parts", "dovetail.plan.manifest")


def test_no_code_is_read_from_data() -> None:
    banned_modules = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
    words = re.compile(rf"\b(?:{'|'.join(sorted(banned_modules | {'eval', 'exec'}))})\b")
    offences = []
    for path, text in ((path, text) for path, text in _find_suffix(".py") if words.search(text)):
        for node in ast.walk(ast.parse(text)):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name.split(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [(node.module or "").split(".")[0]]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = [node.func.id] if node.func.id in {"eval", "exec"} else []
            bad = [name for name in names if name in banned_modules | {"eval", "exec"}]
            offences += [f"{_name(path)}:{node.lineno}: {name}" for name in bad]
    assert offences == []


def test_no_file_names_a_path_of_one_machine() -> None:
    assert _find(r"(?<![\w.])/(?:home|root|Users|work|farm|tmp|opt|mnt)/[\w.-]+") == []
    assert _find(r"\b[A-Z]:\\(?:Users|home)\b") == []


def test_no_file_names_a_package_registry() -> None:
    hosts = ["pypi" + r"\.org", "python" + r"hosted\.org", "test" + r"\.pypi"]
    assert _find("|".join(hosts)) == []


def test_the_lock_file_has_pins_and_hashes_and_no_address() -> None:
    text = (ROOT / "requirements/dev.txt").read_text(encoding="utf-8")
    assert "://" not in text
    options = [line for line in text.splitlines() if line.startswith("-")]
    assert options == []
    entries = [entry for entry in re.split(r"\n(?=\S)", text) if not entry.startswith("#")]
    assert len(entries) > 20
    for entry in entries:
        assert re.match(r"[a-z0-9-]+==[\w.+]+", entry), entry.splitlines()[0]
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_both_copies_of_the_licence_are_the_same() -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    copies = sorted(ROOT.glob("packages/*/LICENSE"))
    assert copies
    assert [_name(copy) for copy in copies if copy.read_bytes() != licence] == []


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#{1,6} +(.+?) *$", _without_code(text), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _without_code(text: str) -> str:
    return re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.MULTILINE | re.DOTALL)


def _relative_links(text: str) -> list[str]:
    prose = re.sub(r"`[^`\n]*`", "", _without_code(text))
    links = re.findall(r"\]\(\s*<?([^)\s>]+)", prose) + re.findall(r"^\[[^\]]+\]:\s*(\S+)", prose, flags=re.MULTILINE)
    return [link for link in links if not re.match(r"[a-z][a-z0-9+.-]*:", link)]


def test_every_relative_link_leads_somewhere() -> None:
    broken = [
        f"{_name(path)}: {link}"
        for path, text in _find_suffix(".md")
        for link in _relative_links(text)
        if not _leads_somewhere(path, link)
    ]
    assert broken == []


def _leads_somewhere(path: Path, link: str) -> bool:
    target, _, anchor = link.partition("#")
    page = (path.parent / target).resolve() if target else path
    if not page.exists() or not page.is_relative_to(ROOT):
        return False
    return not anchor or page.suffix != ".md" or anchor in _anchors(page.read_text(encoding="utf-8"))


def test_every_page_is_reached_from_the_index() -> None:
    start = ROOT / "docs/README.md"
    reached, queue = {start}, [start]
    while queue:
        page = queue.pop()
        for link in _relative_links(page.read_text(encoding="utf-8")):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.is_file() and target not in reached:
                reached.add(target)
                queue.append(target)
    orphans = [
        _name(path) for path, _ in _find_suffix(".md") if path.is_relative_to(ROOT / "docs") and path not in reached
    ]
    assert orphans == []
