//! The places that may have kernel packages: Debian's archive first, a folder of given files after
//! it; they only hand packages out, and judge none.

use std::path::{Path, PathBuf};

use super::apt::Apt;
use super::repository;
use crate::error::{LabError, Result};
use crate::tool;

/// A place that may have kernel packages.
pub(super) trait Source {
    fn label(&self) -> String;
    fn names(&self) -> Result<Vec<String>>;
    fn fetch(&self, package: &str) -> Result<PathBuf>;
}

impl Source for Apt {
    fn label(&self) -> String {
        "Debian's archive".into()
    }

    fn names(&self) -> Result<Vec<String>> {
        Apt::names(self, "linux-")
    }

    fn fetch(&self, package: &str) -> Result<PathBuf> {
        self.download(package)
    }
}

/// A folder with .deb files, for machines whose archive has moved on or that have no network.
struct Folder(PathBuf);

impl Source for Folder {
    fn label(&self) -> String {
        self.0.display().to_string()
    }

    fn names(&self) -> Result<Vec<String>> {
        let files = tool::files_below(&self.0)?;
        let package = |f: &PathBuf| Some(f.file_name()?.to_str()?.split_once('_')?.0.to_owned());
        Ok(files
            .iter()
            .filter(|f| f.extension().is_some_and(|e| e == "deb"))
            .filter_map(package)
            .collect())
    }

    fn fetch(&self, package: &str) -> Result<PathBuf> {
        let wanted = format!("{package}_");
        let files = tool::files_below(&self.0)?;
        let named =
            |f: &PathBuf| f.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&wanted));
        files.into_iter().find(named).ok_or_else(|| {
            LabError::new(
                self.label(),
                format!("give {package}"),
                "no such file",
                "add the .deb file",
            )
        })
    }
}

/// The archive first, the given files after it; a source that cannot be opened is noted and passed
/// over.
pub(super) fn sources<'a>(
    cache: &'a Path,
    suites: &[&str],
    refused: &mut Vec<String>,
) -> Vec<Box<dyn Source + 'a>> {
    let mut found: Vec<Box<dyn Source>> = Vec::new();
    match Apt::open(cache, "kernels", suites) {
        Ok(apt) => found.push(Box::new(apt)),
        Err(e) => {
            tool::progress(&format!("the archive is out of reach, trying given files: {e}"));
            refused.push(format!("archive: {}", e.seen));
        }
    }
    let beside = repository().parent().map(|p| p.join("shared/kernels"));
    let given = std::env::var_os("TANDEM_LAB_KERNELS").map(PathBuf::from).or(beside);
    found.extend(given.filter(|f| f.is_dir()).map(|f| Box::new(Folder(f)) as Box<dyn Source>));
    found
}
