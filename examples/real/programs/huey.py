"""huey's SqliteHuey: a queue of tasks. It asks for WAL by itself, and waits 5 s for a lock."""

from huey import SqliteHuey


DATABASES = ["huey.db"]
tasks = SqliteHuey(filename="huey.db")


@tasks.task()
def add(a, b):
    """Any task."""
    return a + b


def prepare():
    """The constructor has made the tables."""


def worker(number, acknowledged):
    """Enqueues a task, then takes the first of the queue, runs it and stores what it gave."""
    sent = 0

    def operate():
        nonlocal sent
        acknowledged.append(["sent", add(number, sent).id, number + sent])
        sent += 1
        if task := tasks.dequeue():
            acknowledged.append(["taken", task.id, 0])
            tasks.execute(task)
            acknowledged.append(["run", task.id, 0])

    return operate


def missing(acknowledged):
    """Each task that was sent waits or was taken, by one worker, and each that was run has its result."""
    sent = {id: sum for what, id, sum in acknowledged if what == "sent"}
    taken = [id for what, id, _ in acknowledged if what == "taken"]
    run = [id for what, id, _ in acknowledged if what == "run"]
    waiting = {task.id for task in tasks.pending()}
    if len(taken) != len(set(taken)):
        return "a task was taken twice"
    if lost := set(sent) - set(taken) - waiting:
        return f"{len(lost)} tasks are neither in the queue nor were they taken"
    if wrong := [id for id in run if tasks.result(id) != sent.get(id, tasks.result(id))]:
        return f"{len(wrong)} tasks were run and have not their result"
    return ""
