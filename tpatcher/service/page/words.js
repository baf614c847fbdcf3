// What was checked about a fix, in words for people who write no programs.
import {make, short} from "./dom.js";

const KINDS = {
  sisters: "asking something else about the same subject",
  neighbours: "asking the same about other subjects",
  negations: "saying the opposite",
  numbers: "with another number",
  given: "given as an example",
};
const many = (n, one, more = one + "s") => n.toLocaleString() + " " + (n === 1 ? one : more);

function line(ok, text, below = []) {
  return make("li", {class: ok === null ? "" : ok ? "yes" : "no"}, make("span", {}, text,
    below.length ? make("ul", {}, ...below.map(one => make("li", {}, one))) : null));
}

export function checked({guard, certificate, answer, would_refuse: reasons = []}) {
  const lines = [];
  lines.push(guard.right
    ? line(true, answer ? `The answer becomes “${answer}”. The model with the fix was really asked.`
      : "The model with the fix was really asked, and its answer was right.")
    : line(false, "The answer would still be wrong."));
  const ways = Object.entries(guard.rephrasings || {});
  if (ways.length) {
    const same = ways.filter(([, said]) => answer && said.trim().toLowerCase() === answer.trim().toLowerCase());
    lines.push(line(!answer || same.length === ways.length,
      answer ? `Asked in other words: ${same.length} of ${ways.length} get the same answer.` : "Asked in other words:",
      ways.map(([way, said]) => `${short(way, 60)} → ${said}`)));
  }
  if (guard.unlike?.length)
    lines.push(line(false, `${many(guard.unlike.length, "text")} given as the same question in other words is something else:`,
      guard.unlike.slice(0, 3).map(one => short(one, 80))));
  if (guard.canaries)
    lines.push(guard.flipped.length
      ? line(false, `${guard.flipped.length} of ${guard.canaries} protected examples would become wrong:`,
        guard.flipped.slice(0, 3).map(one => short(one, 80)))
      : line(true, `All ${guard.canaries} protected examples keep their answers.`));
  lines.push(guard.broken.length
    ? line(false, `Earlier fixes would break: ${guard.broken.join(", ")}.`)
    : line(true, "All earlier fixes still hold."));
  if (certificate.memory_changed !== undefined)
    lines.push(line(certificate.memory_changed === 0, certificate.memory_changed
      ? `${many(certificate.memory_changed, "answer")} to ordinary texts would change.`
      : "Not one answer to the ordinary texts in its memory changes."));
  if (guard.share !== null && guard.share !== undefined && guard.traffic)
    lines.push(line(guard.share === 0 ? true : null, guard.share === 0
      ? `None of ${many(guard.traffic, "ordinary text")} with another answer sets it off.`
      : `${(100 * guard.share).toFixed(2)} % of ${many(guard.traffic, "ordinary text")} with another answer set it off.`));
  const held = Object.entries(certificate.contrast || {});
  if (held.length)
    lines.push(line(true, "Texts much like it keep their answers:",
      held.map(([kind, n]) => `${many(n, "text")} ${KINDS[kind] || kind}`)));
  if (guard.asked)
    lines.push(line(null, guard.asked_firing
      ? `${guard.asked_firing} of the last ${guard.asked} questions with another answer set it off: look whether they are the same mistake.`
      : `No recent question with another answer sets it off (${guard.asked} looked at).`));
  if (guard.nearest?.length)
    lines.push(make("li", {}, make("details", {}, make("summary", {}, "Ordinary texts that come nearest"),
      make("ul", {}, ...guard.nearest.slice(0, 5).map(near => make("li", {}, short(near.text, 80)))))));
  return [...lines, ...reasons.map(reason => line(false, "Refused: " + reason))];
}
