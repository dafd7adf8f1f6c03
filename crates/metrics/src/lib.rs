//! What the daemon tells Prometheus: each metric is declared once, and text, document, dashboard
//! and list come from that.
//!
//! It measures nothing: `crates/host` fills in the numbers.

mod dashboard;
mod declared;
mod document;
mod endpoint;
mod exposition;
mod request;
pub mod strict;
mod table;

pub use dashboard::dashboard;
pub use declared::{Declared, Kind, Metric, Unit};
pub use document::{document, list, list_schema};
pub use endpoint::{Endpoint, Limits, serve};
pub use exposition::{Format, Samples, Value};
pub use table::METRICS;

/// Where the daemon listens by default: the loopback address alone.
///
/// The ports of Prometheus' public list of default ports, 9100 to 9999, have all been given away.
/// This one is outside of them, and below 32768, where Linux takes the ports of clients from.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:19477";

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    #[test]
    fn the_default_address_is_loopback_outside_prometheus_list_and_below_the_ports_of_clients() {
        let at: SocketAddr = super::DEFAULT_ADDRESS.parse().unwrap();
        assert!(at.ip().is_loopback());
        assert!(!(9090..=9999).contains(&at.port()) && at.port() > 1023 && at.port() < 32768);
    }
}
