"""Builders, networks and configurations: what they keep, and how they answer what cannot be done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail_tensorrt import trt
from tests.support.trt_objects import KeptMessages, build, make_network, relu_network


def test_a_layer_that_cannot_be_added_is_none_with_a_message() -> None:
    logger = KeptMessages()
    _, network = make_network(logger)
    assert network.add_activation(None, trt.ActivationType.RELU) is None
    assert network.get_layer(3) is None
    assert network.add_moe(None) is None
    assert len(logger.errors) == 3
    assert logger.errors[0].startswith("INetworkDefinition.add_activation: Error Code 3: Invalid Argument (")


def test_a_network_that_cannot_be_built_is_none_with_a_message() -> None:
    logger = KeptMessages()
    builder, network = make_network(logger)
    recorder = dovetail.ErrorRecorder()
    builder.error_recorder = recorder
    assert builder.build_serialized_network(network, builder.create_builder_config()) is None
    assert builder.build_engine_with_config(network, builder.create_builder_config()) is None
    assert not builder.is_network_supported(network, builder.create_builder_config())
    assert "the network has no output" in logger.errors[0]
    assert recorder.num_errors() == 3


def test_a_dynamic_network_needs_a_profile() -> None:
    logger = KeptMessages()
    assert build(logger, (-1, 3)) is None
    assert "profile" in logger.errors[0]


def test_a_plan_is_bytes_with_a_size() -> None:
    builder, network = relu_network(KeptMessages())
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    assert isinstance(plan, trt.IHostMemory)
    assert plan.nbytes == len(bytes(plan)) == memoryview(plan).nbytes
    assert plan


@pytest.mark.parametrize("make", [lambda b: b, lambda b: b.create_network(), lambda b: b.create_builder_config()])
def test_context_managers_warn_and_do_nothing(make: Any) -> None:
    builder = trt.Builder(KeptMessages())
    with pytest.warns(DeprecationWarning, match="context manager"), make(builder) as found:
        assert found is not None
    assert builder.create_network() is not None


def test_flags_are_a_mask_that_can_be_written() -> None:
    config = trt.Builder(KeptMessages()).create_builder_config()
    assert config.get_flag(trt.BuilderFlag.TF32)
    config.flags &= ~(1 << int(trt.BuilderFlag.TF32))
    config.flags |= 1 << int(trt.BuilderFlag.REFIT)
    assert not config.get_flag(trt.BuilderFlag.TF32)
    assert config.get_flag(trt.BuilderFlag.REFIT)
    config.set_flag(trt.BuilderFlag.DEBUG)
    config.clear_flag(trt.BuilderFlag.REFIT)
    assert config.flags == 1 << int(trt.BuilderFlag.DEBUG)
    config.reset()
    assert config.flags == 1 << int(trt.BuilderFlag.TF32)


@pytest.mark.parametrize("flag", trt.BuilderFlag)
def test_every_flag_can_be_set_for_a_build(flag: Any) -> None:
    builder, network = relu_network(KeptMessages())
    config = builder.create_builder_config()
    config.set_flag(flag)
    needs_weights = flag in (trt.BuilderFlag.ERROR_ON_TIMING_CACHE_MISS,)
    plan = builder.build_serialized_network(network, config)
    assert plan is not None or needs_weights


def test_settings_that_are_kept() -> None:
    logger = KeptMessages()
    builder, network = relu_network(logger)
    config = builder.create_builder_config()
    assert config.get_memory_pool_limit(trt.MemoryPoolType.TACTIC_SHARED_MEMORY) == 1 << 30
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 1 << 20)
    config.set_memory_pool_limit(trt.MemoryPoolType.DLA_LOCAL_DRAM, 1 << 10)
    config.set_tactic_sources(1 << int(trt.TacticSource.CUBLAS))
    config.set_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03, True)
    config.set_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    assert config.get_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    config.clear_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    assert config.quantization_flags == 0
    config.builder_optimization_level = 5
    config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    config.max_aux_streams = 2
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 1 << 20
    assert config.get_memory_pool_limit(trt.MemoryPoolType.DLA_LOCAL_DRAM) == 1 << 10
    assert config.get_tactic_sources() == 1
    assert config.get_preview_feature(trt.PreviewFeature.ALIASED_PLUGIN_IO_10_03)
    assert not config.get_preview_feature(trt.PreviewFeature.RUNTIME_ACTIVATION_RESIZE_10_10)
    assert builder.build_serialized_network(network, config) is not None
    assert logger.errors == []


def test_there_is_no_dla() -> None:
    logger = KeptMessages()
    builder, network = relu_network(logger)
    config = builder.create_builder_config()
    layer = network.get_layer(0)
    assert builder.num_DLA_cores == 0
    assert not config.can_run_on_DLA(layer)
    config.set_device_type(layer, trt.DeviceType.DLA)
    assert "there is no DLA" in logger.errors[0]
    assert config.get_device_type(layer) == trt.DeviceType.GPU
    config.set_device_type(layer, trt.DeviceType.GPU)
    assert config.is_device_type_set(layer)
    config.reset_device_type(layer)
    assert not config.is_device_type_set(layer)


def test_profiles_refuse_what_contradicts_itself() -> None:
    profile = trt.Builder(KeptMessages()).create_optimization_profile()
    assert profile, "of a network without inputs"
    with pytest.raises(ValueError, match="breaks min <= opt <= max"):
        profile.set_shape("x", (2,), (1,), (4,))
    profile.set_shape("x", (1,), (2,), (4,))
    assert [tuple(dims) for dims in profile.get_shape("x")] == [(1,), (2,), (4,)]
    with pytest.raises(ValueError, match="between 0 and 1"):
        profile.extra_memory_target = 2.0


def test_a_network_of_version_10_may_choose_types() -> None:
    builder, network = relu_network(KeptMessages())
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.FP16)
    engine = builder.build_engine_with_config(network, config)
    assert not engine.engine.manifest.strongly_typed
    strong = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    x = strong.add_input("x", trt.float32, (2,))
    strong.mark_output(strong.add_identity(x).get_output(0))
    assert builder.build_engine_with_config(strong, config).engine.manifest.strongly_typed
    assert strong.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)


@pytest.mark.parametrize("flag", [trt.BuilderFlag.FP16, trt.BuilderFlag.BF16, trt.BuilderFlag.INT8, None])
@pytest.mark.parametrize("creation", [0, 1 << 0, 1 << 1, 1 << 1 | 1 << 2, 1 << 3])
def test_the_creation_flags_of_a_network_are_those_of_its_build(creation: int, flag: Any) -> None:
    builder = trt.Builder(KeptMessages())
    network = builder.create_network(creation)
    x = network.add_input("x", trt.float32, (2, 3))
    network.mark_output(network.add_activation(x, trt.ActivationType.RELU).get_output(0))
    config = builder.create_builder_config()
    if flag is not None:
        config.set_flag(flag)
    is_strong = bool(creation >> trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED & 1)
    assert network.flags == creation
    assert network.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == is_strong
    assert builder.build_engine_with_config(network, config).engine.manifest.strongly_typed == is_strong
    assert network.get_flag(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == is_strong


def test_a_network_is_written_as_onnx() -> None:
    import onnx

    _, network = relu_network(KeptMessages())
    model = onnx.load_model_from_string(bytes(network.serialize()))
    assert [node.op_type for node in model.graph.node] == ["Relu"]


def test_weights_by_address_and_by_array() -> None:
    array = np.arange(6, dtype=np.float32)
    weights = trt.Weights(trt.float32, array.ctypes.data, array.size)
    np.testing.assert_array_equal(weights.numpy(), array)
    assert (weights.size, weights.nbytes, len(weights)) == (6, 24, 6)
    assert trt.Weights(array).dtype == trt.float32


def test_dims_and_helpers() -> None:
    dims = trt.Dims4(1, 2, 3, 4)
    assert dims == (1, 2, 3, 4)
    assert dims == [1, 2, 3, 4]
    assert dims[1:3] == (2, 3)
    assert str(trt.Dims((1, 2))) == "(1, 2)"
    assert trt.DimsHW(4, 5).w == 5
    assert trt.volume(()) == 1
    assert trt.nptype(trt.float16) is np.float16
    with pytest.raises(TypeError):
        trt.nptype(trt.bfloat16)
    assert [d.itemsize for d in (trt.float32, trt.float16, trt.int8, trt.int4)] == [4, 2, 1, 0.5]


def test_the_logger_prints_as_scripts_expect(capsys: pytest.CaptureFixture[str]) -> None:
    logger = trt.Logger(trt.Logger.INFO)
    logger.log(trt.Logger.WARNING, "careful")
    logger.log(trt.Logger.VERBOSE, "too much")
    out = capsys.readouterr().out
    assert out.endswith("[TRT] [W] careful\n")
    assert "too much" not in out
    assert trt.Logger().min_severity == trt.Logger.WARNING == trt.ILogger.Severity.WARNING


def test_a_logger_that_raises_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(trt.ILogger):
        def log(self, severity: Any, msg: str) -> None:
            raise RuntimeError("no log")

    _, network = make_network(Broken())
    assert network.add_identity(None) is None
    assert "[ERROR] Exception thrown from log() RuntimeError: no log" in capsys.readouterr().err


def test_a_monitor_that_raises_cancels_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(trt.IProgressMonitor):
        def __init__(self) -> None:
            trt.IProgressMonitor.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            raise RuntimeError("no phase")

        def step_complete(self, phase_name: str, step: int) -> bool:
            return True

        def phase_finish(self, phase_name: str) -> None: ...

    logger = KeptMessages()
    builder, network = relu_network(logger)
    config = builder.create_builder_config()
    config.progress_monitor = Broken()
    assert builder.build_serialized_network(network, config) is None
    assert "[ERROR] Exception thrown from phase_start() RuntimeError: no phase" in capsys.readouterr().err
    assert "cancelled the build" in logger.errors[-1]


def test_a_calibrator_gives_batches_by_address_and_gets_its_cache_as_memory() -> None:
    class Batches(trt.IInt8EntropyCalibrator2):
        def __init__(self) -> None:
            trt.IInt8EntropyCalibrator2.__init__(self)
            self.left = 2
            self.cache = b""
            self.array = np.linspace(-1, 1, 6, dtype=np.float32)

        def get_batch_size(self) -> int:
            return 2

        def get_batch(self, names: Any) -> Any:
            assert names == ["x"]
            self.left -= 1
            return [int(self.array.ctypes.data)] if self.left >= 0 else None

        def read_calibration_cache(self) -> Any:
            return None

        def write_calibration_cache(self, cache: Any) -> None:
            self.cache = cache.tobytes()

    builder, network = relu_network(KeptMessages())
    config = builder.create_builder_config()
    config.set_flag(trt.BuilderFlag.INT8)
    config.int8_calibrator = calibrator = Batches()
    assert builder.build_serialized_network(network, config) is not None
    assert calibrator.left < 0
    assert calibrator.cache


def test_flags_of_calibration_are_kept() -> None:
    config = trt.Builder(KeptMessages()).create_builder_config()
    flag = trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION
    assert config.quantization_flags == 0
    config.set_quantization_flag(flag)
    assert config.get_quantization_flag(flag)
    config.clear_quantization_flag(flag)
    assert not config.get_quantization_flag(flag)


def test_an_algorithm_selector_is_kept_and_told_to_be_idle() -> None:
    class Selector(trt.IAlgorithmSelector):
        def select_algorithms(self, context: Any, choices: Any) -> list[int]:
            raise AssertionError("asked")

    logger = KeptMessages()
    builder, network = relu_network(logger)
    config = builder.create_builder_config()
    assert config.algorithm_selector is None
    config.algorithm_selector = selector = Selector()
    assert config.algorithm_selector is selector
    assert any("algorithm_selector is never asked" in text for _, text in logger.messages)
    assert builder.build_serialized_network(network, config) is not None


def test_enumerations_list_their_entries_as_the_binding_does() -> None:
    entries = getattr(trt.BuilderFlag, "__entries")
    assert entries["FP16"][0] is trt.BuilderFlag.FP16
    assert len(entries) == len(trt.BuilderFlag)


def test_weights_are_read_as_arrays() -> None:
    _, network = make_network(KeptMessages())
    x = network.add_input("x", trt.float32, (1, 1, 4, 4))
    kernel = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
    convolution = network.add_convolution_nd(x, 1, (2, 2), kernel)
    np.testing.assert_array_equal(convolution.kernel, [0, 1, 2, 3])
    assert convolution.bias is None
    constant = network.add_constant((2, 2), np.eye(2, dtype=np.int32))
    assert constant.weights.tolist() == [1, 0, 0, 1]
    half = network.add_constant((1,), np.ones(1, trt.DataType.BF16.numpy))
    assert isinstance(half.weights, trt.Weights)


@pytest.mark.parametrize("names", ["x", "y", "xy"])
def test_types_of_inputs_and_outputs_can_be_asked_for(names: str) -> None:
    builder, network = relu_network(KeptMessages())
    tensors = {"x": network.get_input(0), "y": network.get_output(0)}
    for name in names:
        tensors[name].dtype = trt.float16
        assert tensors[name].dtype == trt.float16
    engine = builder.build_engine_with_config(network, builder.create_builder_config())
    kinds = {name: trt.float16 if name in names else trt.float32 for name in tensors}
    assert {name: engine.get_tensor_dtype(name) for name in tensors} == kinds
    x = np.array([[-1, 2, 3], [4, -5, 6]], trt.nptype(kinds["x"]))
    y = np.zeros((2, 3), trt.nptype(kinds["y"]))
    assert engine.create_execution_context().execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_array_equal(y, np.maximum(x, 0))
