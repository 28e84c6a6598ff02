"""An agent in a loop of your own: no trainer, no folder. Any agent of Minerva fits; only its first line names one."""

import gymnasium as gym
import numpy as np

import minerva

env = gym.make("Pendulum-v1")
agent = minerva.SACAgent(3, 1, -2.0, 2.0, seed=0, policy_layer_sizes=(64, 64), critic_layer_sizes=(64, 64))
draw = np.random.default_rng(0)
rows = []
obs, _ = env.reset(seed=0)
for step in range(600):
    row = agent.explore(obs[None])
    next_obs, reward, terminated, truncated, _ = env.step(row["actions_executed"][0].numpy())
    ends = {"terminated": [terminated], "truncated": [truncated]}
    rows.append({**row, "rewards": [reward], "next_obs": next_obs[None], **ends})
    obs = env.reset()[0] if terminated or truncated else next_obs
    if step >= 400:
        chosen = [rows[i] for i in draw.integers(len(rows), size=64)]
        metrics = agent.update({name: np.stack([np.asarray(one[name]) for one in chosen]) for name in rows[0]})
print(metrics)
print("the policy's action:", agent.policy_action(obs))
