//! Takes what is no amount of CPU, limit or time out of a file's table, and numbers below zero of
//! `[numa]`, so that it is refused together with every other reason.
//!
//! A parser stops at the first value that it cannot read; this file finds all wrong values of all
//! VMs and pools.

use crate::{LimitSetting, numa, pools};
use toml::{Table, Value};
use units::{CpuAmount, Span};

/// Removes unreadable values of VMs, pools, changes of them and `[numa]`, and gives a reason for
/// each.
///
/// # Errors
/// The one reason that there are too many pools to say anything about each.
pub(crate) fn take(table: &mut Table) -> Result<Vec<String>, String> {
    let pools = table.get("pool").and_then(Value::as_array).map_or(0, Vec::len);
    pools::too_many(pools).map_or(Ok(()), Err)?;
    let mut out = vec![];
    for kind in ["pool", "vm", "change"] {
        let objects = table.get_mut(kind).and_then(Value::as_array_mut).into_iter().flatten();
        for (number, object) in (1..).zip(objects.filter_map(Value::as_table_mut)) {
            let title = match kind {
                "change" => format!("change {number}"),
                _ => {
                    let text = |key| object.get(key).and_then(Value::as_str);
                    let name = text("name").or_else(|| text("cgroup")).unwrap_or("");
                    format!("{kind} '{name}'")
                }
            };
            let all = of_object(object);
            if kind == "change" && !all.is_empty() {
                // It still changes something: that its value cannot be read is the only reason.
                object.insert("shares".to_owned(), Value::Integer(1));
            }
            out.extend(all.iter().map(|(key, reason)| format!("{title}: {key}: {reason}")));
        }
    }
    let numa = table.get_mut("numa").and_then(Value::as_table_mut);
    out.extend(numa.into_iter().flat_map(numa::take_negative));
    Ok(out)
}

/// The same of one VM or pool.
fn of_object(object: &mut Table) -> Vec<(&'static str, String)> {
    let reason = |key: &str, value: &Value| match key {
        "reservation" => value.clone().try_into::<CpuAmount>().err(),
        "limit" => value.clone().try_into::<LimitSetting>().err(),
        _ => value.clone().try_into::<Span>().err(),
    };
    let mut out = vec![];
    for key in ["reservation", "limit", "burst"] {
        if let Some(e) = object.get(key).and_then(|value| reason(key, value)) {
            out.push((key, e.message().to_owned()));
            object.remove(key);
        }
    }
    // A burst is not without a limit because its limit cannot be read.
    if out.iter().any(|(key, _)| *key == "limit") {
        object.remove("burst");
    }
    out
}
