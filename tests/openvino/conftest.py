"""Without OpenVINO there is nothing to collect: ``make test-openvino`` makes an environment that has it."""

from __future__ import annotations

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("openvino") else ["test_*.py"]
