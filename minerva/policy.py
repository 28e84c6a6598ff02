"""Load and use a trained policy. It needs only the checkpoint: no simulator, no environment."""

import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from minerva.compute.tree import Tree
from minerva.errors import CheckpointError, EnvStepError, MinervaError, with_short_traceback
from minerva.networks.own import OwnNetworks
from minerva.runs.checkpoint import load_checkpoint
from minerva.runs.folder import find_checkpoint
from minerva.runs.origin import Origin
from minerva.runs.own_networks import networks_for
from minerva.spec import ActionSpec, ObservationSpec
from minerva.trainers.registry import agent_class, config_class
from minerva.utils.hub import download, is_repository

Array = np.ndarray[Any, np.dtype[Any]]


class Policy:
    """A trained policy: observations to actions in the environment's units, observation normaliser included."""

    def __init__(self, agent: Any, about: dict[str, Any]) -> None:
        self.agent = agent
        self.about = about
        self.observation = ObservationSpec.from_dict(about["observation"])
        self.action = ActionSpec.from_dict(about["action"])

    def __repr__(self) -> str:
        made = f"{self.about['algo']} on {self.about['env']}, seed {self.about['seed']}, step {self.about['step']:,}"
        parent, mean = Origin.read(self.about), self.about["return"]
        origin = f", {parent}" if parent else ""
        return f"Policy({made}{origin}, {'not evaluated' if mean is None else f'evaluated return {mean:,.1f}'})"

    def act(self, observation: Any, deterministic: bool = True, action_mask: Any = None) -> Any:
        """Return the action for an observation as the environment gives it, in the form that the environment takes.

        The observation may be a mapping, an array of the environment's shape, or the vector that both are flattened to;
        a batch has leading axes, in every entry of a mapping. Continuous actions are float32 arrays within the bounds.
        A discrete action is an integer of NumPy, those of a batch are an array [B]. `action_mask` is 1 for each choice
        that is possible and 0 for the others, if the environment that the policy was trained on gave masks, in the form
        that it gave them or as one vector; None: all.
        """
        rows = self._rows(observation, action_mask)
        if rows.shape[-1:] != self.observation.shape:
            size = self.observation.size - (0 if self.observation.images else self.action.mask_size)
            raise CheckpointError(
                f"The observation has shape {np.shape(observation)}: the policy was trained on {self.about['env']}, "
                f"whose observations have {size} numbers."
            )
        numbers = self.observation.numbers_of(rows)
        if not np.isfinite(numbers).all():
            row = next(row for row in numbers.reshape(-1, numbers.shape[-1]) if not np.isfinite(row).all())
            place = self.observation.first_infinite(row)
            raise EnvStepError(f"The observation holds {place}: fix the environment that gave it, or clip it.")
        actions = self.agent.policy_action(torch.from_numpy(rows), deterministic).cpu().numpy()
        return self.action.native(self.action.to_environment(actions))

    def _rows(self, observation: Any, mask: Any) -> Array:
        """Return observations as the rows that the policy takes, with a mask if it takes one."""
        if mask is not None and not self.action.masked:
            raise CheckpointError(f"{self.about['env']}, which the policy was trained on, gives no masks: give none.")
        try:
            masks = self._masks(self.observation.lead(observation), mask) if self.action.masked else None
            with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused
                return self.observation.flatten(observation, masks).astype(self.observation.dtype)
        except ValueError as error:
            raise CheckpointError(
                f"The observation does not fit {self.about['env']}, which the policy was trained on: {error}."
            ) from None

    def _masks(self, lead: tuple[int, ...], mask: Any) -> Array:
        """Return the mask of each observation; raise ValueError if it does not fit."""
        wanted = (*lead, self.action.mask_size)
        given = self.action.checked_mask(np.ones(wanted) if mask is None else self.action.flat_mask(mask))
        if given.shape != wanted:
            raise ValueError(f"its action_mask has the shape {given.shape}, and not {wanted}")
        return given


@with_short_traceback
def load_policy(
    path: str | Path, which: str = "best", device: str = "cpu", own_networks: OwnNetworks | None = None
) -> Policy:
    """Load the policy of a run folder (its best checkpoint, or with `which="last"` its last) or of a file.

    A text `user/name` that is nothing on this disk is a repository of the Hugging Face Hub, of which the checkpoint is
    downloaded. `own_networks` are those that it was trained with, if it has any: a file does not import what it
    names.
    """
    is_remote = isinstance(path, str) and is_repository(path)
    file = download(str(path), which) if is_remote else find_checkpoint(Path(path), which)
    about, state = load_checkpoint(file)
    own_networks = networks_for(about, own_networks, path)
    try:
        made = agent_class(about["algo"])
        config = config_class(about["algo"]).from_dict(made.stored_settings(about["hyperparameters"]))
        _check_facts(about)
        observation, action = ObservationSpec.from_dict(about["observation"]), ActionSpec.from_dict(about["action"])
        weights = state["trainer"]["agent"]
        make = functools.partial(made.from_config, observation, action, config, own_networks=own_networks)
        _check_shapes(make, weights)
        agent = make(device=device)
        agent.load_policy(weights)
        return Policy(agent, about)
    except (RuntimeError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        if isinstance(error, MinervaError):
            raise
        reason = " ".join(str(error).split())[:300]
        raise CheckpointError(f"{file} does not fit its own config: {reason or type(error).__name__}") from None


def _check_facts(about: dict[str, Any]) -> None:
    """Raise ValueError if what is shown of a policy, or counted with, is of another type."""
    for name in ("env", "engine", "device"):
        if type(about[name]) is not str:
            raise ValueError(f"{name} is not text")
    for name in ("seed", "step", "total_steps"):
        if type(about[name]) is not int or about[name] < 0:
            raise ValueError(f"{name} is not a whole number from 0 up")
    score = about["return"]
    if score is not None and not (type(score) in (int, float) and math.isfinite(score)):
        raise ValueError("return is not a finite number")
    Origin.read(about)
    if not isinstance(about["versions"], dict):
        raise ValueError("versions is not a table")


def _check_shapes(make: Callable[..., Any], weights: Tree) -> None:
    """Raise an error unless the networks of these sizes have the shapes of the file's tensors, at no cost of memory.

    An agent on the device "meta" has shapes alone, and refuses tensors of other shapes as any agent does.
    """
    with torch.device("meta"), _Undrawn():
        make(device="meta").load_policy(_on_meta(weights))


class _Undrawn(TorchFunctionMode):
    """Leaves out the initial values of networks that have none: PyTorch would import its compiler for them."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.normal_:
            return args[0]
        if func in (torch.zeros_like, torch.ones_like, torch.full_like):
            return torch.empty(args[0].shape, dtype=args[0].dtype)
        if func is torch.linspace:
            return torch.empty(args[2])
        return func(*args, **(kwargs or {}))


def _on_meta(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: _on_meta(inner) for name, inner in part.items()}
    return part.to("meta") if isinstance(part, torch.Tensor) else part
