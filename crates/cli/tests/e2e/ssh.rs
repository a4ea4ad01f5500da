//! Copies over ssh, with a program in the place of ssh that runs the command on this host, in a home of its own for each
//! host. What ssh itself does is tried in `sshd`.

use crate::bed::{Bed, Ran, contents, journal_bytes, noise, program, signal, until};
use crate::resumption::{assert_same, make_large};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// Markers in a host's home: thalweg is not in its search path; no address of it can be reached.
const WITHOUT_PROGRAM: &str = ".without-program";
pub const BLOCKED: &str = ".blocked";
/// What a host has behind `ssh -s HOST sftp`, where Debian puts it.
pub const SFTP_SERVER: &str = "/usr/lib/openssh/sftp-server";

/// A bed with hosts: what `ssh HOST COMMAND` would do happens in `hosts/HOST`.
pub struct Hosts {
    pub bed: Bed,
}

impl Hosts {
    pub fn new(names: &[&str]) -> Hosts {
        Hosts::with_program(names, &program())
    }

    /// Hosts on which another program is installed.
    pub fn with_program(names: &[&str], program: &Path) -> Hosts {
        let bed = Bed::new();
        fs::create_dir(bed.path("bin")).unwrap();
        symlink(program, bed.path("bin/thalweg")).unwrap();
        for name in names {
            fs::create_dir_all(bed.path("hosts").join(name)).unwrap();
        }
        let dir = bed.dir.path().display();
        let script = format!(
            r#"#!/bin/sh
[ "$1" != -s ] || exec "{SFTP_SERVER}"
host="${{1#*@}}"; home="{dir}/hosts/$host"; shift
if ! [ -d "$home" ]; then
    echo "ssh: Could not resolve hostname $host: Name or service not known" >&2; exit 255
fi
echo "$*" >>"{dir}/commands"
cd "$home" || exit 255
for name in CONFIG STATE CACHE DATA; do unset "XDG_${{name}}_HOME"; done
unset XDG_RUNTIME_DIR SSH_CONNECTION
export HOME="$home" PATH=/usr/sbin:/usr/bin:/sbin:/bin
[ -e "{WITHOUT_PROGRAM}" ] || PATH="{dir}/bin:$PATH"
echo "a word of the login script"
if [ -e "{BLOCKED}" ]; then
    exec unshare -n sh -c 'ip link set lo up; exec sh -c "$1"' sh "$*"
fi
exec sh -c "$*"
"#
        );
        let path = bed.write("fake", script.as_bytes());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Hosts { bed }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.bed.command("client", args);
        command.env("THALWEG_SSH", self.bed.path("fake"));
        command
    }

    pub fn run(&self, args: &[&str]) -> Ran {
        self.bed.finish(self.command(args))
    }

    pub fn home(&self, host: &str) -> std::path::PathBuf {
        self.bed.path("hosts").join(host)
    }

    fn mark(&self, host: &str, marker: &str) {
        fs::write(self.home(host).join(marker), b"").unwrap();
    }

    /// What the hosts were asked to run.
    fn commands(&self) -> String {
        fs::read_to_string(self.bed.path("commands")).unwrap_or_default()
    }

    /// A tree with files of several sizes and a link.
    fn make_tree(&self, below: &str) {
        for (name, bytes) in [("small", 100), ("dir/middle", 300 << 10), ("dir/deep/large", 20 << 20)] {
            self.bed.write(&format!("{below}/{name}"), &noise(bytes, bytes as u64));
        }
        symlink("small", self.bed.path(below).join("link")).unwrap();
    }
}

const NO_PORT: &str = "no port of me@far can be reached: copying through the ssh connection itself\n";

#[test]
fn a_tree_goes_to_a_host_and_comes_back_and_nothing_else_stays_there() {
    let hosts = Hosts::new(&["far"]);
    hosts.make_tree("tree");
    let ran = hosts.run(&["cp", "--json", "tree/", "me@far:in/deep/"]).succeeded();
    assert!(!ran.stderr.contains("can be reached") && !ran.stderr.contains("login script"), "{}", ran.stderr);
    let done = ran.done();
    assert_eq!((&done["files"]["ok"], &done["tls"]), (&4.into(), &true.into()), "{done}");
    assert_eq!(contents(&hosts.bed.path("tree")), contents(&hosts.home("far").join("in/deep")));
    hosts.run(&["cp", "far:in/deep", "back/"]).succeeded();
    assert_eq!(contents(&hosts.bed.path("tree")), contents(&hosts.bed.path("back/deep")));
    let kept: Vec<_> = fs::read_dir(hosts.home("far")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(kept, ["in"], "no state, no identity, no log");
    let again = hosts.run(&["cp", "--json", "tree/", "me@far:in/deep/"]).succeeded().done();
    assert_eq!((&again["files"]["skipped"], &again["bytes"]), (&4.into(), &0.into()), "{again}");
}

#[test]
fn names_are_those_of_cp_and_paths_those_of_the_user_there() {
    let hosts = Hosts::new(&["far", "::1"]);
    let home = hosts.home("far");
    hosts.bed.write("f", b"f");
    fs::create_dir(home.join("there")).unwrap();
    for (to, path) in [
        ("far:new name", "new name"),
        ("far:", "f"),
        ("far:there", "there/f"),
        ("far:made/", "made/f"),
        ("far:~/in home", "in home"),
        ("far:a'b\"c$d", "a'b\"c$d"),
    ] {
        hosts.run(&["cp", "f", to]).succeeded();
        assert_eq!(fs::read(home.join(path)).unwrap(), b"f", "{to}");
    }
    let absolute = format!("far:{}", hosts.bed.path("elsewhere/x").display());
    hosts.run(&["cp", "f", &absolute]).succeeded();
    hosts.run(&["cp", &absolute, "came"]).succeeded();
    assert_eq!(fs::read(hosts.bed.path("came")).unwrap(), b"f");
    hosts.run(&["cp", "f", "me@[::1]:six"]).succeeded();
    assert_eq!(fs::read(hosts.home("::1").join("six")).unwrap(), b"f");
    hosts.run(&["cp", "far:there", "far:made/f", "both/"]).succeeded();
    assert!(hosts.bed.path("both/there/f").exists() && hosts.bed.path("both/f").exists());
    hosts.run(&["cp", "far:~", "all/"]).succeeded();
    assert!(hosts.bed.path("all/there/f").exists() && hosts.bed.path("all/new name").exists());
    assert!(!hosts.commands().contains("name"), "no path stands in a command line: {}", hosts.commands());
}

#[test]
fn pipes_and_ends_without_storage_work_over_ssh_too() {
    let hosts = Hosts::new(&["far"]);
    let input = hosts.bed.write("input", &noise(3 << 20, 1));
    let mut command = hosts.command(&["cp", "-", "far:piped"]);
    command.stdin(fs::File::open(&input).unwrap());
    hosts.bed.finish(command).succeeded();
    assert_eq!(fs::read(hosts.home("far").join("piped")).unwrap(), fs::read(&input).unwrap());
    let ran = hosts.run(&["cp", "far:piped", "-"]).succeeded();
    assert!(ran.stdout == fs::read(&input).unwrap());
    let done = hosts.run(&["cp", "--json", "gen:100x1KiB", "far:null:"]).succeeded().done();
    assert_eq!(done["files"]["ok"], 100);
    let done = hosts.run(&["cp", "--json", "far:gen:100x1KiB", "null:"]).succeeded().done();
    assert_eq!(done["files"]["ok"], 100);
}

#[test]
fn an_endpoint_wins_over_a_host_of_the_same_name() {
    let hosts = Hosts::new(&["lab"]);
    let _server = hosts.bed.serve(&[]);
    hosts.bed.enrol();
    hosts.bed.write("f", b"f");
    hosts.run(&["cp", "f", "lab:"]).succeeded();
    assert!(hosts.bed.path("root/f").exists() && hosts.commands().is_empty());
    let ran = hosts.run(&["cp", "f", "me@lab:"]).succeeded();
    assert!(hosts.home("lab").join("f").exists(), "{}", ran.stderr);
}

#[test]
fn a_host_that_is_only_guessed_is_told() {
    let hosts = Hosts::new(&["far"]);
    hosts.bed.write("f", b"f");
    let ran = hosts.run(&["cp", "f", "far:"]).succeeded();
    assert!(ran.stderr.starts_with("no endpoint far is known: trying ssh\n"), "{}", ran.stderr);
    let ran = hosts.run(&["cp", "-q", "f", "me@far:"]).succeeded();
    assert_eq!(ran.stderr, "");
    hosts.bed.write("far:f", b"f");
    let ran = hosts.run(&["cp", "far:f", "x"]);
    assert_eq!(
        (ran.code, &ran.error()[..]),
        (
            Some(2),
            "error: far:f is a file here, but would be a path on the host far\n\
             hint: for the file write ./far:f; for the host write far:./PATH"
        )
    );
}

#[test]
fn everything_can_go_through_the_ssh_connection() {
    let hosts = Hosts::new(&["far"]);
    hosts.make_tree("tree");
    let ran = hosts.run(&["cp", "--json", "--tunnel", "tree/", "far:in/"]).succeeded();
    assert_eq!((&ran.done()["tls"], &ran.done()["streams"]), (&true.into(), &2.into()));
    assert_eq!(contents(&hosts.bed.path("tree")), contents(&hosts.home("far").join("in")));
    hosts.run(&["cp", "--tunnel", "--streams", "7", "far:in/", "back/"]).succeeded();
    assert_eq!(contents(&hosts.bed.path("tree")), contents(&hosts.bed.path("back")));
}

#[test]
fn a_host_whose_ports_are_blocked_is_reached_through_ssh_and_that_is_said() {
    if !needs::network_namespaces() {
        return;
    }
    let hosts = Hosts::new(&["far"]);
    hosts.mark("far", BLOCKED);
    hosts.make_tree("tree");
    let ran = hosts.run(&["cp", "tree/", "me@far:in/"]).succeeded();
    assert!(ran.stderr.contains(NO_PORT), "{}", ran.stderr);
    assert_eq!(contents(&hosts.bed.path("tree")), contents(&hosts.home("far").join("in")));
    let ran = hosts.run(&["cp", "me@far:in/", "back/"]).succeeded();
    assert!(ran.stderr.contains(NO_PORT), "{}", ran.stderr);
    assert_eq!(contents(&hosts.bed.path("tree")), contents(&hosts.bed.path("back")));
}

#[test]
fn a_range_of_ports_is_kept_to() {
    let hosts = Hosts::new(&["far"]);
    hosts.bed.write("f", b"f");
    let taken = std::net::TcpListener::bind("[::]:0").or_else(|_| std::net::TcpListener::bind("0.0.0.0:0")).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ran = hosts.run(&["cp", "--ports", &port, "f", "me@far:"]);
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.error().contains("hint: all ports of that range are taken there"), "{}", ran.stderr);
    drop(taken);
    hosts.run(&["cp", "--ports", &port, "f", "me@far:"]).succeeded();
}

#[test]
fn what_keeps_a_copy_from_starting_has_its_code_and_a_way_out() {
    let hosts = Hosts::new(&["far", "bare"]);
    hosts.mark("bare", WITHOUT_PROGRAM);
    hosts.bed.write("f", b"f");
    for (args, code, error) in [
        (
            &["cp", "f", "nosuch:"][..],
            43,
            "error: there is no host nosuch\n\
             hint: check its name; `thalweg endpoint ls` lists the endpoints, and a local file with a colon is ./FILE",
        ),
        (
            &["cp", "f", "me@bare:"],
            43,
            "error: there is no thalweg on me@bare\n\
             hint: --deploy copies this program to the user's cache directory there; or install it there, or name it \
             with --remote-program PATH",
        ),
        (
            &["cp", "--remote-program", "~/nowhere", "f", "me@far:"],
            43,
            "error: there is no thalweg on me@far\n\
             hint: --deploy copies this program to the user's cache directory there; or install it there, or name it \
             with --remote-program PATH",
        ),
        (
            &["cp", "--remote-program", "echo", "f", "me@far:"],
            43,
            "error: thalweg did not start on me@far (code 0)\n\
             hint: the reason is above; `ssh HOST thalweg --version` must print a version",
        ),
        (
            &["cp", "--ssh", "/nonexistent/ssh", "f", "me@far:"],
            2,
            "error: start /nonexistent/ssh: No such file or directory (os error 2)\n\
             hint: install an ssh client, or name one with --ssh COMMAND",
        ),
        (
            &["cp", "me@far:nosuch", "x"],
            4,
            "error: me@far: nosuch: no such file or directory\n\
             hint: check the path; a relative one begins in the home directory there",
        ),
        (
            &["cp", "me@far:nosuch/", "x"],
            3,
            "error: me@far: nosuch/: no such directory\n\
             hint: check the path; a relative one begins in the home directory there",
        ),
        (
            &["cp", "f", "me@-oProxyCommand=x:y"],
            2,
            "error: \"me@-oProxyCommand=x\" cannot name a host\n\
             hint: a host is HOST or USER@HOST; a local file with a colon is ./FILE",
        ),
    ] {
        let ran = hosts.run(args);
        assert_eq!((ran.code, &ran.error()[..]), (Some(code), error), "{args:?} {}", ran.stderr);
    }
    assert!(!hosts.bed.path("x").exists());
}

#[test]
fn a_host_without_the_program_gets_it_once_where_the_user_wants_that() {
    let hosts = Hosts::new(&["far"]);
    hosts.mark("far", WITHOUT_PROGRAM);
    hosts.bed.write("f", b"f");
    let ran = hosts.run(&["cp", "--deploy", "f", "me@far:"]).succeeded();
    assert!(ran.stderr.contains("taking thalweg to me@far\n"), "{}", ran.stderr);
    assert_eq!(fs::read(hosts.home("far").join("f")).unwrap(), b"f");
    let cache = hosts.home("far").join(".cache/thalweg");
    let kept = |cache: &Path| fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let [copy] = &kept(&cache)[..] else { panic!("one program is kept: {:?}", kept(&cache)) };
    let (facts, name) = (fs::metadata(copy).unwrap(), copy.file_name().unwrap().to_str().unwrap().to_owned());
    assert_eq!(facts.mode() & 0o7777, 0o700);
    assert!(name.starts_with(concat!("thalweg-", env!("CARGO_PKG_VERSION"), "-")), "{name}");
    let ran = hosts.run(&["cp", "--deploy", "me@far:f", "back"]).succeeded();
    assert!(!ran.stderr.contains("taking"), "{}", ran.stderr);
    assert_eq!(fs::metadata(copy).unwrap().ino(), facts.ino());
    // One that was changed is not run.
    fs::write(copy, b"#!/bin/sh\necho changed >changed\n").unwrap();
    hosts.run(&["cp", "--deploy", "me@far:f", "again"]).succeeded();
    assert!(!hosts.home("far").join("changed").exists());
    assert_eq!(kept(&cache).len(), 1);
}

#[test]
fn one_host_sends_to_another_and_says_what_came_of_it() {
    let hosts = Hosts::new(&["one", "two"]);
    hosts.make_tree("hosts/one/tree");
    let ran = hosts.run(&["cp", "--json", "me@one:tree/", "me@two:in/"]).succeeded();
    let done = ran.done();
    assert_eq!((&done["files"]["ok"], &done["code"]), (&4.into(), &0.into()), "{done}");
    assert!(!ran.stderr.contains("through"), "{}", ran.stderr);
    assert_eq!(contents(&hosts.home("one").join("tree")), contents(&hosts.home("two").join("in")));
    let ran = hosts.run(&["cp", "-q", "me@one:tree/small", "me@two:renamed"]).succeeded();
    assert_eq!((ran.stderr.as_str(), ran.stdout.len()), ("", 0));
    assert!(hosts.home("two").join("renamed").exists());
    let ran = hosts.run(&["cp", "me@one:nosuch", "me@two:in/"]);
    assert_eq!(ran.code, Some(4), "{}", ran.stderr);
    let ran = hosts.run(&["cp", "--manifest", "m", "me@one:tree", "me@two:in/"]);
    assert!(ran.error().starts_with("error: --manifest names a file on this host"), "{}", ran.stderr);
    let ran = hosts.run(&["cp", "me@one:tree", "me@two:x", "me@two:in/"]);
    assert!(ran.error().starts_with("error: the sources are at several hosts"), "{}", ran.stderr);
}

#[test]
fn settings_hold_between_two_hosts_as_flags_do() {
    let hosts = Hosts::new(&["one", "two"]);
    hosts.bed.write("hosts/one/f", b"f");
    let settings = b"[cp]\nchmod = '640'\nno-clobber = true\npaths = 'all'\n";
    hosts.bed.write("client/config_home/thalweg/config.toml", settings);
    hosts.run(&["cp", "me@one:f", "me@two:g"]).succeeded();
    let arrived = hosts.home("two").join("g");
    assert_eq!(fs::metadata(&arrived).unwrap().mode() & 0o777, 0o640);
    hosts.bed.write("hosts/one/f", b"another");
    hosts.run(&["cp", "me@one:f", "me@two:g"]).succeeded();
    assert_eq!(fs::read(&arrived).unwrap(), b"f", "--no-clobber");
    let ran = hosts.run(&["cp", "--replica", "me@one:g", "me@one:f", "me@two:h"]);
    assert_eq!(
        (ran.code, &ran.error()[..]),
        (
            Some(2),
            "error: --replica is not for copies between two other hosts\nhint: run the command on one of the two"
        )
    );
}

#[test]
fn a_cipher_that_is_asked_for_is_the_only_one_between_two_hosts() {
    let hosts = Hosts::new(&["one", "two"]);
    hosts.bed.write("hosts/one/f", b"f");
    for cipher in ["aes-256-gcm", "chacha20-poly1305"] {
        let ran = hosts.run(&["cp", "--explain", "--cipher", cipher, "me@one:f", &format!("me@two:{cipher}")]);
        let ran = ran.succeeded();
        let note = ran.stderr.lines().find(|line| line.contains("cipher: ")).unwrap_or_default();
        assert!(note.contains(cipher) && note.ends_with("as --cipher asks"), "{}", ran.stderr);
        assert!(ran.stderr.contains("digest: crc64nvme by "), "{}", ran.stderr);
    }
}

/// A list is a file of the host where the command is given; it and the bounds are told to both hosts.
#[test]
fn lists_and_bounds_hold_between_two_hosts() {
    let hosts = Hosts::new(&["one", "two"]);
    for (path, bytes) in [("a", 10), ("b", 10), ("d/large", 5000), ("d/small", 10), ("d/e/f", 10)] {
        hosts.bed.write(&format!("hosts/one/data/{path}"), &noise(bytes, 1));
    }
    hosts.bed.write("list", b"a\nd\n");
    hosts.run(&["cp", "--files-from", "list", "--max-size", "4K", "me@one:data", "me@two:in/"]).succeeded();
    let arrived: Vec<_> = ["a", "b", "d/large", "d/small", "d/e/f"]
        .into_iter()
        .filter(|path| hosts.home("two").join("in").join(path).exists())
        .collect();
    assert_eq!(arrived, ["a", "d/small", "d/e/f"]);
    hosts.bed.write("list0", b"b\0");
    hosts.run(&["cp", "--files-from0", "list0", "--newer-than", "1h", "me@one:data", "me@two:in/"]).succeeded();
    assert!(hosts.home("two").join("in/b").exists());
}

#[test]
fn limits_and_compression_hold_over_ssh_and_between_two_hosts() {
    let hosts = Hosts::new(&["one", "two"]);
    hosts.bed.write("data/large", &noise(12 << 20, 1));
    for (tunnel, from, to) in [
        (&[][..], "data/", "one:data/"),
        (&["--tunnel"], "data/", "two:tunnelled/"),
        (&[], "one:data/", "two:data/"),
        (&[], "two:data/", "here/"),
    ] {
        let run = |more: &[&str]| {
            let flags = [&["cp", "--json", "-z=zstd", "--chunk-size=1M"][..], tunnel, more, &[from, to]].concat();
            hosts.run(&flags)
        };
        let ran = run(&["--max-transfer=8M", "--bwlimit=1G"]);
        assert_eq!((ran.code, ran.done()["sent_bytes"].as_u64()), (Some(8), Some(8 << 20)), "{to}: {}", ran.stderr);
        let done = run(&["--bwlimit=00:00,1G"]).succeeded().done();
        assert_eq!(done["resumed_bytes"].as_u64(), Some(8 << 20), "{to}: {done}");
        assert!(done["wire_bytes"].as_u64() > Some(4 << 20), "{to}: {done}");
    }
    for arrived in ["hosts/one/data", "hosts/two/tunnelled", "hosts/two/data", "here"] {
        assert_same(hosts.bed.path("data/large"), hosts.bed.path(arrived).join("large"));
    }
}

#[test]
fn hosts_that_cannot_reach_each_other_copy_through_this_one_and_say_so() {
    if !needs::network_namespaces() {
        return;
    }
    let hosts = Hosts::new(&["one", "two"]);
    hosts.mark("one", BLOCKED);
    hosts.make_tree("hosts/one/tree");
    for (marked, to) in [(false, "a"), (true, "b")] {
        if marked {
            hosts.mark("two", BLOCKED);
        }
        let ran = hosts.run(&["cp", "me@one:tree/", &format!("me@two:{to}/")]).succeeded();
        let note = "me@two cannot be reached from the sending host: copying through this host\n";
        assert!(ran.stderr.contains(note), "{}", ran.stderr);
        assert_eq!(contents(&hosts.home("one").join("tree")), contents(&hosts.home("two").join(to)));
    }
}

#[test]
fn ctrl_c_keeps_what_is_verified_over_ssh_too() {
    let hosts = Hosts::new(&["far"]);
    make_large(&hosts.bed, "large");
    let args = ["cp", "--json", "--tunnel", "large", "me@far:dir/"];
    let child = hosts.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let staged = hosts.home("far").join("dir");
    until("verified chunks", || journal_bytes(&staged) >= 16 * 64);
    signal(&child, rustix::process::Signal::INT);
    let ran = hosts.bed.wait(child);
    assert_eq!(ran.code, Some(130), "{}", ran.stderr);
    assert!(ran.error().starts_with("error: stopped; what was verified is kept\n"), "{}", ran.stderr);
    let done = hosts.run(&args).succeeded().done();
    assert!(done["resumed_bytes"].as_u64().unwrap() > 0, "{done}");
    assert_same(hosts.bed.path("large"), staged.join("large"));
}

#[test]
fn who_talks_to_the_far_side_by_hand_is_told_and_gets_nothing() {
    let bed = Bed::new();
    let mut command = bed.command("client", &["serve", "--stdio"]);
    command.stdin(fs::File::open(bed.write("words", b"hello there, thalweg\n")).unwrap());
    let ran = bed.finish(command);
    assert_eq!(ran.code, Some(1));
    assert!(ran.error().contains("is started by thalweg itself, over ssh"), "{}", ran.stderr);
    assert_eq!(ran.stdout, b"\nthalweg link 1\n");
}

#[test]
fn a_host_is_listed_compared_and_changed_as_an_endpoint_is() {
    let hosts = Hosts::new(&["far"]);
    hosts.make_tree("tree");
    hosts.run(&["mkdir", "-p", "far:a/b"]).succeeded();
    hosts.run(&["cp", "tree", "far:a/b/"]).succeeded();
    let text = |ran: Ran| String::from_utf8(ran.succeeded().stdout).unwrap();
    assert_eq!(text(hosts.run(&["ls", "far:a/b/tree"])), "dir/\nlink\nsmall\n");
    assert_eq!(text(hosts.run(&["ls", "me@far:~/a"])), "b/\n");
    assert_eq!(text(hosts.run(&["ls", "far:"])), "a/\n");
    hosts.run(&["check", "tree", "far:a/b/tree"]).succeeded();
    assert_eq!(hosts.run(&["cat", "far:a/b/tree/small"]).succeeded().stdout, noise(100, 100));
    let sums = text(hosts.run(&["sum", "--digest", "sha256", "far:a/b/tree/"]));
    assert_eq!(sums, text(hosts.run(&["sum", "--digest", "sha256", "tree/"])));
    hosts.run(&["mv", "far:a/b/tree", "far:moved"]).succeeded();
    hosts.run(&["mv", "far:moved/small", "fetched"]).succeeded();
    assert!(!hosts.home("far").join("moved/small").exists() && hosts.bed.path("fetched").exists());
    let removed = hosts.run(&["rm", "-r", "far:moved", "far:a"]).succeeded();
    assert!(removed.stderr.ends_with("removed 3 files, 5 directories\n"), "{}", removed.stderr);
    assert_eq!(fs::read_dir(hosts.home("far")).unwrap().count(), 0, "no state, no identity, no log");
    assert_eq!(hosts.run(&["rm", "-r", "far:."]).code, Some(2));
    assert_eq!(hosts.run(&["ls", "--no-ssh", "far:"]).code, Some(2));
}

#[test]
fn what_is_selected_rehearsed_and_kept_beside_content_holds_on_the_far_side_too() {
    let hosts = Hosts::new(&["far"]);
    hosts.make_tree("tree");
    fs::set_permissions(hosts.bed.path("tree/small"), fs::Permissions::from_mode(0o606)).unwrap();
    fs::hard_link(hosts.bed.path("tree/small"), hosts.bed.path("tree/same")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        hosts.bed.path("tree/fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o604),
        0,
    )
    .unwrap();
    let said = hosts.run(&["sync", "-n", "-aH", "--delete", "tree/", "me@far:in/deep"]).succeeded().stdout;
    assert!(String::from_utf8_lossy(&said).contains("cS+++++++++ fifo"), "{}", String::from_utf8_lossy(&said));
    assert!(!hosts.home("far").join("in").exists(), "a dry run makes nothing");
    hosts.run(&["cp", "-aH", "tree/", "me@far:in/deep"]).succeeded();
    hosts.run(&["cp", "-aH", "--exclude", "large", "me@far:in/deep/", "back"]).succeeded();
    assert!(!hosts.bed.path("back/dir/deep/large").exists(), "what is left out is not fetched");
    for root in [hosts.home("far").join("in/deep"), hosts.bed.path("back")] {
        let look = |name: &str| root.join(name).symlink_metadata().unwrap();
        assert_eq!((look("small").mode() & 0o7777, look("small").nlink()), (0o606, 2), "{root:?}");
        assert_eq!((look("same").ino(), look("fifo").mode() & 0o7777), (look("small").ino(), 0o604), "{root:?}");
    }
    let said = hosts.run(&["sync", "-n", "-aH", "tree/", "me@far:in/deep"]).succeeded().stdout;
    assert_eq!(String::from_utf8_lossy(&said), "", "nothing is left to do");
}
