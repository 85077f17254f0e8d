"""The Celery application: one task, whose only argument is the id of a run.

Celery needs no result backend, and knows nothing about jobs. A message may be lost, delivered twice, or
delivered after the visibility timeout: the claim in the store decides who executes the job.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from celery import Celery
from celery.concurrency.thread import TaskPool

from switchgear._stores.redis.clients import parsed
from switchgear._stores.url import REDIS_URLS
from switchgear._text.redact import redact

TASK = "switchgear.execute"
QUEUE = "switchgear"
MAX_LABELS = 4


class Broker(NamedTuple):
    """The broker that transports ids of runs."""

    url: str
    """Empty: the store cannot be a broker."""
    queue: str = QUEUE
    """The queue of jobs without labels, named after the namespace of the store to keep namespaces separate."""


def broker_of_store(url: str) -> Broker:
    """The Redis server of a store as a broker, without the options that only the store understands.

    >>> broker_of_store("valkey://redis.example:6379/2?namespace=team-a")
    Broker(url='redis://redis.example:6379/2', queue='team-a')
    """
    if not url.startswith(REDIS_URLS):
        return Broker("")
    address = parsed(url)
    queue = address.namespace or QUEUE
    parts = urlsplit(address.url)
    if address.cluster or parts.scheme == "unix":
        return Broker("", queue)
    options = dict(parse_qsl(parts.query))
    kept = {key: value for key, value in options.items() if key.startswith("ssl_")}
    path = f"/{options['db']}" if "db" in options else parts.path
    return Broker(urlunsplit((parts.scheme, parts.netloc, path, urlencode(kept), "")), queue)


def queue_of(labels: Sequence[str], queue: str = QUEUE) -> str:
    """The queue of jobs that need exactly these labels.

    >>> queue_of(()), queue_of(("gpu", "big"))
    ('switchgear', 'switchgear.big+gpu')
    """
    return f"{queue}.{'+'.join(sorted(labels))}" if labels else queue


def queues_of(labels: Sequence[str], queue: str = QUEUE) -> list[str]:
    """The queues that a worker with these labels consumes: those of every subset of its labels.

    >>> queues_of(("gpu",))
    ['switchgear', 'switchgear.gpu']
    """
    chosen = sorted(set(labels))
    if joined := [each for each in chosen if "+" in each]:
        raise ValueError(f"{joined[0]!r} contains '+', which joins labels: separate them by commas")
    if len(chosen) > MAX_LABELS:
        raise ValueError(f"{len(chosen)} labels are given: a worker can have at most {MAX_LABELS}")
    sizes = range(len(chosen) + 1)
    return [queue_of(each, queue) for size in sizes for each in combinations(chosen, size)]


def application(broker: Broker, execute: Callable[[str], str] | None = None) -> Celery:
    """The application for a broker; `execute` is what a worker does with the id of a run."""
    app = Celery("switchgear", broker=broker.url, set_as_current=False)
    app.conf.update(
        task_ignore_result=True,
        task_default_queue=broker.queue,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_pool=f"{__name__}:{Threads.__name__}",
        worker_prefetch_multiplier=1,
        worker_hijack_root_logger=False,
        broker_connection_retry_on_startup=True,
        # RabbitMQ closes the channel of a message that is not acknowledged within half an hour.
        broker_channel_error_retry=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        accept_content=["json"],
        task_serializer="json",
    )
    if execute is not None:
        app.task(execute, name=TASK)
    return app


class Threads(TaskPool):  # type: ignore[misc]  # Celery has no types
    """Celery's thread pool, resizable by its autoscaler. Idle threads are cheap, so they are kept."""

    def grow(self, count: int) -> None:
        self.limit += count
        self.executor._max_workers = self.limit  # noqa: SLF001  read whenever a task is submitted

    def shrink(self, count: int) -> None:
        self.grow(-count)


class Publisher:
    """Sends ids of runs. Thread-safe."""

    def __init__(self, broker: Broker) -> None:
        self._app, self._queue = application(broker), broker.queue
        self.label = redact(broker.url)
        # The batch itself retries, and Ctrl-C must not wait for the broker.
        self._app.conf.broker_transport_options = {"max_retries": 1, "interval_start": 0}

    def __call__(self, run: str, labels: tuple[str, ...]) -> None:
        """Send the id to the queue of these labels. Raises the errors of the broker's client."""
        queue = queue_of(labels, self._queue)
        self._app.send_task(TASK, (run,), queue=queue, retry=False, ignore_result=True)

    def control(self) -> Any:
        return self._app.control
