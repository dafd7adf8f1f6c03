// Over time: for each VM and pool what it used, what it was entitled to, and what it wanted beyond that.

const MULTIPLES = 12;

/** Series of VMs added up; entitled is null where one of them is. */
function added(trace, vms) {
  const zero = () => new Array(trace.buckets.count).fill(0);
  const out = { run: zero(), ready: zero(), limited: zero(), costop: zero(), entitled: vms.length ? zero() : [] };
  for (const i of vms) {
    const s = trace.buckets.vms[i];
    for (const k of ['run', 'ready', 'limited', 'costop']) s[k].forEach((v, b) => { out[k][b] += v; });
    out.entitled = out.entitled.map((v, b) => (v === null || s.entitled.length === 0 || s.entitled[b] === null ? null : v + s.entitled[b]));
  }
  return out;
}

/** What is drawn: each VM, then each pool that has VMs below it and is not the host. */
function curves(run) {
  const trace = run.trace;
  const result = new Map(run.result.vms.map(v => [v.name, v]));
  const whole = run.result.duration_ns;
  const mean = t => (run.known.entitled && t ? part(t.entitled_ns, whole) : null);
  const vms = trace.vms.map((v, i) => ({ name: v.name, vm: v.name, ink: vmColour(v.name), series: added(trace, [i]), mean: mean(result.get(v.name)) }));
  const within = path => trace.vms.map((v, i) => [v.pool, i]).filter(([p]) => p === path || p.startsWith(path + '/')).map(x => x[1]);
  const pools = run.result.pools.filter(p => p.path !== '/' && p.path !== '/system')
    .map(p => ({ name: 'pool ' + p.path, ink: 'var(--run)', series: added(trace, within(p.path)), mean: mean(p) })).filter(c => sum(c.series.run) > 0);
  const demand = c => sum(c.series.run) + sum(c.series.ready) + sum(c.series.limited);
  return vms.filter(c => demand(c) > 0).sort((a, b) => demand(b) - demand(a)).concat(pools);
}

/** A path along the upper edge of some stacked values and back along the lower. */
function band(lower, upper, x, y) {
  const there = upper.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)} ${x(i + 1).toFixed(1)},${y(v).toFixed(1)}`);
  const back = lower.map((v, i) => `${x(i + 1).toFixed(1)},${y(v).toFixed(1)} ${x(i).toFixed(1)},${y(v).toFixed(1)}`).reverse();
  return there.concat(back).join(' ');
}

function curve(width, run, c) {
  const { buckets, from_ns: from, to_ns: to } = run.trace;
  const length = i => Math.min((i + 1) * buckets.width_ns, to - from) - i * buckets.width_ns;
  const shares = list => list.map((v, i) => (v === null ? null : part(v, length(i))));
  const layers = [['run', c.ink], ['ready', 'var(--ready-soft)'], ['limited', 'var(--limited)'], ['costop', 'var(--costop)']];
  let below = new Array(buckets.count).fill(0);
  const stacked = layers.map(([k, ink]) => {
    const upper = shares(c.series[k]).map((v, i) => v + below[i]);
    const layer = { k, ink, lower: below, upper };
    below = upper;
    return layer;
  });
  const entitled = shares(c.series.entitled);
  const told = entitled.some(v => v !== null);
  const ys = ticks(0, Math.max(...below, ...entitled.filter(v => v !== null), c.mean || 0, 1), 3);
  const top = Math.max(...ys.at, ...below, ...entitled.filter(v => v !== null));
  const height = 132;
  const box = { left: 36, right: width - 8, top: 10, bottom: height - 22 };
  const x = i => box.left + Math.min(i * buckets.width_ns, to - from) / (to - from) * (box.right - box.left);
  const y = v => box.bottom - v / top * (box.bottom - box.top);
  const nodes = ys.at.flatMap(t => [make('svg:line', { x1: box.left, x2: box.right, y1: y(t), y2: y(t), class: 'grid' }), make('svg:text', { x: box.left - 5, y: y(t) + 3.5, class: 'tick end' }, digits(t))]);
  for (const l of stacked) if (l.upper.some((v, i) => v > l.lower[i])) nodes.push(make('svg:polygon', { points: band(l.lower, l.upper, x, y), css: { fill: l.ink }, class: l.k }));
  if (told) {
    let d = '';
    entitled.forEach((v, i) => { if (v !== null) d += `${i > 0 && entitled[i - 1] !== null ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}H${x(i + 1).toFixed(1)}`; });
    nodes.push(make('svg:path', { d, class: 'entitled' }));
  } else if (c.mean !== null) nodes.push(make('svg:line', { x1: box.left, x2: box.right, y1: y(c.mean), y2: y(c.mean), class: 'entitled mean' }));
  const scale = ticks(from, to, Math.max(2, width / 80));
  for (const t of scale.at) nodes.push(tick(box.left + (t - from) / (to - from) * (box.right - box.left), height - 6, width, moment(t, scale.step)));
  const mean = c.mean === null ? '' : `, entitled on average ${number(c.mean, 1)} %`;
  return drawing(width, height, `${c.name}: used on average ${number(part(sum(c.series.run), to - from), 1)} % of a pCPU${mean}`, ...nodes);
}

function timePart(run) {
  if (!run.trace) return lacks(run, 'trace');
  const all = curves(run);
  const grid = make('div', { class: 'multiples' });
  const add = c => grid.append(make('figure', { data: c.vm === undefined ? {} : { vm: c.vm } }, make('figcaption', {}, make('span', { class: 'vm', css: { '--c': c.ink } }, c.name),
    make('small', {}, `used ${number(part(sum(c.series.run), run.trace.to_ns - run.trace.from_ns), 1)} %` + (c.mean === null ? '' : `, entitled ${number(c.mean, 1)} %`))),
    painted('chart', (box, width) => box.replaceChildren(curve(width, run, c)))));
  all.slice(0, MULTIPLES).forEach(add);
  const more = all.length > MULTIPLES ? make('button', { class: 'more', onclick: e => { all.slice(MULTIPLES).forEach(add); e.currentTarget.remove(); repaint(); } }, `Show ${plural(all.length - MULTIPLES, 'more VM')}`) : null;
  const told = run.trace.buckets.vms.some(s => s.entitled.length);
  return [make('p', { class: 'keys' }, key('--vm0', 'used, % of a pCPU'), key('--ready-soft', 'ready: wanted beyond that'), key('--limited', 'held back by a limit'), key('--costop', 'co-stopped'),
    key('--ink', told ? 'entitled at that time, if it asks for it' : run.known.entitled ? 'entitled, mean of the run' : 'entitled: not known', 'line')), grid, more];
}
