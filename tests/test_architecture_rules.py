"""Each rule of test_architecture.py flags what breaks it and leaves alone what keeps it."""

import pytest
from test_architecture import (
    LONGEST_FILE,
    LONGEST_FUNCTION,
    RULES,
    Module,
    Rule,
    algorithms_named_elsewhere,
    algorithms_that_import_each_other,
    environments_out_of_place,
    formulas_in_trainers,
    formulas_that_import_more,
    imports_that_point_up,
    libraries_out_of_place,
    long_files,
    long_functions,
    private_torch_names,
    relative_imports,
    side_effects_of_forward,
)


def forward(body: str) -> str:
    return f"class Net:\n    def forward(self, x):\n        {body}\n        return x\n"


BROKEN: list[tuple[Rule, str, str]] = [
    (imports_that_point_up, "formulas.returns", "from minerva.networks import ActorCritic"),
    (imports_that_point_up, "trainers.ppo.losses", "from minerva.trainers.ppo.agent import PPOAgent"),
    (imports_that_point_up, "trainers.ppo.agent", "import minerva.trainers.ppo.trainer"),
    (imports_that_point_up, "loop.trainer", "def f():\n    from minerva.cli import main"),
    (imports_that_point_up, "runs.folder", "from minerva.loop.trainer import Trainer"),
    (imports_that_point_up, "data.rollout", "from minerva.networks import Critic"),
    (imports_that_point_up, "loop.on_policy", "from minerva.lab.cluster.engine import start"),
    (imports_that_point_up, "compute.tree", "import importlib\nimportlib.import_module('minerva.api')"),
    (imports_that_point_up, "somewhere.new", "from minerva.config import Config"),
    (algorithms_that_import_each_other, "trainers.mpo.agent", "from minerva.trainers.vmpo.losses import loss"),
    (algorithms_that_import_each_other, "trainers.ppo.config", "import minerva.trainers.mpo.config"),
    (relative_imports, "runs.run", "from .folder import RunFolder"),
    (formulas_that_import_more, "formulas.gaussian", "import numpy as np"),
    (formulas_that_import_more, "formulas.gaussian", "from minerva.errors import ConfigError"),
    (formulas_that_import_more, "formulas", "from collections import deque"),
    (formulas_that_import_more, "formulas.gaussian", "import mathematics"),
    (libraries_out_of_place, "trainers.ppo.agent", "import gymnasium as gym"),
    (libraries_out_of_place, "loop.trainer", "def f():\n    from gymnasium.spaces import Box"),
    (libraries_out_of_place, "evaluation", "import mujoco"),
    (libraries_out_of_place, "runs.metrics", "import wandb"),
    (libraries_out_of_place, "compute.optim", "import importlib\nimportlib.import_module('wandb')"),
    (libraries_out_of_place, "cli.train", "import ray"),
    (environments_out_of_place, "trainers.mpo.agent", "from minerva.envs.engines.registry import make_engine"),
    (environments_out_of_place, "trainers.ppo.losses", "from minerva.envs import ids"),
    (environments_out_of_place, "policy", "from minerva.evaluation import Evaluator"),
    (formulas_in_trainers, "trainers.ppo.trainer", "# LaTeX: x = y\nx = y"),
    (formulas_in_trainers, "loop.on_policy", "def f():\n    # LaTeX: x = y\n    x = y"),
    (private_torch_names, "compute.compiled", "from torch._inductor.custom_graph_pass import CustomGraphPass"),
    (private_torch_names, "compute.gradient", "from torch._C import _functorch"),
    (private_torch_names, "compute.gradient", "import torch._dynamo"),
    (private_torch_names, "compute.cuda_graph", "torch._foreach_copy_(targets, sources)"),
    (private_torch_names, "compute.cuda_graph", "import torch as t\nt._foreach_copy_(targets, sources)"),
    (private_torch_names, "compute.numpy_function", "versions = [tensor._version for tensor in state]"),
    (private_torch_names, "compute.numpy_function", "aten = torch.ops.aten\ncopy = aten._to_copy.default"),
    (private_torch_names, "compute.numpy_function", "from torch.fx.experimental.proxy_tensor import make_fx"),
    (private_torch_names, "compute.compiled", "guards = torch.compiler.keep_tensor_guards_unsafe"),
    (side_effects_of_forward, "networks", forward("self.count = 1")),
    (side_effects_of_forward, "networks", forward("self.count += 1")),
    (side_effects_of_forward, "networks", forward("y, self.mean[0] = x")),
    (side_effects_of_forward, "networks", forward("self.mean.copy_(x)")),
    (side_effects_of_forward, "networks", forward("self.stats['mean'].data.add_(x)")),
    (side_effects_of_forward, "networks", forward("self.normalizer.update_stats(x)")),
    (side_effects_of_forward, "networks", forward("self.seen.append(x)")),
    (side_effects_of_forward, "networks", forward("setattr(self, 'mean', x)")),
    (side_effects_of_forward, "networks", forward("torch.add(x, 1, out=self.mean)")),
    (side_effects_of_forward, "networks", forward("global calls")),
    (long_functions, "config", "def f():\n" + "    x = 1\n" * LONGEST_FUNCTION),
    (long_files, "config", "x = 1\n" * (LONGEST_FILE + 1)),
    (algorithms_named_elsewhere, "runs.status", "value = metrics['losses/approx_kl']"),
    (algorithms_named_elsewhere, "runs.status", "message = f'KL {metrics}: {x:.2g} is kl/q_pi over its bound'"),
    (algorithms_named_elsewhere, "lab.analysis.health", "PANELS = {'Temperature': 'eta'}"),
    (algorithms_named_elsewhere, "lab.analysis.health", "bound = settings.get('target_kl')"),
    (algorithms_named_elsewhere, "lab.analysis.comparison", "along_sequences = settings.get('use_retrace')"),
    (algorithms_named_elsewhere, "cli.tune", 'def f():\n    """Lower epsilon_eta."""'),
    (algorithms_named_elsewhere, "lab.export.card", "TITLES = {1: 'V-MPO'}"),
    (algorithms_named_elsewhere, "cli.presets", "algo: Literal['all', 'vmpo']"),
]

KEPT: list[tuple[Rule, str, str]] = [
    (imports_that_point_up, "trainers.ppo.agent", "from minerva.trainers.ppo.losses import value_loss"),
    (imports_that_point_up, "runs.metrics", "from minerva.runs.folder import RunFolder"),
    (imports_that_point_up, "cli.main", "from minerva.lab.cluster.engine import start"),
    (algorithms_that_import_each_other, "loop.on_policy", "from minerva.trainers.ppo.agent import PPOAgent"),
    (formulas_that_import_more, "formulas.gaussian", "import math\nfrom torch.nn import functional as F"),
    (formulas_that_import_more, "networks", "import numpy as np"),
    (libraries_out_of_place, "envs.engine", "import gymnasium"),
    (environments_out_of_place, "runs.run", "from minerva.envs.engine import Episode"),
    (private_torch_names, "compute.torch_private", "from torch._C import _functorch"),
    (private_torch_names, "version", "torch.__version__ + trainer._version_of_env"),
    (
        private_torch_names,
        "loop.stacking",
        "aten = torch.ops.aten\nself._hosts = aten.add.Tensor\nepisode._replace(env=1)",
    ),
    (side_effects_of_forward, "networks", forward("y = self.layer(x)\n        y.clamp_(0)\n        x = y[self.index]")),
    (side_effects_of_forward, "networks", "class Net:\n    def update_stats(self, x):\n        self.mean.copy_(x)"),
    (long_functions, "config", "def f():\n" + "    x = 1\n" * (LONGEST_FUNCTION - 1)),
    (long_files, "config", "x = 1\n" * LONGEST_FILE),
    (algorithms_named_elsewhere, "trainers.mpo.improve", "metrics = {'eta': 1}"),
    (algorithms_named_elsewhere, "runs.run", "row = {'train/episode_return': 1, 'charts/learning_rate': 1}"),
    (algorithms_named_elsewhere, "loop.off_policy", "raise ConfigError('lower update_after')"),
    (algorithms_named_elsewhere, "networks", "def f(initial_std):\n    check('initial_std', initial_std)"),
    (algorithms_named_elsewhere, "networks", 'def f():\n    """What the critic sees of MPO."""'),
]


@pytest.mark.parametrize(("rule", "name", "text"), BROKEN)
def test_a_rule_flags_what_breaks_it(rule: Rule, name: str, text: str) -> None:
    assert len(rule(Module(name, text))) == 1


@pytest.mark.parametrize(("rule", "name", "text"), KEPT)
def test_a_rule_leaves_alone_what_keeps_it(rule: Rule, name: str, text: str) -> None:
    assert rule(Module(name, text)) == []


def test_every_rule_has_a_counterexample() -> None:
    assert {rule for rule, _, _ in BROKEN} == set(RULES)
