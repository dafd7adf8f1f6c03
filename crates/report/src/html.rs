//! The page around the numbers: markup, style and scripts in one text that loads nothing and runs
//! no script but its own.
//!
//! Names are put into the page in two ways only: into the title as escaped text, and into the JSON
//! block, where every `<` is written as an escape, so that no name can end the block. Scripts write
//! names as text nodes, never as markup.

use crate::model::Page;
use base64::{Engine, prelude::BASE64_STANDARD};
use sha2::{Digest, Sha256};

/// The scripts, in the order in which they use each other, as one.
const SCRIPT: &str = concat!(
    "'use strict';\n(() => {\n",
    include_str!("page/base.js"),
    include_str!("page/charts.js"),
    include_str!("page/tables.js"),
    include_str!("page/homes.js"),
    include_str!("page/map.js"),
    include_str!("page/time.js"),
    include_str!("page/timeline.js"),
    include_str!("page/selftest.js"),
    include_str!("page/page.js"),
    "})();\n"
);
const STYLE: &str = concat!(include_str!("page/page.css"), include_str!("page/parts.css"));
/// A square with two bars; without it browsers ask for a file of their own.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 16 \
    16'%3E%3Crect width='16' height='16' rx='4' fill='%230072b2'/%3E%3Cpath d='M3 6h10M3 10h6' \
    stroke='%23fff' stroke-width='2.4'/%3E%3C/svg%3E";

/// The page as a browser reads it.
///
/// # Panics
/// Never: the numbers have text keys and no floats that JSON lacks.
#[must_use]
pub fn page(page: &Page) -> String {
    let data =
        serde_json::to_string(page).expect("numbers, texts and lists").replace('<', "\\u003c");
    let policy = format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; img-src data:; \
            base-uri 'none'; form-action 'none'",
        hash(SCRIPT),
        hash(STYLE)
    );
    let title = escape(&page.title);
    let version = escape(&page.version);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{policy}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"Tandem {version}\">\n\
         <title>{title} · Tandem</title>\n<link rel=\"icon\" href=\"{ICON}\">\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <a class=\"skip\" href=\"#main\">To the content</a>\n<main id=\"main\"></main>\n\
         <noscript><p class=\"note\">This page draws its numbers with its own script, which is \
         switched off here. \
         The numbers are in the block of JSON at the end of this file.</p></noscript>\n\
         <script type=\"application/json\" \
         id=\"data\">{data}</script>\n<script>{SCRIPT}</script>\n</body>\n</html>\n"
    )
}

/// A page of this style that runs no script: a title, and the markup of its content, in which all
/// text is escaped by [`escape`].
#[must_use]
pub fn still(title: &str, version: &str, content: &str) -> String {
    const STILL: &str = concat!(include_str!("page/page.css"), include_str!("page/still.css"));
    let (title, version) = (escape(title), escape(version));
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src \
         'sha256-{}'; img-src data:; base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta name=\"generator\" content=\"Tandem {version}\">\n\
         <title>{title} · Tandem</title>\n<link rel=\"icon\" href=\"{ICON}\">\n<style>{STILL}\
         </style>\n</head>\n<body>\n<main id=\"main\">{content}</main>\n</body>\n</html>\n",
        hash(STILL)
    )
}

/// SHA-256 of a text in base64, as a content security policy names what may run.
fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text))
}

/// A text as HTML shows it.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second of NIST's examples of SHA-256, and what `sha256sum` says of a longer text.
    #[test]
    fn hashes_are_those_of_the_standard_in_base64() {
        assert_eq!(hash("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
        let long = "a".repeat(1000);
        assert_eq!(hash(&long), "Qe3s5C1j6Nm/UVqbppMuHCDLyfWl0TRkWttdsblzfqM=");
    }

    #[test]
    fn a_text_is_no_markup() {
        assert_eq!(escape("<b a=\"1\" c='2'>&"), "&lt;b a=&quot;1&quot; c=&#39;2&#39;&gt;&amp;");
    }
}
