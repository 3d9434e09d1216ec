"""Judging plugin sources, Python and C++, by the known issues of moving to V3 and by what costs time."""

from __future__ import annotations

from dovetail_tensorrt.lint.linter import Finding, LintResult, lint_paths
from dovetail_tensorrt.lint.rules import RULES, LintRule

__all__ = ["RULES", "Finding", "LintResult", "LintRule", "lint_paths"]
