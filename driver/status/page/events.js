// The events of a job in words, and the list of them. An event is a line of the job's journal
// (docs/events.md). All text goes into the document as text.

// Which filter shows an event; in the order of the checkboxes.
export const KINDS = ["worlds", "workers", "hosts", "requests", "messages", "other"];

const KEPT = 10000; // in memory
const SHOWN = 1000; // in the document

const KIND_OF_EVENT = {
  committed: "worlds", saving: "worlds", world_entered: "worlds",
  launched: "workers", launch_failed: "workers", initialised: "workers", worker_ready: "workers",
  leave_requested: "workers", worker_left: "workers", done: "workers", exited: "workers",
  described: "workers",
  hosts_found: "hosts", discovery_failed: "hosts", host_progress: "hosts", host_failed: "hosts",
  agent_ready: "hosts", agent_gone: "hosts", agent_broken: "hosts", address_found: "hosts",
  addresses_chosen: "hosts", host_leaves: "hosts",
  stop_requested: "requests", suspend_requested: "requests", drain_requested: "requests",
  scale_requested: "requests", resumed: "requests", taken_over: "requests",
};
const SIGNALS = {
  1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE",
  9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 15: "SIGTERM",
};

const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
const signal = (number) => SIGNALS[number] ?? `signal ${number}`;

// Names of workers by incarnation, learnt from the status and from launches.
const names = new Map();
export function learn(incarnation, worker) {
  names.set(incarnation, worker);
  if (names.size > 50000) names.delete(names.keys().next().value);
}

function worker(event) {
  return names.get(event.incarnation) ?? `worker ${event.incarnation} on ${event.host_name ?? "?"}`;
}

function ending(event) {
  if (event.out_of_memory) return "was killed since memory ran out";
  if (event.signal_number) return `was killed by ${signal(event.signal_number)}`;
  return event.exit_code === 0 ? "ended well" : `ended with exit code ${event.exit_code}`;
}

const WORDS = {
  begin: () => "the job begins",
  host_progress: (e) => `host ${e.host_name}: ${e.step}`,
  agent_ready: (e) => `host ${e.host_name}: its agent is ready`,
  host_failed: (e) => `host ${e.host_name} cannot take part: ${e.error?.message ?? ""}`,
  addresses_chosen: () => "addresses of all hosts are chosen",
  agent_gone: (e) => `host ${e.host_name}: its agent has ended${e.how ? `: ${e.how}` : ""}`,
  agent_broken: (e) => `host ${e.host_name}: its agent is broken: ${e.how ?? ""}`,
  launched: (e) => `${worker(e)} runs (process ${e.pid})`,
  launch_failed: (e) => `${worker(e)} could not be started: ${e.message}`,
  initialised: (e) => `${worker(e)} is initialised`,
  done: (e) => `${worker(e)} says that the work is done`,
  exited: (e) => `${worker(e)} ${ending(e)}`,
  hosts_found: (e) => `hosts: ${(e.hosts ?? []).map(hostName).join(", ") || "none"}`,
  discovery_failed: (e) => `discovery has failed: ${e.message}`,
  address_found: (e) => `host ${e.host_name} is reached at ${e.address}`,
  host_leaves: (e) => `host ${e.host_name} is about to be taken away`,
  worker_ready: (e) => `${worker(e)} is ready for its first world`,
  leave_requested: (e) => `${worker(e)} was told to leave`,
  worker_left: (e) => `${worker(e)} has left${e.reason ? `: ${e.reason}` : ""}`,
  described: (e) => `${worker(e)}: ${e.text}`,
  saving: (e) => `${worker(e)} has written ${e.written} of ${e.total} bytes of the state`,
  committed: (e) => `${worker(e)} has gone over to world ${e.generation} at a commit`,
  world_entered: (e) => `all members of world ${e.generation} are at work`,
  stop_requested: (e) => `asked to stop (${signal(e.signal_number)})`,
  suspend_requested: (e) => `asked to suspend the job (${signal(e.signal_number)})`,
  drain_requested: (e) => `asked to ${e.undo ? "use" : "drain"} host ${e.host_name}`,
  scale_requested: (e) => `asked to scale the job to ${count(e.size, "worker")}`,
  resumed: () => "hvdrun goes on after a pause",
  taken_over: (event) => `driver ${event.epoch} of the job goes on`,
};

function hostName(found) {
  const host = found.host ?? found;
  return typeof host === "object" ? host.name : String(host);
}

const ACTIONS = {
  publish_world: (a) => {
    const world = `world ${a.world?.generation ?? "?"}`;
    const size = count(a.world?.members?.length ?? 0, "worker");
    if (a.world?.state === "proposed") return `proposes ${world} with ${size}, for the next commit`;
    return `${world} has ${size}${a.why ? `: ${a.why}` : ""}`;
  },
  start_agent: (a) => `brings an agent to host ${a.host_name}`,
  shut_down_agent: (a) => `the agent of host ${a.host_name} is told to end`,
  drop_agent: (a) => `host ${a.host_name} is given up`,
  stop_workers: (a) =>
    a.incarnation ? `${worker(a)} is told to end` : `the workers of host ${a.host_name} are told to end`,
  kill_workers: (a) =>
    a.incarnation ? `${worker(a)} is killed` : `the workers of host ${a.host_name} are killed`,
  void_commits: () => "the world begins from nothing",
  say: (a) => a.text,
  answer: (a) => `${a.accepted ? "granted" : "refused"}: ${a.text}`,
  finish: (a) => `the job ends with exit code ${a.exit_code}${a.reason ? `: ${a.reason}` : ""}`,
};

// They say only that time has passed: what was decided then is what has happened.
const QUIET = new Set(["tick", "heard", "unserved"]);

// The text about an event and its decisions: {kinds, tone, text, then}.
export function inWords(event) {
  const kinds = new Set([KIND_OF_EVENT[event.event] ?? "other"]);
  let tone = event.event === "exited" && ending(event) !== "ended well" ? "bad" : "";
  if (/_failed$|_broken$/.test(event.event)) tone = "bad";
  const then = [];
  let launches = 0;
  for (const action of event.actions ?? []) {
    if (action.action === "launch") {
      ++launches;
      const member = action.member;
      if (member) learn(member.incarnation, `${member.host}#${member.slot}`);
      continue;
    }
    const words = ACTIONS[action.action];
    if (!words) continue;
    then.push(words(action));
    if (action.action === "publish_world") {
      kinds.add("worlds");
      if (action.world?.state !== "proposed") tone ||= "world";
    }
    if (action.action === "say") {
      kinds.add("messages");
      if (action.to === "warning") tone = "bad";
    }
  }
  if (launches > 0) then.push(`starts ${count(launches, "worker")}`);
  const text = QUIET.has(event.event) && then.length > 0 ? then.shift()
    : (WORDS[event.event] ?? (() => String(event.event).replaceAll("_", " ")))(event);
  return { kinds, tone, text, then: then.join("\n") };
}

const clockTime = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
export function timeText(at) {
  const time = new Date(at);
  return Number.isNaN(time.getTime()) ? "" : clockTime.format(time);
}

// The list in the document: the newest ones that the filters let through, the newest first.
export class EventList {
  constructor(list, counter, empty) {
    this.list = list;
    this.counter = counter;
    this.empty = empty;
    this.kept = [];
    this.received = 0;
    this.kinds = new Set(KINDS);
    this.search = "";
    this.count();
  }

  // `rows` are oldest first: {at, kinds, tone, text, then}.
  add(rows) {
    for (const row of rows) if (row.tone !== "gap") ++this.received;
    this.kept.push(...rows);
    if (this.kept.length > KEPT) this.kept.splice(0, this.kept.length - KEPT);
    this.prepend(rows.filter((row) => this.shows(row)));
    this.count();
  }

  filter(kinds, search) {
    this.kinds = kinds;
    this.search = search.trim().toLowerCase();
    this.list.replaceChildren();
    this.prepend(this.kept.filter((row) => this.shows(row)));
    this.count();
  }

  shows(row) {
    if (row.tone === "gap") return true;
    let wanted = false;
    for (const kind of row.kinds) wanted ||= this.kinds.has(kind);
    if (!wanted) return false;
    return !this.search || `${row.text}\n${row.then}`.toLowerCase().includes(this.search);
  }

  prepend(rows) {
    const fragment = document.createDocumentFragment();
    for (const row of rows.slice(-SHOWN).reverse()) fragment.append(EventList.element(row));
    const spare = this.list.childElementCount + fragment.childElementCount - SHOWN;
    for (let i = 0; i < spare; ++i) this.list.lastElementChild.remove();
    this.list.prepend(fragment);
  }

  count() {
    this.counter.textContent = `${this.received.toLocaleString("en")} received`;
    const isEmpty = this.list.childElementCount === 0;
    if (this.empty.hidden === isEmpty) this.empty.hidden = !isEmpty;
    if (!isEmpty) return;
    this.empty.textContent = this.kept.length > 0 ? "No event fits the filters."
      : "Events are shown from when somebody first opened this page. There has been none since.";
  }

  static element(row) {
    const item = document.createElement("li");
    item.className = "event";
    if (row.tone) item.dataset.tone = row.tone;
    const time = document.createElement("time");
    time.textContent = timeText(row.at);
    if (row.at) time.dateTime = row.at;
    const what = document.createElement("span");
    what.className = "what";
    what.textContent = row.text;
    item.append(time, what);
    if (row.then) {
      const then = document.createElement("span");
      then.className = "then";
      then.textContent = row.then;
      item.append(then);
    }
    return item;
  }
}
