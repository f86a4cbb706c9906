"""The few statistics that the suites share. All take plain sequences; all randomness is seeded."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
RESAMPLES = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with the middle 95 % of its bootstrap distribution."""

    value: float
    low: float
    high: float
    count: int

    def __str__(self) -> str:
        form = ".3f" if max(abs(self.low), abs(self.high)) < 100 else ",.0f"
        return f"{self.value:{form}} [{self.low:{form}}, {self.high:{form}}] n={self.count}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Median with the quartiles and extremes around it, for repeated timings."""

    median: float
    lower_quartile: float
    upper_quartile: float
    min: float
    max: float
    count: int

    def __str__(self) -> str:
        return (
            f"{self.median:.3f} (quartiles {self.lower_quartile:.3f} to {self.upper_quartile:.3f}, "
            f"range {self.min:.3f} to {self.max:.3f}, n={self.count})"
        )


def spread(values: Sequence[float]) -> Spread:
    low, lower, median, upper, high = np.quantile(np.asarray(values, dtype=float), (0, 0.25, 0.5, 0.75, 1))
    return Spread(
        median=float(median),
        lower_quartile=float(lower),
        upper_quartile=float(upper),
        min=float(low),
        max=float(high),
        count=len(values),
    )


def mean_estimate(values: Sequence[float], seed: int = 0) -> Estimate:
    """The mean, with a bootstrap over the values. nan if there are none.

    Drawn here and not by `scipy.stats.bootstrap`: other draws would move the intervals that are published.
    """
    if not values:
        return Estimate(value=math.nan, low=math.nan, high=math.nan, count=0)
    array = np.asarray(values, dtype=float)
    draws = np.random.default_rng(seed).integers(0, len(array), size=(RESAMPLES, len(array)))
    low, high = np.quantile(array[draws].mean(axis=1), (0.025, 0.975))
    return Estimate(value=float(array.mean()), low=float(low), high=float(high), count=len(array))


def paired_difference(first: Sequence[float], second: Sequence[float], seed: int = 0) -> Estimate:
    """Mean of `first` minus `second`, pair by pair: what the same questions gave in two variants."""
    return mean_estimate([a - b for a, b in zip(first, second, strict=True)], seed)


def auc(positive: Sequence[float], negative: Sequence[float]) -> float:
    """Chance that a positive scores above a negative, ties as half; nan without both."""
    if not positive or not negative:
        return math.nan
    difference = np.asarray(positive, dtype=float)[:, None] - np.asarray(negative, dtype=float)[None, :]
    return float(((difference > 0) + 0.5 * (difference == 0)).mean())


def auroc(probabilities: Sequence[float], right: Sequence[bool]) -> float:
    """How well a confidence tells right from wrong."""
    pairs = list(zip(probabilities, right, strict=True))
    return auc([p for p, good in pairs if good], [p for p, good in pairs if not good])


def calibration_error(probabilities: Sequence[float], right: Sequence[bool], bins: int = 10) -> float:
    """Expected calibration error over bins of equal width; nan without values."""
    if not probabilities:
        return math.nan
    stated, actual = np.asarray(probabilities, dtype=float), np.asarray(right, dtype=float)
    places = np.minimum((stated * bins).astype(int), bins - 1)
    gaps = [
        (places == place).mean() * abs(stated[places == place].mean() - actual[places == place].mean())
        for place in range(bins)
        if (places == place).any()
    ]
    return float(sum(gaps))


def wilson_low(successes: int, trials: int) -> float:
    """Lower end of the 95 % interval of a share; says what "all of 40" is worth."""
    if trials == 0:
        return math.nan
    from scipy.stats import binomtest

    return float(binomtest(successes, trials).proportion_ci(method="wilson").low)


def fit_logistic(features: Floats, right: Sequence[bool], l2: float = 1.0) -> Floats:
    """Weights of a logistic regression, the intercept first and not shrunk.

    `l2` is in units of one observation on standardised features: with few data the weights stay small.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    scale = np.where(features.std(axis=0) > 0, features.std(axis=0), 1.0)
    design = np.column_stack([np.ones(len(features)), features / scale])
    target = np.asarray(right, dtype=float)
    penalty = np.array([1e-6, *([l2] * features.shape[1])])

    def loss_and_gradient(weights: Floats) -> tuple[float, Floats]:
        score = design @ weights
        loss = np.logaddexp(0, score).sum() - target @ score + (penalty * weights**2).sum() / 2
        return float(loss), design.T @ (expit(score) - target) + penalty * weights

    start = np.zeros(design.shape[1])
    weights: Floats = minimize(loss_and_gradient, start, jac=True, method="BFGS", options={"gtol": 1e-8}).x
    weights[1:] /= scale
    return weights


def growth_exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """b of seconds = a · sizes^b, by least squares on logarithms: 1 is linear, 2 quadratic."""
    return float(np.polyfit(np.log(np.asarray(sizes, float)), np.log(np.asarray(seconds, float)), 1)[0])
