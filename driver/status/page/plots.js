// Plots without a library: a line over time, and stacked bars. A plot draws into an SVG of its own
// size, and only if it has changed.

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 46;
const RIGHT = 10;
const TOP = 10;
const BOTTOM = 20;
const HINT = "The pointer or the arrow keys show the values.";

function element(name, className, parent) {
  const made = document.createElementNS(SVG, name);
  if (className) made.setAttribute("class", className);
  parent.append(made);
  return made;
}

// 1, 2 or 5 times a power of ten, so that `most` needs at most three steps of it.
function stepFor(most, whole) {
  const rough = most / 3;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  return whole ? Math.max(1, Math.round(step)) : step;
}

export class LinePlot {
  // `stepped`: the value holds until the next point. `describe` says what a point is, in words.
  constructor(box, readout, { stepped = false, whole = false, label, timeLabel, describe }) {
    this.box = box;
    this.readout = readout;
    this.options = { stepped, whole, label, timeLabel, describe };
    this.points = [];
    this.until = 0;
    this.chosen = -1;
    this.size = { width: 0, height: 0 };
    this.svg = document.createElementNS(SVG, "svg");
    this.svg.setAttribute("aria-hidden", "true");
    this.grid = element("path", "grid", this.svg);
    this.area = element("path", "area", this.svg);
    this.line = element("path", "line", this.svg);
    this.dots = element("path", "dots", this.svg);
    this.cursor = element("path", "cursor", this.svg);
    this.labels = element("g", "", this.svg);
    box.append(this.svg);
    new ResizeObserver(([entry]) => {
      this.size = entry.contentRect;
      this.draw();
    }).observe(box);
    box.addEventListener("pointermove", (event) => this.point(event.offsetX));
    box.addEventListener("pointerleave", () => this.choose(-1));
    box.addEventListener("blur", () => this.choose(-1));
    box.addEventListener("keydown", (event) => this.key(event));
  }

  // `points`: [{x, y, ...}] by x, in milliseconds; the plot ends at `until`.
  show(points, until) {
    this.points = points;
    this.until = until;
    this.draw();
  }

  draw() {
    const { width, height } = this.size;
    if (width <= 0 || this.points.length === 0) return;
    const { stepped, whole, label, timeLabel } = this.options;
    const first = this.points[0].x;
    const span = Math.max(this.until - first, 1000);
    let most = 0;
    for (const { y } of this.points) most = Math.max(most, y);
    const step = stepFor(Math.max(most, whole ? 1 : 1e-9), whole);
    const top = Math.max(step * Math.ceil(most / step), step);
    const right = width - RIGHT;
    const base = height - BOTTOM;
    this.xOf = (x) => LEFT + ((x - first) / span) * (right - LEFT);
    const yOf = (y) => base - (y / top) * (base - TOP);

    let grid = "";
    const texts = [];
    for (let y = 0; y <= top * 1.0001; y += step) {
      grid += `M${LEFT} ${yOf(y).toFixed(1)}H${right}`;
      texts.push([LEFT - 6, yOf(y) + 4, "end", label(y)]);
    }
    texts.push([LEFT, height - 5, "start", timeLabel(first)]);
    texts.push([right, height - 5, "end", timeLabel(first + span)]);
    this.grid.setAttribute("d", grid);
    this.write(texts);

    // One point for each pixel is enough.
    let line = "";
    let dots = "";
    let last = -1;
    for (const { x, y } of this.points) {
      const at = this.xOf(x);
      if (!stepped && at - last < 1 && last >= 0) continue;
      last = at;
      const [px, py] = [at.toFixed(1), yOf(y).toFixed(1)];
      line += line === "" ? `M${px} ${py}` : stepped ? `H${px}V${py}` : `L${px} ${py}`;
      if ((stepped && this.points.length <= 200) || this.points.length === 1) dots += `M${px} ${py}m-3 0a3 3 0 1 0 6 0a3 3 0 1 0-6 0`;
    }
    if (stepped) line += `H${right}`;
    this.line.setAttribute("d", line);
    this.dots.setAttribute("d", dots);
    const end = stepped ? right : this.xOf(this.points.at(-1).x).toFixed(1);
    this.area.setAttribute("d", `${line}L${end} ${base}L${LEFT} ${base}Z`);
    this.choose(this.chosen);
  }

  write(texts) {
    while (this.labels.childElementCount < texts.length) element("text", "", this.labels);
    while (this.labels.childElementCount > texts.length) this.labels.lastChild.remove();
    texts.forEach(([x, y, anchor, text], i) => {
      const label = this.labels.children[i];
      label.setAttribute("x", x);
      label.setAttribute("y", y);
      label.setAttribute("text-anchor", anchor);
      if (label.textContent !== text) label.textContent = text;
    });
  }

  point(x) {
    if (!this.xOf) return;
    let best = -1;
    this.points.forEach((point, i) => {
      const near = best < 0 || Math.abs(this.xOf(point.x) - x) <= Math.abs(this.xOf(this.points[best].x) - x);
      if (near) best = i;
    });
    this.choose(best);
  }

  key(event) {
    const last = this.points.length - 1;
    const from = this.chosen < 0 ? last + 1 : this.chosen;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    this.choose(Math.min(Math.max(to, 0), last));
  }

  choose(index) {
    this.chosen = Math.min(index, this.points.length - 1);
    const point = this.points[this.chosen];
    if (!point || !this.xOf) {
      this.cursor.setAttribute("d", "");
      if (index < 0) this.readout.textContent = HINT;
      return;
    }
    const x = this.xOf(point.x).toFixed(1);
    this.cursor.setAttribute("d", `M${x} ${TOP}V${this.size.height - BOTTOM}`);
    const text = this.options.describe(point);
    if (this.readout.textContent !== text) this.readout.textContent = text;
  }
}

// Bars of equal scale, each made of parts: [{key, name, total, text, parts: [[part, value]]}].
export class StackedBars {
  constructor(box) {
    this.box = box;
    this.shown = "";
  }

  show(bars) {
    const shown = JSON.stringify(bars);
    if (shown === this.shown) return;
    this.shown = shown;
    if (bars.length === 0) {
      const empty = document.createElement("p");
      empty.className = "empty";
      empty.textContent = "No world's members have all been at work yet.";
      this.box.replaceChildren(empty);
      return;
    }
    const longest = Math.max(...bars.map((bar) => bar.total), 1e-9);
    this.box.replaceChildren(...bars.map((bar) => {
      const row = document.createElement("div");
      row.className = "bar";
      const name = document.createElement("span");
      name.className = "bar-name";
      name.textContent = bar.name;
      const track = document.createElement("span");
      track.className = "bar-track";
      for (const [part, value, text] of bar.parts) {
        if (value <= 0) continue;
        const piece = document.createElement("span");
        piece.className = "part";
        piece.dataset.part = part;
        piece.style.width = `${(100 * value) / longest}%`;
        piece.title = text;
        track.append(piece);
      }
      const total = document.createElement("span");
      total.className = "bar-total";
      total.textContent = bar.text;
      row.append(name, track, total);
      return row;
    }));
  }
}

// The body of a table: rows of texts. Only what has changed is touched.
export function fillTable(body, rows) {
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((texts, i) => {
    const row = body.rows[i] ?? body.insertRow();
    texts.forEach((text, column) => {
      const cell = row.cells[column] ?? row.insertCell();
      if (cell.textContent !== text) cell.textContent = text;
    });
  });
}
