"""Many repositories on a Dask cluster that is there already: the function of `scan`, run by its workers.

A look is a small value and a row is JSON, so that nothing else travels; what is done is kept here, not on the cluster.
A token travels only where it was given as an option; else the workers use their own login.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

import mtpfix
from mtpfix.checkpoint.access import Traffic
from mtpfix.errors import UnreadableError, UsageError
from mtpfix.frozen import replace
from mtpfix.hub.scan import Look, Row, failed

TIMEOUT = 15.0  # seconds until the scheduler has to answer
_AHEAD = 2  # repositories for each thread of the cluster, so that none waits for the next
_LOUD = ("distributed", "distributed.client", "distributed.core", "distributed.comm")
_INSTALL = "pip install 'mtpfix[dask]'"
_HERE = Traffic()  # a worker's: a wait that the Hub asks for holds for all that the worker does


def scan_on(address: str, repositories: Iterable[str], look: Look, *, jobs: int | None = None) -> Iterator[Row]:
    """A row for every repository, in the order in which the cluster is done, at most `jobs` at once.

    Raises UnreadableError where the cluster cannot be reached or is lost on the way, UsageError where it cannot do it.
    """
    client = _client(address)
    try:
        _require_same(client)
        yield from _rows(client, repositories, look, jobs)
    finally:
        client.close()


def _rows(client: Any, repositories: Iterable[str], look: Look, jobs: int | None) -> Iterator[Row]:
    from distributed import as_completed

    # The workers may know another Hub, which must not get this one's token.
    sent = replace(look, access=replace(look.access, endpoint=look.access.hub))
    names, run = iter(dict.fromkeys(repositories)), uuid.uuid4().hex
    known: dict[str, str] = {}
    done = as_completed(loop=client.loop)

    def submit(count: int) -> None:
        for name in islice(names, count):
            future = client.submit(_measured, sent, name, key=f"mtpfix-{run}-{len(known)}", pure=False)
            known[future.key] = name
            done.add(future)

    submit(jobs or _AHEAD * max(1, sum(client.nthreads().values())))
    for future in done:
        if future.status in ("lost", "pending"):  # the worker died with its answer: another one does it again
            done.add(future)
            continue
        yield _row(future, known[future.key], look.access.traffic)
        submit(1)


def _row(future: Any, name: str, traffic: Traffic) -> Row:
    if future.status == "finished":
        row: Row
        row, requests, received = future.result()
        traffic.add(requests=requests, received=received)
        return row
    if future.status == "error":
        what = f"the cluster gave it up: {type(future.exception()).__name__}"
        return failed(name, what, "look at the logs of its workers")
    raise UnreadableError("the cluster is gone", subject="--dask", hint="--state lets a scan go on where it stopped")


def _measured(look: Look, name: str) -> tuple[Row, int, int]:
    """On a worker: a row, and the requests and bytes that it took."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    traffic = Traffic(_HERE)
    row = replace(look, access=replace(look.access, traffic=traffic))(name)
    return row, traffic.requests, traffic.received


def _client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("a Dask cluster needs Dask here too", subject="--dask", hint=_INSTALL) from None
    for name in _LOUD:  # tracebacks of what ends as an error of ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    try:
        return Client(address, timeout=TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise UnreadableError(
            f"no Dask cluster answers there: {said}",
            subject="--dask",
            hint="give the scheduler's address, tcp://HOST:PORT",
        ) from None


def _version() -> str:
    return mtpfix.__version__


def _require_same(client: Any) -> None:
    """UsageError where a worker has no mtpfix, or another one."""
    try:
        versions = set(client.run(_version).values())
    except Exception as error:  # what a worker raises, an ImportError for example
        versions = {f"none ({type(error).__name__})"}
    if other := versions - {_version()}:
        raise UsageError(
            f"this is mtpfix {_version()}, and workers of the cluster have {', '.join(sorted(other))}",
            subject="--dask",
            hint=f"install the same on every worker: {_INSTALL}",
        )
