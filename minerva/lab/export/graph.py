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
from minerva.envs.ids import DM_CONTROL
from minerva.errors import ConfigError, TrainingError, pip_install
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
        self.kind = policy.action.kind
        self.register_buffer("low", torch.from_numpy(policy.action.bounds[0]))
        self.register_buffer("high", torch.from_numpy(policy.action.bounds[1]))
        self.register_buffer("starts", torch.tensor(policy.action.starts, dtype=torch.int64))

    def forward(self, observations: Tensor) -> Tensor:
        """Return actions in the environment's units: float32 [B, D]; choices alone are int64, [B] for `Discrete`.

        A dict or tuple of actions is one vector: all its numbers, then all its choices.
        """
        actions = self.agent.policy_action(observations)
        numbers, choices = actions.tensor_split([len(self.low)], -1)
        chosen = choices + self.starts
        if not len(self.low):
            return chosen.squeeze(-1) if self.kind == "discrete" else chosen
        scaled = self.low + (numbers + 1.0) * 0.5 * (self.high - self.low)
        within = torch.clamp(scaled, self.low, self.high).float()
        return torch.cat((within, chosen.float()), -1) if len(self.starts) else within


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


def compared_observations(policy: Policy, count: int = OBSERVATIONS, seed: int = 0) -> Array:
    """Return random observations near the training distribution, by the normaliser's statistics, and far from it."""
    shape = (count, *policy.observation.shape)
    noise = np.random.default_rng(seed).normal(size=shape)
    observations = np.resize(OBSERVATION_STDS, count)[:, None] * noise
    normalizer = next((part for part in PolicyGraph(policy).modules() if isinstance(part, RunningNorm)), None)
    if normalizer is not None:  # a mask of actions follows the numbers that are normalised
        numbers, mask = np.split(observations, [len(normalizer.mean)], 1)
        numbers = normalizer.mean.cpu().numpy() + numbers * np.sqrt(normalizer.var.cpu().numpy())
        observations = np.concatenate((numbers, mask), 1)
    return observations.astype(np.float32)


def differences(content: bytes, policy: Policy, observations: Array) -> tuple[float, float]:
    """Compare the graph's actions, batched and single, with the policy's.

    Return the largest difference of their numbers, per range, and the share of observations with other choices.
    """
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    wanted = policy.action.to_environment(policy.agent.policy_action(observations).cpu().numpy())

    def acted(part: Array) -> Array:
        actions: Array = session.run(["actions"], {"observations": part})[0]
        return actions.reshape(len(part), policy.action.size)

    few = len(observations) // 10
    alone = np.concatenate([acted(row[None]) for row in observations[:few]])
    off = np.abs(np.concatenate([acted(observations) - wanted, alone - wanted[:few]]))
    low, high = policy.action.bounds
    return float(np.max(off[:, : len(low)] / (high - low), initial=0.0)), float(np.mean(off[:, len(low) :].any(1)))


def description(policy: Policy) -> dict[str, str]:
    """Return the metadata stored in the graph."""
    about = policy.about
    facts = {name: about[name] for name in ("algo", "env", "seed", "step", "return")}
    facts |= {"obs_dim": policy.observation.size, "act_dim": policy.action.size}
    lowest, highest = policy.action.range
    bounds = {"action_low": lowest.tolist(), "action_high": highest.tolist()}
    made = {"gymnasium_id": gymnasium_id(about["env"]), "minerva": __version__}
    made["env_kwargs"] = json.dumps(about.get("env_kwargs") or {})
    if "env_made_by" in about:  # gymnasium refuses this with the reason in its message
        made["gymnasium_id"] = f"{about['env']} cannot be made from an id, for it was given as {about['env_made_by']}"
    return {name: str(value) for name, value in {**facts, **bounds, **made}.items()}


def gymnasium_id(env: str) -> str:
    """Return the id with which Gymnasium makes the environment; dm_control tasks need Shimmy."""
    return f"{DM_CONTROL}{'-'.join(env.split('/')[1:])}-v0" if env.startswith(DM_CONTROL) else env


def _as_onnx(policy: Policy) -> bytes:
    import onnx

    graph = PolicyGraph(policy).eval()
    example = torch.zeros(2, *policy.observation.shape)  # two rows: a batch of one would become a constant
    level = logging.getLogger("torch.onnx").level
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it warns about libraries that are not needed
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program: Any = torch.onnx.export(
                graph,
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["observations"],
                output_names=["actions"],
                dynamic_shapes={"observations": {0: torch.export.Dim("batch")}},
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
