//! The programs and rights that tests need, and `.ci/run` installs: without one, the tests that need it would fail later.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use super::step::Outcome;

/// Network, file systems, tracing; shells and formatters that read what the program writes; rivals that are raced; a store that copies go to.
const PROGRAMS: &[&str] = &[
    "ip",
    "ping",
    "iptables",
    "unshare",
    "setpriv",
    "ps",
    "git",
    "tar",
    "cc",
    "strace",
    "tcpdump",
    "fusermount3",
    "mkfs.ext4",
    "mkfs.xfs",
    "mkfs.btrfs",
    "ssh",
    "sshd",
    "scp",
    "dpkg-deb",
    "systemd-analyze",
    "readelf",
    "groff",
    "zsh",
    "fish",
    "diff",
    "b3sum",
    "rsync",
    "rclone",
    "lftp",
    "vsftpd",
    "iperf3",
    "socat",
    "xrdcp",
    "davix-get",
    "davix-put",
    "xrootd",
    "globus-url-copy",
    "globus-gridftp-server",
    "moto_server",
    "openapi-python-client",
    "openapi-spec-validator",
];

pub fn missing() -> Outcome {
    let search = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = std::env::split_paths(&search).collect();
    let is_missing = |tool: &&&str| !folders.iter().any(|folder| folder.join(tool).is_file());
    let mut missing: Vec<String> =
        PROGRAMS.iter().filter(is_missing).map(|tool| format!("no {tool} in PATH")).collect();
    if fs::metadata("/proc/self").map_or(1, |metadata| metadata.uid()) != 0 {
        missing.push("not root: network namespaces cannot be made".to_owned());
    }
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        missing.push(format!("/dev/fuse cannot be opened: {error}"));
    }
    if !missing.is_empty() {
        missing.push("hint: .ci/run as root installs what is missing; ci --quick needs none of it".to_owned());
    }
    Outcome::of_step(missing)
}
