// With #selftest the page tries itself and writes what it saw into an element, for a test in a real browser; else it does nothing.

const seen = { errors: [], violations: [] };
window.addEventListener('error', e => seen.errors.push(String(e.message)));
window.addEventListener('unhandledrejection', e => seen.errors.push(String(e.reason)));
document.addEventListener('securitypolicyviolation', e => seen.violations.push(e.violatedDirective + ' ' + e.blockedURI));

/** Whether the middle of a lane's first piece has the colour of what ran. */
function firstPiece(t) {
  t.draw();
  const lane = t.lanes.pcpus[0];
  const code = lane.codes[0];
  const swatch = make('canvas', { width: 1, height: 1 }).getContext('2d', { willReadFrequently: true });
  swatch.fillStyle = t.ink(t.vmOf(code) === null ? '--idle' : vmVariable(t.vmOf(code)));
  swatch.fillRect(0, 0, 1, 1);
  const ratio = t.canvas.width / t.width;
  const [x, y] = [t.x((lane.starts[0] + lane.starts[1]) / 2) * ratio, (AXIS + 3) * ratio];
  const at = t.canvas.getContext('2d').getImageData(Math.round(x), Math.round(y), 1, 1).data;
  return at.join() === swatch.getImageData(0, 0, 1, 1).data.join();
}

/** Zooms and pans a timeline by events, as a hand would, and reads where it is. */
function tryTimeline(t) {
  const c = t.canvas;
  const size = () => t.to - t.from;
  const out = { whole: size() };
  const wheel = (deltaY, more) => c.dispatchEvent(new WheelEvent('wheel', { deltaY, bubbles: true, cancelable: true, clientX: c.getBoundingClientRect().left + t.width / 2, ...more }));
  const press = key => c.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
  document.activeElement.blur();
  wheel(-240);
  out.wheelWithoutFocus = size();
  c.focus();
  wheel(-240);
  out.wheel = size();
  press('+');
  out.plus = size();
  const before = t.from;
  press('ArrowRight');
  out.right = (t.from - before) / size();
  const at = t.from;
  const rect = c.getBoundingClientRect();
  const pointer = (type, x) => c.dispatchEvent(new PointerEvent(type, { pointerId: 1, clientX: rect.left + x, clientY: rect.top + 40, bubbles: true }));
  c.setPointerCapture = () => {};
  pointer('pointerdown', 300);
  pointer('pointermove', 300 + t.wide() / 10);
  pointer('pointerup', 300);
  out.drag = (t.from - at) / size();
  for (let i = 0; i < 60; i++) press('+');
  out.closest = size();
  press('0');
  out.all = size();
  t.controls.querySelector('[aria-label="zoom in"]').click();
  out.button = size();
  press('Home');
  t.setMode('worlds');
  t.draw();
  out.worlds = t.lanes.worlds.length;
  pointer('pointermove', t.gutter() + t.wide() / 2);
  out.tip = t.tip.textContent;
  t.setMode('pcpus');
  out.drawn = firstPiece(t);
  return out;
}

function selftest() {
  if (location.hash !== '#selftest') return;
  const out = { runs: data.runs.length, sections: [...document.querySelectorAll('section')].map(s => s.id), images: document.images.length, scripts: document.scripts.length };
  try {
    out.timelines = [...timelines.values()].map(tryTimeline);
    const opened = document.querySelector('table.vms button.open');
    if (opened) {
      opened.click();
      out.worldsShown = document.querySelectorAll('table.vms tr.world:not([hidden])').length;
      opened.click();
    }
    const chip = document.querySelector('.legend button');
    if (chip) {
      chip.click();
      out.dimmed = document.querySelectorAll('.dim').length;
      chip.click();
    }
    out.firstVm = (document.querySelector('table.vms tbody th') || {}).textContent;
    out.injected = document.querySelectorAll('main script, main img, main iframe, main [onerror]').length;
    out.width = document.documentElement.scrollWidth - document.documentElement.clientWidth;
    out.requests = performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith('data:'));
  } catch (e) {
    seen.errors.push(String(e.stack || e));
  }
  document.body.append(make('pre', { id: 'selftest', hidden: true }, JSON.stringify({ ...out, ...seen })));
}
