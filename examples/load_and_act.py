"""A trained policy in its environment. `python load_and_act.py RUN` uses a run of yours, else one is trained first."""

import sys

import gymnasium as gym

import minerva


def trained() -> str:
    """Train a small run and return its folder."""
    settings = {"eval_episodes": 3, "eval_every": 2_048, "compile": "off"}
    return str(minerva.train("ppo", "Pendulum-v1", total_steps=2_048, settings=settings).folder)


def main(folder: str) -> None:
    """Play an episode, then act on a batch."""
    policy = minerva.load_policy(folder)  # its best checkpoint; which="last" is its last
    print(policy)
    env = gym.make(policy.about["env"])
    obs, _ = env.reset(seed=0)
    total, ended = 0.0, False
    while not ended:
        action = policy.act(obs)  # what `step` takes; deterministic=False samples
        obs, reward, terminated, truncated, _ = env.step(action)
        total, ended = total + float(reward), terminated or truncated
    print(f"return of one episode: {total:.1f}")
    print("actions of a batch:", policy.act([obs, obs]).shape)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else trained())
