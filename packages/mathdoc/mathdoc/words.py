"""The words of the language: what each LaTeX command means."""

RELATIONS = {"=", "\\leftarrow", "\\approx"}
COMPARISONS = {"<", ">", "\\leq", "\\geq", "=", "\\neq"}
BARE = {name: name.removeprefix("\\") for name in ("\\exp", "\\log", "\\tanh", "\\sin", "\\cos", "\\tan", "\\det")}
BARE |= {"\\sinh": "sinh", "\\cosh": "cosh", "\\arcsin": "arcsin", "\\arccos": "arccos", "\\arctan": "arctan"}
BARE |= {"\\ln": "log"}
NAMED = {"softplus": 1, "sigmoid": 1, "erf": 1, "sg": 1, "relu": 1, "sign": 1, "clip": 3, "tr": 1, "det": 1}
NAMED |= {"softmax": 1, "round": 1}
ALIASES = {"ReLU": "relu", "sgn": "sign", "trace": "tr", "argmax": "argmax", "argmin": "argmin"}
REDUCTIONS = {"\\sum": "sum", "\\prod": "prod", "\\max": "max", "\\min": "min"}
ARGUMENTS = {"argmax": "argmax", "argmin": "argmin"}
BRACKETED = {"Var": "var", "Std": "std"}
BRACKETS = {"(": ")", "[": "]", "{": "}", "\\{": "\\}"}
BARS = {"|": "abs", "\\|": "norm"}
NORMS = {"1": "norm1", "2": "norm", "F": "norm", "\\infty": "norminf"}
TRANSPOSED = {"\\top", "T", "\\intercal"}
ENDS = {")", "]", "}", "\\}", ",", "+", "-", "&", "\\\\", "\\end", "\\rfloor", "\\rceil", "\\land"}
ENDS |= RELATIONS | COMPARISONS
TIMES = {"\\cdot", "\\times", "*"}
ELEMENTWISE = {"\\odot", "\\circ"}
