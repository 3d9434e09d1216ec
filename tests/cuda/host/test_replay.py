"""The build replay of CUDA: deterministic text, and every planted change is visible."""

from __future__ import annotations

from pathlib import Path

from tests.support.replays import replay

NO_EPILOGUES = """
import dovetail_cuda.graph.followers as module
module.follow = lambda *arguments: None
"""


def test_text_does_not_depend_on_the_hash_seed(tmp_path: Path) -> None:
    runs = [replay(tmp_path / seed, "--suite=cuda", "--quick", "--only=mlp", seed=seed) for seed in ("0", "54321")]
    assert runs[0] == runs[1]
    assert {name.partition("/")[2] for name in runs[0] if name.endswith(".txt")} == {
        f"mlp_float16.{mode}.txt" for mode in ("target", "device", "tuned")
    }
    assert any("/kernels/" in name for name in runs[0])


def test_removed_epilogue_fusion_is_visible(tmp_path: Path) -> None:
    options = ("--suite=cuda", "--quick", "--only=mlp")
    before, after = replay(tmp_path / "a", *options), replay(tmp_path / "b", *options, plant=NO_EPILOGUES)
    assert before["cuda/mlp_float16.target.txt"] != after["cuda/mlp_float16.target.txt"]
