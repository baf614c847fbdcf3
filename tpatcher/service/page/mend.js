// Putting a mistake right: what would change, then the fix; or only a report of it.
import {$, call, guarded, make, may, short, state} from "./dom.js";
import {checked} from "./words.js";

let renew = () => {}, ask = () => {};

export function start(refresh, again) {
  renew = refresh;
  ask = again;
  $("cancel").addEventListener("click", close);
  $("mend").addEventListener("keydown", event => { if (event.key === "Escape") close(); });
  $("fix").addEventListener("input", () => { $("effect").hidden = true; });
  $("fix").addEventListener("submit", event => {
    event.preventDefault();
    guarded("fix-error", $("try"), async () => {
      $("effect").hidden = true;
      show(await call("POST", "v1/fixes", {...wanted(), dry_run: true}));
    });
  });
  $("propose").addEventListener("click", () => guarded("fix-error", $("propose"), propose));
  $("apply").addEventListener("click", () => guarded("fix-error", $("apply"), apply));
  $("queue-it").addEventListener("click", () => guarded("fix-error", $("queue-it"), queue));
}

function close() {
  $("mend").hidden = true;
  $("text").focus();
}

export function mend(text, answer, report, context = []) {
  Object.assign(state, {report, context});
  $("mend").hidden = false;
  $("effect").hidden = true;
  $("fix-error").textContent = $("ways").value = "";
  $("mistake").value = text;
  $("context").hidden = !context.length;
  $("context").textContent = context.length
    ? `In this conversation: ${context.map(m => `${m.role}: ${short(m.content, 80)}`).join(" · ")}` : "";
  const labels = state.about.labels;
  $("label").hidden = !($("right").hidden = Boolean(labels));
  $("label").value = answer || (labels || []).find(l => !state.current || l !== state.current.answer) || "";
  $("right").value = answer || "";
  $("try").hidden = $("propose").hidden = !may("fix");
  (labels ? $("label") : $("right")).focus();
  $("mend").scrollIntoView({block: "nearest"});
}

const right = () => state.about.labels ? $("label").value : $("right").value;
const rephrasings = () => $("ways").value.split("\n").map(w => w.trim()).filter(Boolean);
const asked = () => state.context.length
  ? {messages: [...state.context, {role: "user", content: $("mistake").value}]} : {text: $("mistake").value};
const wanted = () => ({...asked(), answer: right(), rephrasings: rephrasings()});

// Nobody knows the right answer: the model's next best one, for a person to look at.
async function propose() {
  $("effect").hidden = true;
  const text = $("mistake").value;
  const known = state.current?.text === text ? state.current.answer
    : (await call("POST", "v1/answer", {text})).answers[0].answer;
  const found = await call("POST", "v1/fixes",
    {...asked(), wrong: known || " ", rephrasings: rephrasings(), dry_run: true});
  (state.about.labels ? $("label") : $("right")).value = found.answer;
  show(found);
}

function show(found) {
  const refused = found.would_refuse.length > 0;
  $("effect-title").textContent = refused ? "The guard would refuse this" : "What would change";
  $("effects").replaceChildren(...checked(found));
  $("apply").hidden = refused && !state.about.shadow;
  $("effect").hidden = false;
  $("effect").scrollIntoView({block: "nearest"});
  if (!$("apply").hidden) $("apply").focus();
}

async function apply() {
  const body = wanted(), text = $("mistake").value, context = state.context;
  await call("POST", "v1/fixes", state.report ? {...body, report: state.report} : body);
  $("mend").hidden = true;
  if (!state.about.chat) $("text").value = text;
  await ask(text, context);
}

async function queue() {
  const text = $("mistake").value, said = state.current?.text === text ? state.current.answer : null;
  const note = state.context.length ? short($("context").textContent, 500) : null;
  await call("POST", "v1/reports", {text, said, answer: right() || null, note});
  $("mend").hidden = true;
  renew();
}
