//! Members of a real etcd at three sites of a laboratory, whose network is cut: the engine believes those that are a
//! majority.
//!
//! Each member is alone in its network, and reaches the others over links that lose every packet while they are down. The
//! engine asks over loopback, by a way into each of these networks that stays open.

use cluster::coordinator::{Coordinator, FaultKind, Held};
use etcd::{Config, Etcd, PATIENCE};
use lab::Lab;
use lab::scenario::{Change, Scenario};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const NAMES: [&str; 3] = ["m0", "m1", "m2"];
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// Whatever is waited for comes much sooner, or never.
const WAIT: Duration = Duration::from_secs(60);

struct Members {
    children: Vec<Child>,
    lab: Lab,
    /// Where this process asks each of them.
    urls: Vec<String>,
    _data: TempDir,
}

impl Members {
    /// They answer when this returns; nothing where they cannot run here.
    fn start() -> Option<Members> {
        let has_programs = needs::program("etcd") && needs::program("etcdctl");
        if !has_programs || !needs::root() || !needs::network_namespaces() {
            return None;
        }
        let site = |name: &&str| {
            let link = format!("[site.{name}]\n[link.to-{name}]\nbetween = [\"{name}\", \"core\"]\n");
            link + "rtt = \"1ms\"\nrate = \"1Gbit\"\n"
        };
        let text: String = NAMES.iter().map(site).collect();
        let lab = Lab::up(Scenario { name: "etcd".into(), ..Scenario::from_toml(&text).unwrap() }).unwrap();
        let data = tempfile::tempdir().unwrap();
        let children = NAMES.iter().map(|name| launch(&lab, name, &data)).collect();
        let urls = NAMES.iter().map(|name| way_into(lab.namespace(name).unwrap())).collect();
        let members = Members { children, lab, urls, _data: data };
        for at in 0..NAMES.len() {
            until("each member to answer", || read(&members.alone(at), "/x").is_some());
        }
        Some(members)
    }

    /// The engine, with all members.
    fn all(&self) -> Etcd {
        engine(self.urls.clone())
    }

    /// The engine of somebody who reaches one member.
    fn alone(&self, at: usize) -> Etcd {
        engine(vec![self.urls[at].clone()])
    }

    fn cut(&self, at: usize, is_down: bool) {
        let change = Change { down: Some(is_down), ..Change::default() };
        self.lab.set(&format!("to-{}", NAMES[at]), &[(None, change)]).unwrap();
    }

    fn leader(&self) -> usize {
        let leads = |url: &String| {
            let mut status = Command::new("etcdctl");
            status.env("ETCDCTL_API", "3").args(["--endpoints", url, "endpoint", "status"]);
            // URL, ID, version, size, whether it leads.
            String::from_utf8_lossy(&status.output().unwrap().stdout).split(", ").nth(4) == Some("true")
        };
        self.urls.iter().position(leads).expect("one leads")
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn launch(lab: &Lab, name: &str, data: &TempDir) -> Child {
    let peer = |name: &str| format!("http://{}:{PEER_PORT}", lab.address_v4(name).unwrap());
    let cluster: Vec<_> = NAMES.iter().map(|name| format!("{name}={}", peer(name))).collect();
    let (own, client) = (peer(name), format!("http://127.0.0.1:{CLIENT_PORT}"));
    let mut command = lab.command(name, "etcd").unwrap();
    command.args(["--name", name, "--data-dir"]).arg(data.path().join(name));
    command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
    command.args(["--listen-peer-urls", &own, "--initial-advertise-peer-urls", &own]);
    command.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]);
    command.args(["--initial-cluster", &cluster.join(",")]);
    // There is nothing in these networks but the members.
    ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"].iter().for_each(|name| _ = command.env_remove(name));
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Leads connections of this process to the member in a network, for as long as that is there.
fn way_into(namespace: String) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            let far = lab::network::inside(&namespace, || TcpStream::connect(("127.0.0.1", CLIENT_PORT)));
            let Ok(Ok(far)) = far else { continue };
            let (Ok(near_too), Ok(far_too)) = (near.try_clone(), far.try_clone()) else { continue };
            thread::spawn(move || pass_on(near, far));
            thread::spawn(move || pass_on(far_too, near_too));
        }
    });
    url
}

fn pass_on(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

fn engine(urls: Vec<String>) -> Etcd {
    Etcd::new(Config { urls, ..Config::default() }).unwrap()
}

/// What there is under a key; nothing while nobody answers.
fn read(etcd: &Etcd, key: &str) -> Option<Option<Held>> {
    etcd.get(&[key.to_owned()]).ok()?.pop()
}

fn holds(etcd: &Etcd, key: &str, value: &[u8]) -> bool {
    read(etcd, key).flatten().is_some_and(|held| held.value == value)
}

#[track_caller]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + WAIT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::park_timeout(Duration::from_millis(20));
    }
}

#[test]
fn a_leader_that_is_cut_off_refuses_the_others_go_on_and_nothing_it_was_told_comes_about_later() {
    let Some(members) = Members::start() else { return };
    let all = members.all();
    let lease = all.grant(300).unwrap();
    assert!(all.change("/lock", None, Some(b"1"), Some(lease)).unwrap());
    let leader = members.leader();
    let alone = members.alone(leader);
    members.cut(leader, true);
    let began = Instant::now();
    assert_eq!(alone.get(&["/lock".into()]).unwrap_err().kind, FaultKind::Silent);
    assert_eq!(alone.change("/x", None, Some(b"minority"), None).unwrap_err().kind, FaultKind::Silent);
    assert!(began.elapsed() < 4 * PATIENCE, "nobody waits for long: {:?}", began.elapsed());
    // Whoever knows all members finds those that are a majority; what was given up may have come about.
    until("the others to go on", || all.change("/x", None, Some(b"majority"), None).is_ok());
    until("what they say", || holds(&all, "/x", b"majority"));
    until("the lease to be renewed", || all.renew(lease).is_ok_and(|is_there| is_there));
    members.cut(leader, false);
    for at in 0..NAMES.len() {
        until("all to say the same", || holds(&members.alone(at), "/x", b"majority"));
    }
    // It comes back with a term of its own, which takes one more election.
    until("what was under the lease", || holds(&all, "/lock", b"1"));
    until("the next change", || {
        let held = read(&all, "/x").flatten();
        held.is_some() && all.change("/x", held.as_ref(), Some(b"after"), None).is_ok_and(|is_made| is_made)
    });
    until("the one that was cut off to follow", || holds(&alone, "/x", b"after"));
    assert_eq!((all.history().turns, alone.history().turns), (0, 0), "it is one history");
}

#[test]
fn members_that_do_not_reach_each_other_refuse_all_of_them_and_go_on_when_they_do() {
    let Some(members) = Members::start() else { return };
    let all = members.all();
    assert!(all.change("/x", None, Some(b"1"), None).unwrap());
    let seen = read(&all, "/x").flatten();
    let each: Vec<Etcd> = (0..NAMES.len()).map(|at| members.alone(at)).collect();
    (0..NAMES.len()).for_each(|at| members.cut(at, true));
    thread::scope(|scope| {
        for etcd in &each {
            let seen = seen.as_ref();
            scope.spawn(move || {
                let answer = etcd.change("/x", seen, Some(b"2"), None);
                assert_eq!(answer.unwrap_err().kind, FaultKind::Silent);
            });
        }
    });
    assert_eq!(all.get(&["/x".into()]).unwrap_err().kind, FaultKind::Silent);
    (0..NAMES.len()).for_each(|at| members.cut(at, false));
    until("a majority", || read(&all, "/x").is_some());
    // Of three that were told the same of the same state, one at most has done it.
    until("a change to be made or refused", || all.change("/x", seen.as_ref(), Some(b"3"), None).is_ok());
    let mut held = None;
    until("what came of it", || {
        held = read(&all, "/x").flatten();
        held.as_ref().is_some_and(|held| held.value != b"1")
    });
    assert_eq!(held.unwrap().revision, seen.unwrap().revision + 1, "it was changed once");
}
