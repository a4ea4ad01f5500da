//! One transfer over four links, each of a card of its own at both ends: what it gets of their sum, with equal and with unequal links
//! (S4 table 6 computes that from runs over one).
//!
//! Raw: `cards.jsonl`, one line a run with the program's last event.

use std::fs::{self, File};
use std::io::Write;

use super::context::Context;
use super::endpoints::{Ended, Endpoints};
use super::judge::{Check, median};
use crate::error::{Error, Kind, Result};

const MBIT: u64 = 1_000_000;
const CARDS: usize = 4;
const RTT_MS: u64 = 74;
const RUN_SECONDS: u64 = 24;
const FILE_BYTES: u64 = 1 << 20;
/// Of the fastest, in quarters.
const UNEQUAL: [u64; CARDS] = [4, 4, 2, 1];

pub fn run(context: &mut Context) -> Result<()> {
    let rate = context.options.bits_per_second.unwrap_or(200 * MBIT);
    fs::create_dir_all(&context.dir).map_err(Error::io("create", &context.dir))?;
    let path = context.dir.join("cards.jsonl");
    let mut raw = File::create(&path).map_err(Error::io("create", &path))?;
    for (links, quarters) in [("equal", [4; CARDS]), ("unequal", UNEQUAL)] {
        let rates = quarters.map(|quarter| rate * quarter / 4);
        let (sum, together) = (rates.iter().sum::<u64>(), rates.iter().sum::<u64>() / 8 * RUN_SECONDS);
        let mut stand = stand(context, rates, together)?;
        for (what, of_file) in [("one file", None), ("files of 1 MiB", Some(FILE_BYTES))] {
            let (mut seconds, mut late) = ([Vec::new(), Vec::new()], Vec::<String>::new());
            for round in 1..=context.options.rounds.unwrap_or(3) {
                for (paths, seconds) in ["1", "all"].into_iter().zip(&mut seconds) {
                    let bytes = if paths == "1" { rate / 8 * RUN_SECONDS } else { together };
                    let (files, of_file) = of_file.map_or((1, bytes), |of_file| (bytes / of_file, of_file));
                    let name = format!("{links} links, {what}, --paths {paths}");
                    let ended = copy(&mut stand, &format!("{files}x{of_file}"), paths, &name)?;
                    let took = ended.seconds;
                    let head = format!(r#"{{"case":"{name}","round":{round},"seconds":{took:.3}"#);
                    writeln!(raw, r#"{head},"set_bytes":{},{}}}"#, files * of_file, ended.raw())
                        .map_err(Error::io("write", &path))?;
                    late.extend(ended.late(&format!("--paths {paths}, round {round}")));
                    seconds.push((files * of_file) as f64 * 8.0 / took);
                    (context.progress())(&format!("{name}: {took:.1} s"));
                }
            }
            let [one, all] = seconds.map(median);
            // What one card gives of its link is taken for all of them.
            let share = one.zip(all).map(|(one, all)| all / (one * sum as f64 / rate as f64));
            let claim = format!("{what} over four {links} links / the sum of what each would give alone");
            context.check(Check::at_least(claim, 0.95, share).beside(&late));
        }
    }
    context.note(format!("links of {} Mbit/s, unequal: 1, 1, 1/2 and 1/4 of it; {RTT_MS} ms", rate / MBIT));
    Ok(())
}

fn stand<'a>(context: &Context<'a>, rates: [u64; CARDS], bytes: u64) -> Result<Endpoints<'a>> {
    let mut text = "[site.a]\n[site.b]\n".to_owned();
    for (number, rate) in rates.iter().enumerate() {
        text.push_str(&format!("[link.wan{}]\nbetween = [\"a\", \"b\"]\nrtt = \"{RTT_MS}ms\"\n", number + 1));
        text.push_str(&format!("rate = \"{}kbit\"\nqueue = \"1bdp\"\n", rate / 1000));
    }
    let mut stand = Endpoints::new(context, "cards", &text, "a", 2 * bytes)?;
    let root = stand.path("to");
    fs::create_dir_all(&root).map_err(Error::io("create", &root))?;
    stand.serve("b", "home-b", "to", &[])?;
    Ok(stand)
}

fn copy(stand: &mut Endpoints, set: &str, paths: &str, what: &str) -> Result<Ended> {
    stand.done("a", "home-client", &["gen", set, "from/set"])?;
    let running = stand.start(&["--fsync", "never", "--paths", paths, "from/set/", "b:set/"])?;
    let done = stand.end(running, what)?;
    let is_same = stand.are_same("from/set", "to/set")?;
    for path in ["from/set", "to/set"] {
        let _ = fs::remove_dir_all(stand.path(path));
    }
    match is_same {
        true => Ok(done),
        false => Err(Error::new(Kind::Failed, "copy", what, "what was delivered is not the set")),
    }
}
