"""Least squares by Gauss and Newton, of unknowns that something is known of before."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

_ROUNDS = 24
_FAR = 1.5  # deviations from which on a measurement counts less (Huber)


def solve(
    linear: Callable[[Array], tuple[Array, Array]],
    noise: Array,
    start: Array,
    precision: Array,
    *,
    longest: float,
    settled: float,
    robust: bool = False,
    first: Array | None = None,
) -> tuple[Array, Array]:
    """The unknowns that fit measurements and priors best, and their covariance.

    linear: at values of the unknowns, how far off each measurement is, and its slope by each
    unknown (measurements x unknowns). start: what each unknown is before, which it is pulled to;
    precision: inverse of the covariance of that (unknowns x unknowns). longest: the most that an
    unknown is moved in a round; settled: a round that moves all of them less is the last one.
    first: where the search begins; None: at start. robust: whether measurements that are far off
    count less: no single one bends the rest.
    """
    import numpy as np

    state = start.copy() if first is None else first.copy()
    for _ in range(_ROUNDS):
        off, slopes = linear(state)
        count = np.minimum(1.0, _FAR * noise / np.maximum(np.abs(off), 1e-9)) if robust else 1.0
        weight = count / noise**2
        curved = slopes.T @ (weight[:, None] * slopes) + precision
        pulled = slopes.T @ (weight * off) - precision @ (state - start)
        step = np.clip(np.linalg.solve(curved, pulled), -longest, longest)
        state += step
        if np.abs(step).max() < settled:
            break
    covariance: Any = np.linalg.inv(curved)
    return state, covariance
