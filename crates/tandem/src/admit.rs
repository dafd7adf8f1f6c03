//! `tandem admit`: checks whether a VM may power on, or a reservation may change, level by level;
//! it changes nothing.

use crate::{
    Exit, Failure, say,
    tree::{self, Grown},
};
use entitlement::{Admission, Ask, Excess, Rule, TreeLeaf};
use units::{CpuAmount, Rate, caps::VCPUS_MAX};

/// Checks whether a VM may power on, or whether a VM or pool may change its reservation; without
/// either, whether all reservations can be guaranteed.
#[derive(clap::Args)]
#[command(after_help = "Exit code 0: admitted. 7: not admitted.")]
pub struct Args {
    /// A VM that shall power on (with --vcpus), or an existing VM that shall reserve another
    /// amount.
    #[arg(long, value_name = "NAME", requires = "reservation")]
    vm: Option<String>,
    /// vCPUs of a VM that shall power on.
    #[arg(
        long,
        value_name = "N",
        requires = "vm",
        value_parser = crate::numbers::whole::<u32>(1..=u64::from(VCPUS_MAX))
    )]
    vcpus: Option<u32>,
    /// What it shall reserve: percent of one pCPU, MHz or GHz, such as 250% or 2.4GHz.
    #[arg(long, value_name = "AMOUNT")]
    reservation: Option<CpuAmount>,
    /// The pool of a VM that shall power on [default: the root]; or, without --vm, the pool that
    /// shall change its reservation.
    #[arg(long, value_name = "POOL", requires = "reservation")]
    pool: Option<String>,
    /// The tree of a scenario, with all its VMs powered on, instead of the running daemon's.
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Label of the scenario's run [default: the first].
    #[arg(long, value_name = "LABEL", requires = "scenario")]
    run: Option<String>,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Runs `tandem admit`.
///
/// # Errors
/// `Exit::NotAdmitted` if it is not, `Exit::Input` for what is not there, `Exit::Host` when no
/// daemon runs.
pub fn main(args: &Args) -> Result<(), Failure> {
    let grown = match &args.scenario {
        Some(name) => tree::of_scenario(name, args.run.as_deref())?,
        None => tree::of_daemon()?,
    };
    let (text, refused) = answer(args, &grown)?;
    if args.json {
        say::raw(&text)?
    } else {
        say::all(&text)?
    };
    refused.map_or(Ok(()), |why| Err(Failure::new(Exit::NotAdmitted, anyhow::anyhow!(why))))
}

/// Pools and VMs that a message names.
const NAMED: usize = 5;

/// What is said, and why it is not admitted.
fn answer(args: &Args, grown: &Grown) -> Result<(String, Option<String>), Failure> {
    let Some(ask) = ask(args, grown)? else {
        let report = entitlement::check(&grown.tree, &grown.names);
        let refused = (!report.fits()).then(|| {
            let at: Vec<&str> = report.excesses.iter().map(|e| e.path.as_str()).collect();
            let more = at.len().saturating_sub(NAMED);
            let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
            let at = at[..at.len().min(NAMED)].join(", ");
            format!("not admitted: more is reserved than there is in {at}{rest}")
        });
        return Ok((shown(args.json, &report, || report.text())?, refused));
    };
    if let Ask::PowerOn { path, leaf } = &ask {
        if u64::from(leaf.vcpus) > grown.tree.pcpus() {
            return too_wide(args.json, path, leaf, grown.tree.pcpus());
        }
    }
    let answer = entitlement::admit(&grown.tree, &grown.names, &ask);
    let refused =
        answer.refusal.as_ref().map(|r| format!("{}: not admitted by {}", answer.path, r.path));
    Ok((shown(args.json, &answer, || answer.text())?, refused))
}

/// No host powers on a VM of more vCPUs than it has pCPUs, whatever it reserves.
fn too_wide(
    json: bool,
    path: &str,
    leaf: &TreeLeaf,
    pcpus: u64,
) -> Result<(String, Option<String>), Failure> {
    let root = "/".to_owned();
    let (asked, available) = (Rate::pcpus(u64::from(leaf.vcpus)), Rate::pcpus(pcpus));
    let answer = Admission {
        path: path.to_owned(),
        before: Rate(0),
        asked: leaf.reservation,
        levels: vec![],
        admitted: false,
        refusal: Some(Excess { path: root, rule: Rule::Host, asked, available }),
    };
    let text = || {
        format!(
            "{path}: asks for {} vCPUs\nrefused: /: cannot power on a VM of so many: the host has \
                {pcpus} pCPUs; give it fewer vCPUs\n",
            leaf.vcpus
        )
    };
    Ok((shown(json, &answer, text)?, Some(format!("{path}: not admitted by /"))))
}

fn shown(
    json: bool,
    value: &impl serde::Serialize,
    text: impl Fn() -> String,
) -> Result<String, Failure> {
    Ok(if json {
        serde_json::to_string_pretty(value).map_err(anyhow::Error::from)? + "\n"
    } else {
        text()
    })
}

/// What is asked for; `None` if the whole tree is to be checked.
fn ask(args: &Args, grown: &Grown) -> Result<Option<Ask>, Failure> {
    let refuse = |text: String| Failure::new(Exit::Input, anyhow::anyhow!(text));
    let Some(amount) = args.reservation else { return Ok(None) };
    let reservation = amount.rate(grown.mhz);
    let pool = |name: &str| find("pool", name, &grown.names.pools);
    let Some(name) = &args.vm else {
        let Some(path) = &args.pool else {
            return Err(Failure::new(
                Exit::Usage,
                anyhow::anyhow!("--reservation: cannot tell whose: give --vm NAME or --pool POOL"),
            ));
        };
        let found = pool(path)?;
        let root = || {
            refuse(
                "pool '/': cannot change what it reserves: the root has the host; give a pool \
                below it"
                    .to_owned(),
            )
        };
        return if found == 0 {
            Err(root())
        } else {
            Ok(Some(Ask::Pool { pool: found, reservation }))
        };
    };
    if let Some(vcpus) = args.vcpus {
        if name.is_empty() || name.contains(|c: char| c == '/' || c.is_control()) {
            return Err(refuse(format!(
                "--vm '{name}': cannot name a VM so: allowed one or more characters without / and \
                    control characters; its pool is given by --pool"
            )));
        }
        let pool = args.pool.as_deref().map_or(Ok(0), pool)?;
        let path = format!("{}/{name}", grown.names.pools[pool].trim_end_matches('/'));
        let leaf =
            TreeLeaf { pool, shares: u64::from(vcpus) * 1000, reservation, limit: None, vcpus };
        return Ok(Some(Ask::PowerOn { path, leaf }));
    }
    if let Some(pool) = &args.pool {
        let text = format!(
            "--pool {pool}: cannot move VM '{name}': seen a VM that is there, allowed with --vcpus \
                for one that shall power on; leave it out"
        );
        return Err(Failure::new(Exit::Usage, anyhow::anyhow!(text)));
    }
    // The system group is no VM.
    let leaf = find("VM", name, &grown.names.leaves[1..]).map_err(|f| {
        refuse(format!("{:#}; give --vcpus N for one that shall power on", f.error))
    })?;
    Ok(Some(Ask::Leaf { leaf: leaf + 1, reservation }))
}

/// The one that is called so: by its path, or by the last part of it if no other has that.
fn find(kind: &str, name: &str, paths: &[String]) -> Result<usize, Failure> {
    let last = |path: &&String| path.rsplit('/').next() == Some(name);
    let named: Vec<&String> = paths.iter().filter(last).collect();
    let found =
        paths.iter().position(|p| p == name).or_else(|| paths.iter().position(|p| named == [p]));
    found.ok_or_else(|| {
        // VMs of one name have their process behind it.
        let twin = |path: &&String| {
            let own = path.rsplit('/').next().and_then(|last| last.strip_prefix(name));
            let pid = own.and_then(|own| own.strip_prefix('(')?.strip_suffix(')'));
            pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
        };
        let named = if named.is_empty() { paths.iter().filter(twin).collect() } else { named };
        let (seen, list) = if named.is_empty() {
            ("none of that name", paths.iter().collect())
        } else {
            ("several of that name", named)
        };
        let list: Vec<&str> = list.into_iter().take(20).map(String::as_str).collect();
        Failure::new(
            Exit::Input,
            anyhow::anyhow!(
                "{kind} '{name}': cannot find it: seen {seen}, allowed {}",
                list.join(", ")
            ),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(list: &[&str]) -> Args {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        use clap::Parser;
        Line::try_parse_from([&["x"], list].concat()).unwrap_or_else(|e| panic!("{e}")).args
    }

    fn nested() -> Grown {
        let name = format!("{}/../../scenarios/pools-nested", env!("CARGO_MANIFEST_DIR"));
        tree::of_scenario(&name, None).unwrap_or_else(|f| panic!("{:#}", f.error))
    }

    fn say(list: &[&str]) -> (String, Option<String>) {
        answer(&args(list), &nested()).unwrap_or_else(|f| panic!("{:#}", f.error))
    }

    fn refusal(list: &[&str]) -> (Exit, String) {
        let failure = answer(&args(list), &nested()).expect_err("it is refused");
        (failure.exit, format!("{:#}", failure.error))
    }

    #[test]
    fn a_vm_is_admitted_level_by_level() {
        assert_eq!(
            say(&["--vm", "sql2", "--vcpus", "4", "--reservation", "200%", "--pool", "/prod/db"]),
            (
                "/prod/db/sql2: asks to reserve 200 %, has 0 %
/prod/db: reserved 200 % of  300 %, asks 200 % more: has  100 %: asks its parent for 100 %
/prod:    reserved 300 % of    0 %, asks 100 % more: has    0 %: asks its parent for 100 %
/:        reserved 300 % of 1600 %, asks 100 % more: has 1300 %: admitted here
admitted
"
                .to_owned(),
                None
            )
        );
        let (text, refused) =
            say(&["--vm", "huge", "--vcpus", "16", "--reservation", "1400%", "--pool", "web"]);
        assert!(
            text.ends_with(
                "refused: /: cannot give 1400 % to what it holds: the host has 1300 \
            % for it; reserve less\n"
            ),
            "{text}"
        );
        assert_eq!(refused.as_deref(), Some("/prod/web/huge: not admitted by /"));
        // In MHz: 2000 of them are a pCPU.
        assert!(
            say(&["--vm", "x", "--vcpus", "1", "--reservation", "1GHz"])
                .0
                .starts_with("/x: asks to reserve 50 %, has 0 %\n")
        );
    }

    #[test]
    fn a_vm_that_is_there_and_a_pool_may_reserve_another_amount() {
        assert!(
            say(&["--vm", "sql", "--reservation", "300%"])
                .0
                .starts_with("/prod/db/sql: asks to reserve 300 %, has 200 %\n")
        );
        let (text, refused) = say(&["--vm", "/test/try", "--reservation", "100%"]);
        assert_eq!(
            text,
            "/test/try: asks to reserve 100 %, has 0 %\nrefused: /test/try: cannot reserve 100 %: \
                its limit is 50 %; reserve less or raise the limit\n"
        );
        assert!(refused.is_some());
        let (text, refused) = say(&["--pool", "test", "--reservation", "400%"]);
        assert!(
            text.contains("refused: /test: cannot reserve 400 %: its limit is 300 %")
                && refused.is_some(),
            "{text}"
        );
    }

    #[test]
    fn a_vm_wider_than_the_host_is_not_admitted_whatever_it_reserves() {
        let wide = ["--vm", "x", "--vcpus", "17", "--reservation", "0%"];
        let (text, refused) = say(&wide);
        assert_eq!(
            text,
            "/x: asks for 17 vCPUs\nrefused: /: cannot power on a VM of so many: the host has 16 \
                pCPUs; give it fewer vCPUs\n"
        );
        assert_eq!(refused.as_deref(), Some("/x: not admitted by /"));
        let value: serde_json::Value =
            serde_json::from_str(&say(&[&wide[..], &["--json"]].concat()).0).unwrap();
        assert_eq!((&value["admitted"], &value["refusal"]["path"]), (&false.into(), &"/".into()));
        let fits = ["--vm", "x", "--vcpus", "16", "--reservation", "0%"];
        assert_eq!(say(&fits).1, None);
    }

    #[test]
    fn a_pool_beside_a_vm_that_is_there_and_a_name_that_is_none_are_refused() {
        for pool in ["test", "nosuch"] {
            let words = ["--vm", "sql", "--reservation", "10%", "--pool", pool];
            let (exit, text) = refusal(&words);
            assert_eq!(exit, Exit::Usage);
            let want = format!("--pool {pool}: cannot move VM 'sql': ");
            assert!(text.starts_with(&want), "{text}");
        }
        for name in ["", "a/b", "a\x1b"] {
            let (exit, text) = refusal(&["--vm", name, "--vcpus", "1", "--reservation", "0%"]);
            assert_eq!(exit, Exit::Input);
            assert!(text.contains("cannot name a VM so: allowed one or more "), "{text}");
        }
        assert_eq!(refusal(&["--vm", "", "--reservation", "0%"]).0, Exit::Input);
    }

    #[test]
    fn the_whole_tree_is_checked_without_arguments_and_shown_as_json() {
        let (text, refused) = say(&[]);
        assert!(
            text.starts_with("/:           reserved 300 % of 1600 %, 1300 % free: the host\n")
                && refused.is_none(),
            "{text}"
        );
        let value: serde_json::Value = serde_json::from_str(&say(&["--json"]).0).unwrap();
        assert_eq!(
            (value["pools"][0]["reserved"].as_u64(), value["excesses"].as_array().map(Vec::len)),
            (Some(3 << 20), Some(0))
        );
        let asked = ["--vm", "x", "--vcpus", "1", "--reservation", "1%", "--json"];
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&say(&asked).0).unwrap()["admitted"],
            true
        );
    }

    #[test]
    fn what_is_not_there_is_refused_with_what_is() {
        let (exit, text) = refusal(&["--vm", "x", "--reservation", "1%"]);
        assert_eq!(exit, Exit::Input);
        assert!(
            text.starts_with(
                "VM 'x': cannot find it: seen none of that name, allowed /prod/web/front, "
            ),
            "{text}"
        );
        assert!(text.ends_with("; give --vcpus N for one that shall power on"), "{text}");
        assert!(
            refusal(&["--pool", "/nowhere", "--reservation", "1%"])
                .1
                .starts_with("pool '/nowhere': cannot find it")
        );
        assert!(
            refusal(&["--pool", "/", "--reservation", "1%"])
                .1
                .starts_with("pool '/': cannot change what it reserves")
        );
        assert_eq!(refusal(&["--reservation", "1%"]).0, Exit::Usage);
        let both = ["/a/x".to_owned(), "/b/x".to_owned()];
        let several = find("VM", "x", &both).map_err(|f| f.error.to_string());
        assert_eq!(
            several.unwrap_err(),
            "VM 'x': cannot find it: seen several of that name, allowed /a/x, /b/x"
        );
        assert_eq!(find("VM", "/b/x", &both).ok(), Some(1));
        let both = ["/a/x(7)".to_owned(), "/b/x(9)".to_owned(), "/b/x(y)".to_owned()];
        let several = find("VM", "x", &both).map_err(|f| f.error.to_string());
        assert_eq!(
            several.unwrap_err(),
            "VM 'x': cannot find it: seen several of that name, allowed /a/x(7), /b/x(9)"
        );
        assert_eq!(find("VM", "x(9)", &both).ok(), Some(1));
    }
}
