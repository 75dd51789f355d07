"""django-tasks-db: tasks of Django in the ORM's database, and the worker that it ships. WAL mode by OPTIONS."""

import django
from django.conf import settings

DATABASES = ["tasks.db"]

settings.configure(
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": "tasks.db",
            "OPTIONS": {"init_command": "PRAGMA journal_mode=WAL"},
        }
    },
    INSTALLED_APPS=["django_tasks", "django_tasks_db"],
    TASKS={"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}},
    USE_TZ=True,
)
django.setup()

from django.core.management import call_command  # noqa: E402 (Django wants its settings before)
from django.db import connection  # noqa: E402
from django_tasks import task  # noqa: E402
from django_tasks_db.management.commands.db_worker import Worker  # noqa: E402
from django_tasks_db.models import DBTaskResult  # noqa: E402


@task()
def add(a, b):
    """Any task."""
    return a + b


def prepare():
    """The tables."""
    call_command("migrate", verbosity=0)


def worker(number, acknowledged):
    """Enqueues a task, then lets the worker take one and run it."""
    connection.ensure_connection()
    sent = 0

    def operate():
        nonlocal sent
        acknowledged.append([str(add.enqueue(number, sent).id), number + sent])
        sent += 1
        Worker(
            queue_names=["default"],
            excluded_queue_names=[],
            backend_name="default",
            worker_id=f"{number}-{sent}",
            interval=0,
            batch=True,
            startup_delay=False,
            max_tasks=1,
        ).run()

    return operate


def missing(acknowledged):
    """Each task that was sent is there; none was run by two workers, and those that were run have their result."""
    rows = DBTaskResult.objects.values_list("id", "status", "return_value", "worker_ids")
    tasks = {str(id): rest for id, *rest in rows}
    if lost := [id for id, _ in acknowledged if id not in tasks]:
        return f"{len(lost)} of {len(acknowledged)} tasks are missing"
    if any(len(workers) > 1 for _, _, workers in tasks.values()):
        return "a task was run twice"
    wrong = [id for id, sum in acknowledged if tasks[id][0] == "SUCCESSFUL" and tasks[id][1] != sum]
    return f"{len(wrong)} tasks have not their result" if wrong else ""
