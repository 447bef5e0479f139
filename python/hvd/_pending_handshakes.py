"""The clients of a listener that have not proved yet that they belong to the job.

There are few of them, each for a short time, and never at the cost of clients that have proved it.
When there are too many, the oldest one of the origin with the most of them makes room, so that a
flood from one place drives out itself. An honest client proves itself within milliseconds.
"""

from __future__ import annotations

import ipaddress
import resource
from collections import Counter
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

_MOST = 128
_FEWEST = 16
_SHARE_OF_DESCRIPTORS = 4  # one part in so many

Key = TypeVar("Key", bound=Hashable)


def pending_limit() -> int:
    """How many are allowed: no more than the process can spare of its descriptors."""
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if descriptors == resource.RLIM_INFINITY:
        return _MOST
    return min(_MOST, max(_FEWEST, descriptors // _SHARE_OF_DESCRIPTORS))


def origin_of(host: str) -> str:
    """The key of one party: an IPv4 address, or a network (/64) of IPv6 addresses."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(address), 64), strict=False))


class _Place(NamedTuple):
    origin: str
    until: float


class PendingHandshakes(Generic[Key]):
    """A value that is handed the time, in seconds. The owner of the clients closes them."""

    def __init__(self, most: int, time: float) -> None:
        self._most = most
        self._time = time
        self._places: dict[Key, _Place] = {}  # from the oldest to the newest

    def add(self, key: Key, origin: str, now: float) -> Key | None:
        """One more. Returns the one that makes room for it and is forgotten; never ``key``."""
        self._places[key] = _Place(origin, now + self._time)
        return self.evict() if len(self._places) > self._most else None

    def remove(self, key: Key) -> None:
        """It has proved itself, or is gone."""
        self._places.pop(key, None)

    def evict(self) -> Key | None:
        """Forgets the oldest one of the origin with the most of them, and returns it."""
        if not self._places:
            return None
        # The first one of the largest counts is that of the origin with the oldest client.
        counts = Counter(place.origin for place in self._places.values())
        crowded = max(counts, key=counts.__getitem__)
        oldest = next(key for key, place in self._places.items() if place.origin == crowded)
        del self._places[oldest]
        return oldest

    def take_expired(self, now: float) -> Key | None:
        """Forgets the oldest one if its time is up, and returns it."""
        deadline = self.deadline()
        if deadline is None or deadline > now:
            return None
        oldest = next(iter(self._places))
        del self._places[oldest]
        return oldest

    def deadline(self) -> float | None:
        """When the time of the oldest one is up."""
        return next((place.until for place in self._places.values()), None)
