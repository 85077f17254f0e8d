"""The Celery application: one task, whose only argument is the id of a run.

Celery needs no result backend and no knowledge of jobs. A message that is lost, delivered twice or
delivered after the visibility timeout changes nothing: the claim in the store decides.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any

from celery import Celery

TASK = "switchgear.execute"
QUEUE = "switchgear"
MOST_LABELS = 4


def queue_of(labels: Sequence[str]) -> str:
    """The queue of jobs that need exactly these labels.

    >>> queue_of(()), queue_of(("gpu", "big"))
    ('switchgear', 'switchgear.big+gpu')
    """
    return f"{QUEUE}.{'+'.join(sorted(labels))}" if labels else QUEUE


def queues_of(labels: Sequence[str]) -> list[str]:
    """The queues that a worker with these labels consumes: every job whose needs it meets.

    >>> queues_of(("gpu",))
    ['switchgear', 'switchgear.gpu']
    """
    chosen = sorted(set(labels))
    if len(chosen) > MOST_LABELS:
        raise ValueError(f"{len(chosen)} labels are given: a worker can have at most {MOST_LABELS}")
    sizes = range(len(chosen) + 1)
    return [queue_of(each) for size in sizes for each in combinations(chosen, size)]


def application(broker: str, execute: Callable[[str], str] | None = None) -> Celery:
    """The application over a broker; a worker passes what it does with the id of a run."""
    made = Celery("switchgear", broker=broker, set_as_current=False)
    made.conf.update(
        task_ignore_result=True,
        task_default_queue=QUEUE,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        accept_content=["json"],
        task_serializer="json",
    )
    if execute is not None:
        made.task(execute, name=TASK)
    return made


class Publisher:
    """Sends ids of runs. Thread-safe."""

    def __init__(self, broker: str) -> None:
        self._app = application(broker)

    def __call__(self, run: str, labels: tuple[str, ...]) -> None:
        """Send the id to the queue of these labels. Raises what the broker's client raises."""
        self._app.send_task(TASK, (run,), queue=queue_of(labels), retry=False, ignore_result=True)

    def control(self) -> Any:
        return self._app.control
