"""Records what the real engines ask about and do with a checkpoint, for the tests beside this file.

    MTPFIX_ENGINES=<folder with vllm/ and sglang/ drive scripts> \
    MTPFIX_VLLM_PYTHON=<venv>/bin/python MTPFIX_SGLANG_PYTHON=<venv>/bin/python \
    python tests/engines/record.py SOURCE... [--name NAME] [--parts target,draft] [--engines vllm,sglang] [--show]

SOURCE: a case file of the corpus (`CASE.json`, forged with ../corpus/forge.py of the engines' folder), a record
(`asks/NAME.json`, made again), or a checkpoint directory. Each part is built (every question to the quantization
config is noted) and loaded by vLLM and SGLang; the result is written to `asks/NAME.json` (see records.py). With
`--show` it is printed briefly and nothing is written. An engine whose variable is unset is left out. Runs that fail
because the config is too small for the engine (stage `config`, or `build` for a missing key) are no verdicts: delete
them, or complete the case.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

from records import ASKS, compress, expand, fold, load_record, read_checkpoint, write_checkpoint

ENGINES = Path(os.environ.get("MTPFIX_ENGINES", ""))
PYTHONS = {"vllm": os.environ.get("MTPFIX_VLLM_PYTHON", ""), "sglang": os.environ.get("MTPFIX_SGLANG_PYTHON", "")}
VERSIONS = {"vllm": "0.33.0", "sglang": "0.5.23"}
VERDICTS = {"ok": "loads", "silent_garbage": "degrades", "fails": "fails"}
# In no checkpoint, made later from what was loaded, padded, or built only because a small config leaves out a key.
HARMLESS = re.compile(
    r"(^|\.)[kvq]_scale$|_zero_point$|_blockscale_swizzled$|\.deepstack_merger_list\."
    r"|\.input_mix_weight_down_block_inject\.weight$"
)
# A draft gets the target's embeddings and head later.
SHARED = {
    "vllm": re.compile(r"(^|\.)(embed_tokens|word_embeddings)\.|^lm_head\.weight$|\.shared_head\.head\."),
    "sglang": re.compile(r"(^|\.)(embed_tokens|word_embeddings|lm_head|shared_head\.head|head)\."),
}
# Architectures that refuse the attention of a CPU before anything is built.
WANTS_GPU_ATTENTION = ("ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM", "MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM")
GPU_ATTENTION = ("attention_backend=triton",)
SEPARATE = ("Gemma4AssistantForCausalLM",)
LOGS = Path(tempfile.gettempdir()) / "mtpfix-record"
Json = dict[str, Any]


def layer_kind(name: str) -> str:
    """Our word for an engine's layer class; "" for classes that no list decides."""
    if name in ("RoutedExperts", "FusedMoE") or name.endswith("FusedMoE"):
        return "moe"
    if name == "ParallelLMHead":
        return "lm_head"
    if name == "VocabParallelEmbedding":
        return "embedding"
    return "linear" if "Linear" in name and "Attention" not in name else ""


def decision(method: str | None) -> str:
    """plain, quantized or error, from the name of the method object (None: the layer takes its own plain one)."""
    if method is None or "Unquantized" in method:
        return "plain"
    return "error" if method.startswith("RAISED") else "quantized"


MODULES = {"vllm": ("vllm_boot", "vllm_load", "vllm_match", "vllm_separate"), "sglang": ("sglang_env", "sglang_load")}
PRELOAD = {
    "vllm": ["vllm.engine.arg_utils", "vllm.model_executor.model_loader", "vllm.v1.spec_decode.eagle"],
    "sglang": ["sglang.srt.model_loader.loader", "sglang.srt.configs.model_config", "sglang.srt.server_args"],
}


@cache
def warm(engine: str) -> subprocess.Popen[str]:
    """A process that has imported an engine and forks a child a job (an import takes ten seconds)."""
    command = [PYTHONS[engine], str(Path(__file__).with_name("warm.py")), str(ENGINES / engine)]
    return subprocess.Popen(
        [*command, *MODULES[engine], *PRELOAD[engine]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        stderr=(LOGS / f"{engine}.log").open("a"),
    )  # fmt: skip


def _architecture(folder: Path) -> str:
    config = json.loads((folder / "config.json").read_text("utf-8"))
    return str((config.get("architectures") or [""])[0])


def unwritten(engine: str, part: str, names: list[str], architecture: str = "") -> list[str]:
    """The parameters among those never written whose absence spoils the model."""
    found = [name for name in names if not HARMLESS.search(name)]
    if architecture in SEPARATE:  # keys and values come from the target
        found = [name for name in found if ".self_attn.qkv_proj." not in name and ".k_norm." not in name]
    return [name for name in found if part == "target" or not SHARED[engine].search(name)]


def drive(engine: str, script: str, *args: str) -> Json | None:
    """The JSON that a drive script prints, or None where the harness itself broke."""
    process = warm(engine)
    assert process.stdin
    assert process.stdout
    with tempfile.NamedTemporaryFile(suffix=".json") as result:
        process.stdin.write(json.dumps([script, result.name, *args]) + "\n")
        process.stdin.flush()
        process.stdout.readline()
        text = Path(result.name).read_text("utf-8")
    start = text.find("{")
    if start < 0:
        print(f"harness broke: {script} {args}; see {LOGS}", file=sys.stderr)
        return None
    body: Json = json.loads(text[start:])
    return body


def brief(error: str, folder: str) -> str:
    """An error without local paths, cut."""
    text = re.sub(r"(/[\w.+-]+){2,}/", "", error.replace(folder, "CHECKPOINT"))
    return re.sub(r"at 0x[0-9a-f]+", "", text)[:400]


def empty_run(engine: str, part: str) -> Json:
    return {
        "engine": engine, "version": VERSIONS[engine], "part": part, "method": "", "class": "", "verdict": "",
        "stage": "", "error": "", "never_written": [], "asked": [], "unasked": [],
    }  # fmt: skip


def run_vllm(folder: Path, parts: list[str]) -> list[Json]:
    """Both parts in vLLM: questions from the match script, verdicts from the load script."""
    if _architecture(folder) in SEPARATE:
        asked = loaded = drive("vllm", "vllm_separate", str(folder)) or {}
    else:
        flags = [] if "draft" in parts else ["--no-spec"]
        asked = drive("vllm", "vllm_match", str(folder), *flags) or {}
        loaded = drive("vllm", "vllm_load", str(folder), *flags) or {}
    runs = []
    for part in parts:
        run = empty_run("vllm", part)
        config = loaded.get("engine_config", {})
        run["method"] = config.get("quantization") or ""
        if not config.get("ok"):
            run.update(verdict="fails", stage="config", error=_exception(config, folder))
        else:
            _vllm_asked(run, asked.get(part, {}))
            _vllm_verdict(run, loaded.get(part), folder)
        runs.append(run)
    return runs


def _exception(holder: Json, folder: Path) -> str:
    found = holder.get("exception", {})
    return brief(f"{found.get('type')}: {found.get('message')}", str(folder)) if found else ""


def _vllm_asked(run: Json, part: Json) -> None:
    model = part.get("model", {})
    run["class"] = model.get("class", "").rsplit(".", 1)[-1]
    run.update(packed=model.get("packed_modules_mapping"), mapper=model.get("rename_mapper"))
    for row in part.get("modules") or part.get("asked_before_failure", []):
        kind = layer_kind(row["layer"])
        if not kind:
            continue
        if row.get("asked", True):
            run["asked"].append([row["prefix"], kind, decision(row["method"]), row["method"]])
        else:
            run["unasked"].append([row["prefix"] or row["module"], kind])


def _vllm_verdict(run: Json, part: Json | None, folder: Path) -> None:
    if part is None:
        return
    run["never_written"] = part.get("never_written", []) + part.get("partially_written", [])
    verdict = VERDICTS[part["verdict"]]
    if verdict == "degrades" and not unwritten("vllm", run["part"], run["never_written"]):
        verdict = "loads"
    stage = {"construct": "build", "start": "build"}.get(part["stage"], part["stage"])
    run.update(verdict=verdict, stage=stage if verdict == "fails" else "", error=_exception(part, folder))


def run_sglang(folder: Path, parts: list[str]) -> list[Json]:
    """Both parts in SGLang."""
    return [_run_sglang(folder, part) for part in parts]


def _run_sglang(folder: Path, part: str) -> Json:
    run = empty_run("sglang", part)
    result = drive("sglang", "sglang_load", str(folder), part, *_sglang_settings(folder, part))
    if result is None:
        return run
    run.update(method=result.get("quantization") or "", **{"class": result.get("arch", "")})
    for prefix, layer, method in result.get("asked", []):
        kind = layer_kind(layer)
        if kind == "linear" and method is None:
            run["asked"].append([prefix, kind, "error", "AssertionError"])  # the constructor asserts a method
        elif kind:
            run["asked"].append([prefix, kind, decision(method), brief(method or "", str(folder))])
    run["never_written"] = result.get("never_loaded", [])
    if result.get("ok"):
        run["casts"] = result.get("casts", [])
        bad = unwritten("sglang", part, run["never_written"], _architecture(folder)) or run["casts"]
        run["verdict"] = "degrades" if bad else "loads"
    else:
        run.update(verdict="fails", stage=result["stage"].replace("model_config", "config"))
        run["error"] = brief(result["error"], str(folder))
    return run


def _sglang_settings(folder: Path, part: str) -> list[str]:
    """On a CPU the server settings would not choose the Marlin classes for a target, as they do on a GPU."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    method = config.get("quantization_config", {}).get("quant_method")
    settings = [f"quantization={method}_marlin"] if part == "target" and method in ("gptq", "awq") else []
    return [*settings, *GPU_ATTENTION] if _architecture(folder) in WANTS_GPU_ATTENTION else settings


def checkpoint_of(source: Path, into: Path) -> tuple[str, str, Path]:
    """Name, origin and directory of a source."""
    if source.is_dir():
        return source.name, "exporter", source
    raw = json.loads(source.read_text("utf-8"))
    if "runs" in raw:
        return raw["name"], raw["origin"], write_checkpoint(load_record(source), into)
    forge = ENGINES.parent / "corpus" / "forge.py"
    subprocess.run([sys.executable, str(forge), str(source), str(into)], check=True)
    return raw["id"], raw.get("origin_word", "corpus"), into


def record(source: Path, parts: list[str], engines: list[str], name: str = "") -> Json:
    """The record of a source."""
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(2) as pool:
        found, origin, folder = checkpoint_of(source, Path(scratch) / "checkpoint")
        body = read_checkpoint(folder)
        drivers = {"vllm": run_vllm, "sglang": run_sglang}
        jobs = [pool.submit(drivers[engine], folder, parts) for engine in engines if PYTHONS[engine]]
        runs = [folded(run) for job in jobs for run in job.result()]
    return {"name": name or found, "origin": origin, **body, "runs": runs}


def folded(run: Json) -> Json:
    """A run with the names of layers that are alike written once."""
    never = compress(name for text in run["never_written"] for name in expand(text))
    rows = {key: [[name, *rest] for text, *rest in run[key] for name in expand(text)] for key in ("asked", "unasked")}
    return {**run, "never_written": never, **{key: fold(found) for key, found in rows.items()}}


def dump(body: Json) -> str:
    """JSON with one row a line."""
    text = json.dumps(body, indent=1)
    return re.sub(r"\[\s+((?:[^\[\]{}]|\{\d+\.\.\d+\})*?)\s+\]", lambda found: f"[{_one_line(found[1])}]", text) + "\n"


def _one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text)


def show(body: Json) -> None:
    """A run a line, and every question."""
    for run in body["runs"]:
        print(run["engine"], run["part"], run["class"], run["method"], "->", run["verdict"], run["stage"], run["error"])
        print("   never:", run["never_written"][:8], len(run["never_written"]))
        for prefix, kind, chosen, method in run["asked"]:
            print("   ", prefix, kind, chosen, method)
        print("   unasked:", [prefix for prefix, _ in run["unasked"]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--name", default="")
    parser.add_argument("--parts", default="target,draft")
    parser.add_argument("--engines", default="vllm,sglang")
    parser.add_argument("--show", action="store_true")
    parser.add_argument("-o", "--output", type=Path, default=ASKS)
    options = parser.parse_args()
    LOGS.mkdir(exist_ok=True)
    for source in options.sources:
        body = record(source, options.parts.split(","), options.engines.split(","), options.name)
        if options.show:
            show(body)
        else:
            options.output.mkdir(parents=True, exist_ok=True)
            (options.output / f"{body['name']}.json").write_text(dump(body), "utf-8")
            runs = [(run["engine"], run["part"], run["verdict"], run["error"][:80]) for run in body["runs"]]
            print(body["name"], runs, flush=True)


if __name__ == "__main__":
    main()
