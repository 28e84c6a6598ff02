"""The off-policy loop: what it keeps, how often it learns, how it ends and goes on."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from collecting import rows_of
from probe_envs import Counter, Ending, Lottery, Makes, rows
from source_settings import source

import minerva
from minerva.errors import ConfigError, TrainingError
from minerva.loop.stacking import Stack
from minerva.trainers.mpo.trainer import MPOTrainer

ENDINGS = (Ending(4, True, False), Ending(3, False, True), Ending(5, True, True))
SMALL: dict[str, Any] = {
    **source("mpo"),
    "policy_layer_sizes": (8,),
    "critic_layer_sizes": (8,),
    "action_samples": 3,
    "batch_size": 4,
    "update_after": 20,
    "replay_size": 500,
}
QUIET: dict[str, Any] = {"quiet": True, "eval_episodes": 1, "compile": "off"}


def make(env: Any = Lottery, **settings: Any) -> MPOTrainer:
    return MPOTrainer(env, 0, "cpu", **{**SMALL, **settings})


def counters() -> Makes[Counter]:
    return Makes(lambda number: Counter(number, ENDINGS))


def metrics_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def rates_of(folder: Path) -> dict[int, float]:
    """The policy's learning rate at each report."""
    name = "charts/learning_rate"
    return {row["step"]: row[name] for row in metrics_of(folder) if name in row}


@pytest.mark.parametrize("envs", [1, 3])
def test_the_replay_holds_every_step_once_and_in_order(envs: int, tmp_path: Path) -> None:
    trainer = make(counters(), num_envs=envs)
    trainer.train(60, out_dir=tmp_path, **QUIET)
    assert trainer.replay.written == 60 // envs
    kept = trainer.replay.by_field({"float32": rows_of(trainer.replay)[: 60 // envs]})
    for env in range(envs):
        expected = rows(env, ENDINGS, 60 // envs)
        np.testing.assert_array_equal(kept["obs"][:, env].numpy(), [row.obs for row in expected])
        np.testing.assert_array_equal(kept["next_obs"][:, env].numpy(), [row.next_obs for row in expected])
        np.testing.assert_array_equal(kept["rewards"][:, env].numpy(), [row.reward for row in expected])
        np.testing.assert_array_equal(kept["terminated"][:, env].numpy(), [row.terminated for row in expected])
        np.testing.assert_array_equal(kept["truncated"][:, env].numpy(), [row.truncated for row in expected])
    assert kept["actions_executed"].abs().max() <= 1
    assert kept["actions_executed"].unique().numel() > 40


@pytest.mark.parametrize(
    ("rate", "envs", "expected"),
    [(1.0, 1, 100), (0.25, 1, 25), (0.1, 1, 10), (1 / 3, 1, 33), (2.5, 1, 250), (0.3, 4, 30)],
)
def test_updates_per_step_are_exact(
    rate: float, envs: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An update belongs to the vector step being taken, which is not in the replay yet."""
    trainer, learned = make(updates_per_step=rate, num_envs=envs), list[int]()
    monkeypatch.setattr(Stack, "learn", lambda *_: learned.append((trainer.replay.written + 1) * envs))
    trainer.train(120, out_dir=tmp_path, **QUIET)
    assert len(learned) == expected
    for step in range(20, 121, envs):  # and at every moment on the way
        assert sum(at <= step for at in learned) == int((step - 20) * rate + 1e-9)


@pytest.mark.parametrize(
    ("update_after", "envs", "expected"), [(1, 1, 39), (1, 4, 36), (3, 4, 36), (4, 4, 36), (6, 4, 34)]
)
def test_nothing_is_learned_before_there_is_something_to_learn_from(
    update_after: int, envs: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, held = make(update_after=update_after, updates_per_step=1, num_envs=envs), list[int]()
    monkeypatch.setattr(Stack, "learn", lambda *_: held.append(len(trainer.replay)))
    trainer.train(40, out_dir=tmp_path, **QUIET)
    assert len(held) == expected
    assert min(held) >= envs


def test_steps_that_do_not_divide_are_all_taken(tmp_path: Path) -> None:
    trainer = make(update_after=10, updates_per_step=0.01)
    result = trainer.train(1037, out_dir=tmp_path, eval_every=250, **QUIET)
    assert (result.step, trainer.replay.written) == (1037, 1037)
    evaluated = [row["step"] for row in metrics_of(tmp_path) if "eval/return_mean" in row]
    assert evaluated == [0, 250, 500, 750, 1000, 1037]


@pytest.mark.parametrize(
    ("anneal", "expected"), [(True, [1e-3, 1e-3, 7.5e-4, 5e-4, 5e-4, 2.5e-4]), (False, [1e-3] * 6)]
)
def test_learning_rates_of_a_run(anneal: bool, expected: list[float], tmp_path: Path) -> None:
    """They fall every thousand steps, and not where an evaluation cuts a thousand in two."""
    trainer = make(policy_lr=1e-3, anneal_lr=anneal, updates_per_step=0.01)
    trainer.train(3_100, out_dir=tmp_path, eval_every=700, **QUIET)
    rates = rates_of(tmp_path)
    assert [rates[step] for step in (700, 1000, 1400, 2100, 3000, 3100)] == pytest.approx(expected)


@pytest.mark.parametrize(("warmup", "acting"), [("random", "online"), ("policy", "online"), ("policy", "target")])
def test_who_acts_before_and_after_the_first_update(
    warmup: str, acting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer, who = make(warmup=warmup, acting_policy=acting, use_retrace=True), list[str]()
    for name in ("acted", "sample_uniform"):
        original = getattr(trainer.agent, name)
        monkeypatch.setattr(
            trainer.agent, name, lambda *given, name=name, act=original: who.append(name) or act(*given)
        )
    trainer.train(30, out_dir=tmp_path, **QUIET)
    assert who == ["sample_uniform" if warmup == "random" else "acted"] * 20 + ["acted"] * 10


def test_retrace_learns_from_the_density_of_whoever_acted(tmp_path: Path) -> None:
    trainer = make(use_retrace=True, retrace_steps=3, warmup="random", update_after=20)
    trainer.train(30, out_dir=tmp_path, **QUIET)
    kept = trainer.replay.by_field({"float32": rows_of(trainer.replay)[:30, 0]})
    torch.testing.assert_close(kept["behaviour_logp"][:20].exp(), torch.full((20, 1), 0.5))  # uniform on [-1, 1]
    torch.testing.assert_close(kept["actions_executed"], kept["actions_raw"].clamp(-1, 1))
    assert kept["behaviour_logp"][20:].unique().numel() > 1


@pytest.mark.parametrize(
    "settings",
    [{}, {"n_step": 3}, {"use_retrace": True, "retrace_steps": 3}, {"use_retrace": True, "retrace_steps": 1}],
    ids=str,
)
def test_batches_have_the_rows_their_target_needs(settings: dict[str, Any], tmp_path: Path) -> None:
    trainer, shapes = make(**settings), set()
    prepared = trainer.agent.prepared
    trainer.agent.prepared = lambda batch: shapes.add(tuple(batch["obs"].shape)) or prepared(batch)  # type: ignore[method-assign]
    trainer.train(40, out_dir=tmp_path, **QUIET)
    length = settings.get("n_step") or settings.get("retrace_steps") or 1
    assert shapes == {(4, 2) if length == 1 else (4, 3, 2)}


def test_train_takes_its_arguments_by_name_in_order_and_as_every_trainer_does(tmp_path: Path) -> None:
    trainer = make()
    assert trainer.train(40, 30, 2, tmp_path / "order", **QUIET).folder == tmp_path / "order"
    assert (trainer.config.update_after, trainer.config.batch_size) == (30, 2)
    assert make().train(40, tmp_path / "plain", **QUIET).folder == tmp_path / "plain"
    named = make().train(total_steps=40, update_after=25, batch_size=3, out_dir=tmp_path / "named", **QUIET)
    assert "update_after: 25" in (named.folder / "config.yaml").read_text()


@pytest.mark.parametrize(("steps", "settings"), [(20, {}), (23, {}), (49, {"num_envs": 25, "update_after": 30})])
def test_a_budget_without_an_update_is_refused(steps: int, settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="raise total_steps or lower update_after"):
        make(**settings).train(steps, out_dir=tmp_path / "x", **QUIET)
    assert not (tmp_path / "x").exists()


def test_a_small_replay_is_refused() -> None:
    with pytest.raises(ConfigError, match="raise replay_size"):
        make(replay_size=3)


def test_the_metrics_of_the_specification_are_logged(tmp_path: Path) -> None:
    make().train(60, out_dir=tmp_path, **QUIET)
    logged = metrics_of(tmp_path)[-2]
    wanted = "loss/q loss/policy loss/dual_eta loss/dual kl/q_pi kl/mean kl/std eta lambda alpha_mean alpha_std q/min "
    wanted += "q/max pi/std_min pi/std_max entropy train/param_delta health/kl_mean health/effective_samples"
    assert set(wanted.split()) <= set(logged)
    assert logged["train/updates"] == 10


def stopping(at: int) -> Callable[..., bool]:
    return lambda step, metrics, trainer: step >= at


def test_a_stopped_run_goes_on_with_its_replay(tmp_path: Path) -> None:
    first, second = make(counters()), make(counters())
    second.saved_env = first.saved_env  # a function without a name is known to one trainer alone
    first.train(200, out_dir=tmp_path, callbacks=[stopping(100)], eval_every=50, **QUIET)
    result = second.train(200, out_dir=tmp_path, eval_every=50, **QUIET)
    assert (first.replay.written, second.replay.written, result.step, result.finished) == (100, 200, 200, True)
    assert torch.equal(rows_of(second.replay)[:100, :, :-1], rows_of(first.replay)[:100, :, :-1])
    assert int(second.agent.state["counters"]["updates"]) == (200 - 20) // 4


def test_a_run_stopped_within_a_thousand_steps_goes_on_at_that_thousands_rate(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"policy_lr": 1e-3, "anneal_lr": True, "updates_per_step": 0.01}
    make(**settings).train(4_000, out_dir=tmp_path, callbacks=[stopping(1_400)], eval_every=700, **QUIET)
    make(**settings).train(4_000, out_dir=tmp_path, eval_every=700, **QUIET)
    rates = rates_of(tmp_path)
    assert [rates[step] for step in (1400, 2000, 2100)] == pytest.approx([7.5e-4, 7.5e-4, 5e-4])


def test_no_sequence_crosses_the_point_where_a_run_was_resumed(tmp_path: Path) -> None:
    first, second = make(counters(), n_step=4), make(counters(), n_step=4)
    second.saved_env = first.saved_env
    first.train(100, out_dir=tmp_path, callbacks=[stopping(50)], eval_every=50, **QUIET)
    second.train(100, out_dir=tmp_path, eval_every=50, **QUIET)
    obs = second.replay.sample_sequences(2000, 4)["obs"]
    moved = obs[:, 1:] - obs[:, :-1]
    assert set(map(tuple, moved.reshape(-1, 3).tolist())) == {(0, 0, 1), (0, 0, 0)}


def test_a_replay_that_does_not_fit_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"replay_size is 100,000,000,000,000: the replay needs [\d,]+ bytes"):
        make(replay_size=10**14).train(900, out_dir=tmp_path / "run", **QUIET)
    assert not (tmp_path / "run").exists()


def test_a_signal_is_heard_between_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learn, calls = Stack.learn, iter(range(10**6))

    def learn_and_call(stack: Stack, data: Any, hyper: Any) -> None:
        if next(calls) == 10:
            os.kill(os.getpid(), signal.SIGINT)
        learn(stack, data, hyper)

    monkeypatch.setattr(Stack, "learn", learn_and_call)
    trainer = make()
    with pytest.raises(KeyboardInterrupt, match=f"is stopped at step {20 + 4 * 11},"):
        trainer.train(900, out_dir=tmp_path, eval_every=900, **QUIET)


@pytest.mark.parametrize("bad_from", [0, 1_300])
def test_a_run_that_skips_every_update_stops_and_says_so(bad_from: int, tmp_path: Path) -> None:
    class Overflowing(Lottery):
        steps = 0

        def step(self, action: Any) -> Any:
            Overflowing.steps += 1
            obs, reward, *ends = super().step(action)
            return obs, reward if Overflowing.steps < bad_from else 1e30, *ends

    trainer = make(Overflowing, updates_per_step=0.1, batch_size=64)
    with pytest.raises(TrainingError, match="loss became nan"):
        trainer.train(6_000, out_dir=tmp_path, eval_every=6_000, **QUIET)
    rows = [row for row in metrics_of(tmp_path) if "train/updates" in row]
    done = trainer.updates(rows[-1]["step"]) if rows else 0
    assert all(row["train/updates"] + row["train/skipped_updates"] == trainer.updates(row["step"]) for row in rows)
    assert len(rows) == (0 if bad_from == 0 else rows[-1]["step"] // 1_000)
    assert done < trainer.updates(6_000)


def test_training_twice_gives_the_same_weights(tmp_path: Path) -> None:
    one, two = make(), make()
    one.train(100, out_dir=tmp_path / "one", eval_every=20, **QUIET)
    torch.manual_seed(9)
    two.train(100, out_dir=tmp_path / "two", eval_every=100, **QUIET)  # evaluation must not disturb training
    assert torch.equal(one.agent.state["policy"], two.agent.state["policy"])


def test_a_trained_policy_is_loaded_from_its_checkpoint_alone(tmp_path: Path) -> None:
    trainer = make()
    trainer.train(60, out_dir=tmp_path, **QUIET)
    policy = minerva.load_policy(tmp_path, which="last")
    obs = np.random.default_rng(0).normal(size=(5, 2)).astype(np.float32)
    np.testing.assert_allclose(policy.act(obs), trainer.greedy(obs), rtol=1e-5, atol=1e-6)


def test_the_public_names_are_there() -> None:
    assert minerva.MPOTrainer is MPOTrainer
    assert minerva.MPOAgent is type(make().agent)
    assert isinstance(make().config, minerva.MPOConfig)
