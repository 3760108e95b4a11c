"""The pages that are made from the program's own data: rules, error messages, families, engines, commands.

mkdocs calls `on_files` while it builds the site (mkdocs.yml, `hooks`), so that no page can be older than its data.

    python docs/generate.py FOLDER      # writes the pages, to read them without mkdocs
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from mtpfix.cli import COMMANDS, main
from mtpfix.cli.engines import facts
from mtpfix.engines.registry import ENGINES
from mtpfix.families import REGISTRY, loader
from mtpfix.families.base import Family, view_for
from mtpfix.formats import format_of
from mtpfix.output.base import EngineFacts
from mtpfix.releases import modelled
from mtpfix.rules import BY_CODE, RULES
from mtpfix.rules.base import Rule
from mtpfix.symptoms import Symptom, symptoms

Json = Mapping[str, Any]
NAMES = {
    "vllm": "vLLM",
    "sglang": "SGLang",
    "tensorrt-llm": "TensorRT-LLM",
    "transformers": "transformers",
    "vllm-ascend": "vLLM-Ascend",
}
LABELS = {
    "": "What",
    "Why": "Why",
    "In engines": "How engines fail",
    "Fix": "What mtpfix does",
    "By hand": "By hand",
    "Seen in": "Seen in",
}
# A quantization config of each format, as small as its engines accept it.
SAMPLES: Mapping[str, Json] = {
    "modelopt": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "compressed-tensors": {"quant_method": "compressed-tensors"},
    "fp8": {"quant_method": "fp8", "activation_scheme": "dynamic"},
    "gptq": {"quant_method": "gptq", "bits": 4, "sym": True, "desc_act": False},
    "awq": {"quant_method": "awq", "bits": 4},
    "auto-round": {"quant_method": "auto-round", "bits": 4},
    "quark": {"quant_method": "quark"},
    "mxfp8": {"quant_method": "mxfp8"},
    "mxfp4": {"quant_method": "mxfp4"},
}
_LABEL = re.compile(r"([A-Z][a-z ]{1,15}): (.*)", re.DOTALL)


def pages() -> dict[str, str]:
    """Path -> Markdown of every page that is made."""
    families = {entry.name: loader.load(entry.name) for entry in REGISTRY}
    known = {found.name: found for found in facts()}
    return {
        "rules/index.md": rule_list(),
        **{f"rules/{rule.code}.md": rule_page(rule) for rule in RULES},
        "errors.md": error_page(),
        "families/index.md": family_list(families),
        **{f"families/{name}.md": family_page(family) for name, family in families.items()},
        "engines/index.md": engine_list(known),
        **{f"engines/{name}.md": engine_page(found) for name, found in known.items()},
        "compatibility.md": compatibility(families),
        "commands.md": command_page(),
    }


# Rules


def sections(rule: Rule) -> dict[str, str]:
    """Label -> text of a rule's explanation, as `mtpfix rule CODE` prints it; the first text has the label ""."""
    found = {"": ""}
    label = ""
    for line in rule.explanation.strip().splitlines():
        match = _LABEL.match(line)
        begins = match is not None and match[1] in LABELS
        label, text = (match[1], match[2]) if match and begins else (label, line)
        found[label] = f"{found.get(label, '')} {text}".strip()
    return found


def rule_list() -> str:
    rows = [
        [f"[{rule.code}]({rule.code}.md)", rule.name, rule.severity, rule.fix, _capital(rule.summary)] for rule in RULES
    ]
    text = "`mtpfix rule CODE` prints the same texts. *Severity* is the usual one; *fix* says whether `mtpfix apply` "
    text += "mends it by itself (`safe`), with `--unsafe-fixes` only, or not at all."
    return page("Rules", text, table(["code", "name", "severity", "fix", "what"], rows))


def rule_page(rule: Rule) -> str:
    about = table(["severity", "fix", "kind"], [[rule.severity, rule.fix, rule.kind]])
    parts = [f"## {LABELS[label]}\n\n{_capital(text)}" for label, text in sections(rule).items()]
    said = [symptom for symptom in symptoms() if rule.code in symptom.rules]
    if said:
        examples = "\n".join(dict.fromkeys(_cut(symptom.example) for symptom in said[:8]))
        parts.append(f"## Error messages\n\nAmong others ([all of them](../errors.md)):\n\n```text\n{examples}\n```")
    return page(f"{rule.code} {rule.name}", f"{_capital(rule.summary)}.", about, *parts)


def error_page() -> str:
    lead = (
        "Find the last line of the engine's traceback here, or let mtpfix find it: "
        '`mtpfix rule --error "TEXT"`, or a whole log on stdin, `mtpfix rule --error - < server.log`. '
        "The rules stand in the order in which they are likely; `mtpfix check CHECKPOINT` says which one it is."
    )
    groups: dict[tuple[str, tuple[str, ...]], list[Symptom]] = {}
    for symptom in symptoms():
        groups.setdefault((symptom.means, symptom.rules), []).append(symptom)
    parts = []
    for (means, codes), own in groups.items():
        rules = ", ".join(f"[{code}](rules/{code}.md) {BY_CODE[code].name}" for code in codes)
        shown = "\n".join(_cut(symptom.example) for symptom in own)
        sources = "\n".join(f"- {source}" for source in dict.fromkeys(symptom.source for symptom in own))
        parts.append(
            f"## {_capital(means)}\n\n```text\n{shown}\n```\n\nRules: {rules}.\n\nWhere it is said:\n\n{sources}"
        )
    return page("I have this error message", lead, *parts)


# Families


def family_list(families: Mapping[str, Family]) -> str:
    rows = [
        [f"[{escape(family.title)}]({name}.md)", ", ".join(f"`{kind}`" for kind in family.model_types) or "–",
         _draft_kind(family)]
        for name, family in families.items()
    ]  # fmt: skip
    lead = "A family is a model architecture with its names: a data file in `mtpfix/families/`."
    more = "How to add one: [a family in ten minutes](../add-a-family.md)."
    return page("Model families", lead, table(["family", "model_type", "draft"], rows), more)


def _draft_kind(family: Family) -> str:
    if family.separate:
        return "the checkpoint is a draft"
    return ", ".join(f"`{key}`" for key in family.count_keys) or "none"


def family_page(family: Family) -> str:
    raw = loader.read(family.name)
    draft = raw.get("draft", {})
    about = [
        ["model_type", _codes(family.model_types)],
        ["architectures", _codes(family.architectures)],
        ["layers of the target (N)", f"`{family.layers_key}`"],
        ["draft layers are counted by", _codes(family.count_keys)],
        ["modules of the draft", "all" if family.separate else _codes(draft.get("modules", ()))],
        ["always in full precision", _codes(draft.get("full_precision", ()))],
        ["file", f"`mtpfix/families/{family.name}.toml`"],
    ]
    parts = [table(["", ""], about), "## Classes", table(
        ["engine", "part", "releases", "class", "read from"],
        [[NAMES[row["engine"]], row["part"], _releases(row), f"`{row['class']}`", escape(row.get("source", ""))]
         for row in raw.get("view", ())],
    )]  # fmt: skip
    for engine in NAMES:
        parts += _names_in(raw, engine)
    parts += _facts_of(raw)
    parts += ["## Formats", _format_table(family)]
    parts += ["## Sources", bullets(family.sources)] if family.sources else []
    parts += ["## Notes", bullets(note.text for note in family.notes)] if family.notes else []
    return page(family.title, *parts)


def _names_in(raw: Json, engine: str) -> Iterator[str]:
    """What the newest class of each part asks for."""
    for part in ("draft", "target"):
        views = [row for row in raw.get("view", ()) if (row["engine"], row["part"]) == (engine, part)]
        if not views:
            continue
        view = views[-1]
        rows = [
            [f"`{row['module']}`", f"`{row['asks']}`" if row["asks"] else "–", row["layer"], escape(row.get("why", ""))]
            for row in loader.module_rows(view)
        ]
        yield f"## {NAMES[engine]}, {part}: names asked for\n\n`{view['class']}`, {_releases(view)}."
        yield table(["stored as", "asked as", "kind", "why"], rows)


def _facts_of(raw: Json) -> Iterator[str]:
    """What classes decide by themselves, and what goes wrong in them."""
    for title, key in (("Decided by the class", "special"), ("Known faults", "fault")):
        rows = [
            [NAMES[view["engine"]], view["part"], _releases({**view, **fact}), _codes(fact.get("methods", ())) or "all",
             fact.get("decision") or fact.get("verdict", ""), escape(fact["why"]), escape(fact.get("source", ""))]
            for view in raw.get("view", ())
            for fact in view.get(key, ())
        ]  # fmt: skip
        if rows:
            yield f"## {title}"
            yield table(["engine", "part", "releases", "methods", "outcome", "why", "read from"], rows)


def _releases(row: Json) -> str:
    since, until = row.get("since", ""), row.get("until", "")
    if since and until:
        return spans_of(since, until)
    return f"from {since}" if since else f"up to {until}" if until else "all modelled"


# Formats and releases


def knows(family: Family, engine: str, method: str, sample: Json) -> tuple[str, ...]:
    """The releases of an engine that know a family's draft (or its target, where it has none) and a format."""
    part: Any = "draft" if any(view.part == "draft" for view in family.views if view.engine == engine) else "target"
    types = family.model_types or ("",)
    return tuple(
        release
        for release in modelled(engine)
        if view_for(family, engine, part, release, family.architectures)
        and (found := ENGINES[engine].method(sample, release, model_type=types[0])).name
        and not found.error
    )


def spans(some: Sequence[str], every: Sequence[str]) -> str:
    """`0.17.0 – 0.33.0, ...`, or a dash for none."""
    runs: list[list[str]] = []
    for release in some:
        if runs and every.index(release) == every.index(runs[-1][-1]) + 1:
            runs[-1].append(release)
        else:
            runs.append([release])
    return ", ".join(spans_of(run[0], run[-1]) for run in runs) or "–"


def spans_of(first: str, last: str) -> str:
    return first if first == last else f"{first} – {last}"


def _format_table(family: Family) -> str:
    rows = [
        [_title(name), *(spans(knows(family, engine, name, sample), modelled(engine)) for engine in ("vllm", "sglang"))]
        for name, sample in SAMPLES.items()
    ]
    lead = "The releases that know both the model and the format. Whether a checkpoint loads is for `mtpfix check`.\n\n"
    return lead + table(["format", "vLLM", "SGLang"], rows)


def compatibility(families: Mapping[str, Family]) -> str:
    lead = (
        "The first release that knows both the family's draft (its target, where there is no draft) and the format; "
        "a dash where none of the modelled ones does. Ranges, and the names that are asked for, are on the family's "
        "page. Whether a checkpoint loads depends on its lists: `mtpfix check` says so."
    )
    parts = []
    for engine in ("vllm", "sglang"):
        rows = [
            [f"[{escape(family.title)}](families/{name}.md)",
             *(next(iter(knows(family, engine, kind, sample)), "–") for kind, sample in SAMPLES.items())]
            for name, family in families.items()
        ]  # fmt: skip
        first, last = modelled(engine)[0], modelled(engine)[-1]
        parts.append(f"## {NAMES[engine]}\n\nModelled: {first} – {last}.\n\n"
                     + table(["family", *map(_title, SAMPLES)], rows))  # fmt: skip
    return page("Compatibility", lead, *parts)


def _title(name: str) -> str:
    found = format_of(SAMPLES[name])
    assert found is not None
    return found.title


# Engines and commands


def engine_list(known: Mapping[str, EngineFacts]) -> str:
    rows = [
        [f"[{NAMES[name]}]({name}.md)", str(len(found.releases)), f"{found.releases[0]} – {found.releases[-1]}"]
        for name, found in known.items()
    ]
    return page("Engines", "What is modelled; `mtpfix engines` prints it.", table(["engine", "releases", ""], rows))


ABOUT = {
    "vllm-ascend": "vLLM's plug-in for NPUs. What is modelled is how it reads ModelSlim's "
    "`quant_model_description.json`, for the families that it names and whose classes are vLLM's own: their names are "
    "those of the vLLM release of the same number. Other families and formats (DeepSeek-V4, MiniMax, Step, Bailing, "
    "Gemma 4; compressed-tensors, FP8) are `unknown`. It is shown for ModelSlim checkpoints, and where "
    "`--engine vllm-ascend` asks for it."
}


def engine_page(found: EngineFacts) -> str:
    parts = [ABOUT[found.name]] if found.name in ABOUT else []
    parts += [f"Modelled releases: {', '.join(found.releases)}."]
    if found.changes:
        rows = [[f"`{change.method}`", change.release, change.name, escape(change.source)] for change in found.changes]
        parts += ["## Changes of matching", table(["method", "since", "what", "read from"], rows)]
    if found.profiles:
        rows = [
            [
                f"`{one.method}`",
                one.first if one.first == one.last else f"{one.first} – {one.last}",
                f"{one.recorded:,}",
            ]
            for one in found.profiles
        ]
        parts += [
            "## Releases that match alike",
            "*Recorded* are decisions that the engine's own code made and that the model is held to by a test.",
            table(["method", "releases", "recorded"], rows),
        ]
    return page(NAMES[found.name], *parts)


def command_page() -> str:
    parts = [f"```text\n{help_text()}```"]
    parts += [f"## {name}\n\n```text\n{help_text(name)}```" for name, _ in COMMANDS]
    return page("Commands", "`mtpfix COMMAND --help` prints what stands here.", *parts)


def help_text(name: str = "") -> str:
    """What `--help` prints at 80 columns."""
    settings = {**main.context_settings, "terminal_width": 80, "max_content_width": 80}
    context = click.Context(main, info_name="mtpfix", **settings)  # a command keeps the help option that it first has
    if not name:
        return main.get_help(context) + "\n"
    command = main.get_command(context, name)
    assert command is not None
    return command.get_help(click.Context(command, parent=context, info_name=name, terminal_width=80)) + "\n"


# Markdown


def page(title: str, *parts: str) -> str:
    """A page: its title and its parts, with an empty line between them."""
    return "\n\n".join([f"# {title}", *(part for part in parts if part)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; the cells are Markdown already."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {escape(text)}" for text in texts)


def escape(text: str) -> str:
    """Running text in which nothing acts as Markdown."""
    return re.sub(r"([\\`*_\[\]<>~#])", r"\\\1", text)


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _capital(text: str) -> str:
    return text if text.startswith("vLLM") else text[:1].upper() + text[1:]


def _cut(text: str, most: int = 150) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def on_config(config: Any) -> Any:
    """mkdocs' hook: the made pages in the navigation, under the page that lists them."""
    made = pages()
    for entry in config["nav"]:
        for title, path in entry.items():
            if isinstance(path, str) and path.endswith("/index.md"):
                folder = path.removesuffix("index.md")
                entry[title] = [path, *sorted(name for name in made if name.startswith(folder) and name != path)]
    return config


def on_files(files: Any, config: Any) -> Any:
    """mkdocs' hook: the pages beside those that are written by hand."""
    from mkdocs.structure.files import File

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for path, text in pages().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
