"""Model card: describes the policy, its return and how to run it, with the front matter that model hubs read."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import yaml

from minerva.lab.analysis.statistics import interquartile_mean, iqm_interval
from minerva.lab.export.graph import OBSERVATIONS
from minerva.runs.origin import Origin
from minerva.runs.own_networks import NETWORKS
from minerva.spec import ObservationSpec
from minerva.trainers.registry import ALGORITHMS
from minerva.version import __version__


@dataclass(frozen=True)
class Score:
    """Returns of deterministic evaluation episodes."""

    returns: Sequence[float]
    episodes: str
    """Description of the episodes."""

    @property
    def mean(self) -> float:
        """Return the mean over episodes."""
        return float(np.mean(self.returns))

    @property
    def std(self) -> float:
        """Return the standard deviation over episodes."""
        return float(np.std(self.returns))

    @property
    def interval(self) -> tuple[float, float]:
        """Return the 95 % confidence interval of the interquartile mean."""
        return iqm_interval(self.returns)


def model_card(about: dict[str, Any], checkpoint: str, score: Score, difference: float, video: str | None) -> str:
    """Return the README.md of an export folder; `about` describes its `checkpoint`, `video` is None or a file in it."""
    header = yaml.safe_dump(_front_matter(about, score), sort_keys=False, allow_unicode=True)
    parts = [f"---\n{header}---", _what(about, checkpoint), _result(about, score)]
    if video is not None:
        parts.append(f"![an episode]({video})" if video.endswith(".gif") else f'<video src="{video}" controls></video>')
    parts += [_use(about, checkpoint, difference), _training(about)]
    return "\n\n".join(parts) + "\n"


def _front_matter(about: dict[str, Any], score: Score) -> dict[str, Any]:
    """Return the metadata that model hubs index: library, task and metrics."""
    low, high = score.interval
    metrics = [
        {"type": "mean_reward", "name": "mean_reward", "value": f"{score.mean:.2f} +/- {score.std:.2f}"},
        {
            "type": "iqm_return",
            "name": "interquartile mean of the return, 95 % interval",
            "value": f"{interquartile_mean(score.returns):.2f} [{low:.2f}, {high:.2f}]",
        },
    ]
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    result = {"task": task, "dataset": {"type": about["env"], "name": about["env"]}, "metrics": metrics}
    kind = "continuous-control" if about["action"]["kind"] == "continuous" else "discrete-actions"
    tags = ["reinforcement-learning", kind, about["algo"], about["env"], "onnx", "minerva"]
    return {
        "library_name": "minerva",
        "pipeline_tag": "reinforcement-learning",
        "tags": tags,
        "model-index": [{"name": f"{about['algo']}-{about['env'].replace('/', '-')}", "results": [result]}],
    }


def _text(value: Any) -> str:
    """Return a value from the checkpoint as text on one line that is no markup."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", " ".join(str(value).split()))


def _version(about: dict[str, Any], package: str) -> str:
    """Return the version that the policy was trained with, or an empty string if it is unknown or no version."""
    found = str(about["versions"].get(package, ""))
    return found if re.fullmatch(r"[0-9][0-9A-Za-z.+!-]*", found) else ""


def _what(about: dict[str, Any], checkpoint: str) -> str:
    algorithm = ALGORITHMS[about["algo"]]
    return (
        f"# {algorithm.title} on {_text(about['env'])}\n\n"
        f"A policy trained with Minerva {__version__}: {algorithm.title} ({algorithm.long_title}), "
        f"seed {about['seed']}, its checkpoint `{checkpoint}` after {about['step']:,} of {about['total_steps']:,} "
        f"steps. It maps {_observations(about)} to {_actions(about)}"
        f"{_task(about)}{_origin(about)}"
    )


def _observations(about: dict[str, Any]) -> str:
    """Return what the policy observes."""
    spec = ObservationSpec.from_dict(about["observation"])
    images = [f"an image of {' x '.join(map(str, shape))}" for _, *shape in spec.images]
    return " and ".join(images + [f"{spec.numbers} numbers of observation"] * bool(spec.numbers))


def _actions(about: dict[str, Any]) -> str:
    """Return what the policy's actions are, and what is inside of it."""
    low, counts = about["action"]["low"], about["action"]["counts"]
    numbers = [f"{len(low)} of action"] * bool(low)
    inside = "the normaliser and the scaling to the bounds are inside" if low else "the normaliser is inside"
    return f"{' and '.join(numbers + [f'one of {count} actions' for count in counts])}; {inside}."


def _task(about: dict[str, Any]) -> str:
    """Return what makes the task another than that of its id: arguments, as a block of code, or an object."""
    if "env_made_by" in about:
        return "\n\nThe environment cannot be made from an id: it was given to the training program as an object."
    kwargs = about.get("env_kwargs")
    return f"\n\nThe environment was made with these arguments:\n\n    {json.dumps(kwargs)}" if kwargs else ""


def _origin(about: dict[str, Any]) -> str:
    """Return where its first weights come from, if not from its seed."""
    origin = Origin.read(about)
    return f"\n\nIt is {_text(origin)}: these steps come on top of the parent's." if origin else ""


def _result(about: dict[str, Any], score: Score) -> str:
    low, high = score.interval
    rows = [
        ("mean ± std", f"{score.mean:,.1f} ± {score.std:,.1f}"),
        ("interquartile mean, 95 % interval", f"{interquartile_mean(score.returns):,.1f} [{low:,.1f}, {high:,.1f}]"),
        ("lowest, highest", f"{min(score.returns):,.1f}, {max(score.returns):,.1f}"),
    ]
    table = "\n".join(f"| {name} | {value} |" for name, value in rows)
    return (
        f"## Return\n\n{len(score.returns)} {score.episodes}, deterministic policy, the environment's own reward:\n\n"
        f"| | {_text(about['env'])} |\n|---|---|\n{table}\n\n"
        "This is one seed: the interval is over episodes, and says nothing about other seeds."
    )


def _use(about: dict[str, Any], checkpoint: str, difference: float) -> str:
    commands = f"pip install {' '.join(_packages(about))}\npython run_policy.py{_named_id(about)}"
    return (
        "## Use it\n\n"
        f"Without torch, with `policy.onnx` ({_inputs(about)}, output `actions` {_shape(about)}); "
        "`run_policy.py` plays an episode:\n\n"
        f"```\n{commands}\n```\n\n"
        f"On {OBSERVATIONS:,} observations its actions differ from the original policy's "
        f"{_difference(about, difference)}. With Minerva:\n\n"
        f"```python\n{_loading(about, checkpoint)}\naction = policy.act(observation)\n```"
    )


def _loading(about: dict[str, Any], checkpoint: str) -> str:
    """Return the lines that load the policy, with the modules of networks which a person has to give."""
    own = {part: str(name) for part, name in (about.get(NETWORKS) or {}).items()}
    named = {part: name.split(":") for part, name in own.items() if re.fullmatch(r"[\w.]+:[\w.]+", name)}
    imports = "".join(f"import {module}  # not part of Minerva\n" for module in sorted({m for m, _ in named.values()}))
    given = ", ".join(f'"{part}": {module}.{name}' for part, (module, name) in named.items())
    argument = f", own_networks={{{given}}}" if given else ""
    return f'import minerva\n{imports}\npolicy = minerva.load_policy("{checkpoint}"{argument})'


def _inputs(about: dict[str, Any]) -> str:
    if about["observation"]["dtype"] == "uint8":
        return "an input for each array that the environment gives"
    return "input `observations` [B, O]"


def _shape(about: dict[str, Any]) -> str:
    return "[B]" if about["action"]["kind"] == "discrete" else "[B, D]"


def _difference(about: dict[str, Any], difference: float) -> str:
    if about["action"]["kind"] == "continuous":
        return f"by at most {difference:.1e} of their range"
    return f"in {difference:.1%} of them"


def _named_id(about: dict[str, Any]) -> str:
    """Return the argument of the example if its environment's id imports a module: it has to be written by a person."""
    if ":" not in about["env"]:
        return ""
    shown = about["env"] if re.fullmatch(r"[\w.]+:[\w./-]+", about["env"]) else "ID"
    return f" {shown}  # imports the module that the id names: only if you trust it"


def _packages(about: dict[str, Any]) -> list[str]:
    """Return the packages that the example needs, at the versions that the policy was trained with."""
    names = ["gymnasium", "mujoco"] + ["dm-control", "shimmy"] * about["env"].startswith("dm_control/")
    return [
        "numpy",
        "onnxruntime",
        *(f"{name}=={version}" if (version := _version(about, name)) else name for name in names),
    ]


def _training(about: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {_version(about, name) or 'unknown'}" for name in ("torch", "gymnasium", "mujoco"))
    return (
        "## Training\n\n"
        f"`config.yaml` holds every setting; `minerva train {about['algo']} --config config.yaml` trains it again. "
        f"Stepped by {_text(about['engine'])} on {_text(about['device'])}, with {versions}."
    )
