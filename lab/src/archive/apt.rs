//! A private apt for the archive: own sources, lists and package state in a scratch folder,
//! signatures checked against Debian's keyring; the machine's apt neither sees nor feels it.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{LabError, Result};
use crate::tool;

const MIRROR: &str = "http://deb.debian.org/debian";
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// What to do when apt fails; the same for all of its steps.
const NEXT: &str =
    "check the network; kernels may also be given as files with TANDEM_LAB_KERNELS=FOLDER";

/// An apt that knows only the suites it was made for; its folder is deleted when it is dropped.
pub(super) struct Apt {
    folder: PathBuf,
}

impl Drop for Apt {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).ok();
    }
}

impl Apt {
    /// Makes the private configuration and downloads the package lists of these suites.
    pub(super) fn open(cache: &Path, name: &str, suites: &[&str]) -> Result<Self> {
        if !Path::new(KEYRING).is_file() {
            return Err(LabError::new(
                KEYRING,
                "check package signatures",
                "no such file",
                "install the package debian-archive-keyring",
            ));
        }
        tool::need_program(&["apt-get"], "apt")?;
        let folder = cache.join(format!("apt-{name}.{}", std::process::id()));
        tool::remove_dir(&folder)?;
        for sub in ["lists/partial", "archives/partial", "apt.conf.d", "preferences.d"] {
            tool::make_dir(&folder.join(sub))?;
        }
        tool::write(&folder.join("status"), b"")?;
        tool::write(&folder.join("sources.list"), sources(suites).as_bytes())?;
        tool::write(&folder.join("apt.conf"), configuration(&folder).as_bytes())?;
        let apt = Apt { folder };
        tool::progress(&format!(
            "reading the package lists of {} from {MIRROR}",
            suites.join(", ")
        ));
        tool::run(apt.command("apt-get").arg("update"), "read the package lists", NEXT)?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("APT_CONFIG", self.folder.join("apt.conf"))
            .env("LC_ALL", "C")
            .current_dir(&self.folder);
        command
    }

    /// Names of all known packages that start with a prefix.
    pub(super) fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let list =
            tool::run(self.command("apt-cache").args(["pkgnames", prefix]), "list packages", NEXT)?;
        Ok(String::from_utf8_lossy(&list).lines().map(str::to_owned).collect())
    }

    /// Downloads one package and returns its file.
    pub(super) fn download(&self, package: &str) -> Result<PathBuf> {
        let into = self.folder.join("single");
        tool::remove_dir(&into)?;
        tool::make_dir(&into)?;
        let mut command = self.command("apt-get");
        tool::run(
            command.args(["download", package]).current_dir(&into),
            &format!("download {package}"),
            NEXT,
        )?;
        tool::files_below(&into)?.pop().ok_or_else(|| {
            LabError::new(package, "be downloaded", "apt-get succeeded without a file", NEXT)
        })
    }

    /// Downloads packages with everything they depend on, down to the C library: the package state
    /// is empty, so nothing of what the machine has installed is taken for granted.
    pub(super) fn download_closure(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        let mut command = self.command("apt-get");
        command.args(["install", "--download-only", "--yes"]).args(packages);
        tool::run(&mut command, &format!("download {}", packages.join(", ")), NEXT)?;
        let files = tool::files_below(&self.folder.join("archives"))?;
        Ok(files.into_iter().filter(|f| f.extension().is_some_and(|e| e == "deb")).collect())
    }
}

/// `check-valid-until=no`: a mirror that lags, or a machine whose clock is ahead, is no reason to
/// stop; the signature is checked all the same, and a stale list costs us at most a newer kernel.
fn sources(suites: &[&str]) -> String {
    suites
        .iter()
        .map(|s| {
            format!("deb [arch=amd64 check-valid-until=no signed-by={KEYRING}] {MIRROR} {s} main\n")
        })
        .collect()
}

fn configuration(folder: &Path) -> String {
    let at = folder.display();
    format!(
        "Dir \"{at}\";\n\
         Dir::Etc \"{at}\";\n\
         Dir::Etc::sourcelist \"{at}/sources.list\";\n\
         Dir::Etc::sourceparts \"-\";\n\
         Dir::Etc::parts \"apt.conf.d\";\n\
         Dir::Etc::preferencesparts \"preferences.d\";\n\
         Dir::State::lists \"{at}/lists\";\n\
         Dir::State::status \"{at}/status\";\n\
         Dir::Cache \"{at}\";\n\
         Dir::Cache::archives \"{at}/archives\";\n\
         Dir::Cache::pkgcache \"\";\n\
         Dir::Cache::srcpkgcache \"\";\n\
         APT::Architecture \"amd64\";\n\
         APT::Architectures {{ \"amd64\"; }};\n\
         APT::Install-Recommends \"false\";\n\
         APT::Sandbox::User \"\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Check-Date \"false\";\n\
         APT::Update::Error-Mode \"any\";\n\
         Acquire::Retries \"3\";\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_signed_and_names_its_suite() {
        let text = sources(&["sid", "trixie-backports"]);
        assert_eq!(text.lines().count(), 2);
        assert!(text.lines().all(|l| l.contains("signed-by=") && l.ends_with(" main")));
    }

    #[test]
    fn all_of_apts_state_lies_in_the_private_folder() {
        let text = configuration(Path::new("/x/apt"));
        for key in [
            "Dir ",
            "Dir::State::status",
            "Dir::State::lists",
            "Dir::Cache ",
            "Dir::Etc::sourcelist",
        ] {
            let line = text.lines().find(|l| l.trim_start().starts_with(key)).expect(key);
            assert!(line.contains("\"/x/apt"), "{line}");
        }
    }
}
