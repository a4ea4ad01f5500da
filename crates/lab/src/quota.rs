//! Processor quotas: a control group for each host that has one, with the name of its namespace.
//!
//! Works with cgroup2 where new groups have the `cpu` controller, as those of the root with systemd, and with the `cpu`
//! hierarchy of the older kind. Takes root.
//!
//! Invariants: nothing of the machine's own groups is changed, so a controller that new groups would not have is not
//! switched on; a group is known by the place where it was made, whatever the system gives to new ones later.
//!
//! Not here: who joins a group, and who is killed before it goes (`lease`).

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Pid;

use crate::error::{Error, Kind, Result};

/// In which a quota is given anew; the kernel's own choice.
const PERIOD_US: u64 = 100_000;
/// How long processes that were killed may keep a group.
const GONE_WAIT: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);
const HINT: &str = "processor quotas take root, and control groups that root may make; without them, omit `cpu`";
/// Of cgroup2, and of the older kind.
const QUOTA_FILES: [&str; 2] = ["cpu.max", "cpu.cfs_quota_us"];
const PROCESSES: &str = "cgroup.procs";

/// Where groups with quotas can be made: below the caller's own group, or else at the root of the hierarchy.
pub fn place() -> Result<PathBuf> {
    let [mounts, groups] =
        ["/proc/self/mounts", "/proc/self/cgroup"].map(|path| fs::read_to_string(path).unwrap_or_default());
    place_of(&mounts, &groups, &gives_quotas).ok_or_else(|| {
        let said = "new control groups have no `cpu` controller here: no cgroup2 gives it to them \
                    (cgroup.subtree_control), and there is no older hierarchy with it";
        Error::new(Kind::Missing, "give", "a processor quota", said).hint(HINT)
    })
}

/// Makes a group that gets so much of one processor.
pub fn hold(group: &Path, percent: u32) -> Result<()> {
    let [unified, older] = QUOTA_FILES.map(|name| group.join(name));
    let quota_us = u64::from(percent) * PERIOD_US / 100;
    let written = fs::create_dir(group).and_then(|()| match unified.is_file() {
        true => fs::write(unified, format!("{quota_us} {PERIOD_US}")),
        // A new group has that period.
        false => fs::write(older, quota_us.to_string()),
    });
    written.map_err(|source| Error::io("make the control group", group, source).hint(HINT))
}

/// The file by which a process joins a group; an error where there is no quota any more that would hold for it.
pub fn processes(group: &Path) -> Result<PathBuf> {
    if QUOTA_FILES.iter().any(|name| group.join(name).is_file()) {
        return Ok(group.join(PROCESSES));
    }
    let said = "it is gone, or the system took the `cpu` controller away from it";
    let subject = group.display().to_string();
    Err(Error::new(Kind::Missing, "use the control group", subject, said).hint("build the laboratory anew"))
}

pub fn pids(group: &Path) -> Vec<Pid> {
    let text = fs::read_to_string(group.join(PROCESSES)).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).filter_map(Pid::from_raw).collect()
}

/// Removes a group whose processes were killed; true if it is not there afterwards.
pub fn remove(group: &Path) -> bool {
    let deadline = Instant::now() + GONE_WAIT;
    while fs::remove_dir(group).is_err() && group.is_dir() {
        if Instant::now() >= deadline {
            return false;
        }
        thread::park_timeout(LOOK);
    }
    true
}

fn gives_quotas(dir: &Path, is_unified: bool) -> bool {
    let given = || fs::read_to_string(dir.join("cgroup.subtree_control")).unwrap_or_default();
    if is_unified { given().split_whitespace().any(|controller| controller == "cpu") } else { dir.is_dir() }
}

/// `gives` tells whether new groups of a directory have quotas, which is of cgroup2 or not.
fn place_of(mounts: &str, groups: &str, gives: &dyn Fn(&Path, bool) -> bool) -> Option<PathBuf> {
    mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (root, kind, options) = (PathBuf::from(words.next()?), words.next()?, words.next()?);
        let is_unified = match kind {
            "cgroup2" => true,
            "cgroup" if options.split(',').any(|option| option == "cpu") => false,
            _ => return None,
        };
        let own = own_group(groups, is_unified).map(|group| root.join(group));
        own.into_iter().chain([root]).find(|dir| gives(dir, is_unified))
    })
}

/// The caller's group, below the root of its hierarchy; none where it is the root, or out of sight.
fn own_group(groups: &str, is_unified: bool) -> Option<&str> {
    groups.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        let is_it = if is_unified { controllers.is_empty() } else { controllers.split(',').any(|word| word == "cpu") };
        let group = group.trim_start_matches('/');
        (is_it && !group.is_empty() && !group.contains("..")).then_some(group)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNIFIED: &str = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nsdelegate 0 0\n";
    const OLDER: &str = "cgroup /cpuset cgroup rw,cpuset 0 0\ncgroup /cpu cgroup rw,relatime,cpu,cpuacct 0 0\n";

    /// The place where new groups of these directories have quotas.
    fn found(mounts: &[&str], groups: &str, giving: &[&str]) -> Option<String> {
        let gives = |dir: &Path, _: bool| giving.iter().any(|other| Path::new(other) == dir);
        place_of(&mounts.concat(), groups, &gives).map(|dir| dir.display().to_string())
    }

    #[test]
    fn a_hierarchy_is_taken_only_where_new_groups_have_the_controller() {
        assert_eq!(found(&[UNIFIED], "0::/\n", &["/sys/fs/cgroup"]), Some("/sys/fs/cgroup".into()));
        assert_eq!(found(&[UNIFIED], "0::/\n", &[]), None);
        assert_eq!(found(&[UNIFIED, OLDER], "", &["/cpu", "/cpuset"]), Some("/cpu".into()));
        assert_eq!(found(&["tmpfs /cpu tmpfs rw,cpu 0 0\nshort\n"], "", &["/cpu"]), None);
    }

    #[test]
    fn a_group_is_made_below_the_one_of_its_maker_where_that_is_possible() {
        let groups = "3:cpuset:/other\n2:cpu,cpuacct:/job/1\n0::/user/x\n";
        let older = |giving: &[&str]| found(&[OLDER], groups, giving);
        assert_eq!(older(&["/cpu", "/cpu/job/1"]), Some("/cpu/job/1".into()));
        assert_eq!(older(&["/cpu", "/cpu/other"]), Some("/cpu".into()), "its own is not to be seen");
        let unified = |groups: &str| found(&[UNIFIED], groups, &["/sys/fs/cgroup", "/sys/fs/cgroup/user/x"]);
        assert_eq!(unified(groups), Some("/sys/fs/cgroup/user/x".into()));
        assert_eq!(unified("0::/../user/x\n"), Some("/sys/fs/cgroup".into()));
    }

    #[test]
    fn a_group_that_is_gone_or_has_no_quota_is_not_joined() {
        let dir = tempfile::tempdir().unwrap();
        let group = dir.path().join("tw-none");
        assert!(remove(&group) && pids(&group).is_empty() && processes(&group).is_err());
        fs::create_dir(&group).unwrap();
        assert!(processes(&group).is_err(), "the controller was taken away");
        fs::write(group.join("cpu.max"), "20000 100000").unwrap();
        assert_eq!(processes(&group).unwrap(), group.join("cgroup.procs"));
    }
}
