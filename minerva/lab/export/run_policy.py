"""Run the policy in this folder. Needs numpy and onnxruntime; and, to play an episode, its environment.

python run_policy.py [ID]: an environment ID of the form module:Name imports that module, so you have to write it.
"""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(Path(__file__).with_name("policy.onnx"), providers=["CPUExecutionProvider"])
about = session.get_modelmeta().custom_metadata_map
image = session.get_inputs()[0].type == "tensor(uint8)"


def act(observations: np.ndarray) -> np.ndarray:
    """Return the environment's actions for raw observations of the environment.  [B, O] -> [B, D], one choice: [B]"""
    return session.run(["actions"], {"observations": np.asarray(observations, np.uint8 if image else np.float32)})[0]


if __name__ == "__main__":
    env_id, kwargs = about["gymnasium_id"], json.loads(about["env_kwargs"])
    texts = env_id + json.dumps(kwargs, separators=(",", "="))  # a colon is one inside an id or a text
    if ":" in texts and sys.argv[1:] != [env_id]:
        sys.exit(f"{env_id!r} {kwargs} imports and runs the module it names: if you trust it, add its id as argument.")
    import gymnasium as gym

    if about["env"].startswith("dm_control/"):
        import shimmy  # noqa: F401  registers dm_control's tasks with gymnasium
    module, _, name = env_id.rpartition(":")
    sys.path += [""] if module else []  # a module that you name may lie in the working directory
    own = getattr(importlib.import_module(module), name, None) if module else None
    made_by_own = callable(own) and name not in gym.registry  # a class or a function of the module
    env = gym.make(gym.envs.registration.EnvSpec(name, own) if made_by_own else env_id, **kwargs)
    env = env if image else gym.wrappers.FlattenObservation(env)
    observation, total, over = env.reset(seed=0)[0], 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(act(observation[None])[0])
        total, over = total + float(reward), terminated or truncated
    print(f"{about['algo']} on {about['env']}: return {total:,.1f}")
