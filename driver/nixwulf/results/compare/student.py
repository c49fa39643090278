"""Student's t for any degrees of freedom, by its integral: scipy is too large for this alone."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_POINTS = 4001
_KNOTS = 60
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


def quantiles(share: float, freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """As quantile, of a share above a half, by interpolation: for thousands of freedoms."""
    import numpy as np

    inverse = np.linspace(1 / _MOST_FREEDOM, 1 / _LEAST_FREEDOM, _KNOTS)
    known = [math.log(quantile(share, 1 / one)) for one in inverse]
    within = np.clip(freedom, _LEAST_FREEDOM, _MOST_FREEDOM)
    return np.asarray(np.exp(np.interp(1 / within, inverse, known)))


def _within(freedom: float) -> float:
    return min(max(freedom, _LEAST_FREEDOM), _MOST_FREEDOM)


@lru_cache(maxsize=128)
def _distribution(freedom: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Angles, and the probability below each: t is their tangent by the root of freedom."""
    import numpy as np

    angles = np.linspace(-math.pi / 2, math.pi / 2, _POINTS)
    density = np.maximum(np.cos(angles), 0.0) ** (freedom - 1)
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return angles, below / below[-1]
