"""A random sample of rows that come in a stream, of unknown number: whichever way they were batched, it is the same."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gpnn.common.types import Array

_BLOCK = 65_536  # rows whose lots are drawn at a time
_WIDER = 6.0  # standard deviations


@dataclass(frozen=True)
class Drawn:
    """Rows X (k, d), y (k,) with their numbers in the whole table and the lots that chose them; sorted by number.
    labels (k,): their groups or times, if they have any."""

    X: Array
    y: Array
    numbers: NDArray[np.int64]
    lots: Array
    reach: tuple[float, float]
    """The least and the largest y of all rows that they were drawn from."""
    labels: NDArray | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, chosen) -> Drawn:
        labels = None if self.labels is None else self.labels[chosen]
        X, y, numbers, lots = (of[chosen] for of in (self.X, self.y, self.numbers, self.lots))
        return replace(self, X=X, y=y, numbers=numbers, lots=lots, labels=labels)

    def fewest(self, k: int) -> Drawn:
        """Those with the k lowest lots."""
        if len(self) <= k:
            return self
        return self[np.sort(np.argpartition(self.lots, k - 1)[:k])]

    def parted(self, k: int) -> tuple[Drawn, Drawn]:
        """k of them at random, and the others."""
        lowest = np.zeros(len(self), bool)
        lowest[np.argsort(self.lots, kind="stable")[:k]] = True
        return self[lowest], self[~lowest]

    @staticmethod
    def joined(parts: list[Drawn]) -> Drawn:
        """Parts in the order of their numbers."""
        X, y, numbers, lots = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("X", "y", "numbers", "lots")
        )
        lows, highs = zip(*(part.reach for part in parts), strict=True)
        labels = [part.labels for part in parts if part.labels is not None]
        return Drawn(X, y, numbers, lots, (min(lows), max(highs)), np.concatenate(labels) if labels else None)


def draw(X: Array, y: Array, first: int, seed: int, highest: float = 1.0, labels: NDArray | None = None) -> Drawn:
    """Of rows first, first + 1, … of a table, those whose lot is at most so high."""
    numbers = np.arange(first, first + len(y))
    lots = _lots(seed, first, first + len(y))
    chosen = np.flatnonzero(lots <= highest)
    X, y = np.asarray(X, float), np.asarray(y, float)
    reach = (float(y.min(initial=np.inf)), float(y.max(initial=-np.inf)))
    labels = None if labels is None else np.asarray(labels)[chosen]
    return Drawn(X[chosen], y[chosen], numbers[chosen], lots[chosen], reach, labels)


def highest_lot(size: int, n: int) -> float:
    """Of the `size` lowest of n lots: below this, all but once in 10⁹ draws."""
    share = size / max(n, 1)
    return 1.0 if share >= 1 else min(1.0, share + _WIDER * float(np.sqrt(share / n)))


class Reservoir:
    """The `size` lowest lots of all rows added so far.

    expected: how many rows there will be, if that is known: lots that cannot be among the lowest are not kept at all.
    """

    def __init__(self, size: int, seed: int, expected: int | None = None):
        self.size, self.seed, self.n = size, seed, 0
        self._highest = 1.0 if expected is None else highest_lot(size, expected)
        self._parts: list[Drawn] = []
        self._held = 0

    def add(self, X: Array, y: Array, labels: NDArray | None = None) -> None:
        part = draw(X, y, self.n, self.seed, self._highest, labels)
        self.n += len(y)
        self._parts.append(part)
        self._held += len(part)
        if self._held > 1.25 * self.size:
            self._shrink()

    def _shrink(self) -> None:
        self._parts = [Drawn.joined(self._parts).fewest(self.size)]
        self._held = len(self._parts[0])
        if self._held == self.size:
            self._highest = float(self._parts[0].lots.max())

    def drawn(self) -> Drawn:
        self._shrink()
        return self._parts[0]


def _lots(seed: int, first: int, last: int) -> Array:
    drawn = [_lots_of_block(seed, block) for block in range(first // _BLOCK, -(-last // _BLOCK))]
    return np.concatenate([np.zeros(0), *drawn])[first % _BLOCK :][: last - first]


@lru_cache(maxsize=2)  # several batches have their rows in one block
def _lots_of_block(seed: int, block: int) -> Array:
    return np.random.default_rng([seed, block]).random(_BLOCK)
