"""The functions, comparisons and reductions of the language, on arrays."""

import math
from collections.abc import Callable

import numpy as np

from mathdoc.named import Array

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _gamma_of(x: float) -> float:
    """Not a number at its poles, and too large to be one behind 171."""
    try:
        return math.gamma(x)
    except ValueError:
        return math.nan
    except OverflowError:
        return math.inf


_gamma = np.vectorize(_gamma_of, otypes=[np.float64])

FUNCTIONS: dict[str, Callable[..., Array]] = {
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "arcsin": np.arcsin,
    "arccos": np.arccos,
    "arctan": np.arctan,
    "cot": lambda x: 1 / np.tan(x),
    "sec": lambda x: 1 / np.cos(x),
    "csc": lambda x: 1 / np.sin(x),
    "coth": lambda x: 1 / np.tanh(x),
    "atan2": np.arctan2,
    "mod": np.mod,
    "gamma": _gamma,
    "factorial": lambda x: _gamma(x + 1),
    "binom": lambda n, k: _gamma(n + 1) / (_gamma(k + 1) * _gamma(n - k + 1)),
    "erfc": lambda x: 1 - _erf(x),
    "Phi": lambda x: (1 + _erf(x / math.sqrt(2))) / 2,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0),
    "softplus": lambda x: np.logaddexp(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": _erf,
    "sg": lambda x: x,
    "real": np.real,
    "imag": np.imag,
    "conj": np.conj,
    "clip": lambda x, low, high: np.minimum(np.maximum(x, low), high),
    "max": np.maximum,
    "min": np.minimum,
}

COMPARE: dict[str, Callable[..., Array]] = {"<": np.less, ">": np.greater, "\\leq": np.less_equal}
COMPARE |= {"\\geq": np.greater_equal, "=": np.equal, "\\neq": np.not_equal}
OF_MATRIX = {"norm", "norm1", "norminf", "tr", "det", "softmax", "diag"}

REDUCE: dict[str, Callable[..., Array]] = {
    "sum": np.sum,
    "prod": np.prod,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "var": np.var,
    "std": np.std,
    "median": np.median,
    "argmax": np.argmax,
    "argmin": np.argmin,
}

NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": -np.inf, "min": np.inf, "mean": 0.0, "argmax": -np.inf}
NEUTRAL["argmin"] = np.inf
