"""docs/serving.md: its programs and commands run against the server that it starts, and its tables are the code's."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from dovetail.cli.catalogue import load_declare
from dovetail_serve import errors
from dovetail_serve.options import ServerOptions
from dovetail_serve.repository.settings import ModelSettings
from dovetail_serve.server import Server

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)(?: title=\"[^\"]+\")?\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL)


def _block(language: str, words: str) -> str:
    (found,) = [text for kind, text in BLOCKS if kind == language and words in text]
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("*.plan*"))
    return folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server(folder / "examples" / "models", ServerOptions(http_port=0, grpc_port=0, poll_s=0)) as found:
        yield found


def _moved(text: str, server: Server) -> str:
    return text.replace("127.0.0.1:8000", f"127.0.0.1:{server.http_port}")


def test_the_request_of_curl(server: Server) -> None:
    command = _moved(_block("sh", "curl -s"), server)
    answer = json.loads(subprocess.run(command, shell=True, check=True, capture_output=True).stdout)
    values = answer["outputs"][0]["data"]
    assert values.index(max(values)) == 1


def test_the_server_as_an_object(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    Path("block.py").write_text(_block("python", "with Server("), encoding="utf-8")
    runpy.run_path("block.py")


def test_the_client_of_triton(server: Server, folder: Path) -> None:
    python = os.environ.get("SERVE_CLIENT")
    if not python:
        pytest.skip("SERVE_CLIENT names no Python that has tritonclient")
    (folder / "client.py").write_text(_moved(_block("python", "tritonclient"), server), encoding="utf-8")
    subprocess.run([python, "client.py"], cwd=folder, check=True)


def test_the_client_in_cpp(server: Server, folder: Path) -> None:
    build, run = _block("sh", "g++").splitlines()
    if shutil.which("g++") is None or not _has_curl():
        pytest.skip("there is no g++ or no libcurl to compile with")
    subprocess.run([*build.split(), "-Wall", "-Wextra", "-Werror"], cwd=folder, check=True)
    done = subprocess.run(_moved(run, server).split(), cwd=folder, check=True, capture_output=True, text=True)
    assert re.fullmatch(r"red 0\.\d+\n", done.stdout)
    wrong = subprocess.run(["./infer_client", f"{server.http_url}/no", "1", "1", "1"], cwd=folder, capture_output=True)
    assert wrong.returncode == 2
    assert b"status 404" in wrong.stderr


def _has_curl() -> bool:
    probe = ["g++", "-xc++", "-fsyntax-only", "-"]
    return subprocess.run(probe, input=b"#include <curl/curl.h>", capture_output=True).returncode == 0


def test_every_option_is_in_the_table() -> None:
    import argparse

    declare = load_declare("serve")
    assert declare is not None
    parser = argparse.ArgumentParser()
    declare(parser)
    options = {text for action in parser._actions for text in action.option_strings if text.startswith("--")}
    assert {option for option in options - {"--help"} if f"`{option}" not in PAGE} == set()


def test_every_key_of_a_configuration_is_in_the_table() -> None:
    for field in fields(ModelSettings):
        assert re.search(rf"`\[*{field.name}\b", PAGE), field.name


def test_every_status_is_in_the_table() -> None:
    for name in errors.__all__:
        kind = getattr(errors, name)
        assert f"| {kind.http_status} | {kind.grpc_status} |" in PAGE, name
