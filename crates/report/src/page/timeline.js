// The timeline: what each pCPU ran and each world's state, on a canvas that zooms and pans by wheel, drag, keyboard and buttons.

const LANE_STATES = ['not there, or not known', 'run', 'ready', 'co-stop', 'wait', 'idle', 'held back by a limit'];
const LANE_INKS = ['--unknown', '--run', '--ready', '--costop', '--wait', '--idle', '--limited'];
const AXIS = 24;
const SHORTEST = 1000;
/** Timelines by the index of their run. */
const timelines = new Map();

/** A lane as starts and codes; the last start is the end. */
function unpacked(pairs, from) {
  const n = pairs.length / 2;
  const starts = new Float64Array(n + 1);
  const codes = new Uint32Array(n);
  starts[0] = from;
  for (let i = 0; i < n; i++) {
    starts[i + 1] = starts[i] + pairs[2 * i];
    codes[i] = pairs[2 * i + 1];
  }
  return { starts, codes };
}

/** The piece of a lane at a time. */
function pieceAt(lane, ns) {
  let low = 0;
  let high = lane.codes.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (lane.starts[middle] <= ns) low = middle; else high = middle - 1;
  }
  return low;
}

class Timeline {
  constructor(run, index) {
    this.run = run;
    this.trace = run.trace;
    this.from = this.trace.from_ns;
    this.to = this.trace.to_ns;
    this.mode = 'pcpus';
    this.lanes = { pcpus: this.pcpuLanes(), worlds: this.worldLanes() };
    this.element = this.build();
    timelines.set(index, this);
  }

  pcpuLanes() {
    return this.trace.timeline.pcpus.map((pairs, p) => ({ label: 'pCPU ' + p, ...unpacked(pairs, this.trace.from_ns) }));
  }

  worldLanes() {
    const out = [];
    let last = -1;
    this.trace.timeline.worlds.forEach((pairs, i) => {
      const world = this.trace.worlds[i];
      if (world.vm !== last) out.push({ label: this.trace.vms[world.vm].name, head: true, vm: this.trace.vms[world.vm].name });
      last = world.vm;
      out.push({ label: world.name, vm: this.trace.vms[world.vm].name, ...unpacked(pairs, this.trace.from_ns) });
    });
    return out;
  }

  build() {
    const button = (text, title, act) => make('button', { title, 'aria-label': title, onclick: act }, text);
    const mode = (value, text) => make('button', { class: 'mode', 'aria-pressed': String(this.mode === value), data: { mode: value }, onclick: () => this.setMode(value) }, text);
    this.canvas = make('canvas', { tabindex: 0, role: 'img', 'aria-describedby': 'timeline-help' });
    this.tip = make('div', { class: 'tip', hidden: true });
    this.where = make('output', { class: 'where' });
    this.keys = make('p', { class: 'keys' });
    this.controls = make('div', { class: 'controls' }, make('span', { class: 'modes' }, mode('pcpus', 'pCPUs'), mode('worlds', 'worlds')),
      button('−', 'zoom out', () => this.zoom(2)), button('+', 'zoom in', () => this.zoom(0.5)), button('◀', 'earlier', () => this.pan(-0.5)), button('▶', 'later', () => this.pan(0.5)), button('all', 'show all', () => this.all()), this.where);
    this.box = painted('lanes', () => this.draw());
    this.box.append(this.canvas, this.tip);
    this.listen();
    return make('div', { class: 'timeline' }, this.controls, this.keys, this.box);
  }

  listen() {
    const c = this.canvas;
    c.addEventListener('wheel', e => {
      // Without a click on it first, the wheel scrolls the page.
      if (document.activeElement !== c && !e.ctrlKey) return;
      e.preventDefault();
      if (e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY)) this.pan((e.deltaX || e.deltaY) / 600);
      else this.zoom(2 ** (e.deltaY / 240), this.timeAt(e.offsetX));
    }, { passive: false });
    c.addEventListener('pointerdown', e => { this.drag = { x: e.clientX, from: this.from, to: this.to }; c.setPointerCapture(e.pointerId); c.focus({ preventScroll: true }); });
    c.addEventListener('pointerup', () => { this.drag = null; });
    c.addEventListener('pointercancel', () => { this.drag = null; });
    c.addEventListener('pointermove', e => {
      if (this.drag) {
        const by = (this.drag.x - e.clientX) / this.wide() * (this.drag.to - this.drag.from);
        this.show(this.drag.from + by, this.drag.to + by);
      }
      this.tell(e);
    });
    c.addEventListener('pointerleave', () => { this.tip.hidden = true; });
    c.addEventListener('dblclick', e => this.zoom(0.25, this.timeAt(e.offsetX)));
    c.addEventListener('keydown', e => {
      const act = { ArrowLeft: () => this.pan(-0.2), ArrowRight: () => this.pan(0.2), '+': () => this.zoom(0.5), '=': () => this.zoom(0.5), '-': () => this.zoom(2), 0: () => this.all(), Home: () => this.all() }[e.key];
      if (!act || e.ctrlKey || e.metaKey || e.altKey) return;
      e.preventDefault();
      act();
    });
  }

  setMode(mode) {
    this.mode = mode;
    for (const b of this.controls.querySelectorAll('[data-mode]')) b.setAttribute('aria-pressed', String(b.dataset.mode === mode));
    this.draw();
  }

  all() { this.show(this.trace.from_ns, this.trace.to_ns); }
  pan(by) { this.show(this.from + by * (this.to - this.from), this.to + by * (this.to - this.from)); }

  zoom(by, around) {
    const at = around === undefined ? (this.from + this.to) / 2 : around;
    this.show(at - (at - this.from) * by, at + (this.to - at) * by);
  }

  /** Shows a part, moved and cut so that it is inside of what there is. */
  show(from, to) {
    const [first, last] = [this.trace.from_ns, this.trace.to_ns];
    const long = Math.min(Math.max(to - from, SHORTEST), Math.max(last - first, SHORTEST));
    const middle = (from + to) / 2;
    this.from = Math.min(Math.max(to - from < SHORTEST ? middle - long / 2 : from, first), Math.max(last - long, first));
    this.to = this.from + long;
    if (!this.waiting) {
      this.waiting = true;
      requestAnimationFrame(() => { this.waiting = false; this.draw(); });
    }
  }

  gutter() { return this.width < 560 ? 62 : 96; }
  wide() { return this.width - this.gutter(); }
  timeAt(x) { return this.from + (x - this.gutter()) / this.wide() * (this.to - this.from); }
  laneHeight() {
    const n = this.lanes[this.mode].length;
    return n <= 24 ? 20 : n <= 60 ? 15 : n <= 160 ? 11 : 7;
  }

  draw() {
    const lanes = this.lanes[this.mode];
    this.width = this.box.clientWidth;
    if (this.width <= this.gutter()) return;
    const high = this.laneHeight();
    const height = AXIS + lanes.length * high + 4;
    const ratio = state.paper ? 3 : window.devicePixelRatio || 1;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.canvas.style.setProperty('width', this.width + 'px');
    this.canvas.style.setProperty('height', height + 'px');
    this.inks = new Map();
    const g = this.canvas.getContext('2d');
    g.scale(ratio, ratio);
    g.font = '11px system-ui, sans-serif';
    g.textBaseline = 'middle';
    this.drawAxis(g, height);
    lanes.forEach((lane, i) => this.drawLane(g, lane, AXIS + i * high, high));
    this.drawMarks(g, height);
    this.tellWhere();
  }

  ink(variable) {
    if (!this.inks.has(variable)) this.inks.set(variable, inked(variable));
    return this.inks.get(variable);
  }

  x(ns) { return this.gutter() + (ns - this.from) / (this.to - this.from) * this.wide(); }

  drawAxis(g, height) {
    const scale = ticks(this.from, this.to, Math.max(2, this.wide() / 110));
    g.textAlign = 'center';
    for (const t of scale.at) {
      const x = this.x(t);
      g.fillStyle = this.ink('--grid');
      g.fillRect(Math.round(x), AXIS - 5, 1, height - AXIS + 5);
      g.fillStyle = this.ink('--soft');
      if (x > this.gutter() + 14 && x < this.width - 14) g.fillText(moment(t, scale.step), x, 9);
    }
  }

  drawMarks(g, height) {
    for (const [ns] of this.trace.marks) {
      if (ns < this.from || ns > this.to) continue;
      g.fillStyle = this.ink('--ink');
      g.globalAlpha = 0.55;
      g.fillRect(Math.round(this.x(ns)), AXIS - 5, 1.5, height - AXIS);
      g.globalAlpha = 1;
    }
  }

  drawLane(g, lane, top, high) {
    g.textAlign = 'left';
    g.fillStyle = this.ink(lane.head ? '--ink' : '--soft');
    g.font = `${lane.head ? '600 ' : ''}${Math.min(11, high)}px system-ui, sans-serif`;
    if (lane.head) {
      g.fillStyle = this.ink(vmVariable(lane.vm));
      g.fillRect(0, top + high / 2 - 4, 8, 8);
      g.fillStyle = this.ink('--ink');
      g.fillText(lane.label, 13, top + high / 2 + 1, this.width - 14);
      return;
    }
    if (high > 8 || this.mode === 'pcpus') g.fillText(lane.label, lane.vm ? 13 : 0, top + high / 2 + 1, this.gutter() - 16);
    g.globalAlpha = lane.vm !== undefined && state.vm !== null && state.vm !== lane.vm ? 0.2 : 1;
    this.drawPieces(g, lane, top + 1, high - 2);
    g.globalAlpha = 1;
  }

  /** Wide pieces as they are; those narrower than a pixel by what took most of it. */
  drawPieces(g, lane, top, high) {
    const alpha = g.globalAlpha;
    const narrow = { pixel: -1, codes: new Map() };
    const flush = () => {
      if (narrow.pixel < 0) return;
      let best = [0, -1];
      for (const entry of narrow.codes) if (entry[1] > best[1]) best = entry;
      this.fill(g, best[0], narrow.pixel, 1, top, high, alpha, lane);
      narrow.pixel = -1;
      narrow.codes.clear();
    };
    for (let i = pieceAt(lane, this.from); i < lane.codes.length && lane.starts[i] < this.to; i++) {
      const a = this.x(Math.max(lane.starts[i], this.from));
      const b = this.x(Math.min(lane.starts[i + 1], this.to));
      if (b - a >= 1) {
        flush();
        this.fill(g, lane.codes[i], a, b - a, top, high, alpha, lane);
        continue;
      }
      if (Math.floor(a) !== narrow.pixel) flush();
      narrow.pixel = Math.floor(a);
      narrow.codes.set(lane.codes[i], (narrow.codes.get(lane.codes[i]) || 0) + b - a);
    }
    flush();
    g.globalAlpha = alpha;
  }

  /** VM of a piece of a pCPU's lane; none if it ran no world. */
  vmOf(code) {
    const what = Math.floor(code / 2);
    return what >= 3 ? this.trace.vms[this.trace.worlds[what - 3].vm].name : null;
  }

  fill(g, code, x, width, top, high, alpha, lane) {
    const what = Math.floor(code / 2);
    const mixed = code % 2 === 1;
    const vm = lane.vm === undefined ? this.vmOf(code) : null;
    const variable = lane.vm === undefined ? ['--unknown', '--idle', '--system'][what] || vmVariable(vm) : LANE_INKS[what % 8];
    g.globalAlpha = alpha * (vm !== null && state.vm !== null && state.vm !== vm ? 0.2 : 1) * (mixed ? 0.6 : 1);
    g.fillStyle = this.ink(variable);
    g.fillRect(x, top, width > 3 ? width - 0.5 : width, high);
    if (width < 46 || high < 12 || mixed) return;
    const text = this.inside(code, lane);
    if (!text) return;
    g.fillStyle = this.ink('--onink');
    g.save();
    g.beginPath();
    g.rect(x, top, width - 4, high);
    g.clip();
    g.fillText(text, x + 5, top + high / 2 + 1);
    g.restore();
  }

  /** What is written inside a wide piece. */
  inside(code, lane) {
    const what = Math.floor(code / 2);
    if (lane.vm === undefined) return what >= 3 ? this.called(what - 3) : '';
    return what % 8 === 1 && what >= 8 ? 'pCPU ' + (Math.floor(what / 8) - 1) : '';
  }

  called(world) {
    const w = this.trace.worlds[world];
    return this.trace.vms[w.vm].name + '/' + w.name;
  }

  /** A piece in words. */
  said(lane, i) {
    const code = lane.codes[i];
    const what = Math.floor(code / 2);
    let text = lane.vm === undefined ? (what >= 3 ? this.called(what - 3) : ['not known', 'idle', 'something that the trace does not name'][what]) : LANE_STATES[what % 8];
    if (lane.vm !== undefined && what >= 8) text += (what % 8 === 1 ? ' on pCPU ' : ', queue of pCPU ') + (Math.floor(what / 8) - 1);
    if (code % 2) text = `mostly ${text}: several pieces shorter than ${span(this.trace.timeline.resolution_ns)}`;
    return text;
  }

  tell(e) {
    const lane = this.lanes[this.mode][Math.floor((e.offsetY - AXIS) / this.laneHeight())];
    const ns = this.timeAt(e.offsetX);
    this.tip.hidden = !lane || lane.head || e.offsetX < this.gutter() || ns > this.trace.to_ns;
    if (this.tip.hidden) return;
    const i = pieceAt(lane, ns);
    const mark = this.trace.marks.find(m => Math.abs(this.x(m[0]) - e.offsetX) < 4);
    this.tip.replaceChildren(make('b', {}, lane.vm === undefined ? lane.label : `${lane.vm}/${lane.label}`), this.said(lane, i), make('br'),
      `${span(lane.starts[i + 1] - lane.starts[i])}, from ${moment(lane.starts[i], 1000)}`, mark ? make('em', {}, mark[1]) : '');
    const left = Math.min(e.offsetX + 14, this.width - this.tip.offsetWidth - 4);
    this.tip.style.setProperty('left', Math.max(0, left) + 'px');
    this.tip.style.setProperty('top', e.offsetY + 18 + 'px');
  }

  tellWhere() {
    const step = (this.to - this.from) / 1000;
    this.where.textContent = `${moment(this.from, Math.max(step, 1))} to ${moment(this.to, Math.max(step, 1))}: ${span(this.to - this.from)}`;
    this.canvas.setAttribute('aria-label', `timeline of ${this.mode === 'pcpus' ? 'pCPUs' : 'worlds'}, ${this.where.textContent}`);
    const states = LANE_INKS.map((ink, i) => [ink, LANE_STATES[i]]).slice(1).concat([[LANE_INKS[0], 'unknown']]);
    const vms = this.trace.vms.filter((v, i) => this.trace.pcpus.some(p => p.run[i] > 0)).slice(0, 24).map(v => [vmVariable(v.name), v.name]);
    const used = this.mode === 'pcpus' ? vms.concat([['--idle', 'idle']]) : states;
    this.keys.replaceChildren(...used.map(([ink, text]) => key(ink, text)));
  }
}

/** Brings a timeline into view with a span in its middle. */
function showOnTimeline(index, from, to) {
  const t = timelines.get(index);
  const room = Math.max(to - from, 2000);
  t.setMode('worlds');
  t.show(from - room, to + room);
  t.element.scrollIntoView({ block: 'center' });
  t.canvas.focus({ preventScroll: true });
}

function timelinePart(run, index) {
  if (!run.trace) return lacks(run, 'trace');
  const { timeline, from_ns: from, to_ns: to, whole_ns: whole, events } = run.trace;
  const left = [];
  if (timeline.resolution_ns > 0) left.push(`Neighbours shorter than ${span(timeline.resolution_ns)} are drawn together, paler, as what took most of their time; tandem report --from --to shows a part of the trace in full.`);
  if (timeline.left_out > 0) left.push(`${plural(timeline.left_out, 'world')} that ran or waited least have no lane.`);
  if (to - from < whole) left.push(`Shown: ${moment(from, 1e6)} to ${moment(to, 1e6)} of a trace of ${span(whole)} and ${plural(events, 'event')}.`);
  return [new Timeline(run, index).element, left.length ? make('p', { class: 'tells' }, left.join(' ')) : null];
}
