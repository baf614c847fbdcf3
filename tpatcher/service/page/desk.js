// The desk: reports that wait for a person, and files of corrections that fill it.
import {$, call, guarded, make, send, short} from "./dom.js";
import {mend} from "./mend.js";
import {rows} from "./files.js";

const BLOCK = 100, SHOWN = 20;  // rows a request, and bad rows that are named
let renew = () => {};

export function start(refresh) {
  renew = refresh;
  $("file").addEventListener("change", () => guarded("import-error", $("file"), take));
}

export async function list() {
  const found = await send("GET", "v1/reports"), reports = await found.json();
  const total = Number(found.headers.get("X-Total-Count"));
  $("queue-count").textContent = total ? `${total.toLocaleString()} waiting` : "";
  const shown = reports.slice(0, 20);
  $("queue").replaceChildren(...(shown.length ? shown.map(item) : [make("li", {class: "empty"}, "Nothing is waiting.")]),
    ...(total > shown.length ? [make("li", {class: "empty"}, `and ${(total - shown.length).toLocaleString()} more after these`)] : []));
}

function item(one) {
  const proposed = one.note === "proposed by the model";
  const said = [one.said !== null ? "said " + one.said : null,
    one.answer ? (proposed ? "proposed: " : "right: ") + one.answer : null,
    one.note && !proposed ? one.note : null, "by " + one.who];
  return make("li", {},
    make("div", {class: "what"}, one.text, make("div", {class: "note"}, said.filter(Boolean).join(" · "))),
    make("span", {class: "buttons"},
      make("button", {class: "small", onclick: () => mend(one.text, one.answer, one.id)}, proposed ? "Look" : "Fix"),
      make("button", {class: "small", "aria-label": "Dismiss the report of " + short(one.text), onclick: async () => {
        await call("DELETE", "v1/reports/" + one.id); renew(); }}, "Dismiss")));
}

// The file is read here and sent in blocks, so that it may be large and progress can be seen.
async function take() {
  const [file] = $("file").files;
  if (!file) return;
  $("imported").textContent = "";
  $("bad-rows").replaceChildren();
  const {found, bad} = rows(file.name, await file.text());
  const sum = {added: 0, known: 0, without: 0};
  $("progress").hidden = false;
  try {
    for (let start = 0; start < found.length; start += BLOCK) {
      const part = found.slice(start, start + BLOCK);
      const done = await call("POST", "v1/reports/auto", part.map(([, row]) => row));
      for (const name of Object.keys(sum)) sum[name] += done[name];
      bad.push(...done.bad.map(one => [part[one.row - 1]?.[0] ?? 0, one.why]));
      $("progress").value = Math.min(1, (start + BLOCK) / found.length);
      if (done.full) throw new Error("The rest was left out: " + done.full);
    }
  } finally {
    $("progress").hidden = true;
    $("file").value = "";
    $("imported").textContent = `${sum.added} reports added, ${sum.known} known already, ` +
      `${sum.without} rows correct nothing, ${bad.length} bad rows.`;
    $("bad-rows").replaceChildren(...bad.slice(0, SHOWN).map(([line, why]) => make("li", {}, `row ${line}: ${why}`)));
    renew();
  }
}
