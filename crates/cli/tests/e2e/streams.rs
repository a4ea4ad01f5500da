//! The number of streams follows the path while a transfer runs: a laboratory whose loss holds every stream back.

use crate::bed::{Bed, Ran, program};

/// A stream carries about 6 Mbit/s of this (1.2 segments of 1448 bytes times (RTT / loss)^0.75, for each round trip).
const LOSSY: &str = "mtu = 1500\nhost-settings = 'tuned'\ncongestion-control = 'cubic'\n[site.a]\n[site.b]\n\
    [link.wan]\nbetween = ['a', 'b']\nrtt = '40ms'\nrate = '300Mbit'\nqueue = '1bdp'\nloss = '0.1%'\n";

/// A laboratory that goes down with its test.
struct Up<'a> {
    bed: &'a Bed,
    name: String,
}

impl<'a> Up<'a> {
    fn new(bed: &'a Bed, scenario: &str) -> Up<'a> {
        bed.write("scenario.toml", scenario.as_bytes());
        let name = format!("s{}", std::process::id());
        bed.run(&["lab", "up", "scenario.toml", "--name", &name]).succeeded();
        Up { bed, name }
    }

    fn at(&self, site: &str, args: &[&str]) -> Vec<String> {
        let program = program().display().to_string();
        let exec = ["lab", "exec", "--lab", &self.name, site, "--", &program];
        exec.iter().chain(args).map(|word| (*word).to_owned()).collect()
    }
}

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.bed.run(&["lab", "down", &self.name]);
    }
}

fn assert_grown(ran: Ran) {
    let done = ran.succeeded().done();
    let streams = done["streams"].as_u64().unwrap();
    let notes = done["notes"].to_string();
    assert!((8..=64).contains(&streams) && notes.contains("streams were added while running: from "), "{done}");
}

#[test]
fn a_lossy_path_gets_more_streams_while_the_transfer_runs_in_both_directions() {
    if !needs::root() {
        return;
    }
    let bed = Bed::new();
    let lab = Up::new(&bed, LOSSY);
    let serve = ["serve", "--listen", "10.101.2.1:7740", "--root", "root", "--ticket-file", "ticket"];
    let _server = bed.serve_with(bed.command("server", &lab.at("b", &serve)));
    bed.run(&lab.at("a", &["endpoint", "add", "far", "--ticket-file", "ticket"])).succeeded();
    // More than send buffers take in at the start, so that work is left for lanes that come later.
    assert_grown(bed.run(&lab.at("a", &["cp", "--json", "gen:1x160MiB", "far:null:"])));
    assert_grown(bed.run(&lab.at("a", &["cp", "--json", "far:gen:1x160MiB", "null:"])));
}
