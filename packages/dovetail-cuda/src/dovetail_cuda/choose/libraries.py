"""What the libraries of the device offer for questions that a plan carries: algorithms of cuBLASLt, plans of cuDNN."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

import msgspec

from dovetail_cuda.choose.records import ConvolutionOffer, QuestionRecord, WayRecord
from dovetail_cuda.run.convolutions import BuiltConvPlan, Convolution
from dovetail_cuda.run.cublaslt import NUM_ALGORITHMS, ProductLibrary
from dovetail_cuda.run.payload import ConvLaunch, Launches, Product, ProductLaunch, make_conv_launch

__all__ = ["Libraries"]


class Libraries:
    """Asks the libraries that are here.

    Args:
        open_products: Opens what multiplies matrices.
        find_conv_plans: Gives plans for a convolution, the most promising first.
    """

    def __init__(
        self,
        open_products: Callable[[], ProductLibrary],
        find_conv_plans: Callable[[Convolution], Sequence[BuiltConvPlan]],
    ) -> None:
        self._open_products, self._find_conv_plans = open_products, find_conv_plans
        self._algorithms: dict[Product, list[bytes]] = {}
        self._conv_plans: dict[Convolution, Sequence[BuiltConvPlan]] = {}
        self.code: dict[str, bytes] = {}
        """What they have made, by name."""

    def complete(self, question: QuestionRecord) -> QuestionRecord:
        """A question with the ways that are possible here; those of libraries where it was built are left out."""
        ours = [each for each in question.ways if not any(isinstance(launch, ConvLaunch) for launch in each.launches)]
        ways = [way for each in ours if (way := self._complete_way(each)) is not None]
        offered = [] if question.convolution is None else self._list_conv_ways(question.convolution)
        return msgspec.structs.replace(question, ways=[*ways, *offered])

    # products

    def _complete_way(self, way: WayRecord) -> WayRecord | None:
        if way.rank is None:
            return way
        found = [self._complete_launch(launch, way.rank) for launch in way.launches]
        launches = [launch for launch in found if launch is not None]
        return msgspec.structs.replace(way, launches=launches) if len(launches) == len(found) else None

    def _complete_launch(self, launch: Launches, rank: int) -> Launches | None:
        if not isinstance(launch, ProductLaunch):
            return launch
        library = self._open_products()
        if launch.product not in self._algorithms:
            self._algorithms[launch.product] = library.find_algorithms(launch.product, NUM_ALGORITHMS)
        found = self._algorithms[launch.product]
        if rank >= len(found):
            return None
        return msgspec.structs.replace(launch, algorithm=found[rank], library_version=library.get_version())

    # convolutions

    def _list_conv_ways(self, offer: ConvolutionOffer) -> list[WayRecord]:
        if offer.convolution not in self._conv_plans:
            self._conv_plans[offer.convolution] = self._find_conv_plans(offer.convolution)
        return [self._make_conv_way(offer, built) for built in self._conv_plans[offer.convolution]]

    def _make_conv_way(self, offer: ConvolutionOffer, built: BuiltConvPlan) -> WayRecord:
        name = hashlib.sha256(built.code).hexdigest()
        self.code[name] = built.code
        launch = make_conv_launch(offer.convolution, built, name, offer.roles, offer.image_offset)
        return WayRecord(
            name=built.name,
            launches=[launch],
            scratch_bytes=built.scratch_bytes,
            tolerance=offer.tolerance,
        )
