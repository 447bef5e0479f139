// The requests of the page to hvdrun, with the token that opens it. The link leads to an address with the
// token behind its #, which no browser sends anywhere. The token is kept for this origin, its port
// included: at another port of the machine another user's program may listen.

const STORE = "hvd-token";

const given = /^#([0-9a-f]{64})$/.exec(location.hash);
if (given) {
  localStorage.setItem(STORE, given[1]);
  history.replaceState(null, "", "/");
}

// As fetch().
export function get(target, signal) {
  const token = localStorage.getItem(STORE) ?? "";
  return fetch(target, { cache: "no-store", signal, headers: { Authorization: `Bearer ${token}` } });
}

// {event, id, data} of the lines of one server-sent event. Those of hvdrun have one line of data.
function fieldsOf(lines) {
  const fields = {};
  for (const line of lines.split("\n")) {
    const colon = line.indexOf(":");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 1).trimStart();
  }
  return fields;
}

// Hands on server-sent events until the connection ends.
export async function hearEvents(target, take) {
  const answer = await get(target);
  if (!answer.ok) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    parts.map(fieldsOf).forEach(take);
  }
}
