// The status page of a job: asks for its status about once a second, and hears its events as they
// come. The content that has been shown stays when the job ends or the connection is lost.

import { get, hearEvents } from "/access.js";
import { EventList, KINDS, inWords, learn, timeText } from "/events.js";
import { LinePlot, StackedBars, fillTable } from "/plots.js";
import { WorldPicture } from "/world.js";

const PARTS = [
  ["leave", "to leave the world before"], ["wait", "until hvdrun had named the new one"],
  ["connect", "to connect"], ["vote", "to agree on the state"], ["sync", "to receive it"],
  ["step", "for the first step"],
];
const STATUS_PACE = 1000; // ms from one status to the next
const SOON = 150; // after a new world
const RETRY = 3000;
const MOST_PATIENCE = 5000; // ms for an answer
const LONGEST_PACE = 10000;
const MOST_READINGS = 3600;
const MOST_BARS = 12;
const MOST_SLOW = 6; // ranks that are named as slow
const MOST_ROWS = 100; // of the table of worlds
const MOST_WAITING = 10000; // events that have come and are not in the list yet
const MOST_IN_FRAME = 400; // events

const $ = (id) => document.getElementById(id);
const setText = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};

// ---- numbers in words ----

function bytesText(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) [bytes, unit] = [bytes / 1000, unit + 1];
  return `${bytes < 10 && unit > 0 ? bytes.toFixed(1) : Math.round(bytes)} ${units[unit]}`;
}
function numberText(number) {
  return number === 0 || number >= 100 ? String(Math.round(number)) : number.toPrecision(3).replace(/\.?0+$/, "");
}
function secondsText(seconds) {
  if (seconds < 1) return `${numberText(seconds * 1000)} ms`;
  return `${numberText(seconds)} s`;
}
function durationText(seconds) {
  const [whole, units] = [Math.floor(seconds), [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]]];
  const parts = units.map(([name, size], i) => {
    const number = Math.floor((i === 0 ? whole : whole % units[i - 1][1]) / size);
    return [number, `${number} ${name}`];
  });
  const first = Math.max(0, parts.findIndex(([number]) => number > 0));
  const shown = parts.slice(whole === 0 ? 3 : first, whole === 0 ? 4 : first + 2);
  return shown.map(([, text]) => text).join(" ");
}

// ---- what is shown ----

const picture = new WorldPicture($("picture"), $("detail"));
const events = new EventList($("events"), $("events-count"), $("no-events"));
const bars = new StackedBars($("entries"));
const timeLabel = (x) => timeText(x);
const worldsPlot = new LinePlot($("worlds-plot"), $("worlds-readout"), {
  stepped: true, whole: true, label: String, timeLabel,
  describe: (p) => `World ${p.generation}, ${timeText(p.x)}: ${p.y} workers${p.why ? `, since ${p.why}` : ""}`,
});
const stepsPlot = new LinePlot($("steps-plot"), $("pace-readout"), {
  label: numberText, timeLabel, describe: (p) => `${timeText(p.x)}: ${numberText(p.y)} steps/s`,
});
const bytesPlot = new LinePlot($("bytes-plot"), $("pace-readout"), {
  label: bytesText, timeLabel, describe: (p) => `${timeText(p.x)}: ${bytesText(p.y)}/s`,
});
const readings = { steps: [], bytes: [] };
let newest = null; // the status that is shown
let hasEnded = false;

for (const [part, text] of PARTS) {
  const item = document.createElement("li");
  const swatch = document.createElement("span");
  swatch.className = "swatch part";
  swatch.dataset.part = part;
  item.append(swatch, text);
  $("entries-legend").append(item);
}
for (const text of ["Workers", ...PARTS.map(([part]) => part), "All", "Received", "Slowest"]) {
  const head = document.createElement("th");
  head.scope = "col";
  head.textContent = text;
  $("entries-head").append(head);
}

function showNumbers(status) {
  const members = status.world.members;
  setText($("job"), status.job);
  setText($("command"), [...(status.command ?? [])].join(" "));
  setText($("hvdrun"), `Its process is ${status.pid}, in ${status.directory}.`);
  setText($("world-number"), String(status.world.generation));
  setText($("world-size"), String(members.length));
  const { steps_per_second: steps, bytes_per_second: bytes } = status.work;
  setText($("steps"), steps === null ? "–" : `${numberText(steps)}/s`);
  setText($("bytes"), bytes === null ? "–" : `${bytesText(bytes)}/s`);
  setText($("runs"), durationText(status.seconds));
  setText($("waits"), status.waits_for || "–");
  setState(status.state);

  const slow = members.filter((member) => member.work?.slow);
  $("slow").hidden = slow.length === 0;
  const named = slow.slice(0, MOST_SLOW).map((one) => `rank ${one.rank} (${one.worker})`).join(", ");
  const others = slow.length > MOST_SLOW ? ` and ${slow.length - MOST_SLOW} more` : "";
  setText($("slow"), `Slow: ${named}${others}`);
  const extra = status.drained.length > 0 ? `, drained: ${status.drained.join(", ")}` : "";
  const cause = status.worlds.at(-1)?.why;
  setText($("announcement"), `The job is ${status.state}; world ${status.world.generation} has ${members.length} workers` +
    `${cause ? `, since ${cause}` : ""}${extra}.`);
}

function setState(state) {
  setText($("state"), state);
  $("state").dataset.state = state;
  document.title = `${state} – job ${newest?.job ?? ""}`;
}

function workerRows(status) {
  return [...status.world.members, ...status.other_workers].map((worker) => {
    const { work } = worker;
    const remarks = [];
    if (work?.slow) remarks.push("slow");
    if (worker.leaves) remarks.push(`leaves: ${worker.leaves}`);
    if (worker.membership !== "member") remarks.push(worker.membership);
    return [
      worker.rank === null ? "–" : String(worker.rank), worker.worker, worker.host, worker.state,
      worker.pid === null ? "–" : String(worker.pid),
      work?.steps_per_second == null ? "–" : numberText(work.steps_per_second),
      work?.waited == null ? "–" : `${Math.round(100 * work.waited)} %`, remarks.join("; "),
    ];
  });
}
function hostRows(status) {
  return status.hosts.map((host) => [
    host.host, host.state, String(host.workers), host.slots === null ? "–" : String(host.slots),
    host.address ?? "–",
    [host.leaves ? "leaves" : "", status.drained.includes(host.host) ? "drained" : "", host.error ?? ""]
      .filter(Boolean).join("; "),
  ]);
}
function worldRows(status) {
  return status.worlds.slice(-MOST_ROWS).reverse().map((world) => [
    String(world.generation), timeText(world.at), String(world.size), world.why || "the job began",
  ]);
}
function entryRows(status) {
  return status.worlds.filter((world) => world.entry).slice(-MOST_ROWS).reverse().map(({ entry, ...world }) => [
    String(world.generation), String(world.size), ...PARTS.map(([part]) => secondsText(entry[part])),
    secondsText(entry.seconds), bytesText(entry.received), entry.worker ?? "–",
  ]);
}
function paceRows() {
  return readings.steps.slice(-60).reverse().map((reading, i) => {
    const bytes = readings.bytes.at(-1 - i);
    return [timeText(reading.x), numberText(reading.y), bytesText(bytes?.y ?? 0)];
  });
}

// Tables are filled while they are open.
const TABLES = [
  ["workers-details", "workers-table", workerRows], ["hosts-details", "hosts-table", hostRows],
  ["worlds-details", "worlds-table", worldRows], ["entries-details", "entries-table", entryRows],
  ["pace-details", "pace-table", paceRows],
];
function showTables() {
  if (!newest) return;
  for (const [details, body, rows] of TABLES) {
    if ($(details).open) fillTable($(body), rows(newest));
  }
}
for (const [details] of TABLES) $(details).addEventListener("toggle", showTables);

function read(list, x, y) {
  if (y === null || y === undefined) return;
  list.push({ x, y });
  if (list.length > MOST_READINGS) list.shift();
}

// Shows a status, the answer to GET /status.
export function showStatus(status) {
  const begin = performance.now();
  newest = status;
  for (const worker of [...status.world.members, ...status.other_workers]) {
    learn(worker.incarnation, worker.worker);
  }
  showNumbers(status);
  picture.show(status);

  const now = Date.parse(status.started) + 1000 * status.seconds;
  worldsPlot.show(
    status.worlds.map((world) => ({ x: Date.parse(world.at), y: world.size, generation: world.generation, why: world.why })),
    now);
  const latest = status.worlds.at(-1);
  $("worlds-plot").setAttribute("aria-label", latest
    ? `Size of the world over time: ${status.worlds.length} worlds, the last one with ${latest.size} workers`
    : "Size of the world over time: there is no world yet");
  read(readings.steps, now, status.work.steps_per_second);
  read(readings.bytes, now, status.work.bytes_per_second);
  stepsPlot.show(readings.steps, now);
  bytesPlot.show(readings.bytes, now);
  bars.show(status.worlds.filter((world) => world.entry).slice(-MOST_BARS).reverse().map(({ entry, generation }) => ({
    name: `World ${generation}`, total: entry.seconds, text: secondsText(entry.seconds),
    parts: PARTS.map(([part, text]) => [part, entry[part], `${secondsText(entry[part])} ${text}`]),
  })));
  showTables();
  measure("status", begin);
}

// For whoever measures the page: the entry is gone as soon as all observers have it.
function measure(name, begin) {
  performance.measure(name, { start: begin });
  performance.clearMeasures(name);
}

// ---- events ----

let waiting = []; // lines that are not in the list yet
let overflow = 0;
let frame = 0;

// Takes one line of /events.
export function takeEvent(line) {
  waiting.push(line);
  if (waiting.length > 2 * MOST_WAITING) {
    overflow += waiting.length - MOST_WAITING;
    waiting = waiting.slice(-MOST_WAITING);
  }
  schedule();
}

function schedule() {
  if (frame) return;
  // A page that nobody sees has no frames.
  frame = document.hidden ? setTimeout(showEvents, 1000) : requestAnimationFrame(showEvents);
}

function gap(count) {
  return { at: "", kinds: new Set(), tone: "gap", text: `${count.toLocaleString("en")} events are missing here`, then: "" };
}

function showEvents() {
  frame = 0;
  const begin = performance.now();
  const rows = [];
  if (overflow > 0) rows.push(gap(overflow));
  events.received += overflow;
  overflow = 0;
  for (const line of waiting.splice(0, MOST_IN_FRAME)) {
    if (typeof line === "number") {
      rows.push(gap(line));
      continue;
    }
    try {
      const event = JSON.parse(line);
      rows.push({ at: event.at, ...inWords(event) });
      if (event.actions?.some((action) => action.action === "publish_world")) askSoon();
    } catch (error) {
      console.error("an event cannot be read", error);
    }
  }
  if (rows.length > 0) events.add(rows);
  measure("events", begin);
  if (waiting.length > 0) schedule();
}

for (const kind of KINDS) {
  const label = document.createElement("label");
  const box = document.createElement("input");
  box.type = "checkbox";
  box.name = kind;
  box.checked = true;
  label.append(box, kind);
  $("kinds").append(label);
}
function filterEvents() {
  const kinds = new Set(KINDS.filter((kind) => $("filters").elements[kind].checked));
  events.filter(kinds, $("search").value);
}
$("filters").addEventListener("input", filterEvents);
$("filters").addEventListener("submit", (event) => event.preventDefault());

// ---- the connection ----

let lastEvent = "";
let timer = 0;
let asking = false;
let lostSince = 0;

function setLink(link, text) {
  setText($("link"), text);
  $("link").dataset.link = link;
}
function setNotice(text, tone = "") {
  $("notice").hidden = text === "";
  $("notice").dataset.tone = tone;
  setText($("notice"), text);
}

function connected() {
  if (hasEnded) return;
  lostSince = 0;
  setLink("live", "live");
  setNotice("");
}
function lost(why) {
  if (hasEnded) return;
  lostSince ||= Date.now();
  setLink("lost", "connection lost");
  setNotice(`${why} What is shown is from ${timeText(lostSince)}. The page tries again by itself.`);
}
function ended(words) {
  hasEnded = true;
  clearTimeout(timer);
  const good = words.exit_code === 0;
  setLink("ended", "closed");
  setState(good ? "ended" : "failed");
  const text = `The job has ended with exit code ${words.exit_code}${words.reason ? `: ${words.reason}` : ""}. The page keeps what it knew last.`;
  setNotice(text, good ? "good" : "");
  setText($("waits"), "–");
  setText($("announcement"), text);
}

function askLater(delay) {
  clearTimeout(timer);
  if (!hasEnded) timer = setTimeout(ask, delay);
}
function askSoon() {
  if (!asking) askLater(SOON);
}

async function ask() {
  if (document.hidden || asking || hasEnded) return;
  asking = true;
  const begin = performance.now();
  let pace = STATUS_PACE;
  try {
    const signal = AbortSignal.timeout(MOST_PATIENCE);
    const answer = await get("/status", signal);
    if (answer.ok) {
      showStatus(await answer.json());
      connected();
    } else {
      lost(answer.status === 401 ? (await answer.text()).trim() : `hvdrun answers with ${answer.status}.`);
      pace = RETRY;
    }
  } catch (error) {
    const isLate = error.name === "TimeoutError";
    if (!isLate && !(error instanceof TypeError)) console.error(error);
    lost(isLate ? "hvdrun does not answer." : "hvdrun cannot be reached.");
    pace = RETRY;
  }
  asking = false;
  // A job whose status takes long is asked less often.
  askLater(Math.max(pace, Math.min(5 * (performance.now() - begin), LONGEST_PACE)));
}

function takeMessage({ event, id, data }) {
  if (event === "gap") {
    takeEvent(Number(data));
  } else if (event === "end") {
    ended(JSON.parse(data));
  } else if (data) {
    lastEvent = id;
    takeEvent(data);
  }
}

async function hear() {
  try {
    await hearEvents(lastEvent ? `/events?after=${lastEvent}` : "/events", takeMessage);
  } catch (error) {
    if (!(error instanceof TypeError)) console.error(error);
  }
  if (hasEnded) return;
  askSoon();
  setTimeout(hear, RETRY);
}

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) askLater(0);
});

ask();
hear();
