// The script that measure.py runs in the page. Times are in milliseconds, to the end of style and
// layout.

const WORKERS_END = "was killed by SIGKILL (signal 9); its slot is started again";
const DRAINED = "host is drained";

const layout = () => document.documentElement.offsetHeight + document.body.scrollHeight;
const frame = () => new Promise((go) => requestAnimationFrame(() => setTimeout(go)));

function timed(work) {
  const begin = performance.now();
  work();
  layout();
  return performance.now() - begin;
}

// Another status of the same job, in which most of what is shown differs.
function vary(status, round) {
  status.seconds += round;
  status.work.steps_per_second = 12 + (round % 5);
  status.world.members.forEach((member, i) => {
    member.work.steps_per_second = 12 + ((i + round) % 10) / 10;
    member.work.waited = ((i * 7 + round) % 100) / 100;
    member.work.slow = (i + round) % 97 === 0;
    if ((i + round) % 211 === 0) member.leaves = DRAINED;
  });
  return JSON.stringify(status);
}

async function refreshes(page, text, rounds) {
  const times = [];
  for (let round = 0; round < rounds; ++round) {
    const status = vary(JSON.parse(text), round);
    times.push(timed(() => page.showStatus(JSON.parse(status))));
    await frame();
  }
  return times;
}

function made_up(count) {
  const lines = [];
  for (let i = 0; i < count; ++i) {
    const about = { at: "2026-11-25T12:00:00.000Z", clock: i, host: 0, host_name: "node000",
      incarnation: 1 + (i % 1000), actions: [] };
    const event = [
      { event: "exited", exit_code: 0, signal_number: 9,
        actions: [{ action: "say", to: "warning", text: `node000#${i % 8} ${WORKERS_END}` }] },
      { event: "launched", pid: i },
      { event: "initialised" },
    ][i % 3];
    lines.push(JSON.stringify({ ...about, ...event }));
  }
  return lines;
}

export async function measure(text, rounds, count) {
  const page = await import("/page.js");
  const results = {};
  results["first status"] = [timed(() => page.showStatus(JSON.parse(text)))];
  await frame();
  results["status, tables closed"] = await refreshes(page, text, rounds);
  document.getElementById("workers-details").open = true;
  document.getElementById("hosts-details").open = true;
  await frame();
  results["status, tables open"] = await refreshes(page, text, rounds);

  const frames = [];
  new PerformanceObserver((entries) => {
    for (const { name, duration } of entries.getEntries()) if (name === "events") frames.push(duration);
  }).observe({ type: "measure" });
  const lines = made_up(count);
  const counter = document.getElementById("events-count");
  const begin = performance.now();
  for (let i = 0; i < count; i += 1000) {
    for (const line of lines.slice(i, i + 1000)) page.takeEvent(line);
    await frame();
  }
  const all = count.toLocaleString("en");
  while (!counter.textContent.startsWith(all)) {
    if (performance.now() - begin > 60000) throw new Error(`only ${counter.textContent} of ${all}`);
    await frame();
  }
  results["all events, 1,000 at a time"] = [performance.now() - begin];
  await frame();
  results["events, script of one frame"] = frames;

  const whole = [];
  for (let round = 0; round < rounds; ++round) {
    const before = performance.now();
    for (const line of lines.slice(0, 1000)) page.takeEvent(line);
    await frame();
    whole.push(performance.now() - before);
    await frame();
  }
  results["events, frame after a burst of 1,000"] = whole;
  results["status, tables open, after all events"] = await refreshes(page, text, rounds);
  const box = document.querySelector("input[name=workers]");
  results["filter"] = [];
  for (let round = 0; round < 10; ++round) {
    results["filter"].push(timed(() => box.click()));
    await frame();
  }
  return {
    results,
    rows: document.getElementById("events").childElementCount,
    elements: document.querySelectorAll("*").length,
    heap: performance.memory?.usedJSHeapSize ?? 0,
  };
}
