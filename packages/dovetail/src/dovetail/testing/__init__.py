"""What tests of providers, plugins and the runtime need: a device that exists everywhere.

``HostDevice`` is a provider whose memory is memory of this process and whose work waits in queues, as on a real
device. A program registers it, builds for it, and asks it what it was told to do:

>>> import dovetail.testing
>>> with dovetail.testing.host_device() as device:
...     device.memory.is_host, device.statistics.launches
(False, 0)

``check_provider`` drives a back end through the whole provider contract and judges it by rules.
"""

from __future__ import annotations

from dovetail.testing.host_arrays import HostDeviceArray
from dovetail.testing.host_device import HostDevice
from dovetail.testing.host_factory import HostDeviceFactory, host_device
from dovetail.testing.host_options import HostDeviceOptions
from dovetail.testing.host_streams import HostEvent, HostGraph, HostStream
from dovetail.testing.provider_kit import ProviderReport, check_provider
from dovetail.testing.statistics import DeviceStatistics

__all__ = [
    "DeviceStatistics",
    "HostDevice",
    "HostDeviceArray",
    "HostDeviceFactory",
    "HostDeviceOptions",
    "HostEvent",
    "HostGraph",
    "HostStream",
    "ProviderReport",
    "check_provider",
    "host_device",
]
