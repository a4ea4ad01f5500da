//! Two hosts on one machine: a pair of network namespaces joined by a veth pair.
//!
//! Owns: the namespaces, their link, addresses, resolver files and TCP settings, and the removal of all of it.
//!
//! Invariants:
//! - Nothing outside the two namespaces changes: no machine-wide sysctl, route or interface. Settings are written
//!   inside a namespace, and the congestion control is chosen per route, which needs no machine-wide permission.
//! - Whatever a pair creates is on record in `STATE_DIR` before it is created. A pair that lost its owner to a kill
//!   is removed, with the processes left in it, when the next pair is made.
//! - No process in a namespace asks DNS: each has its own hosts, resolver and name-switch files.
//!
//! Not here: delay, loss and rate limits of the link. Everything is done through `ip` of iproute2, because its `exec`
//! also mounts the resolver files.

mod record;

use std::collections::hash_map::RandomState;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::thread::LinkNameSpaceType;

use record::{Record, STATE_DIR, lock_state_dir, remove_leftovers};

/// Where iproute2 keeps the handles of named namespaces.
const NETNS_DIR: &str = "/run/netns";
/// Where iproute2 looks for the files to mount over `/etc` in a namespace.
const NETNS_ETC_DIR: &str = "/etc/netns";

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    A,
    B,
}

impl Side {
    pub const BOTH: [Side; 2] = [Side::A, Side::B];

    pub fn other(self) -> Side {
        match self {
            Side::A => Side::B,
            Side::B => Side::A,
        }
    }

    fn index(self) -> u8 {
        match self {
            Side::A => 1,
            Side::B => 2,
        }
    }
}

/// What the link and the TCP stacks of a pair look like.
#[derive(Clone, Debug)]
pub struct Options {
    pub mtu_bytes: u32,
    /// Upper bound of the automatic socket buffers, inside the namespaces only.
    pub tcp_buffer_bytes_max: u64,
    /// Used where the kernel has it; `Pair::congestion_control` tells what is in force.
    pub congestion_control: String,
}

impl Default for Options {
    fn default() -> Self {
        Options { mtu_bytes: 9000, tcp_buffer_bytes_max: 64 << 20, congestion_control: "cubic".into() }
    }
}

/// What kept a pair from being made.
#[derive(thiserror::Error, Debug)]
#[error("{operation} {subject}")]
pub struct Error {
    pub kind: Kind,
    pub operation: &'static str,
    pub subject: String,
    /// What the system said, or what a command wrote to its standard error.
    pub source: io::Error,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Not allowed to make namespaces: needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN).
    Denied,
    /// A program that is needed is not installed.
    Missing,
    /// A command or system call failed.
    Failed,
}

type Result<T> = std::result::Result<T, Error>;

/// Two joined namespaces; dropping it kills what runs in them and removes everything.
#[derive(Debug)]
pub struct Pair {
    record: Record,
    /// Third byte of the IPv4 network; the network is visible inside the namespaces only.
    net: u8,
    congestion_control: String,
}

impl Pair {
    /// Removes what killed runs left behind, then makes a pair.
    pub fn create(options: &Options) -> Result<Pair> {
        check_privilege()?;
        let lock = lock_state_dir()?;
        remove_leftovers(Path::new(STATE_DIR));
        let token = random();
        let record = Record::of_this_process(token as u16);
        record.write(Path::new(STATE_DIR))?;
        // From here on dropping the pair removes whatever part of it exists.
        let mut pair = Pair { record, net: (token >> 16) as u8, congestion_control: String::new() };
        let built = pair.build(options);
        // Before an error drops the pair, which takes the lock itself.
        drop(lock);
        built.map(|()| pair)
    }

    pub fn namespace(&self, side: Side) -> String {
        self.record.namespace(side)
    }

    pub fn address_v4(&self, side: Side) -> Ipv4Addr {
        Ipv4Addr::new(10, 77, self.net, side.index())
    }

    pub fn address_v6(&self, side: Side) -> Ipv6Addr {
        Ipv6Addr::new(0xfd77, 0x7468, 0x616c, self.net.into(), 0, 0, 0, side.index().into())
    }

    /// The congestion control of connections over the link, unless a program chooses its own.
    pub fn congestion_control(&self) -> &str {
        &self.congestion_control
    }

    /// A command that runs `program` on one side.
    pub fn command(&self, side: Side, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec"]).arg(self.namespace(side)).arg(program);
        command
    }

    /// The same command on one side: program, arguments, environment and directory are taken over; the standard
    /// streams are not, because a `Command` does not tell them.
    pub fn exec(&self, side: Side, inner: &Command) -> Command {
        let mut command = self.command(side, inner.get_program());
        command.args(inner.get_args());
        for (name, value) in inner.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(dir) = inner.get_current_dir() {
            command.current_dir(dir);
        }
        command
    }

    /// Moves the calling thread, and what it spawns from then on, to one side's network. There is no way back: use
    /// a thread made for it. The resolver files are not part of it.
    pub fn enter(&self, side: Side) -> Result<()> {
        let path = Path::new(NETNS_DIR).join(self.namespace(side));
        let file = File::open(&path).map_err(|source| Error::io("open", &path, source))?;
        rustix::thread::move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| Error::io("enter", &path, errno.into()))
    }

    fn build(&mut self, options: &Options) -> Result<()> {
        for side in Side::BOTH {
            ip(&["netns", "add", &self.namespace(side)])?;
            self.write_etc(side)?;
            ip(&["-n", &self.namespace(side), "link", "set", "lo", "up"])?;
        }
        let (a, b, mtu) = (self.namespace(Side::A), self.namespace(Side::B), options.mtu_bytes.to_string());
        let link = ["link", "add", "name", LINK, "netns", &a, "mtu", &mtu, "type", "veth"];
        let peer = ["peer", "name", LINK, "netns", &b, "mtu", &mtu];
        ip(&[&link[..], &peer[..]].concat())?;
        for side in Side::BOTH {
            self.configure(side, options)?;
        }
        self.congestion_control = self.choose_congestion_control(&options.congestion_control)?;
        Ok(())
    }

    fn write_etc(&self, side: Side) -> Result<()> {
        let dir = Path::new(NETNS_ETC_DIR).join(self.namespace(side));
        let host = rustix::system::uname();
        // Some servers look up the name of their own host and hand out the address they find.
        let hosts = format!(
            "127.0.0.1 localhost\n::1 localhost\n{} {} side-own\n{} side-other\n",
            self.address_v4(side),
            host.nodename().to_string_lossy(),
            self.address_v4(side.other()),
        );
        let switch = ["passwd", "group", "shadow", "hosts", "networks", "services", "protocols"]
            .map(|table| format!("{table}: files\n"))
            .concat();
        fs::create_dir_all(&dir)
            .and_then(|()| fs::write(dir.join("hosts"), hosts))
            .and_then(|()| fs::write(dir.join("resolv.conf"), "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"))
            .and_then(|()| fs::write(dir.join("nsswitch.conf"), switch))
            .map_err(|source| Error::io("write", &dir, source))
    }

    fn configure(&self, side: Side, options: &Options) -> Result<()> {
        let ns = self.namespace(side);
        let (v4, v6) = (format!("{}/24", self.address_v4(side)), format!("{}/64", self.address_v6(side)));
        ip(&["-n", &ns, "addr", "add", &v4, "dev", LINK])?;
        ip(&["-n", &ns, "addr", "add", &v6, "dev", LINK, "nodad"])?;
        ip(&["-n", &ns, "link", "set", LINK, "up"])?;
        let max = options.tcp_buffer_bytes_max;
        self.write_sysctl(side, "net/ipv4/tcp_rmem", &format!("4096 131072 {max}"))?;
        self.write_sysctl(side, "net/ipv4/tcp_wmem", &format!("4096 65536 {max}"))?;
        // A run must not start with what the previous one learnt about the path.
        self.write_sysctl(side, "net/ipv4/tcp_no_metrics_save", "1")
    }

    /// Sets the congestion control on the routes of the link: the per-namespace default may only be one that the
    /// machine allows to everyone, and that list belongs to the machine.
    fn choose_congestion_control(&self, wanted: &str) -> Result<String> {
        for side in Side::BOTH {
            let ns = self.namespace(side);
            let v4 = format!("10.77.{}.0/24", self.net);
            let v6 = format!("{}/64", self.network_v6());
            let (own4, tail) = (self.address_v4(side).to_string(), ["congctl", wanted]);
            let route4 = ["-n", &ns, "route", "replace", &v4, "dev", LINK, "proto", "kernel", "scope", "link", "src"];
            let route6 = ["-n", &ns, "-6", "route", "replace", &v6, "dev", LINK, "proto", "kernel", "metric", "256"];
            let is_set =
                ip(&[&route4[..], &[own4.as_str()], &tail].concat()).and_then(|()| ip(&[&route6[..], &tail].concat()));
            if is_set.is_err() {
                return self.read_sysctl(side, "net/ipv4/tcp_congestion_control");
            }
        }
        Ok(wanted.to_owned())
    }

    fn network_v6(&self) -> Ipv6Addr {
        let [a, b, c, d, ..] = self.address_v6(Side::A).segments();
        Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0)
    }

    /// `/proc/sys/net` shows the namespace of the process that opens it, so a process inside has to do it.
    fn write_sysctl(&self, side: Side, name: &str, value: &str) -> Result<()> {
        let mut command = self.command(side, "sh");
        command.args(["-c", r#"printf %s "$1" > "/proc/sys/$2""#, "sh", value, name]);
        run("write sysctl", name, &mut command).map(drop)
    }

    fn read_sysctl(&self, side: Side, name: &str) -> Result<String> {
        let mut command = self.command(side, "cat");
        command.arg(Path::new("/proc/sys").join(name));
        let output = run("read sysctl", name, &mut command)?;
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _lock = lock_state_dir();
        self.record.remove_pair(Path::new(STATE_DIR));
    }
}

/// Name of the link's end inside each namespace.
const LINK: &str = "eth0";

impl Error {
    fn io(operation: &'static str, subject: &Path, source: io::Error) -> Error {
        let kind = match source.kind() {
            io::ErrorKind::PermissionDenied => Kind::Denied,
            io::ErrorKind::NotFound => Kind::Missing,
            _ => Kind::Failed,
        };
        Error { kind, operation, subject: subject.display().to_string(), source }
    }
}

fn check_privilege() -> Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let source = io::Error::new(io::ErrorKind::PermissionDenied, "needs root");
    Err(Error { kind: Kind::Denied, operation: "make", subject: "network namespaces".into(), source })
}

fn random() -> u32 {
    // The standard library seeds its hasher from the system's random source.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish() as u32
}

fn ip(args: &[&str]) -> Result<()> {
    run("run ip", &args.join(" "), Command::new("ip").args(args)).map(drop)
}

fn run(operation: &'static str, subject: &str, command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|source| Error::io(operation, Path::new(subject), source))?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error { kind: Kind::Failed, operation, subject: subject.to_owned(), source: io::Error::other(said) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
    use std::thread;

    /// Namespaces need root; elsewhere these tests have nothing to say.
    fn pair() -> Option<Pair> {
        match Pair::create(&Options::default()) {
            Ok(pair) => Some(pair),
            Err(error) if error.kind != Kind::Failed => None,
            Err(error) => panic!("{error}: {}", error.source),
        }
    }

    fn send_over(pair: &Pair, address: IpAddr) -> String {
        thread::scope(|scope| {
            let receiver = scope.spawn(move || {
                pair.enter(Side::B).unwrap();
                let listener = TcpListener::bind((address, 0)).unwrap();
                let bound: SocketAddr = listener.local_addr().unwrap();
                let sender = scope.spawn(move || {
                    pair.enter(Side::A).unwrap();
                    TcpStream::connect(bound).unwrap().write_all(b"over the link").unwrap();
                });
                let mut text = String::new();
                let mut stream = listener.accept().unwrap().0;
                stream.read_to_string(&mut text).unwrap();
                sender.join().unwrap();
                assert_eq!(rustix::net::sockopt::tcp_congestion(&stream).unwrap(), pair.congestion_control());
                text
            });
            receiver.join().unwrap()
        })
    }

    #[test]
    fn both_sides_reach_each_other_over_both_families_with_the_stated_congestion_control() {
        let Some(pair) = pair() else { return };
        assert_eq!(send_over(&pair, pair.address_v4(Side::B).into()), "over the link");
        assert_eq!(send_over(&pair, pair.address_v6(Side::B).into()), "over the link");
    }

    #[test]
    fn a_command_sees_its_own_namespace_and_resolver_files() {
        let Some(pair) = pair() else { return };
        let mut inner = Command::new("sh");
        inner.args(["-c", "cat /etc/nsswitch.conf /sys/class/net/eth0/mtu; echo $WORD"]).env("WORD", "kept");
        let output = pair.exec(Side::A, &inner).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains("hosts: files\n") && !text.contains("dns"), "{text}");
        assert!(text.ends_with("9000\nkept\n"), "{text}");
    }

    #[test]
    fn dropping_a_pair_leaves_no_namespace_process_or_file() {
        let Some(pair) = pair() else { return };
        let mut inside = pair.command(Side::B, "sleep").arg("1000").spawn().unwrap();
        let (names, record) = (Side::BOTH.map(|side| pair.namespace(side)), pair.record.path(Path::new(STATE_DIR)));
        drop(pair);
        assert!(!inside.wait().unwrap().success());
        for name in names {
            assert!(!Path::new(NETNS_DIR).join(&name).exists());
            assert!(!Path::new(NETNS_ETC_DIR).join(&name).exists());
        }
        assert!(!record.exists());
    }
}
