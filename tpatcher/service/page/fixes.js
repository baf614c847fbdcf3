// The list of fixes: search, pages, undo, what was checked, export.
import {$, call, guarded, make, may, send} from "./dom.js";
import {checked} from "./words.js";

const SIZE = 50, back = [];  // where the pages before this one begin
let before = null, next = null, timer = 0, renew = () => {};

export function start(refresh) {
  renew = refresh;
  $("search").addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(first, 250);
  });
  $("live-only").addEventListener("change", first);
  $("older").addEventListener("click", () => { back.push(before); before = next; load(); });
  $("newer").addEventListener("click", () => { before = back.pop() ?? null; load(); });
  for (const button of $("export").querySelectorAll("button"))
    button.addEventListener("click", () => guarded("undo-error", button, () => download(button.dataset.format)));
}

function first() {
  back.length = 0;
  before = null;
  return load();
}

const load = () => guarded("undo-error", null, list);

export async function list() {
  const wanted = new URLSearchParams({limit: SIZE});
  if (before) wanted.set("before", before);
  if ($("search").value.trim()) wanted.set("search", $("search").value.trim());
  if ($("live-only").checked) wanted.set("live", "true");
  const found = await call("GET", "v1/fixes?" + wanted);
  next = found.next;
  $("fixes-count").textContent = found.total ? `${found.live.toLocaleString()} live of ${found.total.toLocaleString()}` : "";
  $("pages").hidden = !next && !back.length;
  $("older").disabled = !next;
  $("newer").disabled = !back.length;
  $("export").hidden = !found.live;
  $("finding").hidden = !found.total;
  const open = new Set([...$("fixes").querySelectorAll("details[open]")].map(d => d.dataset.id));
  const nothing = $("search").value || $("live-only").checked ? "Nothing is found." : "None yet.";
  $("fixes").replaceChildren(...(found.fixes.length ? found.fixes.map(one => item(one, open.has(String(one.id))))
    : [make("li", {class: "empty"}, nothing)]));
}

function item(one, open) {
  const details = make("details", {"data-id": one.id},
    make("summary", {}, (one.who ? "by " + one.who + ", " : "") + new Date(one.at).toLocaleString()));
  const fill = () => {
    const checks = one.checks || {};
    if (checks.guard && checks.certificate && details.childElementCount === 1)
      details.append(make("ul", {class: "checked"}, ...checked({
        guard: {flipped: [], nearest: [], ...checks.guard}, certificate: checks.certificate, answer: one.answer})));
  };
  details.addEventListener("toggle", fill);
  if (open) { details.open = true; fill(); }
  return make("li", {},
    make("div", {class: "what"}, make("span", {class: "number"}, one.id + " "),
      make("span", {class: one.live ? "" : "off"}, (one.text || "(no text)") + " → " + (one.answer || ""))),
    one.live && may("fix") ? make("button", {class: "small", "aria-label": "Undo fix " + one.id,
      onclick: event => guarded("undo-error", event.currentTarget, () => undo(one.id))}, "Undo") : null,
    details);
}

async function undo(id) {
  const gone = await call("DELETE", "v1/fixes/" + id);
  await list();
  renew();
  if (gone.no_longer_hold.length)
    $("undo-error").textContent = "These fixes leaned on it and no longer hold: " + gone.no_longer_hold.join(", ");
}

async function download(format) {
  const found = await send("GET", "v1/export?format=" + format);
  const link = make("a", {href: URL.createObjectURL(await found.blob()),
    download: format === "dify" ? "dify.csv" : "fixes.jsonl"});
  link.click();
  URL.revokeObjectURL(link.href);
}
