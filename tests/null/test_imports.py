"""What importing and running load: nothing slow, and nothing of the build side."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dovetail as dt

FORBIDDEN = ("onnx", "onnx_ir", "onnxscript", "onnx_shape_inference", "sympy", "torch", "triton", "rich")


def _run(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_is_fast_and_loads_nothing() -> None:
    code = """
    import sys, time
    before = set(sys.modules)
    start = time.perf_counter()
    import dovetail
    elapsed_ms = (time.perf_counter() - start) * 1000
    assert "numpy" not in sys.modules, "numpy"
    assert not any(m.startswith("dovetail.") and m.count(".") > 1 for m in sys.modules)
    print(elapsed_ms)
    """
    assert min(float(_run(code)) for _ in range(5)) < 50


def test_every_public_name_resolves_and_is_listed() -> None:
    for name in dt.__all__:
        assert getattr(dt, name) is not None, name
        assert name in dir(dt)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = dt.nothing


@pytest.mark.parametrize(
    ("module", "name", "extra"),
    [("onnx_ir", "compile", "'dovetail-engine[build]'"), ("numpy", "load", "dovetail-engine")],
)
def test_a_package_that_is_missing_is_named_with_what_brings_it(module: str, name: str, extra: str) -> None:
    code = f"""
    import sys
    sys.modules[{module!r}] = None
    import dovetail
    try:
        dovetail.{name}
    except dovetail.ResourceError as error:
        print(error)
    """
    expected = f"this needs the package '{module}', which is not installed\n  fix: pip install {extra}"
    assert _run(code) == expected


def test_running_a_plan_imports_nothing_of_the_build_side(tmp_path: Path) -> None:
    from tests.support.plugins import PlainCreator, ScalePlugin

    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1, 3))
    y = network.add_plugin_v3([x], [], ScalePlugin(2.0)).get_output(0)
    z = network.add_activation(y, dt.ActivationType.RELU).get_output(0)
    network.mark_output(z)
    config = builder.create_builder_config()
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1, 3), (2, 3), (4, 3))
    config.add_optimization_profile(profile)
    path = tmp_path / "m.plan"
    path.write_bytes(builder.build_serialized_network(network, config))
    assert PlainCreator
    loaded = _run(
        """
        import sys
        import dovetail as dt
        from tests.support.plugins import PlainCreator, ScalePlugin
        runtime = dt.Runtime()
        runtime.get_plugin_registry().register_creator(PlainCreator("TestScale", ScalePlugin), "")
        engine = runtime.load_engine(sys.argv[1])
        import numpy as np
        assert (engine(np.ones((2, 3), np.float32)) == 2).all()
        ours = {m for m in sys.modules if m.startswith("dovetail.")}
        print(" ".join(sorted({m.split(".")[0] for m in sys.modules} | ours)))
        """,
        str(path),
    ).split()
    assert not set(loaded) & set(FORBIDDEN)
    assert not [
        m for m in loaded if m.startswith(("dovetail.build", "dovetail.network", "dovetail.passes", "dovetail.cli"))
    ]


def test_the_stub_names_what_the_package_exports() -> None:
    tool = Path(__file__).parents[2] / "tools" / "make_stub"
    done = subprocess.run([sys.executable, str(tool), "--check"], check=False)
    assert done.returncode == 0, "run tools/make_stub"
