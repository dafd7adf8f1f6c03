// The map of the host: sockets, nodes, LLCs, cores, threads; how busy each pCPU was, and with a trace who ran there.

const SIZES = ['socket', 'node', 'LLC', 'core'];

/** Parts of a pCPU's time: label, colour, ns, and the VM. */
function pcpuParts(run, p) {
  const busy = run.result.pcpus.find(x => x.id === p);
  if (!run.trace || !run.trace.pcpus[p]) {
    const ns = busy ? busy.busy_ns : 0;
    return { whole: run.result.duration_ns, parts: busy ? [{ label: 'busy', ink: 'var(--run)', ns }] : [] };
  }
  const t = run.trace.pcpus[p];
  const parts = t.run.map((ns, i) => ({ label: run.trace.vms[i].name, vm: run.trace.vms[i].name, ink: vmColour(run.trace.vms[i].name), ns })).filter(x => x.ns > 0);
  parts.push({ label: 'not named', ink: 'var(--system)', ns: t.other });
  const whole = run.trace.to_ns - run.trace.from_ns;
  return { whole, parts, unknown: t.unknown };
}

function pcpuCell(run, p) {
  const { whole, parts, unknown } = pcpuParts(run, p);
  const busy = sum(parts.map(x => x.ns));
  let at = 0;
  const bars = parts.filter(x => x.ns > 0).map(x => {
    const width = part(x.ns, whole);
    const bar = make('svg:rect', { x: at, y: 0, width, height: 10, css: { fill: x.ink }, data: x.vm === undefined ? {} : { vm: x.vm } }, make('svg:title', {}, `${x.label} on pCPU ${p}: ${percent(width)}, ${span(x.ns)}`));
    at += width;
    return bar;
  });
  if (unknown > 0) bars.push(make('svg:rect', { x: at, y: 3, width: part(unknown, whole), height: 4, class: 'unknown' }, make('svg:title', {}, `not known: ${percent(part(unknown, whole))}`)));
  const text = parts.length ? number(part(busy, whole), 0) + '\u202f%' : '–';
  const label = `pCPU ${p}: ${text} busy` + (run.trace ? '; ' + parts.filter(x => x.ns > 0).map(x => `${x.label} ${percent(part(x.ns, whole))}`).join(', ') : '');
  return make('div', { class: 'pcpu', role: 'img', 'aria-label': label },
    make('span', {}, make('b', {}, String(p)), make('i', {}, text)), make('svg:svg', { viewBox: '0 0 100 10', preserveAspectRatio: 'none' }, ...bars));
}

/** pCPUs grouped by the number that they have at a level, in its order. */
function grouped(pcpus, level, places) {
  const groups = new Map();
  for (const p of pcpus) {
    const at = places[p][level];
    if (!groups.has(at)) groups.set(at, []);
    groups.get(at).push(p);
  }
  return [...groups].sort((a, b) => a[0] - b[0]);
}

/** Boxes of a level; levels that have one part only share a box, with their names in a row. */
function mapLevel(run, pcpus, level, above = []) {
  if (level === SIZES.length) return pcpus.map(p => pcpuCell(run, p));
  if (level === 0 && !run.map.sockets) return mapLevel(run, pcpus, 1);
  return grouped(pcpus, level, run.map.pcpus).map(([number, inside]) => {
    const captions = [...above, `${SIZES[level]} ${number}`];
    const alone = level + 1 < SIZES.length && grouped(inside, level + 1, run.map.pcpus).length === 1;
    if (alone) return mapLevel(run, inside, level + 1, captions);
    return make('div', { class: 'box ' + SIZES[level] }, make('span', { class: 'caption' }, captions.join(' · ')), make('div', { class: 'inside' }, ...mapLevel(run, inside, level + 1)));
  }).flat();
}

function mapPart(run) {
  const count = run.map.pcpus.length;
  if (count) {
    const all = run.map.pcpus.map((_, p) => p);
    return make('div', { class: 'map' + (count > 256 ? ' many huge' : count > 64 ? ' many' : '') }, ...mapLevel(run, all, 0));
  }
  const cells = run.result.pcpus.map(p => pcpuCell(run, p.id));
  return [make('p', { class: 'lacks' }, 'Where each pCPU is in the host is not known: ' + run.missing.filter(m => m.what === 'map').map(m => m.how).join('') + '. They are listed by number.'),
    make('div', { class: 'map many' }, make('div', { class: 'inside' }, ...cells))];
}
