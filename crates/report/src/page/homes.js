// Home nodes: where the memory of each NUMA client is, how often its home changed, and why.

/** A bar of a client's memory by node; that of its home stands out. */
function nodeBar(c) {
  const whole = Math.max(c.bytes.reduce((a, b) => a + b, 0), 1);
  let at = 0;
  const nodes = c.bytes.map((bytes, node) => {
    const share = bytes / whole * 100;
    const rect = share > 0 ? make('svg:rect', { x: at, y: 0, width: share, height: 10, class: node === c.home ? 'home' : 'away' },
      make('svg:title', {}, `node ${node}: ${percent(share)}, ${number(bytes / 1048576)} MiB`)) : null;
    at += share;
    return rect;
  });
  const label = c.bytes.map((bytes, node) => `node ${node} ${percent(bytes / whole * 100)}`).join(', ');
  return make('svg:svg', { class: 'states nodes', viewBox: '0 0 100 10', preserveAspectRatio: 'none', role: 'img', 'aria-label': label }, ...nodes.filter(n => n));
}

const homes = run => run.result.vms.some(vm => (vm.numa || []).length);

/** NUMA clients of a run; the decisions on each are behind a button. */
function homesTable(run) {
  if (!homes(run)) return make('p', { class: 'lacks' }, 'No VM has a home node here.');
  const n = text => make('td', { class: 'n' }, text);
  const rows = [];
  for (const vm of run.result.vms.filter(v => (v.numa || []).length)) {
    const own = [];
    vm.numa.forEach((c, i) => {
      const all = c.bytes.reduce((a, b) => a + b, 0);
      const here = c.home === null ? Math.max(...c.bytes) : c.bytes[c.home] || 0;
      const local = all ? here / all * 100 : 100;
      const changed = Object.entries(c.changes).filter(([reason]) => reason !== 'placed');
      const why = [...(c.notes || []), ...c.decisions].map(d => make('tr', { class: 'world', hidden: true }, make('td', { class: 'because', colspan: 8 }, d)));
      const open = e => {
        const shown = e.currentTarget.getAttribute('aria-expanded') !== 'true';
        e.currentTarget.setAttribute('aria-expanded', shown);
        why.forEach(w => { w.hidden = !shown; });
      };
      const text = vm.numa.length > 1 ? `${vm.name}, part ${i}` : vm.name;
      const head = why.length ? make('button', { class: 'open', 'aria-expanded': 'false', 'aria-label': text + ', decisions on its home', onclick: open }, name(vm.name, text)) : name(vm.name, text);
      own.push(make('tr', { data: { vm: vm.name } }, make('th', { scope: 'row' }, head), n(String(c.vcpus)), n(c.home === null ? '–' : String(c.home)),
        make('td', { class: 'wide' }, nodeBar(c)), make('td', { class: 'n ' + (c.home !== null && local < 80 ? 'bad' : '') }, number(local, 1)),
        n(number(changed.reduce((a, [, k]) => a + k, 0))), make('td', {}, changed.map(([reason, k]) => `${reason} ${k}`).join(', ')), n(number(c.moved_bytes / 1048576))), ...why);
    });
    rows.push(own);
  }
  const right = (text, title) => make('th', { class: 'n', scope: 'col', title }, text);
  return long(rows, all => table('homes', ['VM', right('vCPUs'), right('NHN', 'home node'), make('th', { class: 'wide', scope: 'col' }, 'its memory by node'), right('N%L', 'of its memory, that in its home'),
    right('NMIG', 'changes of its home'), 'by reason', right('moved MiB', 'memory that has followed')], all));
}
