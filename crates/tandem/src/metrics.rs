//! `tandem metrics`, and the address at which `tandem run` serves them; the numbers come from
//! crates/host.

use crate::{Exit, Failure, say};
use std::net::SocketAddr;

/// Prints the running daemon's metrics once, as OpenMetrics; or their list, or a dashboard for
/// Grafana.
#[derive(clap::Args)]
pub struct Args {
    /// Prometheus' own text format 0.0.4 instead of OpenMetrics, for node_exporter's textfile
    /// collector.
    #[arg(long, conflicts_with_all = ["list", "dashboard"])]
    prometheus: bool,
    /// Every metric with type, unit, labels, meaning and advice; needs no daemon.
    #[arg(long, conflicts_with = "dashboard")]
    list: bool,
    /// The list as JSON.
    #[arg(long, requires = "list", conflicts_with_all = ["dashboard", "prometheus"])]
    json: bool,
    /// A dashboard that Grafana imports, as JSON; needs no daemon.
    #[arg(long)]
    dashboard: bool,
}

/// Where metrics are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "live"), allow(dead_code))]
pub enum At {
    /// Nowhere.
    Off,
    /// There.
    Address(SocketAddr),
}

impl std::str::FromStr for At {
    type Err = String;

    fn from_str(text: &str) -> Result<At, String> {
        if text == "off" {
            return Ok(At::Off);
        }
        let bad = |_| {
            format!(
                "cannot read '{text}': allowed off, or an IP address and a port, such as {}",
                ::metrics::DEFAULT_ADDRESS
            )
        };
        text.parse().map(At::Address).map_err(bad)
    }
}

/// Runs `tandem metrics`.
///
/// # Errors
/// `Exit::Host` when there is a daemon whose records cannot be read.
pub fn main(args: &Args) -> Result<(), Failure> {
    if args.dashboard {
        say::json(&::metrics::dashboard())?;
    } else if args.json {
        say::json(&::metrics::list())?;
    } else if args.list {
        let mut t =
            views::Table::new(&["<metric", "<type", "<unit", "<labels", "<meaning and what to do"]);
        for d in &::metrics::METRICS {
            let meaning = format!("{} {}", d.meaning, d.advice);
            t.row([
                d.sample(),
                d.kind.name().to_owned(),
                d.unit.name().to_owned(),
                d.labels.join(","),
                meaning,
            ]);
        }
        say::all(&t.text())?;
    } else {
        let format = if args.prometheus {
            ::metrics::Format::Prometheus
        } else {
            ::metrics::Format::OpenMetrics
        };
        say::all(&now()?.text(format))?;
    }
    Ok(())
}

#[cfg(feature = "live")]
fn now() -> Result<::metrics::Samples, Failure> {
    host::scrape::Reader::new(env!("CARGO_PKG_VERSION"))
        .samples()
        .map_err(|e| Failure::new(Exit::Host, e))
}

#[cfg(not(feature = "live"))]
fn now() -> Result<::metrics::Samples, Failure> {
    let seen = "metrics: cannot read them: this tandem was built without the live host; build it \
        by 'make build', or ask for --list";
    Err(Failure::new(Exit::Host, anyhow::anyhow!(seen)))
}

/// Serves the metrics at the given address; `None` if nowhere, as without the option: all users of
/// a host can read a port of it.
///
/// # Errors
/// `Exit::Host` when it cannot listen at the given address.
#[cfg(feature = "live")]
pub fn endpoint(
    asked: Option<At>,
    say: &dyn Fn(&str),
) -> Result<Option<::metrics::Endpoint>, Failure> {
    let address = match asked {
        None | Some(At::Off) => return Ok(None),
        Some(At::Address(address)) => address.to_string(),
    };
    let served = std::net::TcpListener::bind(&address)
        .and_then(|listener| host::scrape::endpoint(listener, env!("CARGO_PKG_VERSION")));
    match served {
        Ok(endpoint) => {
            say(&format!("metrics at http://{}/metrics", endpoint.address()));
            Ok(Some(endpoint))
        }
        Err(e) => {
            let next = "allowed an address of this host and a port that is free; give another with \
                --metrics ADDRESS:PORT, or --metrics off";
            let text = format!("metrics {address}: cannot serve them there: {e}, {next}");
            Err(Failure::new(Exit::Host, anyhow::anyhow!(text)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_served_nowhere_or_at_an_address_with_a_port() {
        assert_eq!("off".parse(), Ok(At::Off));
        assert_eq!("127.0.0.1:9".parse(), Ok(At::Address(([127, 0, 0, 1], 9).into())));
        assert!("[::1]:9".parse::<At>().is_ok());
        for bad in ["", "on", "127.0.0.1", ":9", "localhost:9", "127.0.0.1:70000"] {
            let error = bad.parse::<At>().unwrap_err();
            assert!(
                error.starts_with(&format!("cannot read '{bad}': allowed off, or ")),
                "{error}"
            );
        }
    }

    #[cfg(feature = "live")]
    #[test]
    fn metrics_are_served_only_if_asked_for_and_a_port_that_is_taken_is_an_error() {
        use std::{
            cell::RefCell,
            io::{Read, Write},
            net::TcpListener,
        };
        let said = RefCell::new(String::new());
        let say = |text: &str| said.replace(text.to_owned()).clear();
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let refused = endpoint(Some(At::Address(address)), &say).err().unwrap();
        assert_eq!(refused.exit, Exit::Host);
        let text = refused.error.to_string();
        assert!(
            text.starts_with(&format!(
                "metrics {address}: cannot serve them there: Address already in use"
            )),
            "{text}"
        );
        for asked in [Some(At::Off), None] {
            assert!(endpoint(asked, &say).unwrap_or_else(|e| panic!("{}", e.error)).is_none());
        }
        assert_eq!(said.take(), "");
        let any = Some(At::Address(([127, 0, 0, 1], 0).into()));
        let served = endpoint(any, &say).unwrap_or_else(|e| panic!("{}", e.error)).unwrap();
        assert_eq!(said.take(), format!("metrics at http://{}/metrics", served.address()));
        let mut client = std::net::TcpStream::connect(served.address()).unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        let known =
            answer.starts_with("HTTP/1.1 200 OK") && answer.contains("\ntandem_scheduler_loaded ");
        // Another's scheduler may be loaded, whose maps we may not read.
        assert!(known || answer.starts_with("HTTP/1.1 503"), "{answer}");
    }
}
