"""Numbers of groups of a tidy table's rows, over all of their samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd

PERCENTILES = {"p50": 50, "p95": 95, "p99": 99}
_MEDIANS = ("rtt_us", "bandwidth_gbps")
_MEANS = ("watts", "per_watt", "joules_per_token", "price_usd", "per_usd")
_TEXTS = ("watts_source", "price_source")


def pooled(rows: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """One row for each value of the keys, sorted by them.

    Columns: the keys; mean, stddev (n-1), p50, p95, p99 (nearest rank, of distributions only) and
    n_samples of the samples of all rows; where no row has samples, the mean of the values, and of
    a row alone the rest as it gives it; n_runs; medians of rtt_us and bandwidth_gbps; means of what
    a speed costs, and the first source of each that is there; the different acceptances.
    """
    import numpy as np
    import pandas as pd

    texts = {name: rows[name].where(rows[name] != "", None) for name in _TEXTS}
    groups = rows.assign(**texts).groupby(list(keys), dropna=False, sort=True)
    frame = groups.size().reset_index(name="n_runs")
    alone = ["stddev", *PERCENTILES]
    frame[["mean", *_MEANS]] = groups[["value", *_MEANS]].mean().to_numpy()
    frame[list(_MEDIANS)] = groups[list(_MEDIANS)].median().to_numpy()
    frame[[*alone, *_TEXTS]] = groups[[*alone, *_TEXTS]].first().to_numpy()
    frame[alone] = frame[alone].astype("float64").where(frame["n_runs"] == 1)
    frame[list(_TEXTS)] = frame[list(_TEXTS)].fillna("")
    frame["acceptance"] = ""
    if rows["acceptance"].any():
        found = groups["acceptance"].agg(lambda texts: ", ".join(dict.fromkeys(texts)))
        frame["acceptance"] = found.to_numpy()

    lengths = rows["samples"].map(len).to_numpy(dtype="int64")
    samples = np.fromiter(chain.from_iterable(rows["samples"]), "float64", lengths.sum())
    owner = np.repeat(groups.ngroup().to_numpy(dtype="int64"), lengths)
    counts = np.bincount(owner, minlength=len(frame))
    spread = groups["p50"].count().to_numpy() > 0
    for name, values in _of_samples(samples, owner, counts).items():
        kept = (counts > 0) & (spread if name in PERCENTILES else True)
        frame[name] = np.where(kept, values, np.where(counts > 0, np.nan, frame[name]))
    frame["n_samples"] = pd.array([count or None for count in counts.tolist()], dtype="Int64")
    return frame


def _of_samples(
    samples: npt.NDArray[np.float64],
    owner: npt.NDArray[np.integer[Any]],
    counts: npt.NDArray[np.integer[Any]],
) -> dict[str, npt.NDArray[np.float64]]:
    """Mean, deviation and percentiles of each owner's samples; nonsense where it has none."""
    import numpy as np

    order = np.lexsort((samples, owner))
    samples, owner = np.append(samples[order], np.nan), owner[order]
    before = np.cumsum(counts) - counts
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        # From the least sample on, so that equal samples have exactly that mean and no deviation.
        least = samples[before]
        above = np.bincount(owner, samples[:-1] - least[owner], len(counts))
        mean = least + above / counts
        squares = np.bincount(owner, (samples[:-1] - mean[owner]) ** 2, len(counts))
        deviation = np.where(counts > 1, np.sqrt(squares / (counts - 1)), np.nan)
    ranks = {
        name: np.maximum(0, -(-counts * percent // 100) - 1)
        for name, percent in PERCENTILES.items()
    }
    percentiles = {name: samples[before + rank] for name, rank in ranks.items()}
    return {"mean": mean, "stddev": deviation, **percentiles}
