// Asking: one text, or with a chat model a whole conversation under a system prompt.
import {$, call, guarded, make, state} from "./dom.js";
import {mend} from "./mend.js";

let renew = () => {};
const turns = [];  // what was said before, oldest first

export function start(refresh) {
  renew = refresh;
  $("ask").addEventListener("submit", event => {
    event.preventDefault();
    guarded("ask-error", event.submitter, () => ask($("text").value));
  });
  $("text").addEventListener("keydown", event => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      $("ask").requestSubmit();
    }
  });
  $("anew").addEventListener("click", () => { turns.length = 0; $("said").hidden = true; show(); $("text").focus(); });
  $("wrong").addEventListener("click", () => mend(state.current.text, "", null, state.current.context));
}

const system = () => $("system").value.trim() ? [{role: "system", content: $("system").value.trim()}] : [];

export async function ask(text, context = state.about.chat ? [...system(), ...turns] : []) {
  const found = state.about.chat ? await chat(text, context) : await single(text);
  state.current = {...found, context};
  $("said").hidden = false;
  $("asked").textContent = found.text;
  $("answer").textContent = found.answer || "(nothing)";
  $("why").replaceChildren(...(found.fixes.length
    ? ["fired: ", ...found.fixes.flatMap(id => [make("span", {class: "chip"}, "fix " + id), " "])]
    : ["no fix fired"]));
  show();
  renew();
}

async function single(text) {
  const {answers: [found]} = await call("POST", "v1/answer", {text});
  return found;
}

async function chat(text, context) {
  const messages = [...context, {role: "user", content: text}];
  const found = await call("POST", "v1/chat/completions", {messages});
  const answer = found.choices[0].message.content;
  const earlier = context.filter(m => m.role !== "system");
  turns.splice(0, turns.length, ...earlier, {role: "user", content: text}, {role: "assistant", content: answer});
  if (state.about.chat) $("text").value = "";
  return {text, answer, fixes: found.fixes};
}

function show() {
  const before = turns.slice(0, -2);  // the last question and answer stand below
  $("anew").hidden = !turns.length;
  $("turns").hidden = !before.length;
  $("turns").replaceChildren(...before.map(turn => make("li", {class: turn.role}, turn.content)));
}
