//! The terminal: draws views, gives keys to the state, carries actions out, and puts everything
//! back at the end, also after a panic or a signal.

use crate::config::Config;
use crate::keys::{Action, Key};
use crate::line::{Line, Tone};
use crate::play::{Error, Player};
use crate::state::State;
use crate::view::{Size, Status, View, view};
use crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use crossterm::{cursor, execute};
use ratatui::Terminal;
use ratatui::backend::{Backend, CrosstermBackend};
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long keys and signals wait at most.
const PATIENCE: Duration = Duration::from_millis(100);

/// Why the program ended before a key or signal ended it.
#[derive(Debug, thiserror::Error)]
pub enum TermError {
    /// The terminal.
    #[error("terminal: cannot use it: {0}; use --once or --batch where there is none")]
    Terminal(#[from] io::Error),
    /// What is looked at.
    #[error(transparent)]
    Source(Error),
}

/// The terminal while it is ours.
struct Held;

impl Held {
    fn take() -> io::Result<Held> {
        enable_raw_mode()?;
        let held = Held;
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)?;
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            give_back();
            before(info);
        }));
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        give_back();
        if !std::thread::panicking() {
            drop(std::panic::take_hook());
        }
    }
}

/// Restores the terminal; a second call has no effect.
fn give_back() {
    let _ = execute!(io::stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// The line that keys come from: standard input, or the terminal behind it. crossterm never returns
/// from a read of a line whose other end is closed, so the line is checked before.
struct TerminalLine(Option<File>);

impl TerminalLine {
    fn open() -> io::Result<TerminalLine> {
        if rustix::termios::isatty(rustix::stdio::stdin()) {
            Ok(TerminalLine(None))
        } else {
            File::open("/dev/tty").map(|f| TerminalLine(Some(f)))
        }
    }

    /// Waits for keys for so long; false if the terminal is gone: a closed window, a broken
    /// connection.
    fn wait(&self, wait: Duration) -> io::Result<bool> {
        let stdin = rustix::stdio::stdin();
        let line = self.0.as_ref().map_or(stdin, |f| f.as_fd());
        let mut polled = [PollFd::from_borrowed_fd(line, PollFlags::IN)];
        let timeout =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut polled, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        Ok(!polled[0].revents().intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL))
    }
}

/// Runs the program on the terminal until a key or signal ends it; `file` is where W writes.
///
/// # Errors
/// `TermError` where there is no terminal, or where the source fails.
pub fn run(mut player: Player, mut state: State, file: Option<&Path>) -> Result<(), TermError> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT]
    {
        signal_hook::flag::register(signal, Arc::clone(&stop))?;
    }
    let colours = std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let line = TerminalLine::open()?;
    let held = Held::take()?;
    // `held` gives the cursor back; where the terminal is gone, ratatui's own attempt would end in
    // a panic.
    let mut terminal = ManuallyDrop::new(Terminal::new(CrosstermBackend::new(io::stdout()))?);
    let begin = Instant::now();
    let mut stale = true;
    while !stop.load(Ordering::Relaxed) {
        let interval = Duration::from_secs_f64(state.config.interval_s);
        stale |= player.tick(begin.elapsed(), interval).map_err(TermError::Source)?;
        if stale {
            draw(&mut terminal, &mut state, &player, colours)?;
            stale = false;
        }
        if !line.wait(player.wait().min(PATIENCE))? {
            break;
        }
        // Keys, and a new size, of which only a signal tells.
        if event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) => match key_of(key).map(|k| state.key(k)) {
                    Some(Action::Quit) => break,
                    Some(action) => carry_out(action, &mut player, &mut state, file),
                    None => {}
                },
                Event::Resize(..) => terminal.autoresize()?,
                _ => {}
            }
            stale = true;
        }
    }
    drop(held);
    Ok(())
}

fn carry_out(action: Action, player: &mut Player, state: &mut State, file: Option<&Path>) {
    match action {
        Action::Refresh | Action::Interval => player.refresh(),
        Action::Pause => player.pause(),
        Action::Step(by) => player.step_and_pause(by),
        Action::Jump(seconds) => player.jump_and_pause(seconds),
        Action::Write => match save(&state.config, file) {
            Ok(path) => state.say(format!("written: {}", path.display())),
            Err(e) => state.say(e),
        },
        Action::None | Action::Quit => {}
    }
}

/// Writes the configuration, and says what was wrong in words for the foot.
fn save(config: &Config, file: Option<&Path>) -> Result<PathBuf, String> {
    let path =
        file.ok_or("configuration: cannot write it: HOME is not set; name a file by --config")?;
    let bad = |e: io::Error| format!("{}: cannot write it: {e}", path.display());
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(bad)?;
    }
    // The old file stays until the new one is whole; a link stays a link.
    let target = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let draft = target.with_extension("part");
    std::fs::write(&draft, config.text()).map_err(bad)?;
    std::fs::rename(&draft, &target).map_err(bad)?;
    Ok(path.to_owned())
}

fn draw<B: Backend>(
    terminal: &mut Terminal<B>,
    state: &mut State,
    player: &Player,
    colours: bool,
) -> io::Result<()> {
    let status = Status { title: player.title(), doing: player.doing() };
    terminal.draw(|frame| {
        let area = frame.area();
        let size = Size { width: usize::from(area.width), height: usize::from(area.height) };
        let sample = player.sample();
        let screen = view(state, sample.as_deref(), &status, size);
        paint(&screen, area, frame.buffer_mut(), colours);
    })?;
    Ok(())
}

/// Puts a view into a buffer; ratatui then writes only what has changed.
pub(crate) fn paint(
    screen: &View,
    area: Rect,
    buffer: &mut ratatui::buffer::Buffer,
    colours: bool,
) {
    for (y, line) in screen.lines.iter().enumerate().take(usize::from(area.height)) {
        let y = area.y + y as u16;
        let mut x = area.x;
        for (text, tone) in &line.pieces {
            let room = area.right().saturating_sub(x);
            x = buffer.set_stringn(x, y, text, usize::from(room), style(*tone, line, colours)).0;
        }
    }
}

fn style(tone: Tone, line: &Line, colours: bool) -> Style {
    let plain = Style::default();
    let coloured = |colour: Color| if colours { plain.fg(colour) } else { plain };
    let style = match tone {
        Tone::Plain => plain,
        Tone::World => coloured(Color::Cyan),
        Tone::Head => plain.add_modifier(Modifier::REVERSED),
        Tone::Sorted => plain.add_modifier(Modifier::BOLD).add_modifier(Modifier::UNDERLINED),
        Tone::Look => coloured(Color::Yellow).add_modifier(Modifier::BOLD),
        Tone::Bad => coloured(Color::Red).add_modifier(Modifier::BOLD),
    };
    if line.cursor { style.add_modifier(Modifier::REVERSED) } else { style }
}

fn key_of(key: KeyEvent) -> Option<Key> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Key::Interrupt);
    }
    Some(match key.code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        _ => return None,
    })
}
