"""A checkpoint and its base, read; and a graft that can be written. (Edge.)"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from mtpfix.bulk import Tell
from mtpfix.checkpoint.access import Access
from mtpfix.checkpoint.hub import Repository
from mtpfix.checkpoint.opening import naming, opened
from mtpfix.checkpoint.reading import read_checkpoint
from mtpfix.checkpoint.recorded import Recorder
from mtpfix.frozen import dataclass
from mtpfix.grafting.plan import GraftPlan, Read
from mtpfix.grafting.write import write
from mtpfix.model import Source
from mtpfix.store.states import UndoRecord


@dataclass(frozen=True, slots=True)
class Ready:
    """A planned graft and what it was planned with."""

    plan: GraftPlan
    own: Read
    base: Read
    repository: Repository | None

    def write(self, tell: Tell | None = None) -> UndoRecord | None:
        """Carry it out, all or nothing; None where there is nothing to do. `tell` hears of every byte written.

        Raises RefusedError where the plan has a refusal.
        """
        if self.plan.layout is None:
            return None
        self.plan.require()
        theirs, mine = self.base.held, self.own.held
        needed = {row.shard for row in self.plan.origins}
        needed |= {row.widening.scales[0] for row in self.plan.origins if row.widening}
        fronts = {shard: (theirs.front(shard), theirs.shards[shard].size) for shard in needed}
        touched = {shard: mine.front(shard) for shard in (*self.plan.rewrites, *self.plan.removed)}
        return write(self.plan, fronts, touched, self.repository, tell)


@contextmanager
def from_base(here: Source, base: Source, access: Access) -> Iterator[tuple[Read, Read, Repository | None]]:
    """A checkpoint and its base, read; a base on the Hub stays open. Raises UnreadableError."""
    with opened(here, access) as (source, files):
        own = _read(here.id, source, Recorder(files))
    with opened(base, access) as (source, files):
        other = _read(base.id, source, Recorder(files))
        repository = files if isinstance(files, Repository) else None
        if repository:
            repository.keep()
        yield own, other, repository


def _read(given: str, source: Source, recorder: Recorder) -> Read:
    with naming(given):
        checkpoint = read_checkpoint(source, recorder)
    return Read(checkpoint, recorder.held())
