"""Optuna's RDBStorage on sqlite:///. It asks for no journal mode: the file is in WAL mode before. 5 s for a lock."""

import contextlib
import sqlite3

import optuna

DATABASES = ["optuna.db"]
STUDY = {"storage": "sqlite:///optuna.db", "study_name": "study"}
optuna.logging.set_verbosity(optuna.logging.WARNING)


def prepare():
    """A study in a file in WAL mode."""
    with contextlib.closing(sqlite3.connect("optuna.db")) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    optuna.create_study(**STUDY)


def worker(number, acknowledged):
    """A trial: asks for it, takes two parameters, reports a step, tells the value."""
    study = optuna.load_study(**STUDY, sampler=optuna.samplers.RandomSampler(seed=number))

    def operate():
        trial = study.ask()
        value = trial.suggest_float("x", -10, 10) ** 2 + trial.suggest_int("y", 0, 100)
        trial.report(value, step=0)
        study.tell(trial, value)
        acknowledged.append([trial.number, value])

    return operate


def missing(acknowledged):
    """Each trial that was told is complete and has its value."""
    study = optuna.load_study(**STUDY)
    values = {trial.number: trial.value for trial in study.get_trials() if trial.state.is_finished()}
    lost = [number for number, value in acknowledged if values.get(number) != value]
    if len({number for number, _ in acknowledged}) != len(acknowledged):
        return "two workers had a trial of one number"
    return f"{len(lost)} of {len(acknowledged)} trials are missing" if lost else ""
