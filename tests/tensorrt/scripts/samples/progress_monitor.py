"""Watches a build, and cancels another."""

import tensorrt as trt


class SimpleProgressMonitor(trt.IProgressMonitor):
    def __init__(self, cancel_after=None):
        trt.IProgressMonitor.__init__(self)
        self._active_phases = {}
        self.depth = 0
        self.steps = 0
        self.cancel_after = cancel_after

    def phase_start(self, phase_name, parent_phase, num_steps):
        assert parent_phase is None or parent_phase in self._active_phases
        self._active_phases[phase_name] = {"steps": 0, "num_steps": num_steps}
        self.depth = max(self.depth, len(self._active_phases))

    def phase_finish(self, phase_name):
        del self._active_phases[phase_name]

    def step_complete(self, phase_name, step):
        self._active_phases[phase_name]["steps"] = step
        self.steps += 1
        return self.cancel_after is None or self.steps < self.cancel_after


def build(logger, monitor):
    builder = trt.Builder(logger)
    network = builder.create_network()
    config = builder.create_builder_config()
    config.progress_monitor = monitor
    x = network.add_input("x", trt.float32, (4, 4))
    layer = network.add_unary(x, trt.UnaryOperation.EXP)
    network.mark_output(layer.get_output(0))
    return builder.build_serialized_network(network, config)


if __name__ == "__main__":
    logger = trt.Logger(trt.Logger.INTERNAL_ERROR)
    monitor = SimpleProgressMonitor()
    assert build(logger, monitor) is not None
    assert monitor.steps > 1
    assert not monitor._active_phases
    cancelling = SimpleProgressMonitor(cancel_after=1)
    assert build(logger, cancelling) is None
    assert not cancelling._active_phases
    print(f"Progress was told in {'several steps' if monitor.steps > 1 else 'one step'}, and a build was cancelled")
