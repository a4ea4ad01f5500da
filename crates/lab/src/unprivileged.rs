//! A laboratory without root: in a user namespace, where the process is root over what it makes and nothing else.
//!
//! Owns: entering such a namespace, with a `/run` of its own for the names of network namespaces; and joining that of a
//! holder. Its mounts and networks end with the last process in it: after a kill, removal ends those processes, which
//! are known by what is mounted for them.
//!
//! Real-time priority is not to be had there: the lateness of a run tells whether it did without.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::mount::{MountFlags, MountPropagationFlags};

use crate::error::{Error, Kind, Result};
use crate::sys::namespace;

/// The source of the `/run` in such a namespace.
pub const RUN_SOURCE: &str = "thalweg-lab";

/// Set when the process has become root in a user namespace of ours.
static OUTER_USER: OnceLock<u32> = OnceLock::new();

/// Becomes root in a user namespace unless the process is root already. To be called before any thread is started.
pub fn become_root() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    enter_own().map_err(|source| {
        let said = format!("this needs root, or the right to make a user namespace ({source})");
        Error::new(Kind::Denied, "make", "network namespaces", said).hint(
            "run it as root, or let an administrator allow them: sysctl user.max_user_namespaces=10000 and, where it \
             exists, kernel.apparmor_restrict_unprivileged_userns=0",
        )
    })
}

/// Joins the namespaces of the process that holds a laboratory without root.
pub fn join(holder: u32) -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let dir = std::env::current_dir();
    for kind in ["user", "mnt", "net"] {
        let path = PathBuf::from(format!("/proc/{}/ns/{kind}", holder));
        let entered = File::open(&path).and_then(|file| namespace::enter(file.as_fd()));
        entered.map_err(|source| Error::io("enter", &path, source))?;
    }
    // Another mount namespace begins at its root.
    dir.and_then(std::env::set_current_dir).map_err(|source| Error::io("return to", ".".as_ref(), source))
}

/// The user who has, or had before `become_root`, no rights over the machine's networks; none: root.
pub fn outer_user() -> Option<u32> {
    let own = rustix::process::geteuid().as_raw();
    Some(OUTER_USER.get().copied().unwrap_or(own)).filter(|user| *user != 0)
}

/// Names the user namespace of a process; none: it has gone, or is another user's.
pub fn user_namespace(pid: u32) -> Option<String> {
    let link = fs::read_link(format!("/proc/{pid}/ns/user")).ok()?;
    Some(link.to_string_lossy().into_owned())
}

/// Lays files over those of `/etc`, for all hosts alike: without root there is no `/etc/netns`.
pub fn lay_over_etc(files: &[(&str, PathBuf)]) -> Result<()> {
    for (name, file) in files {
        let target = Path::new("/etc").join(name);
        match rustix::mount::mount_bind(file, &target) {
            // A file that does not exist needs no cover.
            Ok(()) | Err(rustix::io::Errno::NOENT) => (),
            Err(errno) => return Err(Error::io("cover", &target, errno.into())),
        }
    }
    Ok(())
}

fn enter_own() -> io::Result<()> {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    namespace::unshare_user()?;
    let _ = OUTER_USER.set(user);
    // The kernel wants it so before a group may be mapped.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {user} 1\n"))?;
    fs::write("/proc/self/gid_map", format!("0 {group} 1\n"))?;
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)?;
    let options = CString::new("mode=0755").unwrap_or_default();
    rustix::mount::mount(
        RUN_SOURCE,
        "/run",
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(options.as_c_str()),
    )?;
    Ok(())
}
