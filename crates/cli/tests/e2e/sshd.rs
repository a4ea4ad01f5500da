//! Copies over the real ssh: a server of its own on loopback, with its own host key, one user key and its own configuration.

use crate::bed::{Bed, Ran, contents, journal_bytes, noise, program, until};
use crate::resumption::{assert_same, make_large};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// As in `resumption`: enough chunks to be kept, far from the end.
const JOURNAL_BYTES: u64 = 16 * 64;

/// An ssh server that ends with the test, and a client's configuration that knows it as `far`.
pub struct Sshd {
    pub bed: Bed,
    server: Child,
}

impl Sshd {
    /// `None`, said aloud, where no server is installed.
    pub fn start() -> Option<Sshd> {
        let server = ["/usr/sbin/sshd", "/usr/local/sbin/sshd"].into_iter().find(|path| Path::new(path).exists());
        needs::met(server.is_some(), "no sshd is installed");
        let server = server?;
        let bed = Bed::new();
        for directory in ["bin", "keys", "far"] {
            fs::create_dir(bed.path(directory)).unwrap();
        }
        symlink(program(), bed.path("bin/thalweg")).unwrap();
        for key in ["host", "other-host", "user", "stranger"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", key, "-f"]).arg(bed.path("keys").join(key));
            assert!(keygen.status().unwrap().success());
        }
        fs::copy(bed.path("keys/user.pub"), bed.path("keys/authorized")).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        bed.write("sshd_config", server_config(&bed, port).as_bytes());
        let mut child = isolated(server, &bed);
        let child = child.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let sshd = Sshd { bed, server: child };
        sshd.write_client(port);
        let is_up = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        until("the ssh server", is_up);
        Some(sshd)
    }

    fn write_client(&self, port: u16) {
        let dir = self.bed.dir.path().display();
        let key = fs::read_to_string(self.bed.path("keys/host.pub")).unwrap();
        self.bed.write("known_hosts", format!("[127.0.0.1]:{port} {key}").as_bytes());
        let other = fs::read_to_string(self.bed.path("keys/other-host.pub")).unwrap();
        self.bed.write("wrong_hosts", format!("[127.0.0.1]:{port} {other}").as_bytes());
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Host changed\n  UserKnownHostsFile {dir}/wrong_hosts\n\
             Host unknown\n  UserKnownHostsFile /dev/null\n\
             Host stranger\n  IdentityFile {dir}/keys/stranger\n\
             Host closed\n  Port {closed}\n\
             Host *\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {dir}/keys/user\n  IdentitiesOnly yes\n\
             \x20 IdentityAgent none\n  UserKnownHostsFile {dir}/known_hosts\n  GlobalKnownHostsFile /dev/null\n\
             \x20 StrictHostKeyChecking yes\n  PasswordAuthentication no\n"
        );
        self.bed.write("ssh_config", config.as_bytes());
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bed.command("client", args);
        command.env("THALWEG_SSH", format!("ssh -F {}", self.bed.path("ssh_config").display()));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.bed.finish(self.command(args))
    }

    fn start_run(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Whether a remote side of thalweg runs: its search path is that of this server.
    fn is_busy(&self) -> bool {
        let program = self.bed.path("bin/thalweg").canonicalize().unwrap();
        let bin = self.bed.path("bin").into_os_string().into_encoded_bytes();
        let is_far = |path: PathBuf| {
            let environment = fs::read(path.join("environ")).unwrap_or_default();
            fs::read_link(path.join("exe")).is_ok_and(|exe| exe == program)
                && environment.windows(bin.len()).any(|part| part == bin)
        };
        fs::read_dir("/proc").unwrap().flatten().any(|entry| is_far(entry.path()))
    }

    /// A path on the remote side, which has the same file system.
    pub fn far(&self, host: &str, below: &str) -> String {
        format!("{host}:{}", self.bed.path("far").join(below).display())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // Its sessions hold connections whose other ends die with the test.
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn server_config(bed: &Bed, port: u16) -> String {
    let dir = bed.dir.path().display();
    format!(
        "ListenAddress 127.0.0.1\nPort {port}\nHostKey {dir}/keys/host\nAuthorizedKeysFile {dir}/keys/authorized\n\
         PidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         PermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\nSetEnv PATH={dir}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    )
}

/// The server, which as root wants a directory below /run that the machine may not have: then it gets a /run of its own.
fn isolated(server: &str, bed: &Bed) -> Command {
    let config = bed.path("sshd_config");
    // It ends with the test's thread, also when that is killed.
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if !crate::bed::is_root() || Path::new("/run/sshd").is_dir() {
        command.arg(server).args(["-D", "-f"]).arg(config);
        return command;
    }
    let script = "mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd && exec \"$1\" -D -f \"$2\"";
    command.args(["unshare", "-m", "sh", "-c", script, "sh", server]).arg(config);
    command
}

/// The processes that `parent` has started, of the program named.
fn children(parent: u32, name: &str) -> Vec<i32> {
    let is_child = |stat: &str| {
        let (before, after) = stat.rsplit_once(')')?;
        let is_named = before.split_once('(')?.1 == name;
        let is_of_parent = after.split_ascii_whitespace().nth(1)?.parse() == Ok(parent);
        (is_named && is_of_parent).then(|| before.split_once(' ')?.0.parse().ok())?
    };
    let stats = fs::read_dir("/proc").unwrap().flatten().map(|entry: fs::DirEntry| entry.path().join("stat"));
    stats.filter_map(|path: PathBuf| fs::read_to_string(path).ok()).filter_map(|stat| is_child(&stat)).collect()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn a_tree_goes_over_ssh_and_comes_back_straight_and_through_the_connection() {
    let Some(sshd) = Sshd::start() else { return };
    for (name, bytes) in [("small", 100), ("dir/large", 30 << 20)] {
        sshd.bed.write(&format!("tree/{name}"), &noise(bytes, 3));
    }
    for more in [&[][..], &["--tunnel"]] {
        let name = format!("in{}", more.len());
        let (to, from) = (sshd.far("far", &format!("{name}/")), sshd.far("far", &name));
        let ran = sshd.run(&[&["cp", "tree/", &to], more].concat()).succeeded();
        assert!(!ran.stderr.contains("can be reached"), "{}", ran.stderr);
        assert_eq!(contents(&sshd.bed.path("tree")), contents(&sshd.bed.path("far").join(&name)));
        sshd.run(&[&["cp", &from, "back/"], more].concat()).succeeded();
        assert_eq!(contents(&sshd.bed.path("tree")), contents(&sshd.bed.path("back").join(&name)));
    }
    let (from, to) = (sshd.far("far", "in0/"), sshd.far("twin", "copy/"));
    sshd.run(&["cp", &from, &to]).succeeded();
    assert_eq!(contents(&sshd.bed.path("tree")), contents(&sshd.bed.path("far/copy")));
}

#[test]
fn what_ssh_refuses_is_explained() {
    let Some(sshd) = Sshd::start() else { return };
    sshd.bed.write("f", b"f");
    let trust = "hint: nothing was sent; find out why it is unknown or has changed before you go on; once `ssh HOST` works, this does";
    for (host, code, error) in [
        ("changed", 41, format!("error: ssh does not accept the host key of changed\n{trust}")),
        ("unknown", 41, format!("error: ssh does not accept the host key of unknown\n{trust}")),
        (
            "stranger",
            41,
            "error: stranger does not let this user log in over ssh\n\
             hint: once `ssh HOST` works, this does; USER@HOST names another user there"
                .to_owned(),
        ),
        (
            "closed",
            43,
            "error: ssh does not reach closed\nhint: ssh's reason is above; once `ssh HOST` works, this does"
                .to_owned(),
        ),
    ] {
        if host == "stranger" {
            // The user's key must not be offered beside the stranger's.
            fs::rename(sshd.bed.path("keys/user"), sshd.bed.path("keys/away")).unwrap();
        }
        let ran = sshd.run(&["cp", "f", &sshd.far(host, "f")]);
        assert_eq!((ran.code, ran.error()), (Some(code), error), "{}", ran.stderr);
        if host == "stranger" {
            fs::rename(sshd.bed.path("keys/away"), sshd.bed.path("keys/user")).unwrap();
        }
    }
    assert!(!sshd.bed.path("far/f").exists());
}

#[test]
fn a_copy_whose_ssh_is_killed_goes_on_with_the_same_command() {
    let Some(sshd) = Sshd::start() else { return };
    make_large(&sshd.bed, "large");
    let to = sshd.far("far", "dir/");
    let args = ["cp", "--json", "--retries", "0", "--tunnel", "large", &to];
    let child = sshd.start_run(&args);
    let staged = sshd.bed.path("far/dir");
    until("verified chunks", || journal_bytes(&staged) >= JOURNAL_BYTES);
    let [ssh] = children(child.id(), "ssh")[..] else { panic!("one ssh process runs") };
    kill(ssh);
    let ran = sshd.bed.wait(child);
    assert_eq!(ran.code, Some(5), "{}", ran.stderr);
    assert!(ran.error().ends_with("hint: the same command continues where this one stopped"), "{}", ran.stderr);
    assert!(!staged.join("large").exists());
    until("the end of the remote side", || !sshd.is_busy());
    let done = sshd.run(&args).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    assert_same(sshd.bed.path("large"), staged.join("large"));
}

#[test]
fn a_copy_whose_ssh_is_killed_starts_it_again_by_itself() {
    let Some(sshd) = Sshd::start() else { return };
    make_large(&sshd.bed, "large");
    let to = sshd.far("far", "dir/");
    let child = sshd.start_run(&["cp", "--json", "--tunnel", "large", &to]);
    until("verified chunks", || journal_bytes(&sshd.bed.path("far/dir")) >= JOURNAL_BYTES);
    children(child.id(), "ssh").into_iter().for_each(kill);
    let ran = sshd.bed.wait(child).succeeded();
    assert!(ran.stderr.contains("; trying again in "), "{}", ran.stderr);
    assert_same(sshd.bed.path("large"), sshd.bed.path("far/dir/large"));
}

#[test]
fn a_killed_client_leaves_no_process_on_the_far_side_and_is_continued() {
    let Some(sshd) = Sshd::start() else { return };
    make_large(&sshd.bed, "large");
    let to = sshd.far("far", "dir/");
    let args = ["cp", "--json", "large", &to];
    let mut child = sshd.start_run(&args);
    let staged = sshd.bed.path("far/dir");
    until("verified chunks", || journal_bytes(&staged) >= JOURNAL_BYTES);
    child.kill().unwrap();
    child.wait().unwrap();
    until("the end of the remote side", || !sshd.is_busy());
    let done = sshd.run(&args).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    assert_same(sshd.bed.path("large"), sshd.bed.path("far/dir/large"));
}
