//! A dashboard for Grafana, printed by `tandem metrics --dashboard`; each of its queries names
//! metrics that are declared.

use serde_json::{Value, json};

/// One panel: title, unit as Grafana names it, queries with their legends.
struct Panel {
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
}

/// Panels of one row of the dashboard.
struct Row {
    title: &'static str,
    panels: &'static [Panel],
}

const fn panel(
    title: &'static str,
    unit: &'static str,
    queries: &'static [(&'static str, &'static str)],
) -> Panel {
    Panel { title, unit, queries }
}

/// Rates are over the interval that suits the scrape; `$host`, `$pool` and `$vm` are chosen above
/// the panels.
const ROWS: [Row; 4] = [
    Row {
        title: "Host",
        panels: &[
            panel(
                "Scheduler loaded",
                "bool_yes_no",
                &[(r#"tandem_scheduler_loaded{instance=~"$host"}"#, "{{instance}}")],
            ),
            panel(
                "What should stay 0",
                "short",
                &[
                    (
                        r#"increase(tandem_scheduler_ejections_total{instance=~"$host"}[$__range])"#,
                        "ejections, {{cause}}",
                    ),
                    (
                        r#"increase(tandem_assertion_failures_total{instance=~"$host"}[$__range])"#,
                        "assertion failures",
                    ),
                    (
                        r#"increase(tandem_overflowed_threads_total{instance=~"$host"}[$__range])"#,
                        "overflowed threads",
                    ),
                    (
                        r#"increase(tandem_reloads_total{instance=~"$host",outcome="refused"}[$__range])"#,
                        "settings refused",
                    ),
                    (
                        r#"increase(tandem_trace_lost_records_total{instance=~"$host"}[$__range])"#,
                        "trace records lost",
                    ),
                ],
            ),
            panel(
                "Size",
                "short",
                &[
                    (r#"tandem_host_pcpus{instance=~"$host"}"#, "pCPUs"),
                    (r#"tandem_host_vms{instance=~"$host"}"#, "VMs"),
                    (r#"tandem_host_worlds{instance=~"$host"}"#, "worlds"),
                    (r#"tandem_plan_generation{instance=~"$host"}"#, "plan"),
                ],
            ),
            panel(
                "Version",
                "short",
                &[(r#"tandem_build_info{instance=~"$host"}"#, "{{version}}")],
            ),
        ],
    },
    Row {
        title: "VMs",
        panels: &[
            panel(
                "Ready, of each vCPU",
                "percentunit",
                &[(
                    r#"sum by (vm, id) (rate(tandem_vm_state_seconds_total{instance=~"$host",vm=~"$vm",pool=~"$pool",state="ready"}[$__rate_interval])) / sum by (vm, id) (tandem_vm_vcpus{instance=~"$host",vm=~"$vm",pool=~"$pool"})"#,
                    "{{vm}}",
                )],
            ),
            panel(
                "Limited",
                "percentunit",
                &[(
                    r#"sum by (vm, id) (rate(tandem_vm_state_seconds_total{instance=~"$host",vm=~"$vm",pool=~"$pool",state="limited"}[$__rate_interval]))"#,
                    "{{vm}}",
                )],
            ),
            panel(
                "States, all chosen VMs",
                "short",
                &[(
                    r#"sum by (state) (rate(tandem_vm_state_seconds_total{instance=~"$host",vm=~"$vm",pool=~"$pool",state!~"wait|idle"}[$__rate_interval]))"#,
                    "{{state}}",
                )],
            ),
            panel(
                "Used, in pCPUs",
                "short",
                &[(
                    r#"rate(tandem_vm_used_seconds_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval])"#,
                    "{{vm}}",
                )],
            ),
            panel(
                "Lost to busy threads of the same core, in pCPUs",
                "short",
                &[(
                    r#"rate(tandem_vm_lost_seconds_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval])"#,
                    "{{vm}} {{cause}}",
                )],
            ),
            panel(
                "Asks for and is entitled to, in pCPUs",
                "short",
                &[
                    (
                        r#"tandem_vm_demand_pcpus{instance=~"$host",vm=~"$vm",pool=~"$pool"}"#,
                        "{{vm}} asks",
                    ),
                    (
                        r#"tandem_vm_entitlement_pcpus{instance=~"$host",vm=~"$vm",pool=~"$pool"}"#,
                        "{{vm}} entitled",
                    ),
                ],
            ),
            panel(
                "Reservation and limit, in pCPUs",
                "short",
                &[
                    (
                        r#"tandem_vm_reservation_pcpus{instance=~"$host",vm=~"$vm",pool=~"$pool"}"#,
                        "{{vm}} reserved",
                    ),
                    (
                        r#"tandem_vm_limit_pcpus{instance=~"$host",vm=~"$vm",pool=~"$pool"}"#,
                        "{{vm}} limit",
                    ),
                ],
            ),
            panel(
                "Shares",
                "short",
                &[(r#"tandem_vm_shares{instance=~"$host",vm=~"$vm",pool=~"$pool"}"#, "{{vm}}")],
            ),
            panel(
                "Memory at home (N%L), where VMs have home nodes",
                "percentunit",
                &[(
                    r#"sum by (vm, id) (tandem_vm_memory_local_bytes{instance=~"$host",vm=~"$vm",pool=~"$pool"}) / sum by (vm, id) (tandem_vm_memory_bytes{instance=~"$host",vm=~"$vm",pool=~"$pool"})"#,
                    "{{vm}}",
                )],
            ),
            panel(
                "Changes of home nodes a minute, and memory that follows in MB/s",
                "short",
                &[
                    (
                        r#"60 * sum by (vm, id, reason) (rate(tandem_vm_home_migrations_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval]))"#,
                        "{{vm}} {{reason}}",
                    ),
                    (
                        r#"rate(tandem_vm_memory_moved_bytes_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval]) / 1e6"#,
                        "{{vm}} MB/s",
                    ),
                ],
            ),
            panel(
                "vCPUs by home node",
                "short",
                &[(
                    r#"sum by (node) (tandem_vm_home_vcpus{instance=~"$host",vm=~"$vm",pool=~"$pool"})"#,
                    "node {{node}}",
                )],
            ),
            panel(
                "Events a second",
                "ops",
                &[
                    (
                        r#"rate(tandem_vm_switches_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval])"#,
                        "{{vm}} switches",
                    ),
                    (
                        r#"rate(tandem_vm_wakeups_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval])"#,
                        "{{vm}} wake-ups",
                    ),
                    (
                        r#"rate(tandem_vm_migrations_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval])"#,
                        "{{vm}} migrations",
                    ),
                    (
                        r#"rate(tandem_vm_quantum_expiries_total{instance=~"$host",vm=~"$vm",pool=~"$pool"}[$__rate_interval])"#,
                        "{{vm}} ends of quanta",
                    ),
                ],
            ),
        ],
    },
    Row {
        title: "Pools",
        panels: &[
            panel(
                "Used, in pCPUs",
                "short",
                &[(
                    r#"rate(tandem_pool_used_seconds_total{instance=~"$host",pool=~"$pool"}[$__rate_interval])"#,
                    "{{pool}}",
                )],
            ),
            panel(
                "Asks for and is entitled to, in pCPUs",
                "short",
                &[
                    (
                        r#"tandem_pool_demand_pcpus{instance=~"$host",pool=~"$pool"}"#,
                        "{{pool}} asks",
                    ),
                    (
                        r#"tandem_pool_entitlement_pcpus{instance=~"$host",pool=~"$pool"}"#,
                        "{{pool}} entitled",
                    ),
                ],
            ),
            panel(
                "Ready and limited",
                "short",
                &[
                    (
                        r#"rate(tandem_pool_ready_seconds_total{instance=~"$host",pool=~"$pool"}[$__rate_interval])"#,
                        "{{pool}} ready",
                    ),
                    (
                        r#"rate(tandem_pool_limited_seconds_total{instance=~"$host",pool=~"$pool"}[$__rate_interval])"#,
                        "{{pool}} limited",
                    ),
                ],
            ),
            panel(
                "Settings: reservation and limit in pCPUs, shares",
                "short",
                &[
                    (
                        r#"tandem_pool_reservation_pcpus{instance=~"$host",pool=~"$pool"}"#,
                        "{{pool}} reserved",
                    ),
                    (
                        r#"tandem_pool_limit_pcpus{instance=~"$host",pool=~"$pool"}"#,
                        "{{pool}} limit",
                    ),
                    (r#"tandem_pool_shares{instance=~"$host",pool=~"$pool"}"#, "{{pool}} shares"),
                ],
            ),
        ],
    },
    Row {
        title: "pCPUs",
        panels: &[
            panel(
                "Busy",
                "percentunit",
                &[(
                    r#"rate(tandem_pcpu_busy_seconds_total{instance=~"$host"}[$__rate_interval])"#,
                    "{{pcpu}}",
                )],
            ),
            panel(
                "Taken by real-time tasks",
                "percentunit",
                &[(
                    r#"rate(tandem_pcpu_taken_seconds_total{instance=~"$host"}[$__rate_interval])"#,
                    "{{pcpu}}",
                )],
            ),
            panel(
                "Events a second, all pCPUs",
                "ops",
                &[
                    (
                        r#"sum(rate(tandem_pcpu_switches_total{instance=~"$host"}[$__rate_interval]))"#,
                        "switches",
                    ),
                    (
                        r#"sum(rate(tandem_pcpu_pulls_total{instance=~"$host"}[$__rate_interval]))"#,
                        "pulls",
                    ),
                    (
                        r#"sum(rate(tandem_pcpu_preempts_total{instance=~"$host"}[$__rate_interval]))"#,
                        "preempts",
                    ),
                ],
            ),
        ],
    },
];

/// The dashboard as Grafana imports it.
#[must_use]
pub fn dashboard() -> Value {
    const WIDTH: usize = 12;
    const HEIGHT: usize = 8;
    let source = || json!({"type": "prometheus", "uid": "${datasource}"});
    let (mut panels, mut y, mut id) = (vec![], 0, 0);
    let mut next_id = || {
        id += 1;
        id
    };
    for row in &ROWS {
        panels.push(json!({
            "id": next_id(), "type": "row", "title": row.title, "collapsed": false, "panels": [],
            "gridPos": {"h": 1, "w": 2 * WIDTH, "x": 0, "y": y}
        }));
        y += 1;
        for (i, p) in row.panels.iter().enumerate() {
            let target = |(n, (expr, legend)): (usize, &(&str, &str))| {
                let name = char::from(b'A' + n as u8).to_string();
                json!({"refId": name, "expr": expr, "legendFormat": legend, "datasource": source()})
            };
            let targets: Vec<Value> = p.queries.iter().enumerate().map(target).collect();
            panels.push(json!({
                "id": next_id(), "type": "timeseries", "title": p.title, "datasource": source(), "targets": targets,
                "fieldConfig": {"defaults": {"unit": p.unit, "min": 0}, "overrides": []},
                "gridPos": {"h": HEIGHT, "w": WIDTH, "x": i % 2 * WIDTH, "y": y + i / 2 * HEIGHT}
            }));
        }
        y += row.panels.len().div_ceil(2) * HEIGHT;
    }
    let choice = |name: &str, query: &str| {
        json!({
            "name": name, "type": "query", "datasource": source(), "query": {"query": query, "refId": name}, "definition": query,
            "refresh": 2, "multi": true, "includeAll": true, "allValue": ".*", "current": {"text": "All", "value": "$__all"}
        })
    };
    json!({
        "title": "Tandem", "uid": "tandem", "tags": ["tandem"], "schemaVersion": 39, "editable": true, "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus"},
            choice("host", "label_values(tandem_build_info, instance)"),
            choice("pool", r#"label_values(tandem_pool_shares{instance=~"$host"}, pool)"#),
            choice("vm", r#"label_values(tandem_vm_vcpus{instance=~"$host",pool=~"$pool"}, vm)"#),
        ]},
        "panels": panels
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::METRICS;
    use std::collections::BTreeSet;

    /// Names of samples in a query.
    fn named(query: &str) -> Vec<String> {
        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        words.filter(|w| w.starts_with("tandem_")).map(str::to_owned).collect()
    }

    fn queries() -> Vec<String> {
        let board = dashboard();
        let texts = |list: &Value, key: &str| -> Vec<String> {
            list.as_array()
                .unwrap()
                .iter()
                .filter_map(|v| v[key].as_str().map(str::to_owned))
                .collect()
        };
        let mut all = texts(&board["templating"]["list"], "definition");
        for p in board["panels"].as_array().unwrap().iter().filter(|p| p["type"] != "row") {
            all.extend(texts(&p["targets"], "expr"));
        }
        all
    }

    #[test]
    fn every_query_names_metrics_that_are_declared_and_every_metric_is_shown() {
        let declared: BTreeSet<String> = METRICS.iter().map(crate::Declared::sample).collect();
        let shown: BTreeSet<String> = queries().iter().flat_map(|q| named(q)).collect();
        assert_eq!(shown, declared);
    }

    #[test]
    fn totals_are_asked_for_their_growth_and_labels_are_those_that_are_declared() {
        for query in queries().iter().filter(|q| !q.starts_with("label_values")) {
            for d in METRICS.iter().filter(|d| named(query).contains(&d.sample())) {
                let grows = query.contains(&format!("rate({}{{", d.sample()))
                    || query.contains(&format!("increase({}{{", d.sample()));
                assert_eq!(grows, d.kind == crate::Kind::Counter, "{query}");
                for label in ["vm", "pool", "state", "outcome"] {
                    let selected =
                        query.split(&d.sample()).nth(1).and_then(|q| q.split('}').next()).unwrap();
                    assert!(
                        !selected.contains(&format!("{label}=")) || d.labels.contains(&label),
                        "{query}: {label}"
                    );
                }
            }
            assert_eq!(query.matches('(').count(), query.matches(')').count(), "{query}");
            assert_eq!(query.matches('{').count(), query.matches('}').count(), "{query}");
        }
    }

    #[test]
    fn panels_have_ids_of_their_own_and_do_not_overlap() {
        let board = dashboard();
        let panels = board["panels"].as_array().unwrap();
        let ids: BTreeSet<u64> = panels.iter().map(|p| p["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), panels.len());
        let mut cells = BTreeSet::new();
        for p in panels {
            let at = |key: &str| p["gridPos"][key].as_u64().unwrap();
            assert!(at("x") + at("w") <= 24);
            for (x, y) in (at("x")..at("x") + at("w"))
                .flat_map(|x| (at("y")..at("y") + at("h")).map(move |y| (x, y)))
            {
                assert!(cells.insert((x, y)), "{} at {x}, {y}", p["title"]);
            }
        }
    }
}
