"""Hyperparameter search: Ray Tune runs the trials, Optuna proposes them, ASHA stops those that fall behind."""

import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from minerva.compute.python import PYTHON
from minerva.envs.engines.registry import EngineName
from minerva.errors import TrainingError
from minerva.lab.benchmark.local import begin, end
from minerva.lab.benchmark.tasks import command_line_options
from minerva.lab.cluster.engine import ray, wait_until_released
from minerva.lab.cluster.space import Dimension
from minerva.runs.metrics import read_rows
from minerva.trainers.registry import config_class

METRIC = "eval/return_mean"
POLL = 0.5
FAILURES = 3
"""Times that a failed trial is resumed from its checkpoint."""


class Best(NamedTuple):
    """Best trial of a search: hyperparameters, mean return over seeds, step, and the number of trials."""

    hyperparameters: dict[str, Any]
    mean: float
    step: int
    trials: int


@dataclass(frozen=True)
class Search:
    """A hyperparameter search: algorithm, environment, seeds, search space and budget."""

    algo: str
    env: str
    seeds: tuple[int, ...]
    total_steps: int
    preset: str
    dimensions: tuple[Dimension, ...]
    trials: int
    evaluations: int
    out: Path
    device: str = "cpu"
    engine: EngineName = "auto"

    def command(self, drawn: dict[str, Any], folder: Path) -> list[str]:
        """Return a trial's command: it trains all seeds, and resumes them if it is run again."""
        named = {"env": self.env, "seeds": ",".join(map(str, self.seeds)), "total-steps": self.total_steps}
        named |= {"eval-every": max(self.total_steps // self.evaluations, 1), "preset": self.preset}
        named |= {"device": self.device, "engine": self.engine, "run-dir": folder}
        words = [word for name, value in named.items() for word in (f"--{name}", str(value))]
        options = command_line_options(self.algo, self.values(drawn))
        return [*PYTHON, "-m", "minerva", "train", self.algo, *words, *options]

    def values(self, drawn: dict[str, Any]) -> dict[str, Any]:
        """Return the hyperparameters for samples of the dimensions."""
        return {each.name: each.value(drawn[each.name]) for each in self.dimensions}

    def run(self, address: str | None, jobs: int | None) -> Best:
        """Run the search, or resume one that was stopped, and return the best trial."""
        os.environ.setdefault("TUNE_DISABLE_SIGINT_HANDLER", "1")  # Ctrl-C stops the whole search
        ray(address)
        from ray import tune

        trial = tune.with_resources(tune.with_parameters(run_trial, search=self), self._resources())
        path = self.out / "search"
        if tune.Tuner.can_restore(str(path)):
            tuner = tune.Tuner.restore(str(path), trial, resume_unfinished=True, restart_errored=True)
        else:
            tuner = self._tuner(tune, trial, jobs)
        results = tuner.fit()
        metrics_of_all = [results[n].metrics or {} for n in range(len(results))]
        ended = [metrics for metrics in metrics_of_all if METRIC in metrics]
        if not ended:
            raise TrainingError(f"No trial reached an evaluation: see the logs in {self.out / 'trials'}.")
        furthest = max(metrics["step"] for metrics in ended)
        best = max((metrics for metrics in ended if metrics["step"] == furthest), key=lambda metrics: metrics[METRIC])
        return Best(self.values(best["config"]), best[METRIC], furthest, len(ended))

    def _tuner(self, tune: Any, trial: Any, jobs: int | None) -> Any:
        from ray.tune.schedulers import ASHAScheduler
        from ray.tune.search.optuna import OptunaSearch

        asha = ASHAScheduler(time_attr="step", max_t=self.total_steps, grace_period=max(self.total_steps // 8, 1))
        return tune.Tuner(
            trial,
            param_space={each.name: ray_distribution(tune, each) for each in self.dimensions},
            tune_config=tune.TuneConfig(
                metric=METRIC,
                mode="max",
                scheduler=asha,
                search_alg=OptunaSearch(seed=self.seeds[0]),
                num_samples=self.trials,
                max_concurrent_trials=jobs,
            ),
            run_config=tune.RunConfig(
                name="search",
                storage_path=str(self.out),
                verbose=1,
                failure_config=tune.FailureConfig(max_failures=FAILURES),
            ),
        )

    def _resources(self) -> dict[str, float]:
        return {"cpu": 1, **({"gpu": 1} if self.device != "cpu" else {})}


def ray_distribution(tune: Any, dimension: Dimension) -> Any:
    """Return Ray Tune's distribution for a dimension."""
    if dimension.choices:
        return tune.choice(list(dimension.choices))
    if dimension.whole:
        draw = tune.lograndint if dimension.log else tune.randint
        return draw(int(dimension.low), int(dimension.high) + 1)
    return (tune.loguniform if dimension.log else tune.uniform)(dimension.low, dimension.high)


def run_trial(drawn: dict[str, Any], search: Search) -> None:
    """Train on a node, and report the mean over seeds of every evaluation."""
    from ray import tune

    folder = search.out / "trials" / tune.get_context().get_trial_id()
    log = folder.with_suffix(".log")
    wait_until_released([folder / f"seed{seed}" for seed in search.seeds])
    process = begin(search.command(drawn, folder), log, threads=1)
    reported = 0
    try:
        running = True
        while running:
            running = process.poll() is None  # polled before reading, so that no evaluation is missed
            for step, mean in evaluations(folder, search.seeds):
                if step > reported:
                    reported = step
                    tune.report({METRIC: mean, "step": step})
            time.sleep(POLL * running)
    finally:
        end([process])
    if process.returncode:
        raise TrainingError(f"The trial ended with exit code {process.returncode}: see {log}.")


def evaluations(folder: Path, seeds: Sequence[int]) -> Iterator[tuple[int, float]]:
    """Yield step and mean return over seeds of each evaluation that all seeds have finished."""
    files = [folder / f"seed{seed}" / "eval" / "evaluations.jsonl" for seed in seeds]
    if not all(file.is_file() for file in files):
        return
    for rows in zip(*(read_rows(file) for file in files), strict=False):
        yield rows[0]["step"], statistics.fmean(statistics.fmean(row["returns"]) for row in rows)


def preset_file(search: Search, best: Best, base: dict[str, tuple[Any, str]], source: str) -> str:
    """Return the text of a preset: the settings found, over those of the base preset, each with its source."""
    before = {name: value for name, (value, _) in base.items()}
    values = config_class(search.algo).overridden(before, best.hyperparameters)
    found = {
        name for name in values if name in best.hyperparameters or name not in before or values[name] != before[name]
    }
    settings = {name: (value, source) if name in found else base[name] for name, value in values.items()}
    texts = list(dict.fromkeys(text for _, text in settings.values()))
    lines = [f"# minerva train {search.algo} --env {search.env} --preset <this file>", f'algo = "{search.algo}"', ""]
    lines += ["[sources]", *(f"source_{n} = {json.dumps(text)}" for n, text in enumerate(texts)), ""]
    lines.append(f"[{json.dumps(search.env)}]")
    for name, (value, text) in settings.items():
        shown = "inf" if value == float("inf") else json.dumps("none" if value is None else value)
        lines.append(f'{name} = [{shown}, "source_{texts.index(text)}"]')
    return "\n".join(lines) + "\n"
