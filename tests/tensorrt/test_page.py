"""The page about V2 plugins: its code runs, and it lists every rule."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from dovetail_tensorrt.lint import RULES

PAGE = Path(__file__).parents[2] / "docs" / "v2-plugins.md"


def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert "assert" in "".join(blocks)
    (tmp_path / "page.py").write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run([sys.executable, str(tmp_path / "page.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_page_lists_every_rule() -> None:
    listed = dict(re.findall(r"^\| (L\d\d) \| (.*) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    assert listed == {rule.id: rule.title for rule in RULES.values()}
