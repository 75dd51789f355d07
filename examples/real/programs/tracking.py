"""MLflow's tracking on sqlite:///. It asks for no journal mode: the file is in WAL mode before. 20 s for a lock."""

import contextlib
import logging
import sqlite3

import mlflow

DATABASES = ["mlflow.db"]
mlflow.set_tracking_uri("sqlite:///mlflow.db")
logging.disable(logging.ERROR)  # each refusal with all its SQL


def prepare():
    """The tables, by all migrations, and an experiment; in a file in WAL mode."""
    with contextlib.closing(sqlite3.connect("mlflow.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    mlflow.create_experiment("experiment", artifact_location="artifacts")


def worker(number, acknowledged):
    """A run: starts it, logs two parameters and ten metrics, ends it."""
    mlflow.set_experiment("experiment")

    def operate():
        with mlflow.start_run() as run:
            mlflow.log_params({"depth": number, "width": 10})
            for step in range(5):
                mlflow.log_metrics({"loss": 1 / (step + 1), "score": step}, step=step)
        acknowledged.append(run.info.run_id)

    return operate


def missing(acknowledged):
    """Each run that was ended is there with what it has logged."""
    client = mlflow.MlflowClient()
    for id in acknowledged:
        run = client.get_run(id)
        history = client.get_metric_history(id, "loss")
        if (run.info.status, len(run.data.params), len(history)) != ("FINISHED", 2, 5):
            return f"run {id} is {run.info.status}, with {len(run.data.params)} parameters and {len(history)} losses"
    return ""
