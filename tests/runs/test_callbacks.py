"""The user's code in a run: what it hears, logs and changes, and that a resumed run cannot tell the difference."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from probe_envs import Reaching
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_runs import BATCH, PPO, SETTINGS, STEPS, learned, rows_without_clock, same

import minerva
from minerva.errors import ConfigError
from minerva.loop.population import Population
from minerva.runs.callbacks import EVENTS, Callback, Schedule
from minerva.runs.metrics import read_rows
from minerva.trainers.ppo.trainer import PPOTrainer
from minerva.trainers.sac.trainer import SACTrainer


class Heard(Callback):
    """Notes every event with its step and the names of its metrics."""

    def __init__(self) -> None:
        self.events: list[tuple[str, int, set[str]]] = []
        for event in EVENTS:
            setattr(self, f"on_{event}", lambda step, metrics, trainer, event=event: self.note(event, step, metrics))

    def note(self, event: str, step: int, metrics: Mapping[str, float]) -> None:
        self.events.append((event, step, set(metrics)))


def train(folder: Path, *callbacks: Any, total: int = STEPS, **changed: Any) -> Any:
    trainer = PPOTrainer(Reaching, **{**PPO, **changed})
    return trainer.train(total, folder, **SETTINGS, callbacks=callbacks)


def logged(folder: Path, name: str) -> list[tuple[int, float]]:
    return [(row["step"], row[name]) for row in read_rows(folder / "metrics.jsonl") if name in row]


# --- events -------------------------------------------------------------------------------------------------------


def test_every_event_is_heard_in_order_with_its_metrics(tmp_path: Path) -> None:
    heard = Heard()
    train(tmp_path, heard, total=2 * BATCH)
    around = [("start", 0), ("checkpoint", 0), ("evaluation", 0), ("checkpoint", 0)]
    episodes = BATCH // 4
    for step in (BATCH, 2 * BATCH):
        around += [("episode", step)] * episodes + [("evaluation", step), ("update", step), ("checkpoint", step)]
    assert [(event, step) for event, step, _ in heard.events] == [*around, ("end", 256), ("checkpoint", 256)]
    names = {event: metrics for event, _, metrics in heard.events}
    assert names["episode"] == {
        f"train/{name}" for name in ("episode_return", "episode_length", "is_success", "distance")
    }
    assert {"eval/return_mean", "eval/is_success"} <= names["evaluation"]
    assert {"eval/return_mean", "train/episode_return", "losses/value_loss"} <= names["update"]


def test_a_function_stops_at_an_evaluated_return(tmp_path: Path) -> None:
    result = train(tmp_path, lambda step, metrics, _: metrics["eval/return_mean"] > -100 and step >= 2 * BATCH)
    assert (result.step, result.finished) == (2 * BATCH, False)


@pytest.mark.parametrize("event", ["start", "episode", "evaluation", "update", "checkpoint"])
def test_any_event_can_stop_the_run(event: str, tmp_path: Path) -> None:
    callback = Callback()
    setattr(callback, f"on_{event}", lambda *_: True)
    result = train(tmp_path, callback)
    assert not result.finished
    assert result.step == (0 if event in ("start", "evaluation", "checkpoint") else BATCH)


def test_what_is_written_into_the_metrics_is_refused(tmp_path: Path) -> None:
    def add(step: int, metrics: Any, trainer: Any) -> None:
        metrics["mine"] = 1.0

    with pytest.raises(TypeError, match=r"call trainer.log\('mine', value\)"):
        train(tmp_path, add)


class WithAnotherName:
    """As the callbacks of other libraries are written."""

    def on_step(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("callbacks", "reason"),
    [
        (lambda *_: None, r"must be a list: write callbacks=\[f\]"),
        ([Heard], r"is a class: give an instance, Heard\(\)"),
        ([WithAnotherName()], "has on_step, which is never called: the events are on_start, on_episode"),
        ([3], "3 is no function and has no method such as on_update"),
    ],
)
def test_what_can_hear_of_nothing_is_refused(callbacks: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=reason):
        minerva.train("ppo", Reaching, total_steps=BATCH, run_dir=tmp_path / "run", callbacks=callbacks, **PPO)
    assert not (tmp_path / "run").exists()


def test_train_and_train_seeds_take_callbacks(tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []

    def note(step: int, metrics: Any, trainer: Any) -> None:
        heard.append((trainer.seed, step))

    how: Any = {"total_steps": 2 * BATCH, "settings": SETTINGS, "callbacks": [note], **PPO}
    minerva.train("ppo", Reaching, seed=7, run_dir=tmp_path / "one", **how)
    minerva.train_seeds("ppo", Reaching, [1, 2], run_dir=tmp_path / "two", **how)
    assert heard == [(7, 128), (7, 256), (1, 128), (2, 128), (1, 256), (2, 256)]


def test_one_seed_is_stopped_and_the_other_goes_on_as_if_alone(tmp_path: Path) -> None:
    def population() -> Population:
        return Population([PPOTrainer(Reaching, seed, **PPO) for seed in (0, 1)])

    def stop(step: int, metrics: Any, trainer: Any) -> bool:
        return trainer.seed == 0 and step == 2 * BATCH

    folders = [[tmp_path / name / str(seed) for seed in (0, 1)] for name in ("stopped", "whole")]
    results = population().train(STEPS, folders[0], **SETTINGS, callbacks=[stop])
    population().train(STEPS, folders[1], **SETTINGS)
    assert [(result.step, result.finished) for result in results] == [(2 * BATCH, False), (STEPS, True)]
    assert logged(folders[0][0], "charts/SPS")[-1][0] == 2 * BATCH
    assert same(learned(folders[0][1]), learned(folders[1][1]))
    PPOTrainer(Reaching, 0, **PPO).train(STEPS, folders[0][0], **SETTINGS)
    assert logged(folders[0][0], "charts/SPS")[-1][0] == STEPS


# --- own numbers --------------------------------------------------------------------------------------------------


def test_own_numbers_are_logged_everywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Logs(Callback):
        def on_episode(self, step: int, metrics: Any, trainer: Any) -> None:
            trainer.log("own/success", metrics["train/is_success"])

        def on_update(self, step: int, metrics: Any, trainer: Any) -> None:
            trainer.log("own/step", step)

    train(tmp_path, Logs(), total=2 * BATCH)
    assert logged(tmp_path, "own/success") == [(128, 0.5), (256, 0.5)], "the mean over the episodes of a report"
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("own/step")] == [(128, 128.0), (256, 256.0)]


@pytest.mark.parametrize(("name", "value"), [("", 1.0), ("step", 1.0), ("own/x", "far"), ("own/x", [1.0, 2.0])])
def test_what_is_no_number_with_a_name_is_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match="give a"):
        PPOTrainer(Reaching, **PPO).log(name, value)


# --- settings that change -----------------------------------------------------------------------------------------


def test_a_changed_rate_is_that_of_a_run_that_has_it(tmp_path: Path) -> None:
    train(tmp_path / "given", policy_lr=1e-3)
    train(tmp_path / "changed", Schedule("policy_lr", {0: 1e-3}), policy_lr=3e-4)
    assert same(learned(tmp_path / "given")["agent"], learned(tmp_path / "changed")["agent"])
    assert logged(tmp_path / "changed", "charts/learning_rate") == logged(tmp_path / "given", "charts/learning_rate")


def test_a_changed_discount_reaches_the_rewards_too(tmp_path: Path) -> None:
    train(tmp_path / "given", gamma=0.9)
    train(tmp_path / "changed", Schedule("gamma", {0: 0.9}), gamma=0.99)
    assert same(learned(tmp_path / "given")["agent"], learned(tmp_path / "changed")["agent"])
    off_policy = minerva.MPOTrainer(Reaching, batch_size=8, policy_layer_sizes=(8,), critic_layer_sizes=(8,))
    off_policy.change(gamma=0.9)
    assert off_policy.reward_scale is not None
    assert float(off_policy.reward_scale.state["gamma"]) == 0.9


def test_a_whole_number_stays_one(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"num_envs": 2, "rollout_steps": 64, "policy_layer_sizes": (8,), "value_layer_sizes": (8,)}
    trainer = minerva.VMPOTrainer(Reaching, **sizes)
    trainer.train(2 * BATCH, tmp_path, **SETTINGS, callbacks=[Schedule("old_policy_period", {0: 10, 3 * BATCH: 5})])
    assert logged(tmp_path, "settings/old_policy_period") == [(128, 8), (256, 7)]
    assert type(trainer.agent.config.old_policy_period) is int


def test_a_schedule_moves_in_a_straight_line_and_is_logged(tmp_path: Path) -> None:
    train(tmp_path, Schedule("clip_ratio", {0: 0.2, 256: 0.1}), Schedule("ent_coef", lambda step: 0.01), ent_coef=0.01)
    assert logged(tmp_path, "settings/clip_ratio") == [(128, pytest.approx(0.15)), (256, pytest.approx(0.1))]
    assert logged(tmp_path, "settings/ent_coef") == [], "it did not change"


def test_a_schedule_may_end_at_zero_and_the_last_update_then_changes_nothing(tmp_path: Path) -> None:
    weights: list[Any] = []
    watch = [Schedule("policy_lr", lambda step: 3e-4 * (step < BATCH)), lambda s, m, t: weights.append(learned_now(t))]
    train(tmp_path, *watch, anneal_lr=False, total=2 * BATCH)
    assert same(*weights), "the second update had the rate 0"
    assert logged(tmp_path, "settings/policy_lr") == [(BATCH, pytest.approx(0, abs=1e-30))]


def learned_now(trainer: Any) -> Any:
    return trainer.agent.state["parameters"].clone()


@pytest.mark.parametrize("anneals", [True, False])
def test_a_schedule_beside_annealing_is_told_of(anneals: bool, tmp_path: Path, caplog: Any) -> None:
    train(tmp_path, Schedule("policy_lr", {0: 3e-4}), anneal_lr=anneals)
    assert ("set anneal_lr to False" in caplog.text) is anneals


@pytest.mark.parametrize("how", ["stopped", "killed after the checkpoint"])
def test_a_changed_rate_is_part_of_what_is_resumed(how: str, tmp_path: Path) -> None:
    def lower(step: int, metrics: Any, trainer: Any) -> None:
        if step == 2 * BATCH:
            trainer.change(policy_lr=1e-5, gamma=0.9)

    class Ends(Callback):
        def on_checkpoint(self, step: int, metrics: Any, trainer: Any) -> bool:
            if step == 2 * BATCH and how != "stopped":
                raise InterruptedError
            return step == 2 * BATCH

    train(tmp_path / "whole", lower, gamma=0.99)
    if how == "stopped":
        train(tmp_path / "parts", lower, Ends(), gamma=0.99)
    else:
        with pytest.raises(InterruptedError):
            train(tmp_path / "parts", lower, Ends(), gamma=0.99)
    train(tmp_path / "parts", gamma=0.99)
    assert same(learned(tmp_path / "parts"), learned(tmp_path / "whole"))
    assert rows_without_clock(tmp_path / "parts") == rows_without_clock(tmp_path / "whole")
    assert logged(tmp_path / "whole", "settings/gamma") == [(256, 0.9)]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"rollout_steps": 8}, "rollout_steps cannot change during a run: what can is gamma"),
        ({"target_kl": None}, "target_kl cannot change from 0.03 to None during a run"),
        ({"policy_lr": -1.0}, r"policy_lr is -1.0: it must be in \(0, inf\)"),
        ({"learning_rat": 1.0}, "learning_rat is not a setting of PPOConfig"),
    ],
)
def test_what_cannot_change_is_refused(changed: Any, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        PPOTrainer(Reaching, **PPO).change(**changed)


def test_off_policy_a_change_takes_effect_after_its_report(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {
        "batch_size": 8,
        "policy_layer_sizes": (8,),
        "critic_layer_sizes": (8,),
        "update_after": 100,
    }

    def freeze(step: int, metrics: Any, trainer: Any) -> None:
        trainer.change(policy_lr=1e-30, q_lr=1e-30, temperature_lr=1e-30)

    trainer = SACTrainer(Reaching, **sizes, updates_per_step=0.1)
    snapshots: list[Any] = []

    def keep(step: int, metrics: Any, trainer: Any) -> None:
        snapshots.append(trainer.agent.state["policy"].clone())

    trainer.train(
        3_000, tmp_path, quiet=True, eval_every=10**6, eval_episodes=1, compile="off", callbacks=[freeze, keep]
    )
    assert not same(snapshots[0], SACTrainer(Reaching, **sizes).agent.state["policy"])
    assert same(snapshots[0], snapshots[-1])
