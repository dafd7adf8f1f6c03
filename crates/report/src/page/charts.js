// Charts drawn as SVG: lines over the runs of a document, and the histogram of waits.

/** A text under an axis, which does not pass the right edge. */
const tick = (x, y, right, text) => make('svg:text', { x: x + text.length * 3.2 > right ? right : x, y, class: x + text.length * 3.2 > right ? 'tick end' : 'tick middle' }, text);

/** Axes with a grid; `x` and `y` are functions from values to pixels. */
function axes(box, xs, ys, labels) {
  const nodes = [];
  for (const t of ys.at) {
    nodes.push(make('svg:line', { x1: box.left, x2: box.right, y1: box.y(t), y2: box.y(t), class: 'grid' }));
    nodes.push(make('svg:text', { x: box.left - 6, y: box.y(t) + 3.5, class: 'tick end' }, labels.yTick(t)));
  }
  for (const [value, text] of xs) nodes.push(tick(box.x(value), box.bottom + 16, box.right + 6, text));
  nodes.push(make('svg:line', { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: 'axis' }));
  nodes.push(make('svg:text', { x: (box.left + box.right) / 2, y: box.bottom + 34, class: 'label middle' }, labels.x));
  nodes.push(make('svg:text', { x: 0, y: 10, class: 'label' }, labels.y));
  return nodes;
}

function drawing(width, height, label, ...children) {
  return make('svg:svg', { viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': label }, ...children);
}

/** What the y axis of the chart over runs may show: of a VM's times in a run, and whether its unit is s or %. */
const MEASURES = {
  ready: { label: 'ready time, s', of: t => t.ready_ns / 1e9 },
  used: { label: 'CPU time used, % of a pCPU', of: (t, run) => part(t.used_ns, run.result.duration_ns) },
  entitled: { label: 'entitled, % of a pCPU', of: (t, run) => part(t.entitled_ns, run.result.duration_ns) },
  readyShare: { label: 'ready, % of the life of its worlds', of: t => part(t.ready_ns, life(t)) },
  costop: { label: 'co-stop, s', of: t => t.costop_ns / 1e9 },
  limited: { label: 'limited, s', of: t => t.limited_ns / 1e9 },
  migrations: { label: 'migrations', of: t => t.migrations },
  work: { label: 'work completed, s', of: t => t.work / 1e9 },
  smt: { label: 'lost to hyper-threads, % of its time in RUN', of: t => lostPart(t, 'smt_ns') },
  refill: { label: 'lost to cold caches, % of its time in RUN', of: t => lostPart(t, 'refill_ns') },
  bandwidth: { label: 'lost to memory bandwidth, % of its time in RUN', of: t => lostPart(t, 'bandwidth_ns') },
};

/** Part of the time in RUN that was lost to a cause, where hardware is simulated. */
function lostPart(t, cause) {
  return t.lost ? part(t.lost[cause], t.run_ns) : 0;
}

/** Times of all VMs together. */
function together(run) {
  const out = {};
  const add = (to, from) => {
    for (const [k, v] of Object.entries(from)) if (typeof v === 'number') to[k] = (to[k] || 0) + v;
  };
  for (const vm of run.result.vms) {
    add(out, vm);
    if (vm.lost) add(out.lost = out.lost || {}, vm.lost);
  }
  return out;
}

/** Lines of the chart over runs: each VM, or all together. */
function sweepSeries(measure, byVm) {
  const of = MEASURES[measure].of;
  const value = (run, name) => {
    const vm = run.result.vms.find(v => v.name === name);
    return vm ? of(vm, run) : null;
  };
  if (!byVm) {
    const all = run => (run.result.vms.length ? of(Object.assign({ run_ns: 0, ready_ns: 0, costop_ns: 0, wait_ns: 0 }, together(run)), run) : null);
    return [{ name: 'all VMs', ink: '--ink', values: data.runs.map(all) }];
  }
  return data.vms.map(name => ({ name, vm: name, ink: vmVariable(name), values: data.runs.map(r => value(r, name)) }));
}

/** Draws runs as points. */
function sweepChart(width, axis, measure, byVm) {
  const series = sweepSeries(measure, byVm);
  const order = axis.values.map((x, i) => i).sort((a, b) => axis.values[a] - axis.values[b]);
  const all = series.flatMap(s => s.values.filter(v => v !== null));
  const ys = ticks(0, Math.max(...all, 1e-9), 5);
  const top = Math.ceil(Math.max(...all, 1e-9) / ys.step - 1e-6) * ys.step;
  if (top > ys.at[ys.at.length - 1] + ys.step / 2) ys.at.push(top);
  const lowest = axis.unit === '%' ? 0 : Math.min(...axis.values);
  const highest = axis.unit === '%' ? Math.max(100, ...axis.values) : Math.max(...axis.values);
  const height = 310;
  const box = { left: 52, right: width - 14, bottom: height - 62, top: 22 };
  const pad = axis.unit === '%' ? 0 : 18;
  box.x = v => box.left + pad + (v - lowest) / Math.max(highest - lowest, 1e-9) * (box.right - box.left - 2 * pad);
  box.y = v => box.bottom - v / top * (box.bottom - box.top);
  const ordinal = axis.name === 'run';
  const marks = ordinal ? axis.values.map((v, i) => [v, data.runs[i].name]) : ticks(lowest, highest, Math.min(10, width / 70)).at.map(v => [v, digits(v)]);
  const room = (box.right - box.left) / Math.max(marks.length, 1);
  const slanted = ordinal && marks.some(m => m[1].length * 6.5 > room);
  const short = text => (text.length > 22 ? text.slice(0, 21) + '…' : text);
  const nodes = slanted ? marks.map(([v, text]) => make('svg:text', { transform: `translate(${box.x(v) + 4} ${box.bottom + 14}) rotate(-28)`, class: 'tick end' }, short(text))) : [];
  nodes.push(...axes(box, slanted ? [] : marks, ys, { x: ordinal ? '' : axis.name + (axis.unit ? ', ' + axis.unit : ''), y: MEASURES[measure].label, yTick: digits }));
  for (const s of series) {
    const points = order.filter(i => s.values[i] !== null).map(i => [box.x(axis.values[i]), box.y(s.values[i]), i]);
    const group = make('svg:g', { css: { '--c': `var(${s.ink})` }, class: 'series', data: s.vm === undefined ? {} : { vm: s.vm } });
    // Several runs at one place are no line.
    const single = points.every((p, k) => k === 0 || p[0] > points[k - 1][0] + 0.5);
    if (single) group.append(make('svg:polyline', { points: points.map(p => p[0].toFixed(1) + ',' + p[1].toFixed(1)).join(' ') }));
    for (const [x, y, i] of points) {
      const text = `${s.name}, ${data.runs[i].name}: ${digits(s.values[i])} at ${axis.name} ${digits(axis.values[i])}${axis.unit}`;
      group.append(make('svg:circle', { cx: x.toFixed(1), cy: y.toFixed(1), r: 3.5 }, make('svg:title', {}, text)));
    }
    nodes.push(group);
  }
  return drawing(width, height, `${MEASURES[measure].label} against ${axis.name}, ${data.runs.length} runs`, ...nodes);
}

/** The chart over runs with what chooses its axes. */
function sweepPart() {
  const chosen = { axis: data.sweep.best, measure: data.sweep.y, byVm: data.sweep.y === 'used' && data.vms.length <= 12 };
  const chart = painted('chart', (box, width) => box.replaceChildren(sweepChart(width, data.sweep.axes[chosen.axis], chosen.measure, chosen.byVm)));
  const choose = (label, options, at, set) => make('label', {}, label + ' ',
    make('select', { onchange: e => { set(e.target.value); repaint(); } },
      ...options.map(([value, text]) => make('option', { value, selected: String(value) === String(at) }, text))));
  const some = ([, m]) => data.runs.some(r => r.result.vms.some(v => m.of(v, r) > 0));
  const measures = Object.entries(MEASURES).filter(some).map(([k, m]) => [k, m.label]);
  return [
    make('div', { class: 'controls' },
      choose('up', measures, chosen.measure, v => { chosen.measure = v; }),
      choose('across', data.sweep.axes.map((a, i) => [i, a.name + (a.unit ? ', ' + a.unit : '')]), chosen.axis, v => { chosen.axis = Number(v); }),
      choose('lines', [['', 'all VMs together'], ['1', 'each VM']], chosen.byVm ? '1' : '', v => { chosen.byVm = v === '1'; })),
    chart,
  ];
}

/** Bounds of a bucket of waits, in ns. */
const bucketFrom = i => (i === 0 ? 0 : 1000 * 2 ** (i - 1));
const bucketTo = i => 1000 * 2 ** i;

/** Waits by length, counted in powers of two, with percentiles as lines. */
function histogram(width, waits) {
  const last = waits.histogram.length;
  const first = Math.max(0, waits.histogram.findIndex(n => n > 0));
  const from = Math.min(first, Math.max(0, last - 6));
  const height = 190;
  const box = { left: 40, right: width - 10, bottom: height - 42, top: 26 };
  const slot = (box.right - box.left) / (last - from);
  const most = Math.max(...waits.histogram, 1);
  // Counts are drawn on a scale of logarithms: one wait of a second among a million short ones has to be seen.
  const scale = n => (n > 0 ? Math.log10(n) + 0.35 : 0) / (Math.log10(most) + 0.35);
  box.y = n => box.bottom - scale(n) * (box.bottom - box.top);
  box.x = i => box.left + (i - from) * slot;
  const decades = [];
  for (let n = 1; n <= most; n *= 10) decades.push(n);
  const every = Math.max(1, Math.ceil(46 / slot));
  const marks = [];
  for (let i = from; i <= last; i += every) marks.push([i, i === 0 ? '0' : span(bucketFrom(i))]);
  const nodes = axes(box, marks, { at: decades }, { x: 'length of the wait', y: 'waits', yTick: n => (n >= 1e6 ? digits(n / 1e6) + 'M' : n >= 1e3 ? digits(n / 1e3) + 'k' : String(n)) });
  waits.histogram.forEach((n, i) => {
    if (n === 0 || i < from) return;
    const text = `${span(bucketFrom(i))} to ${span(bucketTo(i))}: ${plural(n, 'wait')}`;
    nodes.push(make('svg:rect', { x: (box.x(i) + 1).toFixed(1), width: Math.max(slot - 2, 1).toFixed(1), y: box.y(n).toFixed(1), height: (box.bottom - box.y(n)).toFixed(1), class: 'bar' },
      make('svg:title', {}, text)));
  });
  const place = ns => {
    const i = waits.histogram.findIndex((_, b) => ns < bucketTo(b));
    const at = i < 0 ? last - 1 : i;
    return box.x(at + (ns - bucketFrom(at)) / (bucketTo(at) - bucketFrom(at)));
  };
  let free = -1e9;
  for (const [name, ns] of [['p50', waits.p50], ['p90', waits.p90], ['p99', waits.p99], ['max', waits.max]]) {
    const x = place(ns);
    nodes.push(make('svg:line', { x1: x, x2: x, y1: box.top - 4, y2: box.bottom, class: 'mark' }, make('svg:title', {}, `${name} ${span(ns)}`)));
    if (x - free > 26) {
      nodes.push(make('svg:text', { x: Math.min(x, box.right - 8), y: box.top - 8, class: 'tick middle' }, name));
      free = x;
    }
  }
  return drawing(width, height, `histogram of ${plural(waits.count, 'wait')}, half of them up to ${span(waits.p50)}, the longest ${span(waits.max)}`, ...nodes);
}
