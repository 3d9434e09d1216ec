"""Rules about weights that are replaced: P85 to P87."""

from __future__ import annotations

from typing import Any

import numpy as np

from dovetail.errors import ProviderError
from dovetail.provider.interfaces import PackedWeight
from dovetail.rules import Broken, NotOffered
from dovetail.runtime.refit import Refitter
from dovetail.testing.provider_kit.models import CHAIN, MODELS
from dovetail.testing.provider_kit.rules.catalogue import rule
from dovetail.testing.provider_kit.subject import CheckedProvider, overrides

__all__: list[str] = []


@rule(
    "P85",
    "After a refit, runs use the new weights",
    why="Fine-tuned weights are put into engines that run.",
    fix="write them in LoadedPartition.refit, or set refit_mode = RefitMode.RECREATE",
)
def judge_refit(subject: CheckedProvider) -> str:
    """Replace the weight of a loaded engine, twice, with a context that lives through it."""
    from dovetail.build.config import BuilderFlag

    subject.build(CHAIN)  # what the provider does not take it cannot refit
    engine, feed = subject.compile(CHAIN.make_model(), flags=[BuilderFlag.REFIT]), CHAIN.make_feeds()[0]
    if "W" not in Refitter(engine).get_all_weights():
        raise NotOffered(f"the weight cannot be replaced: {Refitter(engine).excluded_weights.get('W', '')}")
    with engine, engine.create_execution_context() as context:
        context.run([feed["x"]])
        for seed in (1, 2):
            weight = np.random.default_rng(seed).integers(-4, 5, (8, 8)).astype(np.float32) / 2
            refitter = Refitter(engine)
            refitter.set_named_weights("W", weight)
            refitter.refit_cuda_engine()
            (result,) = context.run([feed["x"]])
            subject.compare("after a refit", {"y": result}, _expect(subject, weight, feed))
    return subject.provider.refit_mode


def _expect(subject: CheckedProvider, weight: Any, feed: Any) -> Any:
    model = CHAIN.make_model()
    del model.graph.initializer[:]
    from onnx import numpy_helper

    model.graph.initializer.append(numpy_helper.from_array(weight, "W"))
    return subject.expect(model, feed)


@rule(
    "P86",
    "pack_weight makes what the build packed",
    why="A refit packs weights again in a process that never built anything.",
    fix="use one function to pack in build_* and in pack_weight, with all that it needs in the recipe",
)
def judge_packing(subject: CheckedProvider) -> str:
    """Pack every weight again that the build packed."""
    provider, packed = subject.provider, _packed(subject)
    for weight, sources in packed:
        again = np.asarray(provider.pack_weight(weight.recipe, sources))
        wanted = np.asarray(weight.array)
        if again.dtype != wanted.dtype or not np.array_equal(again, wanted):
            raise Broken(f"recipe {weight.recipe!r} over {', '.join(sources)} gives other bytes than the build did")
    if not packed:
        raise NotOffered("it packs no weights of the kit's models")
    return f"{len(packed)} weights"


def _packed(subject: CheckedProvider) -> list[tuple[PackedWeight, dict[str, Any]]]:
    for case in MODELS:
        subject.build_failure(case)
    known = {name: array for case in MODELS for name, array in case.weights.items()}
    weights = [weight for _, built in subject.recording.built for weight in built.weights.values()]
    rows = [weight for weight in weights if isinstance(weight, PackedWeight) and weight.recipe]
    return [(row, {name: known[name] for name in row.sources}) for row in rows if known.keys() >= set(row.sources)]


@rule(
    "P87",
    "A recipe that it does not have is refused",
    why="Plans come from other versions and from strangers.",
    fix="raise ProviderError in pack_weight for a recipe that you did not write",
)
def judge_recipes(subject: CheckedProvider) -> None:
    """Ask for a recipe that nobody has."""
    provider = subject.provider
    if not overrides(provider, "pack_weight"):
        raise NotOffered("it packs no weights")
    try:
        provider.pack_weight("no such recipe of the kit", {"W": np.zeros((2, 2), np.float32)})
    except ProviderError:
        return
    except Exception as error:
        raise Broken(f"pack_weight raised {type(error).__name__}, expected ProviderError") from error
    raise Broken("pack_weight took a recipe that does not exist")
