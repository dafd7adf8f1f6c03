//! `tandem top`: its arguments, the host (this one, a simulated one, a recorded one), and the form:
//! a full screen, a batch file, lines, or tables.

mod effects;
#[cfg(feature = "live")]
mod live_source;
mod sim_source;

use crate::{Exit, Failure, say};
use ::top::{
    Config, Format, INTERVAL_S, LIVE_S, Player, Polled, Sample, Size, Source, State, Status,
};
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;
use units::Span;

/// Shows the CPU use and the waits of VMs, pools and worlds, with esxtop's columns and keys: of
/// this host, or of a simulated or recorded one.
#[derive(clap::Args)]
#[command(
    after_help = "On a terminal it uses the whole screen: h shows the keys and explains each \
        column. Otherwise, and with --once, --worlds, --pools or --settings, it prints tables of \
        this host (docs/top.md)."
)]
pub struct Args {
    /// One sample, then end.
    #[arg(long)]
    pub once: bool,
    /// A line of JSON for each sample; of this host with --once a result document
    /// (docs/result.md).
    #[arg(long)]
    pub json: bool,
    /// esxtop's batch mode: a CSV that its viewers open, on standard output.
    #[arg(short, long, conflicts_with_all = ["json", "once"])]
    pub batch: bool,
    /// Time between two samples: seconds, or 500ms [default: 5s; of tables 2s].
    #[arg(short = 'd', long, visible_alias = "delay", value_name = "SECONDS", value_parser = seconds)]
    pub interval: Option<Span>,
    /// Number of samples; ends after them.
    #[arg(
        short = 'n',
        long = "count",
        value_name = "COUNT",
        value_parser = crate::numbers::whole::<u64>(1..=u64::MAX)
    )]
    pub count: Option<u64>,
    /// In batch mode also each host task.
    #[arg(short, long, requires = "batch")]
    all: bool,
    /// The kernel's own accounts: works under any scheduler, also without 'tandem run'.
    #[arg(long, conflicts_with_all = ["sim", "file"])]
    pub kernel: bool,
    /// A simulated host: name of a folder under scenarios/, or a TOML file.
    #[arg(long, value_name = "SCENARIO", conflicts_with = "file")]
    sim: Option<String>,
    /// The run with this label instead of the first.
    #[arg(long, value_name = "LABEL", requires = "sim", conflicts_with = "file")]
    run: Option<String>,
    /// Seed of all random numbers; overrides the scenario's.
    #[arg(long, value_parser = crate::runs::seed, requires = "sim", conflicts_with = "file")]
    seed: Option<u64>,
    /// The scheduler of the simulated host (docs/scenarios.md).
    #[arg(long, value_name = "NAME", requires = "sim", conflicts_with = "file")]
    policy: Option<String>,
    /// Simulated time; overrides the scenario's.
    #[arg(long, requires = "sim", conflicts_with = "file")]
    duration: Option<Span>,
    /// A recorded host: a batch file of esxtop or of 'tandem top -b', or a trace.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Speed of a simulated or recorded host, as a multiple of the clock's [default: 1].
    #[arg(
        long,
        value_name = "TIMES",
        value_parser = crate::numbers::multiple,
        conflicts_with = "fast"
    )]
    pace: Option<f64>,
    /// Plays a simulated or recorded host as fast as possible.
    #[arg(long)]
    fast: bool,
    /// Panel at the start: cpu, or memory with home nodes (NHN, N%L) [default: that of the
    /// configuration].
    #[arg(long, value_enum)]
    panel: Option<PanelArg>,
    /// Only groups whose name contains this; not of tables.
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Configuration file, read at the start and written by W [default: ~/.config/tandem/top.toml].
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Of tables: period in which accounts are read within an interval [default: 100ms].
    #[arg(long)]
    pub step: Option<Span>,
    /// Of tables: adds a line for each world.
    #[arg(long)]
    pub worlds: bool,
    /// Of tables: adds a line for each pool.
    #[arg(long)]
    pub pools: bool,
    /// Of tables: adds the reservation (AMIN) and limit (AMAX, -1 for none) of each VM, in percent
    /// of one pCPU.
    #[arg(long)]
    pub settings: bool,
}

/// A panel by its name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PanelArg {
    /// CPU times.
    Cpu,
    /// Memory and home nodes.
    Memory,
}

/// Size of a screen that is printed, where nothing says another.
const PRINTED: Size = Size { width: 132, height: 60 };

/// `5` and `2.5` are seconds, as for esxtop; `500ms` and `2s` are what they say.
fn seconds(text: &str) -> Result<Span, String> {
    let number = text.parse::<f64>().ok().filter(|s| *s > 0.0 && *s < 1e6);
    number.map_or_else(
        || {
            let allowed = "allowed seconds above 0, such as 2.5, or a time, such as 500ms";
            text.parse::<Span>().map_err(|_| allowed.to_owned())
        },
        |s| Ok(Span::from_ns((s * 1e9) as u64)),
    )
}

impl Args {
    fn is_live(&self) -> bool {
        self.sim.is_none() && self.file.is_none()
    }

    /// Whether it is tables of this host, as lab and scripts have them.
    fn wants_tables(&self) -> bool {
        let lines = self.batch || self.json && !self.once;
        let asked = self.once
            || self.worlds
            || self.pools
            || self.settings
            || !std::io::stdout().is_terminal();
        self.is_live() && !lines && asked && self.panel.is_none()
    }

    fn pace(&self) -> Result<Option<f64>, Failure> {
        let allowed = 0.001..=1e6;
        if self.fast {
            return Ok(None);
        }
        let pace = self.pace.unwrap_or(1.0);
        if allowed.contains(&pace) {
            return Ok(Some(pace));
        }
        Err(Failure::new(
            Exit::Usage,
            anyhow::anyhow!(
                "--pace: cannot play so: seen {pace}, allowed 0.001 to 1000000, or --fast"
            ),
        ))
    }

    /// The configuration in force, and the file that W writes.
    fn config(&self) -> Result<(Config, Option<PathBuf>), Failure> {
        let usual =
            || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config/tandem/top.toml"));
        let file = self.config.clone().or_else(usual);
        let read = file.as_ref().map(|path| files::text(path));
        let mut config = match (&file, read) {
            (Some(path), Some(Ok(text))) => {
                let refused = |e: ::top::ConfigError| {
                    anyhow::Error::from(e).context(path.display().to_string())
                };
                Config::parse(&text).map_err(|e| Failure::new(Exit::Input, refused(e)))?
            }
            // W makes the usual one.
            (Some(path), Some(Err(e)))
                if self.config.is_some() || e.kind() != std::io::ErrorKind::NotFound =>
            {
                let next = match e.kind() {
                    std::io::ErrorKind::NotFound => "make it (it may be empty, W writes it)",
                    _ => "correct it",
                };
                let what = format!(
                    "{}: cannot read the configuration: {e}; {next}, or name another by --config",
                    path.display()
                );
                return Err(Failure::new(Exit::Input, anyhow::anyhow!(what)));
            }
            _ => Config::default(),
        };
        let shortest = if self.is_live() { LIVE_S } else { *INTERVAL_S.start() };
        let shortest = Span::from_ns((shortest * 1e9) as u64);
        if let Some(interval) = self.interval {
            if interval < shortest || interval.as_secs_f64() > *INTERVAL_S.end() {
                let allowed = format!("{shortest} to {} s", INTERVAL_S.end());
                return Err(Failure::new(
                    Exit::Usage,
                    anyhow::anyhow!("--interval: cannot use {interval}: allowed {allowed}"),
                ));
            }
            config.interval_s = interval.as_secs_f64();
        } else if config.interval_s < shortest.as_secs_f64() {
            say::note(&format!(
                "interval_s of the configuration: cannot use {} s on this host: allowed {shortest} \
                    or more; {shortest} is used",
                config.interval_s
            ));
            config.interval_s = shortest.as_secs_f64();
        }
        match self.panel {
            Some(PanelArg::Cpu) => config.panel = ::top::Panel::Cpu,
            Some(PanelArg::Memory) => config.panel = ::top::Panel::Memory,
            None => {}
        }
        Ok((config, file))
    }
}

/// Runs `tandem top`.
///
/// # Errors
/// `Exit::Host` when there are no accounts to read, `Exit::Input` for a refused scenario, file or
/// configuration, `Exit::Usage` for an option without effect, `Exit::Damaged` for a trace of which
/// a part is missing, when the rest has been shown.
pub fn main(args: &Args) -> Result<(), Failure> {
    effects::refuse(args)?;
    args.pace()?;
    if args.wants_tables() {
        return tables(args);
    }
    let (config, file) = args.config()?;
    if args.batch || args.json {
        return lines(args, &config);
    }
    let screen = !args.once && std::io::stdout().is_terminal();
    let (player, damage) = player(args, &config, screen)?;
    let state = State::new(config).with_filter(&args.filter);
    let state = if args.is_live() { state } else { state.not_live() };
    if screen {
        let failed = |e| Failure::new(Exit::Host, e);
        ::top::run(player, state, file.as_deref()).map_err(failed)?;
    } else {
        print_screen(args, player, state)?;
    }
    whole(damage)
}

/// The failure that a damaged trace is, after all of it has been shown.
fn whole(damage: Option<String>) -> Result<(), Failure> {
    damage.map_or(Ok(()), |text| Err(Failure::new(Exit::Damaged, anyhow::anyhow!(text))))
}

#[cfg(feature = "live")]
fn tables(args: &Args) -> Result<(), Failure> {
    crate::live::tables(args)
}

#[cfg(not(feature = "live"))]
fn tables(_: &Args) -> Result<(), Failure> {
    Err(not_live())
}

/// This build cannot look at a live host.
#[cfg(not(feature = "live"))]
fn not_live() -> Failure {
    let what = "top: cannot look at this host: this tandem was built without the live host";
    Failure::new(
        Exit::Host,
        anyhow::anyhow!("{what}; use --sim or --file, or build with --features live"),
    )
}

#[cfg(feature = "live")]
fn this_host(args: &Args, screen: bool) -> Result<(Box<dyn Source>, String), Failure> {
    Ok((Box::new(live_source::LiveSource::open(args.kernel, screen)?), live_source::host_name()))
}

#[cfg(not(feature = "live"))]
fn this_host(_: &Args, _: bool) -> Result<(Box<dyn Source>, String), Failure> {
    Err(not_live())
}

/// What gives samples, and the name of the host; files are played apart.
fn source(
    args: &Args,
    config: &Config,
    screen: bool,
) -> Result<(Box<dyn Source>, String), Failure> {
    let Some(scenario) = &args.sim else { return this_host(args, screen) };
    let pace = if screen { args.pace()? } else { None };
    let wanted = sim_source::Wanted {
        scenario,
        run: args.run.as_deref(),
        seed: args.seed,
        policy: args.policy.as_deref(),
        duration: args.duration,
    };
    let (source, name) =
        sim_source::SimSource::start(&wanted, Duration::from_secs_f64(config.interval_s), pace)?;
    Ok((Box::new(source), name))
}

fn opened(path: &Path, config: &Config) -> Result<::top::Opened, Failure> {
    let opened = ::top::open(path, config.interval_s).map_err(|e| Failure::new(Exit::Input, e))?;
    if let Some(missing) = &opened.missing {
        say::note(&format!("tandem: {}: {missing}", path.display()));
    }
    Ok(opened)
}

/// What plays the samples, and what is damaged of the trace that they are from.
fn player(args: &Args, config: &Config, screen: bool) -> Result<(Player, Option<String>), Failure> {
    let Some(path) = &args.file else {
        return Ok((Player::of(source(args, config, screen)?.0), None));
    };
    let mut opened = opened(path, config)?;
    let damage = opened.damage.take();
    Ok((opened.player(args.pace()?), damage))
}

#[cfg(feature = "live")]
fn no_samples(e: ::top::Error) -> Failure {
    crate::live::no_samples(e)
}

#[cfg(not(feature = "live"))]
fn no_samples(e: ::top::Error) -> Failure {
    Failure::from(anyhow::Error::from_boxed(e))
}

/// The next sample, waited for.
fn wait_for(source: &mut dyn Source, interval: Duration) -> Result<Option<Sample>, Failure> {
    loop {
        match source.poll(interval).map_err(no_samples)? {
            Polled::Sample(sample) => return Ok(Some(*sample)),
            Polled::End => return Ok(None),
            Polled::NotYet(wait) => std::thread::sleep(wait.min(Duration::from_millis(100))),
        }
        if stopped() {
            return Ok(None);
        }
    }
}

#[cfg(feature = "live")]
fn stopped() -> bool {
    crate::live::stopped()
}

#[cfg(not(feature = "live"))]
fn stopped() -> bool {
    false
}

/// A failure while samples are written.
struct Stopped(Failure);

impl From<::top::WriteError> for Stopped {
    fn from(e: ::top::WriteError) -> Stopped {
        Stopped(Failure::from(say::failed("a sample", e)))
    }
}

/// Batch mode and lines of JSON.
fn lines(args: &Args, config: &Config) -> Result<(), Failure> {
    let format = match (args.json, args.all) {
        (true, _) => Format::Json,
        (false, true) => Format::BatchOfAll,
        (false, false) => Format::Batch,
    };
    let most = if args.once { 1 } else { args.count.unwrap_or(u64::MAX) };
    let out = std::io::stdout().lock();
    let mut given = 0;
    let mut damage = None;
    let only = |sample: Option<Sample>| {
        sample.map(|mut sample| {
            ::top::only(&mut sample.rates, &args.filter);
            sample
        })
    };
    let written = if let Some(path) = &args.file {
        let mut opened = opened(path, config)?;
        damage = opened.damage.take();
        let host = opened.host.clone().unwrap_or_else(|| "trace".to_owned());
        let next = || {
            given += 1;
            Ok(if given > most { None } else { only((opened.get)(given as usize - 1)) })
        };
        ::top::write(out, format, &host, next)
    } else {
        let (mut source, host) = source(args, config, false)?;
        let interval = Duration::from_secs_f64(config.interval_s);
        let next = || {
            given += 1;
            if given > most {
                Ok(None)
            } else {
                wait_for(source.as_mut(), interval).map(only).map_err(Stopped)
            }
        };
        ::top::write(out, format, &host, next)
    };
    let (_, late) = written.map_err(|e: Stopped| e.0)?;
    if late > 0 {
        let text = "groups or worlds came after its header and have no columns, as in esxtop; \
            begin another file";
        say::note(&format!("tandem: batch file: {late} {text}"));
    }
    whole(damage)
}

/// The last of so many screens as text.
fn print_screen(args: &Args, mut player: Player, mut state: State) -> Result<(), Failure> {
    let interval = Duration::from_secs_f64(state.config.interval_s);
    let mut left = args.count.unwrap_or(1);
    let mut last = None;
    while left > 0 && !stopped() {
        if args.file.is_some() {
            player.step_and_pause(left as i64 - 1);
            last = player.sample();
            break;
        }
        if player.tick(Duration::ZERO, interval).map_err(no_samples)? {
            if player.doing() == "ended" {
                break;
            }
            last = player.sample();
            left -= 1;
        } else {
            std::thread::sleep(player.wait().min(Duration::from_millis(20)));
        }
    }
    let Some(sample) = last else { return Ok(()) };
    if args.worlds {
        state.expand_all(&sample.rates);
    }
    let columns =
        std::env::var("COLUMNS").ok().and_then(|c| c.parse().ok()).unwrap_or(PRINTED.width);
    let text =
        ::top::screen(&mut state, &sample, &Status::default(), Size { width: columns, ..PRINTED });
    Ok(say::all(&text)?)
}
