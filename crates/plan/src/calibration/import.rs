//! What other tools measured, as runs of a part: `dd`, `iozone`, `fio` and `iperf3`, told apart by what they print.
//!
//! Invariant: only figures that the tool itself gives are taken; a text that holds none is an error that says what was looked for.
//!
//! Not here: running these tools, and reading files (`cli`).

use super::written::{Part, Run};
use serde_json::Value;

/// A tool's name, and its runs.
pub type Imported = (&'static str, Vec<Run>);

/// No tool prints more than these in earnest.
const RUNS_MAX: usize = 10_000;

/// # Errors
/// With words for the user.
pub fn import(part: Part, text: &str) -> Result<Imported, String> {
    if matches!(part, Part::Metadata | Part::Engine) {
        return Err(format!("{} cannot be imported: read, write and network can", part.word()));
    }
    let (tool, runs) = match serde_json::from_str::<Value>(text) {
        Ok(value) if value["end"].is_object() => ("iperf3", iperf3(&value)),
        Ok(value) if value["jobs"].is_array() => ("fio", fio(part, &value)),
        _ if text.contains("Children see throughput") => ("iozone", iozone(part, text)),
        _ => ("dd", text.lines().filter_map(dd).collect()),
    };
    let runs: Vec<Run> = runs.into_iter().filter(Run::is_usable).take(RUNS_MAX).collect();
    match (part, tool) {
        (Part::Network, "dd" | "iozone" | "fio") if !runs.is_empty() => {
            Err(format!("{tool} measures storage, not a network"))
        }
        (Part::Read | Part::Write, "iperf3") => Err("iperf3 measures a network, not storage".to_owned()),
        _ if runs.is_empty() => Err(format!(
            "no figure of {} was found in it: the output of dd, of iozone -t N, of fio --output-format=json or of iperf3 -J can be read",
            part.word()
        )),
        _ => Ok((tool, runs)),
    }
}

fn run(streams: u64, bytes: f64, seconds: f64) -> Option<Run> {
    let streams = u32::try_from(streams).ok().filter(|streams| (1..=10_000).contains(streams))?;
    let file_bytes = (bytes / f64::from(streams)) as u64;
    Some(Run {
        streams,
        files: u64::from(streams),
        file_bytes,
        seconds,
        cpu_seconds: 0.0,
        steady: None,
        is_free: false,
    })
}

/// What the receiver got: what is in the sender's buffers at the end has not arrived.
fn iperf3(value: &Value) -> Vec<Run> {
    let sum = &value["end"]["sum_received"];
    let streams = value["start"]["test_start"]["num_streams"].as_u64();
    let found = || run(streams?, sum["bytes"].as_f64()?, sum["seconds"].as_f64()?);
    found().into_iter().collect()
}

/// Jobs of one group ran at the same time: together they are one run. Times are milliseconds.
fn fio(part: Part, value: &Value) -> Vec<Run> {
    let side = if part == Part::Read { "read" } else { "write" };
    let mut groups: std::collections::BTreeMap<u64, (u64, f64, f64)> = std::collections::BTreeMap::new();
    for job in value["jobs"].as_array().into_iter().flatten().take(RUNS_MAX) {
        let bytes = job[side]["io_bytes"].as_f64().unwrap_or(0.0);
        if bytes <= 0.0 {
            continue;
        }
        let milliseconds = job[side]["runtime"].as_f64().unwrap_or(0.0);
        let jobs_of = |options: &Value| options["numjobs"].as_str().and_then(|text| text.parse().ok());
        let merged = jobs_of(&job["job options"]).or_else(|| jobs_of(&value["global options"]));
        // With group_reporting one entry stands for all of a group's jobs.
        let is_merged =
            job["job options"]["group_reporting"].is_string() || value["global options"]["group_reporting"].is_string();
        let jobs = if is_merged { merged.unwrap_or(1) } else { 1 };
        let group = groups.entry(job["groupid"].as_u64().unwrap_or(0)).or_default();
        *group = (group.0.saturating_add(jobs), group.1 + bytes, group.2.max(milliseconds / 1e3));
    }
    groups.into_values().filter_map(|(jobs, bytes, seconds)| run(jobs, bytes, seconds)).collect()
}

/// `Children see throughput for  4 readers  =  812345.00 kB/sec` and `Each process writes a 1048576 kByte file in ...`.
fn iozone(part: Part, text: &str) -> Vec<Run> {
    let number = |text: &str| text.split_whitespace().find_map(|word| word.parse::<f64>().ok());
    let kilobytes = text.lines().find_map(|line| number(line.split_once("Each process writes a")?.1)).unwrap_or(1024.0);
    let kind = if part == Part::Read { "readers" } else { "initial writers" };
    let found = |line: &str| {
        let (what, rate) = line.split_once("Children see throughput for")?.1.split_once('=')?;
        let streams = number(what)? as u64;
        // `re-readers` and `reverse readers` are other tests.
        let is_it = what.split_whitespace().skip(1).collect::<Vec<_>>().join(" ") == kind;
        let bytes = kilobytes * 1024.0 * streams as f64;
        if is_it { run(streams, bytes, bytes / (number(rate)? * 1024.0)) } else { None }
    };
    text.lines().filter_map(found).collect()
}

/// `1073741824 bytes (1.1 GB, 1.0 GiB) copied, 0.512 s, 2.1 GB/s`
fn dd(line: &str) -> Option<Run> {
    let (bytes, rest) = line.split_once(" bytes ")?;
    let seconds = rest.split_once("copied, ")?.1.split_once(" s")?.0;
    run(1, bytes.trim().parse().ok()?, seconds.replace(',', ".").parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(part: Part, text: &str) -> (&'static str, Vec<(u32, u64)>) {
        let (tool, runs) = import(part, text).unwrap();
        let rate = |run: &Run| (run.streams, (run.files as f64 * run.file_bytes as f64 / run.seconds).round() as u64);
        (tool, runs.iter().map(rate).collect())
    }

    #[test]
    fn each_tool_is_known_by_what_it_prints() {
        let dd = "8+0 records in\n8+0 records out\n8388608 bytes (8.4 MB, 8.0 MiB) copied, 0.5 s, 16.8 MB/s\n";
        assert_eq!(rates(Part::Write, dd), ("dd", vec![(1, 16_777_216)]));
        let iperf3 = r#"{"start":{"test_start":{"num_streams":4}},
            "end":{"sum_sent":{"bytes":9e9,"seconds":10},"sum_received":{"bytes":1.25e9,"seconds":10}}}"#;
        assert_eq!(rates(Part::Network, iperf3), ("iperf3", vec![(4, 125_000_000)]));
        let fio = r#"{"fio version":"fio-3.33","global options":{"group_reporting":""},"jobs":[
            {"groupid":0,"job options":{"numjobs":"4"},"read":{"io_bytes":1000000000,"runtime":2000},"write":{"io_bytes":0,"runtime":0}},
            {"groupid":1,"job options":{"numjobs":"8"},"read":{"io_bytes":3000000000,"runtime":3000},"write":{"io_bytes":0,"runtime":0}}]}"#;
        assert_eq!(rates(Part::Read, fio), ("fio", vec![(4, 500_000_000), (8, 1_000_000_000)]));
        assert!(import(Part::Write, fio).unwrap_err().contains("no figure of write"));
        let of_all = r#"{"global options":{"group_reporting":"1","numjobs":"4"},"jobs":[{"groupid":0,"job options":{"name":"a"},
            "read":{"io_bytes":1000000000,"runtime":2000},"write":{"io_bytes":0,"runtime":0}}]}"#;
        assert_eq!(rates(Part::Read, of_all), ("fio", vec![(4, 500_000_000)]));
        let iozone = "\tEach process writes a 1024 kByte file in 64 kByte records\n\
            \tChildren see throughput for  4 initial writers \t=  1024.00 kB/sec\n\
            \tChildren see throughput for  4 rewriters \t=  9024.00 kB/sec\n\
            \tChildren see throughput for  4 readers \t\t=  2048.00 kB/sec\n\
            \tChildren see throughput for 4 re-readers \t=  9048.00 kB/sec\n";
        assert_eq!(rates(Part::Write, iozone), ("iozone", vec![(4, 1 << 20)]));
        assert_eq!(rates(Part::Read, iozone), ("iozone", vec![(4, 2 << 20)]));
    }

    #[test]
    fn what_measured_something_else_or_nothing_is_refused() {
        let dd = "8 bytes (8 B) copied, 0.5 s, 16 B/s";
        assert!(import(Part::Network, dd).unwrap_err().contains("dd measures storage"));
        assert!(import(Part::Metadata, dd).unwrap_err().contains("cannot be imported"));
        for nothing in
            ["", "{}", "no", "-5 bytes (x) copied, nan s", "5 bytes (x) copied, inf s, 1", r#"{"jobs":[{}]}"#]
        {
            assert!(import(Part::Read, nothing).unwrap_err().contains("no figure of read"), "{nothing}");
        }
    }
}
