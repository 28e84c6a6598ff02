"""A policy as an ONNX graph from raw observations to the environment's actions, checked against the policy."""

import json
import logging
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from minerva.data.normalizers import RunningNorm
from minerva.envs.games import ATARI, MINATAR
from minerva.envs.ids import DM_CONTROL
from minerva.envs.pixels import PIXELS
from minerva.errors import ConfigError, TrainingError, pip_install
from minerva.layout import CHOICES, array_shape, is_image, leaves, names, structured, vector_sizes
from minerva.networks.observations import Observed
from minerva.policy import Policy
from minerva.version import __version__

Array = np.ndarray[Any, np.dtype[Any]]

OBSERVATIONS = 1_000
TOLERANCE = 1e-5
"""Largest difference between the graph's actions and the policy's, as a share of the actions' range."""
CHOICE_TOLERANCE = 0.002
"""Largest share of observations with another choice: rounding decides between two that are equally likely."""
OBSERVATION_STDS = (0.1, 1.0, 3.0, 30.0)
"""Standard deviations of the compared observations: near the mean, usual, rare, and beyond any real environment's."""


class PolicyGraph(nn.Module):
    """`Policy.act` on tensors: normaliser, deterministic policy, conversion to the environment's units."""

    low: Tensor
    high: Tensor
    starts: Tensor

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.agent = policy.agent
        for name, part in vars(policy.agent).items():  # the exporter finds parameters in submodules only
            if isinstance(part, nn.Module):
                self.add_module(f"agent_{name}", part)
        self.kind, self.masked = policy.action.kind, policy.action.masked
        self.layout = policy.observation.layout if policy.observation.images else None
        self.register_buffer("low", torch.from_numpy(policy.action.bounds[0]))
        self.register_buffer("high", torch.from_numpy(policy.action.bounds[1]))
        self.register_buffer("starts", torch.tensor(policy.action.starts, dtype=torch.int64))

    def forward(self, *observations: Tensor) -> Tensor:
        """Return actions in the environment's units: float32 [B, D]; choices alone are int64, [B] for `Discrete`.

        A dict or tuple of actions is one vector: all its numbers, then all its choices. Observations are vectors or,
        with images, the arrays that the environment gives, a mask of actions last.
        """
        actions = self.agent.policy_action(observations[0] if self.layout is None else self._observed(*observations))
        numbers, choices = actions.tensor_split([len(self.low)], -1)
        chosen = choices + self.starts
        if not len(self.low):
            return chosen.squeeze(-1) if self.kind == "discrete" else chosen
        scaled = self.low + (numbers + 1.0) * 0.5 * (self.high - self.low)
        within = torch.clamp(scaled, self.low, self.high).float()
        return torch.cat((within, chosen.float()), -1) if len(self.starts) else within

    def _observed(self, *arrays: Tensor) -> Observed:
        """Return the arrays of an observation as a network takes them apart."""
        given, mask = (arrays[:-1], arrays[-1]) if self.masked else (arrays, None)
        numbers, images = [given[0].new_zeros((given[0].shape[0], 0), dtype=torch.float32)], []
        for leaf, values in zip(leaves(self.layout), given, strict=True):
            if is_image(leaf):
                images.append(values)
            elif leaf[:1] == [CHOICES]:
                numbers += [part.float() for part in one_hot(leaf, values)]
            else:
                numbers.append(values.flatten(1))
        return Observed(torch.cat(numbers, -1), tuple(images), mask)


def one_hot(leaf: Any, values: Tensor) -> list[Tensor]:
    """Return the one-hot vector of each choice.  [B, *shape] -> [B, count] each"""
    _, _, starts, counts = leaf
    chosen = values.reshape(values.shape[0], len(counts)) - torch.tensor(starts)
    return [torch.nn.functional.one_hot(chosen[:, n], count) for n, count in enumerate(counts)]


@dataclass(frozen=True)
class Exported:
    """A serialised graph, and the largest difference of its actions from the policy's, as a share of their range.

    If the share of observations with other choices is larger, it is that.
    """

    content: bytes
    difference: float


def exported(policy: Policy) -> Exported:
    """Export the policy as ONNX. Raise TrainingError if the graph's actions differ by more than the tolerance."""
    _require_libraries()
    content = _as_onnx(policy)
    numbers, choices = differences(content, policy, compared_observations(policy))
    if not numbers <= TOLERANCE or choices > CHOICE_TOLERANCE:
        others = f", and with other choices for {choices:.2%} of the observations" if policy.action.counts else ""
        raise TrainingError(
            f"The exported graph acts differently from the policy: by {numbers:.2g} of the actions' range, where "
            f"{TOLERANCE:g} is allowed{others}. Nothing was written; please report the versions of torch and "
            "onnxruntime."
        )
    return Exported(content, max(numbers, choices))


def compared_observations(policy: Policy, count: int = OBSERVATIONS, seed: int = 0) -> list[Array]:
    """Return the graph's inputs for random observations near the training distribution, and far from it."""
    draw, spec = np.random.default_rng(seed), policy.observation
    numbers = np.resize(OBSERVATION_STDS, count)[:, None] * draw.normal(size=(count, spec.numbers))
    normalizer = next((part for part in PolicyGraph(policy).modules() if isinstance(part, RunningNorm)), None)
    if normalizer is not None:  # a mask of actions follows the numbers that are normalised
        seen, mask = np.split(numbers, [len(normalizer.mean)], 1)
        seen = normalizer.mean.cpu().numpy() + seen * np.sqrt(normalizer.var.cpu().numpy())
        numbers = np.concatenate((seen, mask), 1)
    numbers = numbers.astype(np.float32)
    if not spec.images:
        return [numbers]
    vectors = iter(np.split(numbers, np.cumsum(vector_sizes(spec.layout)), 1))
    found: list[Array] = []
    for leaf in leaves(spec.layout):
        shape = (count, *array_shape(leaf))
        if is_image(leaf):
            found.append(draw.integers(leaf[1] + 1, size=shape).astype(np.uint8))
        elif leaf[:1] == [CHOICES]:
            chosen = [part.reshape(count, -1).argmax(1) for part in np.split(next(vectors), np.cumsum(leaf[3])[:-1], 1)]
            found.append((np.stack(chosen, 1) + leaf[2]).reshape(shape))
        else:
            found.append(next(vectors).reshape(shape))
    return [*found, (next(vectors) > 0).astype(np.float32)] if policy.action.masked else found


def input_names(policy: Policy) -> list[str]:
    """Return the names of the graph's inputs."""
    if not policy.observation.images:
        return ["observations"]
    return names(policy.observation.layout) + ["action_mask"] * policy.action.masked


def _as_rows(policy: Policy, inputs: list[Array]) -> Array:
    """Return the graph's inputs as the rows that the policy takes."""
    if not policy.observation.images:
        return inputs[0]
    given, mask = (inputs[:-1], inputs[-1]) if policy.action.masked else (inputs, None)
    return policy.observation.flatten(structured(policy.observation.layout, iter(given)), mask)


def differences(content: bytes, policy: Policy, inputs: list[Array]) -> tuple[float, float]:
    """Compare the graph's actions, batched and single, with the policy's.

    Return the largest difference of their numbers, per range, and the share of observations with other choices.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    wanted = policy.action.to_environment(policy.agent.policy_action(_as_rows(policy, inputs)).cpu().numpy())

    def acted(rows: slice) -> Array:
        parts = [part[rows] for part in inputs]
        actions: Array = session.run(["actions"], dict(zip(input_names(policy), parts, strict=True)))[0]
        return actions.reshape(len(parts[0]), policy.action.size)

    few = len(wanted) // 10
    alone = np.concatenate([acted(slice(n, n + 1)) for n in range(few)])
    off = np.abs(np.concatenate([acted(slice(None)) - wanted, alone - wanted[:few]]))
    low, high = policy.action.bounds
    return float(np.max(off[:, : len(low)] / (high - low), initial=0.0)), float(np.mean(off[:, len(low) :].any(1)))


def description(policy: Policy) -> dict[str, str]:
    """Return the metadata stored in the graph."""
    about = policy.about
    facts = {name: about[name] for name in ("algo", "env", "seed", "step", "return")}
    facts |= {"obs_dim": policy.observation.size, "act_dim": policy.action.size}
    facts |= {"inputs": ", ".join(input_names(policy))}
    lowest, highest = policy.action.range
    bounds = {"action_low": lowest.tolist(), "action_high": highest.tolist()}
    made = {"gymnasium_id": gymnasium_id(about["env"]), "minerva": __version__}
    made["env_kwargs"] = json.dumps(about.get("env_kwargs") or {})
    if "env_made_by" in about:  # gymnasium refuses this with the reason in its message
        made["gymnasium_id"] = f"{about['env']} cannot be made from an id, for it was given as {about['env_made_by']}"
    if about["env"].startswith((ATARI, MINATAR)) or about["env"].endswith(PIXELS):
        made["gymnasium_id"] = f"{about['env']} is registered by Minerva, play it with minerva evaluate"
    return {name: str(value) for name, value in {**facts, **bounds, **made}.items()}


def gymnasium_id(env: str) -> str:
    """Return the id with which Gymnasium makes the environment; dm_control tasks need Shimmy."""
    return f"{DM_CONTROL}{'-'.join(env.split('/')[1:])}-v0" if env.startswith(DM_CONTROL) else env


def _as_onnx(policy: Policy) -> bytes:
    import onnx

    graph = PolicyGraph(policy).eval()
    examples = tuple(map(torch.from_numpy, compared_observations(policy, 2)))  # a batch of one would be a constant
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns about libraries that are not needed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                graph,
                examples,
                dynamo=True,
                verbose=False,
                input_names=input_names(policy),
                output_names=["actions"],
                dynamic_shapes=(tuple({0: torch.export.Dim("batch")} for _ in examples),),
            )
    finally:
        logging.getLogger("torch.onnx").setLevel(level)
    model = program.model_proto
    onnx.helper.set_model_props(model, description(policy))
    model.producer_name, model.producer_version = "minerva", __version__
    onnx.checker.check_model(model)
    content: bytes = model.SerializeToString()
    return content


def _require_libraries() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        try:
            __import__(name)
        except ImportError:
            raise ConfigError(f"Exporting needs {name}, which is not installed: {pip_install('export')}.") from None
