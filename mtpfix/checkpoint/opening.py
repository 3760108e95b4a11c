"""A source of any kind, opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.local import Folder
from mtpfix.checkpoint.reading import Files, read_checkpoint
from mtpfix.checkpoint.second import Second
from mtpfix.errors import UnreadableError
from mtpfix.model import Checkpoint, Source


def read(source: Source, access: Access, *, keep_index: bool = False, second: Second | None = None) -> Checkpoint:
    """The checkpoint of a source. Raises UnreadableError.

    keep_index  the index is kept though it is in step, unless the source is on the Hub
    second      the other process that reads some of it, where `access` lets one; None: one that ends with the reading
    """
    if source.kind == "hub":
        from mtpfix.checkpoint.hub import read_hub

        return read_hub(source, access)
    forks = access.forks and source.kind == "local"
    with opened(source, access) as (found, files), nullcontext(second) if second else Second() as reader:
        return read_checkpoint(found, files, keep_index=keep_index, second=reader if forks else None)


@contextmanager
def opened(source: Source, access: Access) -> Iterator[tuple[Source, Files]]:
    """The files of a source, headers to the byte, and the source with the revision that they belong to."""
    if source.kind == "hub":
        from mtpfix.checkpoint.hub import Repository

        with Repository(source, access, exact=True) as repository:
            yield repository.source, repository
            repository.keep()
    elif source.kind == "bundle":
        from mtpfix.checkpoint.bundle import Bundle

        bundle = Bundle(source.id)
        yield bundle.source, bundle
    else:
        yield source, Folder(source.id)


@contextmanager
def naming(given: str) -> Iterator[None]:
    """Errors about a file of a checkpoint name the checkpoint too, as it was given: `model/config.json: line 3 ...`."""
    try:
        yield
    except UnreadableError as error:
        if os.path.isdir(given):
            error.within(given.rstrip("/"), "/")
        else:
            error.within(given, ": ")
        raise
