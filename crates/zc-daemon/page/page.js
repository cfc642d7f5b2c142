// The script of the live page. It asks for live.json every two seconds, keeps the answers of five minutes, makes rates of
// their counters, and draws them. It changes nothing at the daemon, and asks nothing else.
"use strict";

const POLL_MS = 2000;
const KEPT = 151;
const RECENT_MS = 10000;
const MINUTE_MS = 60000;
// Lines in the chart beside that of all volumes.
const LINES_MAX = 6;
const DASHES = ["", "", "8 4", "2 3", "12 3 3 3", "5 5", "1 5"];
const SVG = "http://www.w3.org/2000/svg";

// The answers, the oldest first, all of one life of the daemon.
let looks = [];

const by = (id) => document.getElementById(id);

// ---- Numbers as text

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let step = 0;
  while (bytes >= 1024 && step < units.length - 1) {
    bytes /= 1024;
    step += 1;
  }
  return `${step === 0 ? Math.round(bytes) : bytes.toFixed(1)} ${units[step]}`;
}

function count(number) {
  return number >= 100 || Number.isInteger(number)
    ? Math.round(number).toLocaleString("en-US") : number.toFixed(1);
}

function percent(part, whole) {
  return whole > 0 ? `${(100 * part / whole).toFixed(1)} %` : "-";
}

function micros(us) {
  if (us < 1000) return `${Math.round(us)} us`;
  return us < 1000000 ? `${(us / 1000).toFixed(1)} ms` : `${(us / 1000000).toFixed(1)} s`;
}

function time(ms) {
  const s = ms / 1000;
  if (s < 120) return `${s.toFixed(1)} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} days`;
}

// ---- Rates

const last = () => looks[looks.length - 1];

// The newest look that is at least so old, or the oldest that there is.
function before(ms) {
  const then = last().uptime_ms - ms;
  return looks.findLast((look) => look.uptime_ms <= then) ?? looks[0];
}

// How much a counter grew. One that shrank began anew.
function grown(from, to, of) {
  const [a, b] = [of(from) ?? 0, of(to) ?? 0];
  return b >= a ? b - a : b;
}

function perSecond(from, to, of) {
  const ms = to.uptime_ms - from.uptime_ms;
  return ms > 0 ? grown(from, to, of) * 1000 / ms : 0;
}

// A value for each pair of looks that follow one another.
const history = (of) => looks.slice(1).map((look, at) => of(looks[at], look));

const volumeOf = (look, name) => look.volumes.find((volume) => volume.name === name);
const traffic = (name, field) => (look) => volumeOf(look, name)?.traffic[field];
const total = (field) => (look) => look.volumes.reduce((sum, volume) => sum + volume.traffic[field], 0);
const missed = (look) => total("misses")(look) + total("mixed")(look);

function share(part, whole) {
  return (from, to) => {
    const all = grown(from, to, whole);
    return all > 0 ? grown(from, to, part) / all : null;
  };
}

// What this share of the requests took at most, by the upper bounds of the steps; null if there were none.
function within(path, quantile, from, to) {
  const steps = to.paths[path].steps.map((_, step) => grown(from, to, (look) => look.paths[path].steps[step]));
  const requests = steps.reduce((sum, step) => sum + step, 0);
  let left = requests * quantile;
  for (let step = 0; requests > 0; step += 1) {
    left -= steps[step];
    if (left <= 0 || step === to.latency_bounds_us.length) return step;
  }
  return null;
}

function boundText(step) {
  if (step === null) return "-";
  const bounds = last().latency_bounds_us;
  return step < bounds.length ? micros(bounds[step]) : `over ${micros(bounds[bounds.length - 1])}`;
}

// ---- Elements: only what changed is written, so that a selection stays and screen readers are not told twice

function element(tag, name, ...children) {
  const made = document.createElement(tag);
  if (name) made.className = name;
  made.append(...children);
  return made;
}

function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// As many children as there are items; `make` makes one that is missing, `fill` brings it up to date.
function each(parent, items, make, fill) {
  while (parent.children.length > items.length) parent.lastElementChild.remove();
  while (parent.children.length < items.length) parent.append(make());
  items.forEach((item, at) => fill(parent.children[at], item));
}

// Rows of cells. The first of a row is its heading. A cell is a text, or an object with `fill`, which draws it.
function rows(id, cells, none) {
  const body = by(id);
  const all = cells.length > 0 ? cells : [[none]];
  const columns = body.parentElement.querySelectorAll("thead th");
  const shape = all.map((row) => row.length).join();
  if (body.dataset.shape !== shape) {
    body.dataset.shape = shape;
    body.replaceChildren(...all.map((row) => {
      const made = row.map((_, at) => {
        const cell = element(at === 0 ? "th" : "td", columns[at].className);
        if (at === 0) cell.scope = "row";
        return cell;
      });
      if (row.length === 1) made[0].colSpan = columns.length;
      return element("tr", "", ...made);
    }));
  }
  all.forEach((row, at) => row.forEach((cell, column) => {
    const place = body.children[at].children[column];
    if (typeof cell === "string") say(place, cell); else cell.fill(place);
  }));
}

// A text and, below it, a bar that shows the same.
function bar(part, text, over) {
  return {
    fill(cell) {
      if (!cell.querySelector(".bar")) {
        const line = element("span", "bar", element("i"));
        line.setAttribute("aria-hidden", "true");
        cell.replaceChildren(element("span"), line);
      }
      const line = cell.querySelector(".bar");
      say(cell.firstChild, text);
      line.classList.toggle("over", Boolean(over));
      line.firstChild.style.width = `${100 * Math.min(1, Math.max(0, part || 0))}%`;
    },
  };
}

function swatch(color, text) {
  return {
    fill(cell) {
      if (!cell.querySelector(".swatch")) {
        cell.replaceChildren(element("span", `swatch c${color}`), element("span"));
        cell.firstChild.setAttribute("aria-hidden", "true");
      }
      say(cell.lastChild, text);
    },
  };
}

// ---- Charts

// The outline of values from 0 to 1 in a box, the newest at its right; null is a gap.
function outline(values, width, height) {
  const step = width / (KEPT - 2);
  let text = "";
  let joins = false;
  values.forEach((value, at) => {
    if (value !== null) {
      const x = width - (values.length - 1 - at) * step;
      const y = 1 + (height - 2) * (1 - Math.min(1, value));
      // A single value is a dot as long as a step.
      text += `${joins ? "L" : `M${(x - step).toFixed(1)},${y.toFixed(1)}L`}${x.toFixed(1)},${y.toFixed(1)}`;
    }
    joins = value !== null;
  });
  return text;
}

// The area between two outlines, in pieces of a step each.
function area(low, high, width, height) {
  const step = width / (KEPT - 2);
  const y = (value) => (1 + (height - 2) * (1 - Math.min(1, value))).toFixed(1);
  return low.map((value, at) => {
    if (value === null) return "";
    const x = width - (low.length - 1 - at) * step;
    const [from, to] = [(x - step).toFixed(1), x.toFixed(1)];
    return `M${from},${y(value)}H${to}V${y(high[at])}H${from}Z`;
  }).join("");
}

function spark(color, label, ...lines) {
  return {
    fill(cell) {
      if (!cell.firstElementChild) {
        const svg = drawn("svg", { viewBox: "0 0 150 24", preserveAspectRatio: "none", role: "img", class: `c${color}` });
        svg.append(...lines.map((line) => drawn("path", line.area ? { class: "area" } : {})));
        cell.replaceChildren(svg);
      }
      const svg = cell.firstElementChild;
      svg.setAttribute("aria-label", label);
      lines.forEach((line, at) => {
        const text = line.area ? area(line.values, line.area, 150, 24) : outline(line.values, 150, 24);
        svg.children[at].setAttribute("d", text);
      });
    },
  };
}

// Values as shares of the largest.
function scaled(values) {
  const most = Math.max(...values, 0);
  return values.map((value) => (most > 0 ? value / most : 0));
}

// ---- Parts of the page

function verdict(look) {
  const { state, reasons } = look.verdict;
  by("verdict").className = `wide ${state.toLowerCase()}`;
  say(by("verdict-state"), reasons.length > 0 ? state : `${state}: nothing to do`);
  document.title = `zcached: ${state}`;
  const make = () => element("li", "", element("p", "", element("span", "level"), element("span")), element("p"), element("p"));
  each(by("reasons"), reasons, make, (item, reason) => {
    const [what, follows, command] = item.children;
    what.firstChild.className = `level ${reason.level.toLowerCase()}`;
    say(what.firstChild, reason.level);
    say(what.lastChild, ` ${about(reason)}${reason.what}`);
    say(follows, `effect: ${reason.follows}`);
    say(command, `action: ${reason.command}`);
  });
}

function about(of) {
  if (of.volume) return `volume ${of.volume}: `;
  return of.store ? `store ${of.store}: ` : "";
}

function tiles(look) {
  const from = before(RECENT_MS);
  const rate = (of) => perSecond(from, look, of);
  const hits = share((of) => of.extents.hits, (of) => of.extents.read)(from, look);
  const dirty = look.volumes.reduce((sum, volume) => sum + (volume.dirty?.bytes ?? 0), 0);
  const all = [
    ["Hit ratio, 10 s", hits === null ? "-" : percent(hits, 1)],
    ["since the start", percent(look.extents.hits, look.extents.read)],
    ["Read", `${size(rate(total("read_bytes")))}/s`],
    ["Written", `${size(rate(total("write_bytes")))}/s`],
    ["Requests", `${count(rate((of) => total("reads")(of) + total("writes")(of)))}/s`],
    ["Dirty", size(dirty)],
    ["Cache filled", percent(look.cache.used_bytes, look.cache.size_bytes)],
  ];
  each(by("tiles"), all, () => element("div", "", element("dt"), element("dd")), (tile, [name, value]) => {
    say(tile.firstChild, name);
    say(tile.lastChild, value);
  });
}

// The mode of a volume, and what hinders it.
function modeOf({ mode, dirty: of, remote }) {
  const away = remote?.outage_ms ?? null;
  const parts = [mode, of?.fenced && "fenced", away !== null && `its server is out of reach for ${time(away)}`];
  return parts.filter(Boolean).join(", ");
}

function volumes(look) {
  const [recent, oldest] = [before(RECENT_MS), looks[0]];
  const misses = grown(recent, look, missed);
  const served = look.volumes.map((volume) => {
    const of = (field) => traffic(volume.name, field);
    const hits = share(of("hits"), of("reads"))(recent, look);
    const own = grown(recent, look, of("misses")) + grown(recent, look, of("mixed"));
    const rate = (field) => perSecond(recent, look, of(field));
    return [
      volume.name,
      modeOf(volume),
      hits === null ? "-" : percent(hits, 1),
      percent(volume.traffic.hits, volume.traffic.reads),
      `${size(rate("read_bytes"))}/s`,
      `${size(rate("write_bytes"))}/s`,
      count(rate("reads") + rate("writes")),
      percent(own, misses),
    ];
  });
  const absent = look.absent.map(({ name, why }) => [name, `not served: ${why}`, "-", "-", "-", "-", "-", "-"]);
  rows("volumes", [...served, ...absent], "no volume is served");

  const reads = (name) => grown(oldest, look, traffic(name, "reads"));
  const busy = look.volumes.map(({ name }) => ({ name, reads: reads(name) }));
  const busiest = busy.sort((a, b) => b.reads - a.reads).slice(0, LINES_MAX).map(({ name }) => name);
  const line = (name, values) => ({ name, values });
  chart([
    line("all volumes", history(share((of) => of.extents.hits, (of) => of.extents.read))),
    ...busiest.map((name) => line(name, history(share(traffic(name, "hits"), traffic(name, "reads"))))),
  ]);
}

function chart(lines) {
  const path = (at) => ({ class: `c${at}`, "stroke-dasharray": DASHES[at] });
  const svg = by("hits-chart");
  if (svg.children.length !== lines.length) svg.replaceChildren(...lines.map((_, at) => drawn("path", path(at))));
  lines.forEach((line, at) => svg.children[at].setAttribute("d", outline(line.values, 600, 150)));
  const now = (line) => {
    const value = line.values[line.values.length - 1] ?? null;
    return `${line.name}: ${value === null ? "no reads" : percent(value, 1)}`;
  };
  svg.setAttribute("aria-label", `Hit ratio in the last five minutes; now ${lines.map(now).join(", ")}`);
  const legend = by("hits-legend");
  if (legend.children.length !== lines.length) legend.replaceChildren();
  each(legend, lines, () => {
    const svg = drawn("svg", { viewBox: "0 0 32 8", "aria-hidden": "true", class: `c${legend.children.length}` });
    svg.append(drawn("path", { d: "M0,4H32", "stroke-dasharray": DASHES[legend.children.length] }));
    return element("li", "", svg, element("span"));
  }, (item, line) => say(item.lastChild, now(line)));
}

const PATHS = [
  ["hit", "read, hit"],
  ["miss", "read, miss"],
  ["mixed", "read, both"],
  ["write", "write, trim"],
  ["flush", "flush"],
];

function paths(look) {
  const from = before(RECENT_MS);
  const bounds = look.latency_bounds_us.length;
  rows("paths", PATHS.map(([path, words], color) => {
    const of = (field) => (at) => at.paths[path][field];
    const requests = grown(from, look, of("requests"));
    const bytes = history((a, b) => perSecond(a, b, of("bytes")));
    const band = (quantile) => history((a, b) => {
      const step = within(path, quantile, a, b);
      return step === null ? null : step / bounds;
    });
    const [half, most] = [0.5, 0.99].map((quantile) => boundText(within(path, quantile, from, look)));
    const [low, high] = [band(0.5), band(0.99)];
    return [
      words,
      count(perSecond(from, look, of("requests"))),
      `${size(perSecond(from, look, of("bytes")))}/s`,
      spark(color + 1, `Bytes a second, ${words}, at most ${size(Math.max(...bytes, 0))}`, { values: scaled(bytes) }),
      requests > 0 ? micros(grown(from, look, of("sum_us")) / requests) : "-",
      half,
      most,
      spark(color + 1, `Latency, ${words}: p50 ${half}, p99 ${most}`, { values: low }, { values: low, area: high }),
    ];
  }), "");
}

function capacity({ cache }) {
  const { taken_in_bytes: taken, distinct_bytes: distinct, compressed_bytes: compressed } = cache;
  const row = (name, bytes) => [name, size(bytes), bar(bytes / taken, ratio(taken, bytes))];
  rows("capacity", [
    ["inserted, raw", size(taken), bar(taken > 0 ? 1 : 0, "1.00 : 1")],
    row("without zeros and duplicates", distinct),
    row("compressed", compressed),
  ], "");
  const { holds_bytes: holds, used_bytes: used, size_bytes: room } = cache;
  say(by("holds"), `Now: holds ${size(holds)} of volumes in ${size(used)} of the cache device (${ratio(holds, used)}), which has `
    + `${size(room)}.${cache.healthy ? "" : ` Offline: ${cache.fault}.`}`);
}

function ratio(whole, part) {
  return part > 0 ? `${(whole / part).toFixed(2)} : 1` : "-";
}

function dirty(look) {
  const late = look.volumes.filter((volume) => volume.max_dirty_age_ms !== null || volume.dirty?.bytes > 0);
  rows("dirty", late.map(({ name, dirty: of, max_dirty_age_ms: bound }) => {
    const age = of?.oldest_age_ms ?? 0;
    const text = bound === null ? time(age) : `${time(age)} of ${time(bound)}`;
    return [name, size(of?.bytes ?? 0), bar(bound ? age / bound : 0, text, bound !== null && age > bound)];
  }), "no volume is in write-back");
}

const SOURCES = [
  ["cache_device", "the cache device", 1],
  ["memory", "memory", 3],
  ["zeros", "known zeros", 6],
  ["read_ahead", "the origin, prefetched", 4],
  ["origin_joined", "the origin, joined", 5],
  ["origin", "the origin", 2],
];

const SIZES = { 0.25: "a quarter of this size", 0.5: "half this size", 1: "this size", 2: "twice this size" };

function curve({ curve: { points } }) {
  rows("curve", points.map(({ size: times, hit_ratio: hits }) => [
    SIZES[times] ?? `${times} times this size`, bar(hits ?? 0, hits === null ? "-" : percent(hits, 1)),
  ]), "no reads yet");
  const reasons = [...new Set(points.map(({ missing }) => missing).filter((missing) => missing))];
  say(by("curve-missing"), reasons.length > 0 ? `No figure (-): ${reasons.join("; ")}.` : "");
}

function sources(look) {
  const from = before(MINUTE_MS);
  const parts = SOURCES.map(([field]) => grown(from, look, (of) => of.reads_from[field]));
  const sum = (values) => values.reduce((all, value) => all + value, 0);
  const ever = SOURCES.map(([field]) => look.reads_from[field]);
  const table = SOURCES.map(([, words, color], at) => [
    swatch(color, words), percent(parts[at], sum(parts)), percent(ever[at], sum(ever)),
  ]);
  const past = (of) => of.reads_from.bypassed_requests;
  rows("sources", [...table, ["requests past the cache", count(grown(from, look, past)), count(past(look))]], "");
  each(by("sources-bar"), SOURCES, () => element("i"), (piece, [, , color]) => {
    piece.className = `c${color}`;
  });
  SOURCES.forEach((_, at) => {
    by("sources-bar").children[at].style.width = `${100 * parts[at] / Math.max(1, sum(parts))}%`;
  });
}

const INSERTION = [
  ["offered", "offered to the cache"],
  ["offered_read", "of them read from an origin"],
  ["offered_written", "of them written by clients"],
  ["stored", "stored"],
  ["duplicates", "held already, elsewhere"],
  ["zeros", "zeros"],
  ["present", "cached in the meantime"],
  ["once_only", "read once, ahead"],
  ["skipped", "skipped: the cache was busy"],
  ["stale", "overtaken by a write"],
  ["dropped", "dropped: no space"],
];
const EVICTION = [
  ["units", "units, for new ones"],
  ["spared", "spared by the policy"],
  ["while_reading", "while a reader held others"],
  ["index_entries", "entries of the index"],
];

function counters(look) {
  const from = before(MINUTE_MS);
  const pair = (part, field) => [count(grown(from, look, (of) => of[part][field])), count(look[part][field])];
  rows("insertion", INSERTION.map(([field, words]) => [words, ...pair("insertion", field)]), "");
  rows("eviction", EVICTION.map(([field, words]) => {
    const values = history((a, b) => perSecond(a, b, (of) => of.eviction[field]));
    return [words, ...pair("eviction", field), spark(1, `${words}, at most ${count(Math.max(...values, 0))} a second`, { values: scaled(values) })];
  }), "");
}

function stores(look) {
  rows("stores", look.stores.map((store) => {
    const taken = store.total_bytes - store.left_bytes;
    return [
      store.name,
      store.state,
      bar(taken / store.total_bytes, `${size(taken)} of ${size(store.total_bytes)}`, store.state !== "ok"),
      count(store.volumes),
      count(store.snapshots),
    ];
  }), "no store is open");
}

function events(look) {
  const make = () => element("li", "", element("time"), element("span", "level"), element("span"));
  const none = { level: "", event: "nothing has happened since the start", what: "" };
  each(by("events"), look.events.length > 0 ? look.events : [none], make, (item, event) => {
    const [at, level, what] = item.children;
    const when = event.unix_s ? new Date(event.unix_s * 1000) : null;
    at.dateTime = when ? when.toISOString() : "";
    say(at, when ? when.toLocaleString() : "");
    level.className = `level ${event.level.toLowerCase()}`;
    say(level, event.level);
    const change = event.change ? ` ${event.event} ${event.change}: ` : ` ${event.event}`;
    say(what, `${change}${about(event)}${event.what}`);
  });
}

function draw() {
  const look = last();
  say(by("version"), look.version);
  const stopping = look.stopping ? ", stopping" : "";
  say(by("updated"), `up ${time(look.uptime_ms)}${stopping}, as of ${new Date(look.unix_s * 1000).toLocaleTimeString()}`);
  for (const part of [verdict, tiles, volumes, paths, capacity, dirty, sources, curve, counters, stores, events]) part(look);
}

// ---- Asking

function take(look) {
  // Another life of the daemon counts from zero.
  if (looks.length > 0 && look.uptime_ms < last().uptime_ms) looks = [];
  looks.push(look);
  if (looks.length > KEPT) looks.shift();
}

async function ask() {
  const answer = await fetch("live.json", { cache: "no-store", signal: AbortSignal.timeout(5 * POLL_MS) });
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
}

const isPaused = () => by("pause").getAttribute("aria-pressed") === "true";

async function turn() {
  if (!isPaused() && !document.hidden) {
    try {
      take(await ask());
      by("lost").hidden = true;
      draw();
    } catch (error) {
      by("lost").hidden = false;
      say(by("lost"), `No answer from the daemon: ${error.message}. The numbers below are stale.`);
    }
  }
  setTimeout(turn, POLL_MS);
}

by("pause").addEventListener("click", () => by("pause").setAttribute("aria-pressed", String(!isPaused())));
turn();
