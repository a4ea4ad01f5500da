//! What a test needs of the machine it runs on: root, FUSE, namespaces, programs, rights that the kernel knows.
//!
//! A test that cannot run here says what is missing and ends. Under continuous integration (`CI` is set, as `xtask ci` and
//! most services do) it fails instead: nothing counts as passed that did not run. Facts are asked of the kernel, never of
//! the code under test, which may be wrong about them.
//! Not here: anything that a test does once it may run. Nothing but tests depends on this.

use landlock::{AccessFs, AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::fmt::Display;
use std::fs::OpenOptions;
use std::path::Path;
use std::process::{Command, Stdio};

/// True where a test may go on; says what is missing otherwise, and fails under continuous integration.
#[track_caller]
pub fn met(is_met: bool, what: impl Display) -> bool {
    if !is_met {
        assert!(!is_demanded(), "this test cannot run here, and nothing may be left out under CI: {what}");
        eprintln!("skipped: {what}");
    }
    is_met
}

#[track_caller]
pub fn root() -> bool {
    met(rustix::process::geteuid().is_root(), "it takes root")
}

#[track_caller]
pub fn fuse() -> bool {
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let why = opened.as_ref().err().map_or(String::new(), |e| format!(": {e}"));
    met(opened.is_ok(), format!("/dev/fuse cannot be opened{why}"))
}

#[track_caller]
pub fn network_namespaces() -> bool {
    met(succeeds("unshare", &["--net", "true"]), "no network namespace can be made")
}

/// Landlock with renames between directories (Linux 5.19), by making a set of rules of its own.
#[track_caller]
pub fn landlock() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer);
    met(rules.and_then(Ruleset::create).is_ok(), "the kernel has no Landlock, or none before Linux 5.19")
}

/// Landlock with rules for connections and signals (Linux 6.12), in the same way.
#[track_caller]
pub fn landlock_outside() -> bool {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let rules = rules.handle_access(AccessNet::ConnectTcp).and_then(|rules| rules.scope(Scope::Signal));
    met(rules.and_then(Ruleset::create).is_ok(), "the kernel has no Landlock for connections and signals (Linux 6.12)")
}

/// A program of other people.
#[track_caller]
pub fn program(name: &str) -> bool {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&search).chain([Path::new("/usr/sbin").into(), Path::new("/sbin").into()]);
    met(found.into_iter().any(|folder| folder.join(name).is_file()), format!("no {name} is installed"))
}

/// A program that may be installed and still not work here, as strace without the right to trace.
#[track_caller]
pub fn working(name: &str, arguments: &[&str]) -> bool {
    met(succeeds(name, arguments), format!("`{name} {}` does not work", arguments.join(" ")))
}

/// Runs `work` in a thread for which permissions count, whoever the user is: root gives up passing them by.
pub fn bound_by_permissions<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let powers = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
    let bound = || {
        let mut held = capabilities(None).expect("a thread may ask for its capabilities");
        held.effective.remove(powers);
        set_capabilities(None, held).expect("a thread may give capabilities up");
        work()
    };
    let ended = std::thread::scope(|scope| scope.spawn(bound).join());
    ended.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

fn is_demanded() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty() && value != "false" && value != "0")
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::io::ErrorKind;
    use std::os::unix::fs::PermissionsExt;

    /// What a test does that needs a program which is nowhere.
    const NOTHING: &str = "no-such-program-anywhere";

    /// Runs in a process of its own: the environment of this one belongs to other tests too.
    #[test]
    fn what_is_missing_is_said_and_is_a_failure_under_ci() {
        if std::env::var_os("NEEDS_OF_A_CHILD").is_some() {
            assert!(!program(NOTHING));
            return;
        }
        let ran = |ci: Option<&str>| {
            let mut child = Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", "--nocapture", "tests::what_is_missing_is_said_and_is_a_failure_under_ci"]);
            child.env("NEEDS_OF_A_CHILD", "1").env_remove("CI").envs(ci.map(|value| ("CI", value)));
            let ran = child.output().unwrap();
            (ran.status.success(), String::from_utf8_lossy(&ran.stderr).contains(&format!("no {NOTHING} is installed")))
        };
        assert_eq!(ran(None), (true, true));
        assert_eq!(ran(Some("false")), (true, true));
        assert_eq!(ran(Some("true")), (false, true));
    }

    #[test]
    fn permissions_count_even_for_root() {
        let file = std::env::temp_dir().join(format!("thalweg-needs-{}", std::process::id()));
        fs::write(&file, b"x").unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
        let denied = bound_by_permissions(|| fs::read(&file).unwrap_err().kind());
        fs::remove_file(&file).unwrap();
        assert_eq!(denied, ErrorKind::PermissionDenied);
    }
}
