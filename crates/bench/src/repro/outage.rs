//! A copy by two hosts into an endpoint that keeps its records in etcd, all members of which stand still and are then
//! dead, for a minute in all (a part of S0 figure 12): whether data goes on as fast as before.
//!
//! What counts is what has been published, by the sizes of files at the destination. The members run on the host of the
//! endpoint, where they may be asked without TLS. Raw: `outage.jsonl`, one line a run with what was published by each
//! second and the program's last event.

use std::fs::{self, File};
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use super::context::Context;
use super::endpoints::{Ended, Endpoints};
use super::judge::{Check, median, shown};
use crate::error::{Error, Kind, Result};
use crate::process::{Ready, Server};
use crate::tool::version_of;

const MBIT: u64 = 1_000_000;
const SENDERS: [&str; 2] = ["source1", "source2"];
const SINK: &str = "sink";
/// Of each member: where it is asked, and where the others reach it.
const PORTS: [(u16, u16); 3] = [(2379, 2380), (2381, 2382), (2383, 2384)];
const READY_LIMIT: Duration = Duration::from_secs(30);
/// Little beside what arrives in a second: a file counts when all of it is there.
const FILE_BYTES: u64 = 256 << 10;
/// Seconds of a copy over which rates are taken. The members are away for all of the second, and have some time to come
/// back until the third.
const PARTS: [Range<u64>; 3] = [20..60, 60..120, 130..160];
/// At half of the outage those that stood still are killed.
const KILLED_AT: u64 = 90;
/// What the hosts need for the set.
const RUN_SECONDS: u64 = 180;
const KEPT: f64 = 0.98;

/// What had been published at which second.
type Looks = Vec<(f64, u64)>;

pub fn run(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(50 * MBIT);
    let claim = "all members of etcd away for 60 s: bytes a second meanwhile / before";
    let (stand, mut members) = match build(context, rate) {
        Ok(built) => built,
        Err(error) if error.kind == Kind::Cancelled => return Err(error),
        Err(error) => {
            context.note(format!("etcd left out: {}", error.chain()));
            context.check(Check::at_least(claim, KEPT, None));
            return Ok(());
        }
    };
    let path = context.dir.join("outage.jsonl");
    let mut raw = File::create(&path).map_err(Error::io("create", &path))?;
    let (mut during, mut after, mut late) = (Vec::new(), Vec::new(), Vec::<String>::new());
    for round in 1..=context.options.rounds.unwrap_or(3) {
        let (ended, looks) = copy(&stand, &mut members)?;
        let rates = PARTS.map(|part| rate_of(&looks, part));
        let (head, took) = (format!(r#"{{"case":"etcd away","round":{round}"#), ended.seconds);
        let head = format!(r#"{head},"seconds":{took:.3},"bytes_per_second":{}"#, json!(rates));
        writeln!(raw, r#"{head},"published":{},{}}}"#, json!(looks), ended.raw()).map_err(Error::io("write", &path))?;
        late.extend(ended.late(&format!("round {round}")));
        let [before, meanwhile, afterwards] = rates;
        during.extend(meanwhile.zip(before).map(|(meanwhile, before)| meanwhile / before));
        after.extend(afterwards.zip(before).map(|(afterwards, before)| afterwards / before));
        (context.progress())(&format!("etcd away for 60 s: {took:.1} s"));
    }
    context.check(Check::at_least(claim, KEPT, median(during)).beside(&late));
    let told = median(after).map_or("no counted run".into(), shown);
    context.check(Check::told("etcd back for 10 s: bytes a second / before it was away", "", told));
    Ok(())
}

/// Hosts that send with a rate each, the endpoint, and the members of its etcd, which end first.
fn build<'a>(context: &Context<'a>, rate: u64) -> Result<(Endpoints<'a>, Vec<Server>)> {
    for (program, argument, package) in [("etcd", "--version", "etcd-server"), ("etcdctl", "version", "etcd-client")] {
        version_of(Path::new(program), argument, package)?;
    }
    let mut text = "[site.source]\nhosts = 2\n[site.sink]\n".to_owned();
    for site in ["source", SINK] {
        text.push_str(&format!("[link.{site}]\nbetween = [\"{site}\", \"core\"]\nrtt = \"5ms\"\n"));
        text.push_str("rate = \"10Gbit\"\nqueue = \"1bdp\"\n");
    }
    let files = SENDERS.len() as u64 * rate / 8 * RUN_SECONDS / FILE_BYTES;
    let mut stand = Endpoints::new(context, "outage", &text, SINK, 2 * files * FILE_BYTES)?;
    let members = start_members(&stand)?;
    let urls: Vec<_> = PORTS.iter().map(|(port, _)| url(*port)).collect();
    let config = stand.path("cluster.toml");
    let cluster = format!("[cluster]\nengine = \"etcd\"\nurls = {urls:?}\n");
    fs::write(&config, cluster).map_err(Error::io("write", &config))?;
    for root in ["from", "to"].map(|root| stand.path(root)) {
        fs::create_dir(&root).map_err(Error::io("create", &root))?;
    }
    for sender in SENDERS {
        let (home, rate) = (format!("home-{sender}"), format!("{}kbit", rate / 1000));
        stand.done(sender, &home, &["contract", "add", "card", "--direction", "out", "--rate", &rate])?;
        stand.serve(sender, &home, "from", &[])?;
    }
    // Commands are given at this host: it writes down in etcd what it hands out.
    stand.serve(SINK, "home-client", "to", &["--config", "cluster.toml"])?;
    stand.done(SINK, "home-client", &["gen", &format!("{files}x{FILE_BYTES}"), "from/set"])?;
    Ok((stand, members))
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// Starts them with what they have, and waits until they answer.
fn start_members(stand: &Endpoints) -> Result<Vec<Server>> {
    let all: Vec<_> = PORTS.iter().map(|(port, peer)| format!("m{port}={}", url(*peer))).collect();
    let start = |(port, peer): (u16, u16)| {
        let (name, client, peer) = (format!("m{port}"), url(port), url(peer));
        let mut command = Command::new("etcd");
        command.args(["--name", &name, "--data-dir"]).arg(stand.path(&format!("etcd-{port}")));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &all.join(",")]);
        stand.beside(SINK, &command, &Ready::Listens(port), &format!("etcd-{port}"))
    };
    let members = PORTS.into_iter().map(start).collect::<Result<Vec<_>>>()?;
    let (urls, mut ask) = (PORTS.map(|(port, _)| url(port)).join(","), Command::new("etcdctl"));
    ask.env("ETCDCTL_API", "3").args(["--endpoints", &urls, "endpoint", "health"]);
    let began = Instant::now();
    while !stand.lab.exec(SINK, &ask)?.output().map_err(Error::io("run", "etcdctl"))?.status.success() {
        if began.elapsed() > READY_LIMIT {
            return Err(Error::new(Kind::Failed, "wait for", "etcd", "its members do not answer"));
        }
        stand.pass(Duration::from_secs(1));
    }
    Ok(members)
}

/// One copy of the set, which is compared with its source.
fn copy(stand: &Endpoints, members: &mut Vec<Server>) -> Result<(Ended, Looks)> {
    const WHAT: &str = "while etcd is away";
    let args = ["--config", "cluster.toml", "--fsync", "never", "--hosts", SENDERS[1], "source1:set/", "sink:set/"];
    let running = stand.start(&args)?;
    let (began, mut looks, tree) = (Instant::now(), Looks::new(), stand.path("to/set"));
    let mut watch = |seconds: Range<u64>| {
        for second in seconds {
            stand.pass(Duration::from_secs(second + 1).saturating_sub(began.elapsed()));
            looks.push((began.elapsed().as_secs_f64(), published_bytes(&tree)));
        }
    };
    let [_, away, after] = PARTS;
    watch(0..away.start);
    members.iter().for_each(Server::pause);
    watch(away.start..KILLED_AT);
    members.drain(..).for_each(Server::kill);
    watch(KILLED_AT..away.end);
    *members = start_members(stand)?;
    watch(away.end..after.end);
    let ended = stand.end(running, WHAT)?;
    let is_same = stand.are_same("from/set", "to/set")?;
    fs::remove_dir_all(&tree).map_err(Error::io("remove", &tree))?;
    match is_same {
        true => Ok((ended, looks)),
        false => Err(Error::new(Kind::Failed, "copy", WHAT, "what was delivered is not the set")),
    }
}

/// Of files that have their names.
fn published_bytes(tree: &Path) -> u64 {
    let bytes = |entry: fs::DirEntry| match entry.metadata() {
        Ok(found) if found.is_dir() => published_bytes(&entry.path()),
        found => found.map_or(0, |found| found.len()),
    };
    fs::read_dir(tree).into_iter().flatten().flatten().map(bytes).sum()
}

/// Bytes a second from the first look in that time to the one that ends it.
fn rate_of(looks: &[(f64, u64)], seconds: Range<u64>) -> Option<f64> {
    let first = looks.iter().find(|(at, _)| *at >= seconds.start as f64)?;
    let last = looks.iter().find(|(at, _)| *at >= seconds.end as f64)?;
    (last.0 > first.0).then(|| last.1.saturating_sub(first.1) as f64 / (last.0 - first.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_time_in_question_and_there_is_none_of_a_copy_that_was_over_before() {
        let looks: Looks = (1..=100u64).map(|second| (second as f64 + 0.01, second.min(60) * 1000)).collect();
        let near = |rate: Option<f64>, wanted: f64| rate.is_some_and(|rate| (rate - wanted).abs() < 1e-6);
        assert!(near(rate_of(&looks, 20..60), 1000.0) && near(rate_of(&looks, 60..100), 0.0));
        assert_eq!(rate_of(&looks, 90..120), None);
    }

    #[test]
    fn what_is_published_is_counted_in_all_directories() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("set/d")).unwrap();
        fs::write(dir.path().join("set/f"), [0u8; 5]).unwrap();
        fs::write(dir.path().join("set/d/g"), [0u8; 7]).unwrap();
        assert_eq!((published_bytes(&dir.path().join("set")), published_bytes(&dir.path().join("none"))), (12, 0));
    }
}
