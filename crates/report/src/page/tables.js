// Tables: what to look at, runs compared, state times of VMs and worlds, pools, percentiles and the worst waits.

const LEVELS = { bad: 'act', warn: 'look', note: 'know', good: 'fine' };

const FINDINGS = 8;

function findingsPart() {
  const item = f => make('li', { class: f.level, data: f.vm ? { vm: f.vm } : {} }, make('b', {}, LEVELS[f.level]), make('span', {},
    data.runs.length > 1 && f.run !== null ? make('em', {}, data.runs[f.run].name + ' ') : '', f.text));
  const notes = data.runs.flatMap(r => r.notes.map(n => (data.runs.length > 1 ? r.name + ': ' : '') + n)).concat(data.notes);
  const items = data.findings.map(item).concat(notes.map(n => make('li', { class: 'note' }, make('b', {}, 'know'), make('span', {}, n))));
  const list = part => make('ul', { class: 'findings' }, ...part);
  if (items.length <= FINDINGS + 1) return list(items);
  return make('div', {}, list(items.slice(0, FINDINGS)), make('details', {}, make('summary', {}, `${items.length - FINDINGS} more`), list(items.slice(FINDINGS))));
}

/** Rows beyond so many VMs are behind a button. */
const SHOWN = 50;

/** A table of which only some rows are shown at first; each VM has a list of rows. */
function long(groups, build) {
  if (groups.length <= SHOWN) return build(groups.flat());
  const later = groups.slice(SHOWN).flat();
  const seen = later.filter(r => !r.hidden);
  seen.forEach(r => { r.hidden = true; });
  const more = e => { seen.forEach(r => { r.hidden = false; }); e.currentTarget.remove(); };
  return make('div', {}, build(groups.flat()), make('button', { class: 'more', onclick: more }, `Show ${number(groups.length - SHOWN)} more VMs`));
}

/** VMs in their order; of very many, those first that waited most, then those that used most. */
function ordered(vms) {
  if (vms.length <= SHOWN) return vms;
  return [...vms].sort((a, b) => b.ready_ns / Math.max(life(b), 1) - a.ready_ns / Math.max(life(a), 1) || b.used_ns - a.used_ns);
}

function table(className, head, rows) {
  const cell = (tag, c) => (c instanceof Node && (c.tagName === 'TD' || c.tagName === 'TH') ? c : make(tag, tag === 'th' ? { scope: 'col' } : {}, c));
  return make('div', { class: 'scroll' }, make('table', { class: className },
    make('thead', {}, make('tr', {}, ...head.map(h => cell('th', h)))), make('tbody', {}, ...rows)));
}

/** A bar of a world's or VM's life by states. */
function stateBar(t) {
  const whole = Math.max(life(t), 1);
  let at = 0;
  const nodes = [];
  for (const s of STATES) {
    const share = s.of(t) / whole * 100;
    if (share > 0) {
      nodes.push(make('svg:rect', { x: at, y: 0, width: share, height: 10, css: { fill: `var(${s.ink})` } }, make('svg:title', {}, `${s.label}: ${percent(share)}, ${span(s.of(t))}`)));
    }
    at += share;
  }
  const label = STATES.filter(s => s.of(t) > 0).map(s => `${s.label} ${percent(s.of(t) / whole * 100)}`).join(', ');
  return make('svg:svg', { class: 'states', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, ...nodes);
}

const name = (vm, text) => make('span', { class: 'vm', title: text, css: { '--c': vmColour(vm) } }, text);
/** A share of life, strong from where people who run ESXi look twice. */
function graded(value, warn, bad) {
  return make('td', { class: 'n ' + (value >= bad ? 'bad' : value >= warn ? 'warn' : value === 0 ? 'zero' : '') }, number(value, 1));
}

function stateCells(t) {
  const of = ns => part(ns, life(t));
  return [make('td', { class: 'wide' }, stateBar(t)), make('td', { class: 'n' }, number(of(t.run_ns), 1)), graded(of(t.ready_ns), 5, 10),
    graded(of(t.limited_ns), 101, 101), graded(of(t.costop_ns), 3, 3), make('td', { class: 'n' }, number(of(t.idle_ns), 1))];
}

/** What time in RUN became on simulated hardware, in percent of it: a column each. */
const LOSSES = [
  { label: 'work %', title: 'of the time in RUN', of: t => t.work },
  { label: 'SMT %', title: 'of the time in RUN: lost to busy threads of the same core', of: t => t.lost.smt_ns },
  { label: 'refill %', title: 'of the time in RUN: lost to caches that did not hold the working set', of: t => t.lost.refill_ns },
  { label: 'bandwidth %', title: "of the time in RUN: lost to other worlds' use of memory", of: t => t.lost.bandwidth_ns },
];

function lossCells(t, shown) {
  return shown ? LOSSES.map(l => make('td', { class: 'n' }, t.lost ? number(part(l.of(t), t.run_ns), 1) : '–')) : [];
}

/** VMs of a run, each with its worlds behind a button. */
function vmTable(run) {
  const whole = run.result.duration_ns;
  const n = (text, title) => make('td', { class: 'n', title }, text);
  const use = t => [n(number(part(t.used_ns, whole), 1), span(t.used_ns)), n(run.known.entitled ? number(part(t.entitled_ns, whole), 1) : '–', span(t.entitled_ns))];
  const ratio = t => n(run.known.entitled && t.entitled_ns > 0 ? number(part(t.used_ns, t.entitled_ns), 1) : '–');
  const rows = [];
  const lost = run.result.vms.some(vm => vm.lost);
  for (const vm of ordered(run.result.vms)) {
    const worlds = vm.worlds.map(w => make('tr', { class: 'world', hidden: true },
      make('th', { scope: 'row' }, w.name), n(w.kind), n(''), ...use(w), ratio(w), ...stateCells(w), ...lossCells(w, lost)));
    const open = e => {
      const shown = e.currentTarget.getAttribute('aria-expanded') !== 'true';
      e.currentTarget.setAttribute('aria-expanded', shown);
      worlds.forEach(w => { w.hidden = !shown; });
    };
    const head = make('th', { scope: 'row' }, worlds.length
      ? make('button', { class: 'open', 'aria-expanded': 'false', 'aria-label': vm.name + ', its worlds', onclick: open }, name(vm.name, vm.name)) : name(vm.name, vm.name));
    rows.push([make('tr', { data: { vm: vm.name } }, head, n(vm.vcpus ? String(vm.vcpus) : '–'), n(run.known.shares && vm.shares ? number(vm.shares) : '–'),
      ...use(vm), ratio(vm), ...stateCells(vm), ...lossCells(vm, lost)), ...worlds]);
  }
  const right = (text, title) => make('th', { class: 'n', scope: 'col', title }, text);
  return long(rows, all => table('vms', ['VM', right('vCPUs'), right('shares'), right('used %', 'of one pCPU'), right('entitled %', 'of one pCPU, by an ideal fluid scheduler'), right('of it %', 'used in percent of entitled'),
    make('th', { class: 'wide', scope: 'col' }, 'where its time went'), right('run %', 'of the life of its worlds'), right('ready %', 'limited is inside'), right('limited %', 'inside ready'), right('co-stop %'), right('idle %', 'inside wait'), ...(lost ? LOSSES.map(l => right(l.label, l.title)) : [])], all));
}

/** Used against entitled, as a bar and a line. */
function bullet(used, entitled, most, ink) {
  const x = v => v / Math.max(most, 1e-9) * 100;
  return make('svg:svg', { class: 'bullet', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': `used ${number(used, 1)} %, entitled ${number(entitled, 1)} %` },
    make('svg:rect', { x: 0, y: 2, height: 6, width: x(used), css: { fill: ink } }),
    entitled > 0 ? make('svg:rect', { x: Math.min(x(entitled), 99.4), y: 0, height: 10, width: 0.6, class: 'mark' }) : null);
}

function poolTable(run) {
  const whole = run.result.duration_ns;
  const pools = run.result.pools;
  const most = Math.max(...pools.map(p => part(Math.max(p.used_ns, p.entitled_ns), whole)), 1);
  const n = text => make('td', { class: 'n' }, text);
  const rows = pools.map(p => {
    const depth = p.path === '/' ? 0 : p.path.split('/').length - 1;
    const [used, entitled] = [part(p.used_ns, whole), part(p.entitled_ns, whole)];
    return make('tr', {}, make('th', { scope: 'row', css: { 'padding-left': 0.5 + depth * 1.1 + 'em' } }, depth > 1 ? p.path.split('/').pop() : p.path),
      make('td', { class: 'wide' }, bullet(used, run.known.entitled ? entitled : 0, most, 'var(--run)')), n(number(used, 1)), n(run.known.entitled ? number(entitled, 1) : '–'),
      n(run.known.entitled && entitled > 0 ? number(part(used, entitled), 1) : '–'), n(digits(p.ready_ns / 1e9)), n(digits(p.limited_ns / 1e9)), n(p.peak_ns === undefined ? '–' : number(p.peak_ns / 1e7, 1)));
  });
  const right = (text, title) => make('th', { class: 'n', scope: 'col', title }, text);
  return table('pools', ['pool', make('th', { class: 'wide', scope: 'col' }, 'used, with a line at entitled'), right('used %', 'of one pCPU'), right('entitled %'), right('of it %'),
    right('ready s'), right('limited s'), right('peak %', 'most of any second, where a limit stands')], rows);
}

/** What runs are compared by, per VM, in percent: of one pCPU, or of the life of its worlds. */
const COMPARED = [
  { label: 'used %', absolute: true, of: (t, d) => part(t.used_ns, d) },
  { label: 'entitled %', absolute: true, of: (t, d) => part(t.entitled_ns, d) },
  { label: 'ready %', of: t => part(t.ready_ns, life(t)), worse: 1 },
  { label: 'co-stop %', of: t => part(t.costop_ns, life(t)), worse: 1 },
  { label: 'limited %', of: t => part(t.limited_ns, life(t)) },
  { label: 'lost to SMT %', of: t => lostPart(t, 'smt_ns'), worse: 1 },
  { label: 'lost to cold caches %', of: t => lostPart(t, 'refill_ns'), worse: 1 },
  { label: 'lost to bandwidth %', of: t => lostPart(t, 'bandwidth_ns'), worse: 1 },
];

/** A thin bar for each run, one below the other; the first is pale. */
function pairBar(values, most) {
  const high = 10 / values.length;
  return make('svg:svg', { class: 'pair', viewBox: '0 0 100 10', preserveAspectRatio: 'none', 'aria-hidden': 'true' },
    ...values.map((v, i) => make('svg:rect', { x: 0, y: i * high + high * 0.1, height: high * 0.8, width: v === null ? 0 : v / Math.max(most, 1e-9) * 100, class: i === 0 ? 'base' : 'other' })));
}

/** Values of a VM in each run; null where the run has no such VM. */
function compared(vm, measure) {
  return data.runs.map(run => {
    const found = run.result.vms.find(v => v.name === vm);
    return found ? measure.of(found, run.result.duration_ns) : null;
  });
}

/** Whether differences are shown: of few runs that have VMs in common. */
function differs() {
  const names = data.runs.map(r => new Set(r.result.vms.map(v => v.name)));
  return data.runs.length <= 6 && names.slice(1).some(n => [...n].some(v => names[0].has(v)));
}

function compareTable() {
  const rows = [];
  const drawn = data.runs.length <= 4;
  const differ = differs();
  const scale = Math.max(...data.vms.flatMap(vm => compared(vm, COMPARED[0]).concat(compared(vm, COMPARED[1]))), 1);
  for (const vm of data.vms) {
    const kept = COMPARED.map(m => [m, compared(vm, m)]).filter(([m, v]) => m.label === 'used %' || v.some(x => x));
    rows.push(kept.map(([m, values], i) => {
      const cells = values.flatMap((v, r) => {
        const first = values[0];
        const by = r > 0 && v !== null && first !== null ? v - first : null;
        const grade = by === null || Math.abs(by) < 0.05 ? '' : m.worse && by >= 1 ? 'bad' : m.worse && by <= -1 ? 'good' : '';
        const change = by === null ? '' : Math.abs(by) < 0.05 ? '±0.0' : (by > 0 ? '+' : '') + number(by, 1);
        const value = make('td', { class: 'n' }, v === null ? '–' : number(v, 1));
        return r === 0 || !differ ? [value] : [value, make('td', { class: 'n change ' + grade }, change)];
      });
      const head = i === 0 ? make('th', { scope: 'rowgroup', rowspan: kept.length }, name(vm, vm)) : null;
      return make('tr', { class: i === 0 ? 'first' : '', data: { vm } }, head, make('td', { class: 'measure' }, m.label),
        drawn ? make('td', { class: 'wide' }, pairBar(values, m.absolute ? scale : 100)) : null, ...cells);
    }));
  }
  const heads = data.runs.flatMap((r, i) => {
    const value = make('th', { class: 'n', scope: 'col' }, r.name);
    return i === 0 || !differ ? [value] : [value, make('th', { class: 'n change', scope: 'col', title: 'difference to ' + data.runs[0].name }, 'differs')];
  });
  const bars = drawn ? [make('th', { class: 'wide', scope: 'col' }, `pale: ${data.runs[0].name}`)] : [];
  return long(rows, all => table('compare', ['VM', '', ...bars, ...heads], all));
}

function percentileTable(waits) {
  const n = ns => make('td', { class: 'n' }, span(ns));
  const row = s => make('tr', { data: s.name === 'all' ? {} : { vm: s.name } }, make('th', { scope: 'row' }, s.name === 'all' ? 'all VMs' : name(s.name, s.name)),
    make('td', { class: 'n' }, number(s.count)), n(s.p50), n(s.p90), n(s.p99), n(s.max));
  const right = (text, title) => make('th', { class: 'n', scope: 'col', title }, text);
  return table('waits', ['VM', right('waits'), right('p50', 'half of its waits were no longer'), right('p90'), right('p99'), right('longest')], waits.sums.map(row));
}

/** The worst waits; each leads to its place on the timeline. */
function worstTable(run, index) {
  const go = w => () => showOnTimeline(index, w.since_ns, w.since_ns + w.ns);
  const row = w => make('tr', { data: w.vm ? { vm: w.vm } : {} },
    make('td', { class: 'n' }, make('button', { class: 'link', title: 'show it on the timeline', onclick: go(w) }, span(w.ns))),
    make('td', { class: 'n' }, moment(w.since_ns, 1e6)), make('th', { scope: 'row' }, w.vm ? name(w.vm, w.who) : w.who), make('td', { class: 'n' }, w.pcpu === null ? '–' : String(w.pcpu)),
    make('td', {}, w.instead ? `${w.instead[0]}, ${span(w.instead[1])}` : '–'), make('td', { class: 'judged ' + w.judgement }, w.judgement), make('td', { class: 'because' }, w.because));
  const right = text => make('th', { class: 'n', scope: 'col' }, text);
  return table('worst', [right('waited'), right('since'), 'who', right('pCPU'), 'ran there instead', 'judged', 'because'], run.trace.waits.worst.map(row));
}
