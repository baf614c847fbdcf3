// The page: it looks at the service every five seconds, and all parts of it are told.
import {$, call, make, may, state} from "./dom.js";
import * as asking from "./ask.js";
import * as mending from "./mend.js";
import * as desk from "./desk.js";
import * as fixes from "./fixes.js";
import {heat, time} from "./charts.js";

const EVERY = 5000;
const TASKS = {classify: "classifier", seq2seq: "text to text", causal: "language model"};
let seen = "";

async function refresh() {
  const about = state.about = await call("GET", "v1/model");
  $("about").textContent = `${about.name} · ${about.chat ? "chat model" : TASKS[about.task] || about.task} · ${about.fixes.toLocaleString()} ${about.fixes === 1 ? "fix" : "fixes"} live`
    + (about.shadow ? " · shadow" : "");
  if (about.labels && !$("label").options.length)
    $("label").append(...about.labels.map(l => make("option", {value: l}, l)));
  $("system-part").hidden = !about.chat;
  $("wrong").hidden = $("import").hidden = !may("report");
  if (may("report") && seen !== `${about.fingerprint} ${about.head}`) {
    await fixes.list();
    seen = `${about.fingerprint} ${about.head}`;
  }
  if (may("fix")) {
    await desk.list();
    const activity = await call("GET", "v1/activity");
    heat(activity);
    time(activity.events, 1000 * activity.now);
  }
}

const renew = () => refresh().catch(() => {});  // the next look will do
asking.start(renew);
mending.start(renew, asking.ask);
desk.start(renew);
fixes.start(renew);
document.addEventListener("keydown", event => {
  const typing = event.target.closest?.("input, textarea, select, dialog");
  if (event.key === "/" && !typing) { event.preventDefault(); $("search").focus(); }
});
refresh().catch(problem => { $("about").textContent = problem.message; });
setInterval(() => { if (!document.hidden && !$("token").open) renew(); }, EVERY);
