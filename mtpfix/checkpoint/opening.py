"""A source of any kind, opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.local import Folder
from mtpfix.checkpoint.reading import Files, Meanwhile, read_checkpoint
from mtpfix.errors import UnreadableError
from mtpfix.model import Checkpoint, Source


def read(
    source: Source, access: Access, *, keep_index: bool = False, meanwhile: Meanwhile = lambda: None
) -> Checkpoint:
    """The checkpoint of a source. Raises UnreadableError.

    keep_index  the index is kept though it is in step, unless the source is on the Hub
    meanwhile   done once another process reads files, too, where one does
    """
    if source.kind == "hub":
        from mtpfix.checkpoint.hub import read_hub

        return read_hub(source, access)
    with opened(source, access) as (found, files):
        forks = access.forks and source.kind == "local"
        return read_checkpoint(found, files, keep_index=keep_index, meanwhile=meanwhile if forks else None)


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
