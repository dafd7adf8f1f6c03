//! Holds `check` and `admit` to ESXi's documented examples, and to each other on random trees from
//! fixed seeds.

use crate::trees;

use entitlement::{
    Admission, Ask, Names, Outcome, Rule, Tree, TreeLeaf, TreePool, admit, check, kept,
};
use trees::{Draw, Parts};
use units::Rate;

fn pool(parent: usize, pcpus: u64, expandable: bool) -> TreePool {
    TreePool {
        parent,
        shares: 4000,
        reservation: Rate::pcpus(pcpus),
        limit: None,
        expandable,
        scalable: false,
    }
}

fn vm(pool: usize, pcpus: u64) -> TreeLeaf {
    TreeLeaf { pool, shares: 1000, reservation: Rate::pcpus(pcpus), limit: None, vcpus: 2 }
}

fn names(pools: &[&str], leaves: &[&str]) -> Names {
    let owned = |names: &[&str]| names.iter().map(|n| n.to_string()).collect();
    Names { pools: owned(pools), leaves: owned(leaves) }
}

/// VMware's example, with pCPUs of 1 GHz: /gold of 6 GHz holds a VM of 1 GHz and /gold/db of 2 GHz
/// with one VM of 2 GHz.
fn example(expandable: bool) -> (Tree, Names) {
    let pools = vec![pool(0, 0, false), pool(0, 6, false), pool(1, 2, expandable)];
    (
        Tree::new(8, pools, vec![vm(1, 1), vm(2, 2)]),
        names(&["/", "/gold", "/gold/db"], &["/gold/web", "/gold/db/a"]),
    )
}

fn second_vm(expandable: bool) -> Admission {
    let (tree, names) = example(expandable);
    admit(&tree, &names, &Ask::PowerOn { path: "/gold/db/b".into(), leaf: vm(2, 2) })
}

#[test]
fn the_second_vm_of_an_expandable_pool_borrows_from_its_parent() {
    let answer = second_vm(true);
    assert!(answer.admitted && answer.refusal.is_none());
    let levels: Vec<_> =
        answer.levels.iter().map(|l| (l.path.as_str(), l.outcome, l.passed_on)).collect();
    assert_eq!(
        levels,
        [("/gold/db", Outcome::PassedOn, Rate::pcpus(2)), ("/gold", Outcome::Admitted, Rate(0))]
    );
    let gold = &answer.levels[1];
    assert_eq!(
        (gold.reserved, gold.asked, gold.available),
        (Rate::pcpus(3), Rate::pcpus(2), Rate::pcpus(3))
    );
}

#[test]
fn the_second_vm_of_a_fixed_pool_is_refused_where_it_asks() {
    let answer = second_vm(false);
    assert!(!answer.admitted);
    let refusal = answer.refusal.as_ref().expect("it was refused");
    assert_eq!((refusal.path.as_str(), refusal.rule), ("/gold/db", Rule::FixedPool));
    assert_eq!((refusal.asked, refusal.available), (Rate::pcpus(2), Rate(0)));
    assert_eq!(
        answer.text(),
        "/gold/db/b: asks to reserve 200 %, has 0 %
/gold/db: reserved 200 % of 200 %, asks 200 % more: has 0 %: refused here
refused: /gold/db: cannot give 200 % to what it holds: its fixed reservation has 0 % for it; raise that or make the pool expandable
"
    );
}

#[test]
fn an_expandable_pool_does_not_reserve_past_its_limit() {
    let pools =
        vec![pool(0, 0, true), TreePool { limit: Some(Rate::pcpus(3)), ..pool(0, 2, true) }];
    let (tree, names) = (Tree::new(8, pools, vec![vm(1, 2)]), names(&["/", "/lab"], &["/lab/a"]));
    let one = admit(&tree, &names, &Ask::PowerOn { path: "/lab/b".into(), leaf: vm(1, 1) });
    assert!(one.admitted);
    let two = admit(&tree, &names, &Ask::PowerOn { path: "/lab/b".into(), leaf: vm(1, 2) });
    let refusal = two.refusal.as_ref().expect("it was refused");
    assert_eq!(
        (refusal.rule, refusal.asked, refusal.available),
        (Rule::PoolLimit, Rate::pcpus(2), Rate::ONE)
    );
    assert!(two.text().contains("has 0 %: refused here, limit 300 %"), "{}", two.text());
}

#[test]
fn an_empty_pool_takes_its_reservation_and_the_host_runs_out() {
    let tree = Tree::new(8, vec![pool(0, 0, true), pool(0, 7, true)], vec![]);
    let names = names(&["/", "/gold"], &[]);
    let answer = admit(&tree, &names, &Ask::PowerOn { path: "/vm".into(), leaf: vm(0, 2) });
    let refusal = answer.refusal.expect("it was refused");
    assert_eq!(
        (refusal.path.as_str(), refusal.rule, refusal.available),
        ("/", Rule::Host, Rate::ONE)
    );
    // Inside the pool it is the pool's own, and the host is not asked.
    assert_eq!(
        admit(&tree, &names, &Ask::PowerOn { path: "/gold/vm".into(), leaf: vm(1, 2) })
            .levels
            .len(),
        1
    );
}

#[test]
fn a_vm_reserves_no_more_than_its_vcpus_and_its_limit() {
    let (tree, names) = example(true);
    let wide = Ask::PowerOn { path: "/gold/x".into(), leaf: vm(1, 3) };
    let refused = admit(&tree, &names, &wide);
    assert!(refused.levels.is_empty(), "no pool was asked");
    assert_eq!(
        refused.refusal.unwrap().to_string(),
        "/gold/x: cannot reserve 300 %: its vCPUs can use 200 %; reserve less or add vCPUs"
    );
    let limited = TreeLeaf {
        limit: Some(Rate(Rate::ONE.0 + 1)),
        reservation: Rate(Rate::ONE.0 + 2),
        ..vm(1, 0)
    };
    let refused = admit(&tree, &names, &Ask::PowerOn { path: "/gold/x".into(), leaf: limited });
    let text = "/gold/x: cannot reserve 100.0002 %: its limit is 100.0001 %; reserve less or raise \
        the limit";
    assert_eq!(refused.refusal.unwrap().to_string(), text);
}

#[test]
fn a_pool_is_raised_by_what_its_parent_has_and_lowered_to_what_it_holds() {
    let (tree, names) = example(false);
    let change =
        |pcpus| admit(&tree, &names, &Ask::Pool { pool: 2, reservation: Rate::pcpus(pcpus) });
    assert!(change(5).admitted, "/gold has 3 left");
    let refusal = change(6).refusal.expect("/gold has 3 left, and 4 are asked");
    assert_eq!(
        (refusal.path.as_str(), refusal.asked, refusal.available),
        ("/gold", Rate::pcpus(4), Rate::pcpus(3))
    );
    let refusal = change(1).refusal.expect("its VM reserves 2");
    assert_eq!(
        (refusal.path.as_str(), refusal.asked, refusal.available),
        ("/gold/db", Rate::pcpus(2), Rate::ONE)
    );
    // An expandable one may be lowered: it goes on taking what its VM reserves.
    let (tree, names) = example(true);
    assert!(admit(&tree, &names, &Ask::Pool { pool: 2, reservation: Rate(0) }).admitted);
}

#[test]
fn every_place_that_is_over_committed_is_listed_once() {
    let limited = TreePool { limit: Some(Rate::ONE), ..pool(0, 2, true) };
    let pools = vec![pool(0, 0, true), pool(0, 1, false), limited];
    let held = TreeLeaf { limit: Some(Rate::ONE), ..vm(0, 2) };
    let tree = Tree::new(2, pools, vec![vm(1, 2), held, TreeLeaf { vcpus: 1, ..vm(2, 2) }]);
    let report = check(&tree, &names(&["/", "/lab", "/web"], &["/lab/a", "/b", "/web/c"]));
    assert!(!report.fits());
    assert_eq!(
        report.text(),
        "/:    reserved 300 % of 200 %,   0 % free: the host
/lab: reserved 200 % of 100 %,   0 % free: fixed, takes 100 %
/web: reserved 100 % of 200 %, 100 % free: expandable, takes 100 %, limit 100 %
/: cannot give 300 % to what it holds: the host has 200 % for it; reserve less
/lab: cannot give 200 % to what it holds: its fixed reservation has 100 % for it; raise that or make the pool expandable
/web: cannot reserve 200 %: its limit is 100 %; reserve less or raise the limit
/b: cannot reserve 200 %: its limit is 100 %; reserve less or raise the limit
/web/c: cannot reserve 200 %: its vCPUs can use 100 %; reserve less or add vCPUs
"
    );
}

/// The tree as it is once the answer is yes.
fn after(parts: &Parts, ask: &Ask) -> Parts {
    let mut parts = parts.clone();
    match ask {
        Ask::PowerOn { leaf, .. } => parts.leaves.push(leaf.clone()),
        Ask::Leaf { leaf, reservation } => parts.leaves[*leaf].reservation = *reservation,
        Ask::Pool { pool, reservation } => parts.pools[*pool].reservation = *reservation,
    }
    parts
}

fn ask(d: &mut Draw, parts: &Parts) -> Ask {
    let (pools, leaves) = (parts.pools.len() as u64, parts.leaves.len() as u64);
    match d.below(3) {
        0 if pools > 1 => {
            Ask::Pool { pool: 1 + d.below(pools - 1) as usize, reservation: d.rate(parts.pcpus) }
        }
        1 if leaves > 0 => Ask::Leaf { leaf: d.below(leaves) as usize, reservation: d.rate(3) },
        _ => {
            let limit = d.one_in(3).then(|| d.rate(3));
            let leaf = TreeLeaf {
                pool: d.below(pools) as usize,
                shares: 1000,
                reservation: d.rate(3),
                limit,
                vcpus: 2,
            };
            Ask::PowerOn { path: "/new".into(), leaf }
        }
    }
}

#[test]
fn a_reservation_is_kept_where_nothing_above_is_over_committed() {
    let found = seeds::each(0..30_000, |seed| {
        let parts = Draw::new(seed).parts(6);
        let (tree, names) = (parts.tree(), parts.names());
        let report = check(&tree, &names);
        let bad = |path: &str| report.excesses.iter().any(|e| e.path == path);
        let all = kept(&tree);
        assert_eq!(all.len(), tree.leaves().len());
        for ((leaf, path), kept) in tree.leaves().iter().zip(&names.leaves).zip(all) {
            let mut above = vec![0, leaf.pool];
            while let Some(p) = above.last().copied().filter(|p| *p > 0) {
                above.push(tree.pools()[p].parent);
            }
            let fits = !bad(path) && !above.iter().any(|p| bad(&names.pools[*p]));
            assert_eq!(kept, fits, "seed {seed}: {path}: {}{parts:#?}", report.text());
        }
        report.fits()
    });
    assert!(found.contains(&true) && found.contains(&false));
}

#[test]
fn what_is_admitted_is_what_check_finds_nothing_in() {
    let found = seeds::each(0..30_000, |seed| {
        let mut d = Draw::new(seed);
        let parts = d.parts(6);
        if !check(&parts.tree(), &parts.names()).fits() {
            return None;
        }
        let ask = ask(&mut d, &parts);
        let answer = admit(&parts.tree(), &parts.names(), &ask);
        let then = after(&parts, &ask);
        let report = check(&then.tree(), &then.names());
        assert_eq!(
            answer.admitted,
            report.fits(),
            "seed {seed}: {}{}{parts:#?}",
            answer.text(),
            report.text()
        );
        assert_eq!(answer.admitted, answer.refusal.is_none());
        assert!(
            answer
                .levels
                .iter()
                .rev()
                .skip(1)
                .all(|l| l.outcome == Outcome::PassedOn && l.expandable),
            "seed {seed}"
        );
        Some((answer.admitted, answer.levels.len() > 1))
    });
    let count = |is: fn(&(bool, bool)) -> bool| found.iter().flatten().filter(|f| is(f)).count();
    let (yes, no, borrowed) = (count(|f| f.0), count(|f| !f.0), count(|f| f.0 && f.1));
    assert!(
        yes > 1000 && no > 1000 && borrowed > 100,
        "too few: {yes} admitted, {no} refused, {borrowed} borrowed"
    );
}
