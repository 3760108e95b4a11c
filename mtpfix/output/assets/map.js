
"use strict";
// The map of a checkpoint: draws what output/mapdata.py wrote. Every text goes through textContent, none becomes HTML.
(() => {
  const LAYER = /\u0001/g;
  const MARKS = { loads: "✓", fails: "✗", degrades: "!", unsupported: "–", unknown: "?" };
  const TONES = { loads: "good", fails: "bad", degrades: "warn", unsupported: "faint", unknown: "faint" };
  const RANK = ["", "none", "absent", "unknown", "degrades", "fails"];
  const SIDES = [["before", "as published"], ["after", "after the fix"]];

  // ---- elements

  function el(tag, props, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(props || {})) {
      if (name === "text") node.textContent = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== null && value !== undefined && value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined));
    return node;
  }

  const code = (text) => el("code", { text });
  const times = (count) => (count > 1 ? ` ×${count.toLocaleString("en")}` : "");

  function table(head, rows) {
    return el("div", { class: "scrolls" }, el("table", {},
      el("thead", {}, el("tr", {}, ...head.map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, ...rows)));
  }

  const list = (pairs) => el("dl", {}, ...pairs.filter(([, value]) => value).flatMap(([term, value]) =>
    [el("dt", { text: term }), el("dd", {}, ...[value].flat())]));

  // ---- the data

  const span = (view) => view.releases[0] === view.releases[1] ? view.releases[0] : `${view.releases[0]}–${view.releases[1]}`;

  function ranges(numbers) {
    const runs = [];
    for (const number of numbers) {
      const last = runs[runs.length - 1];
      if (last && number === last[1] + 1) last[1] = number;
      else runs.push([number, number]);
    }
    return runs.map(([from, to]) => (from === to ? `${from}` : to === from + 1 ? `${from},${to}` : `${from}..${to}`)).join(",");
  }

  function ruling(data, number) {
    const [part, runtime, decision, scheme, rule, place, entry, verdict, why, error] = data.rulings[number];
    return { part, runtime, decision, scheme, rule, place, entry, verdict, why, error };
  }

  /** A ruling as it is in a layer: LAYER in its texts is the layer's number. */
  const inLayer = (what, layer) => Object.fromEntries(Object.entries(what).map(([name, text]) => [name, text.replace(LAYER, () => layer)]));

  function member(data, raw) {
    const [experts, count, scheme, tensors, listed, before, after] = raw;
    return { experts, count, scheme, tensors: data.tensors[tensors], listed, vectors: { before, after } };
  }

  function decoded(text) {
    try { return decodeURIComponent(text); } catch { return ""; }
  }

  const wrong = (state) => state === "fails" || state === "degrades";
  const reasons = (verdicts) => [...new Set(Object.values(verdicts).map(([, reason]) => reason).filter(Boolean))].join("; ");
  const rulings = (data, one, view, side) => data.sets[data.vectors[one.vectors[side]][view]].map((at) => ruling(data, at));

  /** The worst that comes of some rulings: "" where all load, "none" without rulings. */
  function standing(found) {
    if (!found.length) return "none";
    const states = found.map((one) => one.verdict || (one.decision === "absent" || one.decision === "unknown" ? one.decision : ""));
    return states.reduce((worst, state) => (RANK.indexOf(state) > RANK.indexOf(worst) ? state : worst), "");
  }

  // ---- one map

  class Atlas {
    constructor(box, data) {
      this.box = box;
      this.data = data;
      this.members = data.classes.map((members) => members.map((raw) => member(data, raw)));
      this.state = { view: this.firstView(), side: "before", folded: false };
      this.cells = [];
      this.picked = null;
      this.build();
      this.update();
      if (!this.recall() && this.trouble.length) this.show(this.trouble[0]);
    }

    // -- the address: #map/engine/release/before/cell, so that a state of the page can be linked to

    /** Whether the address names a state of this map; it is chosen then. */
    recall() {
      const [at, engine, release, side, name] = location.hash.slice(1).split("/").map(decoded);
      if (at !== this.box.dataset.at) return false;
      const views = this.ordered().filter(({ view }) => view.engine === engine);
      const found = views.find(({ view }) => view.releases[0] === release) || views[0];
      if (!found) return false;
      this.set({ view: found.at, side: side === "after" && this.data.changed ? "after" : "before" }, false);
      const cell = this.cells.find((one) => one.name === name);
      if (cell) { this.show(cell); this.box.scrollIntoView(); }
      return true;
    }

    remember() {
      const { engine, releases } = this.view;
      const parts = [this.box.dataset.at, engine, releases[0], this.state.side, ...(this.picked ? [this.picked.name] : [])];
      history.replaceState(null, "", `#${parts.map(encodeURIComponent).join("/")}`);
    }

    /** What a reader should see first: releases that the fix mends, else those with trouble, the newest of them. */
    firstView() {
      const ill = (verdicts) => Object.values(verdicts).filter(([verdict]) => wrong(verdict)).length;
      const rank = (view) => 4 * (ill(view.before) > ill(view.after)) + 2 * (ill(view.before) > 0) + view.latest;
      return this.ordered().reduce((best, one) => (rank(one.view) > rank(best.view) ? one : best)).at;
    }

    /** The views, engine by engine, the newest releases of each first. */
    ordered() {
      const views = this.data.views.map((view, at) => ({ view, at }));
      return [...new Set(views.map(({ view }) => view.engine))].flatMap((name) => views.filter(({ view }) => view.engine === name).reverse());
    }

    get view() { return this.data.views[this.state.view]; }

    build() {
      const id = `map${this.box.dataset.at}`;
      this.says = el("div", { class: "says", role: "status" });
      this.sheet = el("div", { class: "sheet", id });
      this.detail = el("aside", { class: "detail", "aria-live": "polite", "aria-label": "the chosen module" });
      this.box.replaceChildren(this.switches(), this.says, this.legend(), el("div", { class: "atlas" }, this.sheet, this.detail));
      this.draw();
    }

    // -- switches

    switches() {
      const engines = [...new Set(this.data.views.map((view) => view.engine))];
      this.engine = this.radios("engine", engines.map((name) => [name, name]), (name) => this.pickEngine(name));
      this.release = el("select", { "aria-label": "releases", onchange: () => this.set({ view: Number(this.release.value) }) });
      const side = this.data.changed ? this.radios("config", SIDES, (name) => this.set({ side: name })) : null;
      const fold = el("input", { type: "checkbox", onchange: () => { this.state.folded = fold.checked; this.draw(); this.update(); } });
      const rows = this.data.grids.flatMap((grid) => grid.sections.flatMap((section) => section[2])).length;
      this.side = side;
      return el("div", { class: "switches" }, this.engine, el("label", { class: "fold" }, this.release), side,
        rows > 2 ? el("label", { class: "fold" }, fold, " fold layers that are alike") : null);
    }

    radios(name, choices, change) {
      const group = `${name}${this.box.dataset.at}`;
      return el("fieldset", {}, el("legend", { text: name }), ...choices.map(([value, text], at) => {
        const input = el("input", { type: "radio", name: group, value, onchange: () => change(value) });
        input.checked = at === 0;
        return el("label", {}, input, text);
      }));
    }

    pickEngine(name) {
      this.set({ view: this.ordered().find(({ view }) => view.engine === name).at });
    }

    set(change, told = true) {
      Object.assign(this.state, change);
      this.update();
      if (told) this.remember();
    }

    sync() {
      const { engine } = this.view;
      for (const input of this.engine.querySelectorAll("input")) input.checked = input.value === engine;
      if (this.side) for (const input of this.side.querySelectorAll("input")) input.checked = input.value === this.state.side;
      const own = this.ordered().filter(({ view }) => view.engine === engine);
      this.release.replaceChildren(...own.map(({ view, at }) => {
        const option = el("option", { value: at, text: `${span(view)}${view.latest ? " (newest)" : ""}` });
        option.selected = at === this.state.view;
        return option;
      }));
    }

    // -- the grid

    draw() {
      this.cells = [];
      const grids = this.data.grids.map((grid) => this.grid(grid));
      const loose = this.data.loose.length ? [this.loose()] : [];
      this.sheet.replaceChildren(...loose, ...grids);
      const first = this.cells[0];
      if (first) first.button.tabIndex = 0;
    }

    grid(grid) {
      const body = grid.sections.flatMap(([prefix, part, layers]) => {
        const rows = this.state.folded ? folded(layers) : layers.map(([layer, classes]) => [[layer], classes]);
        const title = el("th", { class: "section", colspan: grid.cols.length + 1, scope: "rowgroup" },
          el("span", {}, code(prefix), ` ${part}, ${layers.length} ${layers.length === 1 ? "layer" : "layers"}`));
        return [el("tr", { role: "row" }, title), ...rows.map((row) => this.row(grid, prefix, row))];
      });
      return el("table", { class: "grid", role: "grid", "aria-label": "layers down, kinds of modules across", onkeydown: (event) => this.key(event) },
        heads(grid.cols), el("tbody", {}, ...body));
    }

    row(grid, prefix, [layers, classes]) {
      const text = ranges(layers);
      const name = `${prefix}.${layers.length > 1 ? `{${text}}` : text}`;
      const row = el("tr", { role: "row" }, el("th", { class: "row", scope: "row", title: name, text }));
      classes.forEach((number, at) => {
        const kind = grid.cols[at];
        row.append(number < 0 ? el("td", { role: "gridcell" }) :
          el("td", { role: "gridcell" }, this.cell(number, `${name}.${kind}`, String(layers[0]), layers.length)));
      });
      return row;
    }

    loose() {
      return el("div", { class: "loose", role: "group", "aria-label": "modules outside of the layers", onkeydown: (event) => this.key(event) },
        ...this.data.loose.map(([name, , number]) => el("label", {}, this.cell(number, name, "", 1), name)));
    }

    cell(number, name, layer, layers) {
      const members = this.members[number];
      const button = el("button", { type: "button", class: "cell", tabindex: "-1", "aria-pressed": "false" });
      const cell = { button, name, layer, layers, members };
      button.addEventListener("click", () => this.pick(cell));
      this.cells.push(cell);
      return button;
    }

    /** Arrows move in the grid by row and column, Home and End in the row, with Ctrl in the whole grid. */
    key(event) {
      const from = event.target.closest(".cell");
      const moves = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], PageDown: [10, 0], PageUp: [-10, 0], Home: [0, -999], End: [0, 999] };
      const move = moves[event.key];
      if (!from || !move || event.altKey || event.metaKey) return;
      event.preventDefault();
      const target = nextCell(this.sheet, from, move, event.ctrlKey);
      if (target) this.focus(target);
    }

    focus(button) {
      for (const cell of this.cells) if (cell.button.tabIndex === 0) cell.button.tabIndex = -1;
      button.tabIndex = 0;
      button.focus();
      button.scrollIntoView({ block: "nearest", inline: "nearest" });
    }

    // -- what changes with the switches

    update() {
      this.sync();
      this.trouble = [];
      for (const cell of this.cells) {
        const states = cell.members.map((one) => standing(rulings(this.data, one, this.state.view, this.state.side)));
        const state = states.reduce((worst, one) => (RANK.indexOf(one) > RANK.indexOf(worst) ? one : worst));
        if (wrong(state)) this.trouble.push(cell);
        cell.hit = cell.members.reduce((sum, one, at) => sum + (wrong(states[at]) ? one.count : 0), 0) * cell.layers;
        this.paint(cell, state);
      }
      this.say();
      this.tell();
    }

    paint({ button, name, members }, state) {
      const [scheme, kind] = this.data.schemes[members[0].scheme];
      const mixed = new Set(members.map((one) => one.scheme)).size > 1 ? " mixed" : "";
      button.className = `cell ${kind} p${this.colour(members[0].scheme)} ${state}${mixed}`;
      button.textContent = { absent: "–", unknown: "?" }[state] || "";
      const words = { fails: "fails", degrades: "loads wrong", absent: "not built", unknown: "unknown", none: "not asked for", "": "agrees" }[state];
      button.setAttribute("aria-label", `${name}, stored ${scheme}${mixed && " and others"}, ${words}`);
      button.title = `${name}\nstored ${scheme}: ${words}`;
    }

    colour(scheme) {
      const packed = this.data.schemes.map(([, kind], at) => (kind === "packed" ? at : -1)).filter((at) => at >= 0);
      return Math.max(packed.indexOf(scheme), 0) % 8;
    }

    /** What the switches have chosen, in a line: the verdicts, and how many modules disagree. */
    say() {
      const verdicts = this.view[this.state.side];
      const parts = Object.entries(verdicts).map(([part, [verdict]]) =>
        el("span", { class: `pill ${TONES[verdict]}`, text: `${part}: ${MARKS[verdict]} ${verdict}` }));
      const count = this.trouble.reduce((sum, cell) => sum + cell.hit, 0);
      const words = count ? `${count.toLocaleString("en")} ${count === 1 ? "module disagrees" : "modules disagree"}` :
        Object.values(verdicts).every(([verdict]) => verdict === "loads") ? "every module loads as it is stored" : reasons(verdicts);
      const next = count ? el("button", { type: "button", class: "jump", text: this.trouble.length > 1 ? "next" : "show", onclick: () => this.jump() }) : null;
      this.says.replaceChildren(...parts, el("span", { text: words }), ...(next ? [next] : []));
    }

    jump() {
      const cell = this.trouble[(this.trouble.indexOf(this.picked) + 1) % this.trouble.length];
      this.pick(cell);
      this.focus(cell.button);
    }

    legend() {
      const { data } = this;
      const sample = (classes, text, mark = "") => el("li", {}, el("span", { class: `cell ${classes}`, text: mark, "aria-hidden": true }), text);
      const decided = (decision) => data.rulings.some((raw) => raw[2] === decision);
      const mixed = data.classes.some((members) => new Set(members.map((raw) => raw[2])).size > 1);
      return el("ul", { class: "legend", "aria-label": "legend" },
        ...data.schemes.map(([name, kind, count], at) => sample(`${kind} p${this.colour(at)}`, `${name}${times(count)}`)),
        mixed ? sample("plain mixed", "experts stored unlike") : null,
        sample("fails plain", "decided otherwise than stored: loading fails"),
        sample("degrades plain", "loads, silently wrong"),
        decided("absent") ? sample("plain absent", "not built", "–") : null,
        decided("unknown") ? sample("plain", "unknown", "?") : null);
    }

    // -- the chosen cell

    pick(cell) {
      this.show(cell);
      this.remember();
    }

    show(cell) {
      if (this.picked) this.picked.button.setAttribute("aria-pressed", "false");
      this.picked = cell;
      cell.button.setAttribute("aria-pressed", "true");
      for (const one of this.cells) if (one.button.tabIndex === 0) one.button.tabIndex = -1;
      cell.button.tabIndex = 0;
      this.tell();
    }

    tell() {
      if (!this.picked) {
        this.detail.replaceChildren(el("p", { class: "faint", text: "Choose a cell: its tensors, what each engine decides about them, and the entry or rule that decided." }));
        return;
      }
      const cell = this.picked;
      const ill = (one) => wrong(standing(rulings(this.data, one, this.state.view, this.state.side)));
      const members = [...cell.members.filter(ill), ...cell.members.filter((one) => !ill(one))];
      this.detail.replaceChildren(el("h3", {}, code(cell.name)), ...members.flatMap((one) => this.memberText(cell, one)));
    }

    memberText(cell, one) {
      const [scheme] = this.data.schemes[one.scheme];
      const experts = one.experts ? `experts ${one.experts}${times(one.count)}; tensors of one of them` : "";
      const rows = one.tensors.map(([suffix, dtype, shape]) => el("tr", {},
        el("td", {}, code(suffix)), el("td", { text: dtype }), el("td", { text: shape.join(" × ") || "scalar" })));
      return [
        el("p", {}, "stored ", el("strong", { text: scheme }), experts ? `; ${experts}` : "", one.listed ? "" : "; the index does not list it, no engine opens it"),
        table(["tensor", "dtype", "shape"], rows),
        ...this.decided(cell, one, scheme),
        el("h4", { text: "Every engine and release" }),
        this.everywhere(one, scheme),
      ];
    }

    decided(cell, one, scheme) {
      const { view } = this;
      const sides = this.data.changed ? SIDES : SIDES.slice(0, 1);
      const shown = new Map();
      for (const [side, title] of sides) {
        const found = rulings(this.data, one, this.state.view, side);
        const same = JSON.stringify(found);
        if (shown.has(same)) shown.get(same).titles.push(title);
        else shown.set(same, { titles: [title], found });
      }
      return [...shown.values()].flatMap(({ titles, found }) => [
        el("h4", { text: `${view.engine} ${span(view)}${this.data.changed ? `, ${titles.join(" and ")}` : ""}` }),
        ...(found.length ? found.map((what) => this.rulingText(cell, what, scheme)) : [el("p", { class: "faint", text: reasons(view.before) || "nothing is asked about it" })]),
      ]);
    }

    rulingText(cell, open, scheme) {
      const what = inLayer(open, cell.layer);
      const indexes = Object.hasOwn(this.data.places, what.place) ? this.data.places[what.place] : {};
      const index = Object.hasOwn(indexes, what.entry) ? indexes[what.entry] : undefined;
      const by = what.place ? [code(what.entry), " in ", code(what.place + (index === undefined ? "" : `/${index}`))] : what.rule;
      return list([
        ["part", what.part],
        ["asked as", what.runtime ? code(what.runtime) : ""],
        ["stored", scheme],
        ["built", el("strong", { class: TONES[what.verdict || "loads"] }, built(what))],
        ["decided by", by],
        ["so", what.verdict ? `${what.verdict}: ${what.why}` : ""],
        ["error", what.error ? el("pre", { class: "error-text", text: what.error }) : ""],
      ]);
    }

    everywhere(one) {
      const rows = this.ordered().map(({ view, at }) => el("tr", { class: at === this.state.view ? "now" : null },
        el("td", { text: view.engine }), el("td", { text: span(view) }),
        ...(this.data.changed ? SIDES : SIDES.slice(0, 1)).map(([side]) => el("td", {}, ...summary(rulings(this.data, one, at, side))))));
      return table(["engine", "releases", ...(this.data.changed ? SIDES.map(([, title]) => title) : ["builds it"])], rows);
    }
  }

  // ---- helpers of the grid

  /** Column heads: a row of parents over a row of leaves; a kind alone under its parent keeps its whole name. */
  function heads(cols) {
    const groups = [];
    for (const kind of cols) {
      const parent = kind.slice(0, Math.max(kind.lastIndexOf("."), 0));
      const last = groups[groups.length - 1];
      if (last && last.parent === parent) last.kinds.push(kind);
      else groups.push({ parent, kinds: [kind] });
    }
    const top = groups.map(({ parent, kinds }) => el("th", kinds.length > 1 && parent ?
      { class: "group", colspan: kinds.length, scope: "colgroup", title: parent, text: ending(parent, 4 * kinds.length) } : { colspan: kinds.length }));
    const leaves = groups.flatMap(({ parent, kinds }) => kinds.map((kind) => el("th", { class: "leaf", scope: "col", title: kind },
      el("span", { text: kinds.length > 1 && parent ? kind.slice(parent.length + 1) : kind }))));
    return el("thead", {}, el("tr", {}, el("td", { class: "row" }), ...top), el("tr", {}, el("td", { class: "row" }), ...leaves));
  }

  /** The end of a dotted name, as many whole steps as fit, or a piece of the last one. */
  function ending(name, room) {
    const steps = name.split(".");
    while (steps.length > 1 && steps.join(".").length > room) steps.shift();
    const text = steps.join(".");
    return text.length > room ? `…${text.slice(1 - room)}` : text;
  }

  /** Layers whose cells are all of the same classes as one row. */
  function folded(layers) {
    const alike = new Map();
    for (const [layer, classes] of layers) {
      const same = classes.join();
      if (alike.has(same)) alike.get(same)[0].push(layer);
      else alike.set(same, [[layer], classes]);
    }
    return [...alike.values()];
  }

  function nextCell(sheet, from, [down, right], whole) {
    const lines = [...sheet.querySelectorAll(".loose, .grid tbody tr")].map((line) => [...line.querySelectorAll(".cell")]).filter((line) => line.length);
    const place = (button) => { const td = button.closest("td"); return td ? td.cellIndex : 1 + [...button.closest(".loose").querySelectorAll(".cell")].indexOf(button); };
    let at = lines.findIndex((line) => line.includes(from));
    if (Math.abs(right) > 1 && whole) { at = right < 0 ? 0 : lines.length - 1; }
    if (right) {
      const line = lines[at];
      return line[Math.min(Math.max(line.indexOf(from) + right, 0), line.length - 1)];
    }
    at = Math.min(Math.max(at + down, 0), lines.length - 1);
    return lines[at].reduce((best, one) => (Math.abs(place(one) - place(from)) < Math.abs(place(best) - place(from)) ? one : best));
  }

  const built = (what) => what.decision === "quantized" ? what.scheme || "quantized" :
    { plain: "plain", absent: "not at all", unknown: "unknown", error: "the engine stops" }[what.decision];

  function summary(found) {
    if (!found.length) return [el("span", { class: "faint", text: "–" })];
    return found.flatMap((what, at) => [
      ...(at ? [document.createTextNode(", ")] : []),
      el("span", { class: what.verdict ? TONES[what.verdict] : "", text: `${what.verdict ? MARKS[what.verdict] : ""} ${built(what)}`.trim() }),
    ]);
  }

  // ---- the page

  const reports = JSON.parse(document.getElementById("data").textContent);
  for (const box of document.querySelectorAll(".map")) new Atlas(box, reports[Number(box.dataset.at)]);
  for (const button of document.querySelectorAll(".copy")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.previousElementSibling.textContent);
      button.textContent = "copied";
    });
  }
})();
