// The world as a picture: hosts as boxes, their slots as cells, in each its worker. Cells and boxes
// are kept from one status to the next, and only what differs is changed.

const STATES = {
  planned: "is planned", launching: "is being started", running: "runs", initialised: "is at work",
  done: "is done",
};

// The text about a worker for a person, in one line.
export function workerText(worker) {
  const parts = [worker.rank === null ? `${worker.worker}, without a rank` : `rank ${worker.rank}, ${worker.worker}`];
  parts.push(STATES[worker.state] ?? worker.state);
  if (worker.membership !== "member") parts.push(worker.membership);
  if (worker.leaves) parts.push(`leaves: ${worker.leaves}`);
  const work = worker.work;
  if (work?.slow) parts.push(`slow: the others wait for it for ${Math.round(100 * work.late)} % of the time`);
  if (work && work.steps_per_second !== null) parts.push(`${work.steps_per_second.toFixed(1)} steps/s`);
  if (work && work.waited !== null) parts.push(`waits ${Math.round(100 * work.waited)} %`);
  if (worker.pid !== null) parts.push(`process ${worker.pid}`);
  return parts.join(", ");
}

function lookOf(worker) {
  if (!worker) return "free";
  if (worker.state === "done") return "done";
  return worker.rank !== null && worker.state === "initialised" ? "work"
    : worker.rank !== null && worker.state === "running" ? "work" : "start";
}

// Sets an attribute, or takes it away, only if that changes anything.
function set(element, name, value) {
  if (value === null || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else {
    const text = value === true ? "" : String(value);
    if (element.getAttribute(name) !== text) element.setAttribute(name, text);
  }
}
function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

class HostBox {
  constructor(name, id) {
    this.id = id;
    this.cells = [];
    this.box = document.createElement("div");
    this.box.className = "host";
    this.box.setAttribute("role", "group");
    const head = document.createElement("div");
    head.className = "host-head";
    head.setAttribute("aria-hidden", "true");
    this.name = document.createElement("span");
    this.name.className = "host-name";
    this.name.textContent = name;
    this.name.title = name;
    this.state = document.createElement("span");
    this.state.className = "host-state";
    head.append(this.name, this.state);
    this.grid = document.createElement("div");
    this.grid.className = "cells";
    this.grid.setAttribute("role", "presentation");
    this.box.append(head, this.grid);
  }

  show(host, workers, drained) {
    const state = host.error ? "has failed" : drained ? "drained" : host.leaves ? "leaving" : host.state;
    setText(this.state, state);
    set(this.box, "aria-label", `host ${host.host}, ${state}${host.error ? `: ${host.error}` : ""}`);
    set(this.box, "title", host.error ?? null);
    set(this.box, "data-state", host.error ? "failed" : host.state);
    set(this.box, "data-leaves", drained || host.leaves);

    let slots = host.slots ?? 0;
    const bySlot = new Map();
    for (const worker of workers) {
      // One that is on its way out may share a slot with the one that follows it.
      const place = bySlot.has(worker.slot) ? `extra${worker.incarnation}` : worker.slot;
      bySlot.set(place, worker);
      if (typeof place === "number") slots = Math.max(slots, place + 1);
    }
    const shown = [];
    for (let slot = 0; slot < slots; ++slot) shown.push(bySlot.get(slot) ?? null);
    for (const [place, worker] of bySlot) if (typeof place !== "number") shown.push(worker);

    while (this.cells.length > shown.length) this.cells.pop().element.remove();
    shown.forEach((worker, i) => this.cell(i).show(worker, i));
  }

  cell(index) {
    while (this.cells.length <= index) {
      const cell = new Cell(`${this.id}-${this.cells.length}`);
      this.cells.push(cell);
      this.grid.append(cell.element);
    }
    return this.cells[index];
  }
}

class Cell {
  constructor(id) {
    this.shown = "";
    this.text = "";
    this.element = document.createElement("div");
    this.element.className = "cell";
    this.element.id = id;
    this.element.setAttribute("role", "option");
    this.element.setAttribute("aria-selected", "false");
    this.element.cell = this;
  }

  show(worker, slot) {
    this.text = worker ? workerText(worker) : `slot ${slot} is free`;
    set(this.element, "aria-label", this.text);
    const look = lookOf(worker);
    const label = !worker ? "" : worker.rank === null ? "·" : String(worker.rank);
    const [rank0, slow, leaves] = [worker?.rank === 0, !!worker?.work?.slow, !!worker?.leaves];
    const shown = `${look} ${label} ${rank0} ${slow} ${leaves}`;
    if (shown === this.shown) return;
    this.shown = shown;
    setText(this.element, label);
    set(this.element, "data-look", look);
    set(this.element, "data-rank0", rank0);
    set(this.element, "data-slow", slow);
    set(this.element, "data-leaves", leaves);
  }
}

export class WorldPicture {
  constructor(picture, detail) {
    this.picture = picture;
    this.detail = detail;
    this.hosts = new Map();
    this.chosen = null;
    this.made = 0;
    picture.addEventListener("keydown", (event) => this.key(event));
    picture.addEventListener("focus", () => {
      if (!this.chosen?.isConnected) this.choose(picture.querySelector(".cell"));
    });
    for (const kind of ["pointerover", "click"]) {
      picture.addEventListener(kind, (event) => {
        const cell = event.target.closest(".cell");
        if (cell) this.choose(cell);
      });
    }
  }

  show(status) {
    const byHost = new Map(status.hosts.map((host) => [host.host, []]));
    for (const worker of [...status.world.members, ...status.other_workers]) {
      byHost.get(worker.host)?.push(worker);
    }
    const drained = new Set(status.drained);
    let before = null;
    for (const host of status.hosts) {
      let box = this.hosts.get(host.host);
      if (!box) {
        box = new HostBox(host.host, `h${++this.made}`);
        this.hosts.set(host.host, box);
      }
      box.show(host, byHost.get(host.host), drained.has(host.host));
      const place = before ? before.nextSibling : this.picture.firstChild;
      if (box.box !== place) this.picture.insertBefore(box.box, place);
      before = box.box;
    }
    for (const [name, box] of this.hosts) {
      if (byHost.has(name)) continue;
      box.box.remove();
      this.hosts.delete(name);
    }
    if (this.chosen?.isConnected) setText(this.detail, this.describe(this.chosen));
  }

  describe(cell) {
    const host = cell.closest(".host").querySelector(".host-name").textContent;
    return `${host}: ${cell.cell.text}`;
  }

  choose(cell) {
    if (!cell || cell === this.chosen) return;
    this.chosen?.setAttribute("aria-selected", "false");
    this.chosen = cell;
    cell.setAttribute("aria-selected", "true");
    this.picture.setAttribute("aria-activedescendant", cell.id);
    setText(this.detail, this.describe(cell));
  }

  key(event) {
    const cells = [...this.picture.querySelectorAll(".cell")];
    if (cells.length === 0) return;
    const at = Math.max(cells.indexOf(this.chosen), 0);
    // Up and down lead to the nearest cell of another line.
    const line = (step) => {
      const from = cells[at].getBoundingClientRect();
      let best = at;
      let distance = Infinity;
      for (let i = at + step; i >= 0 && i < cells.length; i += step) {
        const to = cells[i].getBoundingClientRect();
        const down = (to.top - from.top) * step;
        if (down < from.height / 2) continue;
        const far = 4 * down + Math.abs(to.left - from.left);
        if (far < distance) [best, distance] = [i, far];
        if (4 * down > distance) break;
      }
      return best;
    };
    const to = {
      ArrowLeft: () => at - 1, ArrowRight: () => at + 1, ArrowUp: () => line(-1),
      ArrowDown: () => line(1), Home: () => 0, End: () => cells.length - 1,
    }[event.key];
    if (!to) return;
    event.preventDefault();
    const cell = cells[Math.min(Math.max(to(), 0), cells.length - 1)];
    this.choose(cell);
    cell.scrollIntoView({ block: "nearest" });
  }
}
