// Puts the page together: its head, the bar that chooses runs and a VM, and the sections; draws again when width or colours change.

const PLACES = { sim: 'simulator', lab: 'lab: a real kernel in an emulator', live: 'live host', trace: 'trace alone' };

function hostWords(h) {
  const parts = [[h.sockets, 'socket'], [h.nodes, 'node'], [h.llcs, 'LLC'], [h.cores, 'core']].filter(p => p[0] > 0).map(([n, w]) => plural(n, w));
  return plural(h.pcpus, 'pCPU') + (parts.length ? ` (${parts.join(', ')})` : '');
}

function factsOf(run) {
  const r = run.result;
  const busy = part(sum(r.pcpus.map(p => p.busy_ns)), r.duration_ns * r.host.pcpus);
  return [
    ['scenario', run.scenario], ['scheduler', run.policy], ['measured', `${PLACES[run.place]}, ${span(r.duration_ns)}`], ['host', hostWords(r.host)],
    ['pCPUs', data.runs.length > 2 ? null : percent(busy) + ' busy'], ['seed', run.seed === null ? null : String(run.seed)], ['repeat', run.repeat], ['from', run.files.join(', ')],
  ];
}

/** Facts of each run; of many runs those that all have in common. */
function factsPart() {
  const list = facts => make('dl', { class: 'facts' }, ...facts.filter(f => f[1]).map(([k, v]) => make('div', {}, make('dt', {}, k), make('dd', {}, k === 'repeat' ? make('code', {}, v) : v))));
  if (data.runs.length <= 2) {
    return make('div', { class: 'runfacts' }, ...data.runs.map(r => make('div', {}, data.runs.length > 1 ? make('h3', {}, r.name) : null, list(factsOf(r)))));
  }
  const all = data.runs.map(factsOf);
  const common = all[0].filter(([, v], i) => all.every(f => f[i][1] === v));
  return make('div', { class: 'runfacts' }, list(common.concat([['runs', data.runs.map(r => r.name).join(', ')]])));
}

function head() {
  const words = data.runs.length === 1 ? null : make('p', { class: 'lead' }, plural(data.runs.length, 'run'));
  return make('header', {}, make('p', { class: 'brand' }, 'Tandem'), make('h1', {}, data.title), words);
}

/** Chooses which runs are shown, and which VM stands out. */
function bar() {
  const pick = (slot, none) => make('select', { 'aria-label': slot ? 'beside' : 'run', onchange: e => choose(slot, e.target.value) },
    none ? make('option', { value: '', selected: state.shown.length < 2 }, 'no other') : null,
    ...data.runs.map((r, i) => make('option', { value: i, selected: state.shown[slot] === i }, r.name)));
  const runs = data.runs.length > 1 ? make('div', { class: 'runs' }, make('label', {}, 'run ', pick(0, false)), make('label', {}, 'beside ', pick(1, true))) : null;
  const chips = data.vms.slice(0, 40).map(vm => make('button', { 'aria-pressed': 'false', css: { '--c': vmColour(vm) }, onclick: e => focusVm(vm, e.currentTarget) }, vm));
  return make('nav', { class: 'chooser', 'aria-label': 'what is shown' }, runs, make('div', { class: 'legend', role: 'group', 'aria-label': 'VM that stands out' }, ...chips));
}

function choose(slot, value) {
  if (value === '') state.shown.length = 1;
  else state.shown[slot] = Number(value);
  if (state.shown[0] === state.shown[1]) state.shown.length = 1;
  sections();
}

function focusVm(vm, chip) {
  state.vm = state.vm === vm ? null : vm;
  for (const other of chip.parentElement.children) other.setAttribute('aria-pressed', String(other === chip && state.vm !== null));
  repaint();
}

/** Sections of the runs that are shown. */
function sections() {
  painters.length = 0;
  timelines.clear();
  const traced = state.shown.some(i => data.runs[i].trace);
  const pooled = state.shown.some(i => data.runs[i].result.pools.some(p => p.path !== '/' && p.path !== '/system'));
  const none = make('p', { class: 'lacks' }, 'No VMs.');
  const all = [
    data.runs.length > 1 ? section('runs', 'Runs beside each other', data.runs.length > 2 ? 'Each point is a run. Choose what goes up and what goes across.' : '', ...(data.runs.length > 2 ? sweepPart() : []),
      make('p', { class: 'tells' }, `Each VM in percent: used and entitled of one pCPU, states of the life of its worlds.` + (differs() ? ` Differences are to the first run, ${data.runs[0].name}, in percent points.` : '')), compareTable()) : null,
    section('vms', 'VMs', 'Where the time of each VM went. %RDY is bad from 10 %, co-stop from 3 %. Used and entitled are in percent of one pCPU, states of the life of its worlds. A click opens its worlds.',
      make('p', { class: 'keys' }, ...STATES.map(s => key(s.ink, s.label))), perRun(run => [run.result.vms.length ? vmTable(run) : none, run.missing.some(m => m.what === 'document' || m.what === 'entitled') ? lacks(run, 'document', 'entitled') : null])),
    state.shown.some(i => homes(data.runs[i])) ? section('homes', 'Home nodes', 'Where each VM, or part of a wide one, has its home at the end, and where its memory is. Below 80 % at home it is slow. A click shows what was decided, and why.',
      make('p', { class: 'keys' }, key('--run', 'at home'), key('--ready', 'in other nodes')), perRun(homesTable)) : null,
    pooled ? section('pools', 'Pools', 'What each pool used, against the line of what it is entitled to.', perRun(poolTable)) : null,
    section('map', 'Where VMs ran', traced ? 'The host as it is built. Each bar is a pCPU: how long it was busy, and with which VMs.' : 'The host as it is built. Each bar is a pCPU and how long it was busy.',
      perRun(mapPart, 'side')),
    ...(traced ? overTime() : [section('time', 'Over time', 'Use over time, how long VMs waited and the timeline come from a trace.', perRun(run => lacks(run, 'trace')))]),
  ];
  document.getElementById('sections').replaceChildren(...all.filter(s => s));
  repaint();
}

/** Sections that only a trace has numbers for. */
function overTime() {
  return [
    section('time', 'Use over time', 'Used against entitled. A VM below its line with red above it wanted more than it got.', perRun(timePart)),
    section('ready', 'How long it waited', 'Every wait for a pCPU by length, on scales of logarithms. Then the worst, and who ran instead.', perRun(readyPart)),
    section('timeline', 'Timeline', 'What each pCPU ran, and what state each world was in.', make('p', { class: 'tells screen', id: 'timeline-help' },
      'Click it, then: wheel zooms, drag or shift and wheel moves, double click zooms in. Keys: + and −, ← and →, 0 for all.'), perRun(timelinePart)),
  ];
}

function readyPart(run, index) {
  if (!run.trace) return lacks(run, 'trace');
  const waits = run.trace.waits;
  if (!waits.sums[0].count) return make('p', { class: 'lacks' }, 'Nothing waited for a pCPU.');
  const chosen = { i: 0 };
  const chart = painted('chart', (box, width) => box.replaceChildren(histogram(width, waits.sums[chosen.i])));
  const select = make('label', {}, 'waits of ', make('select', { onchange: e => { chosen.i = Number(e.target.value); repaint(); } },
    ...waits.sums.map((s, i) => make('option', { value: i }, i === 0 ? 'all VMs' : s.name))));
  return [make('div', { class: 'twin' }, make('div', {}, make('div', { class: 'controls' }, select), chart), percentileTable(waits)),
    make('h4', {}, waits.wrong_idle ? `Worst waits: ${number(waits.wrong_idle)} beside a pCPU that was wrong to idle` : 'Longest waits; no pCPU was wrong to idle'), worstTable(run, index)];
}

function start() {
  const foot = make('footer', {}, make('p', {}, `Made by Tandem ${data.version}: `, make('code', {}, data.command)),
    make('p', {}, 'All numbers are in the JSON at the end of this file; docs/report.md and docs/result.md say what they mean. The page loads nothing.'));
  document.getElementById('main').append(head(), section('look', 'What to look at', 'By the thresholds that are usual on ESXi.', findingsPart()), factsPart(), bar(), make('div', { id: 'sections' }), foot);
  sections();
  let width = document.documentElement.clientWidth;
  addEventListener('resize', () => {
    if (document.documentElement.clientWidth !== width) repaint();
    width = document.documentElement.clientWidth;
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', repaint);
  addEventListener('beforeprint', () => { paper(true); });
  addEventListener('afterprint', () => { paper(false); });
  requestAnimationFrame(() => setTimeout(selftest, 50));
}

/** Paper is light and as wide as a sheet, whatever the screen is. */
function paper(on) {
  state.paper = on;
  document.documentElement.classList.toggle('paper', on);
  repaint();
}

start();
