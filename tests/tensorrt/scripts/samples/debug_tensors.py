"""Tensors inside the network are marked, and a listener sees them in each run."""

import ctypes

import numpy as np
import tensorrt as trt

import common

TRT_LOGGER = trt.Logger(trt.Logger.ERROR)


class DebugListener(trt.IDebugListener):
    def __init__(self):
        trt.IDebugListener.__init__(self)
        self.seen = {}

    def process_debug_tensor(self, addr, location, type, shape, name, stream):
        assert location == trt.TensorLocation.HOST
        count = trt.volume(shape)
        pointer = ctypes.cast(addr, ctypes.POINTER(ctypes.c_float))
        self.seen[name] = np.ctypeslib.as_array(pointer, (count,)).reshape(tuple(shape)).copy()
        assert type == trt.float32
        return True


if __name__ == "__main__":
    builder = trt.Builder(TRT_LOGGER)
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    relu = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    relu.name = "hidden"
    exp = network.add_unary(relu, trt.UnaryOperation.EXP).get_output(0)
    exp.name = "y"
    network.mark_output(exp)
    assert network.mark_debug(relu)
    assert network.is_debug_tensor(relu)
    plan = builder.build_serialized_network(network, builder.create_builder_config())
    assert network.num_outputs == 1
    engine = trt.Runtime(TRT_LOGGER).deserialize_cuda_engine(plan)
    assert engine.num_io_tensors == 2
    assert engine.is_debug_tensor("hidden")
    assert not engine.is_debug_tensor("y")
    context = engine.create_execution_context()
    listener = DebugListener()
    context.set_debug_listener(listener)
    array = np.float32([[-1, 0, 1], [2, -3, 4]])
    inputs, outputs, bindings, stream = common.allocate_buffers(engine)
    np.copyto(inputs[0].host, array.ravel())
    common.do_inference(context, engine, bindings, inputs, outputs, stream)
    assert not listener.seen
    assert context.set_all_tensors_debug_state(True)
    assert context.get_debug_state("hidden")
    [y] = common.do_inference(context, engine, bindings, inputs, outputs, stream)
    np.testing.assert_array_equal(listener.seen["hidden"], np.maximum(array, 0))
    np.testing.assert_allclose(y.reshape(2, 3), np.exp(np.maximum(array, 0)), rtol=1e-6)
    assert not context.set_tensor_debug_state("y", True)
    print("Debug tensors were seen")
