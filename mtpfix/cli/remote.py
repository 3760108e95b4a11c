"""Options for repositories on the Hub, the progress of reading them, and what it cost."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

import click

from mtpfix.checkpoint.access import Access, Traffic
from mtpfix.cli.terminal import Line, talk, telling
from mtpfix.frozen import dataclass, field
from mtpfix.tokens import learn, masked

F = TypeVar("F", bound=Callable[..., Any])
_FIRST = 1.0  # seconds until progress is told
_SEVERAL = 5  # files


def _learned(_ctx: click.Context, _param: click.Parameter, value: str | None) -> str | None:
    """The token, which is in no output from now on: not in what is said of the other options either."""
    learn(value or "")
    return value


_OPTIONS = (
    click.option("--revision", metavar="REV", help="Branch, tag, commit or refs/pr/N of a repository on the Hub."),
    click.option(
        "--token",
        metavar="TOKEN",
        is_eager=True,
        callback=_learned,
        help="Token for the Hub. Default: HF_TOKEN, or the login of `hf auth login`.",
    ),
    click.option("--stats", is_flag=True, help="Say on stderr how many requests and bytes the Hub was asked for."),
)


@dataclass(frozen=True, slots=True)
class Remote:
    """How the Hub is asked, and whether to tell what it cost."""

    access: Access = field(default_factory=Access)
    stats: bool = False

    @contextmanager
    def watched(self, sources: Collection[str] = ()) -> Iterator[Access]:
        """Tell the progress of what is read meanwhile, and at the end what it cost.

        sources  what is read; of folders alone there is nothing to tell, and no thread that would
        """
        # The client would ask the Hub once a day how to tell it what program it runs in.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        try:
            local = bool(sources) and all(map(os.path.isdir, sources))
            with ExitStack() as stack:
                if not local:
                    stack.enter_context(_masked_logs())
                    stack.enter_context(telling(lambda: _line(self.access.traffic), _FIRST))
                yield self.access
        finally:
            self.tell()

    def tell(self) -> None:
        """What it has cost so far, if that was asked for."""
        if self.stats:
            traffic = self.access.traffic
            talk(f"{_counted(traffic.requests, 'request')}, {_counted(traffic.received, 'byte')} received")


@contextmanager
def _masked_logs() -> Iterator[None]:
    """What the client logs, without secrets: warnings with what the Hub sent, and where HF_DEBUG or HF_HUB_VERBOSITY
    asks for it addresses and tracebacks too."""
    import logging

    usual, words = logging.getLogRecordFactory(), logging.Formatter()

    def made(*args: Any, **values: Any) -> logging.LogRecord:
        record = usual(*args, **values)
        record.msg, record.args = masked(record.getMessage()), ()
        if record.exc_info:
            record.exc_text = masked(words.formatException(record.exc_info))
        if record.stack_info:
            record.stack_info = masked(record.stack_info)
        return record

    logging.setLogRecordFactory(made)
    try:
        yield
    finally:
        logging.setLogRecordFactory(usual)


def options(command: F) -> F:
    """`--revision`, `--token` and `--stats`; the command gets them as one value, `remote`."""

    @wraps(command)
    def merged(*args: Any, revision: str | None, token: str | None, stats: bool, **values: Any) -> Any:
        return command(*args, remote=Remote(Access(revision, token, forks=True), stats), **values)

    wrapped: Callable[..., Any] = merged
    for option in reversed(_OPTIONS):
        wrapped = option(wrapped)
    return cast(F, wrapped)


def _line(traffic: Traffic) -> Line | None:
    return (_progress(traffic), *_share(traffic)) if traffic.busy else None


def _progress(traffic: Traffic) -> str:
    if traffic.waiting:
        return f"Waiting {max(1, round(traffic.waiting))} s for the Hub ..."
    if traffic.listed:
        return f"Scanned {traffic.scanned:,} of {traffic.listed:,} repositories, {_size(traffic.received)} ..."
    if traffic.talking or not traffic.wanted:
        return "Asking the Hub ..."
    return f"Reading from the Hub: {traffic.files} of {_counted(traffic.wanted, 'file')}, {_size(traffic.received)} ..."


def _share(traffic: Traffic) -> tuple[int, int]:
    """How much is done, of how much; 0 where that is not known: the first files say what else there is to read."""
    if traffic.listed and not traffic.waiting:
        return traffic.scanned, traffic.listed
    return (0, 0) if traffic.waiting or traffic.wanted < _SEVERAL else (traffic.files, traffic.wanted)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
