"""The ratio of two measured values, and its confidence interval by bootstrap.

Percentile intervals of three to five samples hold the true ratio in 80 % of cases, not 95 %, so
that the bootstrap gives the standard error only, and Student's t the width for so few samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nixwulf.core.metric import percentile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Runs = Sequence[Sequence[float]]

_RESAMPLES = 1000
_SEED = 1
_FEWEST_SAMPLES = 3
_MOST_AT_ONCE = 1_000_000  # numbers in memory
# Student's t, 97.5 %, by degrees of freedom; between them it is all but linear in 1/df.
_T = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 10: 2.228, 20: 2.086, 60: 2.0}
_NORMAL = 1.96


@dataclass(frozen=True)
class Interval:
    """The 95 % confidence interval of a ratio."""

    low: float
    high: float

    @property
    def shows_difference(self) -> bool:
        """Whether 1 is outside."""
        return not self.low <= 1 <= self.high


def typical(samples: Sequence[float], distribution: bool) -> float:
    """The typical value of samples: the median of a distribution, else the mean."""
    return percentile(samples, 50) if distribution else math.fsum(samples) / len(samples)


def ratio_interval(a: Runs, b: Runs, distribution: bool) -> Interval | None:
    """The 95 % confidence interval of B over A.

    Several runs are resampled first, then the samples in each of them, for samples of one run are
    correlated; of one run, its samples are. The same numbers always give the same interval.

    Args:
        a: the samples of each run of one side.
        b: those of the other.
        distribution: whether the median is compared, and not the mean.

    Returns:
        None where a side has under 3 samples, or none above 0.
    """
    spreads = [_spread(side, distribution) for side in (a, b)]
    if None in spreads:
        return None
    (variance_a, freedom_a), (variance_b, freedom_b) = [s for s in spreads if s is not None]
    variance = variance_a + variance_b
    centre = math.log(_of_all(b, distribution) / _of_all(a, distribution))
    if variance == 0:
        return Interval(math.exp(centre), math.exp(centre))
    # Welch and Satterthwaite: degrees of freedom of a sum of two variances.
    freedom = variance**2 / (variance_a**2 / freedom_a + variance_b**2 / freedom_b)
    half = _t(freedom) * math.sqrt(variance)
    return Interval(math.exp(centre - half), math.exp(centre + half))


def _of_all(runs: Runs, distribution: bool) -> float:
    return typical([sample for run in runs for sample in run], distribution)


def _spread(runs: Runs, distribution: bool) -> tuple[float, int] | None:
    """Variance of the logarithm of a side's value, and its degrees of freedom."""
    import numpy as np

    if sum(map(len, runs)) < _FEWEST_SAMPLES:
        return None
    values = _resampled([np.asarray(run, dtype=float) for run in runs], distribution)
    if values.min() <= 0:
        return None
    units = len(runs) if len(runs) > 1 else len(runs[0])
    # A resample is as far from the samples as those from the truth, but for this factor.
    return float(np.log(values).var(ddof=1)) * units / (units - 1), units - 1


def _resampled(runs: list[NDArray[np.float64]], distribution: bool) -> NDArray[np.float64]:
    """The value of each resample; of runs of unequal length the same number of samples is drawn."""
    import numpy as np

    random = np.random.default_rng(_SEED)
    lengths = np.array([len(run) for run in runs])
    starts = np.cumsum(lengths) - lengths
    samples = np.concatenate(runs)
    of_each = -(-len(samples) // len(runs))
    block = max(1, _MOST_AT_ONCE // (of_each * len(runs)))
    values = []
    for done in range(0, _RESAMPLES, block):
        count = min(block, _RESAMPLES - done)
        chosen = random.integers(0, len(runs), (count, len(runs), 1)) if len(runs) > 1 else [[[0]]]
        places = random.random((count, len(runs), of_each)) * lengths[chosen]
        drawn = samples[starts[chosen] + places.astype(int)].reshape(count, -1)
        values.append(_middle(drawn, distribution))
    return np.concatenate(values)


def _middle(samples: NDArray[np.float64], distribution: bool) -> NDArray[np.float64]:
    """As typical, over the last axis."""
    import numpy as np

    if not distribution:
        return np.asarray(samples.mean(axis=-1))
    rank = max(0, -(-samples.shape[-1] // 2) - 1)
    return np.asarray(np.partition(samples, rank, axis=-1)[..., rank])


def _t(freedom: float) -> float:
    import numpy as np

    inverse = [0.0, *(1 / df for df in reversed(_T))]
    return float(np.interp(1 / max(1.0, freedom), inverse, [_NORMAL, *reversed(_T.values())]))
