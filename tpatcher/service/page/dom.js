// Small help with the page's elements, and talking to the service.

export const $ = id => document.getElementById(id);
export const short = (text, n = 60) => text.length > n ? text.slice(0, n - 1) + "…" : text;
export const state = {about: {}, current: null, report: null, context: []};

const ROLES = ["answer", "report", "fix", "admin"];
export const may = role => ROLES.indexOf(state.about.role) >= ROLES.indexOf(role);

// All that comes from elsewhere goes in as text, never as markup.
export function make(tag, attributes = {}, ...children) {
  const node = tag.startsWith("svg:")
    ? document.createElementNS("http://www.w3.org/2000/svg", tag.slice(4))
    : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    name.startsWith("on") ? node.addEventListener(name.slice(2), value) : node.setAttribute(name, value);
  node.append(...children.filter(c => c !== null && c !== undefined));
  return node;
}

export async function send(method, path, body) {
  const headers = {}, token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const found = await fetch(path, {method, headers, body: body === undefined ? body : JSON.stringify(body)});
  if (found.status === 401) { await askToken(); return send(method, path, body); }
  if (!found.ok) {
    const {error} = await found.json();
    throw Object.assign(new Error(error.message), {status: found.status, error});
  }
  return found;
}

export async function call(method, path, body) {
  const found = await send(method, path, body);
  return found.status === 204 ? null : found.json();
}

function askToken() {
  return new Promise(done => {
    $("token").showModal();
    $("token").addEventListener("close", () => {
      sessionStorage.setItem("token", $("secret").value.trim());
      done();
    }, {once: true});
  });
}

export async function guarded(error, button, work) {
  $(error).textContent = "";
  if (button) button.disabled = true;
  try { await work(); }
  catch (problem) { $(error).textContent = problem.message; }
  finally { if (button) button.disabled = false; }
}
