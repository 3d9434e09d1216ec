"""The test kit for back ends: drives every callback of the provider contract and judges it by rules.

``check_provider`` takes a name or a factory and gives a report with one outcome a rule. What a provider does not offer
is reported as that and not as passed. The author of a back end puts it into a test:

>>> from dovetail.testing.provider_kit import check_provider
>>> check_provider("cpu", rules=["P01", "P02"]).ok
True
"""

from __future__ import annotations

from dovetail.testing.provider_kit.entry import check_provider
from dovetail.testing.provider_kit.report import ProviderReport
from dovetail.testing.provider_kit.rules.catalogue import registered_rules

__all__ = [
    "ProviderReport",
    "check_provider",
    "registered_rules",
]
