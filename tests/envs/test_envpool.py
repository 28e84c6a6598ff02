"""EnvPool against gymnasium: the same rules of stepping, and the same tasks.

Agreement is tested from the same state where one can be had: EnvPool's first observation is turned into positions and
velocities, gymnasium's simulator is put there, and both are stepped. EnvPool 1.2.5 embeds MuJoCo 3.6.0 and dm_control
1.0.38, and yet almost everything is the same to the last bit. In Humanoid-v5 and HumanoidStandup-v5 the forces of the
many contacts differ by up to 1e-4 of the largest. What differs by more is left to gymnasium:

| tasks | difference |
|---|---|
| lqr/lqr_2_1, lqr_6_2 | episodes are cut at 1000 steps, and every environment draws springs of its own |
| cartpole/two_poles, three_poles | the upper poles start within 0.01 of straight, not 0.1 |
| gymnasium's versions before v5 | Ant-v4 and Humanoid-v4 observe contact forces, where gymnasium's are 0 |
"""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from collecting import drawn
from gymnasium.wrappers import AtariPreprocessing
from scipy.stats import ks_2samp

from minerva.envs.engine import Engine
from minerva.envs.engines import envpool as engine
from minerva.envs.engines.envpool import GYMNASIUM_TASKS, IN_NAME_ONLY, EnvPoolEngine
from minerva.envs.engines.registry import make_engine
from minerva.envs.frames import StackedFrames
from minerva.envs.ids import Task, as_evaluated, factory, known_ids
from minerva.evaluation import Evaluator

envpool = pytest.importorskip("envpool")

Array = np.ndarray[Any, np.dtype[Any]]
SUITE = [name for name in known_ids() if name.startswith("dm_control/") and name not in IN_NAME_ONLY]


def pool(env_id: str, seeds: list[int], **options: Any) -> Any:
    """EnvPool as its own documentation uses it."""
    return envpool.make_gymnasium(engine._task(env_id), num_envs=len(seeds), seed=seeds, **options)


# --- stepping -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("env_id", "steps", "flag"),
    [("Hopper-v5", 300, "terminated"), ("Pendulum-v1", 450, "truncated"), ("dm_control/walker/run", 1005, "truncated")],
)
def test_every_row_is_one_of_envpools_own_without_its_reset_rows(env_id: str, steps: int, flag: str) -> None:
    """Each environment alone in a pool that resets by itself, which costs it one more step an episode."""
    envs, singles = make_engine(env_id, 3, "envpool"), [pool(env_id, [seed]) for seed in (4, 9, 2)]
    envs.reset([4, 9, 2])
    now = [flat(single.reset()[0], env_id) for single in singles]
    draw, ends = np.random.default_rng(0), 0
    for _ in range(steps):
        np.testing.assert_array_equal(envs.obs, np.float32(now))
        actions = draw.uniform(-1, 1, (3, envs.action.size))
        step = envs.step(torch.from_numpy(actions))
        for i, single in enumerate(singles):
            action = actions[i : i + 1] * envs.action.bounds[1]
            obs, reward, terminated, truncated, _ = single.step(action)
            np.testing.assert_array_equal(step.next_obs[i], np.float32(flat(obs, env_id)))
            assert (step.rewards[i], step.terminated[i], step.truncated[i]) == (reward, terminated, truncated)
            now[i] = flat(single.step(action)[0] if terminated or truncated else obs, env_id)
        ends += int(getattr(step, flag).sum())
    assert ends >= 3, "the comparison has to pass an end of each"


def flat(obs: Any, env_id: str) -> Array:
    """One environment's observation in the order of its names."""
    return np.concatenate([np.ravel(obs[name]) for name in sorted(obs)] if isinstance(obs, dict) else [obs[0]])


def test_episodes_are_the_sums_of_their_rows() -> None:
    envs = make_engine("Hopper-v5", 4, "envpool")
    envs.reset([0, 1, 2, 3])
    draw, sums, lengths, seen = np.random.default_rng(1), np.zeros(4), np.zeros(4, int), 0
    for _ in range(200):
        step = envs.step(drawn(draw, envs))
        episodes = envs.take_episodes()
        sums, lengths, seen = sums + step.rewards.numpy(), lengths + 1, seen + len(episodes)
        assert [episode.env for episode in episodes] == list(np.flatnonzero(step.terminated | step.truncated))
        for env, total, length, _ in episodes:
            assert (total, length) == (pytest.approx(sums[env]), lengths[env])
            sums[env], lengths[env] = 0, 0
    assert seen > 10


def fallen(limit: int) -> tuple[int, bool, bool]:
    """Length and flags of a Hopper's first episode under a constant action, with a time limit."""
    envs = EnvPoolEngine("Hopper-v5", 1)
    envs._limit = limit
    envs.reset([3])
    while True:
        step = envs.step(torch.ones((1, 3)))
        episodes = envs.take_episodes()
        if episodes:
            return episodes[0].length, bool(step.terminated[0]), bool(step.truncated[0])


def test_a_fall_in_the_last_step_is_a_termination_and_a_time_limit() -> None:
    """As gymnasium tells it. EnvPool's own time limit would hide the fall, and training would bootstrap from it."""
    length, *flags = fallen(limit=1_000)
    assert flags == [True, False]
    assert fallen(limit=length) == (length, True, True)
    assert fallen(limit=length - 1) == (length - 1, False, True)


def test_rows_that_were_handed_out_do_not_change_later() -> None:
    envs = make_engine("Pendulum-v1", 2, "envpool")
    first = envs.reset([0, 1])
    step = envs.step(torch.zeros((2, 1)))
    kept = [array.clone() for array in (first, *step)]
    for _ in range(250):
        envs.step(torch.ones((2, 1)))
    for array, before in zip((first, *step), kept, strict=True):
        np.testing.assert_array_equal(array, before)


def test_rows_have_gymnasiums_types() -> None:
    for name in ("gymnasium", "envpool"):
        envs = make_engine("HalfCheetah-v5", 2, name)  # type: ignore[arg-type]
        envs.reset([0, 1])
        step = envs.step(torch.zeros((2, 6)))
        kinds = [torch.float32] * 2 + [torch.float64] + [torch.bool] * 2
        assert [tensor.dtype for tensor in (envs.obs, *step)] == kinds


def test_each_half_of_a_step_follows_the_other() -> None:
    envs = make_engine("Pendulum-v1", 2, "envpool")
    envs.reset([0, 1])
    envs.send(torch.ones((2, 1)))
    halves = envs.recv()
    envs.reset([0, 1])
    whole = envs.step(torch.ones((2, 1)))
    np.testing.assert_array_equal(halves.next_obs, whole.next_obs)


# --- seeds --------------------------------------------------------------------------------------------------------


def rolled(envs: Engine, seeds: list[int], steps: int = 230) -> Array:
    draw = np.random.default_rng(0)
    seen = [envs.reset(seeds)]
    seen += [envs.step(drawn(draw, envs)).next_obs for _ in range(steps)]
    return np.stack(seen)


@pytest.mark.parametrize("env_id", ["Pendulum-v1", "dm_control/cartpole/swingup"])
def test_seeds_are_episodes_however_often_they_are_asked_for(env_id: str) -> None:
    envs = make_engine(env_id, 2, "envpool")
    first, again, other = (rolled(envs, seeds) for seeds in ([3, 4], [3, 4], [4, 2**32 - 1]))
    np.testing.assert_array_equal(first, again)
    np.testing.assert_array_equal(first[0, 1], other[0, 0])  # a seed is its own, whichever environment has it
    assert not np.array_equal(first[0, 0], first[0, 1])


# --- the tasks are those of gymnasium -------------------------------------------------------------------------------


@pytest.mark.parametrize("env_id", GYMNASIUM_TASKS)
def test_gymnasiums_time_limit_is_kept(env_id: str) -> None:
    assert EnvPoolEngine(env_id, 1)._limit == gym.spec(env_id).max_episode_steps


@pytest.mark.parametrize("env_id", SUITE)
def test_every_task_of_the_suite_is_here_with_its_time_limit(env_id: str) -> None:
    """The engine itself refuses a task whose entries or bounds are not gymnasium's."""
    from dm_control import suite

    _, domain, task = env_id.split("/")
    stepper = EnvPoolEngine(env_id, 1)
    assert stepper._limit == suite.load(domain, task)._step_limit


State = tuple[Any, Any]


def angle(cos: Any, sin: Any) -> Any:
    return np.arctan2(sin, cos)


def without_x(obs: Array, info: dict[str, Any]) -> State:
    """A planar body that does not observe where it is along its way."""
    half = (len(obs) - 1) // 2
    return [info["x_position"][0], *obs[:half]], obs[half:]


def without_xy(bodies: int, joints: int) -> Callable[..., State]:
    """A free body and its joints; contact forces and the like may follow."""

    def state(obs: Array, info: dict[str, Any]) -> State:
        place = [info[name][0] if name in info else 0.0 for name in ("x_position", "y_position")]
        return [*place, *obs[: bodies + joints - 2]], obs[bodies + joints - 2 :][: bodies - (bodies > 3) + joints]

    return state


def double_pendulum(obs: Array, info: Any) -> State:
    return [obs[0], angle(obs[3], obs[1]), angle(obs[4], obs[2])], obs[5:8]


def reacher(obs: Array, info: Any) -> State:
    return [angle(obs[0], obs[2]), angle(obs[1], obs[3]), *obs[4:6]], [*obs[6:8], 0, 0]


GYMNASIUM_STATES: dict[str, Callable[..., State]] = {
    "HalfCheetah-v5": without_x,
    "Hopper-v5": without_x,
    "Walker2d-v5": without_x,
    "Swimmer-v5": without_xy(3, 2),
    "Ant-v5": without_xy(7, 8),
    "Humanoid-v5": without_xy(7, 17),
    "HumanoidStandup-v5": without_xy(7, 17),
    "InvertedPendulum-v5": lambda obs, info: (obs[:2], obs[2:]),
    "InvertedDoublePendulum-v5": double_pendulum,
    "Reacher-v5": reacher,
}


def assert_same_steps(theirs: Engine, ours: Engine, steps: int, rtol: float) -> None:
    """Step both from where they stand with the same actions: everything agrees, and something happens."""
    draw, start = np.random.default_rng(0), ours.obs.clone()
    for _ in range(steps):
        actions = drawn(draw, ours).float()
        expected, step = theirs.step(actions), ours.step(actions)
        scale = np.abs(expected.next_obs.numpy()).max()
        np.testing.assert_allclose(step.next_obs, expected.next_obs, rtol=0, atol=rtol * scale)
        np.testing.assert_allclose(step.rewards, expected.rewards, rtol=rtol, atol=1e-5)
        np.testing.assert_array_equal(step.terminated, expected.terminated)
        if step.terminated[0]:
            break
    assert (step.next_obs - start).abs().max() > 1e-3


@pytest.mark.parametrize("env_id", GYMNASIUM_STATES)
def test_gymnasiums_simulator_follows_from_the_same_state(env_id: str) -> None:
    import mujoco

    obs, info = pool(env_id, [1]).reset()
    theirs, ours = (make_engine(env_id, 1, name) for name in ("gymnasium", "envpool"))  # type: ignore[arg-type]
    theirs.reset([0])
    ours.reset([1])
    env: Any = theirs.envs[0].unwrapped  # type: ignore[attr-defined]
    position, velocity = GYMNASIUM_STATES[env_id](obs[0], info)
    mujoco.mj_resetData(env.model, env.data)
    env.set_state(np.array(position), np.array(velocity))
    env.goal = np.array(position[-2:])  # of Reacher
    np.testing.assert_allclose(env._get_obs(), obs[0], atol=1e-12)
    humanoid = env_id.startswith("Humanoid")
    assert_same_steps(theirs, ours, 5 if humanoid else 20, rtol=1e-4 if humanoid else 1e-6)


@pytest.mark.parametrize(
    ("env_id", "state"),
    [
        ("Pendulum-v1", lambda obs: [angle(obs[0], obs[1]), obs[2]]),
        ("MountainCarContinuous-v0", lambda obs: obs),
        ("MountainCar-v0", lambda obs: obs),
        ("CartPole-v1", lambda obs: obs),
        ("Acrobot-v1", lambda obs: [angle(obs[0], obs[1]), angle(obs[2], obs[3]), *obs[4:]]),
    ],
)
def test_classic_control_follows_from_the_same_state(env_id: str, state: Callable[[Array], Any]) -> None:
    obs, _ = pool(env_id, [1]).reset()
    theirs, ours = (make_engine(env_id, 1, name) for name in ("gymnasium", "envpool"))  # type: ignore[arg-type]
    theirs.reset([0])
    ours.reset([1])
    theirs.envs[0].unwrapped.state = np.array(state(obs[0]))  # type: ignore[attr-defined]
    assert_same_steps(theirs, ours, 20, rtol=1e-5)


def walker(obs: dict[str, Any]) -> State:
    cos, sin = obs["orientations"].reshape(7, 2).T
    torso, right_thigh, right_leg, right_foot, left_thigh, left_leg, left_foot = angle(cos, -sin)
    right = [right_thigh - torso, right_leg - right_thigh, right_foot - right_leg]
    left = [left_thigh - torso, left_leg - left_thigh, left_foot - left_leg]
    joints = (np.array(right + left) + np.pi) % (2 * np.pi) - np.pi
    return [obs["height"] - 1.3, 0.0, -torso, *joints], obs["velocity"]


def acrobot(obs: dict[str, Any]) -> State:
    sin_upper, sin_lower, cos_upper, cos_lower = obs["orientations"]
    upper, lower = angle(cos_upper, sin_upper), angle(cos_lower, sin_lower)
    return [upper, lower - upper], obs["velocity"]


def cartpole(obs: dict[str, Any]) -> State:
    cart, cos, sin = obs["position"]
    return [cart, angle(cos, sin)], obs["velocity"]


def all_but_x(obs: dict[str, Any]) -> State:
    return [0.0, *obs["position"]], obs["velocity"]


def whole(obs: dict[str, Any]) -> State:
    return obs["position"], obs["velocity"]


SUITE_STATES: dict[str, Callable[[dict[str, Any]], State]] = {
    "acrobot/swingup": acrobot,
    "ball_in_cup/catch": whole,
    "cartpole/balance": cartpole,
    "cartpole/swingup": cartpole,
    "cheetah/run": all_but_x,
    "hopper/hop": all_but_x,
    "humanoid/run_pure_state": whole,
    "pendulum/swingup": lambda obs: ([angle(*obs["orientation"])], obs["velocity"]),
    "point_mass/easy": whole,
    "walker/run": walker,
    "walker/walk": walker,
}


@pytest.mark.parametrize("task", SUITE_STATES)
def test_dm_control_follows_from_the_same_state(task: str) -> None:
    env_id = f"dm_control/{task}"
    obs = {name: entry[0] for name, entry in pool(env_id, [5]).reset()[0].items()}
    theirs, ours = (make_engine(env_id, 1, name) for name in ("gymnasium", "envpool"))  # type: ignore[arg-type]
    theirs.reset([0])
    ours.reset([5])
    physics = theirs.envs[0].unwrapped._env.physics  # type: ignore[attr-defined]
    with physics.reset_context():
        physics.data.qpos[:], physics.data.qvel[:] = SUITE_STATES[task](obs)
    assert_same_steps(theirs, ours, 20, rtol=1e-6)


def first_and_later(env_id: str, name: Any, resets: int, steps: int) -> tuple[Array, Array, Array]:
    """Observations after a reset, observations after some random actions, and the rewards on the way added up."""
    vector, count = make_engine(env_id, 4, name), 0
    vector.reset([0, 1, 2, 3])
    draw, first, later, paid = np.random.default_rng(0), [], [], []
    while count < resets:
        first.append(vector.reset_arrays(np.ones(4, np.bool_)))  # type: ignore[attr-defined]
        rows = [vector.step(drawn(draw, vector)) for _ in range(steps)]
        later.append(rows[-1].next_obs.numpy())
        paid.append(np.sum([row.rewards.numpy() for row in rows], axis=0)[:, None])
        count += 4
    vector.close()
    return np.concatenate(first), np.concatenate(later), np.concatenate(paid)


def assert_same_distributions(env_id: str, resets: int = 100, steps: int = 10) -> None:
    """Kolmogorov-Smirnov in each dimension, at a level that a thousandth of all tasks would miss by chance."""
    theirs = first_and_later(env_id, "gymnasium", resets, steps)
    for expected, found in zip(theirs, first_and_later(env_id, "envpool", resets, steps), strict=True):
        # rounding: a dimension that is all but constant tells nothing
        pairs = [(a, b) for a, b in zip(expected.T.round(5), found.T.round(5), strict=True) if np.ptp([a, b]) > 1e-4]
        p_values = [ks_2samp(a, b, method="asymp").pvalue for a, b in pairs]
        assert min(p_values, default=1.0) * len(p_values) > 1e-3 or not pairs


@pytest.mark.parametrize("env_id", ["Pusher-v5", "dm_control/finger/spin", "dm_control/reacher/hard"])
def test_what_is_seen_and_paid_is_distributed_alike(env_id: str) -> None:
    assert_same_distributions(env_id)


WITHOUT_STATES = [env_id for env_id in SUITE if env_id.removeprefix("dm_control/") not in SUITE_STATES]


@pytest.mark.slow
@pytest.mark.parametrize("env_id", [env_id for env_id in WITHOUT_STATES if not env_id.endswith("/escape")])
def test_the_other_tasks_are_distributed_alike(env_id: str) -> None:
    """All but quadruped/escape, which dm_control cannot start without a display."""
    assert_same_distributions(env_id)


@pytest.mark.parametrize("task", ["two_poles", "three_poles"])
def test_the_comparison_sees_that_other_poles_start_elsewhere(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "IN_NAME_ONLY", ())
    with pytest.raises(AssertionError):
        assert_same_distributions(f"dm_control/cartpole/{task}")


# --- Atari --------------------------------------------------------------------------------------------------------


def test_a_game_of_atari_is_that_of_gymnasium_bit_for_bit_also_when_a_new_one_begins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(engine, "IDLE_FRAMES", 1)  # else they are drawn at random, and not alike
    envs = make_engine(Task("Atari/Breakout-v5", {"sticky": 0.0}), 2, "envpool")
    raw = factory(Task("ALE/Breakout-v5", {"frameskip": 1, "repeat_action_probability": 0.0}))()
    direct = StackedFrames(AtariPreprocessing(raw.unwrapped, noop_max=1), 4)
    envs.reset([0, 1])
    shown, draw, games = direct.reset(seed=0)[0], np.random.default_rng(0), 0
    assert envs.observation.frames == (4,)
    while games < 2:
        np.testing.assert_array_equal(envs.obs[1].view(4, 84, 84), shown)
        action = int(draw.integers(4))
        step = envs.step(torch.full((2, 1), action))
        shown, reward, terminated, *_ = direct.step(action)
        np.testing.assert_array_equal(step.next_obs[1].view(4, 84, 84), shown)
        assert (float(step.rewards[1]), bool(step.terminated[1])) == (reward, terminated)
        assert not step.truncated.any()
        if terminated:
            games, (shown, _) = games + 1, direct.reset()
    played = envs.take_episodes()
    assert [episode.info["lives"] for episode in played] == [0] * 4


def test_with_life_loss_a_game_goes_on_with_the_next_life_and_evaluations_play_it_whole() -> None:
    task = Task("Atari/Breakout-v5", {"sticky": 0.0, "life_loss": True, "clip_rewards": True})
    envs = make_engine(task, 1, "envpool")
    envs.reset([0])
    draw, lives = np.random.default_rng(0), list[float]()
    while len(lives) < 6:
        step = envs.step(torch.from_numpy(draw.integers(4, size=(1, 1))))
        assert step.rewards in (0, 1)
        lives += [episode.info["lives"] for episode in envs.take_episodes()]
    assert lives == [4, 3, 2, 1, 0, 4]
    assert envs.observation.frames == (), "a life begins with frames of the one before, so that stacks are kept whole"
    assert as_evaluated(task) == Task("Atari/Breakout-v5", {"sticky": 0.0})
    evaluator = Evaluator(task, 1, 0, "envpool")
    (episode,) = evaluator(lambda obs: torch.from_numpy(draw.integers(4, size=(1, 1)))).infos
    assert episode["lives"] == 0
