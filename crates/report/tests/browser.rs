//! The page in a real browser: it draws without errors, zooms by wheel and keys, requests nothing,
//! and prints. Without Chromium these are skipped.

use crate::common;

use common::*;
use report::{Given, Options, Source};
use serde_json::{Value, json};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};
use trace::{State, Why};

/// Names under which systems install Chromium; the variable goes before them.
const NAMES: [&str; 6] = [
    "chromium",
    "chromium-browser",
    "chromium-headless-shell",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
];
const VARIABLE: &str = "TANDEM_BROWSER";
/// A browser that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

/// The browser, or why a test is skipped.
fn browser() -> Option<PathBuf> {
    if let Some(given) = env::var_os(VARIABLE).filter(|v| !v.is_empty()) {
        return Some(given.into());
    }
    let path = env::var_os("PATH").unwrap_or_default();
    let found =
        env::split_paths(&path).flat_map(|dir| NAMES.map(|n| dir.join(n))).find(|f| f.is_file());
    if found.is_none() {
        println!("skipped: no Chromium in the path; install it, or name it by {VARIABLE}");
    }
    found
}

/// What a run of the browser printed: standard output and error.
fn run(browser: &Path, own: &Path, words: &[String]) -> (String, String) {
    let (out, error) = (own.join("out"), own.join("error"));
    let file = |p: &Path| Stdio::from(fs::File::create(p).expect("a file"));
    let always = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--enable-logging=stderr",
        "--v=0",
    ];
    let mut child = Command::new(browser)
        .args(always)
        .arg(format!("--user-data-dir={}", own.join("profile").display()))
        .args(words)
        .stdin(Stdio::null())
        .stdout(file(&out))
        .stderr(file(&error))
        .spawn()
        .expect("the browser starts");
    let begin = Instant::now();
    while child.try_wait().expect("its end").is_none() {
        if begin.elapsed() > PATIENCE {
            child.kill().expect("it ends");
            panic!("{} did not end within {PATIENCE:?}", browser.display());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    (
        fs::read_to_string(out).expect("text"),
        String::from_utf8_lossy(&fs::read(error).expect("text")).into_owned(),
    )
}

/// A folder of one test, with the page in it.
fn folder(name: &str, html: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("browser-{name}"));
    let _ = fs::remove_dir_all(&own);
    fs::create_dir_all(&own).expect("a folder");
    fs::write(own.join("page.html"), html).expect("the page");
    own
}

fn url(own: &Path, hash: &str) -> String {
    format!("file://{}{hash}", own.join("page.html").display())
}

/// What the page found when it tried itself at a width of so many pixels.
fn selftest(name: &str, html: &str, width: u32) -> Option<Value> {
    let browser = browser()?;
    let own = folder(name, html);
    // On a busy machine the browser may print the page before the page has tried itself: again,
    // with more patience.
    let text = [8000, 20_000, 60_000].into_iter().find_map(|budget| {
        let words = [
            format!("--window-size={width},900"),
            format!("--virtual-time-budget={budget}"),
            "--dump-dom".to_owned(),
        ];
        let (dom, error) = run(&browser, &own, &[&words[..], &[url(&own, "#selftest")]].concat());
        assert!(!error.contains("CONSOLE"), "{error}");
        dom.split("<pre id=\"selftest\" hidden=\"\">")
            .nth(1)?
            .split("</pre>")
            .next()
            .map(str::to_owned)
    });
    let text = text.unwrap_or_else(|| panic!("no selftest in the page of {name}"));
    let plain = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    Some(serde_json::from_str(&plain).expect("JSON"))
}

fn page(a: &str) -> String {
    made(vec![both(a)], &Options::default()).1
}

#[test]
fn a_page_draws_zooms_and_requests_nothing() {
    let Some(seen) = selftest("draws", &page("a"), 1280) else { return };
    assert_eq!(
        seen["sections"],
        json!(["look", "vms", "pools", "map", "time", "ready", "timeline"])
    );
    assert_eq!([&seen["errors"], &seen["violations"], &seen["requests"]], [&json!([]); 3]);
    assert_eq!(
        (&seen["firstVm"], &seen["worldsShown"], &seen["injected"]),
        (&json!("a"), &json!(1), &json!(0))
    );
    assert!(seen["dimmed"].as_u64().unwrap() > 3, "the other VM steps back: {seen}");
    let t = &seen["timelines"][0];
    let ns = |key: &str| t[key].as_f64().unwrap();
    assert_eq!(
        (ns("whole"), ns("wheelWithoutFocus")),
        (1e7, 1e7),
        "the wheel scrolls the page until the timeline is clicked"
    );
    assert_eq!(
        [ns("wheel"), ns("plus"), ns("closest"), ns("all"), ns("button")],
        [5e6, 2.5e6, 1e3, 1e7, 5e6]
    );
    assert!((ns("right") - 0.2).abs() < 1e-6 && (ns("drag") + 0.1).abs() < 1e-6, "{t}");
    assert_eq!(t["worlds"], 4, "two VMs with a world each");
    assert_eq!(t["drawn"], true, "the first piece has its VM's colour: {t}");
    let tip = t["tip"].as_str().unwrap();
    assert!(tip.contains("ms, from"), "{tip}");
}

#[test]
fn pieces_narrower_than_a_pixel_are_drawn_as_what_took_most_of_it() {
    let mut all = names("a");
    for i in 0..4000 {
        all.push(state(i * 50 * US, 1, State::Run, Why::Picked, Some(0)));
        all.push(state(i * 50 * US + 40 * US, 1, State::WaitIdle, Why::Slept, Some(0)));
    }
    let given =
        Given { label: None, files: vec![("t".to_owned(), Source::Trace(Box::new(trace(all))))] };
    let html = made(vec![given], &Options::default()).1;
    let Some(seen) = selftest("narrow", &html, 1280) else { return };
    assert_eq!((&seen["errors"], &seen["timelines"][0]["drawn"]), (&json!([]), &json!(true)));
}

#[test]
fn a_name_that_looks_like_markup_is_shown_as_it_is() {
    let Some(seen) = selftest("evil", &page(EVIL), 1280) else { return };
    assert_eq!(
        (&seen["firstVm"], &seen["injected"], &seen["images"]),
        (&json!(EVIL), &json!(0), &json!(0))
    );
    assert_eq!([&seen["errors"], &seen["violations"], &seen["requests"]], [&json!([]); 3]);
}

#[test]
fn a_phone_needs_no_sideways_scrolling() {
    let Some(seen) =
        selftest("phone", &page("a-vm-with-quite-a-long-name-for-a-small-screen"), 500)
    else {
        return;
    };
    assert_eq!((&seen["width"], &seen["errors"]), (&json!(0), &json!([])));
}

#[test]
fn two_runs_and_many_are_drawn_with_and_without_traces() {
    let document = |label: &str| {
        (format!("{label}.json"), Source::Documents(vec![document(vec![result("a", label)])]))
    };
    let alone = |label: &str| Given { label: None, files: vec![document(label)] };
    let html = made(vec![both("a"), alone("second")], &Options::default()).1;
    let Some(two) = selftest("two", &html, 1280) else { return };
    assert_eq!(
        (&two["runs"], &two["errors"], two["timelines"].as_array().unwrap().len()),
        (&json!(2), &json!([]), 1)
    );
    assert_eq!(
        two["sections"],
        json!(["look", "runs", "vms", "pools", "map", "time", "ready", "timeline"])
    );
    let html = made(["1 VM", "2 VMs", "3 VMs"].map(alone).into(), &Options::default()).1;
    let many = selftest("many", &html, 1280).expect("the browser is still there");
    assert_eq!((&many["runs"], &many["errors"]), (&json!(3), &json!([])));
    assert_eq!(many["sections"], json!(["look", "runs", "vms", "pools", "map", "time"]));
}

#[test]
fn it_prints_on_paper() {
    let Some(browser) = browser() else { return };
    let own = folder("print", &page("a"));
    let pdf = own.join("page.pdf");
    let words = [
        "--virtual-time-budget=8000".to_owned(),
        "--no-pdf-header-footer".to_owned(),
        format!("--print-to-pdf={}", pdf.display()),
        url(&own, ""),
    ];
    let (_, error) = run(&browser, &own, &words);
    assert!(!error.contains("CONSOLE"), "{error}");
    let bytes = fs::read(pdf).expect("a PDF");
    let text = String::from_utf8_lossy(&bytes);
    let pages = text.matches("/Type /Page\n").count();
    assert!(text.starts_with("%PDF") && (1..=6).contains(&pages), "{pages} pages");
}

#[test]
fn light_dark_and_narrow_look_different_and_are_not_empty() {
    let Some(browser) = browser() else { return };
    let own = folder("looks", &page("a"));
    let shot = |name: &str, more: &[&str]| {
        let png = own.join(format!("{name}.png"));
        let mut words = vec![
            "--hide-scrollbars".to_owned(),
            "--virtual-time-budget=3000".to_owned(),
            format!("--screenshot={}", png.display()),
        ];
        words.extend(more.iter().map(|w| (*w).to_owned()));
        words.push(url(&own, ""));
        run(&browser, &own, &words);
        fs::read(png).expect("a picture")
    };
    let light = shot("light", &["--window-size=1240,2000"]);
    let dark =
        shot("dark", &["--window-size=1240,2000", "--blink-settings=preferredColorScheme=0"]);
    let narrow = shot("narrow", &["--window-size=500,2000"]);
    // An empty page of this size is less than 12 kB as PNG.
    assert!(
        [&light, &dark, &narrow].iter().all(|p| p.len() > 30_000),
        "{} {} {}",
        light.len(),
        dark.len(),
        narrow.len()
    );
    assert!(light != dark && light != narrow);
    println!("pictures: {}", own.display());
}
