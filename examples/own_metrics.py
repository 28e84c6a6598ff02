"""Callbacks: own numbers in every log, a success rate, a learning rate that falls, and a stop at a return."""

import gymnasium as gym

import minerva


class Judged(gym.Wrapper):
    """Says in `info` whether the pendulum stands upright at the end of an episode."""

    def step(self, action):
        """Step, and judge."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        return obs, reward, terminated, truncated, {**info, "is_success": bool(obs[0] > 0.95)}


class Watch(minerva.Callback):
    """Logs how far training is ahead of evaluation, and stops when the evaluation is good enough."""

    def __init__(self, enough):
        self.enough = enough
        self.trained = []

    def on_episode(self, step, metrics, trainer):
        """Remember the return of a training episode."""
        self.trained.append(metrics["train/episode_return"])

    def on_evaluation(self, step, metrics, trainer):
        """Log the gap; True stops the run."""
        if self.trained:
            trainer.log("own/gap", sum(self.trained) / len(self.trained) - metrics["eval/return_mean"])
        return metrics["eval/return_mean"] > self.enough


if __name__ == "__main__":
    fall = minerva.Schedule("policy_lr", {0: 1e-3, 4_096: 1e-4})
    result = minerva.train(
        "ppo",
        lambda: Judged(gym.make("Pendulum-v1")),
        total_steps=4_096,
        callbacks=[Watch(enough=-150), fall],
        settings={"eval_episodes": 3, "eval_every": 2_048, "compile": "off"},
    )
    rows = (result.folder / "metrics.jsonl").read_text()
    assert "own/gap" in rows
    assert "eval/is_success" in rows
    assert "settings/policy_lr" in rows
    print(f"finished: {result.finished}; own numbers are in {result.folder / 'metrics.jsonl'} and in TensorBoard")
