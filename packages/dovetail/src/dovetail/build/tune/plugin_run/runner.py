"""One run of every plugin layer before a plan is saved, with the chosen formats and tactic at the tuned shapes.

The tuner executes a plugin only to compare candidates, and not with a single candidate or a timing-cache hit. This run
covers the rest, so that a build fails where a plugin does. A plugin that cannot run here is reported with the reason.
"""

from __future__ import annotations

from dovetail.build.tune.plugin_run.checks import FailedRunError, NotRunError, check_run, choose_integers
from dovetail.build.tune.plugins import Choice, PluginTuner
from dovetail.build.tune.trial import PluginLayer, PluginTrial
from dovetail.build.tune.tuner import CandidateTuner
from dovetail.build.tune.worker import CallTimeoutError
from dovetail.errors import PluginError, ProviderError
from dovetail.loggers import Severity
from dovetail.plan.untimed import DEVICE_IS_ABSENT

__all__ = ["PluginRunner"]


class PluginRunner:
    """Runs the plugin layers of one build, each once.

    Args:
        tuner: Lanes, the worker thread and its limits.
        plugins: Makes attached plugin objects.
        is_enabled: Whether plugins may be run; False after ``config.run_plugins = False``.
    """

    def __init__(self, tuner: CandidateTuner, plugins: PluginTuner, *, is_enabled: bool) -> None:
        self._tuner = tuner
        self._plugins = plugins
        self._is_enabled = is_enabled
        self._trials: list[PluginTrial] = []
        """Plugins that ran, destroyed at the end of the build, so that a shared resource is created once."""

    def close(self) -> None:
        """Destroy the plugins that ran."""
        for trial in reversed(self._trials):
            trial.close(self._tuner.logger)
        self._trials.clear()

    def run_once(self, layer: PluginLayer, choice: Choice, profile: int) -> None:
        """Run a layer once on an object of its own, unless the tuner has checked a run of the choice.

        Args:
            layer: The layer in one profile.
            choice: The formats and the tactic that the plan stores.
            profile: The index of the profile, for messages.

        Raises:
            PluginError: The plugin failed; the message names the layer, the plugin, the callback and the cause.
            ProviderError: Its provider failed, for example to load a kernel.
        """
        if choice.is_checked:
            return
        obstacle = self._find_obstacle(layer)
        if obstacle is not None:
            self._report(layer, f"enqueue was not run in this build: {obstacle}")
            return
        try:
            self._run(layer, choice)
        except NotRunError as error:
            self._report(layer, f"enqueue was not run in this build: {error.what}")
        except (PluginError, ProviderError) as error:
            self._raise_or_report(layer, profile, error)

    def _find_obstacle(self, layer: PluginLayer) -> str | None:
        """Why a layer cannot be run, or None."""
        if not self._is_enabled:
            return "config.run_plugins is False (--no-run-plugins)"
        if not layer.provider.is_here:
            return DEVICE_IS_ABSENT
        shapes = [layer.opt(position) for position in range(len(layer.tensors))]
        if any(size < 0 for shape in shapes for size in shape):
            return f"a shape at the assumed sizes is negative: {shapes}"
        return None

    def _raise_or_report(self, layer: PluginLayer, profile: int, error: PluginError | ProviderError) -> None:
        """Raise the error with its layer; report it where the inputs may be at fault and the build is not strict."""
        shapes = ", ".join(str(layer.opt(position)) for position in range(layer.num_inputs)) or "none"
        sizes = "tuned" if layer.is_bounded else "assumed"
        kind = PluginError if isinstance(error, PluginError) else ProviderError
        failure = kind(
            f"{error.what} (when the build ran the layer once, profile {profile}, {sizes} input shapes {shapes})",
            where=f"layer '{layer.name}', {error.where or layer.handle.where}",
            expected=error.expected,
            got=error.got,
            fix=error.fix,
        )
        doubt = _find_doubt(layer, error)
        if doubt is None or self._tuner.options.strict:
            raise failure from error
        self._tuner.logger.log(Severity.WARNING, f"{failure}\n  the build goes on because {doubt}")

    def _report(self, layer: PluginLayer, text: str) -> None:
        self._tuner.logger.log(Severity.WARNING, f"layer '{layer.name}', {layer.handle.where}: {text}")

    def _run(self, layer: PluginLayer, choice: Choice) -> None:
        lane = self._tuner.find_lane(layer.provider)
        handle = self._plugins.attach(layer, choice.combination)
        trial = PluginTrial(0, layer, choice.combination, choice.tactic, handle, lane)
        is_abandoned = False
        try:
            refusal = trial.check_workspace(self._plugins.ask_workspace, self._tuner.options.workspace_bytes)
            if refusal is not None:
                raise PluginError(
                    refusal, where=handle.where, fix="raise the limit of the pool WORKSPACE (--workspace)"
                )
            options = self._tuner.options
            integers = choose_integers(layer)
            warnings = self._tuner.worker.call(
                lambda: check_run(trial, strict=options.strict, integers=integers), options.timeout_s
            )
        except CallTimeoutError as error:
            is_abandoned = error.abandoned
            raise PluginError(
                f"enqueue: {error.what}",
                where=handle.where,
                fix="raise config.tactic_timeout_s (--tactic-timeout), or set config.run_plugins = False",
            ) from error
        finally:
            if not is_abandoned:
                trial.free()
                self._trials.append(trial)
        for text in warnings:
            self._report(layer, text)


def _find_doubt(layer: PluginLayer, error: Exception) -> str | None:
    """Why a failure may be the fault of the inputs and not of the plugin, or None."""
    if not layer.is_bounded:
        return "no profile bounds the shapes of this layer"
    if layer.has_made_up_integers and isinstance(error, FailedRunError):
        return "integer inputs of this layer, such as indices or sizes, were made up"
    return None
