"""A run's metrics to a place of your own: a class with `log` and `close`, made for each run."""

import csv

import minerva


class CsvLogger:
    """Writes the evaluated returns to a table in the run's folder."""

    def __init__(self, run: minerva.LoggedRun) -> None:
        self.file = open(run.folder / "returns.csv", "a", newline="")
        self.rows = csv.writer(self.file)

    def log(self, step, metrics):
        """Write a row of metrics, if it has an evaluation."""
        if "eval/return_mean" in metrics:
            self.rows.writerow([step, metrics["eval/return_mean"]])

    def close(self):
        """Close the file: the run is finished, stopped or failed."""
        self.file.close()


if __name__ == "__main__":
    settings = {"loggers": [CsvLogger], "eval_episodes": 3, "eval_every": 2_048, "compile": "off"}
    result = minerva.train("ppo", "Pendulum-v1", total_steps=4_096, settings=settings)
    table = (result.folder / "returns.csv").read_text()
    print(table)
    assert len(table.splitlines()) == 3  # before training, and after each half
