"""Student's t for any degrees of freedom, by its integral: scipy is too large for this alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POINTS = 4001
_MOST_FREEDOM = 1000.0  # as good as normal
_LEAST_FREEDOM = 1.0


def probability(t: float, freedom: float) -> float:
    """How probable a value of at most t is."""
    import numpy as np

    angles, below = _distribution(_within(freedom))
    return float(np.interp(math.atan(t / math.sqrt(_within(freedom))), angles, below))


def quantile(share: float, freedom: float) -> float:
    """The value below which this share of all is."""
    import numpy as np

    angles, below = _distribution(_within(freedom))
    return math.tan(float(np.interp(share, below, angles))) * math.sqrt(_within(freedom))


def power(thresholds: Sequence[tuple[float, float]], freedom: float) -> float:
    """How probable a t beyond all of its thresholds is where the truth is elsewhere (noncentral t).

    Args:
        thresholds: each how far the truth is from where it is held to, in true standard errors,
            and how far the value has to be, in estimated ones.
        freedom: degrees of freedom of the estimate.
    """
    import numpy as np

    freedom = _within(freedom)
    ratios = np.linspace(0.001, 4, 800)  # of the estimated to the true standard error
    # Chi with its degrees of freedom, scaled; its constant is divided out.
    weights = np.exp((freedom - 1) * np.log(ratios) - freedom * (ratios**2 - 1) / 2)
    beyond = [min(shift - far * ratio for shift, far in thresholds) for ratio in ratios]
    shares = [0.5 * math.erfc(-one / math.sqrt(2)) for one in beyond]
    return float((weights * shares).sum() / weights.sum())


def _within(freedom: float) -> float:
    return min(max(freedom, _LEAST_FREEDOM), _MOST_FREEDOM)


@lru_cache(maxsize=64)
def _distribution(freedom: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Angles, and the probability below each: t is their tangent by the root of freedom."""
    import numpy as np

    angles = np.linspace(-math.pi / 2, math.pi / 2, _POINTS)
    density = np.maximum(np.cos(angles), 0.0) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return angles, below / below[-1]
