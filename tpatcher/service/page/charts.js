// Two small charts: which fix responds to which question, and what happened when.
import {$, make, short} from "./dom.js";

export function heat({fixes, questions, responses}) {
  if (!fixes.length || !questions.length)
    return $("heat").replaceChildren(make("div", {class: "empty"}, "Ask something, and fix something, to see this."));
  const cell = 22, left = 30, width = left + cell * Math.max(16, questions.length), height = cell * fixes.length + 8;
  const svg = make("svg:svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Responses of ${fixes.length} fixes to ${questions.length} questions`});
  fixes.forEach((fix, y) => {
    svg.append(make("svg:text", {x: left - 8, y: y * cell + 15, "text-anchor": "end"}, String(fix.id)));
    questions.forEach((question, x) => {
      const r = responses[y][x], fired = r > 0;
      const box = make("svg:rect", {x: left + x * cell + 1, y: y * cell + 1, width: cell - 2, height: cell - 2, rx: 3,
        class: fired ? "cell fired" : "cell",
        "fill-opacity": fired ? 1 : Math.max(0.25, Math.min(0.9, 0.9 + r / 12)).toFixed(2)});
      box.append(make("svg:title", {}, `fix ${fix.id}: ${r} on “${short(question.text)}” → ${question.answer}`));
      svg.append(box);
    });
  });
  $("heat").replaceChildren(svg, make("div", {class: "note"},
    "A row is a fix, a column one of the latest questions. Coloured: it fired."));
}

export function time(events, now) {
  const kinds = [["fix", "fixed"], ["refused", "refused"], ["undo", "undone"]];
  const shown = events.map(e => ({...e, what: e.what === "rollback" ? "undo" : e.what}));
  if (!shown.length)
    return $("time").replaceChildren(make("div", {class: "empty"}, "Nothing has happened yet."));
  const times = shown.map(e => Date.parse(e.at)), from = Math.min(...times), to = Math.max(now, from + 60000);
  const bins = 24, counts = kinds.map(() => Array(bins).fill(0));
  shown.forEach((e, i) => counts[kinds.findIndex(k => k[0] === e.what)][Math.min(bins - 1, Math.floor((times[i] - from) / (to - from) * bins))]++);
  const most = Math.max(...counts[0].map((_, b) => counts.reduce((sum, c) => sum + c[b], 0)));
  const svg = make("svg:svg", {viewBox: "0 0 360 132", role: "img",
    "aria-label": kinds.map((k, i) => counts[i].reduce((a, b) => a + b) + " " + k[1]).join(", ")});
  for (let b = 0; b < bins; b++) {
    let y = 104;
    kinds.forEach(([kind], i) => {
      const h = counts[i][b] / most * 86;
      if (h) svg.append(make("svg:rect", {x: 2 + b * 15, y: y - h, width: 12, height: h - 1, rx: 2, class: "fill-" + kind}));
      y -= h;
    });
  }
  const clock = t => new Date(t).toLocaleString([], {month: "short", day: "numeric", hour: "2-digit", minute: "2-digit"});
  svg.append(make("svg:line", {x1: 0, x2: 360, y1: 105, y2: 105, class: "axis"}),
    make("svg:text", {x: 0, y: 9}, "most: " + most), make("svg:text", {x: 0, y: 122}, clock(from)), make("svg:text", {x: 360, y: 122, "text-anchor": "end"}, clock(to)));
  $("time").replaceChildren(svg, make("div", {class: "note"}, ...kinds.flatMap(([kind, word], i) => [
    make("span", {class: "key " + kind}),
    counts[i].reduce((a, b) => a + b) + " " + word])));
}
