//! A million small files over a long path: into a cluster of three hosts that share storage, and from three replicas.
//!
//! Every copy is compared by a program that is not ours before its time counts. Raw: `million.jsonl`, one line a run with the program's
//! last event; `set-up.json` has the machine and the programs.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

use serde_json::json;

use super::context::Context;
use super::endpoints::{Ended, Endpoints};
use super::judge::{Check, median};
use crate::environment::{Environment, Program};
use crate::error::{Error, Kind, Result};
use crate::tool::version_of;

const MBIT: u64 = 1_000_000;
const RTT_MS: u64 = 74;
const FILES: u64 = 1_000_000;
const FILE_BYTES: u64 = 1024;
/// What a file takes in memory beside its content: a page, its inode and its name.
const FILE_COST_BYTES: u64 = 6 << 10;
const FAR: [&str; 3] = ["far1", "far2", "far3"];

const CASES: [(&str, &[&str]); 4] = [
    ("to one host", &["set/", "far1:set/"]),
    ("into three hosts", &["--to-hosts", "far2,far3", "set/", "far1:set/"]),
    ("from one host", &["far1:set/", "back/"]),
    ("from three replicas", &["--replica", "far1:set/", "--replica", "far2:set/", "--replica", "far3:set/", "back/"]),
];

pub fn run(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(1000 * MBIT);
    let files = context.options.bytes.map_or(FILES, |bytes| bytes / FILE_BYTES);
    let link = |name: &str, rtt_ms| {
        format!(
            "[link.{name}]\nbetween = [\"{name}\", \"core\"]\nrtt = \"{rtt_ms}ms\"\nrate = \"{}kbit\"\nqueue = \"1bdp\"\n",
            rate / 1000
        )
    };
    let text = format!("[site.here]\n[site.far]\nhosts = 3\n{}{}", link("here", RTT_MS), link("far", 1));
    let mut stand = Endpoints::new(context, "million", &text, "here", 2 * files * FILE_COST_BYTES)?;
    let root = stand.path("root");
    fs::create_dir_all(&root).map_err(Error::io("create", &root))?;
    for host in FAR {
        stand.serve(host, &format!("home-{host}"), "root", &[])?;
    }
    stand.done("here", "home-client", &["gen", &format!("{files}x{FILE_BYTES}"), "set"])?;
    keep_set_up(context, rate, files)?;
    let path = context.dir.join("million.jsonl");
    let mut raw = File::create(&path).map_err(Error::io("create", &path))?;
    let (mut seconds, mut late) = (CASES.map(|_| Vec::new()), CASES.map(|_| Vec::<String>::new()));
    for round in 1..=context.options.rounds.unwrap_or(1) {
        for (((case, args), seconds), late) in CASES.iter().zip(&mut seconds).zip(&mut late) {
            let ended = copy(&stand, case, args)?;
            let took = ended.seconds;
            let head = format!(r#"{{"case":"{case}","round":{round},"seconds":{took:.3},"files":{files}"#);
            writeln!(raw, "{head},{}}}", ended.raw()).map_err(Error::io("write", &path))?;
            seconds.push(took);
            late.extend(ended.late(&format!("{case}, round {round}")));
            (context.progress())(&format!("{case}: {took:.1} s"));
        }
        let _ = fs::remove_dir_all(stand.path("root/set"));
    }
    let [to_one, to_three, from_one, from_three] = seconds.map(median);
    let ratio = |one: Option<f64>, several: Option<f64>| one.zip(several).map(|(one, several)| one / several);
    let (into, from) = ([&late[0][..], &late[1]].concat(), [&late[2][..], &late[3]].concat());
    let check = Check::at_least("into three hosts: rate beside one", 0.95, ratio(to_one, to_three));
    context.check(check.beside(&into));
    let check = Check::at_least("from three replicas: rate beside one host", 0.95, ratio(from_one, from_three));
    context.check(check.beside(&from));
    let alone = [("into three hosts", to_three, &late[1]), ("from three replicas", from_three, &late[3])];
    for (claim, took, late) in alone {
        let rate = took.map_or("-".to_owned(), |took| format!("{:.0} files/s", files as f64 / took));
        context.check(Check::told(claim, "", rate).beside(late));
    }
    context.note("all hosts share the processors of one machine, which limit small files: several hosts cost no more than one is what can be seen here");
    Ok(())
}

fn keep_set_up(context: &Context, bits_per_second: u64, files: u64) -> Result<()> {
    let environment = Environment { program: Program::read(&context.options.program), ..Environment::read() };
    let reader = version_of(Path::new("diff"), "--version", "diffutils")?;
    let set_up = json!({"environment": environment, "reader": reader, "files": files, "file_bytes": FILE_BYTES,
        "bits_per_second": bits_per_second, "rtt_ms": RTT_MS, "far_hosts": FAR.len()});
    let path = context.dir.join("set-up.json");
    let text = serde_json::to_string_pretty(&set_up).expect("plain values serialise") + "\n";
    fs::write(&path, text).map_err(Error::io("write", &path))
}

fn copy(stand: &Endpoints, case: &str, args: &[&str]) -> Result<Ended> {
    let _ = fs::remove_dir_all(stand.path("back"));
    let is_back = args.last() == Some(&"back/");
    if !is_back {
        let _ = fs::remove_dir_all(stand.path("root/set"));
    }
    let running = stand.start(&[&["--fsync", "never"], args].concat())?;
    let done = stand.end(running, case)?;
    let to = if is_back { "back" } else { "root/set" };
    match stand.are_same("set", to)? {
        true => Ok(done),
        false => Err(Error::new(Kind::Failed, "copy", case, "what was delivered is not the set")),
    }
}
