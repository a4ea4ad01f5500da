//! Members of a real etcd on ports of their own, which can be killed, stopped and started again; and an answerer in its place that
//! says what it is told to.
//!
//! Invariant: what was started ends with its value.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub struct Members {
    directory: PathBuf,
    members: Vec<Member>,
    /// Tells one cluster from the next at the same place.
    token: u32,
    more: Vec<String>,
}

struct Member {
    client: u16,
    peer: u16,
    child: Option<Child>,
}

impl Members {
    /// So many, which answer when this returns.
    pub fn start(directory: &Path, count: usize) -> Members {
        Members::start_with(directory, count, &[])
    }

    /// With more arguments, as for TLS, `https` being told by one of them.
    pub fn start_with(directory: &Path, count: usize, more: &[&str]) -> Members {
        let members = (0..count).map(|_| Member { client: free_port(), peer: free_port(), child: None }).collect();
        let more = more.iter().map(|&word| word.to_owned()).collect();
        let mut all = Members { directory: directory.to_owned(), members, token: 1, more };
        (0..count).for_each(|at| all.launch(at));
        all.wait();
        all
    }

    /// Where each is asked.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("{}://127.0.0.1:{}", self.scheme(), member.client)).collect()
    }

    pub fn pid(&self, at: usize) -> u32 {
        self.members[at].child.as_ref().expect("it runs").id()
    }

    pub fn kill(&mut self, at: usize) {
        if let Some(mut child) = self.members[at].child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Has a member stand still, or go on.
    pub fn pause(&self, at: usize, is_paused: bool) {
        let signal = if is_paused { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &self.pid(at).to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Starts a member again with what it has.
    pub fn launch(&mut self, at: usize) {
        let scheme = self.scheme();
        let peers: Vec<_> =
            self.members.iter().enumerate().map(|(at, m)| format!("m{at}=http://127.0.0.1:{}", m.peer)).collect();
        let Member { client, peer, .. } = self.members[at];
        let data = self.data(at);
        let (client, peer) = (format!("{scheme}://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{at}"), "--data-dir"]).arg(data);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &peers.join(","), "--initial-cluster-token", &format!("t{}", self.token)]);
        command.args(["--heartbeat-interval", "100", "--election-timeout", "1000"]).args(&self.more);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        self.members[at].child = Some(child.expect("etcd starts"));
    }

    /// Ends all, and puts what `snapshot` holds in their place.
    pub fn restore(&mut self, snapshot: &Path) {
        (0..self.members.len()).for_each(|at| self.kill(at));
        self.token += 1;
        let peers: Vec<_> =
            self.members.iter().enumerate().map(|(at, m)| format!("m{at}=http://127.0.0.1:{}", m.peer)).collect();
        for (at, member) in self.members.iter().enumerate() {
            let (name, token) = (format!("m{at}"), format!("t{}", self.token));
            let peer = format!("http://127.0.0.1:{}", member.peer);
            let mut command = Command::new("etcdctl");
            command
                .env("ETCDCTL_API", "3")
                .args(["snapshot", "restore"])
                .arg(snapshot)
                .arg("--data-dir")
                .arg(self.data(at));
            command.args(["--name", &name, "--initial-cluster", &peers.join(","), "--initial-cluster-token", &token]);
            command.args(["--initial-advertise-peer-urls", &peer]);
            assert!(command.output().expect("etcdctl runs").status.success());
        }
        (0..self.members.len()).for_each(|at| self.launch(at));
        self.wait();
    }

    /// What an operator would type.
    pub fn ctl(&self, words: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(self.urls().join(",")).args(words);
        let output = command.output().expect("etcdctl runs");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The one that leads.
    pub fn leader(&self) -> usize {
        let status = |at: &usize| {
            let url = &self.urls()[*at];
            let mut command = Command::new("etcdctl");
            command.env("ETCDCTL_API", "3").args(["--endpoints", url, "endpoint", "status"]);
            let output = command.output().expect("etcdctl runs");
            // URL, ID, version, size, whether it leads.
            String::from_utf8_lossy(&output.stdout).split(", ").nth(4) == Some("true")
        };
        (0..self.members.len()).find(status).expect("one leads")
    }

    /// Until a majority answers.
    pub fn wait(&self) {
        if self.scheme() == "https" {
            let is_open = |m: &Member| TcpStream::connect(("127.0.0.1", m.client)).is_ok();
            return until("etcd to listen", || self.members.iter().all(is_open));
        }
        until("etcd to answer", || self.members.iter().all(|member| is_healthy(member.client)));
    }

    fn scheme(&self) -> &'static str {
        if self.more.iter().any(|word| word == "--cert-file") { "https" } else { "http" }
    }

    fn data(&self, at: usize) -> PathBuf {
        self.directory.join(format!("etcd-{at}-{}", self.token))
    }
}

impl Drop for Members {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|at| self.kill(at));
    }
}

fn is_healthy(port: u16) -> bool {
    let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let request =
        b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 14\r\n\r\n{\"key\":\"YQ==\"}";
    let mut answer = String::new();
    let _ = stream.write_all(request).and_then(|()| stream.read_to_string(&mut answer));
    // With users, it is asked who that is.
    answer.starts_with("HTTP/1.1 200") || answer.contains("user name is empty")
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::park_timeout(Duration::from_millis(50));
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").expect("a port is free").local_addr().expect("it has an address").port()
}

/// Answers every connection with these bytes, again and again where that is wanted; its address.
pub fn answerer(bytes: Vec<u8>, is_endless: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let bytes = bytes.clone();
            thread::spawn(move || {
                let mut asked = [0; 4096];
                let _ = stream.read(&mut asked);
                let mut sent = stream.write_all(&bytes);
                while is_endless && sent.is_ok() {
                    sent = stream.write_all(&[b' '; 4096]);
                }
            });
        }
    });
    format!("http://{address}")
}

/// A way to a member on which what is sent arrives, and the answer to what comes first is lost.
pub fn forgetful(url: &str) -> String {
    let member = url.strip_prefix("http://").expect("without TLS").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    thread::spawn(move || {
        for (turn, stream) in listener.incoming().enumerate() {
            let (Ok(mut near), Ok(mut far)) = (stream, TcpStream::connect(&member)) else { return };
            let (Ok(mut from), Ok(mut to)) = (near.try_clone(), far.try_clone()) else { return };
            thread::spawn(move || std::io::copy(&mut from, &mut to));
            thread::spawn(move || {
                let mut answer = [0; 64 << 10];
                while let Ok(read) = far.read(&mut answer) {
                    if read == 0 || turn == 0 || near.write_all(&answer[..read]).is_err() {
                        let _ = near.shutdown(std::net::Shutdown::Both);
                        return;
                    }
                }
            });
        }
    });
    format!("http://{address}")
}
