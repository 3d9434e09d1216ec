"""Builds into a stream of the script's, and loads from another."""

import tensorrt as trt


class StreamWriter(trt.IStreamWriter):
    def __init__(self):
        trt.IStreamWriter.__init__(self)
        self.bytes = bytes()
        self.calls = 0

    def write(self, data):
        data = bytes(data)[:1000]
        self.bytes += data
        self.calls += 1
        return len(data)


class StreamReader(trt.IStreamReaderV2):
    def __init__(self, data):
        trt.IStreamReaderV2.__init__(self)
        self.bytes = data
        self.index = 0

    def read(self, size, cudaStreamPtr):
        data = self.bytes[self.index : self.index + size]
        self.index += len(data)
        return data

    def seek(self, offset, where):
        if where == trt.SeekPosition.SET:
            self.index = offset
        elif where == trt.SeekPosition.CUR:
            self.index += offset
        elif where == trt.SeekPosition.END:
            self.index = len(self.bytes) - offset
        else:
            raise ValueError(f"Invalid seek position: {where}")
        return True


class BrokenWriter(trt.IStreamWriter):
    def __init__(self):
        trt.IStreamWriter.__init__(self)

    def write(self, data):
        raise OSError("the disk is full")


def make_network(builder):
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (1, 16))
    y = network.add_activation(x, trt.ActivationType.RELU)
    network.mark_output(y.get_output(0))
    return network


if __name__ == "__main__":
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    builder = trt.Builder(logger)
    writer = StreamWriter()
    assert builder.build_serialized_network_to_stream(make_network(builder), builder.create_builder_config(), writer)
    assert writer.calls > 1
    engine = trt.Runtime(logger).deserialize_cuda_engine(StreamReader(writer.bytes))
    assert engine.num_io_tensors == 2
    config = builder.create_builder_config()
    assert not builder.build_serialized_network_to_stream(make_network(builder), config, BrokenWriter())
    print(f"Serialized engine through a stream: {len(writer.bytes) > 0}")
