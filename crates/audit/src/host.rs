//! Where facts come from: files below a root, and calls to the kernel.
//!
//! With another root than `/`, what only calls can tell is not asked: the kernel would answer for this machine.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use net::clock::Clock;
use net::interface::{Offloads, QueueDiscipline, Rings};
use net::route::{LocalAddress, Route};
use rustix::fs::Access;
use rustix::process::Resource;

use crate::here::Here;

/// No file of the kernel's that is read here is longer.
const FILE_BYTES_MAX: u64 = 256 << 10;
const NAMES_MAX: usize = 4096;

/// Facts that are in no file.
pub trait Calls {
    fn rings(&self, interface: &str) -> Option<Rings>;
    fn offloads(&self, interface: &str) -> Option<Offloads>;
    fn queue_disciplines(&self) -> Option<Vec<QueueDiscipline>>;
    /// Those that lead to other hosts, and how the kernel sends from one of them.
    fn addresses(&self) -> Vec<LocalAddress>;
    fn leaves_by(&self, from: IpAddr, to: IpAddr) -> Option<Route>;
    fn clock(&self) -> Option<Clock>;
    /// Soft and hard limit; nothing is no limit.
    fn descriptors_max(&self) -> (Option<u64>, Option<u64>);
    fn mounted(&self, path: &Path) -> io::Result<Mounted>;
    fn is_root(&self) -> bool;
    /// What this processor seals records with.
    fn cipher(&self) -> String;
}

/// A path's file system, as calls tell of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mounted {
    /// `major:minor` as in `/proc/self/mountinfo`.
    pub device: (u32, u32),
    pub bytes: u64,
    pub free_bytes: u64,
    pub files: u64,
    pub free_files: u64,
    pub is_read_only: bool,
}

/// The kernel that this runs on.
#[derive(Debug)]
pub struct Kernel;

impl Calls for Kernel {
    fn cipher(&self) -> String {
        net::cipher::chosen().to_string()
    }

    fn rings(&self, interface: &str) -> Option<Rings> {
        net::interface::rings(interface)
    }

    fn offloads(&self, interface: &str) -> Option<Offloads> {
        Some(net::interface::offloads(interface))
    }

    fn queue_disciplines(&self) -> Option<Vec<QueueDiscipline>> {
        net::interface::queue_disciplines().ok()
    }

    fn addresses(&self) -> Vec<LocalAddress> {
        net::route::local_addresses().unwrap_or_default()
    }

    fn leaves_by(&self, from: IpAddr, to: IpAddr) -> Option<Route> {
        net::route::leaves_by(from, to).ok()
    }

    fn clock(&self) -> Option<Clock> {
        net::clock::read().ok()
    }

    fn descriptors_max(&self) -> (Option<u64>, Option<u64>) {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        (limit.current, limit.maximum)
    }

    fn mounted(&self, path: &Path) -> io::Result<Mounted> {
        let (stat, space) = (rustix::fs::stat(path)?, rustix::fs::statvfs(path)?);
        Ok(Mounted {
            device: (rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev)),
            bytes: space.f_blocks.saturating_mul(space.f_frsize),
            free_bytes: space.f_bavail.saturating_mul(space.f_frsize),
            files: space.f_files,
            free_files: space.f_favail,
            is_read_only: space.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
        })
    }

    fn is_root(&self) -> bool {
        rustix::process::geteuid().is_root()
    }
}

/// A host that is looked at.
pub struct Host<'a> {
    root: PathBuf,
    calls: &'a dyn Calls,
    is_this: bool,
}

impl<'a> Host<'a> {
    /// This machine.
    pub fn this(calls: &'a dyn Calls) -> Host<'a> {
        Host { root: PathBuf::from("/"), calls, is_this: true }
    }

    /// The files of another one, captured below `root`.
    pub fn captured(root: impl Into<PathBuf>, calls: &'a dyn Calls) -> Host<'a> {
        Host { root: root.into(), calls, is_this: false }
    }

    /// Asked about as if it were this machine, with the files below `root`.
    #[cfg(test)]
    pub(crate) fn imitated(root: impl Into<PathBuf>, calls: &'a dyn Calls) -> Host<'a> {
        Host { root: root.into(), calls, is_this: true }
    }

    /// The kernel's answers, where they are about the host that is looked at.
    pub fn calls(&self) -> Option<&'a dyn Calls> {
        self.is_this.then_some(self.calls)
    }

    pub fn is_root(&self) -> bool {
        self.calls.is_root()
    }

    /// A file's text without the white space around it.
    pub fn read(&self, path: &str) -> Option<String> {
        let mut text = Vec::new();
        fs::File::open(self.root.join(path)).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    }

    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Option<T> {
        self.read(path)?.parse().ok()
    }

    pub fn exists(&self, path: &str) -> bool {
        self.root.join(path).exists()
    }

    /// What a directory holds, in order.
    pub fn names(&self, directory: &str) -> Vec<String> {
        let listing = fs::read_dir(self.root.join(directory)).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            listing.take(NAMES_MAX).filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names
    }

    /// The last component of where a link leads.
    pub fn link_name(&self, path: &str) -> Option<String> {
        let leads = fs::read_link(self.root.join(path)).ok()?;
        leads.file_name().and_then(OsStr::to_str).map(str::to_owned)
    }

    /// A setting of the kernel's, its numbers separated by single spaces.
    pub fn sysctl(&self, name: &str) -> Option<String> {
        Some(self.read(&sysctl_file(name))?.split_whitespace().collect::<Vec<_>>().join(" "))
    }

    /// One of the numbers of a setting.
    pub fn sysctl_number(&self, name: &str, index: usize) -> Option<u64> {
        self.sysctl(name)?.split(' ').nth(index)?.parse().ok()
    }

    /// The container this runs in, by the marks that container programs leave.
    pub fn container(&self) -> Option<String> {
        if self.exists(".dockerenv") {
            return Some("docker".into());
        }
        if self.exists("run/.containerenv") {
            return Some("podman".into());
        }
        if let Some(kind) = self.read("run/systemd/container").filter(|kind| !kind.is_empty()) {
            return Some(kind);
        }
        let groups = self.read("proc/1/cgroup")?;
        let kinds = ["kubepods", "docker", "lxc", "libpod"];
        kinds.iter().find(|kind| groups.contains(**kind)).map(|kind| (*kind).to_owned())
    }

    /// Whether a setting can be changed from here. Only asks.
    pub fn may_set(&self, name: &str) -> Here {
        let file = self.root.join(sysctl_file(name));
        match rustix::fs::access(&file, Access::WRITE_OK) {
            // Files of the kernel's let nobody but their owner write; root passes the check of the mode.
            Ok(()) => Here::Yes,
            Err(rustix::io::Errno::ROFS) => Here::ReadOnly,
            Err(rustix::io::Errno::NOENT) => Here::HostOnly,
            Err(_) if self.is_root() => Here::ReadOnly,
            Err(_) => Here::NeedsRoot,
        }
    }

    /// Sets a setting of the kernel's.
    pub(crate) fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let mut file = fs::OpenOptions::new().write(true).truncate(true).open(self.root.join(sysctl_file(name)))?;
        io::Write::write_all(&mut file, value.as_bytes())
    }
}

/// `net.ipv4.tcp_rmem` is the file `proc/sys/net/ipv4/tcp_rmem`. Only names that the audit itself knows come here.
fn sysctl_file(name: &str) -> String {
    format!("proc/sys/{}", name.replace('.', "/"))
}

#[cfg(test)]
pub(crate) mod imitation {
    //! A host out of a directory, and answers that a test chooses.

    use super::*;

    pub struct Answers {
        pub rings: Option<Rings>,
        pub offloads: Offloads,
        pub disciplines: Vec<QueueDiscipline>,
        pub addresses: Vec<LocalAddress>,
        pub leaves_by: fn(IpAddr, IpAddr) -> Option<u32>,
        pub clock: Clock,
        pub descriptors: (Option<u64>, Option<u64>),
        pub mounted: Mounted,
        pub is_root: bool,
    }

    impl Default for Answers {
        fn default() -> Answers {
            Answers {
                rings: None,
                offloads: Offloads::default(),
                disciplines: Vec::new(),
                addresses: Vec::new(),
                leaves_by: |_, _| None,
                clock: Clock { is_synchronised: true, error_us_max: 100 },
                descriptors: (Some(1024), Some(1 << 20)),
                mounted: Mounted {
                    device: (8, 1),
                    bytes: 100 << 30,
                    free_bytes: 50 << 30,
                    files: 1 << 20,
                    free_files: 1 << 19,
                    is_read_only: false,
                },
                is_root: true,
            }
        }
    }

    impl Calls for Answers {
        fn cipher(&self) -> String {
            "a cipher".into()
        }

        fn rings(&self, _: &str) -> Option<Rings> {
            self.rings
        }
        fn offloads(&self, _: &str) -> Option<Offloads> {
            Some(self.offloads)
        }
        fn queue_disciplines(&self) -> Option<Vec<QueueDiscipline>> {
            Some(self.disciplines.clone())
        }
        fn addresses(&self) -> Vec<LocalAddress> {
            self.addresses.clone()
        }
        fn leaves_by(&self, from: IpAddr, to: IpAddr) -> Option<Route> {
            (self.leaves_by)(from, to).map(|interface| Route { interface, is_direct: true })
        }
        fn clock(&self) -> Option<Clock> {
            Some(self.clock)
        }
        fn descriptors_max(&self) -> (Option<u64>, Option<u64>) {
            self.descriptors
        }
        fn mounted(&self, _: &Path) -> io::Result<Mounted> {
            Ok(self.mounted)
        }
        fn is_root(&self) -> bool {
            self.is_root
        }
    }

    /// A directory with these files.
    pub fn files(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        dir
    }
}

#[cfg(test)]
mod tests {
    use super::imitation::{Answers, files};
    use super::*;

    #[test]
    fn settings_are_read_below_the_root_and_only_there() {
        let answers = Answers::default();
        let dir = files(&[("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n")]);
        let host = Host::imitated(dir.path(), &answers);
        assert_eq!(host.sysctl("net.ipv4.tcp_rmem").as_deref(), Some("4096 131072 6291456"));
        assert_eq!(host.sysctl_number("net.ipv4.tcp_rmem", 2), Some(6_291_456));
        assert_eq!(host.sysctl("net.ipv4.tcp_wmem"), None);
        assert_eq!(host.may_set("net.ipv4.tcp_rmem"), Here::Yes);
        assert_eq!(host.may_set("net.core.rmem_max"), Here::HostOnly);
    }

    #[test]
    fn a_captured_host_is_not_asked_what_the_kernel_here_would_answer() {
        let answers = Answers::default();
        assert!(Host::captured("/nonexistent", &answers).calls().is_none());
        assert!(Host::this(&answers).calls().is_some());
    }
}
