"""Plugins that are a kernel, on the host device: launched in order, captured, and refused where nobody knows them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import dovetail as dt
from dovetail.expr import Constant
from dovetail.provider.interfaces import LaunchShape
from dovetail.testing import host_device
from tests.support.plugins import ScalePlugin


class KernelScale(ScalePlugin):
    """The kernel 'scale', over as many elements as the first dimension says."""

    preferred_memory = "device"
    formats = (dt.TensorFormat.LINEAR,)
    tactics = ()

    def get_kernel_launch(self, in_: Any, out: Any) -> dt.KernelLaunch:
        one, count = Constant(1), dt.KernelLaunch.name_dimension(0, 0)
        return dt.KernelLaunch(
            name="scale",
            code=b"code",
            grid=(count, one, one),
            block=(one, one, one),
            shared_bytes=Constant(0),
            arguments=(count, Constant(int(self.factor))),
        )


def build(providers: Sequence[str], *, run_plugins: bool = True) -> Any:
    builder = dt.Builder()
    network = builder.create_network()
    x = network.add_input("x", dt.float32, (-1,))
    network.mark_output(network.add_plugin_v3([x], [], KernelScale(3.0)).get_output(0))
    config = builder.create_builder_config()
    config.providers, config.run_plugins = list(providers), run_plugins
    config.add_optimization_profile(dt.profile_from_shapes({"x": ((1,), (4,), (9,))}))
    return builder.build_serialized_network(network, config)


def test_a_plan_runs_the_kernel_without_the_plugin() -> None:
    with host_device() as device:

        def scale(shape: LaunchShape, parameters: Sequence[int]) -> None:
            source, count, factor, target = parameters
            views = [device.view_at(address, (count,), np.float32) for address in (source, target)]
            assert shape.grid == (count, 1, 1)
            np.multiply(views[0].view(), factor, out=views[1].view())

        device.plugin_functions["scale"] = scale
        engine = dt.Runtime().deserialize_cuda_engine(build([device.id, "cpu"]))
        for count in (4, 9, 4, 4, 4, 1):
            x = np.arange(count, dtype=np.float32)
            np.testing.assert_array_equal(engine(x), x * 3)
        engine.close()


def test_an_unknown_kernel_is_an_error_of_the_build_and_the_load() -> None:
    with host_device() as device:
        with pytest.raises(dt.ProviderError, match=r"layer '.*there is no kernel 'scale'"):
            build([device.id, "cpu"])
        plan = build([device.id, "cpu"], run_plugins=False)
        with pytest.raises(dt.ProviderError, match="there is no kernel 'scale'"):
            dt.Runtime().deserialize_cuda_engine(plan)
