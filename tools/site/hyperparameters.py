"""Generated pages: an algorithm's hyperparameters with default and range, its metrics, and its presets."""

import ast
import dataclasses
import inspect
import math
import re
import textwrap
from typing import Annotated, Any, Literal, get_args, get_origin

from minerva.config import Config, Within
from minerva.presets import presets
from minerva.trainers.registry import ALGORITHMS, config_class, metrics_of

GREEK = re.compile("alpha|beta|gamma|epsilon|eta|lambda|mu|sigma")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One field of a config class: name, symbol, default, range and meaning."""

    name: str
    group: str
    symbol: str
    default: str
    meaning: str
    range: str


def settings(config: type[Config]) -> list[Setting]:
    """Return every field in the order of the class, with its docstring and the comment that heads its group."""
    meanings, groups = _documented(config)
    found = []
    for field in dataclasses.fields(config):
        symbol, meaning = _symbol(meanings.get(field.name, ""))
        annotation = config.annotations()[field.name]
        default = _shown(field.default)
        found.append(Setting(field.name, groups.get(field.name, ""), symbol, default, meaning, _range(annotation)))
    order = list(groups.values())
    return sorted(found, key=lambda setting: order.index(setting.group))


def hyperparameter_page(algo: str) -> str:
    """Return the Markdown page of an algorithm's hyperparameters, with `$...$` around symbols."""
    config = config_class(algo)
    lines = [
        f"# {ALGORITHMS[algo].title}: hyperparameters",
        f"Every field of `minerva.{config.__name__}`. On the command line `minerva train {algo} --gamma 0.98`, in"
        f' Python `minerva.train("{algo}", env, gamma=0.98)`. Values outside their range are refused before training.'
        f" What is tuned for known tasks: [presets](../presets/{algo}.md).",
    ]
    group = None
    for setting in settings(config):
        if setting.group != group:
            group = setting.group
            lines += [f"## {group}", "| name | symbol | default | range | meaning |\n|---|---|---|---|---|"]
        symbol = f"${setting.symbol}$" if setting.symbol else ""
        row = f"| `{setting.name}` | {symbol} | `{setting.default}` | {setting.range} | {setting.meaning} |"
        lines[-1] += f"\n{row}"
    return "\n\n".join([*lines, *_metric_table(algo)]) + "\n"


def preset_page(algo: str) -> str:
    """Return the Markdown page of an algorithm's presets."""
    blocks = [
        f"# {ALGORITHMS[algo].title}: presets",
        f"What `minerva train {algo} --preset <name>` changes, and where each number comes from. `--preset auto` takes"
        " the preset named after the task, if there is one. All others are as in"
        f" [the defaults](../hyperparameters/{algo}.md).",
    ]
    for preset in presets(algo).values():
        rows, changes = ["| setting | value | source |", "|---|---|---|"], preset.changes(config_class(algo)())
        rows += [f"| `{name}` | `{value}` | {preset.sources[name]} |" for name, value in changes.items()]
        blocks += [f"## {preset.name}", "\n".join(rows)]
    return "\n\n".join(blocks) + "\n"


def _metric_table(algo: str) -> list[str]:
    rows = ["| metric | healthy | meaning |", "|---|---|---|"]
    for metric in metrics_of(algo):
        low, high = metric.healthy
        above, below = f"at least {low:g}" * (low > -math.inf), f"at most {high:g}" * (high < math.inf)
        healthy = f"{low:g} to {high:g}" if above and below else above or below
        rows.append(f"| `{metric.name}` | {healthy} | {metric.meaning} |")
    return ["## Metrics", "What an update reports, in metrics.jsonl and TensorBoard.", "\n".join(rows)]


def _documented(config: type[Config]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the docstring under each field, and the comment above its group; inherited fields come last."""
    meanings: dict[str, str] = {}
    groups: dict[str, str] = {}
    for kind in config.__mro__[: config.__mro__.index(Config)]:
        own_meanings, own_groups = _documented_in(kind)
        meanings, groups = {**own_meanings, **meanings}, {**groups, **own_groups}
    return meanings, groups


def _documented_in(config: type) -> tuple[dict[str, str], dict[str, str]]:
    """Return the docstrings and group comments of the fields that one class of a config's bases declares."""
    text = textwrap.dedent(inspect.getsource(config))
    (body,) = [node.body for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    lines = text.splitlines()
    meanings: dict[str, str] = {}
    groups: dict[str, str] = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if not isinstance(node, ast.AnnAssign):
            continue
        field = ast.unparse(node.target)
        headings = [line.strip("# ") for line in lines[: node.lineno] if re.match(r"    # \w", line)]
        groups[field] = headings[-1] if headings else "Settings"
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            meanings[field] = " ".join(str(after.value.value).split())
    return meanings, groups


def _symbol(meaning: str) -> tuple[str, str]:
    """Split a meaning such as `N: actions sampled per state` into symbol and meaning."""
    found = re.match(r"([A-Za-z]{1,7}(?:_[A-Za-z0-9]+)?): (.*)", meaning)
    if not found or (len(found[1]) > 1 and "_" not in found[1] and not GREEK.fullmatch(found[1])):
        return "", meaning
    base, _, index = found[1].partition("_")
    tex = f"\\{base}" if GREEK.fullmatch(base) else base
    if index:
        tex += f"_\\{index}" if GREEK.fullmatch(index) else f"_{{{index}}}"
    return tex, found[2][0].upper() + found[2][1:]


def _shown(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _range(annotation: Any) -> str:
    wanted, *limits = get_args(annotation) if get_origin(annotation) is Annotated else (annotation,)
    within = [limit.interval for limit in limits if isinstance(limit, Within)]
    if get_origin(wanted) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(wanted))
    if wanted is bool or bool in get_args(wanted):
        return "true, false" + (", none" if type(None) in get_args(wanted) else "")
    if get_origin(wanted) is tuple:
        return "widths ≥ 1"
    return (within[0].replace("inf", "∞") if within else "any number") + (
        " or none" if type(None) in get_args(wanted) else ""
    )
