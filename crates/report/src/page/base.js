// Shared by every part of the page: the numbers, elements, words for quantities, colours, and which runs and VM are looked at.

const data = JSON.parse(document.getElementById('data').textContent);
const SVG = 'http://www.w3.org/2000/svg';
/** Runs that are shown, by index: of two both, of many the one with the worst finding; and the VM that stands out, by name. */
const state = { shown: data.runs.length === 2 ? [0, 1] : [data.findings[0]?.run ?? 0], vm: null, paper: false };
/** Functions that draw again what depends on width, colours or the chosen VM. */
const painters = [];

/** An element with attributes and children; texts become text nodes, never markup. */
function make(tag, attributes, ...children) {
  const node = tag.startsWith('svg:') ? document.createElementNS(SVG, tag.slice(4)) : document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'css') Object.entries(value).forEach(([k, v]) => node.style.setProperty(k, v));
    else if (key === 'data') Object.entries(value).forEach(([k, v]) => { node.dataset[k] = v; });
    else node.setAttribute(key, value === true ? '' : value);
  }
  node.append(...children.flat().filter(c => c !== null && c !== undefined && c !== ''));
  return node;
}

/** A number with so many decimals and thin spaces between thousands. */
function number(x, decimals = 0) {
  const [whole, rest] = Math.abs(x).toFixed(decimals).split('.');
  const sign = x < 0 && Number(x.toFixed(decimals)) !== 0 ? '−' : '';
  return sign + whole.replace(/\B(?=(\d{3})+$)/g, '\u202f') + (rest ? '.' + rest : '');
}

/** Three digits that count: 0.123, 1.23, 12.3, 123. */
const digits = x => number(x, Math.abs(x) >= 99.95 || x === 0 ? 0 : Math.abs(x) >= 9.995 ? 1 : Math.abs(x) >= 0.9995 ? 2 : 3);
/** A percentage with one decimal. */
const percent = x => number(x, 1) + '\u202f%';

/** A time in ns in the unit that people would use. */
function span(ns) {
  const units = [[1e9, 's'], [1e6, 'ms'], [1e3, 'µs'], [1, 'ns']];
  const [size, unit] = units.find(u => Math.abs(ns) >= u[0]) || units[3];
  return (unit === 'ns' ? number(ns) : digits(ns / size)) + '\u202f' + unit;
}

/** A moment in s since a trace begins, with as many decimals as a step in ns needs. */
const moment = (ns, step) => number(ns / 1e9, Math.max(0, Math.min(9, Math.ceil(9 - Math.log10(step))))) + '\u202fs';

const part = (a, b) => (b > 0 ? a * 100 / b : 0);
const life = t => t.run_ns + t.ready_ns + t.costop_ns + t.wait_ns;
const sum = list => list.reduce((a, b) => a + b, 0);
const plural = (n, word) => number(n) + ' ' + word + (n === 1 ? '' : 's');

/** Colour of a VM, as a CSS variable; the host's own tasks are grey. */
const COLOURS = 10;
const guests = data.vms.filter(name => name !== 'system');
function vmVariable(name) {
  const i = guests.indexOf(name);
  return i < 0 ? '--system' : '--vm' + (i % COLOURS);
}
const vmColour = name => `var(${vmVariable(name)})`;

/** The present value of a CSS variable, for canvases. */
function inked(variable) {
  return getComputedStyle(document.documentElement).getPropertyValue(variable).trim();
}

/** States in the order in which they are stacked: label, variable, and the part of the times. */
const STATES = [
  { key: 'run', label: 'run', ink: '--run', of: t => t.run_ns },
  { key: 'ready', label: 'ready', ink: '--ready', of: t => t.ready_ns - t.limited_ns },
  { key: 'limited', label: 'limited', ink: '--limited', of: t => t.limited_ns },
  { key: 'costop', label: 'co-stop', ink: '--costop', of: t => t.costop_ns },
  { key: 'wait', label: 'wait', ink: '--wait', of: t => t.wait_ns - t.idle_ns },
  { key: 'idle', label: 'idle', ink: '--idle', of: t => t.idle_ns },
];

/** Steps of 1, 2 or 5 that divide 0..most into about so many parts. */
function ticks(from, to, about) {
  const raw = Math.max((to - from) / about, Number.MIN_VALUE);
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map(f => f * unit).find(s => s >= raw * 0.999);
  const out = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; i++) out.push(i * step);
  return { step, at: out };
}

/** A section with a heading, one line that says what it tells, and its body. */
function section(id, title, tells, ...body) {
  return make('section', { id, 'aria-labelledby': id + '-title' },
    make('h2', { id: id + '-title' }, title), tells ? make('p', { class: 'tells' }, tells) : null, ...body);
}

/** A part for each run that is shown, under its name if there are several. */
function perRun(draw, kind = 'stack') {
  const parts = state.shown.map(i => {
    const run = data.runs[i];
    const body = draw(run, i);
    return make('div', { class: 'part' }, data.runs.length > 1 ? make('h3', {}, run.name) : null, ...[body].flat().filter(b => b));
  });
  return make('div', { class: kind + (parts.length > 1 ? ' two' : '') }, ...parts);
}

/** Says that a run has no numbers for a part, and what would provide them. */
function lacks(run, ...what) {
  const found = run.missing.filter(m => what.includes(m.what));
  return make('p', { class: 'lacks' }, 'Not known here. ', ...found.map(m => m.how.charAt(0).toUpperCase() + m.how.slice(1) + '.'));
}

/** A coloured square with a name. */
const key = (ink, label, more) => make('span', { class: 'key' }, make('i', { css: { '--c': `var(${ink})` }, class: more || '' }), label);

/** Draws a part when it is put on the page and whenever its width, the colours or the chosen VM change. */
function painted(className, paint) {
  const box = make('div', { class: className });
  painters.push({ box, paint });
  return box;
}

function repaint() {
  for (const p of painters) if (p.box.isConnected) p.paint(p.box, p.box.clientWidth);
  for (const node of document.querySelectorAll('[data-vm]')) node.classList.toggle('dim', state.vm !== null && node.dataset.vm !== state.vm);
}
