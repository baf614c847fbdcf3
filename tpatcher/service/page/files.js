// The rows of a file: CSV, TSV, JSON or JSONL, each with its number; and those that cannot be read.

export function rows(name, text) {
  text = text.replace(/^\uFEFF/, "");
  const kind = name.toLowerCase().split(".").pop();
  if (kind === "csv" || kind === "tsv") return table(text, kind === "csv" ? "," : "\t");
  if (kind === "json" && /^\s*[[{]/.test(text)) {
    try { return whole(JSON.parse(text)); }
    catch (problem) { if (/^\s*\[/.test(text)) return {found: [], bad: [[1, String(problem.message)]]}; }
  }
  return lines(text);
}

const WRAPPERS = ["data", "runs", "records", "tasks", "results"];

function whole(read) {
  const inside = Array.isArray(read) ? read : WRAPPERS.map(name => read[name]).find(Array.isArray) || [read];
  const found = [], bad = [];
  inside.forEach((row, i) => (row && typeof row === "object" && !Array.isArray(row)
    ? found.push([i + 1, row]) : bad.push([i + 1, "not a JSON object"])));
  return {found, bad};
}

function lines(text) {
  const found = [], bad = [];
  text.split("\n").forEach((line, i) => {
    if (!line.trim()) return;
    try {
      const row = JSON.parse(line);
      if (!row || typeof row !== "object" || Array.isArray(row)) throw new Error("not a JSON object");
      found.push([i + 1, row]);
    } catch (problem) { bad.push([i + 1, problem.message]); }
  });
  return {found, bad};
}

function table(text, comma) {
  const found = [], bad = [];
  let header = null, number = 0;
  for (const cells of records(text, comma)) {
    number++;
    if (cells.every(cell => !cell.trim())) continue;
    if (!header) header = cells.map(cell => cell.trim());
    else if (cells.length > header.length) bad.push([number, `${cells.length} cells, but ${header.length} columns`]);
    else found.push([number, Object.fromEntries(cells.map((cell, i) => [header[i], cell]))]);
  }
  return {found, bad};
}

// A quoted cell may hold commas, line breaks and, doubled, quotes.
function* records(text, comma) {
  let cells = [], cell = "", quoted = false;
  for (let i = 0; i < text.length; i++) {
    const c = text[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (text[i + 1] === '"') { cell += c; i++; }
      else quoted = false;
    } else if (c === '"' && !cell) quoted = true;
    else if (c === comma) { cells.push(cell); cell = ""; }
    else if (c === "\n") { yield [...cells, cell.replace(/\r$/, "")]; cells = []; cell = ""; }
    else cell += c;
  }
  if (cell || cells.length) yield [...cells, cell];
}
