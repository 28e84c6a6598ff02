"""The words of the language: what each LaTeX command means."""

RELATIONS = {"=", "\\leftarrow", "\\approx"}
COMPARISONS = {"<", ">", "\\leq", "\\geq", "=", "\\neq"}
BARE = {name: name.removeprefix("\\") for name in ("\\exp", "\\log", "\\tanh", "\\sin", "\\cos", "\\tan", "\\det")}
BARE |= {"\\sinh": "sinh", "\\cosh": "cosh", "\\arcsin": "arcsin", "\\arccos": "arccos", "\\arctan": "arctan"}
BARE |= {"\\ln": "log", "\\cot": "cot", "\\sec": "sec", "\\csc": "csc", "\\coth": "coth"}
BARE |= {"\\Re": "real", "\\Im": "imag"}
BEFORE_BRACKETS = {"\\Gamma": "gamma", "\\Phi": "Phi"}
"""Functions only where the notation has no such symbol: the gamma function, the normal distribution's."""
NAMED = {"softplus": 1, "sigmoid": 1, "erf": 1, "sg": 1, "relu": 1, "sign": 1, "clip": 3, "tr": 1, "det": 1}
NAMED |= {"softmax": 1, "round": 1, "floor": 1, "ceil": 1, "erfc": 1, "atan2": 2, "diag": 1, "exp": 1, "log": 1}
NAMED |= {"real": 1, "imag": 1, "conj": 1}
ALIASES = {"ReLU": "relu", "sgn": "sign", "trace": "tr", "Tr": "tr", "clamp": "clip", "arctan2": "atan2"}
ALIASES |= {"Re": "real", "Im": "imag"}
ALIASES |= {"var": "Var", "std": "Std", "E": "mean", "Mean": "mean", "Median": "median", "lse": "logsumexp"}
REDUCTIONS = {"\\sum": "sum", "\\prod": "prod", "\\max": "max", "\\min": "min", "\\sup": "max", "\\inf": "min"}
ARGUMENTS = {"argmax": "argmax", "argmin": "argmin"}
BRACKETED = {"Var": "var", "Std": "std", "mean": "mean", "median": "median", "Cov": "cov"}
BRACKETED |= {"logsumexp": "logsumexp", "softmax": "softmax"}
BRACKETS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
BARS = {"|": "abs", "\\|": "norm"}
NORMS = {"1": "norm1", "2": "norm", "F": "norm", "\\infty": "norminf"}
TRANSPOSED = {"\\top", "T", "\\intercal"}
ENDS = {")", "]", "}", "\\}", ",", "+", "-", "&", "\\\\", "\\end", "\\rfloor", "\\rceil", "\\land", "\\rangle"}
ENDS |= {"\\bmod"}
ENDS |= RELATIONS | COMPARISONS
TIMES = {"\\cdot", "\\times", "*"}
ELEMENTWISE = {"\\odot", "\\circ"}
