"""A text with the edits made so far: lists of entries change, and at the end stretches of the text are exchanged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

from mtpfix import late, patch
from mtpfix.errors import WriteError
from mtpfix.model import Edit
from mtpfix.splice.scan import KEY, end_of, scanned
from mtpfix.splice.style import BREAK, Miss, Style, has_break, indent_of

_INDEX = late.pattern(r"0|[1-9][0-9]{0,17}")
_ONE_BREAK = late.pattern(r"(?:\r\n|\n|\r)[ \t]*")
HINT = "The file is not the one that the patch was made for."


class Document:
    """A text, the containers of it that edits have reached, and the edits made so far."""

    def __init__(self, text: str, file: str) -> None:
        self.text, self.file = text, file
        self.scan = scanned(text, file)
        self.start, self.end, self.closes = self.scan.start, self.scan.end, self.scan.closes
        self.style = Style(text)
        self.containers: dict[int, _Container] = {}

    def edited(self, edit: Edit) -> Document:
        """The document with one more edit: this one, or a new one where the edit reaches into a new entry."""
        try:
            tokens = patch.tokens(edit.pointer)
            if not tokens:
                return self._replaced(edit)
            container = self._find(tokens[:-1])
            if container is None:
                return Document(self.render(), self.file).edited(edit)
            container.change(tokens[-1], edit)
        except (Miss, ValueError) as error:
            message = f"{edit.file}: cannot {edit.op} {edit.pointer or 'the whole document'}: {error}"
            raise WriteError(message, subject=edit.file, hint=HINT) from error
        return self

    def outermost(self) -> Object:
        """The object that the text is. Raises Miss where it is none."""
        found = self._container(self.start, None, "")
        if not isinstance(found, Object):
            raise Miss("the outermost value is no object")
        return found

    def render(self) -> str:
        """The text with all edits. What changed inside an entry that is gone has no effect."""
        exchanges = sorted(row for container in self.containers.values() for row in container.exchanges())
        parts: list[str] = []
        done = 0
        for start, end, new in exchanges:
            if start >= done:
                parts += (self.text[done:start], new)
                done = end
        return "".join((*parts, self.text[done:]))

    def stretch(self, path: Iterable[str]) -> tuple[int, int]:
        """Where the entry at a path starts and ends; of a path that leads nowhere, the last entry that is there."""
        found, place, parent = (self.start, self.end), self.start, None
        for step in path:
            try:
                parent = self._container(place, parent, "")
                index = parent.locate(step)
            except Miss:
                break
            if index is None:
                break
            found, place = (parent.starts[index], parent.ends[index]), parent.values[index]
        return found

    def _replaced(self, edit: Edit) -> Document:
        if edit.op == "remove":
            raise Miss("a file without a value is not JSON")
        broken = BREAK.search(self.text, self.start, self.end)
        value = self.style.dumps(edit.value, space=broken[0] if broken else "", unit=self.style.unit)
        return Document(self.text[: self.start] + value + self.text[self.end :], self.file)

    def _find(self, path: Iterable[str]) -> _Container | None:
        """The container at a path; None if the way leads into an entry that is new."""
        container = self._container(self.start, None, "")
        for step in path:
            index = container.locate(step)
            if index is None:
                return None
            container = self._container(container.values[index], container, container.space(index))
        return container

    def _container(self, place: int, parent: _Container | None, outer: str) -> _Container:
        kind = _KINDS.get(self.text[place])
        if kind is None:
            raise Miss("the pointer leads into a value that is neither an array nor an object")
        if place not in self.containers:
            self.containers[place] = kind(self, place, parent, outer)
        return self.containers[place]


class _Container:
    """An array or object of the text, split into its entries.

    starts, values, ends  where each entry, its value and its end are; the same for an array's first two
    fresh                 entries with another value: index -> its text
    moved                 whether entries were added or removed
    outer                 the white space before the entry of `parent` whose value this is
    """

    def __init__(self, document: Document, place: int, parent: _Container | None, outer: str) -> None:
        self.document, self.text = document, document.text
        self.open, self.close = place, document.closes[place]
        self.parent, self.outer = parent, outer
        self.starts, self.values, self.ends = document.scan.split(document.text, place)
        self.fresh: dict[int, str] = {}
        self.moved = False

    # What the subclasses know: their keys.

    def change(self, step: str, edit: Edit) -> None:
        """Applies an edit to the entry that `step` names."""
        raise NotImplementedError

    def locate(self, step: str) -> int | None:
        """The entry that `step` names; None if it is new."""
        raise NotImplementedError

    def sequence(self) -> Iterable[int | str]:
        """The entries in order: the index of an old one, the text of a new one."""
        raise NotImplementedError

    # White space.

    def lead(self) -> str:
        """What stands between the opening bracket and the first entry."""
        if self.starts:
            return self.text[self.open + 1 : self.starts[0]]
        inner = self.text[self.open + 1 : self.close]
        before = inner or self.outer
        if not has_break(before):
            return inner
        return self.document.style.line_break + indent_of(before) + self.unit()

    def tail(self) -> str:
        """What stands between the last entry and the closing bracket."""
        if self.starts:
            return self.text[self.ends[-1] : self.close]
        inner = self.text[self.open + 1 : self.close]
        if inner or not has_break(self.outer):
            return inner
        return self.document.style.line_break + indent_of(self.outer)

    def gap(self, index: int | None) -> str:
        """What stands between a new entry and the old one that follows it, or the end: a comma and white space."""
        count = len(self.starts)
        if count > 1:
            index = count - 1 if index is None else max(index, 1)
            return self.text[self.ends[index - 1] : self.starts[index]]
        lead = self.lead()
        return "," + lead if has_break(lead) else self.document.style.separators[0]

    def space(self, index: int | None) -> str:
        """The white space before an entry; before a new one, for None."""
        if index == 0 or len(self.starts) < 2:
            return self.lead()
        return self.gap(index).partition(",")[2]

    def unit(self) -> str:
        """One step of indentation: this container's, else the nearest one's around it, else the file's."""
        container: _Container | None = self
        while container is not None:
            if container.starts and has_break(lead := container.lead()) and has_break(tail := container.tail()):
                inner, outer = indent_of(lead), indent_of(tail)
                if inner.startswith(outer):
                    return inner[len(outer) :]
            container = container.parent
        return self.document.style.unit

    def emptied(self) -> str:
        """What is left between the brackets when the last entry goes."""
        lead, tail = self.lead(), self.tail()
        if not has_break(lead):
            return lead
        return "" if _ONE_BREAK.fullmatch(tail) else tail

    # Text.

    def write(self, value: Any, index: int | None) -> str:
        """The text of a value that takes the place of an old one, or of a new one."""
        space = self.space(index)
        if index is not None and self._is_inline(index):
            space = ""
        nested = isinstance(value, (list, dict)) and has_break(space)
        return self.document.style.dumps(value, space=space, unit=self.unit() if nested else "")

    def _is_inline(self, index: int) -> bool:
        """Whether an old value is an array or object with entries, all on one line."""
        old = self.text[self.values[index] : self.ends[index]]
        return old[0] in _KINDS and not has_break(old) and old[1:-1].strip() != ""

    def exchanges(self) -> Iterator[tuple[int, int, str]]:
        """The stretches of text to exchange: start, end, new text."""
        for index, new in self.fresh.items():
            yield self.values[index], self.ends[index], new
        if not self.moved:
            return
        last, later = self._untouched()
        added: list[str] = []
        for entry in later:
            if isinstance(entry, str):
                added.append(entry)
                continue
            if added or last is None or entry != last + 1:  # else they were neighbours before
                yield from self._between(last, entry, added)
            last, added = entry, []
        yield from self._between(last, None, added)

    def _untouched(self) -> tuple[int | None, Iterable[int | str]]:
        """The last of the old entries at the front that all are where they were, None for none; and all after it."""
        return None, self.sequence()

    def _between(self, last: int | None, entry: int | None, added: list[str]) -> Iterator[tuple[int, int, str]]:
        """What changes between two old entries that are neighbours now; None stands for a bracket."""
        gap = self.gap(entry)
        if last is not None:
            stop = self.ends[(len(self.ends) if entry is None else entry) - 1]
            if added or stop != self.ends[last]:
                yield self.ends[last], stop, "".join(gap + new for new in added)
        elif entry is not None:
            if added or entry:
                yield self.starts[0], self.starts[entry], "".join(new + gap for new in added)
        elif not added:
            yield self.open + 1, self.close, self.emptied()
        elif self.starts:
            yield self.starts[0], self.ends[-1], gap.join(added)
        else:
            yield self.open + 1, self.close, self.lead() + gap.join(added) + self.tail()


class _Array(_Container):
    """An array and its entries as they are now: indices of old ones, texts of new ones."""

    def __init__(self, document: Document, place: int, parent: _Container | None, outer: str) -> None:
        super().__init__(document, place, parent, outer)
        self.items: list[int | str] = list(range(len(self.starts)))

    def sequence(self) -> Iterable[int | str]:
        return self.items

    def _untouched(self) -> tuple[int | None, Iterable[int | str]]:
        count = len(self.starts)
        if count and self.items[:count] == list(range(count)):
            return count - 1, self.items[count:]
        return super()._untouched()

    def locate(self, step: str) -> int | None:
        item = self.items[self._index(step, len(self.items) - 1)]
        return item if isinstance(item, int) and item not in self.fresh else None

    def change(self, step: str, edit: Edit) -> None:
        count = len(self.items)
        if edit.op == "add":
            index = count if step == "-" else self._index(step, count)
            self.items.insert(index, self.write(edit.value, None))
            self.moved = True
        elif edit.op == "remove":
            item = self.items.pop(self._index(step, count - 1))
            self.moved = True
            if isinstance(item, int):
                self.fresh.pop(item, None)
        else:
            self._replace(self._index(step, count - 1), edit.value)

    def _replace(self, index: int, value: Any) -> None:
        item = self.items[index]
        if isinstance(item, int):
            self.fresh[item] = self.write(value, item)
        else:
            self.items[index] = self.write(value, None)

    def _index(self, step: str, last: int) -> int:
        if not _INDEX.fullmatch(step):
            raise Miss(f"{step!r} is no index of an array")
        if int(step) > last:
            raise Miss(f"the array has {len(self.items)} entries")
        return int(step)


class Object(_Container):
    """An object, the old members that are gone, and the new ones before and behind the rest.

    index  key -> its last member; twins  key -> all its members, where there are several
    front  new members that come first, the newest of them first of all: key -> text; back likewise
    inner  new members by the old one that they come before; place  key -> that one
    """

    def __init__(self, document: Document, place: int, parent: _Container | None, outer: str) -> None:
        super().__init__(document, place, parent, outer)
        self.gone: set[int] = set()
        self.front: dict[str, str] = {}
        self.back: dict[str, str] = {}
        self.inner: dict[int, dict[str, str]] = {}
        self.place: dict[str, int] = {}
        self.index: dict[str, int] = {}
        self.twins: dict[str, list[int]] = {}
        for number, start in enumerate(self.starts):
            key = self._key(start)
            if key in self.index:
                self.twins.setdefault(key, [self.index[key]]).append(number)
            self.index[key] = number

    def sequence(self) -> Iterable[int | str]:
        yield from reversed(self.front.values())
        for number in range(len(self.starts)):
            if number in self.inner:
                yield from self.inner[number].values()
            if number not in self.gone:
                yield number
        yield from self.back.values()

    def _is_new(self, step: str) -> bool:
        return step in self.front or step in self.back or step in self.place

    def locate(self, step: str) -> int | None:
        if self._is_new(step):
            return None
        if step not in self.index:
            raise Miss(f"there is no member {step!r}")
        index = self.index[step]
        return None if index in self.fresh else index

    def change(self, step: str, edit: Edit) -> None:
        known = step in self.index or self._is_new(step)
        if edit.op != "add" and not known:
            raise Miss(f"there is no member {step!r}")
        if known and (edit.op == "remove" or edit.first):
            self._remove(step)
            known = False
        if edit.op == "remove":
            return
        if not known:
            self.moved = True
            self._add(step, edit)
        elif step in self.index:
            self.fresh[self.index[step]] = self.write(edit.value, self.index[step])
        elif step in self.place:
            self.inner[self.place[step]][step] = self._member(step, edit.value, self.place[step])
        else:
            side = self.front if step in self.front else self.back
            side[step] = self._member(step, edit.value, 0 if side is self.front else -1)

    def _add(self, step: str, edit: Edit) -> None:
        if edit.before is None:
            side = self.front if edit.first else self.back
            side[step] = self._member(step, edit.value, 0 if edit.first else -1)
            return
        if edit.before not in self.index:
            raise Miss(f"there is no member {edit.before!r}")
        self.place[step] = at = self.index[edit.before]
        self.inner.setdefault(at, {})[step] = self._member(step, edit.value, at)

    def _remove(self, key: str) -> None:
        self.moved = True
        self.front.pop(key, None)
        self.back.pop(key, None)
        if key in self.place:
            del self.inner[self.place.pop(key)][key]
        if key in self.index:
            last = self.index.pop(key)
            numbers = self.twins.pop(key, [last])
            self.gone.update(numbers)
            for number in numbers:
                self.fresh.pop(number, None)

    def renaming(self, key: str, new: str) -> tuple[int, int, int, str]:
        """Where the name of a member starts and ends, where its colon is, and the text of another name."""
        if key not in self.index or key in self.twins:
            raise Miss(f"{key!r} is not there once")
        if new in self.index:
            raise Miss(f"{new!r} is there already")
        start = self.starts[self.index[key]]
        end = end_of(KEY, self.text, start)
        return start, end, self.text.index(":", end), self.document.style.dumps(new, space="", unit="")

    def _key(self, start: int) -> str:
        written = self.text[start : end_of(KEY, self.text, start)]
        return str(json.loads(written)) if "\\" in written else written[1:-1]

    def _member(self, key: str, value: Any, beside: int) -> str:
        """The text of a new member, with the colon of the sibling that it will stand next to."""
        name = self.document.style.dumps(key, space="", unit="")
        return name + self._colon(beside) + self.write(value, None)

    def _colon(self, index: int) -> str:
        if not self.starts:
            return self.document.style.separators[1]
        colon = self.text[end_of(KEY, self.text, self.starts[index]) : self.values[index]]
        return self.document.style.separators[1] if has_break(colon) else colon


_KINDS: dict[str, type[_Container]] = {"[": _Array, "{": Object}
