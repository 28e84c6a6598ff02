"""The rules that keep the code in shape, checked on its syntax; test_architecture_rules.py checks the rules."""

import ast
import fnmatch
import functools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from minerva import metrics
from minerva.trainers.registry import ALGORITHMS, config_class, metrics_of

REPOSITORY = Path(__file__).parents[1]


class Module(NamedTuple):
    """A file as the rules see it. `name` is dotted and without the leading `minerva.`"""

    name: str
    text: str

    @property
    def tree(self) -> ast.Module:
        return parsed(self.text)


@functools.cache
def parsed(text: str) -> ast.Module:
    """The syntax of a file, which every rule looks at anew and none changes."""
    return ast.parse(text)


def modules(package: str) -> list[Module]:
    """Every file of a package, if there is such a package."""
    found = []
    for path in sorted((REPOSITORY / package).rglob("*.py")):
        parts = path.relative_to(REPOSITORY / package).with_suffix("").parts
        found.append(Module(".".join(parts).removesuffix(".__init__"), path.read_text()))
    return found


MINERVA = modules("minerva")
MATHDOC = modules("packages/mathdoc/mathdoc")
NAMES = {module.name for module in MINERVA}

# --- what a file imports ----------------------------------------------------------------------------------------


def imports(module: Module) -> Iterator[str]:
    """Everything it imports, wherever in the file, by full dotted name."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:  # `from minerva.runs import run` imports minerva.runs.run
                member = f"{base}.{alias.name}"
                yield member if member.removeprefix("minerva.") in NAMES else base
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("import_module", "__import__")):
            yield from (str(argument.value) for argument in node.args if isinstance(argument, ast.Constant))


def inner_imports(module: Module) -> list[str]:
    """Those within Minerva, without the leading `minerva.`"""
    return [name.removeprefix("minerva.") for name in imports(module) if name.startswith("minerva.")]


def outer_imports(module: Module) -> set[str]:
    """The first parts of all others."""
    return {name.split(".")[0] for name in imports(module)} - {"minerva"}


def matches(name: str, patterns: str) -> bool:
    """Whether `name` matches one of the patterns, written with spaces between."""
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split())


# --- rule 1: imports point down, and algorithms never import each other -------------------------------------------

LAYERS = [
    "__init__ __main__",
    "cli.*",
    "lab.*",
    "api",
    "policy",
    "trainers.*",
    "loop.*",
    "runs.*",
    "evaluation",
    "envs.*",
    "networks networks.* utils.*",
    "data.* distributions presets metrics",
    "compute.*",
    "config spec",
    "layout",
    "formulas.* errors version",
]
"""From the top. A file imports from lower layers, and from its own top folder."""

IN_AN_ALGORITHM = ["trainer", "agent", "*", "config", "losses"]
"""The same within the folder of an algorithm."""


def layer(name: str) -> int | None:
    """The number of the layer whose pattern fits most closely."""
    fitting = [
        (pattern.count("*"), number)
        for number, patterns in enumerate(LAYERS)
        for pattern in patterns.split()
        if fnmatch.fnmatchcase(name, pattern)
    ]
    return min(fitting)[1] if fitting else None


def imports_that_point_up(module: Module) -> list[str]:
    mine, found = layer(module.name), []
    for name in inner_imports(module):
        theirs = layer(name)
        if mine is None or theirs is None:
            found.append(f"{module.name} imports {name}, and one of them is in no layer: add it to LAYERS")
        elif theirs < mine or (theirs == mine and not _below(name, module.name)):
            found.append(f"{module.name} imports {name}")
    return found


def _below(name: str, importer: str) -> bool:
    """Whether a file of one layer may import another of it: in one top folder, and downwards in an algorithm's."""
    if algorithm(name) and algorithm(name) == algorithm(importer):
        mine, theirs = (_place_in_algorithm(file.rpartition(".")[2]) for file in (importer, name))
        return theirs > mine or IN_AN_ALGORITHM[mine] == IN_AN_ALGORITHM[theirs] == "*"
    return name.partition(".")[0] == importer.partition(".")[0]


def _place_in_algorithm(file: str) -> int:
    return IN_AN_ALGORITHM.index(file if file in IN_AN_ALGORITHM else "*")


def algorithm(name: str) -> str | None:
    parts = name.split(".")
    return parts[1] if parts[0] == "trainers" and len(parts) == 3 else None


def algorithms_that_import_each_other(module: Module) -> list[str]:
    mine = algorithm(module.name)
    others = [name for name in inner_imports(module) if algorithm(name) not in (None, mine)]
    return [f"{module.name} imports {name}" for name in others] if mine else []


def relative_imports(module: Module) -> list[str]:
    return [f"{module.name} imports {name}" for name in imports(module) if name.startswith(".")]


# --- rule 2: formulas import torch and math alone -----------------------------------------------------------------


def formulas_that_import_more(module: Module) -> list[str]:
    if not matches(module.name, "formulas formulas.*"):
        return []
    allowed = ("torch", "math", "typing", "collections.abc")
    return [
        f"{module.name} imports {name}"
        for name in imports(module)
        if not any(name == known or name.startswith(f"{known}.") for known in allowed)
    ]


# --- rule 3: each library in its place, no environment in an agent, no formula in a trainer -----------------------

# lab.export.run_policy is no part of Minerva's own code: it is copied into exported folders
ONLY_IN = {
    "gymnasium": "envs.* lab.export.run_policy",
    "envpool": "envs.*",
    "mujoco": "envs.*",
    "mujoco_warp": "envs.warp.simulator",
    "warp": "envs.warp.simulator",
    "dm_control": "envs.*",
    "shimmy": "envs.* lab.export.run_policy",
    "wandb": "utils.wandb_utils",
    "mlflow": "utils.mlflow_utils",
    "huggingface_hub": "utils.hub",
    "ray": "lab.cluster.*",
    "optuna": "lab.cluster.*",
}

MEET_ENVIRONMENTS = """
    __init__ cli.* lab.* api evaluation envs.* runs.run runs.run_group runs.trainable runs.distributed
    loop.trainer loop.on_policy loop.off_policy loop.population loop.collector loop.remote trainers.*.trainer
"""


def libraries_out_of_place(module: Module) -> list[str]:
    return [
        f"{module.name} imports {library}"
        for library in outer_imports(module) & ONLY_IN.keys()
        if not matches(module.name, ONLY_IN[library])
    ]


def environments_out_of_place(module: Module) -> list[str]:
    used = [name for name in inner_imports(module) if matches(name, "envs envs.* evaluation")]
    return [] if matches(module.name, MEET_ENVIRONMENTS) else [f"{module.name} imports {name}" for name in used]


def formulas_in_trainers(module: Module) -> list[str]:
    if not matches(module.name, "loop.* trainers.*.trainer"):
        return []
    lines = module.text.splitlines()
    return [f"{module.name}:{number}" for number, line in enumerate(lines, 1) if line.strip().startswith("# LaTeX:")]


# --- what PyTorch does not promise is used in one file ------------------------------------------------------------

UNPROMISED = {"torch.fx.experimental", "torch.compiler.keep_tensor_guards_unsafe"}
"""Names without an underscore that may go all the same."""


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """The full name of an attribute that is reached from a name in `known`: {"aten": "torch.ops.aten"}."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    base = dotted(node.value, known) if isinstance(node, ast.Attribute) else None
    return f"{base}.{node.attr}" if base and isinstance(node, ast.Attribute) else None


def is_private(name: str) -> bool:
    parts = name.split(".")
    hidden = any(part.startswith("_") and not part.endswith("__") for part in parts)
    return parts[0] == "torch" and (hidden or any(f"{name}.".startswith(f"{known}.") for known in UNPROMISED))


def private_torch_names(module: Module) -> list[str]:
    if module.name == "compute.torch_private":
        return []
    known, found = {"torch": "torch"}, set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname}
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            members = {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            known |= members
            names = list(members.values())
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and dotted(node.value, known):
            known[node.targets[0].id] = dotted(node.value, known) or ""
            names = [dotted(node.value, known) or ""]
        elif isinstance(node, ast.Attribute):
            names = ["torch.Tensor._version" if node.attr == "_version" else dotted(node, known) or ""]
        else:
            continue
        found |= {f"{module.name}:{node.lineno}" for name in names if is_private(name)}
    return sorted(found)


# --- rule 4: `forward` has no side effect -------------------------------------------------------------------------


def belongs_to_self(node: ast.AST) -> bool:
    """self.x, self.x[0].y, self.x(...)[1]: whatever is reached through self, but not self alone."""
    if isinstance(node, (ast.Tuple, ast.List)):
        return any(belongs_to_self(part) for part in node.elts)
    below = False
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call, ast.Starred)):
        node = node.func if isinstance(node, ast.Call) else node.value
        below = True
    return below and isinstance(node, ast.Name) and node.id == "self"


def _targets(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, (ast.Assign, ast.Delete)):
        return list(node.targets)
    if isinstance(node, (ast.AugAssign, ast.AnnAssign, ast.For, ast.NamedExpr)):
        return [node.target]
    if isinstance(node, ast.withitem):
        return [node.optional_vars] if node.optional_vars else []
    return [keyword.value for keyword in node.keywords if keyword.arg == "out"] if isinstance(node, ast.Call) else []


def _changes_self(node: ast.AST) -> bool:
    if any(belongs_to_self(target) for target in _targets(node)):
        return True
    if not isinstance(node, ast.Call):
        return isinstance(node, (ast.Global, ast.Nonlocal))
    if isinstance(node.func, ast.Attribute) and belongs_to_self(node.func):
        method = node.func.attr
        in_place = method.endswith("_") and not method.endswith("__")
        return in_place or method in ("append", "extend", "update", "update_stats", "register_buffer", "__setattr__")
    return isinstance(node.func, ast.Name) and node.func.id in ("setattr", "delattr")


def side_effects_of_forward(module: Module) -> list[str]:
    return [
        f"{module.name}:{node.lineno}"  # type: ignore[attr-defined]
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef) and function.name == "forward"
        for node in ast.walk(function)
        if _changes_self(node)
    ]


# --- rule 5: nothing is longer than a person reads at once --------------------------------------------------------

LONGEST_FUNCTION, LONGEST_FILE = 45, 400


def long_functions(module: Module) -> list[str]:
    functions = [node for node in ast.walk(module.tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lengths = {node: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    return [f"{module.name}.{node.name}: {n} lines" for node, n in lengths.items() if n > LONGEST_FUNCTION]


def long_files(module: Module) -> list[str]:
    lines = len(module.text.splitlines())
    return [f"{module.name}: {lines} lines"] if lines > LONGEST_FILE else []


# --- rule 6: nobody else names an algorithm's metrics, settings or titles -----------------------------------------


@functools.cache
def own_words() -> dict[str, str]:
    """Every metric and setting that one algorithm alone has, and all it is called, with the algorithm's name."""
    shared = {value.name for value in vars(metrics).values() if isinstance(value, metrics.Metric)}
    settings = {algo: set(config_class(algo).annotations()) for algo in ALGORITHMS}
    found = {}
    for algo, line in ALGORITHMS.items():
        others = set().union(*(settings[other] for other in ALGORITHMS if other != algo))
        reported = {metric.name for metric in metrics_of(algo)}
        names = (reported - shared) | (settings[algo] - others - read_by_the_loops()) | {line.name, line.title}
        found |= dict.fromkeys(names, algo)
    return found


def read_by_the_loops() -> set[str]:
    """The settings that a loop asks of its config: they are the loop's, however few algorithms run in it."""
    nodes = [node for module in MINERVA if matches(module.name, "loop.*") for node in ast.walk(module.tree)]
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if ast.unparse(node.value).endswith(("config", "share"))}


def algorithms_named_elsewhere(module: Module) -> list[str]:
    """Words with a slash or an underscore must not occur in any string; others, such as `critic`, not as a string."""
    if algorithm(module.name) or module.name == "trainers.registry":
        return []
    arguments = {node.arg for node in ast.walk(module.tree) if isinstance(node, ast.arg)}
    words = {word: algo for word, algo in own_words().items() if word not in arguments}
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            parts = {node.value, *re.findall(r"[\w/]*[/_][\w/]*", node.value)}
            found += [f"{module.name}:{node.lineno} names {word} of {words[word]}" for word in parts & words.keys()]
    return found


# --- the code keeps the rules -------------------------------------------------------------------------------------

Rule = Callable[[Module], list[str]]

RULES: list[Rule] = [
    imports_that_point_up,
    algorithms_that_import_each_other,
    relative_imports,
    formulas_that_import_more,
    libraries_out_of_place,
    environments_out_of_place,
    formulas_in_trainers,
    private_torch_names,
    side_effects_of_forward,
    long_functions,
    long_files,
    algorithms_named_elsewhere,
]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_minerva_has_no(rule: Rule) -> None:
    assert [violation for module in MINERVA for violation in rule(module)] == []


def test_benchmarks_have_no_private_torch_names() -> None:
    assert [violation for module in modules("benchmarks") for violation in private_torch_names(module)] == []


@pytest.mark.parametrize("rule", [long_functions, long_files, private_torch_names], ids=lambda rule: rule.__name__)
def test_mathdoc_has_no(rule: Rule) -> None:
    assert [violation for module in MATHDOC for violation in rule(module)] == []


def test_the_whole_tree_is_read() -> None:
    assert {"__init__", "config", "cli.main", "trainers.ppo.agent", "loop.trainer", "formulas.returns"} <= NAMES
    assert {"__init__", "check", "pages.build"} <= {module.name for module in MATHDOC}
